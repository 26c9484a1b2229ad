/* Matrices outside of products: their size, packing, copying, and the lookup of embedding rows. */
#include "kernels/cpu/cpu.h"

#include <string.h>

static uint8_t *panel_at(const sh_panel *p, const sh_matrix *m, int64_t index, int64_t row)
{
    return (uint8_t *)m->data + (size_t)index * m->stride +
           (size_t)(row / SH_PANEL_ROWS) * p->panel_bytes;
}

size_t sh_cpu_matrix_bytes(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols)
{
    (void)dev;
    sh_panel p = sh_panel_of(quant, cols);
    return (size_t)((rows + SH_PANEL_ROWS - 1) / SH_PANEL_ROWS) * p.panel_bytes;
}

int64_t sh_cpu_matrix_cut(sh_device *dev, const sh_quant *quant)
{
    (void)dev;
    return sh_panel_cut(quant);
}

/* Rows of the panel at row `row` of a part. */
static int panel_rows(const sh_matrix_part *part, int64_t row)
{
    int64_t left = part->rows - row;
    return left < SH_PANEL_ROWS ? (int)left : SH_PANEL_ROWS;
}

static void check_part(const sh_matrix *m, const sh_matrix_part *part)
{
    SH_ASSERT(part->row % SH_PANEL_ROWS == 0 && part->row + part->rows <= m->rows);
    SH_ASSERT(part->col % sh_panel_cut(&m->quant) == 0 && part->col + part->cols <= m->cols);
}

void sh_cpu_matrix_pack(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_raw_rows *raw)
{
    (void)dev;
    check_part(m, part);
    sh_panel p = sh_panel_of(&m->quant, m->cols);
    sh_raw_rows from = *raw;
    for (int64_t row = 0; row < part->rows; row += SH_PANEL_ROWS) {
        sh_panel_pack(&p, &from, panel_rows(part, row), part->col, part->cols,
                      panel_at(&p, m, part->index, part->row + row));
        from.w = (const uint8_t *)from.w + SH_PANEL_ROWS * from.w_stride;
        if (from.scales != NULL)
            from.scales = (const uint8_t *)from.scales + SH_PANEL_ROWS * from.scales_stride;
        if (from.biases != NULL)
            from.biases = (const uint8_t *)from.biases + SH_PANEL_ROWS * from.biases_stride;
    }
}

void sh_cpu_matrix_copy(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_matrix *from, int64_t index, int64_t row, int64_t col)
{
    (void)dev;
    check_part(m, part);
    SH_ASSERT(row + part->rows <= from->rows && col + part->cols <= from->cols);
    sh_panel p = sh_panel_of(&m->quant, m->cols), from_p = sh_panel_of(&from->quant, from->cols);
    uint8_t *panels = panel_at(&from_p, from, index, 0);
    for (int64_t r = 0; r < part->rows; r += SH_PANEL_ROWS)
        sh_panel_copy(&p, panel_at(&p, m, part->index, part->row + r), part->col, &from_p, panels,
                      row + r, col, panel_rows(part, r), part->cols);
}

struct embed {
    const sh_matrix *w;
    sh_panel p;
    int64_t row_first;
    const int32_t *ids;
    float scale;
    float *y;
    int64_t y_stride;
};

static void embed_run(void *arg, size_t token, int thread)
{
    const struct embed *e = arg;
    const sh_matrix *w = e->w;
    float *y = e->y + (int64_t)token * e->y_stride;
    int64_t row = e->ids[token] - e->row_first;
    (void)thread;
    if (row < 0 || row >= w->rows) {
        memset(y, 0, (size_t)w->cols * sizeof(*y));
        return;
    }
    sh_panel_row_f32(&e->p, panel_at(&e->p, w, 0, row), (int)(row % SH_PANEL_ROWS), y);
    for (int64_t c = 0; c < w->cols; c++) y[c] *= e->scale;
}

void sh_cpu_embed(sh_device *dev, const sh_device_batch *b, const sh_matrix *w, int64_t row_first,
                  float scale, sh_tensor y)
{
    struct embed e = {.w = w,
                      .p = sh_panel_of(&w->quant, w->cols),
                      .row_first = row_first,
                      .ids = b->in.ids,
                      .scale = scale,
                      .y = sh_cpu_f32(y),
                      .y_stride = y.stride};
    sh_cpu_each(sh_cpu_of(dev), (size_t)b->in.tokens, false, embed_run, &e);
}
