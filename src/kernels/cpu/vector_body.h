/* vector_body.h - the table of vector.h for the level whose vec_*.h was included before. The
 * including file defines its name as VECTOR_TABLE.
 *
 * Threads: pure functions on the caller's memory. */
#include "kernels/cpu/act_body.h"
#include "kernels/cpu/attend_body.h"
#include "kernels/cpu/delta_body.h"
#include "kernels/cpu/portable_body.h"
#include "kernels/cpu/row_body.h"

const sh_vector_kernels VECTOR_TABLE = {
    .add = add,
    .scale = scale,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .dots = dots,
    .softmax = softmax,
    .sigmoid = sigmoid,
    .conv = conv,
    .delta_conv = delta_conv,
    .delta_step = delta_step,
    .act = act,
    .rope = rope,
    .k_store = {k_store_f32, k_store_f16, k_store_int8},
    .v_store = {v_store_f32, v_store_f16, v_store_int8},
    .q_pack = q_pack,
    .scores = {scores_f32, scores_f16, scores_int8},
    .soften = soften,
    .mix = {mix_f32, mix_f16, mix_int8},
    .v_of_k = {v_of_k_f32, v_of_k_f16, v_of_k_int8},
    .fold = fold,
    .finish = finish,
    .rows = {row_tops, row_exps, row_noise_lacks},
};
