/* digest.h - SHA-256, for checking whether two files are identical.
 *
 * Threads: pure functions. */
#ifndef SH_NET_DIGEST_H
#define SH_NET_DIGEST_H

#include <stddef.h>

enum { SH_DIGEST_TEXT_LEN = 64 };

/* The digest of the bytes in lower-case hex, zero-terminated. */
void sh_digest_text(const void *data, size_t len, char out[SH_DIGEST_TEXT_LEN + 1]);

#endif
