/* model_facts.h - what a model folder contains, and how much memory it needs. Only config.json and
 * the headers of the weight files are read.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_CMD_SUPPORT_MODEL_FACTS_H
#define SH_CMD_SUPPORT_MODEL_FACTS_H

#include "model/config.h"

typedef struct {
    sh_config config;
    int64_t parameters;
    int64_t active; /* parameters used for one token */
    uint64_t bytes; /* of all tensors in the files */
    int64_t kv_token_bytes;
    bool mlx;         /* written by MLX, not by the hub's tools */
    double available; /* bytes of memory in this machine */
} sh_model_facts;

/* *out must be zero; reset it in any case. */
SH_MUST_CHECK sh_status sh_model_facts_gather(const char *dir, sh_model_facts *out, sh_err *err);
void sh_model_facts_reset(sh_model_facts *facts);

/* How long a context fits next to the weights in so many bytes of memory, at most the model's own;
 * 0 if the weights alone do not fit. */
double sh_model_facts_tokens(const sh_model_facts *facts, double memory);

/* How many machines of that memory hold the weights and a context of up to 8192 tokens. */
int sh_model_facts_machines(const sh_model_facts *facts, double memory);

/* "affine, 4 bits in groups of 64", or "none". */
void sh_model_quant_text(const sh_config *config, char *out, size_t cap);

#endif
