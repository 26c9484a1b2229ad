/* buf.h - a growable byte buffer.
 *
 * Zero is a valid empty buffer: `sh_buf b = {0};`. The owner calls sh_buf_reset.
 * Any append may move `ptr`. Once something has been appended, ptr[len] is always a zero byte, so
 * a buffer of text is also a C string.
 *
 * Threads: a buffer has one owner. */
#ifndef SH_BASE_BUF_H
#define SH_BASE_BUF_H

#include "base/status.h"
#include "base/str.h"

#include <stddef.h>

typedef struct {
    char *ptr;
    size_t len;
    size_t cap;
} sh_buf;

void sh_buf_reset(sh_buf *buf); /* frees the memory; the buffer is empty and reusable */
void sh_buf_clear(sh_buf *buf); /* empties it but keeps the memory */

/* Makes space for `extra` bytes after len; the caller writes them and adds to len. */
char *sh_buf_reserve(sh_buf *buf, size_t extra);

void sh_buf_add(sh_buf *buf, const void *data, size_t len);
void sh_buf_add_str(sh_buf *buf, sh_str text);
void sh_buf_add_text(sh_buf *buf, const char *text);
void sh_buf_add_char(sh_buf *buf, char c);
void sh_buf_add_utf8(sh_buf *buf, uint32_t code);
void sh_buf_addf(sh_buf *buf, const char *fmt, ...) SH_PRINTF(2, 3);

/* Removes the first len bytes and moves the rest to the front. */
void sh_buf_drop_front(sh_buf *buf, size_t len);

sh_str sh_buf_str(const sh_buf *buf); /* borrowed until the next change */
char *sh_buf_take(sh_buf *buf);       /* zero-terminated, now owned by the caller; empties buf */

#endif
