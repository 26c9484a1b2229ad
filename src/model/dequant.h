/* dequant.h - stored numbers back to f32, for small tensors: routers, norms, a latent projection.
 *
 * Large matrices never go through here: kernels compute on them as they are stored.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_DEQUANT_H
#define SH_MODEL_DEQUANT_H

#include "kernels/device.h"
#include "model/safetensors.h"

/* `count` numbers of type F32, F16 or BF16, `step` elements apart. */
void sh_floats_to_f32(sh_tensor_type type, const void *data, int64_t step, int64_t count,
                      float *out);

/* One row of `cols` numbers. scales and biases are those of the row, NULL where the format has
 * none. */
void sh_dequant_row(const sh_quant *quant, const uint8_t *w, const uint8_t *scales,
                    const uint8_t *biases, int64_t cols, float *out);

#endif
