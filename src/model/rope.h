/* rope.h - from RoPE's settings to the frequencies that the rope op turns by.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_ROPE_H
#define SH_MODEL_ROPE_H

#include "model/config.h"

/* Yarn's growth of attention with the context's factor. */
double sh_rope_mscale(double factor, double mscale);

/* Fills inv_freq [config->dim / 2], which *out borrows. `stretched` picks longrope's long factors,
 * for a sequence whose planned length is over config->original_context. */
void sh_rope_init(const sh_rope_config *config, bool stretched, float *inv_freq, sh_rope *out);

#endif
