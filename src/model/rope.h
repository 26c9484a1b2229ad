/* rope.h - from the RoPE settings of a config to the frequencies of the rope op.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_ROPE_H
#define SH_MODEL_ROPE_H

#include "model/config.h"

/* Yarn's correction of the attention scale for a context extended by `factor`. */
double sh_rope_mscale(double factor, double mscale);

/* Fills inv_freq [config->dim / 2], which *out borrows. `stretched` selects longrope's long
 * factors, for a sequence whose planned length exceeds config->original_context. */
void sh_rope_init(const sh_rope_config *config, bool stretched, float *inv_freq, sh_rope *out);

#endif
