/* overlap.h - what two windows of one file have in common.
 *
 * When a model is split anew, the windows of a rank's new shard are hardly ever those of the old
 * one, but mostly made of the same bytes: some rows more, some columns less.
 *
 * Threads: pure functions. */
#ifndef SH_SHARE_OVERLAP_H
#define SH_SHARE_OVERLAP_H

#include "model/window.h"

#include <stddef.h>

/* A rectangle of a window: some of its rows, and the same bytes of each. */
typedef struct {
    uint64_t row, rows;
    uint64_t col, cols;
} sh_window_rect;

/* All of a window, and the window that a rectangle of one is. */
sh_window_rect sh_window_rect_all(const sh_window *window);
sh_window sh_window_rect_cut(const sh_window *window, const sh_window_rect *rect);

/* The rectangle of `want` that is in `have`. False: there is none, or their rows do not match.
 * Both windows must fit somewhere. */
bool sh_window_overlap(const sh_window *want, const sh_window *have, sh_window_rect *out);

enum { SH_WINDOW_REST_MAX = 4 };

/* What is left of `all` without `part`, which is within it: rectangles; returns their number. */
int sh_window_rect_rest(const sh_window_rect *all, const sh_window_rect *part,
                        sh_window_rect rest[SH_WINDOW_REST_MAX]);

/* Copies a rectangle of `want` out of the bytes of `have`, which has it. `to` is where its first
 * byte goes, `pitch` the distance of its rows there. */
void sh_window_rect_copy(const sh_window *want, const sh_window_rect *rect, const sh_window *have,
                         const void *have_data, void *to, size_t pitch);

#endif
