/* Packs matrices into panels and opens them again; panel.h describes the layout.
 *
 * Packing happens once, at load, and reorders codes so that the product kernels, which are bound by
 * memory bandwidth, read panels sequentially and unpack with a few shifts. Codes and scales keep
 * their values: nothing is requantized.
 *
 * Opening here is plain C: it is the reference for the kernels with intrinsics (open_*.h), which
 * must unpack the same bytes to the same codes, and it serves embedding rows and the generic level.
 *
 * FP4 values are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Doubled they are integers, and
 * with 12 added none is negative: fp4_codes is 2 * value + FP4_ZERO, unsigned as the x86 dot
 * products want their weights. The scales are halved to make up for it. */
#include "kernels/cpu/panel.h"

#include "kernels/half.h"

#include <string.h>

enum { ROWS = SH_PANEL_ROWS, UNIT = SH_PANEL_UNIT, VEC = SH_PANEL_VEC, VECS = SH_PANEL_UNIT_VECS };

static const uint8_t fp4_codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
enum { FP4_ZERO = 12 };

/* ---- shape ---- */

static size_t dtype_size(sh_dtype dtype)
{
    return dtype == SH_DTYPE_F32 ? 4 : 2;
}

static size_t plain_size(sh_format format)
{
    return format == SH_FORMAT_F32 ? 4 : 2;
}

static sh_panel plain_panel(const sh_quant *quant, int64_t cols)
{
    size_t column = ROWS * plain_size(quant->format);
    size_t stored = (size_t)(cols + (quant->format == SH_FORMAT_BF16 ? cols % 2 : 0));
    return (sh_panel){
        .quant = *quant,
        .cols = cols,
        .block_cols = UNIT,
        .block_bytes = UNIT * column,
        .panel_bytes = (stored * column + VEC - 1) / VEC * VEC,
    };
}

sh_panel sh_panel_of(const sh_quant *quant, int64_t cols)
{
    sh_panel p = {.quant = *quant, .cols = cols, .meta_bytes = VEC};
    switch (quant->format) {
    case SH_FORMAT_AFFINE:
        p.bits = quant->bits;
        p.block_cols = quant->group;
        p.meta_bytes = 2 * ROWS * dtype_size(quant->scale_dtype);
        break;
    case SH_FORMAT_MXFP4:
    case SH_FORMAT_NVFP4:
        p.bits = 4;
        p.zero = FP4_ZERO;
        p.block_cols = 4 * quant->group;
        break;
    case SH_FORMAT_MXFP8:
        p.bits = 8;
        p.block_cols = 4 * quant->group;
        break;
    default: return plain_panel(quant, cols);
    }
    p.step = quant->group < SH_PANEL_STEP_MAX ? quant->group : SH_PANEL_STEP_MAX;
    p.block_bytes = sh_panel_code_bytes(&p, p.block_cols) + p.meta_bytes;
    int64_t whole = cols / p.block_cols;
    p.panel_bytes = (size_t)whole * p.block_bytes;
    if (whole * p.block_cols < cols) {
        int rest = sh_panel_block_cols(&p, whole * p.block_cols);
        p.panel_bytes += sh_panel_code_bytes(&p, rest) + p.meta_bytes;
    }
    return p;
}

bool sh_panel_has_codes(const sh_panel *p)
{
    return p->bits != 0 && p->quant.format != SH_FORMAT_MXFP8;
}

/* ---- packing ---- */

/* 32 codes of one row, `bits` wide, from the bit stream of the file. Eight codes are always a whole
 * number of bytes, so they can be read as one little-endian word. */
static void codes_read(const uint8_t *src, int bits, uint8_t out[UNIT])
{
    uint64_t mask = (1u << bits) - 1;
    for (int i = 0; i < UNIT; i += 8, src += bits) {
        uint64_t word = 0;
        memcpy(&word, src, (size_t)bits);
        for (int j = 0; j < 8; j++) out[i + j] = (uint8_t)(word >> (bits * j) & mask);
    }
}

