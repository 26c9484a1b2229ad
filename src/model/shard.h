/* shard.h - which part of a model a rank holds, and the planner that cuts a model into such parts.
 *
 * A group of ranks is a grid: `stages` consecutive runs of layers (pipeline parallel), each stage
 * held by `tensor_size` ranks together (tensor parallel). Rank r is tensor rank r % tensor_size of
 * stage r / tensor_size, so rank 0 has the first layers. Within a stage, attention is cut by groups
 * of heads that share a KV head (by single query heads once there are more ranks than KV heads; KV
 * heads are then held more than once), feed-forward widths and channels of convolutions by
 * quantization groups, the vocabulary by rows. A rank gets a whole number of units in proportion to
 * its weight, possibly none; every unit has one owner.
 *
 * Threads: pure functions over plain values. */
#ifndef SH_MODEL_SHARD_H
#define SH_MODEL_SHARD_H

#include "model/config.h"

enum { SH_SHARDS_MAX = 1024 };

typedef struct {
    int64_t first;
    int64_t count;
} sh_range;

typedef struct {
    int rank;
    int tensor_rank;
    int tensor_size;
    int stage;
    int stages;
    int layer_first;
    int layer_count;
    sh_range heads;      /* query heads */
    sh_range kv_heads;   /* KV heads that these read; one latent "head" with MLA */
    sh_range conv;       /* channels of a short convolution */
    sh_range delta;      /* key heads of a gated delta net, with their value heads */
    sh_range ffn;        /* columns of a dense feed-forward layer */
    sh_range expert_ffn; /* the same columns of every expert */
    sh_range shared_ffn; /* of the shared experts */
    sh_range vocab;      /* rows of the embedding and of the head */
} sh_shard;

/* The whole model on one rank. */
sh_shard sh_shard_whole(const sh_config *config);

/* The part of a mixer that the rank holds: heads or channels. */
sh_range sh_shard_mixer(const sh_shard *shard, sh_mixer mixer);

/* Widths are cut at multiples of this: the widest quantization group of the model. */
int64_t sh_shard_unit(const sh_config *config);

/* Columns of the attention's output projection that the rank holds: those of its heads, widened to
 * whole quantization groups. The input is zero in the added columns, so they do not count twice. */
sh_range sh_shard_out_cols(const sh_config *config, const sh_shard *shard);

/* The rank's part of a gated delta net, without its weights. */
sh_delta_net sh_shard_delta_net(const sh_config *config, const sh_shard *shard);

/* True for the stage that embeds tokens, and for the one that computes logits. */
bool sh_shard_embeds(const sh_shard *shard);
bool sh_shard_predicts(const sh_shard *shard);

typedef struct {
    int tensor_size;
    int stages;
    const double *weights; /* [tensor_size * stages], each >= 0, not all 0; NULL: all equal */
    double head_layers;    /* cost of the head, which the last stage computes too, in layers; see
                              sh_predict_head_layers */
} sh_plan_opts;

/* Fills shards [tensor_size * stages]. Refuses more stages than layers, and weights that are out of
 * range or all 0 in a stage. */
SH_MUST_CHECK sh_status sh_shard_plan(const sh_config *config, const sh_plan_opts *opts,
                                      sh_shard *shards, sh_err *err);

/* The resources of a rank. */
typedef struct {
    double memory; /* bytes for weights */
    double speed;  /* relative memory bandwidth */
} sh_rank_resources;

/* Shares in proportion to speed, capped by the memory of each rank; what is cut off goes to the
 * others. Fails, with the numbers in the error, when the ranks together have too little memory for
 * `weight_bytes`. */
SH_MUST_CHECK sh_status sh_shares_by_resources(const sh_rank_resources *resources, int count,
                                               double weight_bytes, double *shares, sh_err *err);

/* The part of `units` that owner `idx` gets when they are cut in proportion to weights [count]:
 * consecutive runs, each border rounded to the nearest unit. */
sh_range sh_shard_cut(int64_t units, const double *weights, int count, int idx);

#endif
