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

/* Adds the draws that score tokens of the prompt, which report what the model says, without
 * penalties and the like. */
static void add_scores(sh_step_plan *step, const sh_sequence *seq, int scores)
{
    for (int i = 0; i < scores; i++) {
        int at = seq->scored + i;
        step->draws[step->draw_count++] = (sh_step_draw){
            .draw = sh_draw_given(&seq->spec, at, seq->tokens[at])};
    }
}

/* Adds `count` tokens of a sequence, and its draws if they are the last. The sequence must have its
 * blocks, and the plan the masks of its draws. */
static void add_tokens(sh_sched *s, sh_step_plan *step, sh_sequence *seq, int count)
{
    bool last = seq->computed + count >= seq->count, pooled = seq->spec.pooled;
    int draws = last && !pooled ? 1 + seq->draft_count : 0;
    int scores = sh_sequence_scores(seq, count);
    sh_step_seq *q = sh_step_add_tokens(step, seq, count, scores + draws);
    q->pool = pooled ? s->opts.pool : SH_POOL_NONE;
    q->pool_ends = last && pooled;
    q->second = seq->spec.second;
    add_scores(step, seq, scores);
    for (int i = 0; i < draws; i++)
        sh_step_add_draw(step, seq, i, seq->constraint == NULL ? 0 : seq->masks[i], &s->marks);
    if (s->opts.fixed_state) seq->kept = 0; /* the state moves on, until it is known how far */
    seq->in_flight = true;
}

static bool decoding(const sh_sequence *seq)
{
    return !seq->spec.pooled && seq->count - seq->computed == 1 + seq->catch_up;
}

/* Adds one token of a decoding sequence, what it has to catch up on, and its drafts. When blocks
 * run out, gives up the drafts, then pauses younger sequences, or the sequence itself. */
static void plan_decode(sh_sched *s, sh_step_plan *step, sh_sequence *seq)
{
    if (!sh_step_fits_adjusts(step, seq, seq->draft_count)) seq->draft_count = 0;
    if (!sh_step_fits_adjusts(step, seq, 0)) return;
    while (!sh_sequence_grow(seq, s->blocks, seq->count + seq->draft_count)) {
        if (seq->draft_count > 0) {
            seq->draft_count = 0;
        } else if (!pause_younger(s, seq)) {
            if (s->stats.running == 1)
                sh_sched_done(s, seq, SH_FINISH_LENGTH); /* it holds the whole KV cache */
            else
                sh_sched_pause(s, seq);
            return;
        }
    }
    sh_err err;
    if (sh_sched_mask(s, step, seq, &err) == SH_OK)
        add_tokens(s, step, seq, seq->catch_up + 1 + seq->draft_count);
    else
        sh_sched_fail(s, seq, &err);
}

/* Whether a step with so many sequences and tokens takes no more. With several plans in flight,
 * none takes more than its share of `all` sequences. */
static bool is_full(const sh_sched *s, int seqs, int tokens, int all)
{
    int part = (all + s->opts.stages_in_flight - 1) / s->opts.stages_in_flight;
    bool share = s->opts.stages_in_flight > 1 && seqs > 0 && seqs >= part;
    return share || seqs == s->opts.limits.slots || tokens >= s->opts.limits.tokens;
}

static bool step_full(const sh_sched *s, const sh_step_plan *step, int all)
{
    return is_full(s, step->seq_count, step->token_count, all);
}

/* The sequences that decode in this step, and how many tokens they run without drafts. */
static int choose_decodes(sh_sched *s, int *tokens)
{
    int count = 0;
    *tokens = 0;
    for (sh_sequence *seq = s->running.first;
         seq != NULL && !is_full(s, count, *tokens, s->stats.running); seq = seq->next) {
        if (seq->in_flight || !decoding(seq)) continue;
        if (*tokens + seq->catch_up >= s->opts.limits.tokens) continue;
        s->chosen[count++] = seq;
        *tokens += seq->catch_up + 1;
    }
    return count;
}

/* Drafts are made for all of them together, since a draft model is faster at that. */
static void plan_decodes(sh_sched *s, sh_step_plan *step)
{
    int tokens, count = choose_decodes(s, &tokens);
    if (count == 0) return;
    sh_sched_draft(s, s->chosen, count, tokens);
    for (int i = 0; i < count; i++)
        if (s->chosen[i]->slot >= 0) plan_decode(s, step, s->chosen[i]); /* else it was paused */
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
        if (seq->in_flight || decoding(seq) || !sh_step_fits_adjusts(step, seq, 0)) continue;
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
        if (!sh_step_fits_adjusts(step, seq, 0) || prompt_part(s, step, seq, budget) == 0) return;
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
    sh_sched_join_masks(s);
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
    step->outputs = s->opts.limits.outputs && s->opts.drafter != NULL;
    sh_sched_draft_planned(s, step);
    sh_sched_make_masks(s, step);
    return true;
}
