/* monitor_view.h - one picture of a server for the terminal, from the JSON of its metrics.
 *
 * Threads: pure functions. */
#ifndef SH_CMD_SUPPORT_MONITOR_VIEW_H
#define SH_CMD_SUPPORT_MONITOR_VIEW_H

#include "base/buf.h"
#include "base/json.h"

/* Adds lines of at most `columns` characters: state, speed, queue, a line a rank, the last
 * requests, in all at most `rows` (0: no bound). Both documents come from a server and may lack
 * anything; recent may be NULL. */
void sh_monitor_view_draw(const cJSON *snapshot, const cJSON *recent, int columns, int rows,
                          sh_buf *out);

#endif
