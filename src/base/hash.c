/* SipHash-2-4 with 128-bit output, after the reference by Aumasson and Bernstein: two rounds for
 * each word of input, four to finish, and the constants 0xee and 0xdd that set the 128-bit variant
 * apart from the 64-bit one. tests/unit/base/test_hash.c compares it with the published vectors. */
#include "base/hash.h"

#include <sys/random.h>

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 = rotl(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

static uint64_t sip_finish(struct sip *s)
{
    for (int i = 0; i < 4; i++) sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static uint64_t load_le(const unsigned char *p, size_t len)
{
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) word |= (uint64_t)p[i] << (8 * i);
    return word;
}

sh_key128 sh_hash128(sh_key128 key, const void *data, size_t len)
{
    struct sip s = {
        .v0 = key.lo ^ 0x736f6d6570736575u,
        .v1 = key.hi ^ 0x646f72616e646f6du ^ 0xee,
        .v2 = key.lo ^ 0x6c7967656e657261u,
        .v3 = key.hi ^ 0x7465646279746573u,
    };
    const unsigned char *p = data;
    size_t left = len;
    for (; left >= 8; p += 8, left -= 8) sip_word(&s, load_le(p, 8));
    sip_word(&s, load_le(p, left) | (uint64_t)len << 56);
    sh_key128 out;
    s.v2 ^= 0xee;
    out.lo = sip_finish(&s);
    s.v1 ^= 0xdd;
    out.hi = sip_finish(&s);
    return out;
}

bool sh_key128_eq(sh_key128 a, sh_key128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

sh_status sh_random_bytes(void *out, size_t len, sh_err *err)
{
    unsigned char *p = out;
    while (len > 0) {
        size_t part = len < 256 ? len : 256; /* the limit of one getentropy call */
        if (getentropy(p, part) != 0) return sh_err_sys(err, "getentropy");
        p += part;
        len -= part;
    }
    return SH_OK;
}
