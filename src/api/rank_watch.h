/* rank_watch.h - which ranks of a model are away, on which host each one was, and since when.
 *
 * The engine names only the ranks that it misses. Their hosts are known from the reports that came
 * before.
 *
 * Threads: the loop's. */
#ifndef SH_API_RANK_WATCH_H
#define SH_API_RANK_WATCH_H

#include "api/json_writer.h"

#include <cjson/cJSON.h>
#include <stdint.h>

typedef struct sh_rank_watch sh_rank_watch;

/* The numbers of ranks in a list, a bit for each; what is no number of a rank is skipped. */
uint64_t sh_rank_set_read(const cJSON *list);

sh_rank_watch *sh_rank_watch_create(void);
void sh_rank_watch_free(sh_rank_watch *watch);

/* `stats` are the engine's latest, NULL without an engine: then all ranks are away. */
void sh_rank_watch_take(sh_rank_watch *watch, int64_t now_us, const cJSON *stats);

/* [{"rank": 1, "host": "b", "since": 1794841275.2}]; a NULL watch has seen no rank. */
void sh_rank_watch_write(const sh_rank_watch *watch, const char *key, sh_json_writer *w);

#endif
