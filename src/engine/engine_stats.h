/* engine_stats.h - the counters of an engine, and their JSON.
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
    uint64_t failures;         /* of the group */
    uint64_t changes;          /* of the group, by ranks that came in or left */
    int missing[SH_RANKS_MAX]; /* numbers of ranks that the group goes on without */
    int missing_count;
    double step_s;
    double schedule_s;       /* in the scheduler, including the events it emits */
    sh_rank_report *reports; /* [report_count] the latest report of each rank */
    int report_count;
    int64_t reported_ns;
    bool ready;                 /* the group is formed */
    char lost[SH_ERR_TEXT_MAX]; /* why it is not */
    uint64_t lost_ranks;        /* by whom, a bit for each number; none if it was planned */
    sh_buf ranks;               /* JSON of the ranks as of when it was last formed */
    sh_hist step, batch_tokens, batch_sequences, queue, ttft, inter_token;
} sh_engine_stats;

void sh_engine_stats_init(sh_engine_stats *stats);
void sh_engine_stats_event(sh_engine_stats *stats, const sh_event *event);
void sh_engine_stats_step(sh_engine_stats *stats, double took_s, int tokens, int sequences);

void sh_engine_stats_reset(sh_engine_stats *stats);

void sh_engine_stats_json(sh_engine_stats *stats, sh_model_group *mg, sh_sched *sched,
                          const sh_blocks *blocks, const sh_drafter *drafter,
                          const sh_engine_opts *opts, sh_buf *out);

#endif
