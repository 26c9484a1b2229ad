/* BF16 weights with activations rounded to BF16. vdpbf16ps adds the products of a pair of columns,
 * which is why BF16 panels store columns in pairs. An output is one chain of these over its pairs.
 *
 * Activations are rounded a chunk of columns at a time, once for 64 rows: the rounded chunk of a
 * tile has a fixed size and stays in the cache. */
#include "kernels/cpu/open_avx512.h"

enum {
    CHUNK = 512, /* columns */
    SIDE = 4,    /* panels that share the rounded activations */
    WIDE = 8,    /* tokens whose sums are computed together */
    SUMS = 16,   /* sums at once, at most: of several panels, too */
};

typedef int32_t pair __attribute__((may_alias));

/* Inline assembly for the reason given in dot_avx512vnni.c. */
#define DOT(sum, w, x)                                                                             \
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const pair *)(x)))

struct tile {
    _Alignas(64) uint16_t x[TILE][CHUNK];
    _Alignas(64) float sums[SIDE][TILE][ROWS];
};

/* Columns [c, c + count) of the tokens from t on; the missing half of a last pair is zero. */
static void tile_round(struct tile *tile, const sh_acts *a, int t, int tokens, int64_t c, int count)
{
    for (int i = 0; i < tokens; i++) {
        const float *x = sh_acts_x(a, t + i) + c;
        for (int j = 0; j < count; j += 16) {
            __mmask16 live = (__mmask16)(count - j >= 16 ? 0xffffu : (1u << (count - j)) - 1);
            __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(live, x + j));
            _mm256_store_si256((__m256i *)(tile->x[i] + j), rounded);
        }
    }
}

/* `panels` x `tokens` sums over some pairs; all but `pairs` and the addresses are constants. */
INLINE void pairs_add(int panels, int tokens, struct tile *tile, int panel, int t, const uint8_t *w,
                      size_t stride, int pairs)
{
    __m512 sum[SUMS];
    UNROLL (i, panels * tokens)
        sum[i] = _mm512_load_ps(tile->sums[panel + i / tokens][t + i % tokens]);
    for (int c = 0; c < pairs; c++, w += VEC) {
        UNROLL (i, panels) {
            __m512i v = load(w + (size_t)i * stride);
            UNROLL (k, tokens) DOT(sum[i * tokens + k], v, tile->x[t + k] + 2 * c);
        }
    }
    UNROLL (i, panels * tokens)
        _mm512_store_ps(tile->sums[panel + i / tokens][t + i % tokens], sum[i]);
}

/* Some tokens, `side` panels at once; side and tokens are constants. */
INLINE void tokens_add(int side, int tokens, struct tile *tile, int panels, int t, const uint8_t *w,
                       size_t stride, int pairs)
{
    int i = 0;
    for (; i + side <= panels; i += side)
        pairs_add(side, tokens, tile, i, t, w + (size_t)i * stride, stride, pairs);
    for (; i < panels; i++) pairs_add(1, tokens, tile, i, t, w + (size_t)i * stride, stride, pairs);
}

/* One chunk of up to SIDE panels for all tokens of the tile. They take several
 * panels at once, the more the fewer they are, since too few chains of sums would wait for their
 * own latency. */
static void chunk_add(struct tile *tile, int panels, int tokens, const uint8_t *w, size_t stride,
                      int pairs)
{
    int t = 0;
    for (; t + WIDE <= tokens; t += WIDE) tokens_add(2, WIDE, tile, panels, t, w, stride, pairs);
    switch (tokens - t) {
    case 1: tokens_add(4, 1, tile, panels, t, w, stride, pairs); break;
    case 2: tokens_add(4, 2, tile, panels, t, w, stride, pairs); break;
    case 3: tokens_add(4, 3, tile, panels, t, w, stride, pairs); break;
    case 4: tokens_add(4, 4, tile, panels, t, w, stride, pairs); break;
    case 5: tokens_add(2, 5, tile, panels, t, w, stride, pairs); break;
    case 6: tokens_add(2, 6, tile, panels, t, w, stride, pairs); break;
    case 7: tokens_add(2, 7, tile, panels, t, w, stride, pairs); break;
    default: break;
    }
}

static void dot_bf16(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                     int64_t y_stride)
{
    struct tile tile;
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        int tokens = sh_acts_tile(a, t);
        for (int64_t row = 0; row < rows; row += SIDE * ROWS) {
            int64_t left = (rows - row + ROWS - 1) / ROWS;
            int panels = left < SIDE ? (int)left : SIDE;
            const uint8_t *panel = w + (size_t)(row / ROWS) * p->panel_bytes;
            memset(tile.sums, 0, sizeof(*tile.sums) * (size_t)panels);
            for (int64_t c = 0; c < p->cols; c += CHUNK) {
                int count = p->cols - c < CHUNK ? (int)(p->cols - c) : CHUNK;
                tile_round(&tile, a, t, tokens, c, count);
                chunk_add(&tile, panels, tokens, panel + c / 2 * VEC, p->panel_bytes,
                          (count + 1) / 2);
            }
            for (int i = 0; i < panels; i++)
                rows_store(tile.sums[i][0], tokens, rows - row - i * ROWS, y + row + i * ROWS,
                           y_stride);
        }
    }
}

const sh_matrix_kernels sh_matrix_avx512bf16 = {
    .quantize = sh_quantize_avx512,
    .dot_codes = sh_dot_codes_avx512vnni,
    .dot_f32 = sh_dot_f32_avx512,
    .dot_bf16 = dot_bf16,
    .spin = sh_spin_avx512vnni,
};
