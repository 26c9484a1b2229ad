/* base64.h - bytes as text (RFC 4648).
 *
 * Threads: pure functions. */
#ifndef SH_BASE_BASE64_H
#define SH_BASE_BASE64_H

#include "base/buf.h"

#include <stdbool.h>

/* Appends the text, padded. */
void sh_base64_encode(const void *bytes, size_t len, sh_buf *out);

/* Appends the bytes. Padding is optional. False, with a part of them appended, for a text that is
 * not base64. */
bool sh_base64_decode(sh_str text, sh_buf *out);

#endif
