/* Fills a step plan in three rounds: one token (and drafts) of every decoding sequence, then prompt
 * tokens of running sequences, then new sequences from the queue.
 *
 * Decoding comes first because a user is watching it. Prompts get what is left of the step, and
 * while streams are running at most what fits into stall_s (chunk_budget).
 *
 * KV blocks are handed out as sequences grow, not reserved for the longest possible answer, so they
 * may run out in the middle of answers. Then the youngest running sequence is paused and its blocks
 * go to older ones. Older ones therefore always make progress and end, which frees blocks: no
 * livelock. For the same reason the queue is not searched for a smaller request when the next one
 * does not fit.
 *
 * In a pipeline several plans are in flight. Each takes only its share of the sequences, or the
 * first would take all and the other stages would be idle. */
#include "engine/scheduler_internal.h"

#include <limits.h>
#include <math.h>

enum { PIECE_MIN = 64 }; /* prompt tokens that are worth a pass over the weights */

/* Pauses the youngest running sequence that is younger than `keep` and not in flight. False when
 * there is none. */
static bool pause_younger(sh_sched *s, const sh_sequence *keep)
{
    sh_sequence *seq = s->running.last;
    while (seq != keep && seq->in_flight) seq = seq->prev;
    if (seq == keep) return false;
    sh_sched_pause(s, seq);
    return true;
}

/* Before min_tokens, stop ids cannot be drawn. */
static int ban_stops(const sh_sequence_spec *q, sh_adjust *out)
{
    int count = 0;
    for (int i = 0; i < q->stop_id_count; i++)
        out[count++] = (sh_adjust){.id = q->stop_ids[i], .bias = -INFINITY, .factor = 1};
    return count;
}

/* Whether the plan has space for all logit changes that the next draws of a sequence may need. If
 * not, the sequence waits for another step: dropping a change would make its output depend on the
 * rest of the batch. */
static bool adjusts_fit(const sh_step_plan *step, const sh_sequence *seq, int drafts)
{
    const sh_sequence_spec *q = &seq->spec;
    int most = sh_adjust_max(&q->sampling, seq->count + drafts, seq->prompt_count);
    if (q->min_tokens > 0) most += q->stop_id_count;
    return (int64_t)most * (1 + drafts) <= step->limits.adjusts - step->adjust_count;
}

/* Adds a draw after the known tokens and `drafts` of the drafts. Where a grammar decides what may
 * end the answer, min_tokens is part of the mask. */
static void add_draw(sh_sched *s, sh_step_plan *step, const sh_sequence *seq, int drafts)
{
    const sh_sequence_spec *q = &seq->spec;
    bool bound = seq->constraint != NULL;
    int known = seq->count + drafts;
    sh_step_draw *d = &step->draws[step->draw_count++];
    sh_adjust *list = step->adjusts + step->adjust_count;
    d->draw = sh_draw_of(q, known);
    d->mask = bound ? seq->masks[drafts] : 0;
    d->adjust_count = sh_adjust_list(&q->sampling, seq->tokens, known, seq->prompt_count, &s->marks,
                                     list);
    if (!bound && known - seq->prompt_count < q->min_tokens)
        d->adjust_count += ban_stops(q, list + d->adjust_count);
    step->adjust_count += d->adjust_count;
}

/* Adds the draws that score tokens of the prompt, from the rows of `count` tokens. They report what
 * the model says, without penalties and the like. */
static int add_scores(sh_step_plan *step, const sh_sequence *seq, int count)
{
    int scores = sh_sequence_scores(seq, count);
    for (int i = 0; i < scores; i++) {
        int at = seq->scored + i;
        step->draws[step->draw_count++] = (sh_step_draw){
            .draw = sh_draw_given(&seq->spec, at, seq->tokens[at])};
    }
    return scores;
}

/* Adds `count` tokens of a sequence to the plan, and the blocks that the ranks do not know yet. The
 * sequence must have its blocks, and the plan the masks of its draws. */
