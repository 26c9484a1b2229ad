/* hub_windows.h - windows of a model from the hub instead of from rank 0.
 *
 * Rank 0 says in the outline which repository and commit its files are from, and their ETags. What
 * the hub has under the same commit and ETags is taken for the same, without a digest made from
 * rank 0's files: the log says so. After the first failure that retries do not cure, the log says
 * that too, and nothing more is asked of the hub.
 *
 * Threads: one owner; reads may come from many threads. */
#ifndef SH_SHARE_HUB_WINDOWS_H
#define SH_SHARE_HUB_WINDOWS_H

#include "share/share_client.h"

/* How to reach the hub (sh_hub_opts). The first sh_hub_open must have been before. */
typedef struct {
    const char *endpoint;
    const char *token; /* or NULL */
    int64_t timeout_ms;
} sh_share_hub;

typedef struct sh_hub_windows sh_hub_windows;

/* NULL, with a warning, if the hub does not have the model. Outline and hub are borrowed; stop_fd
 * as in sh_share_link. */
sh_hub_windows *sh_hub_windows_create(const sh_share_hub *hub, const sh_share_outline *outline,
                                      int stop_fd);
void sh_hub_windows_free(sh_hub_windows *hub);

/* Gets windows of one file, in the order of their bytes. False: ask rank 0. */
bool sh_hub_windows_read(sh_hub_windows *hub, sh_share_part *parts, int count);

/* Bytes of weights that came from the hub so far, without those between windows. */
uint64_t sh_hub_windows_received(const sh_hub_windows *hub);

#endif
