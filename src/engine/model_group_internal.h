/* model_group_internal.h - what the files of a model group share; private to them.
 *
 * Threads: the one that runs the steps. */
#ifndef SH_ENGINE_MODEL_GROUP_INTERNAL_H
#define SH_ENGINE_MODEL_GROUP_INTERNAL_H

#include "engine/model_group.h"

struct sh_model_group {
    sh_model_group_opts opts;
    char *model_dir;
    sh_config config;
    sh_device *dev;
    int64_t weight_bytes; /* of the whole model */

    /* of a join */
    sh_group *group; /* NULL: alone */
    sh_group *stage; /* the ranks that share this one's layers; NULL when it has them alone */
    int rank, size;
    int host_ranks; /* ranks on this machine, which share its memory */
    int tensor, stages;
    sh_shard *shards; /* [size] */
    sh_peers peers;
    sh_step_limits room;
    int context;
    sh_rank *self;
    sh_step_plan *plan; /* as a worker gets it */
    sh_buf message;
    float *hidden;                /* [tokens, hidden], host memory, to pass between stages */
    sh_logits_summary *summaries; /* [tensor], of one draw */
    char *parts;                  /* rank 0: [stages, tensor] summaries as they come, by step */
    size_t parts_cap;             /* of one rank and step */
    uint64_t *parts_due;          /* [stages, tensor] the message that brings them */
    const sh_step_plan **begun;   /* [stages] plans under way, by step; the caller's */
    uint64_t parts_step;          /* summaries have come up to this step */
    bool reports_asked;
    char *reports;         /* [size] as they come */
    uint64_t *reports_due; /* [size] the message that brings them */
    sh_buf outgoing;       /* summaries or a report of this rank */
    sh_candidate *sorted;  /* [2, vocab] */
    float *row;            /* [vocab] */
    uint64_t step;         /* that was begun last */
    sh_model_group_times times;
    sh_link_report *links; /* [size, size]; NULL alone */

    sh_model *model; /* stays over joins while its shard does */
};

/* Counts what was said since `start`. */
void sh_model_group_counted(sh_model_group *mg, sh_traffic what, size_t bytes, int64_t start_ns);

#endif