static void add_tokens(sh_sched *s, sh_step_plan *step, sh_sequence *seq, int count)
{
    sh_step_seq *q = &step->seqs[step->seq_count++];
    bool last = seq->computed + count >= seq->count, pooled = seq->spec.pooled;
    int draws = last && !pooled ? 1 + seq->draft_count : 0;
    int scores = add_scores(step, seq, count);
    *q = (sh_step_seq){.slot = seq->slot,
                       .fresh = seq->blocks_sent == 0,
                       .pos = seq->computed,
                       .token_count = count,
                       .draw_count = scores + draws,
                       .block_count = seq->block_count - seq->blocks_sent,
                       .long_rope = seq->long_rope,
                       .pool = pooled ? s->opts.pool : SH_POOL_NONE,
                       .pool_ends = last && pooled,
                       .second = seq->spec.second};
    for (int i = 0; i < count; i++)
        step->tokens[step->token_count++] = seq->tokens[seq->computed + i];
    while (seq->blocks_sent < seq->block_count)
        step->blocks[step->block_count++] = seq->blocks[seq->blocks_sent++];
    for (int i = 0; i < draws; i++) add_draw(s, step, seq, i);
    seq->in_flight = true;
}

static bool decoding(const sh_sequence *seq)
{
    return !seq->spec.pooled && seq->count - seq->computed == 1 + seq->catch_up;
}

/* How many tokens to draft: some while the step is small, and none past the point at which the
 * sequence changes its RoPE factors, since all tokens of a step use the same factors. */
static int drafts_max(const sh_sched *s, const sh_step_plan *step, const sh_sequence *seq)
{
    enum { DRAFT_TOKENS = 16 }; /* a larger step is compute-bound, and wrong drafts cost time */
    int most = s->opts.drafts;
    if (step->token_count + seq->catch_up + 1 + most > DRAFT_TOKENS) return 0;
    if (!seq->long_rope && sh_sched_outgrown(s, seq->count + most))
        most = s->opts.rope_original - seq->count;
    return most;
}

/* Adds one token of a decoding sequence, what it has to catch up on, and drafts. When blocks run
 * out, gives up the drafts, then pauses younger sequences. False when the sequence itself was
 * paused or ended. */
static bool plan_decode(sh_sched *s, sh_step_plan *step, sh_sequence *seq)
{
    int drafts = drafts_max(s, step, seq);
    seq->draft_count = 0;
    if (drafts > 0) sh_sequence_draft(seq, drafts);
    if (!adjusts_fit(step, seq, seq->draft_count)) seq->draft_count = 0;
    while (!sh_sequence_grow(seq, s->blocks, seq->count + seq->draft_count)) {
        if (seq->draft_count > 0) {
            seq->draft_count = 0;
        } else if (!pause_younger(s, seq)) {
            if (s->stats.running == 1)
                sh_sched_done(s, seq, SH_FINISH_LENGTH); /* it holds the whole KV cache */
            else
                sh_sched_pause(s, seq);
            return false;
        }
    }
    sh_err err;
    if (sh_sched_mask(s, step, seq, &err) != SH_OK) {
        sh_sched_fail(s, seq, &err);
        return false;
    }
    add_tokens(s, step, seq, seq->catch_up + 1 + seq->draft_count);
    return true;
}

/* With several plans in flight, none takes more than its share of `all` sequences. */
static bool step_full(const sh_sched *s, const sh_step_plan *step, int all)
{
    int part = (all + s->opts.stages_in_flight - 1) / s->opts.stages_in_flight;
    bool share = s->opts.stages_in_flight > 1 && step->seq_count > 0 && step->seq_count >= part;
    return share || step->seq_count == step->limits.slots ||
           step->draw_count + 1 + SH_DRAFTS_MAX > step->limits.draws ||
           step->token_count >= step->limits.tokens;
}

