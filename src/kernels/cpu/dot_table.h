/* dot_table.h - instantiates dot_body(bits, step, ...) of the including file for every width of
 * codes and step, and defines dot_codes, which picks the one for a panel. With both as constants
 * the compiler unrolls everything and keeps the weights in registers. */
#ifndef SH_KERNELS_CPU_DOT_TABLE_H
#define SH_KERNELS_CPU_DOT_TABLE_H

#define DEFINE(bits, step)                                                                         \
    static void dot_##bits##_##step(const sh_panel *p, const uint8_t *w, int64_t rows,             \
                                    const sh_acts *a, float *y, int64_t y_stride)                  \
    {                                                                                              \
        dot_body(bits, step, p, w, rows, a, y, y_stride);                                          \
    }
DEFINE(2, 32)
DEFINE(3, 32)
DEFINE(4, 32)
DEFINE(5, 32)
DEFINE(6, 32)
DEFINE(8, 32)
DEFINE(2, 64)
DEFINE(3, 64)
DEFINE(4, 64)
DEFINE(5, 64)
DEFINE(6, 64)
DEFINE(8, 64)
DEFINE(FP4, 16)
DEFINE(FP4, 32)

static void dot_codes(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                      int64_t y_stride)
{
    static const sh_dot_fn by_bits[2][9] = {
        {[2] = dot_2_32, dot_3_32, dot_4_32, dot_5_32, dot_6_32, [8] = dot_8_32},
        {[2] = dot_2_64, dot_3_64, dot_4_64, dot_5_64, dot_6_64, [8] = dot_8_64},
    };
    sh_dot_fn dot = by_bits[p->step == 64][p->bits];
    if (p->zero != 0) dot = p->step == 16 ? dot_FP4_16 : dot_FP4_32;
    dot(p, w, rows, a, y, y_stride);
}

#endif
