/* model_group_internal.h - what the files of a model group share; private to them.
 *
 * Threads: the one that runs the steps. */
#ifndef SH_ENGINE_MODEL_GROUP_INTERNAL_H
#define SH_ENGINE_MODEL_GROUP_INTERNAL_H

#include "engine/model_group.h"
#include "engine/rank_messages.h"
#include "engine/shares.h"
#include "model/identity.h"
#include "share/shard_source.h"
#include "share/share_server.h"

struct sh_model_group {
    sh_model_group_opts opts;
    char *model_dir;         /* NULL: not known yet */
    sh_share_server *server; /* rank 0 of a group: sends weights to ranks that have none */
    sh_shard_source *source; /* a rank that has none: where they come from */
    sh_config config;
    sh_device *dev;
    void *staging;        /* of sums, lent by the device; NULL: the group has its own */
    sh_identity identity; /* of the whole model */
    int64_t beside_block; /* bytes; see sh_model_group_set_beside */

    /* Everything from here to `links` belongs to one join. */
    sh_group *group; /* NULL: alone */
    sh_group *stage; /* the ranks that share this one's layers; NULL when there are no others */
    int rank, size;
    int number;     /* without a group: by which users know this rank */
    int host_ranks; /* ranks on this machine, which share its memory */
    int tensor, stages;
    bool measured;    /* the ranks' speed counts for the shares */
    sh_shard *shards; /* [size] */
    sh_peers peers;
    sh_step_limits limits;
    int context;
    sh_rank *self;
    sh_step_plan *plan; /* a worker's received plan; rank 0's scratch for commands */
    sh_buf message;
    void *message_registered;     /* rank 0: where it was when it was registered */
    float *hidden;                /* [tokens, hidden], host memory, to pass between stages */
    sh_logits_summary *summaries; /* [tensor], of one draw */
    char *incoming;               /* rank 0: [stages, tensor] summaries as they come, by step */
    size_t incoming_cap;          /* of one rank and step */
    uint64_t *incoming_due;       /* [stages, tensor] the message that brings them */
    const sh_step_plan **begun;   /* [stages] plans in flight, by step; borrowed from the caller */
    float *vectors;               /* rank 0: [slots, hidden] of the step that was finished last */
    uint64_t incoming_step;       /* summaries have come up to this step */
    bool reports_asked;
    char *reports;         /* [size] as they arrive, packed */
    uint64_t *reports_due; /* [size] ids of the messages that bring them */
    sh_buf outgoing;       /* summaries or a report of this rank; never grows */
    sh_buf masks;          /* the bits of new masks, as they travel */
    uint64_t masks_step;   /* rank 0: the step whose masks were sent last */
    sh_candidate *sorted;  /* [2, vocab] */
    float *row;            /* [vocab] */
    uint64_t step;         /* the one begun last */
    sh_model_group_times times;
    sh_link_report *links; /* [size, size]; NULL alone */

    sh_model *model;   /* kept across joins as long as the shard is the same */
    uint64_t kv_epoch; /* the group that reserved the KV blocks, which are kept as long as every
                          rank has those of that group; 0: none */
    int kv_blocks;
    sh_shares shares;   /* the last that the ranks agreed on */
    bool shares_read;   /* they are from a file: memory may have changed since */
    uint64_t refused;   /* number of shares that this rank could not load; 0: none */
    sh_balance balance; /* rank 0: measured with these shares */
};

/* Reads what is known of the model before its weights. */
SH_MUST_CHECK sh_status sh_model_group_describe(sh_model_group *mg, const char *dir, sh_err *err);

/* The terms that all ranks have in common (model_group_terms.c). */
enum { SH_TERMS_LEN = 12 * 8 };
void sh_model_group_terms_pack(const sh_model_group *mg, uint8_t out[SH_TERMS_LEN]);
SH_MUST_CHECK sh_status sh_model_group_terms_take(sh_model_group *mg,
                                                  const uint8_t bytes[SH_TERMS_LEN], sh_err *err);

/* Rank 0: the grid for a group of mg->size. */
SH_MUST_CHECK sh_status sh_model_group_choose_grid(sh_model_group *mg, sh_err *err);

/* The shares that the user gave, if there is one for each rank. shares may be NULL. */
bool sh_model_group_split_take(const sh_model_group *mg, double *shares);

/* What this rank has to offer; its speed counts as 1 unless it is measured. */
sh_rank_offer sh_model_group_offer(const sh_model_group *mg, bool measure);

/* Cuts the model by these shares [size] into mg->shards, and loads the shard of this rank. */
SH_MUST_CHECK sh_status sh_model_group_cut(sh_model_group *mg, const double *shares, sh_err *err);
SH_MUST_CHECK sh_status sh_model_group_load_shard(sh_model_group *mg, sh_err *err);

/* Frees everything that belongs to one join. The model and the device stay. */
void sh_model_group_leave(sh_model_group *mg);

/* Makes weights travel in a group that has just formed: rank 0 offers them, a rank without a copy
 * of the model learns what the model is. After loading it is done with them. */
SH_MUST_CHECK sh_status sh_model_group_share_begin(sh_model_group *mg, sh_err *err);
void sh_model_group_share_end(sh_model_group *mg);

/* A rank without a copy of the model takes that of rank 0, with this identity, over a link; with
 * `number` as its own. */
SH_MUST_CHECK sh_status sh_model_group_obtain(sh_model_group *mg, const sh_share_link *link,
                                              const uint8_t id[SH_IDENTITY_LEN], int number,
                                              sh_err *err);

/* Such a rank keeps the decision on shares for its next life, unless it cannot load its part. */
void sh_model_group_keep_shares(const sh_model_group *mg, bool keep);

/* Reports how far this rank is with loading: an sh_progress_fn, ctx is the model group. */
void sh_model_group_loaded(void *mg, uint64_t done, uint64_t total);

/* Adds one message (or sum) of this kind, and the time since `start_ns`, to the totals. */
void sh_model_group_counted(sh_model_group *mg, sh_traffic what, size_t bytes, int64_t start_ns);

#endif
