/* predict.h - what a cut of a model costs each rank, and how fast the ranks together should be.
 *
 * One token of one sequence is bound by memory: a rank reads its active weights once. What the
 * ranks say to each other comes on top: two sums a layer in tensor parallel, a hand-over between
 * stages, an answer a step.
 *
 * Threads: pure functions over plain values. */
#ifndef SH_MODEL_PREDICT_H
#define SH_MODEL_PREDICT_H

#include "model/shard.h"

typedef struct {
    double weight_bytes;   /* that the rank holds */
    double token_bytes;    /* of these, that one token reads */
    double kv_token_bytes; /* of KV, that one token adds; f16 */
} sh_rank_cost;

void sh_predict_rank(const sh_config *config, const sh_shard *shard, sh_rank_cost *out);

/* How many layers of mean size take as long as the head, for sh_plan_opts. */
double sh_predict_head_layers(const sh_config *config);

typedef struct {
    double read_bytes_per_s; /* of one rank's memory */
    double latency_s;        /* of a message between two ranks */
    double link_bytes_per_s;
    double wire_bytes; /* of a number in a sum: 4, 2 or 1.125 */
} sh_predict_machine;

typedef struct {
    double token_s;       /* of one sequence */
    double compute_s;     /* of these, in reading weights */
    double traffic_bytes; /* that all ranks together send for a token */
} sh_prediction;

/* `speeds` [ranks] are factors on read_bytes_per_s, or NULL. */
sh_prediction sh_predict(const sh_config *config, const sh_shard *shards, const double *speeds,
                         const sh_predict_machine *machine);

#endif
