/* engine_stats.h - what an engine counts, and the JSON object in which it tells it.
 *
 * Threads: belongs to the engine's thread. */
#ifndef SH_ENGINE_ENGINE_STATS_H
#define SH_ENGINE_ENGINE_STATS_H

#include "engine/engine.h"
#include "engine/histogram.h"

typedef struct {
    int64_t opened_ns;
    int stages;
    uint64_t steps;
    uint64_t failures; /* of the group */
    double step_s;
    double schedule_s;       /* in the scheduler, what it emits included */
    sh_rank_report *reports; /* [reports_count] of the ranks, as they last said */
    int report_count;
    int64_t reported_ns;
    bool ready;                 /* the group stands */
    char lost[SH_ERR_TEXT_MAX]; /* why it does not */
    sh_buf ranks;               /* JSON of the ranks when it last stood */
    sh_hist step, batch_tokens, batch_sequences, queue, ttft, inter_token;
} sh_engine_stats;

void sh_engine_stats_init(sh_engine_stats *stats);
void sh_engine_stats_event(sh_engine_stats *stats, const sh_event *event);
void sh_engine_stats_step(sh_engine_stats *stats, double took_s, int tokens, int sequences);

void sh_engine_stats_reset(sh_engine_stats *stats);

void sh_engine_stats_json(sh_engine_stats *stats, sh_model_group *mg, sh_sched *sched,
                          const sh_blocks *blocks, const sh_engine_opts *opts, sh_buf *out);

#endif
