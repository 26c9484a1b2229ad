/* model_group.h - the ranks of one model, and the step that they make together.
 *
 * Every process of a group opens a model group and joins it to the group: the ranks say how much
 * memory and speed they have, rank 0 decides who holds what, each loads its shard, and all agree on
 * the room for KV. From then on rank 0 drives: it begins steps and finishes them in the same order;
 * the others work until they are told to stop or the group fails. Without a group a model group is
 * one rank, and nothing is sent anywhere.
 *
 * A step goes through all stages of a pipeline; rank 0 may begin as many steps as there are stages
 * before it finishes the first, so that all stages have something to do.
 *
 * After a failure the model group is joined to a new group; weights that are still right stay
 * loaded.
 *
 * Threads: one owner, which also owns the group. */
#ifndef SH_ENGINE_MODEL_GROUP_H
#define SH_ENGINE_MODEL_GROUP_H

#include "coll/coll.h"
#include "engine/rank.h"
#include "engine/rank_report.h"
#include "engine/step_plan.h"
#include "model/model.h"

typedef struct {
    const char *model_dir;
    sh_cpu_opts cpu;
    sh_kv_format kv_format;
    int tensor;          /* ranks that share each stage; 0: all of them */
    int stages;          /* 0: what is left */
    const double *split; /* shares of the ranks, in order; NULL: by memory and speed */
    int split_count;
    sh_codec wire; /* of the all-reduce */
    int context;   /* tokens of the longest sequence; 0: the model's */
    int slots;
    int chunk;         /* tokens of one step */
    int draws;         /* rows of logits of one step */
    int64_t kv_tokens; /* room for KV in tokens; 0: what slots and memory allow */
    int64_t memory_reserve;
    sh_load_opts load;
} sh_model_group_opts;

typedef struct sh_model_group sh_model_group;

/* Reads the config and opens the device. opts is copied; what it points to must live as long as the
 * model_group. */
SH_MUST_CHECK sh_status sh_model_group_open(const sh_model_group_opts *opts, sh_model_group **out,
                                            sh_err *err);
void sh_model_group_close(sh_model_group *mg);

/* Takes the ranks of `group` (NULL: alone; borrowed until the next join or close) to the point
 * where steps can be made. */
SH_MUST_CHECK sh_status sh_model_group_join(sh_model_group *mg, sh_group *group, sh_err *err);

/* What was agreed on. */
const sh_step_limits *sh_model_group_room(const sh_model_group *mg);
const sh_config *sh_model_group_config(const sh_model_group *mg);
const sh_shard *sh_model_group_shard(const sh_model_group *mg, int rank);
sh_model *sh_model_group_model(sh_model_group *mg);
int sh_model_group_context(const sh_model_group *mg);
int sh_model_group_stages(const sh_model_group *mg);
int sh_model_group_size(const sh_model_group *mg);

/* Rank 0: sends the plan (and stamps its number and fingerprint), runs this rank's part and passes
 * it on. */
SH_MUST_CHECK sh_status sh_model_group_begin(sh_model_group *mg, sh_step_plan *plan, sh_err *err);

/* Rank 0: waits for the oldest step that was begun, which had this plan, and picks its tokens. */
SH_MUST_CHECK sh_status sh_model_group_finish(sh_model_group *mg, const sh_step_plan *plan,
                                              sh_pick *picks, sh_err *err);

/* Rank 0: the whole row of logits [vocab] of a draw of the step that was finished last, which the
 * plan said would be asked for (`whole`). */
SH_MUST_CHECK sh_status sh_model_group_row(sh_model_group *mg, const sh_step_plan *plan, int draw,
                                           float *out, sh_err *err);

/* Rank 0: the others shall end. */
SH_MUST_CHECK sh_status sh_model_group_stop(sh_model_group *mg, sh_err *err);

/* Other ranks: do what rank 0 says until it says stop (SH_OK) or the group fails. */
SH_MUST_CHECK sh_status sh_model_group_work(sh_model_group *mg, sh_err *err);

/* Rank 0: asks all ranks how they are. They answer in their turn, while steps go on. */
SH_MUST_CHECK sh_status sh_model_group_ask_reports(sh_model_group *mg, sh_err *err);

/* Whether it was asked and all have answered; and the answers, [size], waited for if need be. */
bool sh_model_group_reports_have_come(const sh_model_group *mg);
SH_MUST_CHECK sh_status sh_model_group_take_reports(sh_model_group *mg, sh_rank_report *out,
                                                    sh_err *err);

/* What was measured between two ranks when they joined. */
const sh_link_report *sh_model_group_link(const sh_model_group *mg, int a, int b);

/* Since the join. */
typedef struct {
    double step_s; /* in sh_model_group_begin and _finish, or in working on plans */
    double compute_s;
    sh_traffic_cost traffic[SH_TRAFFICS];
    uint64_t steps;
    uint64_t tokens;
} sh_model_group_times;
sh_model_group_times sh_model_group_times_of(const sh_model_group *mg);

#endif
