/* pooled.h - makes one vector of a sequence's hidden states, as they are computed.
 *
 * A sequence may be computed in several steps, so what is known of its vector is kept by slot.
 * Tokens are added one by one, in double: the result does not depend on where the prompt was cut.
 *
 * Threads: one owner. */
#ifndef SH_ENGINE_POOLED_H
#define SH_ENGINE_POOLED_H

#include "kernels/device.h"
#include "model/pooling.h"

typedef struct sh_pooled sh_pooled;

sh_pooled *sh_pooled_create(int slots, int width);
void sh_pooled_free(sh_pooled *pools);

/* Whether all tokens of a sequence must be computed for it, or only the last. */
bool sh_pool_kind_needs_all(sh_pool_kind pool);

/* Adds rows [first, first + count) of x, which are the tokens of a sequence from position `pos`
 * on; position 0 starts anew. */
void sh_pooled_add(sh_pooled *pools, sh_device *dev, sh_tensor x, sh_pool_kind pool, int slot,
                   int first, int count, int pos);

/* The vector [width] of a sequence whose `count` tokens have all been added. */
void sh_pooled_take(const sh_pooled *pools, sh_pool_kind pool, int slot, int count, float *out);

#endif
