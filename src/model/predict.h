/* predict.h - what a shard plan costs each rank, and how fast the ranks together should be.
 *
 * One token of one sequence is bound by memory bandwidth: a rank reads its active weights once. The
 * messages between ranks come on top: two sums per layer in tensor parallel, a hand-over between
 * stages, an answer per step.
 *
 * Threads: pure functions over plain values. */
#ifndef SH_MODEL_PREDICT_H
#define SH_MODEL_PREDICT_H

#include "model/shard.h"

typedef struct {
    double weight_bytes;   /* held by the rank */
    double token_bytes;    /* of these, read by one token */
    double kv_token_bytes; /* added to the sequence state by one token; KV in f16 */
} sh_rank_cost;

void sh_predict_rank(const sh_config *config, const sh_shard *shard, sh_rank_cost *out);

/* How many layers of average size take as long as the head, for sh_plan_opts. */
double sh_predict_head_layers(const sh_config *config);

typedef struct {
    double read_bytes_per_s; /* of one rank's memory */
    double latency_s;        /* of a message between two ranks */
    double link_bytes_per_s;
    double wire_bytes; /* of one number of a sum on the wire: 4, 2 or 1.125 */
} sh_predict_machine;

typedef struct {
    double token_s;       /* of one sequence */
    double compute_s;     /* of these, for reading weights */
    double traffic_bytes; /* sent by all ranks together for a token */
} sh_prediction;

/* `speeds` [ranks] are factors on read_bytes_per_s, or NULL. */
sh_prediction sh_predict(const sh_config *config, const sh_shard *shards, const double *speeds,
                         const sh_predict_machine *machine);

#endif
