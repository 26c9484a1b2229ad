/* Windows may come from a peer, so sh_window_fits must hold before anything else is computed from
 * one; it is the only function here that expects nonsense. */
#include "model/window.h"

#include "base/file.h"

sh_window sh_window_range(uint64_t offset, uint64_t len)
{
    return (sh_window){.offset = offset, .stride = len, .len = len, .rows = 1};
}

sh_window sh_window_merged(sh_window w)
{
    return w.rows == 1 || w.stride == w.len ? sh_window_range(w.offset, w.len * w.rows) : w;
}

bool sh_window_fits(const sh_window *w, uint64_t size)
{
    uint64_t last, end;
    if (w->rows == 0 || w->len == 0 || (w->rows > 1 && w->stride < w->len)) return false;
    return !__builtin_mul_overflow(w->rows - 1, w->stride, &last) &&
           !__builtin_add_overflow(last, w->len, &end) &&
           !__builtin_add_overflow(end, w->offset, &end) && end <= size;
}

uint64_t sh_window_bytes(const sh_window *w)
{
    return w->len * w->rows;
}

/* Whole rows, unless one of them is too long by itself. */
bool sh_window_next(const sh_window *w, uint64_t most, uint64_t *done, sh_window *part)
{
    uint64_t row = *done / w->len, col = *done % w->len;
    if (row == w->rows) return false;
    if (w->len > most) {
        uint64_t len = w->len - col < most ? w->len - col : most;
        *part = sh_window_range(w->offset + row * w->stride + col, len);
    } else {
        uint64_t rows = w->rows - row < most / w->len ? w->rows - row : most / w->len;
        *part = (sh_window){w->offset + row * w->stride, w->stride, w->len, rows};
    }
    *done += sh_window_bytes(part);
    return true;
}

sh_status sh_window_read(int fd, const char *path, const sh_window *window, void *data, sh_err *err)
{
    sh_window w = sh_window_merged(*window);
    char *to = data;
    for (uint64_t i = 0; i < w.rows; i++) {
        sh_status status = sh_fd_read_at(fd, path, w.offset + i * w.stride, to + i * w.len,
                                         (size_t)w.len, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}
