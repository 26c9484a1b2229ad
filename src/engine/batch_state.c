/* Each rank keeps its own copy of the batch state and must reach the same state from the same
 * plans; the fingerprint is how they find out when they did not. It has to be cheap, since it is
 * compared in every step: a slot is hashed as it changes (the blocks by a running mix, then length
 * and slot number), and the fingerprint is the sum over the slots, so a change touches one term
 * only. Of masks it says which numbers are in use: their bits come later, and not to every rank. */
#include "engine/step_plan.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    int length;
    int block_count;
    uint64_t blocks_hash;
    uint64_t term; /* this slot's part of the fingerprint; 0 when empty */
    int32_t *blocks;
};

struct mask {
    uint64_t term; /* 0: there is none */
    uint64_t *words;
};

struct sh_batch_state {
    sh_step_limits limits;
    uint64_t fingerprint;
    int32_t *blocks; /* [slots, seq_blocks] */
    struct slot *slots;
    uint64_t *mask_words; /* [masks, words] */
    struct mask *masks;
};

sh_batch_state *sh_batch_state_create(const sh_step_limits *limits)
{
    sh_batch_state *b = sh_alloc(sizeof(*b));
    b->limits = *limits;
    b->slots = sh_alloc_array((size_t)limits->slots, sizeof(*b->slots));
    b->blocks = sh_alloc_array((size_t)limits->slots * (size_t)limits->seq_blocks,
                               sizeof(*b->blocks));
    for (int i = 0; i < limits->slots; i++)
        b->slots[i].blocks = b->blocks + (size_t)i * (size_t)limits->seq_blocks;
    size_t words = sh_step_mask_words(limits);
    b->masks = sh_alloc_array((size_t)limits->masks, sizeof(*b->masks));
    b->mask_words = sh_alloc_array((size_t)limits->masks * words, sizeof(*b->mask_words));
    for (int i = 0; i < limits->masks; i++) b->masks[i].words = b->mask_words + (size_t)i * words;
    return b;
}

void sh_batch_state_free(sh_batch_state *b)
{
    if (b == NULL) return;
    free(b->slots);
    free(b->blocks);
    free(b->masks);
    free(b->mask_words);
    free(b);
}

/* Replaces the slot's term in the sum; unsigned arithmetic wraps, so the order of changes does not
 * matter. */
static void slot_rehash(sh_batch_state *b, int idx)
{
    struct slot *s = &b->slots[idx];
    uint64_t term = 0;
    if (s->block_count > 0)
        term = sh_mix64(sh_mix64((uint64_t)idx << 32 | (uint32_t)s->length) ^ s->blocks_hash);
    b->fingerprint += term - s->term;
    s->term = term;
}

static void slot_empty(sh_batch_state *b, int idx)
{
    struct slot *s = &b->slots[idx];
    s->length = s->block_count = 0;
    s->blocks_hash = 0;
    slot_rehash(b, idx);
}

/* The plan was checked against the limits when it was unpacked; here it is checked against the
 * slot. A plan that passes can neither leave a gap in the KV nor write outside the slot's blocks.
 */
static sh_status seq_apply(sh_batch_state *b, const sh_step_seq *q, const int32_t *blocks,
                           sh_err *err)
{
    struct slot *s = &b->slots[q->slot];
    if (q->fresh) slot_empty(b, q->slot);
    if (q->block_count > b->limits.seq_blocks - s->block_count)
        return sh_err_set(err, SH_ERR_GROUP, "slot %d: no capacity for %d more blocks", q->slot,
                          q->block_count);
    for (int i = 0; i < q->block_count; i++) {
        s->blocks[s->block_count++] = blocks[i];
        s->blocks_hash = sh_mix64(s->blocks_hash ^ (uint32_t)blocks[i]);
    }
    bool gap = !q->fresh && q->pos > s->length; /* a fresh slot may start after a cached prefix */
    if (q->copies && (!q->fresh || q->pos % SH_KV_BLOCK == 0))
        return sh_err_set(err, SH_ERR_GROUP, "slot %d: no block to copy block %d to", q->slot,
                          q->copied);
    if (gap || q->pos + q->token_count > s->block_count * SH_KV_BLOCK)
        return sh_err_set(err, SH_ERR_GROUP,
                          "slot %d: tokens %d to %d, but it has %d tokens and %d blocks", q->slot,
                          q->pos, q->pos + q->token_count, s->length, s->block_count);
    s->length = q->pos + q->token_count;
    slot_rehash(b, q->slot);
    return SH_OK;
}

static void mask_announce(sh_batch_state *b, int number)
{
    struct mask *m = &b->masks[number - 1];
    uint64_t term = sh_mix64((uint64_t)number) | 1;
    b->fingerprint += term - m->term;
    m->term = term;
}

void sh_batch_state_take_masks(sh_batch_state *b, const sh_step_plan *step)
{
    size_t words = sh_step_mask_words(&b->limits);
    for (int i = 0; i < step->mask_count; i++)
        memcpy(b->masks[step->mask_numbers[i] - 1].words, step->mask_words + (size_t)i * words,
               words * sizeof(*step->mask_words));
}

static sh_status masks_apply(sh_batch_state *b, const sh_step_plan *step, sh_err *err)
{
    for (int i = 0; i < step->mask_count; i++) mask_announce(b, step->mask_numbers[i]);
    for (int i = 0; i < step->draw_count; i++) {
        int number = step->draws[i].mask;
        if (number != 0 && b->masks[number - 1].term == 0)
            return sh_err_set(err, SH_ERR_GROUP, "draw %d: there is no mask %d", i, number);
    }
    return SH_OK;
}

sh_status sh_batch_state_apply(sh_batch_state *b, const sh_step_plan *step, sh_span *spans,
                               sh_err *err)
{
    /* Leaves first: a slot may be given up and taken over by another sequence in one plan. */
    for (int i = 0; i < step->leave_count; i++) slot_empty(b, step->leaves[i]);
    int token = 0, block = 0;
    for (int i = 0; i < step->seq_count; i++) {
        const sh_step_seq *q = &step->seqs[i];
        sh_status status = seq_apply(b, q, step->blocks + block, err);
        if (status != SH_OK) return status;
        spans[i] = (sh_span){.first = token,
                             .count = q->token_count,
                             .pos = q->pos,
                             .second = q->second,
                             .long_rope = q->long_rope,
                             .blocks = b->slots[q->slot].blocks};
        token += q->token_count;
        block += q->block_count;
    }
    return masks_apply(b, step, err);
}

const uint64_t *sh_batch_state_mask(const sh_batch_state *b, const sh_step_draw *draw)
{
    return draw->mask == 0 ? NULL : b->masks[draw->mask - 1].words;
}

uint64_t sh_batch_state_fingerprint(const sh_batch_state *b)
{
    return b->fingerprint;
}
