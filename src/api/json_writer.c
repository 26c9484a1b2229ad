/* One flag is enough for the commas: it is cleared by an opening bracket and set by everything
 * else, so no stack of levels is needed. Strings are copied in runs of bytes that need no escaping.
 */
#include "api/json_writer.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

sh_json_writer sh_json_writer_on(sh_buf *out)
{
    return (sh_json_writer){.out = out};
}

/* The comma and the key before any value. */
static void item(sh_json_writer *w, const char *key)
{
    if (w->comma) sh_buf_add_char(w->out, ',');
    w->comma = true;
    if (key == NULL) return;
    sh_write_quoted(w->out, sh_str_of(key));
    sh_buf_add_char(w->out, ':');
}

void sh_write_begin(sh_json_writer *w, const char *key, char bracket)
{
    item(w, key);
    sh_buf_add_char(w->out, bracket);
    w->comma = false;
}

void sh_write_end(sh_json_writer *w, char bracket)
{
    sh_buf_add_char(w->out, bracket);
    w->comma = true;
}

/* How many bytes from `at` on need no escaping. */
static size_t plain_run(sh_str text, size_t at)
{
    size_t end = at;
    while (end < text.len) {
        unsigned char c = (unsigned char)text.ptr[end];
        if (c < 0x20 || c == '"' || c == '\\') break;
        if (c < 0x80) {
            end++;
            continue;
        }
        uint32_t code;
        int len = sh_utf8_decode(text.ptr + end, text.len - end, &code);
        if (len == 0) break;
        end += (size_t)len;
    }
    return end - at;
}

/* Writes one byte that plain_run() stopped at; one that is not UTF-8 becomes U+FFFD. */
static void escape(sh_buf *out, unsigned char c)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *known = c == 0 ? NULL : strchr(from, c);
    if (known != NULL) {
        sh_buf_add_char(out, '\\');
        sh_buf_add_char(out, to[known - from]);
    } else if (c < 0x20)
        sh_buf_addf(out, "\\u%04x", c);
    else
        sh_buf_add_text(out, "\xef\xbf\xbd");
}

void sh_write_quoted(sh_buf *out, sh_str text)
{
    sh_buf_add_char(out, '"');
    for (size_t at = 0; at < text.len;) {
        size_t run = plain_run(text, at);
        sh_buf_add(out, text.ptr + at, run);
        at += run;
        if (at < text.len) escape(out, (unsigned char)text.ptr[at++]);
    }
    sh_buf_add_char(out, '"');
}

void sh_write_str(sh_json_writer *w, const char *key, sh_str text)
{
    item(w, key);
    sh_write_quoted(w->out, text);
}

void sh_write_text(sh_json_writer *w, const char *key, const char *text)
{
    if (text == NULL)
        sh_write_null(w, key);
    else
        sh_write_str(w, key, sh_str_of(text));
}

void sh_write_int(sh_json_writer *w, const char *key, int64_t value)
{
    item(w, key);
    sh_buf_addf(w->out, "%lld", (long long)value);
}

void sh_write_num(sh_json_writer *w, const char *key, double value)
{
    if (!isfinite(value)) {
        sh_write_null(w, key);
        return;
    }
    item(w, key);
    sh_buf_addf(w->out, "%.9g", value);
}

void sh_write_fixed(sh_json_writer *w, const char *key, double value, int decimals)
{
    item(w, key);
    sh_buf_addf(w->out, "%.*f", decimals, value);
}

void sh_write_bool(sh_json_writer *w, const char *key, bool value)
{
    item(w, key);
    sh_buf_add_text(w->out, value ? "true" : "false");
}

void sh_write_null(sh_json_writer *w, const char *key)
{
    item(w, key);
    sh_buf_add_text(w->out, "null");
}

void sh_write_raw(sh_json_writer *w, const char *key, sh_str json)
{
    item(w, key);
    sh_buf_add_str(w->out, json);
}
