/* kv.h - where the parts of a KV block are, in bytes; vector.h describes the layout of a part.
 *
 * A block is its heads one after the other, each with keys, values, scales of keys, scales of
 * values; every part starts at a multiple of 64. With v_in_k there are only keys and their scales,
 * which are the scales of the values as well.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_KV_H
#define SH_KERNELS_CPU_KV_H

#include "kernels/device.h"

typedef struct {
    int v_pad; /* v_dim rounded up to a multiple of 32 */
    size_t values;
    size_t k_scales;
    size_t v_scales;
    size_t head_bytes;
    size_t block_bytes;
} sh_kv_layout;

sh_kv_layout sh_kv_layout_of(const sh_kv_shape *shape);

/* The part of block `block` that belongs to a head. */
static inline uint8_t *sh_kv_head_at(const sh_kv *kv, const sh_kv_layout *layout, int32_t block,
                                     int head)
{
    return (uint8_t *)kv->data + (size_t)block * layout->block_bytes + head * layout->head_bytes;
}

/* The span that `piece` belongs to; span s has the pieces [begin[s], begin[s + 1]). */
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
