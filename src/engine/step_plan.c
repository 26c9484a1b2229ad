/* The wire format of a plan. Workers receive it from another process, so unpacking trusts nothing
 * that is later used as a count or an index: every number is checked against the limits that all
 * ranks agreed on, and the parts of the sequences must add up to the totals. A plan that fails is
 * cleared, so that no half of it can be run. */
#include "engine/step_plan.h"

#include "base/alloc.h"
#include "base/pack.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_MAGIC = 0x32505453, MASKS_MAGIC = 0x4b53414d }; /* "STP2", "MASK" */

/* Sequences may share blocks, so a plan can name more blocks than there are. */
static size_t plan_blocks(const sh_step_limits *limits)
{
    return (size_t)limits->slots * (size_t)limits->seq_blocks;
}

sh_step_plan *sh_step_plan_create(const sh_step_limits *limits)
{
    sh_step_plan *s = sh_alloc(sizeof(*s));
    s->limits = *limits;
    s->seqs = sh_alloc_array((size_t)limits->slots, sizeof(*s->seqs));
    s->tokens = sh_alloc_array((size_t)limits->tokens, sizeof(*s->tokens));
    s->draws = sh_alloc_array((size_t)limits->draws, sizeof(*s->draws));
    s->adjusts = sh_alloc_array((size_t)limits->adjusts, sizeof(*s->adjusts));
    s->blocks = sh_alloc_array(plan_blocks(limits), sizeof(*s->blocks));
    s->leaves = sh_alloc_array((size_t)limits->slots, sizeof(*s->leaves));
    s->mask_numbers = sh_alloc_array((size_t)limits->draws, sizeof(*s->mask_numbers));
    s->mask_words = sh_alloc_array((size_t)limits->draws * sh_step_mask_words(limits),
                                   sizeof(*s->mask_words));
    return s;
}

void sh_step_plan_free(sh_step_plan *s)
{
    if (s == NULL) return;
    free(s->seqs);
    free(s->tokens);
    free(s->draws);
    free(s->adjusts);
    free(s->blocks);
    free(s->leaves);
    free(s->mask_numbers);
    free(s->mask_words);
    free(s);
}

void sh_step_plan_clear(sh_step_plan *s)
{
    s->seq_count = s->token_count = s->draw_count = s->adjust_count = s->block_count =
        s->leave_count = s->mask_count = 0;
    s->fingerprint = 0;
    s->outputs = false;
    s->kind = SH_STEP_RUN;
    s->await = NULL;
}

bool sh_step_plan_pooled(const sh_step_plan *s)
{
    for (int i = 0; i < s->seq_count; i++)
        if (s->seqs[i].pool != SH_POOL_NONE) return true;
    return false;
}

int sh_step_plan_vectors(const sh_step_plan *s)
{
    int count = 0;
    for (int i = 0; i < s->seq_count; i++) count += s->seqs[i].pool_ends;
    return count;
}

static void put_int(sh_buf *out, int64_t value)
{
    sh_put_uint(out, (uint64_t)value, 4);
}

static void put_draw(sh_buf *out, const sh_step_draw *d)
{
    sh_put_double(out, d->draw.temperature);
    sh_put_double(out, d->draw.top_p);
    sh_put_double(out, d->draw.min_p);
    sh_put_uint(out, d->draw.seed, 8);
    sh_put_uint(out, (uint64_t)d->draw.position, 8);
    put_int(out, d->draw.top_k);
    put_int(out, d->draw.logprobs);
    sh_put_uint(out, d->draw.given, 1);
    put_int(out, d->draw.token);
    put_int(out, d->adjust_count);
    put_int(out, d->mask);
    sh_put_uint(out, d->whole, 1);
}

static void put_seq(sh_buf *out, const sh_step_seq *q)
{
    put_int(out, q->slot);
    put_int(out, q->pos);
    put_int(out, q->token_count);
    put_int(out, q->draw_count);
    put_int(out, q->block_count);
    put_int(out, q->copies ? q->copied + 1 : 0);
    put_int(out, q->second);
    sh_put_uint(out,
                (uint64_t)q->fresh | (uint64_t)q->long_rope << 1 | (uint64_t)q->pool_ends << 2 |
                    (uint64_t)q->pool << 3,
                1);
}

