/* model.h - a shard of a model, ready to run: weights, KV blocks, scratch.
 *
 * sh_model_load reads the weights and plans all memory that a step needs; sh_model_reserve_kv adds
 * the KV blocks once it is known how many fit into the memory of every rank. Running a step is in
 * model/forward.h.
 *
 * The caller owns config and device, which must outlive the model. Threads: one owner. */
#ifndef SH_MODEL_MODEL_H
#define SH_MODEL_MODEL_H

#include "model/config.h"
#include "model/loader.h"
#include "model/shard.h"

typedef struct sh_model sh_model;

typedef struct {
    int tokens_max; /* of one step */
    int rows_max;   /* tokens of one step that need logits */
    sh_kv_format kv_format;
    sh_load_opts load;
} sh_model_opts;

/* Bytes in device memory. */
typedef struct {
    size_t weights;
    size_t kv;
    size_t scratch; /* of the model; the device has its own in addition */
} sh_model_memory;

/* What one token costs in this shard, not counting attention over the KV cache. */
typedef struct {
    double bytes;      /* of weights in the layers, in the layout of the device */
    double operations; /* multiplications and additions of their products */
    double head_bytes; /* in addition, for a token that needs logits */
    double head_operations;
} sh_model_cost;

SH_MUST_CHECK sh_status sh_model_load(const char *dir, const sh_config *config,
                                      const sh_shard *shard, sh_device *dev,
                                      const sh_model_opts *opts, sh_model **out, sh_err *err);
void sh_model_free(sh_model *model);

/* Turns the model into another shard. Weights that both have are kept in memory; the others are
 * read from the files that were opened when it was loaded. Sequence state is gone. On failure there
 * is no model any more: *model is NULL. */
SH_MUST_CHECK sh_status sh_model_reshard(sh_model **model, const sh_shard *shard, sh_err *err);

/* Bytes of the shard's weights in the files, and how many of them were read for it. */
typedef struct {
    uint64_t total;
    uint64_t read;
} sh_model_loaded;
sh_model_loaded sh_model_loaded_of(const sh_model *model);

/* Allocates blocks of SH_KV_BLOCK tokens for each layer, and frees those from before. A layer keeps
 * KV in them, or snapshots of a fixed-size state. */
SH_MUST_CHECK sh_status sh_model_reserve_kv(sh_model *model, int blocks, sh_err *err);

/* Makes a block the same as another, in all layers, between two steps. */
void sh_model_copy_block(sh_model *model, int32_t to, int32_t from);

/* Bytes of one block, summed over the layers of this shard; 0 for a rank that has no part of them.
 */
size_t sh_model_kv_block_bytes(const sh_model *model);

sh_model_memory sh_model_memory_used(const sh_model *model);
sh_model_cost sh_model_cost_of(const sh_model *model);

/* The weights as blocks of device memory, numbered from 0, for measuring how fast they can be read;
 * NULL after the last. */
const void *sh_model_weights(const sh_model *model, int block, size_t *size);

const sh_shard *sh_model_shard(const sh_model *model);
const sh_config *sh_model_config(const sh_model *model);
sh_device *sh_model_device(const sh_model *model);

#endif
