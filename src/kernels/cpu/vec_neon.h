/* vec_neon.h - sixteen floats as four registers; see vec_generic.h for what each function means.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_VEC_NEON_H
#define SH_KERNELS_CPU_VEC_NEON_H

#include "kernels/cpu/vec.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

/* 24 sums, four loads and a broadcast fit the 32 registers. */
enum { VEC_PANEL = 6, VEC_WIDE = 1, VEC_DOT_X = 2, VEC_DOT_W = 2 };
#define VEC_EACH_PANEL(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef float32x4x4_t v16;

/* Applies a function to all four quarters. */
#define V16_ALL(f, a) ((v16){{f((a).val[0]), f((a).val[1]), f((a).val[2]), f((a).val[3])}})
#define V16_ALL2(f, a, b)                                                                          \
    ((v16){{f((a).val[0], (b).val[0]), f((a).val[1], (b).val[1]), f((a).val[2], (b).val[2]),       \
            f((a).val[3], (b).val[3])}})
#define V16_ALL3(f, a, b, c)                                                                       \
    ((v16){{f((a).val[0], (b).val[0], (c).val[0]), f((a).val[1], (b).val[1], (c).val[1]),          \
            f((a).val[2], (b).val[2], (c).val[2]), f((a).val[3], (b).val[3], (c).val[3])}})

VEC_INLINE v16 v16_load(const float *p)
{
    return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}

VEC_INLINE void v16_store(float *p, v16 a)
{
    vst1q_f32(p, a.val[0]);
    vst1q_f32(p + 4, a.val[1]);
    vst1q_f32(p + 8, a.val[2]);
    vst1q_f32(p + 12, a.val[3]);
}

VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    if (n == 16) return v16_load(p);
    float a[16] = {0};
    memcpy(a, p, (size_t)n * sizeof(float));
    return v16_load(a);
}

VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    if (n == 16) {
        v16_store(p, a);
        return;
    }
    float b[16];
    v16_store(b, a);
    memcpy(p, b, (size_t)n * sizeof(float));
}

VEC_INLINE v16 v16_set(float x)
{
    float32x4_t a = vdupq_n_f32(x);
    return (v16){{a, a, a, a}};
}

VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return V16_ALL2(vaddq_f32, a, b);
}

VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return V16_ALL2(vsubq_f32, a, b);
}

VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return V16_ALL2(vmulq_f32, a, b);
}

VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return V16_ALL2(vdivq_f32, a, b);
}

VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return V16_ALL3(vfmaq_f32, c, a, b);
}

VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return V16_ALL2(vmaxq_f32, a, b);
}

VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    return V16_ALL2(vminq_f32, a, b);
}

VEC_INLINE v16 v16_abs(v16 a)
{
    return V16_ALL(vabsq_f32, a);
}

VEC_INLINE v16 v16_round(v16 a)
{
    return V16_ALL(vrndnq_f32, a);
}

VEC_INLINE float32x4_t quarter_pow2(float32x4_t n)
{
    int32x4_t e = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}

VEC_INLINE v16 v16_pow2(v16 n)
{
    return V16_ALL(quarter_pow2, n);
}

VEC_INLINE float32x4_t quarter_zero_if_less(float32x4_t a, float32x4_t x, float32x4_t limit)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, limit)));
}

VEC_INLINE v16 v16_zero_if_less(v16 a, v16 x, v16 limit)
{
    return V16_ALL3(quarter_zero_if_less, a, x, limit);
}

VEC_INLINE v16 v16_within(v16 a, int first, int end, v16 other)
{
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    VEC_UNROLL for (int i = 0; i < 4; i++)
    {
        int32x4_t lane = vld1q_s32(lanes + 4 * i);
        uint32x4_t in = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(first)),
                                  vcltq_s32(lane, vdupq_n_s32(end)));
        a.val[i] = vbslq_f32(in, a.val[i], other.val[i]);
    }
    return a;
}

VEC_INLINE float v16_sum(v16 a)
{
    float32x4_t b = vaddq_f32(vaddq_f32(a.val[0], a.val[2]), vaddq_f32(a.val[1], a.val[3]));
    float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}

VEC_INLINE float v16_top(v16 a)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.val[0], a.val[2]), vmaxq_f32(a.val[1], a.val[3])));
}

VEC_INLINE float32x4_t quarter_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){{quarter_load_f16(p), quarter_load_f16(p + 4), quarter_load_f16(p + 8),
                  quarter_load_f16(p + 12)}};
}

VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    VEC_UNROLL for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.val[i])));
}

VEC_INLINE v16 v16_load_i8(const int8_t *p)
{
    int8x16_t a = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(a)), high = vmovl_s8(vget_high_s8(a));
    return (v16){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                  vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.val[0])),
                                 vmovn_s32(vcvtnq_s32_f32(a.val[1])));
    int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.val[2])),
                                  vmovn_s32(vcvtnq_s32_f32(a.val[3])));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

VEC_INLINE void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    VEC_UNROLL for (int i = 0; i < 4; i++)
    {
        float32x4x2_t a = vld2q_f32(p + 8 * i);
        even->val[i] = a.val[0];
        odd->val[i] = a.val[1];
    }
}

VEC_INLINE void v16_store_pairs(float *p, v16 even, v16 odd)
{
    VEC_UNROLL for (int i = 0; i < 4; i++)
    {
        float32x4x2_t pairs = {{even.val[i], odd.val[i]}}; /* vst2q_f32 is a macro in clang */
        vst2q_f32(p + 8 * i, pairs);
    }
}

VEC_INLINE void transpose_4x4(float32x4_t a[4])
{
    float32x4x2_t p = vtrnq_f32(a[0], a[1]), q = vtrnq_f32(a[2], a[3]);
    a[0] = vcombine_f32(vget_low_f32(p.val[0]), vget_low_f32(q.val[0]));
    a[1] = vcombine_f32(vget_low_f32(p.val[1]), vget_low_f32(q.val[1]));
    a[2] = vcombine_f32(vget_high_f32(p.val[0]), vget_high_f32(q.val[0]));
    a[3] = vcombine_f32(vget_high_f32(p.val[1]), vget_high_f32(q.val[1]));
}

VEC_INLINE void v16_transpose(v16 a[16])
{
    v16 b[16];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            float32x4_t square[4];
            for (int k = 0; k < 4; k++) square[k] = a[4 * i + k].val[j];
            transpose_4x4(square);
            for (int k = 0; k < 4; k++) b[4 * j + k].val[i] = square[k];
        }
    for (int i = 0; i < 16; i++) a[i] = b[i];
}

#endif
