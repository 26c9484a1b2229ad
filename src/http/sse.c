#include "http/sse.h"

#include <string.h>

/* The format ends lines with CR, LF or both. */
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