/* Folds the 8 open vectors of a unit into planes; the inverse of the open_ functions below. */
static uint8_t *fold_nibbles(const uint8_t *u, uint8_t *dst)
{
    for (int i = 0; i < 4; i++, dst += VEC)
        for (int b = 0; b < VEC; b++)
            dst[b] = (uint8_t)((u[2 * i * VEC + b] & 15) | u[(2 * i + 1) * VEC + b] << 4);
    return dst;
}

static uint8_t *fold_crumbs(const uint8_t *u, int shift, uint8_t *dst)
{
    for (int i = 0; i < 2; i++, dst += VEC)
        for (int b = 0; b < VEC; b++) {
            unsigned crumbs = 0;
            for (int j = 0; j < 4; j++)
                crumbs |= (u[(4 * i + j) * VEC + b] >> shift & 3u) << (2 * j);
            dst[b] = (uint8_t)crumbs;
        }
    return dst;
}

static uint8_t *fold_bits(const uint8_t *u, int shift, uint8_t *dst)
{
    for (int b = 0; b < VEC; b++) {
        unsigned bits = 0;
        for (int v = 0; v < VECS; v++) bits |= (u[v * VEC + b] >> shift & 1u) << v;
        dst[b] = (uint8_t)bits;
    }
    return dst + VEC;
}

static uint8_t *fold_unit(int bits, const uint8_t *u, uint8_t *dst)
{
    switch (bits) {
    case 2: return fold_crumbs(u, 0, dst);
    case 3: return fold_bits(u, 2, fold_crumbs(u, 0, dst));
    case 4: return fold_nibbles(u, dst);
    case 5: return fold_bits(u, 4, fold_nibbles(u, dst));
    case 6: return fold_crumbs(u, 4, fold_nibbles(u, dst));
    default: memcpy(dst, u, (size_t)VECS * VEC); return dst + VECS * VEC;
    }
}

