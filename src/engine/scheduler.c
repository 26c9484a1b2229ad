#include "engine/scheduler.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK_MIN = SH_KV_BLOCK };

struct list {
    sh_sequence *first, *last;
};

struct sh_sched {
    sh_sched_opts opts;
    sh_blocks *blocks;
    sh_emit_fn emit;
    void *ctx;
    struct list waiting; /* by arrival */
    struct list running; /* by arrival too: the last is the youngest */
    sh_sequence **slots; /* whose slot it is, or NULL */
    int32_t *leaves;     /* slots given up since the last plan */
    int leave_count;
    uint64_t order;
    double token_s; /* what a prompt token costs, lately */
    sh_marks marks;
    sh_sched_stats stats;
};

sh_sched *sh_sched_create(const sh_sched_opts *opts, sh_blocks *blocks, sh_emit_fn emit, void *ctx)
{
    sh_sched *s = sh_alloc(sizeof(*s));
    s->opts = *opts;
    s->blocks = blocks;
    s->emit = emit;
    s->ctx = ctx;
    s->slots = sh_alloc_array((size_t)opts->room.slots, sizeof(sh_sequence *));
    s->leaves = sh_alloc_array((size_t)opts->room.slots, sizeof(*s->leaves));
    sh_marks_init(&s->marks, opts->vocab);
    return s;
}

static void list_free(struct list *list)
{
    for (sh_sequence *seq = list->first; seq != NULL;) {
        sh_sequence *next = seq->next;
        sh_sequence_free(seq);
        seq = next;
    }
}

void sh_sched_free(sh_sched *s)
{
    if (s == NULL) return;
    list_free(&s->waiting);
    list_free(&s->running);
    free(s->slots);
    free(s->leaves);
    sh_marks_reset(&s->marks);
    free(s);
}

/* Keeps a list sorted by arrival; nearly always that is the end. */
static void list_add(struct list *list, sh_sequence *seq)
{
    sh_sequence *before = list->last;
    while (before != NULL && before->order > seq->order) before = before->prev;
    seq->prev = before;
    seq->next = before == NULL ? list->first : before->next;
    *(before == NULL ? &list->first : &before->next) = seq;
    *(seq->next == NULL ? &list->last : &seq->next->prev) = seq;
}

static void list_remove(struct list *list, sh_sequence *seq)
{
    *(seq->prev == NULL ? &list->first : &seq->prev->next) = seq->next;
    *(seq->next == NULL ? &list->last : &seq->next->prev) = seq->prev;
}

static void refuse(sh_sched *s, uint64_t owner, const sh_engine_request *q, bool retry,
                   const sh_err *err)
{
    sh_event event = {.kind = SH_EVENT_ERROR, .id = q->id, .error = *err, .retry = retry};
    s->stats.refused++;
    s->emit(s->ctx, owner, &event);
}

static bool fits(const sh_sched *s, const sh_engine_request *q, bool *retry, sh_err *err)
{
    int room = sh_blocks_total(s->blocks) * SH_KV_BLOCK;
    int places = s->opts.room.slots - s->stats.running; /* whom the next plan takes did not wait */
    *retry = false;
    if (q->prompt_count >= (size_t)s->opts.context)
        sh_err_set(err, SH_ERR_LIMIT,
                   "the prompt has %zu tokens; the longest sequence is %d tokens, answer included",
                   q->prompt_count, s->opts.context);
    else if (q->prompt_count >= (size_t)room)
        sh_err_set(err, SH_ERR_LIMIT, "the prompt has %zu tokens; there is KV room for %d in all",
                   q->prompt_count, room);
    else if (s->stats.waiting >= s->opts.queue_max + places) {
        *retry = true;
        sh_err_set(err, SH_ERR_LIMIT, "%d requests are waiting, which is all that may",
                   s->stats.waiting);
    } else
        return true;
    return false;
}

void sh_sched_submit(sh_sched *s, uint64_t owner, const sh_engine_request *q)
{
    sh_err err;
    bool retry;
    s->stats.requests++;
    if (!fits(s, q, &retry, &err)) {
        refuse(s, owner, q, retry, &err);
        return;
    }
    sh_sequence *seq = sh_sequence_create(q, s->opts.context);
    int64_t wait_ms = q->timeout_ms > 0 ? q->timeout_ms : s->opts.timeout_ms;
    seq->owner = owner;
    seq->order = s->order++;
    seq->submitted_ns = sh_clock_ns();
    seq->deadline = wait_ms > 0 ? sh_deadline_in_ms(wait_ms) : SH_DEADLINE_NEVER;
    seq->long_rope = s->opts.rope_original > 0 && seq->count_max > s->opts.rope_original;
    list_add(&s->waiting, seq);
    s->stats.waiting++;
}

