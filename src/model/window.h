/* window.h - rows of equal length at equal distances in a file: the unit in which weights are read.
 *
 * A range of whole rows of a matrix is a window, and so is a range of its columns. What provides
 * the bytes, a file or a link, sees one request for either.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_WINDOW_H
#define SH_MODEL_WINDOW_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t offset; /* of the first byte */
    uint64_t stride; /* from the start of a row to that of the next */
    uint64_t len;    /* bytes of a row */
    uint64_t rows;
} sh_window;

/* `len` bytes at `offset`. */
sh_window sh_window_range(uint64_t offset, uint64_t len);

/* The same bytes with as few rows as possible: those that touch become one. */
sh_window sh_window_merged(sh_window window);

/* Whether all of it lies within `size` bytes, whatever its numbers are. */
bool sh_window_fits(const sh_window *window, uint64_t size);

/* Bytes of all rows; only for a window that fits somewhere. */
uint64_t sh_window_bytes(const sh_window *window);

/* Cuts a window into parts of at most `most` bytes, in the order of their bytes. *done is what the
 * parts so far have, 0 at first; false when nothing is left. */
bool sh_window_next(const sh_window *window, uint64_t most, uint64_t *done, sh_window *part);

/* Reads a window, row after row, into data. A file that ends before that is an error. */
SH_MUST_CHECK sh_status sh_window_read(int fd, const char *path, const sh_window *window,
                                       void *data, sh_err *err);

/* Where the bytes of files come from that are not here themselves. `file` is a plain name. May be
 * called by many threads at once. */
typedef struct {
    void *ctx;
    sh_status (*read)(void *ctx, const char *file, const sh_window *window, void *data,
                      sh_err *err);
} sh_window_source;

#endif