/* Spreads the low four nibbles of each 32-bit half to four bytes. */
static uint64_t spread_nibbles(uint64_t x)
{
    x = (x | x << 8) & UINT64_C(0x00ff00ff00ff00ff);
    return (x | x << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

/* A whole unit of nibbles, straight to its folded form: of eight adjacent columns the first four
 * become the low halves of four bytes, the others the high halves. */
static void pack_nibbles(const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    const uint64_t halves = UINT64_C(0x0000ffff0000ffff);
    for (int r = 0; r < rows; r++, src += stride)
        for (int i = 0; i < 2; i++) {
            uint64_t word;
            memcpy(&word, src + 8 * i, sizeof(word));
            word = spread_nibbles(word & halves) | spread_nibbles(word >> 16 & halves) << 4;
            uint32_t low = (uint32_t)word, high = (uint32_t)(word >> 32);
            memcpy(dst + 2 * i * VEC + r * 4, &low, sizeof(low));
            memcpy(dst + (2 * i + 1) * VEC + r * 4, &high, sizeof(high));
        }
}

static void pack_bytes(const uint8_t *src, size_t stride, int rows, uint8_t *dst)
{
    for (int r = 0; r < rows; r++, src += stride)
        for (int v = 0; v < VECS; v++) memcpy(dst + v * VEC + r * 4, src + 4 * v, 4);
}

/* One unit of up to 16 rows, from column `first` of the raw rows, which have `left` more. Whole
 * units of the common widths are moved without being opened: most of the time of loading a model is
 * spent here. */
static void pack_unit(const sh_panel *p, const sh_raw_rows *raw, int rows, int64_t first,
                      int64_t left, uint8_t *dst)
{
    const uint8_t *whole = (const uint8_t *)raw->w + (size_t)(first * p->bits / 8);
    if (rows == ROWS && left >= UNIT && p->bits == 4) {
        pack_nibbles(whole, raw->w_stride, rows, dst);
        return;
    }
    if (rows == ROWS && left >= UNIT && p->bits == 8) {
        pack_bytes(whole, raw->w_stride, rows, dst);
        return;
    }
    uint8_t open[VECS * VEC] = {0}, codes[UNIT] = {0};
    for (int r = 0; r < rows; r++) {
        const uint8_t *src = (const uint8_t *)raw->w + (size_t)r * raw->w_stride +
                             (size_t)(first * p->bits / 8);
        if (left >= UNIT) {
            codes_read(src, p->bits, codes);
        } else {
            uint8_t tail[UNIT] = {0};
            memcpy(tail, src, (size_t)(left * p->bits / 8));
            codes_read(tail, p->bits, codes);
        }
        for (int v = 0; v < VECS; v++) memcpy(open + v * VEC + r * 4, codes + v * 4, 4);
    }
    fold_unit(p->bits, open, dst);
}

/* Where the codes of the unit at column `col` are, and the scales of the group at that column. */
static uint8_t *unit_at(const sh_panel *p, uint8_t *panel, int64_t col)
{
    return panel + (size_t)(col / p->block_cols) * p->block_bytes +
           sh_panel_code_bytes(p, (int)(col % p->block_cols));
}

static uint8_t *scales_at(const sh_panel *p, uint8_t *panel, int64_t col)
{
    int64_t first = col / p->block_cols * p->block_cols;
    return unit_at(p, panel, first) + sh_panel_code_bytes(p, sh_panel_block_cols(p, first)) +
           (col - first) / p->quant.group * ROWS;
}

/* Scales (or biases) of one group, an element of `size` bytes for each row. */
static uint8_t *pack_scales(const void *src, size_t stride, int64_t group, size_t size, int rows,
                            uint8_t *dst)
{
    for (int r = 0; r < rows; r++)
        memcpy(dst + (size_t)r * size,
               (const uint8_t *)src + (size_t)r * stride + (size_t)group * size, size);
    return dst + ROWS * size;
}

/* Missing rows and groups stay zero; the kernels compute on them, but never store the result. */
static void pack_group(const sh_panel *p, const sh_raw_rows *raw, int rows, int64_t group,
                       uint8_t *dst)
{
    bool affine = p->quant.format == SH_FORMAT_AFFINE;
    size_t size = affine ? dtype_size(p->quant.scale_dtype) : 1;
    dst = pack_scales(raw->scales, raw->scales_stride, group, size, rows, dst);
    if (affine) pack_scales(raw->biases, raw->biases_stride, group, size, rows, dst);
}

/* `count` elements of 4 or 2 bytes, which end up 16 elements apart in the panel. */
static void scatter(const uint8_t *src, int64_t count, size_t size, uint8_t *dst)
{
    if (size == 4)
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * ROWS * 4, src + i * 4, 4);
    else
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * ROWS * 2, src + i * 2, 2);
}

/* A pair of BF16 columns is one element of 4 bytes. */
static void pack_plain(const sh_panel *p, const sh_raw_rows *raw, int rows, int64_t first,
                       int64_t cols, uint8_t *panel)
{
    bool pairs = p->quant.format == SH_FORMAT_BF16;
    size_t size = p->quant.format == SH_FORMAT_F16 ? 2 : 4;
    int64_t count = pairs ? cols / 2 : cols;
    panel += (size_t)(pairs ? first / 2 : first) * ROWS * size;
    for (int r = 0; r < rows; r++) {
        const uint8_t *src = (const uint8_t *)raw->w + (size_t)r * raw->w_stride;
        scatter(src, count, size, panel + (size_t)r * size);
        if (pairs && cols % 2 != 0)
            memcpy(panel + ((size_t)count * ROWS + (size_t)r) * 4, src + count * 4, 2);
    }
}