void sh_step_plan_pack(const sh_step_plan *s, sh_buf *out)
{
    put_int(out, STEP_MAGIC);
    sh_put_uint(out, s->step, 8);
    sh_put_uint(out, s->fingerprint, 8);
    sh_put_uint(out, (uint64_t)s->kind, 1);
    sh_put_uint(out, s->outputs, 1);
    const int counts[] = {s->seq_count,   s->token_count, s->draw_count, s->adjust_count,
                          s->block_count, s->leave_count, s->mask_count};
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++) put_int(out, counts[i]);
    for (int i = 0; i < s->seq_count; i++) put_seq(out, &s->seqs[i]);
    for (int i = 0; i < s->draw_count; i++) put_draw(out, &s->draws[i]);
    for (int i = 0; i < s->adjust_count; i++) {
        put_int(out, s->adjusts[i].id);
        sh_put_floats(out, (float[]){s->adjusts[i].bias, s->adjusts[i].factor, s->adjusts[i].minus},
                      3);
    }
    sh_put_ints(out, s->tokens, (size_t)s->token_count);
    sh_put_ints(out, s->blocks, (size_t)s->block_count);
    sh_put_ints(out, s->leaves, (size_t)s->leave_count);
    sh_put_ints(out, s->mask_numbers, (size_t)s->mask_count);
}

/* A number in 0..max; anything else fails the reader, and with it the whole message. */
static int get_bounded(sh_reader *r, int64_t max)
{
    int value = sh_get_int(r);
    if (value < 0 || value > max) r->failed = true;
    return r->failed ? 0 : value;
}

static void get_ints(sh_reader *r, int32_t *out, int count, int64_t max)
{
    for (int i = 0; i < count; i++) out[i] = get_bounded(r, max);
}

/* temperature, top_p and the like need no check: any value gives some token. logprobs sizes an
 * array. */
static void get_draw(sh_reader *r, const sh_step_plan *s, sh_step_draw *d)
{
    d->draw.temperature = sh_get_double(r);
    d->draw.top_p = sh_get_double(r);
    d->draw.min_p = sh_get_double(r);
    d->draw.seed = sh_get_uint(r, 8);
    d->draw.position = (int64_t)sh_get_uint(r, 8);
    d->draw.top_k = sh_get_int(r);
    d->draw.logprobs = sh_get_int(r);
    d->draw.given = sh_get_uint(r, 1) != 0;
    d->draw.token = get_bounded(r, s->limits.vocab - 1);
    d->adjust_count = get_bounded(r, s->adjust_count);
    d->mask = get_bounded(r, s->limits.masks);
    d->whole = sh_get_uint(r, 1) != 0;
    if (d->draw.logprobs > SH_TOP_LOGPROBS_MAX) r->failed = true;
}

static void get_seq(sh_reader *r, const sh_step_plan *s, sh_step_seq *q)
{
    q->slot = get_bounded(r, s->limits.slots - 1);
    q->pos = get_bounded(r, (int64_t)s->limits.seq_blocks * SH_KV_BLOCK);
    q->token_count = get_bounded(r, s->token_count);
    q->draw_count = get_bounded(r, q->token_count);
    q->block_count = get_bounded(r, s->block_count);
    q->copied = get_bounded(r, s->limits.blocks) - 1;
    q->copies = q->copied >= 0;
    q->second = get_bounded(r, (int64_t)s->limits.seq_blocks * SH_KV_BLOCK);
    unsigned flags = (unsigned)sh_get_uint(r, 1), pool = flags >> 3;
    q->fresh = flags & 1;
    q->long_rope = (flags & 2) != 0;
    q->pool_ends = (flags & 4) != 0;
    /* A sequence is pooled or drawn from, not both. */
    bool fits = pool == SH_POOL_NONE ? !q->pool_ends : pool < SH_POOLS && q->draw_count == 0;
    if (!fits || (pool != SH_POOL_NONE && q->token_count == 0)) r->failed = true;
    q->pool = r->failed ? SH_POOL_NONE : (sh_pool_kind)pool;
}

/* The counts of the sequences must add up to those of the plan; other kinds have no sequences, and
 * their tokens belong to none. */
static bool sums_match(const sh_step_plan *s)
{
    int64_t tokens = 0, draws = 0, blocks = 0, adjusts = 0;
    for (int i = 0; i < s->seq_count; i++) {
        tokens += s->seqs[i].token_count;
        draws += s->seqs[i].draw_count;
        blocks += s->seqs[i].block_count;
    }
    for (int i = 0; i < s->draw_count; i++) adjusts += s->draws[i].adjust_count;
    if (s->kind != SH_STEP_RUN) return tokens + draws + blocks + adjusts + s->mask_count == 0;
    return tokens == s->token_count && draws == s->draw_count && blocks == s->block_count &&
           adjusts == s->adjust_count;
}

