/* vec_math.h - exponentials of sixteen floats, one source for every vec_*.h.
 *
 * Include it after one of these. Polynomials are minimax fits with a relative error below 2e-9
 * before rounding, and a constant term of 1, so that the exponential of 0 is exactly 1.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_VEC_MATH_H
#define SH_KERNELS_CPU_VEC_MATH_H

/* 2^x for x <= 0 (up to 127 works), within 1 ulp; 0 below -126, so that there are no subnormals. */
VEC_INLINE v16 v16_exp2(v16 x)
{
    const v16 floor = v16_set(-126.0f);
    v16 n = v16_round(v16_max(floor, x)), r = v16_sub(v16_max(floor, x), n);
    v16 p = v16_fma(v16_set(1.535336196e-04f), r, v16_set(1.339887385e-03f));
    p = v16_fma(p, r, v16_set(9.618436918e-03f));
    p = v16_fma(p, r, v16_set(5.550332367e-02f));
    p = v16_fma(p, r, v16_set(2.402264774e-01f));
    p = v16_fma(p, r, v16_set(6.931471825e-01f));
    p = v16_fma(p, r, v16_set(1.0f));
    return v16_zero_if_less(v16_mul(p, v16_pow2(n)), x, floor);
}

/* a*b + c with two roundings, so the same bits on every CPU. */
VEC_INLINE v16 v16_mul_add(v16 a, v16 b, v16 c)
{
    v16 product = v16_mul(a, b);
    return v16_add(product, c);
}

/* e^x within 2 ulp for x in -87..88, clamped outside; the same bits on every CPU. */
VEC_INLINE v16 v16_exp_portable(v16 x)
{
    x = v16_min(v16_set(88.0f), v16_max(v16_set(-87.0f), x));
    v16 n = v16_round(v16_mul(x, v16_set(1.44269504f)));
    /* ln 2 in two parts; the first product is exact, since this factor has 9 bits. */
    v16 r = v16_mul_add(n, v16_set(-0.693359375f), x);
    r = v16_mul_add(n, v16_set(2.12194440e-4f), r);
    v16 p = v16_mul_add(v16_set(1.384360716e-03f), r, v16_set(8.374195546e-03f));
    p = v16_mul_add(p, r, v16_set(4.166800529e-02f));
    p = v16_mul_add(p, r, v16_set(1.666643023e-01f));
    p = v16_mul_add(p, r, v16_set(4.999999404e-01f));
    p = v16_mul_add(p, r, v16_set(1.0f));
    p = v16_mul_add(p, r, v16_set(1.0f));
    return v16_mul(p, v16_pow2(n));
}

#endif
