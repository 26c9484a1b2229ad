/* A parser for request heads after RFC 9112, without its leniencies.
 *
 * The head arrives complete in one buffer, so this is a plain pass over lines with no state to
 * resume. Nothing is copied: names and values point into the buffer. Each check that looks pedantic
 * closes a known way to make two servers disagree about where a request ends; relaxing one for a
 * client is a security decision. tests/api/framing.mjs compares the results with those of Node. */
#include "http/head.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const method_names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                           "PATCH", "DELETE", "OPTIONS", "OTHER"};

const char *sh_http_method_name(sh_http_method method)
{
    return method_names[method];
}

static const sh_http_refusal fine = {0, NULL};

static sh_http_refusal bad(const char *why)
{
    return (sh_http_refusal){400, why};
}

/* RFC 9110's tchar. */
static bool is_token_char(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(sh_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_token_char(text.ptr[i])) return false;
    return text.len > 0;
}

static bool is_visible(sh_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] <= ' ' || text.ptr[i] == 127) return false;
    return text.len > 0;
}

static sh_str trim_ows(sh_str text)
{
    while (text.len > 0 && (text.ptr[0] == ' ' || text.ptr[0] == '\t'))
        text = sh_str_sub(text, 1, text.len);
    while (text.len > 0 && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
        text.len--;
    return text;
}

static bool eq_nocase(sh_str text, const char *other)
{
    return text.len == strlen(other) && strncasecmp(text.ptr, other, text.len) == 0;
}

bool sh_http_list_has(sh_str list, const char *token)
{
    sh_str item;
    while (sh_str_cut(&list, ',', &item))
        if (eq_nocase(trim_ows(item), token)) return true;
    return false;
}

sh_str sh_http_head_find(const sh_http_head *head, const char *name)
{
    for (int i = 0; i < head->header_count; i++)
        if (sh_str_is(head->headers[i].name, name)) return head->headers[i].value;
    return (sh_str){"", 0};
}

static int count_of(const sh_http_head *head, const char *name)
{
    int count = 0;
    for (int i = 0; i < head->header_count; i++)
        if (sh_str_is(head->headers[i].name, name)) count++;
    return count;
}

/* Removes the next line from *rest. A line ends with CR LF; either of them alone is an error. */
static bool line_cut(sh_str *rest, sh_str *line)
{
    size_t end = sh_str_find(*rest, SH_STR("\r\n"), 0);
    if (end == rest->len) return false;
    *line = sh_str_sub(*rest, 0, end);
    *rest = sh_str_sub(*rest, end + 2, rest->len);
    return memchr(line->ptr, '\r', line->len) == NULL && memchr(line->ptr, '\n', line->len) == NULL;
}

/* "/path?query", "*", or "http://host/path?query" as proxies write it. */
static bool target_parse(sh_str target, sh_http_head *out)
{
    if (!is_visible(target)) return false;
    size_t scheme = sh_str_find(target, SH_STR("://"), 0);
    if (target.ptr[0] != '/' && scheme < target.len) {
        size_t slash = sh_str_find(target, SH_STR("/"), scheme + 3);
        target = slash == target.len ? SH_STR("/") : sh_str_sub(target, slash, target.len);
    }
    size_t mark = sh_str_find(target, SH_STR("?"), 0);
    out->path = sh_str_sub(target, 0, mark);
    out->query = mark == target.len ? SH_STR("") : sh_str_sub(target, mark + 1, target.len);
    return out->path.len > 0 && (out->path.ptr[0] == '/' || sh_str_is(out->path, "*"));
}

static sh_http_method method_of(sh_str text)
{
    for (int i = 0; i < SH_HTTP_OTHER; i++)
        if (sh_str_is(text, method_names[i])) return (sh_http_method)i;
    return SH_HTTP_OTHER;
}

static sh_http_refusal request_line_parse(sh_str line, sh_http_head *out)
{
    size_t first = sh_str_find(line, SH_STR(" "), 0);
    size_t second = first < line.len ? sh_str_find(line, SH_STR(" "), first + 1) : line.len;
    if (second == line.len) return bad("the request line is not 'METHOD target HTTP/1.1'");
    sh_str version = sh_str_sub(line, second + 1, line.len);
    if (version.len != 8 || !sh_str_starts(version, SH_STR("HTTP/")) || version.ptr[6] != '.')
        return bad("the request line is not 'METHOD target HTTP/1.1'");
    out->method_text = sh_str_sub(line, 0, first);
    if (!is_token(out->method_text)) return bad("the method is not a token");
    if (version.ptr[5] != '1' || (version.ptr[7] != '1' && version.ptr[7] != '0'))
        return (sh_http_refusal){505, "this server supports HTTP/1.1 and HTTP/1.0"};
    out->minor = version.ptr[7] - '0';
    out->method = method_of(out->method_text);
    if (!target_parse(sh_str_sub(line, first + 1, second - first - 1), out))
        return bad("the request target is not a path");
    return fine;
}

/* `text` is the same line, writable. A folded line starts with white space, which is not a token,
 * so it fails the check of the name; so does white space before the colon. */
static sh_http_refusal header_parse(char *text, sh_str line, sh_http_head *out)
{
    size_t colon = sh_str_find(line, SH_STR(":"), 0);
    sh_str name = sh_str_sub(line, 0, colon);
    if (colon == line.len || !is_token(name))
        return bad("a header line is not 'Name: value' (folded lines are not supported)");
    sh_str value = trim_ows(sh_str_sub(line, colon + 1, line.len));
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if ((c < ' ' && c != '\t') || c == 127)
            return bad("a header value contains a control character");
    }
    if (out->header_count == SH_HTTP_HEADERS_MAX)
        return (sh_http_refusal){431, "the request has too many headers"};
    for (size_t i = 0; i < name.len; i++)
        if (text[i] >= 'A' && text[i] <= 'Z') text[i] = (char)(text[i] + ('a' - 'A'));
    out->headers[out->header_count++] = (sh_http_header){name, value};
    return fine;
}