static void get_body(sh_reader *r, sh_step_plan *s)
{
    for (int i = 0; i < s->seq_count; i++) get_seq(r, s, &s->seqs[i]);
    for (int i = 0; i < s->draw_count; i++) get_draw(r, s, &s->draws[i]);
    for (int i = 0; i < s->adjust_count; i++) {
        s->adjusts[i].id = get_bounded(r, s->limits.vocab - 1);
        const void *floats = sh_get_array(r, 3, sizeof(float));
        float values[3] = {0};
        if (floats != NULL) memcpy(values, floats, sizeof(values));
        s->adjusts[i] = (sh_adjust){s->adjusts[i].id, values[0], values[1], values[2]};
    }
    get_ints(r, s->tokens, s->token_count, s->limits.vocab - 1);
    get_ints(r, s->blocks, s->block_count, s->limits.blocks - 1);
    get_ints(r, s->leaves, s->leave_count, s->limits.slots - 1);
    get_ints(r, s->mask_numbers, s->mask_count, s->limits.masks);
    for (int i = 0; i < s->mask_count; i++)
        if (s->mask_numbers[i] == 0) r->failed = true;
}

sh_status sh_step_plan_unpack(sh_str bytes, sh_step_plan *s, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    uint64_t magic = sh_get_uint(&r, 4);
    s->step = sh_get_uint(&r, 8);
    s->fingerprint = sh_get_uint(&r, 8);
    unsigned kind = (unsigned)sh_get_uint(&r, 1);
    if (kind > SH_STEP_STOP) r.failed = true;
    s->kind = (sh_step_kind)kind;
    s->outputs = sh_get_uint(&r, 1) != 0;
    if (s->outputs && !s->limits.outputs) r.failed = true;
    s->seq_count = get_bounded(&r, s->limits.slots);
    s->token_count = get_bounded(&r, s->limits.tokens);
    s->draw_count = get_bounded(&r, s->limits.draws);
    s->adjust_count = get_bounded(&r, s->limits.adjusts);
    s->block_count = get_bounded(&r, (int64_t)plan_blocks(&s->limits));
    s->leave_count = get_bounded(&r, s->limits.slots);
    s->mask_count = get_bounded(&r, s->limits.draws);
    if (magic == STEP_MAGIC && !r.failed) get_body(&r, s);
    sh_status status = sh_get_end(&r, "step plan", err);
    if (magic != STEP_MAGIC || (status == SH_OK && !sums_match(s)))
        status = sh_err_set(err, SH_ERR_GROUP, "not a valid step plan");
    if (status != SH_OK) sh_step_plan_clear(s);
    return status;
}

/* ---- masks ---- */

enum { MASKS_HEAD = 4 + 8 };

static size_t mask_words(const sh_step_plan *s)
{
    return (size_t)s->mask_count * sh_step_mask_words(&s->limits);
}

size_t sh_step_masks_bytes(const sh_step_plan *s)
{
    return MASKS_HEAD + mask_words(s) * sizeof(uint64_t);
}

void sh_step_masks_pack(const sh_step_plan *s, sh_buf *out)
{
    sh_put_uint(out, MASKS_MAGIC, 4);
    sh_put_uint(out, s->step, 8);
    for (size_t i = 0; i < mask_words(s); i++) sh_put_uint(out, s->mask_words[i], 8);
}

sh_status sh_step_masks_unpack(sh_str bytes, sh_step_plan *s, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    size_t words = sh_step_mask_words(&s->limits);
    if (sh_get_uint(&r, 4) != MASKS_MAGIC || sh_get_uint(&r, 8) != s->step) r.failed = true;
    for (int m = 0; m < s->mask_count && !r.failed; m++) {
        uint64_t *to = s->mask_words + (size_t)m * words;
        for (size_t i = 0; i < words; i++) to[i] = sh_get_uint(&r, 8);
        /* Bits past the last token would go unseen. */
        if (s->limits.vocab % 64 != 0 && to[words - 1] >> s->limits.vocab % 64 != 0)
            r.failed = true;
    }
    return sh_get_end(&r, "the masks of a step", err);
}
