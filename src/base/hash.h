/* hash.h - hashes whose values are used outside a single table.
 *
 * sh_hash128 is SipHash-2-4 with 128 bits of output: keyed, so that collisions cannot be
 * constructed without the key, and cheap enough to compute for every KV block. sh_mix64 is a
 * bijection that turns counters into random-looking numbers; it has no cryptographic strength.
 *
 * Results are the same on every machine (input is read as little-endian).
 *
 * Threads: pure functions. */
#ifndef SH_BASE_HASH_H
#define SH_BASE_HASH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t lo;
    uint64_t hi;
} sh_key128;

sh_key128 sh_hash128(sh_key128 key, const void *data, size_t len);
bool sh_key128_eq(sh_key128 a, sh_key128 b);

static inline uint64_t sh_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Cryptographically secure random bytes from the kernel. */
SH_MUST_CHECK sh_status sh_random_bytes(void *out, size_t len, sh_err *err);

#endif
