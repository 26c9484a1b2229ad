/* model_group.h - the ranks that serve one model, and the steps they run together.
 *
 * Every process of a group opens a model group and joins it to the group: the ranks exchange how
 * much memory and speed they have, rank 0 decides which rank holds which shard, each loads its own,
 * and all agree on the size of the KV cache. From then on rank 0 drives: it begins steps and
 * finishes them in the same order; the others work until rank 0 sends a stop or the group fails.
 * Without a group, a model group is one rank and nothing is sent.
 *
 * A step passes through all stages of a pipeline; rank 0 may begin as many steps as there are
 * stages before it finishes the first, so that no stage is idle.
 *
 * After a failure the model group is joined to a new group. Weights that the rank still needs stay
 * loaded, and the KV blocks stay as they are if no rank has lost its own.
 *
 * Threads: one owner, which also owns the group. */
#ifndef SH_ENGINE_MODEL_GROUP_H
#define SH_ENGINE_MODEL_GROUP_H

#include "coll/coll.h"
#include "engine/balance.h"
#include "engine/load_board.h"
#include "engine/rank.h"
#include "engine/rank_report.h"
#include "engine/step_plan.h"
#include "model/model.h"
#include "net/roster.h"
#include "share/hub_windows.h"

typedef struct {
    const char *model_dir;   /* NULL: that of rank 0, of which this rank gets its share */
    const char *shard_cache; /* then: the folder in which it is kept */
    uint64_t shard_cache_limit;
    const sh_share_hub *hub; /* where it comes from; NULL: from rank 0 */
    const char *device;      /* a kind of device; NULL: "cpu" */
    sh_device_opts device_opts;
    sh_kv_format kv_format;
    /* Rank 0: the grid and the shares for a group of `ranks` (0: any). A group of another size,
     * because ranks came or went, gets a grid like it. */
    int ranks;
    int tensor;          /* ranks that share each stage; 0: all of them */
    int stages;          /* 0: as many as `tensor` leaves */
    const double *split; /* shares of the ranks by number; NULL: by memory and speed */
    int split_count;
    bool rebalance; /* rank 0: shares follow what was measured, when the group re-forms */
    sh_codec wire;  /* encoding of the all-reduce */
    int context;    /* tokens of the longest sequence; 0: the model's */
    int slots;
    int chunk;         /* tokens of one step */
    int draws;         /* rows of logits of one step */
    int64_t kv_tokens; /* size of the KV cache in tokens; 0: what slots and memory allow */
    int64_t kv_memory; /* the largest KV cache of a rank in bytes; 0: no limit */
    int64_t memory_reserve;
    bool outputs; /* plans may ask for the outputs of their tokens */
    sh_load_opts load;
    sh_load_board *load_board; /* or NULL: where loading is written down, on rank 0 that of all */
} sh_model_group_opts;

typedef struct sh_model_group sh_model_group;

/* Reads the config, if the model is here, and opens the device. opts is copied; what it points to
 * must outlive the model group. */
SH_MUST_CHECK sh_status sh_model_group_open(const sh_model_group_opts *opts, sh_model_group **out,
                                            sh_err *err);
void sh_model_group_close(sh_model_group *mg);

/* For each KV block that this rank reserves it will need so many bytes for something else. */
void sh_model_group_set_beside(sh_model_group *mg, int64_t bytes);

/* Plans, loads and allocates with the ranks of `group` until steps can run. The group is borrowed
 * until the next join or close; NULL: this process alone. */
SH_MUST_CHECK sh_status sh_model_group_join(sh_model_group *mg, sh_group *group, sh_err *err);

/* Rank 0: sends weights to ranks that ask for them, until the next join. A join to a group does so
 * by itself; a rank that is alone in its group may be joined to none. */
SH_MUST_CHECK sh_status sh_model_group_receive(sh_model_group *mg, sh_group *group, sh_err *err);

/* Ranks that come to a group that runs load their share before they join, so that nobody waits for
 * them (newcomer.c).
 *
 * Rank 0: answers those who ask for the share that they will have. `group` is the one that runs. */
void sh_model_group_answer_newcomers(sh_model_group *mg, const sh_group *group, sh_roster *roster);

/* Another rank: loads the share that it will have in the group that `opts` leads to. *number is the
 * number with which to come in, *epoch the group that the share is good for. */
