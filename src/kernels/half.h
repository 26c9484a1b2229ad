/* half.h - the 16-bit and 8-bit floats of files and KV, one number at a time.
 *
 * These are the reference. Fast paths use the conversions of the CPU and give the same bits.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_HALF_H
#define SH_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float sh_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t sh_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float sh_bf16_to_f32(uint16_t h)
{
    return sh_f32_of_bits((uint32_t)h << 16);
}

/* Rounds to nearest even. A NaN is kept apart: rounding could carry its payload into an infinity.
 */
static inline uint16_t sh_f32_to_bf16(float x)
{
    uint32_t bits = sh_bits_of_f32(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Multiplying by 2^112 corrects the exponent bias, and normalizes subnormals on the way. */
static inline float sh_f16_to_f32(uint16_t h)
{
    uint32_t magnitude = h & 0x7fffu, sign = (h & 0x8000u) << 16;
    if (magnitude >= 0x7c00) return sh_f32_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    float x = sh_f32_of_bits(magnitude << 13) * 0x1p112f;
    return sh_f32_of_bits(sign | sh_bits_of_f32(x));
}

/* Rounds to nearest even; too large a number becomes infinity. */
static inline uint16_t sh_f32_to_f16(float x)
{
    uint32_t bits = sh_bits_of_f32(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* subnormal: adding 0.5 lets the FPU round at the right bit */
        float y = sh_f32_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (sh_bits_of_f32(y) - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}

/* E8M0: a power of two, 2^(x-127). x = 0 is 2^-127, a subnormal. */
static inline float sh_e8m0_to_f32(uint8_t x)
{
    return sh_f32_of_bits(x == 0 ? 0x00400000 : (uint32_t)x << 23);
}

/* E4M3 shifted into an f16 is the same number but for the exponent bias: 2^8 too small. Its NaN
 * (0x7f) is not recognized: weights have none. */
static inline float sh_e4m3_to_f32(uint8_t x)
{
    return sh_f16_to_f32((uint16_t)((x & 0x80u) << 8 | (x & 0x7fu) << 7)) * 256.0f;
}

#endif