static void plan_decodes(sh_sched *s, sh_step_plan *step)
{
    for (sh_sequence *seq = s->running.first, *next;
         seq != NULL && !step_full(s, step, s->stats.running); seq = next) {
        bool fits = step->token_count + seq->catch_up < step->limits.tokens &&
                    adjusts_fit(step, seq, 0);
        if (seq->in_flight || !decoding(seq) || !fits) {
            next = seq->next;
            continue;
        }
        sh_sequence *before = seq->prev; /* stays valid: only younger ones are paused */
        bool stays = plan_decode(s, step, seq);
        next = stays ? seq->next : before == NULL ? s->running.first : before->next;
    }
}

/* Sequences that run or could run. Waiting ones count, or a pipeline whose stages are all busy
 * would never admit one. */
static int runnable_max(const sh_sched *s)
{
    int all = s->stats.running + s->stats.waiting;
    return all < s->opts.limits.slots ? all : s->opts.limits.slots;
}

/* Prompt tokens of a list that still have to be computed. */
static int64_t list_prompts(const sh_sched_list *list)
{
    int64_t tokens = 0;
    for (const sh_sequence *seq = list->first; seq != NULL; seq = seq->next)
        if (!seq->in_flight && !decoding(seq)) tokens += seq->count - seq->computed;
    return tokens;
}

/* The number of tokens after which a step takes no further prompt. Prompts enter a pipeline in
 * pieces: the later stages are idle until the first piece reaches them, and the earlier ones while
 * the last piece passes through. */
static int prompt_piece(const sh_sched *s)
{
    if (s->opts.stages_in_flight == 1) return s->opts.limits.tokens;
    int64_t tokens = list_prompts(&s->running) + list_prompts(&s->waiting);
    int64_t piece = tokens / (2 * s->opts.stages_in_flight);
    return piece < PIECE_MIN ? PIECE_MIN : piece < INT_MAX ? (int)piece : INT_MAX;
}

struct prompt_budget {
    int tokens; /* prompt tokens that the step may still take */
    int piece;  /* see prompt_piece() */
};

static bool prompts_fit(const sh_sched *s, const sh_step_plan *step,
                        const struct prompt_budget *budget)
{
    return budget->tokens > 0 && step->token_count < budget->piece &&
           !step_full(s, step, runnable_max(s));
}

/* How many tokens of a prompt the step takes: those whose rows are needed only as far as the plan
 * has draws left. 0: it runs in one step, and this one has no space for all of it. */
static int prompt_part(const sh_sched *s, const sh_step_plan *step, const sh_sequence *seq,
                       const struct prompt_budget *budget)
{
    int count = seq->count - seq->computed;
    if (count > budget->tokens) count = s->opts.whole ? 0 : budget->tokens;
    if (seq->spec.pooled) return count;
    int excess = sh_sequence_scores(seq, count) + 1 - (step->limits.draws - step->draw_count);
    return excess > 0 ? count - excess : count;
}

/* Puts the mask of the draw at the end of a prompt into the plan, if the step gets there. */
static sh_status mask_prompt(sh_sched *s, sh_step_plan *step, sh_sequence *seq,
                             const struct prompt_budget *budget, sh_err *err)
{
    seq->draft_count = 0;
    if (prompt_part(s, step, seq, budget) < seq->count - seq->computed) return SH_OK;
    return sh_sched_mask(s, step, seq, err);
}

/* Adds the next tokens of a prompt, as many as fit. */
static void add_prompt(sh_sched *s, sh_step_plan *step, sh_sequence *seq,
                       struct prompt_budget *budget)
{
    int count = prompt_part(s, step, seq, budget);
    add_tokens(s, step, seq, count);
    budget->tokens -= count;
}

static void plan_prompts(sh_sched *s, sh_step_plan *step, struct prompt_budget *budget)
{
    for (sh_sequence *seq = s->running.first, *next; seq != NULL && prompts_fit(s, step, budget);
         seq = next) {
        sh_err err;
        next = seq->next;
        if (seq->in_flight || decoding(seq) || !adjusts_fit(step, seq, 0)) continue;
        if (prompt_part(s, step, seq, budget) == 0) continue;
        if (mask_prompt(s, step, seq, budget, &err) == SH_OK)
            add_prompt(s, step, seq, budget);
        else
            sh_sched_fail(s, seq, &err);
    }
}

