/* Growth is by half, so appending n bytes one at a time costs O(n) copies. Every reservation
 * includes one byte for the terminating zero; callers of sh_buf_reserve that write raw bytes do not
 * have to set it, text appends always do. */
#include "base/buf.h"

#include "base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

void sh_buf_reset(sh_buf *buf)
{
    free(buf->ptr);
    *buf = (sh_buf){0};
}

void sh_buf_clear(sh_buf *buf)
{
    buf->len = 0;
    if (buf->ptr != NULL) buf->ptr[0] = '\0';
}

char *sh_buf_reserve(sh_buf *buf, size_t extra)
{
    SH_ASSERT(extra < SIZE_MAX / 4 - buf->len);
    size_t need = buf->len + extra + 1; /* the terminating zero */
    if (need > buf->cap) {
        size_t cap = buf->cap == 0 ? FIRST_CAP : buf->cap;
        while (cap < need) cap += cap / 2;
        buf->ptr = sh_realloc_array(buf->ptr, cap, 1);
        buf->cap = cap;
    }
    return buf->ptr + buf->len;
}

void sh_buf_add(sh_buf *buf, const void *data, size_t len)
{
    char *to = sh_buf_reserve(buf, len);
    if (len > 0) memcpy(to, data, len);
    buf->len += len;
    buf->ptr[buf->len] = '\0';
}

void sh_buf_add_str(sh_buf *buf, sh_str text)
{
    sh_buf_add(buf, text.ptr, text.len);
}

void sh_buf_add_text(sh_buf *buf, const char *text)
{
    sh_buf_add(buf, text, strlen(text));
}

void sh_buf_add_char(sh_buf *buf, char c)
{
    sh_buf_add(buf, &c, 1);
}

void sh_buf_add_utf8(sh_buf *buf, uint32_t code)
{
    char bytes[4];
    int len = sh_utf8_encode(code, bytes);
    sh_buf_add(buf, bytes, (size_t)len);
}

void sh_buf_addf(sh_buf *buf, const char *fmt, ...)
{
    va_list args, again; /* formatted twice: once for the length, once into the buffer */
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    SH_ASSERT(len >= 0);
    char *to = sh_buf_reserve(buf, (size_t)len);
    vsnprintf(to, (size_t)len + 1, fmt, again);
    va_end(again);
    buf->len += (size_t)len;
}

/* Moves the terminating zero too. O(remaining bytes): callers drop whole messages, not single
 * bytes.
 */
void sh_buf_drop_front(sh_buf *buf, size_t len)
{
    SH_ASSERT(len <= buf->len);
    if (len == 0) return;
    buf->len -= len;
    memmove(buf->ptr, buf->ptr + len, buf->len + 1);
}

sh_str sh_buf_str(const sh_buf *buf)
{
    return buf->ptr == NULL ? (sh_str){"", 0} : (sh_str){buf->ptr, buf->len};
}

/* Never returns NULL, also for an empty buffer, so that callers need no special case. */
char *sh_buf_take(sh_buf *buf)
{
    sh_buf_reserve(buf, 0)[0] = '\0';
    char *text = buf->ptr;
    *buf = (sh_buf){0};
    return text;
}
