/* pack.h - wire encoding of numbers and text: little-endian, no padding, bounds-checked.
 *
 * Writers append to a buffer. A reader never reads past its bytes: once something is missing it
 * returns zeros and remembers the failure, so a message is read in one go and checked once, by
 * sh_get_end.
 *
 * Threads: a reader or buffer has one owner. */
#ifndef SH_BASE_PACK_H
#define SH_BASE_PACK_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void sh_put_uint(sh_buf *out, uint64_t value, int bytes); /* 1 to 8 bytes */
void sh_put_double(sh_buf *out, double value);
void sh_put_text(sh_buf *out, sh_str text); /* preceded by 4 bytes of length */
void sh_put_ints(sh_buf *out, const int32_t *values, size_t count); /* without a count */
void sh_put_floats(sh_buf *out, const float *values, size_t count);

typedef struct {
    const char *ptr;
    size_t left;
    bool failed;
} sh_reader;

sh_reader sh_reader_of(sh_str bytes);
uint64_t sh_get_uint(sh_reader *reader, int bytes);
int sh_get_int(sh_reader *reader); /* 4 bytes, two's complement */
double sh_get_double(sh_reader *reader);
sh_str sh_get_text(sh_reader *reader); /* borrowed from the bytes */

/* The next count * size bytes, or NULL (and failed) if there are fewer. Unaligned: memcpy them. */
const void *sh_get_array(sh_reader *reader, size_t count, size_t size);

/* SH_OK if nothing was missing and nothing is left over; `what` names the message in the error. */
SH_MUST_CHECK sh_status sh_get_end(const sh_reader *reader, const char *what, sh_err *err);

#endif
