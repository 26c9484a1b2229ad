/* digest.h - SHA-256, for checking whether two files, or parts of them, are identical.
 *
 * Threads: pure functions. */
#ifndef SH_NET_DIGEST_H
#define SH_NET_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { SH_DIGEST_LEN = 32, SH_DIGEST_TEXT_LEN = 2 * SH_DIGEST_LEN };

void sh_digest(const void *data, size_t len, uint8_t out[SH_DIGEST_LEN]);

/* The digest of the bytes in lower-case hex, zero-terminated. */
void sh_digest_text(const void *data, size_t len, char out[SH_DIGEST_TEXT_LEN + 1]);

#endif
