/* A sequence's view of its KV blocks. Four counters move from left to right over the same list of
 * blocks: blocks_ready <= blocks_keyed <= block_count, and blocks_sent <= block_count. A block is
 * keyed (given its identity) as soon as its tokens are known and becomes ready once their KV has
 * been computed; only ready blocks are handed to other sequences. */
#include "engine/sequence.h"

#include "base/alloc.h"
#include "kernels/device.h"

#include <stdlib.h>
#include <string.h>

static int blocks_for(int tokens)
{
    return (tokens + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
}

static void *copy(const void *data, size_t count, size_t size)
{
    void *to = sh_alloc_array(count, size);
    if (count > 0) memcpy(to, data, count * size);
    return to;
}

sh_sequence *sh_sequence_create(const sh_sequence_spec *q, int context)
{
    SH_ASSERT(q->prompt_count > (size_t)q->answered);
    SH_ASSERT(q->prompt_count + !q->pooled <= (size_t)context);
    SH_ASSERT(q->max_tokens > q->answered);
    sh_sequence *seq = sh_alloc(sizeof(*seq));
    seq->spec = *q;
    seq->slot = seq->cached_tokens = seq->copied = -1;
    seq->count = (int)q->prompt_count;
    seq->prompt_count = seq->count - q->answered;
    seq->scored = q->score_from == 0 ? seq->prompt_count : q->score_from;
    int answer_max = context - seq->prompt_count;
    if (q->max_tokens < answer_max) answer_max = q->max_tokens;
    if (q->pooled) answer_max = 0;
    seq->count_max = seq->prompt_count + answer_max;
    seq->tokens = copy(q->prompt, q->prompt_count, sizeof(*seq->tokens));
    seq->blocks = sh_alloc_array((size_t)blocks_for(seq->count), sizeof(*seq->blocks));
    sh_sampling *s = &seq->spec.sampling;
    s->logit_bias_ids = copy(s->logit_bias_ids, (size_t)s->logit_bias_count, sizeof(int32_t));
    s->logit_bias = copy(s->logit_bias, (size_t)s->logit_bias_count, sizeof(float));
    seq->spec.stop_ids = copy(q->stop_ids, (size_t)q->stop_id_count, sizeof(int32_t));
    seq->spec.grammar.ptr = copy(q->grammar.ptr, q->grammar.len, 1);
    seq->reasoning = q->reasoning_begun;
    for (int i = seq->prompt_count; i < seq->count; i++) sh_sequence_reason(seq, seq->tokens[i]);
    seq->spec.prompt = NULL; /* the copy at the start of `tokens` replaces it */
    return seq;
}

void sh_sequence_free(sh_sequence *seq)
{
    if (seq == NULL) return;
    free((void *)seq->spec.sampling.logit_bias_ids);
    free((void *)seq->spec.sampling.logit_bias);
    free((void *)seq->spec.stop_ids);
    free((void *)seq->spec.grammar.ptr);
    sh_constraint_release(seq->constraint);
    free(seq->mask_error);
    free(seq->tokens);
    free(seq->blocks);
    free(seq);
}

/* An answer may be as long as the context, and thousands of requests may wait: only those that have
 * run get memory for it. */
static void answer_reserve(sh_sequence *seq)
{
    if (seq->reserved) return;
    size_t most = (size_t)seq->count_max + SH_DRAFTS_MAX;
    seq->tokens = sh_realloc_array(seq->tokens, most, sizeof(*seq->tokens));
    seq->blocks = sh_realloc_array(seq->blocks, (size_t)blocks_for((int)most),
                                   sizeof(*seq->blocks));
    seq->reserved = true;
}

/* What the parts of the block after `before` are known by: only the client that computed them finds
 * them. They end anywhere, so their number would tell a client token by token whether it has
 * guessed another's prompt; of whole blocks it must guess all 32 at once. */
static sh_key128 parts_key(const sh_sequence *seq, sh_key128 before)
{
    uint64_t own = sh_mix64(seq->spec.client);
    return (sh_key128){before.lo ^ own, before.hi ^ own};
}

/* Gives the blocks that the known tokens fill their identity. A promise may fail because another
 * sequence computed the same tokens first; this copy then stays private. */
static void blocks_key_full(sh_sequence *seq, sh_blocks *blocks)
{
    int full = seq->unshared ? 0 : seq->count / SH_KV_BLOCK;
    if (full > seq->block_count) full = seq->block_count;
    for (; seq->blocks_keyed < full; seq->blocks_keyed++) {
        const int32_t *tokens = seq->tokens + seq->blocks_keyed * SH_KV_BLOCK;
        sh_key128 before = seq->key;
        seq->key = sh_blocks_key(blocks, before, tokens);
        sh_blocks_promise(blocks, seq->blocks[seq->blocks_keyed], parts_key(seq, before), tokens,
                          seq->key);
    }
}

/* The row of logits before a token tells its probability. */
int sh_sequence_scores(const sh_sequence *seq, int count)
{
    int first = seq->scored - 1 > seq->computed ? seq->scored - 1 : seq->computed;
    int end = seq->computed + count;
    if (end > seq->prompt_count - 1) end = seq->prompt_count - 1;
    return end > first ? end - first : 0;
}

/* The first token that must be run for its logits: the last known one, for the draw of the next, or
 * one before it, if tokens of the prompt are to be scored. */
static int first_row(const sh_sequence *seq)
{
    return seq->scored < seq->prompt_count ? seq->scored - 1 : seq->count - 1;
}

/* Of the tokens after the reused blocks, those that some block begins with. */
static void part_match(sh_sequence *seq, sh_blocks *blocks, const sh_prefix *prefix)
{
    int from = prefix->count * SH_KV_BLOCK, most = first_row(seq) - from;
    if (most > SH_KV_BLOCK) most = SH_KV_BLOCK;
    sh_block_part part = {.block = -1};
    if (!seq->unshared)
        part = sh_blocks_match_part(blocks, parts_key(seq, prefix->key), seq->tokens + from, most);
    seq->copied = part.block;
    seq->computed = from + part.count;
}

bool sh_sequence_start(sh_sequence *seq, sh_blocks *blocks, int reserve, bool *wait)
{
    sh_prefix prefix = sh_blocks_match(blocks, sh_blocks_root(blocks, seq->long_rope), seq->tokens,
                                       seq->unshared ? 0 : first_row(seq) / SH_KV_BLOCK,
                                       seq->blocks);
    int more = blocks_for(sh_sequence_room(seq)) - prefix.count;
    *wait = prefix.promised;
    if (prefix.promised || more + reserve > sh_blocks_available(blocks)) {
        sh_blocks_release(blocks, seq->blocks, prefix.count);
        return false;
    }
    answer_reserve(seq);
    seq->block_count = seq->blocks_keyed = seq->blocks_ready = prefix.count;
    seq->key = prefix.key;
    part_match(seq, blocks, &prefix);
    bool grown = sh_sequence_grow(seq, blocks, sh_sequence_room(seq));
    SH_ASSERT(grown);
    blocks_key_full(seq, blocks);
    if (seq->cached_tokens < 0)
        seq->cached_tokens = seq->computed < seq->prompt_count ? seq->computed : seq->prompt_count;
    return true;
}

bool sh_sequence_grow(sh_sequence *seq, sh_blocks *blocks, int count)
{
    for (int need = blocks_for(count); seq->block_count < need; seq->block_count++) {
        int32_t block = sh_blocks_take(blocks);
        if (block < 0) return false;
        seq->blocks[seq->block_count] = block;
    }
    return true;
}

void sh_sequence_computed(sh_sequence *seq, sh_blocks *blocks, int computed)
{
    seq->computed = seq->kept = computed;
    blocks_key_full(seq, blocks);
    int full = computed / SH_KV_BLOCK;
    for (; seq->blocks_ready < full && seq->blocks_ready < seq->blocks_keyed; seq->blocks_ready++)
        sh_blocks_ready(blocks, seq->blocks[seq->blocks_ready]);
}

/* Leaves the tokens after the full blocks to sequences that come later. */
static void part_keep(sh_sequence *seq, sh_blocks *blocks)
{
    int full = seq->kept / SH_KV_BLOCK, count = seq->kept % SH_KV_BLOCK;
    if (seq->unshared || count < SH_PART_MIN || full >= seq->block_count) return;
    sh_key128 before = seq->key;
    if (full < seq->blocks_keyed) { /* tokens of the next one were known already */
        before = sh_blocks_root(blocks, seq->long_rope);
        for (int i = 0; i < full; i++)
            before = sh_blocks_key(blocks, before, seq->tokens + i * SH_KV_BLOCK);
    }
    sh_blocks_keep_part(blocks, seq->blocks[full], parts_key(seq, before),
                        seq->tokens + full * SH_KV_BLOCK, count);
}

void sh_sequence_stop(sh_sequence *seq, sh_blocks *blocks)
{
    part_keep(seq, blocks);
    sh_blocks_release(blocks, seq->blocks, seq->block_count);
    seq->block_count = seq->blocks_sent = seq->blocks_keyed = seq->blocks_ready = 0;
    seq->computed = seq->kept = seq->draft_count = seq->catch_up = 0;
    seq->slot = -1;
}

void sh_sequence_reason(sh_sequence *seq, int32_t token)
{
    if (seq->spec.reasoning_max == 0) return;
    if (token == seq->spec.reasoning_begin)
        seq->reasoning = true;
    else if (token == seq->spec.reasoning_end)
        seq->reasoning = false;
    else if (seq->reasoning)
        seq->reasoned++;
}

void sh_sequence_end_reasoning(sh_sequence *seq)
{
    seq->tokens = sh_realloc_array(seq->tokens, (size_t)seq->count + 1, sizeof(*seq->tokens));
    seq->blocks = sh_realloc_array(seq->blocks, (size_t)blocks_for(seq->count + 1),
                                   sizeof(*seq->blocks));
    seq->tokens[seq->count++] = seq->spec.reasoning_end;
    seq->reasoning = false;
}

bool sh_sequence_stops(const sh_sequence *seq, int32_t token)
{
    for (int i = 0; i < seq->spec.stop_id_count; i++)
        if (seq->spec.stop_ids[i] == token) return true;
    return false;
}
