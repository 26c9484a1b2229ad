/* kv.h - where the parts of a KV block are, in bytes; vector.h says what a part looks like.
 *
 * A block is its heads one after the other, each with keys, values, scales of keys, scales of
 * values; every part begins at a multiple of 64. With v_in_k there is nothing but keys and their
 * scales, and the values' scales are the keys'.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_KV_H
#define SH_KERNELS_CPU_KV_H

#include "kernels/device.h"

typedef struct {
    int v_pad; /* v_dim in whole tiles of 32 */
    size_t values;
    size_t k_scales;
    size_t v_scales;
    size_t head_bytes;
    size_t block_bytes;
} sh_kv_layout;

sh_kv_layout sh_kv_layout_of(const sh_kv_shape *shape);

/* A head's part of block `block`. */
static inline uint8_t *sh_kv_head_at(const sh_kv *kv, const sh_kv_layout *layout, int32_t block,
                                     int head)
{
    return (uint8_t *)kv->data + (size_t)block * layout->block_bytes + head * layout->head_bytes;
}

/* Spans have pieces begin[s] .. begin[s + 1]: the span that `piece` belongs to. */
static inline int sh_span_of(const int32_t *begin, int spans, int32_t piece)
{
    int low = 0, high = spans;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (begin[middle] <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
