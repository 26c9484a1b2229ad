/* panel.h - the CPU's layout of a matrix: panels of 16 rows that a kernel reads sequentially.
 *
 * A quantized panel is a sequence of blocks. A block has `block_cols` columns of 16 rows: first the
 * codes, then `meta_bytes` of scales (and biases). The codes of 32 columns are a unit. Opened, that
 * is with one code per byte, a unit is 8 vectors of 64 bytes; vector v has columns 4v..4v+3, row r
 * in bytes 4r..4r+3. One 32-bit lane is then four adjacent columns of one row, which is what the
 * integer dot products of all CPUs work on. Stored, the vectors of a unit are folded into planes,
 * in this order:
 * - nibbles (4, 5, 6 bits): 4 vectors; vector i has v = 2i in the low and v = 2i+1 in the high half
 *   of each byte
 * - crumbs (2, 3 bits: the low ones; 6: bits 4 and 5): 2 vectors; vector i has v = 4i+j in bits 2j
 *   and 2j+1
 * - bits (3: bit 2; 5: bit 4): 1 vector with v in bit v
 * - bytes (8 bits): all 8
 *
 * So every plane is opened with shifts and masks only, no codes straddle bytes, and 16 rows x 32
 * columns are a whole number of cache lines at every width.
 *
 * Meta: AFFINE has one group per block, 16 scales and then 16 biases in the type of the file. The
 * others have 64 bytes, with the scale of group g and row r at 16g + r. The last block of a panel
 * may be shorter; its meta follows its codes. Columns are padded to a whole unit with codes of
 * value zero.
 *
 * Plain panels have one column of 16 rows after the other (BF16: pairs of columns, row by row, as
 * (even, odd), padded to a whole pair).
 *
 * Rows after the last of the matrix are zeros.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_PANEL_H
#define SH_KERNELS_CPU_PANEL_H

#include "kernels/device.h"

enum {
    SH_PANEL_ROWS = 16,
    SH_PANEL_UNIT = 32, /* columns */
    SH_PANEL_VEC = 64,  /* bytes: 16 rows x 4 columns */
    SH_PANEL_UNIT_VECS = 8,
    SH_PANEL_BLOCK_MAX = 128, /* columns */
    SH_PANEL_STEP_MAX = 64,
};

typedef struct {
    sh_quant quant;
    int64_t cols;
    int bits; /* of one stored code; 0 for plain floats */
    int step; /* columns that share a scale of the activations: the group, but at most 64 */
    int zero; /* FP4: the code of the value zero after the table lookup; otherwise 0 */
    int block_cols;
    size_t block_bytes; /* codes and meta of a whole block */
    size_t meta_bytes;
    size_t panel_bytes;
} sh_panel;

sh_panel sh_panel_of(const sh_quant *quant, int64_t cols);

/* True when the format has integer codes that can be multiplied with int8 activations. */
bool sh_panel_has_codes(const sh_panel *p);

/* Columns of the block that starts at column `first`, padded to a unit. */
static inline int sh_panel_block_cols(const sh_panel *p, int64_t first)
{
    int64_t left = (p->cols - first + SH_PANEL_UNIT - 1) / SH_PANEL_UNIT * SH_PANEL_UNIT;
    return left < p->block_cols ? (int)left : p->block_cols;
}

static inline size_t sh_panel_code_bytes(const sh_panel *p, int cols)
{
    return (size_t)(SH_PANEL_ROWS * p->bits / 8 * cols);
}

/* A panel can be cut apart and put together at multiples of this many columns. */
int sh_panel_cut(const sh_quant *quant);

/* Fills columns [first, first + cols) of one panel from up to 16 rows as the file stores them. What
 * it does not fill must be zero already. */
void sh_panel_pack(const sh_panel *p, const sh_raw_rows *raw, int rows, int64_t first, int64_t cols,
                   uint8_t *panel);

/* Copies `rows` rows and `cols` columns from row from_row and column from_col of the panels `from`
 * to the top of the panel `to`, at column to_col. Both are of the same format; columns are
 * multiples of sh_panel_cut, except where both matrices end. */
void sh_panel_copy(const sh_panel *to_p, uint8_t *to, int64_t to_col, const sh_panel *from_p,
                   uint8_t *from, int64_t from_row, int64_t from_col, int rows, int64_t cols);

/* Opens the codes of `cols` columns (whole units): out [cols / 4][16 rows][4]. An FP4 code comes
 * out as twice its value plus `zero`. */
void sh_panel_open_codes(const sh_panel *p, const uint8_t *block, int cols, uint8_t *out);

/* Scale and bias of each row for the group that holds column `col` of the block: a weight is
 * scale * (code - zero) + bias. */
void sh_panel_open_scales(const sh_panel *p, const uint8_t *block, int cols, int col,
                          float scale[SH_PANEL_ROWS], float bias[SH_PANEL_ROWS]);

/* The weights of the block that starts at column `first` as f32, out [block_cols][16 rows]; returns
 * how many columns it has. */
int sh_panel_open_f32(const sh_panel *p, const uint8_t *panel, int64_t first, float *out);

/* All columns of row `row` of the panel as f32. Product and sum are rounded separately, so the bits
 * are the same everywhere. */
void sh_panel_row_f32(const sh_panel *p, const uint8_t *panel, int row, float *out);

#endif