static void slot_give_up(sh_sched *s, sh_sequence *seq)
{
    s->leaves[s->leave_count++] = seq->slot;
    s->slots[seq->slot] = NULL;
    sh_sequence_stop(seq, s->blocks);
}

/* Takes a sequence out of everything and frees it. */
static void sequence_end(sh_sched *s, sh_sequence *seq)
{
    if (seq->slot >= 0) {
        slot_give_up(s, seq);
        list_remove(&s->running, seq);
        s->stats.running--;
    } else {
        list_remove(&s->waiting, seq);
        s->stats.waiting--;
    }
    sh_sequence_free(seq);
}

static double seconds(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

static void sequence_done(sh_sched *s, sh_sequence *seq, sh_finish finish)
{
    int64_t now = sh_clock_ns();
    int64_t started = seq->started_ns == 0 ? now : seq->started_ns;
    int64_t first = seq->first_token_ns == 0 ? now : seq->first_token_ns;
    sh_event event = {.kind = SH_EVENT_DONE,
                      .id = seq->request.id,
                      .finish = finish,
                      .prompt_tokens = seq->prompt_count,
                      .cached_tokens = seq->cached_tokens < 0 ? 0 : seq->cached_tokens,
                      .completion_tokens = sh_sequence_answered(seq),
                      .queue_s = seconds(seq->submitted_ns, started),
                      .prefill_s = seconds(started, first),
                      .decode_s = seconds(first, now)};
    if (finish == SH_FINISH_CANCEL)
        s->stats.cancelled++;
    else
        s->stats.finished++;
    s->emit(s->ctx, seq->owner, &event);
    sequence_end(s, seq);
}

static void sequence_fail(sh_sched *s, sh_sequence *seq, const sh_err *err)
{
    sh_event event = {.kind = SH_EVENT_ERROR, .id = seq->request.id, .error = *err};
    s->stats.failed++;
    s->emit(s->ctx, seq->owner, &event);
    sequence_end(s, seq);
}

static struct list *list_of(sh_sched *s, int which)
{
    return which == 0 ? &s->waiting : &s->running;
}

void sh_sched_cancel(sh_sched *s, uint64_t owner, uint64_t id)
{
    for (int which = 0; which < 2; which++)
        for (sh_sequence *seq = list_of(s, which)->first; seq != NULL; seq = seq->next) {
            if (seq->owner != owner || seq->request.id != id) continue;
            if (seq->in_flight)
                seq->cancelled = true;
            else
                sequence_done(s, seq, SH_FINISH_CANCEL);
            return;
        }
}

static void each(sh_sched *s, void (*fn)(sh_sched *s, sh_sequence *seq, const void *arg),
                 const void *arg)
{
    for (int which = 0; which < 2; which++)
        for (sh_sequence *seq = list_of(s, which)->first, *next; seq != NULL; seq = next) {
            next = seq->next;
            fn(s, seq, arg);
        }
}

static void forget_one(sh_sched *s, sh_sequence *seq, const void *arg)
{
    if (seq->owner != *(const uint64_t *)arg) return;
    seq->cancelled = true; /* the event of its end goes to nobody */
    if (!seq->in_flight) {
        s->stats.cancelled++;
        sequence_end(s, seq);
    }
}

void sh_sched_forget(sh_sched *s, uint64_t owner)
{
    each(s, forget_one, &owner);
}

static void fail_one(sh_sched *s, sh_sequence *seq, const void *arg)
{
    seq->in_flight = false;
    sequence_fail(s, seq, arg);
}

void sh_sched_fail_all(sh_sched *s, const sh_err *why)
{
    each(s, fail_one, why);
}

static void expire_one(sh_sched *s, sh_sequence *seq, const void *arg)
{
    (void)arg;
    if (seq->in_flight || !sh_deadline_passed(seq->deadline)) return;
    sh_err err;
    sh_err_set(&err, SH_ERR_TIMEOUT, "timed out after %.3g s, %s, with %d tokens of the answer",
               seconds(seq->submitted_ns, sh_clock_ns()), seq->slot < 0 ? "waiting" : "running",
               sh_sequence_answered(seq));
    sequence_fail(s, seq, &err);
}

/* Lets the KV of a running sequence go; it waits, to be computed again. */
static void sequence_pause(sh_sched *s, sh_sequence *seq)
{
    slot_give_up(s, seq);
    list_remove(&s->running, seq);
    list_add(&s->waiting, seq);
    s->stats.running--;
    s->stats.waiting++;
    s->stats.paused++;
}

/* Pauses the youngest that came behind `keep` and is not in flight. False when there is none. */
static bool pause_younger(sh_sched *s, const sh_sequence *keep)
{
    sh_sequence *seq = s->running.last;
    while (seq != keep && seq->in_flight) seq = seq->prev;
    if (seq == keep) return false;
    sequence_pause(s, seq);
    return true;
}

/* What ends an answer is kept from being drawn before min_tokens. */
static int ban_ends(const sh_sched *s, const sh_engine_request *q, sh_adjust *out)
{
    int count = 0;
    for (int i = 0; i < s->opts.eos_count; i++)
        out[count++] = (sh_adjust){.id = s->opts.eos[i], .bias = -INFINITY, .factor = 1};
    for (int i = 0; i < q->stop_id_count; i++)
        out[count++] = (sh_adjust){.id = q->stop_ids[i], .bias = -INFINITY, .factor = 1};
    return count;
}

/* Whether the plan has room for all changes of logits that the next draws of a sequence may need:
 * none is ever left out for what else is in the step. */
static bool adjusts_fit(const sh_sched *s, const sh_step_plan *step, const sh_sequence *seq,
                        int drafts)
{
    const sh_engine_request *q = &seq->request;
    int most = sh_adjust_max(&q->sampling, seq->count + drafts, seq->prompt_count);
    if (q->min_tokens > 0) most += s->opts.eos_count + q->stop_id_count;
    return (int64_t)most * (1 + drafts) <= step->room.adjusts - step->adjust_count;
}

static void add_draw(sh_sched *s, sh_step_plan *step, const sh_sequence *seq, int known)
{
    const sh_engine_request *q = &seq->request;
    sh_step_draw *d = &step->draws[step->draw_count++];
    sh_adjust *list = step->adjusts + step->adjust_count;
    d->draw = sh_draw_of(q, known);
    d->adjust_count = sh_adjust_list(&q->sampling, seq->tokens, known, seq->prompt_count, &s->marks,
                                     list);
    if (known - seq->prompt_count < q->min_tokens)
        d->adjust_count += ban_ends(s, q, list + d->adjust_count);
    step->adjust_count += d->adjust_count;
}

/* Puts `count` tokens of a sequence into the plan; the blocks are there. */
static void add_tokens(sh_sched *s, sh_step_plan *step, sh_sequence *seq, int count)
{
    sh_step_seq *q = &step->seqs[step->seq_count++];
    bool last = seq->computed + count >= seq->count;
    *q = (sh_step_seq){.slot = seq->slot,
                       .fresh = seq->blocks_told == 0,
                       .pos = seq->computed,
                       .token_count = count,
                       .draw_count = last ? 1 + seq->draft_count : 0,
                       .block_count = seq->block_count - seq->blocks_told,
                       .long_rope = seq->long_rope};
    for (int i = 0; i < count; i++)
        step->tokens[step->token_count++] = seq->tokens[seq->computed + i];
    while (seq->blocks_told < seq->block_count)
        step->blocks[step->block_count++] = seq->blocks[seq->blocks_told++];
    for (int i = 0; i < q->draw_count; i++) add_draw(s, step, seq, seq->count + i);
    seq->in_flight = true;
}

static bool decoding(const sh_sequence *seq)
{
    return seq->count - seq->computed == 1;
}

/* One token of a decoding sequence, and drafts while the step is small. False when it had to end.
 */
static bool plan_decode(sh_sched *s, sh_step_plan *step, sh_sequence *seq)
{
    enum {
        DRAFT_TOKENS = 16
    }; /* beyond this a step is bound by arithmetic, and wrong guesses cost */
    seq->draft_count = 0;
    if (s->opts.drafts > 0 && step->token_count + 1 + s->opts.drafts <= DRAFT_TOKENS)
        seq->draft_count = sh_sequence_draft(seq, s->opts.drafts);
    if (!adjusts_fit(s, step, seq, seq->draft_count)) seq->draft_count = 0;
    while (!sh_sequence_grow(seq, s->blocks, seq->count + seq->draft_count)) {
        if (seq->draft_count > 0) {
            seq->draft_count = 0;
        } else if (!pause_younger(s, seq)) {
            if (s->stats.running == 1)
                sequence_done(s, seq, SH_FINISH_LENGTH); /* it holds all the room */
            else
                sequence_pause(s, seq);
            return false;
        }
    }
    add_tokens(s, step, seq, 1 + seq->draft_count);
    return true;
}

/* With several plans at once none takes more than its part of `all` sequences. */
static bool step_full(const sh_sched *s, const sh_step_plan *step, int all)
{
    int part = (all + s->opts.parts - 1) / s->opts.parts;
    bool share = s->opts.parts > 1 && step->seq_count > 0 && step->seq_count >= part;
    return share || step->seq_count == step->room.slots ||
           step->draw_count + 1 + SH_DRAFTS_MAX > step->room.draws ||
           step->token_count >= step->room.tokens;
}

static void plan_decodes(sh_sched *s, sh_step_plan *step)
{
    for (sh_sequence *seq = s->running.first, *next;
         seq != NULL && !step_full(s, step, s->stats.running); seq = next) {
        if (seq->in_flight || !decoding(seq) || !adjusts_fit(s, step, seq, 0)) {
            next = seq->next;
            continue;
        }
        sh_sequence *before = seq->prev; /* stays: only younger ones are paused */
        bool stays = plan_decode(s, step, seq);
        next = stays ? seq->next : before == NULL ? s->running.first : before->next;
    }
}

/* What runs or could: those that wait count, or a pipeline whose stages are all busy would never
 * take one in. */
static int all_of(const sh_sched *s)
{
    int all = s->stats.running + s->stats.waiting;
    return all < s->opts.room.slots ? all : s->opts.room.slots;
}

static void plan_prompts(sh_sched *s, sh_step_plan *step, int *budget)
{
    for (sh_sequence *seq = s->running.first;
         seq != NULL && *budget > 0 && !step_full(s, step, all_of(s)); seq = seq->next) {
        if (seq->in_flight || decoding(seq) || !adjusts_fit(s, step, seq, 0)) continue;
        int count = seq->count - seq->computed;
        if (count > *budget) count = *budget;
        seq->draft_count = 0;
        add_tokens(s, step, seq, count);
        *budget -= count;
    }
}

static int running_of(const sh_sched *s, uint64_t client)
{
    int count = 0;
    for (const sh_sequence *seq = s->running.first; seq != NULL; seq = seq->next)
        count += seq->request.client == client;
    return count;
}

/* Who has the fewest running, then who came first; `order` says behind whom to look, to pass over
 * those that wait for another's prefix. */
static sh_sequence *waiting_next(sh_sched *s, int *least, uint64_t order)
{
    sh_sequence *best = NULL;
    int fewest = 0;
    for (sh_sequence *seq = s->waiting.first; seq != NULL; seq = seq->next) {
        int count = running_of(s, seq->request.client);
        if (count < *least || (count == *least && seq->order < order)) continue;
        if (best == NULL || count < fewest) best = seq, fewest = count;
    }
    *least = fewest;
    return best;
}

static int slot_free(const sh_sched *s)
{
    for (int i = 0; i < s->opts.room.slots; i++)
        if (s->slots[i] == NULL) return i;
    return -1;
}

static void admit(sh_sched *s, sh_sequence *seq, int slot)
{
    list_remove(&s->waiting, seq);
    list_add(&s->running, seq);
    s->stats.waiting--;
    s->stats.running++;
    seq->slot = slot;
    s->slots[slot] = seq;
    if (seq->started_ns != 0) return;
    seq->started_ns = sh_clock_ns();
    s->stats.prompt_tokens += (uint64_t)seq->prompt_count;
    s->stats.cached_tokens += (uint64_t)seq->cached_tokens;
}

static void plan_waiting(sh_sched *s, sh_step_plan *step, int *budget)
{
    int least = 0;
    uint64_t order = 0;
    while (*budget > 0 && !step_full(s, step, all_of(s))) {
        int slot = slot_free(s);
        sh_sequence *seq = slot < 0 ? NULL : waiting_next(s, &least, order);
        bool wait;
        if (seq == NULL) return;
        order = seq->order + 1;
        if (!adjusts_fit(s, step, seq, 0)) return;
        if (!sh_sequence_start(seq, s->blocks, s->stats.running, &wait)) {
            if (wait) continue;
            return; /* no room: the next must not overtake this one for ever */
        }
        admit(s, seq, slot);
        int count = seq->count - seq->computed;
        if (count > *budget) count = *budget;
        add_tokens(s, step, seq, count);
        *budget -= count;
        least = 0;
        order = 0;
    }
}

/* Somebody's answer is under way, in this plan or, in a pipeline, in another. */
static bool streams_run(const sh_sched *s)
{
    for (const sh_sequence *seq = s->running.first; seq != NULL; seq = seq->next)
        if (decoding(seq)) return true;
    return false;
}

/* Prompt tokens that a step may take without holding running streams up for too long. */
static int chunk_budget(const sh_sched *s, const sh_step_plan *step)
{
    int room = s->opts.room.tokens - step->token_count;
    if (!streams_run(s) || s->token_s <= 0) return room;
    double fit = s->opts.stall_s / s->token_s;
    int chunk = fit < CHUNK_MIN ? CHUNK_MIN : fit > room ? room : (int)fit;
    return chunk < room ? chunk : room;
}

bool sh_sched_plan(sh_sched *s, sh_step_plan *step)
{
    sh_step_clear(step);
    each(s, expire_one, NULL);
    plan_decodes(s, step);
    int budget = chunk_budget(s, step);
    plan_prompts(s, step, &budget);
    plan_waiting(s, step, &budget);
    if (step->seq_count == 0) return false;
    for (int i = 0; i < s->leave_count; i++) step->leaves[i] = s->leaves[i];
    step->leave_count = s->leave_count;
    s->leave_count = 0;
    return true;
}

static bool is_end(const sh_sched *s, const sh_engine_request *q, int32_t token)
{
    for (int i = 0; i < q->stop_id_count; i++)
        if (q->stop_ids[i] == token) return true;
    for (int i = 0; !q->ignore_eos && i < s->opts.eos_count; i++)
        if (s->opts.eos[i] == token) return true;
    return false;
}

static void emit_token(sh_sched *s, const sh_sequence *seq, const sh_pick *pick)
{
    sh_event event = {.kind = SH_EVENT_TOKEN,
                      .id = seq->request.id,
                      .token = pick->id,
                      .logprob = pick->logprob,
                      .top_count = pick->top_count};
    for (int i = 0; i < pick->top_count; i++) event.top[i] = pick->top[i];
    s->emit(s->ctx, seq->owner, &event);
}

/* Takes the picks of one sequence: the first always, each further one while the draft before it was
 * right. Returns false when the answer is complete, with *finish set. */
static bool picks_take(sh_sched *s, sh_sequence *seq, const sh_pick *picks, sh_finish *finish)
{
    int drafts = seq->draft_count, kept = 0, known = seq->count;
    bool open = true;
    for (int i = 0; open && i <= drafts; i++) {
        int32_t token = picks[i].id;
        bool guessed = i < drafts && seq->tokens[known + i] == token;
        seq->tokens[seq->count++] = token;
        s->stats.answer_tokens++;
        if (seq->first_token_ns == 0) seq->first_token_ns = sh_clock_ns();
        if (is_end(s, &seq->request, token)) {
            *finish = SH_FINISH_STOP;
            open = false;
        } else {
            emit_token(s, seq, &picks[i]);
            *finish = SH_FINISH_LENGTH;
            open = seq->count < seq->count_max;
        }
        if (!guessed) break;
        kept++;
    }
    seq->draft_count = 0;
    s->stats.drafts_tried += (uint64_t)drafts;
    s->stats.drafts_kept += (uint64_t)kept;
    if (drafts > 0) sh_sequence_draft_result(seq, drafts, kept);
    sh_sequence_computed(seq, s->blocks, known + kept < seq->count ? known + kept : seq->count - 1);
    return open;
}

static void commit_one(sh_sched *s, const sh_step_seq *q, const sh_pick *picks)
{
    sh_sequence *seq = s->slots[q->slot];
    if (seq == NULL || !seq->in_flight) return; /* it failed with its group */
    seq->in_flight = false;
    sh_finish finish = SH_FINISH_CANCEL;
    bool open = true;
    if (seq->cancelled)
        open = false;
    else if (q->draw_count > 0)
        open = picks_take(s, seq, picks, &finish);
    else
        sh_sequence_computed(seq, s->blocks, q->pos + q->token_count);
    if (!open) sequence_done(s, seq, finish);
}

void sh_sched_commit(sh_sched *s, const sh_step_plan *step, const sh_pick *picks, double step_s)
{
    if (step->token_count >= 2 * CHUNK_MIN) {
        double cost = step_s / step->token_count;
        s->token_s = s->token_s == 0 ? cost : 0.7 * s->token_s + 0.3 * cost;
    }
    int draw = 0;
    for (int i = 0; i < step->seq_count; i++) {
        commit_one(s, &step->seqs[i], picks + draw);
        draw += step->seqs[i].draw_count;
    }
}

bool sh_sched_busy(const sh_sched *s)
{
    return s->waiting.first != NULL || s->running.first != NULL;
}

const sh_sched_stats *sh_sched_stats_of(sh_sched *s)
{
    return &s->stats;
}

void sh_sched_carry(sh_sched *s, const sh_sched_stats *so_far)
{
    s->stats = *so_far;
    s->stats.waiting = s->stats.running = 0;
}