static sh_http_refusal length_parse(sh_http_head *out)
{
    sh_str text = sh_http_head_find(out, "content-length");
    uint64_t length = 0;
    if (text.len == 0 || text.len > 18) /* 18 digits cannot overflow 64 bits */
        return bad("Content-Length is not a number");
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') return bad("Content-Length is not a number");
        length = length * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    out->content_length = length;
    return fine;
}

/* Exactly one way to tell where the body ends, or none. Two lengths are refused even if they agree,
 * and so is a length next to chunks: that is the classic way to smuggle a request. */
static sh_http_refusal framing_parse(sh_http_head *out)
{
    int lengths = count_of(out, "content-length"), codings = count_of(out, "transfer-encoding");
    if (lengths + codings > 1)
        return bad("the length of the body is given twice (Content-Length, Transfer-Encoding)");
    if (lengths == 1) return length_parse(out);
    if (codings == 0) return fine;
    if (out->minor == 0) return bad("HTTP/1.0 has no Transfer-Encoding");
    if (!eq_nocase(sh_http_head_find(out, "transfer-encoding"), "chunked"))
        return (sh_http_refusal){501, "the only supported Transfer-Encoding is 'chunked'"};
    out->chunked = true;
    return fine;
}

static sh_http_refusal meaning_parse(sh_http_head *out)
{
    int hosts = count_of(out, "host");
    if (hosts > 1 || (hosts == 0 && out->minor == 1))
        return bad("an HTTP/1.1 request must have exactly one Host header");
    sh_str connection = sh_http_head_find(out, "connection");
    out->keep_alive = out->minor == 1 ? !sh_http_list_has(connection, "close")
                                      : sh_http_list_has(connection, "keep-alive");
    sh_str expect = sh_http_head_find(out, "expect");
    if (expect.len > 0 && !eq_nocase(expect, "100-continue"))
        return (sh_http_refusal){417, "the only supported Expect is '100-continue'"};
    out->expect_continue = expect.len > 0 && out->minor == 1;
    return framing_parse(out);
}

sh_http_refusal sh_http_head_parse(char *text, size_t len, sh_http_head *out)
{
    sh_str rest = {text, len}, line;
    /* The array itself is not cleared (it is large): only its first header_count entries count. */
    out->header_count = 0;
    out->method = SH_HTTP_OTHER;
    out->method_text = out->path = out->query = SH_STR("");
    out->minor = 1;
    out->keep_alive = out->expect_continue = out->chunked = false;
    out->content_length = 0;

    if (!line_cut(&rest, &line)) return bad("a line does not end with CR LF");
    sh_http_refusal refusal = request_line_parse(line, out);
    while (refusal.status == 0) {
        if (!line_cut(&rest, &line)) return bad("a line does not end with CR LF");
        if (line.len == 0) break;
        refusal = header_parse(text + (line.ptr - text), line, out);
    }
    return refusal.status != 0 ? refusal : meaning_parse(out);
}
