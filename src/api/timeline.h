/* timeline.h - the figures of one model over the last hour, for the plots of the dashboard.
 *
 * The engine counts from its start. Once a second a reading of its counters is taken; rates are
 * those of the last 5 s of readings, percentiles and shares those of the last 10 s. Every 5 s these
 * figures are kept in a ring that holds an hour, so memory is bounded (about 50 KiB a model).
 *
 * Threads: the loop's. */
#ifndef SH_API_TIMELINE_H
#define SH_API_TIMELINE_H

#include "api/json_writer.h"

#include <cjson/cJSON.h>
#include <stdint.h>

enum { SH_TIMELINE_STEP_S = 5, SH_TIMELINE_POINTS = 3600 / SH_TIMELINE_STEP_S };

typedef struct sh_timeline sh_timeline;

sh_timeline *sh_timeline_create(void);
void sh_timeline_free(sh_timeline *timeline);

/* `stats` are the engine's latest, NULL without an engine. An engine that has not reported for a
 * while, or that started anew, leaves a gap. */
void sh_timeline_take(sh_timeline *timeline, int64_t now_us, const cJSON *stats);

/* The current figures as an object with "time"; null while there are none. */
void sh_timeline_write_now(const sh_timeline *timeline, const char *key, sh_json_writer *w);

/* The members of GET /metrics/history but the model; NULL: of a model that never ran. */
void sh_timeline_write(const sh_timeline *timeline, sh_json_writer *w);

#endif