SH_MUST_CHECK sh_status sh_model_group_prepare(sh_model_group *mg, const sh_group_opts *opts,
                                               int *number, uint64_t *epoch, sh_err *err);

/* Rank 0: whether the other ranks could hold the model without these, a bit for each.
 * SH_ERR_MEMORY: no. */
SH_MUST_CHECK sh_status sh_model_group_check_without(const sh_model_group *mg, uint64_t ranks,
                                                     sh_err *err);

/* What the ranks agreed on in the last join. */
const sh_step_limits *sh_model_group_limits(const sh_model_group *mg);
const sh_config *sh_model_group_config(const sh_model_group *mg);
const sh_shard *sh_model_group_shard(const sh_model_group *mg, int rank);
sh_model *sh_model_group_model(sh_model_group *mg);
uint64_t sh_model_group_identity(const sh_model_group *mg); /* of the model: equal on all ranks */
/* The group in which the ranks reserved the KV blocks that all of them still have; 0 when alone. */
uint64_t sh_model_group_kv_epoch(const sh_model_group *mg);
int sh_model_group_context(const sh_model_group *mg);
int sh_model_group_stages(const sh_model_group *mg);
int sh_model_group_size(const sh_model_group *mg);
int sh_model_group_number(const sh_model_group *mg, int rank); /* by which users know it */

/* Rank 0: sets the plan's number and fingerprint, sends it to all ranks, and runs this rank's part
 * of the step. */
SH_MUST_CHECK sh_status sh_model_group_begin(sh_model_group *mg, sh_step_plan *plan, sh_err *err);

/* Rank 0: waits for the oldest step in flight, which must be the one with this plan, and picks its
 * tokens. */
SH_MUST_CHECK sh_status sh_model_group_finish(sh_model_group *mg, const sh_step_plan *plan,
                                              sh_pick *picks, sh_err *err);

/* Rank 0: the vectors [sh_step_plan_vectors, hidden] of the step that was finished last. */
const float *sh_model_group_vectors(const sh_model_group *mg);

/* Rank 0: the outputs [tokens, hidden] of the step that was finished last, whose plan asked for
 * them: f32 at any address, borrowed until the next step begins. */
const void *sh_model_group_outputs(const sh_model_group *mg, const sh_step_plan *plan);

/* Rank 0: fetches the whole row of logits [vocab] of a draw of the step that was finished last. The
 * ranks keep it only if the plan marked the draw as `whole`, or if their summaries cannot settle
 * the draw. */
SH_MUST_CHECK sh_status sh_model_group_row(sh_model_group *mg, const sh_step_plan *plan, int draw,
                                           float *out, sh_err *err);

/* Rank 0: stops the other ranks. */
SH_MUST_CHECK sh_status sh_model_group_stop(sh_model_group *mg, sh_err *err);

/* Other ranks: carry out rank 0's plans until it sends a stop (SH_OK) or the group fails. */
SH_MUST_CHECK sh_status sh_model_group_work(sh_model_group *mg, sh_err *err);

/* Rank 0: requests a report from every rank. They answer in order, after the steps that were begun
 * before; steps go on meanwhile. */
SH_MUST_CHECK sh_status sh_model_group_ask_reports(sh_model_group *mg, sh_err *err);

/* Whether reports were requested and all of them have arrived. */
bool sh_model_group_reports_ready(const sh_model_group *mg);
/* Waits for the requested reports, out [size]. */
SH_MUST_CHECK sh_status sh_model_group_take_reports(sh_model_group *mg, sh_rank_report *out,
                                                    sh_err *err);

/* Rank 0: what the reports taken since the shares were agreed on say about them. */
const sh_balance *sh_model_group_balance(const sh_model_group *mg);

/* The link between two ranks as measured in the join; NULL without a group. */
const sh_link_report *sh_model_group_link(const sh_model_group *mg, int a, int b);

/* Totals since the join. */
typedef struct {
    double step_s; /* spent in sh_model_group_begin and _finish, or on other ranks in plans */
    double compute_s;
    sh_traffic_cost traffic[SH_TRAFFICS];
    uint64_t steps;
    uint64_t tokens;
} sh_model_group_times;
sh_model_group_times sh_model_group_times_of(const sh_model_group *mg);

#endif
