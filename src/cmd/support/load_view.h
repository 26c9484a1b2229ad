/* load_view.h - shows how far the ranks are with loading: bars on a terminal, a line every few
 * seconds elsewhere.
 *
 * Threads: one owner; it has a thread of its own. */
#ifndef SH_CMD_SUPPORT_LOAD_VIEW_H
#define SH_CMD_SUPPORT_LOAD_VIEW_H

#include "base/status.h"
#include "engine/load_board.h"

typedef struct sh_load_view sh_load_view;

/* The board is borrowed until stop. */
SH_MUST_CHECK sh_status sh_load_view_start(sh_load_board *board, sh_load_view **out, sh_err *err);
void sh_load_view_stop(sh_load_view *view); /* takes NULL */

/* "rank 0 [####    ] 52 % 0.92 GB/s" for each row. */
void sh_load_view_bars(const sh_load_row *rows, int count, char *out, size_t cap);

#endif