int sh_panel_cut(const sh_quant *quant)
{
    if (quant->group == 0) return quant->format == SH_FORMAT_BF16 ? 2 : 1;
    return quant->group > UNIT ? quant->group : UNIT;
}

void sh_panel_pack(const sh_panel *p, const sh_raw_rows *raw, int rows, int64_t first, int64_t cols,
                   uint8_t *panel)
{
    if (p->bits == 0) {
        pack_plain(p, raw, rows, first, cols, panel);
        return;
    }
    for (int64_t c = 0; c < cols; c += UNIT)
        pack_unit(p, raw, rows, c, cols - c, unit_at(p, panel, first + c));
    for (int64_t c = 0; c < cols; c += p->quant.group)
        pack_group(p, raw, rows, c / p->quant.group, scales_at(p, panel, first + c));
}

/* ---- copying ---- */

/* Rows [from, from + rows) of one panel that become rows `to` and after of another. */
typedef struct {
    int to, from, rows;
} row_run;

/* A panel consists of vectors of 16 elements, one for each row, whatever these elements are. Copies
 * the elements of the run in `count` vectors. */
static void copy_vectors(uint8_t *to, const uint8_t *from, size_t count, size_t size, row_run run)
{
    if (run.rows == ROWS) {
        memcpy(to, from, count * ROWS * size);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memcpy(to + (i * ROWS + (size_t)run.to) * size, from + (i * ROWS + (size_t)run.from) * size,
               (size_t)run.rows * size);
}

static void copy_plain(const sh_panel *p, uint8_t *to, int64_t to_col, const uint8_t *from,
                       int64_t from_col, int64_t cols, row_run run)
{
    bool pairs = p->quant.format == SH_FORMAT_BF16;
    size_t size = p->quant.format == SH_FORMAT_F16 ? 2 : 4, step = pairs ? 2 : 1;
    copy_vectors(to + (size_t)to_col / step * ROWS * size,
                 from + (size_t)from_col / step * ROWS * size, ((size_t)cols + step - 1) / step,
                 size, run);
}

static void copy_run(const sh_panel *to_p, uint8_t *to, int64_t to_col, const sh_panel *from_p,
                     uint8_t *from, int64_t from_col, int64_t cols, row_run run)
{
    bool affine = to_p->quant.format == SH_FORMAT_AFFINE;
    if (to_p->bits == 0) {
        copy_plain(to_p, to, to_col, from, from_col, cols, run);
        return;
    }
    for (int64_t c = 0; c < cols; c += UNIT)
        copy_vectors(unit_at(to_p, to, to_col + c), unit_at(from_p, from, from_col + c),
                     (size_t)to_p->bits, 4, run);
    for (int64_t c = 0; c < cols; c += to_p->quant.group)
        copy_vectors(scales_at(to_p, to, to_col + c), scales_at(from_p, from, from_col + c),
                     affine ? 2 : 1, affine ? dtype_size(to_p->quant.scale_dtype) : 1, run);
}

/* The rows of a panel come from one or two panels of the source. */
void sh_panel_copy(const sh_panel *to_p, uint8_t *to, int64_t to_col, const sh_panel *from_p,
                   uint8_t *from, int64_t from_row, int64_t from_col, int rows, int64_t cols)
{
    for (row_run run = {0}; run.to < rows; run.to += run.rows) {
        int64_t row = from_row + run.to;
        run.from = (int)(row % ROWS);
        run.rows = rows - run.to < ROWS - run.from ? rows - run.to : ROWS - run.from;
        copy_run(to_p, to, to_col, from_p, from + (size_t)(row / ROWS) * from_p->panel_bytes,
                 from_col, cols, run);
    }
}

/* ---- opening ---- */

/* Nibbles are always the first plane and may assign; the others add their bits to what is there. */
static const uint8_t *open_nibbles(const uint8_t *src, uint8_t *u)
{
    for (int i = 0; i < 4; i++, src += VEC)
        for (int b = 0; b < VEC; b++) {
            u[2 * i * VEC + b] = src[b] & 15;
            u[(2 * i + 1) * VEC + b] = src[b] >> 4;
        }
    return src;
}

static const uint8_t *open_crumbs(const uint8_t *src, int shift, uint8_t *u)
{
    for (int i = 0; i < 2; i++, src += VEC)
        for (int j = 0; j < 4; j++)
            for (int b = 0; b < VEC; b++)
                u[(4 * i + j) * VEC + b] |= (uint8_t)((src[b] >> (2 * j) & 3) << shift);
    return src;
}

static const uint8_t *open_bits(const uint8_t *src, int shift, uint8_t *u)
{
    for (int v = 0; v < VECS; v++)
        for (int b = 0; b < VEC; b++) u[v * VEC + b] |= (uint8_t)((src[b] >> v & 1) << shift);
    return src + VEC;
}

static const uint8_t *open_unit(int bits, const uint8_t *src, uint8_t *u)
{
    memset(u, 0, (size_t)VECS * VEC);
    switch (bits) {
    case 2: return open_crumbs(src, 0, u);
    case 3: return open_bits(open_crumbs(src, 0, u), 2, u);
    case 4: return open_nibbles(src, u);
    case 5: return open_bits(open_nibbles(src, u), 4, u);
    case 6: return open_crumbs(open_nibbles(src, u), 4, u);
    default: memcpy(u, src, (size_t)VECS * VEC); return src + VECS * VEC;
    }
}

void sh_panel_open_codes(const sh_panel *p, const uint8_t *block, int cols, uint8_t *out)
{
    for (int c = 0; c < cols; c += UNIT, out += VECS * VEC) {
        block = open_unit(p->bits, block, out);
        if (p->zero != 0)
            for (int b = 0; b < VECS * VEC; b++) out[b] = fp4_codes[out[b]];
    }
}

static float scale_read(sh_dtype dtype, const uint8_t *src, int idx)
{
    float x;
    uint16_t h;
    if (dtype == SH_DTYPE_F32) {
        memcpy(&x, src + 4 * idx, sizeof(x));
        return x;
    }
    memcpy(&h, src + 2 * idx, sizeof(h));
    return dtype == SH_DTYPE_F16 ? sh_f16_to_f32(h) : sh_bf16_to_f32(h);
}

void sh_panel_open_scales(const sh_panel *p, const uint8_t *block, int cols, int col,
                          float scale[ROWS], float bias[ROWS])
{
    const uint8_t *meta = block + sh_panel_code_bytes(p, cols);
    sh_dtype dtype = p->quant.scale_dtype;
    for (int r = 0; r < ROWS; r++) {
        const uint8_t *one = meta + col / p->quant.group * ROWS + r;
        bias[r] = 0;
        switch (p->quant.format) {
        case SH_FORMAT_AFFINE:
            scale[r] = scale_read(dtype, meta, r);
            bias[r] = scale_read(dtype, meta, ROWS + r);
            break;
        case SH_FORMAT_MXFP4: scale[r] = 0.5f * sh_e8m0_to_f32(*one); break;
        case SH_FORMAT_MXFP8: scale[r] = sh_e8m0_to_f32(*one); break;
        default: scale[r] = 0.5f * p->quant.global_scale * sh_e4m3_to_f32(*one); break;
        }
    }
}

static float code_value(const sh_panel *p, uint8_t code)
{
    if (p->quant.format == SH_FORMAT_MXFP8) return sh_e4m3_to_f32(code);
    return (float)((int)code - p->zero);
}

static float plain_read(sh_format format, const uint8_t *panel, int64_t col, int row)
{
    if (format == SH_FORMAT_F32) return scale_read(SH_DTYPE_F32, panel + col * ROWS * 4, row);
    if (format == SH_FORMAT_F16) return scale_read(SH_DTYPE_F16, panel + col * ROWS * 2, row);
    return scale_read(SH_DTYPE_BF16, panel + col / 2 * ROWS * 4, 2 * row + (int)(col % 2));
}

static const uint8_t *block_at(const sh_panel *p, const uint8_t *panel, int64_t first)
{
    return panel + (size_t)(first / p->block_cols) * p->block_bytes;
}

int sh_panel_open_f32(const sh_panel *p, const uint8_t *panel, int64_t first, float *out)
{
    int64_t left = p->cols - first;
    int count = left < p->block_cols ? (int)left : p->block_cols;
    if (p->bits == 0) {
        for (int c = 0; c < count; c++)
            for (int r = 0; r < ROWS; r++)
                out[c * ROWS + r] = plain_read(p->quant.format, panel, first + c, r);
        return count;
    }
    const uint8_t *block = block_at(p, panel, first);
    uint8_t codes[SH_PANEL_BLOCK_MAX * ROWS];
    float scale[ROWS], bias[ROWS];
    int cols = sh_panel_block_cols(p, first);
    sh_panel_open_codes(p, block, cols, codes);
    for (int c = 0; c < count; c++) {
        if (c % p->quant.group == 0) sh_panel_open_scales(p, block, cols, c, scale, bias);
        for (int r = 0; r < ROWS; r++) {
            float value = code_value(p, codes[c / 4 * VEC + r * 4 + c % 4]);
            float product = scale[r] * value;
            out[c * ROWS + r] = product + bias[r];
        }
    }
    return count;
}

/* A single code, as vector v and byte b of the open unit, from each kind of plane. */
static unsigned nibble_at(const uint8_t *plane, int v, int b)
{
    return plane[v / 2 * VEC + b] >> (4 * (v % 2)) & 15u;
}

static unsigned crumb_at(const uint8_t *plane, int v, int b)
{
    return plane[v / 4 * VEC + b] >> (2 * (v % 4)) & 3u;
}

static unsigned code_at(int bits, const uint8_t *unit, int v, int b)
{
    const uint8_t *upper = unit + 4 * VEC;
    switch (bits) {
    case 2: return crumb_at(unit, v, b);
    case 3: return crumb_at(unit, v, b) | (unit[2 * VEC + b] >> v & 1u) << 2;
    case 4: return nibble_at(unit, v, b);
    case 5: return nibble_at(unit, v, b) | (upper[b] >> v & 1u) << 4;
    case 6: return nibble_at(unit, v, b) | crumb_at(upper, v, b) << 4;
    default: return unit[v * VEC + b];
    }
}

/* `count` columns of one row of a block, without opening the codes of the other rows. */
static void block_row_f32(const sh_panel *p, const uint8_t *block, int64_t first, int count,
                          int row, float *out)
{
    int cols = sh_panel_block_cols(p, first);
    float scale[ROWS], bias[ROWS];
    for (int c = 0; c < count; c++) {
        const uint8_t *unit = block + c / UNIT * p->bits * VEC;
        unsigned code = code_at(p->bits, unit, c % UNIT / 4, row * 4 + c % 4);
        if (c % p->quant.group == 0) sh_panel_open_scales(p, block, cols, c, scale, bias);
        float product = scale[row] * code_value(p, p->zero != 0 ? fp4_codes[code] : (uint8_t)code);
        out[c] = product + bias[row];
    }
}

void sh_panel_row_f32(const sh_panel *p, const uint8_t *panel, int row, float *out)
{
    for (int64_t first = 0; first < p->cols; first += p->block_cols, out += p->block_cols) {
        int64_t left = p->cols - first;
        int count = left < p->block_cols ? (int)left : p->block_cols;
        if (p->bits != 0) {
            block_row_f32(p, block_at(p, panel, first), first, count, row, out);
            continue;
        }
        for (int c = 0; c < count; c++) out[c] = plain_read(p->quant.format, panel, first + c, row);
    }
}
