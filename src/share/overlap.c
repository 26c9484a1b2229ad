/* The rows of both windows are laid on one grid, that of the stride. On it each window is a
 * rectangle, and so is what they have in common. */
#include "share/overlap.h"

#include <string.h>

typedef struct {
    int64_t first, end; /* empty unless first < end */
} span;

static span intersect(span a, span b)
{
    return (span){a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

static bool rect_set(span rows, span cols, sh_window_rect *out)
{
    if (rows.first >= rows.end || cols.first >= cols.end) return false;
    *out = (sh_window_rect){.row = (uint64_t)rows.first,
                            .rows = (uint64_t)(rows.end - rows.first),
                            .col = (uint64_t)cols.first,
                            .cols = (uint64_t)(cols.end - cols.first)};
    return true;
}

sh_window_rect sh_window_rect_all(const sh_window *w)
{
    return (sh_window_rect){.rows = w->rows, .cols = w->len};
}

sh_window sh_window_rect_cut(const sh_window *w, const sh_window_rect *r)
{
    return (sh_window){w->offset + r->row * w->stride + r->col, w->stride, r->cols, r->rows};
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Both have one row. */
static bool ranges_overlap(const sh_window *want, const sh_window *have, sh_window_rect *out)
{
    int64_t delta = (int64_t)have->offset - (int64_t)want->offset;
    span cols = intersect((span){0, (int64_t)want->len}, (span){delta, delta + (int64_t)have->len});
    return rect_set((span){0, 1}, cols, out);
}

/* Rows of `want` that are whole in a range. */
static bool rows_in_range(const sh_window *want, const sh_window *have, sh_window_rect *out)
{
    int64_t stride = (int64_t)want->stride, len = (int64_t)want->len;
    int64_t delta = (int64_t)have->offset - (int64_t)want->offset;
    span rows = {-floor_div(-delta, stride),
                 floor_div(delta + (int64_t)have->len - len, stride) + 1};
    return rect_set(intersect(rows, (span){0, (int64_t)want->rows}), (span){0, len}, out);
}

/* A row of `want` lies on the grid from its own first byte on, so one of `have` may begin in one
 * row of the grid and end in the next: the larger part counts. */
static bool grids_overlap(const sh_window *want, const sh_window *have, int64_t stride,
                          sh_window_rect *out)
{
    int64_t len = (int64_t)have->len;
    int64_t delta = (int64_t)have->offset - (int64_t)want->offset;
    int64_t down = floor_div(delta, stride), right = delta - down * stride;
    span all_rows = {0, (int64_t)want->rows}, all_cols = {0, (int64_t)want->len};
    span here = intersect(all_cols, (span){right, right + len});
    span next = intersect(all_cols, (span){0, right + len - stride});
    if (next.end - next.first > here.end - here.first) {
        here = next;
        down++;
    }
    return rect_set(intersect(all_rows, (span){down, down + (int64_t)have->rows}), here, out);
}

bool sh_window_overlap(const sh_window *want, const sh_window *have, sh_window_rect *out)
{
    if (want->rows == 1 && have->rows == 1) return ranges_overlap(want, have, out);
    const sh_window *grid = want->rows > 1 ? want : have, *other = want->rows > 1 ? have : want;
    if (have->rows == 1 && have->len > grid->stride) return rows_in_range(want, have, out);
    if (other->rows == 1 ? other->len > grid->stride : other->stride != grid->stride) return false;
    return grids_overlap(want, have, (int64_t)grid->stride, out);
}

int sh_window_rect_rest(const sh_window_rect *all, const sh_window_rect *part,
                        sh_window_rect rest[SH_WINDOW_REST_MAX])
{
    uint64_t below = part->row + part->rows, right = part->col + part->cols;
    sh_window_rect sides[SH_WINDOW_REST_MAX] = {
        {all->row, part->row - all->row, all->col, all->cols},
        {below, all->row + all->rows - below, all->col, all->cols},
        {part->row, part->rows, all->col, part->col - all->col},
        {part->row, part->rows, right, all->col + all->cols - right},
    };
    int count = 0;
    for (int i = 0; i < SH_WINDOW_REST_MAX; i++)
        if (sides[i].rows > 0 && sides[i].cols > 0) rest[count++] = sides[i];
    return count;
}

/* Where a byte of the file is among the bytes of a window that has it. */
static uint64_t place_of(const sh_window *w, uint64_t at)
{
    uint64_t from = at - w->offset;
    return w->rows == 1 ? from : from / w->stride * w->len + from % w->stride;
}

void sh_window_rect_copy(const sh_window *want, const sh_window_rect *rect, const sh_window *have,
                         const void *have_data, void *to, size_t pitch)
{
    sh_window part = sh_window_rect_cut(want, rect);
    for (uint64_t i = 0; i < part.rows; i++)
        memcpy((char *)to + i * pitch,
               (const char *)have_data + place_of(have, part.offset + i * part.stride),
               (size_t)part.len);
}