/* The next request to admit: of the client with the fewest running requests, then the oldest.
 * Candidates before (*least, order) are skipped, to pass over those that wait for a prefix another
 * sequence is computing. */
static sh_sequence *waiting_next(sh_sched *s, int *least, uint64_t order)
{
    sh_sequence *best = NULL;
    int fewest = 0;
    for (sh_sequence *seq = s->waiting.first; seq != NULL; seq = seq->next) {
        int count = seq->client->running;
        if (sh_sequence_unbound(seq)) continue;
        if (count < *least || (count == *least && seq->order < order)) continue;
        if (best == NULL || count < fewest) best = seq, fewest = count;
    }
    *least = fewest;
    return best;
}

static int slot_free(const sh_sched *s)
{
    for (int i = 0; i < s->opts.limits.slots; i++)
        if (s->slots[i] == NULL) return i;
    return -1;
}

static void plan_waiting(sh_sched *s, sh_step_plan *step, struct prompt_budget *budget)
{
    enum { PASS_OVER_MAX = 64 }; /* each costs a walk through the queue and hashing its prompt */
    int least = 0, passed = 0;
    uint64_t order = 0;
    while (prompts_fit(s, step, budget)) {
        int slot = slot_free(s);
        sh_sequence *seq = slot < 0 ? NULL : waiting_next(s, &least, order);
        bool wait;
        if (seq == NULL) return;
        order = seq->order + 1;
        if (!adjusts_fit(step, seq, 0) || prompt_part(s, step, seq, budget) == 0) return;
        if (!sh_sequence_start(seq, s->blocks, s->stats.running, &wait)) {
            if (wait && ++passed < PASS_OVER_MAX) continue;
            return; /* not enough blocks: a smaller request must not overtake it indefinitely */
        }
        sh_err err;
        if (mask_prompt(s, step, seq, budget, &err) == SH_OK) {
            sh_sched_admit(s, seq, slot);
            add_prompt(s, step, seq, budget);
        } else {
            sh_sequence_stop(seq, s->blocks);
            sh_sched_fail(s, seq, &err);
        }
        least = 0;
        order = 0;
    }
}

/* Whether an answer is being decoded, in this plan or, in a pipeline, in another. */
static bool streams_running(const sh_sched *s)
{
    for (const sh_sequence *seq = s->running.first; seq != NULL; seq = seq->next)
        if (decoding(seq)) return true;
    return false;
}

/* Prompt tokens that a step may take without stalling running streams for longer than stall_s. */
static int chunk_budget(const sh_sched *s, const sh_step_plan *step)
{
    int space = s->opts.limits.tokens - step->token_count;
    if (!streams_running(s) || s->token_s <= 0) return space;
    double fit = s->opts.stall_s / s->token_s;
    int chunk = fit < SH_SCHED_CHUNK_MIN ? SH_SCHED_CHUNK_MIN : fit > space ? space : (int)fit;
    return chunk < space ? chunk : space;
}

bool sh_sched_plan(sh_sched *s, sh_step_plan *step)
{
    sh_step_plan_clear(step);
    sh_mask_table_turn(s->masks);
    sh_sched_expire(s);
    sh_sched_bind_waiting(s);
    plan_decodes(s, step);
    struct prompt_budget budget = {chunk_budget(s, step), prompt_piece(s)};
    plan_prompts(s, step, &budget);
    plan_waiting(s, step, &budget);
    if (step->seq_count == 0) return false;
    for (int i = 0; i < s->leave_count; i++) step->leaves[i] = s->leaves[i];
    step->leave_count = s->leave_count;
    s->leave_count = 0;
    return true;
}
