/* monitor_view.h - renders the metrics of a server as text for a terminal.
 *
 * Threads: pure functions. */
#ifndef SH_CMD_SUPPORT_MONITOR_VIEW_H
#define SH_CMD_SUPPORT_MONITOR_VIEW_H

#include "base/buf.h"
#include "base/json.h"

/* Appends lines of at most `columns` characters: state, speed, queue, one line per rank, and the
 * last requests, in total at most `rows` lines (0: no limit). Both documents come from a server and
 * may lack any field; recent may be NULL. */
void sh_monitor_view_draw(const cJSON *snapshot, const cJSON *recent, int columns, int rows,
                          sh_buf *out);

#endif
