/* pooling.h - how a model makes one vector of the hidden states of a text.
 *
 * An embedding model says so in the files of sentence-transformers: modules.json lists the pooling
 * and what follows it (dense layers, a normalization). A cross-encoder has a classifier in their
 * place, whose output is one score. Nearly all of the work is in the hidden states; what follows
 * the pooling is computed by rank 0, in f32, one vector at a time.
 *
 * Threads: constant once open. */
#ifndef SH_MODEL_POOLING_H
#define SH_MODEL_POOLING_H

#include "model/config.h"

/* Which of a sequence's hidden states count. */
typedef enum {
    SH_POOL_NONE, /* the sequence is not pooled */
    SH_POOL_LAST,
    SH_POOL_MEAN,
    SH_POOL_FIRST,
    SH_POOL_MAX,
    SH_POOL_WEIGHTED, /* the mean, token i of n weighted with i */
    SH_POOL_SQRT,     /* the sum, over the root of the number of tokens */
    SH_POOLS
} sh_pool_kind;

/* "last", "mean", ...; users write these. */
const char *sh_pool_kind_name(sh_pool_kind pool);
sh_pool_kind sh_pool_kind_find(const char *name); /* SH_POOL_NONE: there is no such name */

typedef struct sh_pooling sh_pooling;

/* Reads what the folder says. `pool` replaces the folder's pooling, or gives one to a model without
 * these files; SH_POOL_NONE: what the files say, or for an encoder without them the mean. A model
 * that only generates text has SH_POOL_NONE in the end. */
SH_MUST_CHECK sh_status sh_pooling_open(const char *dir, const sh_config *config, sh_pool_kind pool,
                                        sh_pooling **out, sh_err *err);
void sh_pooling_close(sh_pooling *pooling);

sh_pool_kind sh_pooling_kind(const sh_pooling *pooling);
int sh_pooling_width(const sh_pooling *pooling);   /* of the result */
bool sh_pooling_scores(const sh_pooling *pooling); /* the result is the score of a pair of texts */
bool sh_pooling_normalizes(const sh_pooling *pooling);

/* From pooled hidden states [hidden] to the result [width]. */
void sh_pooling_finish(const sh_pooling *pooling, const float *pooled, float *out);

#endif
