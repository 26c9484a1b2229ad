/* The event stream format of the HTML standard: what the API sends, and what our own commands need
 * to read it. */
#include "http/sse.h"

#include <string.h>

/* In this format CR, LF and CR LF all end a line. */
static size_t line_end(sh_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '\n' || text.ptr[i] == '\r') return i;
    return text.len;
}

void sh_sse_event(sh_buf *out, const char *name, sh_str data)
{
    if (name != NULL) sh_buf_addf(out, "event: %s\n", name);
    for (;;) {
        size_t end = line_end(data);
        sh_buf_add_text(out, "data: ");
        sh_buf_add(out, data.ptr, end);
        sh_buf_add_char(out, '\n');
        if (end == data.len) break;
        bool both = data.ptr[end] == '\r' && end + 1 < data.len && data.ptr[end + 1] == '\n';
        data = sh_str_sub(data, end + (both ? 2 : 1), data.len);
    }
    sh_buf_add_char(out, '\n');
}

void sh_sse_comment(sh_buf *out, const char *text)
{
    sh_buf_addf(out, ": %s\n\n", text);
}

static void data_line_add(sh_str line, bool *any, sh_buf *data)
{
    if (!sh_str_starts(line, SH_STR("data:"))) return;
    line = sh_str_sub(line, 5, line.len);
    if (sh_str_starts(line, SH_STR(" "))) line = sh_str_sub(line, 1, line.len);
    if (*any) sh_buf_add_char(data, '\n');
    sh_buf_add_str(data, line);
    *any = true;
}

/* Scans from the start of `in` each time: an event is complete only at its empty line, and the
 * caller feeds events one after the other. Empty lines without data, as after a comment, are
 * skipped. */
bool sh_sse_take(sh_buf *in, sh_buf *data)
{
    sh_str rest = sh_buf_str(in);
    bool any = false;
    sh_buf_clear(data);
    for (const char *end; rest.len > 0 && (end = memchr(rest.ptr, '\n', rest.len)) != NULL;) {
        sh_str line = {rest.ptr, (size_t)(end - rest.ptr)};
        rest = sh_str_sub(rest, line.len + 1, rest.len);
        if (sh_str_ends(line, SH_STR("\r"))) line.len--;
        data_line_add(line, &any, data);
        if (line.len > 0) continue;
        if (any) {
            sh_buf_drop_front(in, in->len - rest.len);
            return true;
        }
    }
    return false;
}
