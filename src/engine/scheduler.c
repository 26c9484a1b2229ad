/* The life cycle of requests: queued, running, paused, ended. scheduler_plan.c decides which of
 * them run in a step.
 *
 * A sequence is in exactly one of two lists, both sorted by arrival: waiting (no slot, no blocks)
 * or running (a slot and blocks). A paused sequence moves back to waiting and keeps its place in
 * the order of arrival.
 *
 * A sequence in flight is part of a plan that the ranks may be computing right now. Its blocks must
 * not be released and its tokens must not change until the plan is committed: cancel, forget and
 * timeouts only mark or skip it, and the commit ends it. The exception is a lost group, where the
 * plans in flight will never be committed.
 *
 * Every request gets exactly one DONE or ERROR as its last event, unless its owner is gone. */
#include "engine/scheduler_internal.h"

#include "base/alloc.h"

#include <stdlib.h>

sh_sched *sh_sched_create(const sh_sched_opts *opts, sh_blocks *blocks, sh_emit_fn emit, void *ctx)
{
    sh_sched *s = sh_alloc(sizeof(*s));
    SH_ASSERT(opts->stages_in_flight > 0);
    s->opts = *opts;
    s->blocks = blocks;
    s->emit = emit;
    s->ctx = ctx;
    s->slots = sh_alloc_array((size_t)opts->limits.slots, sizeof(sh_sequence *));
    s->leaves = sh_alloc_array((size_t)opts->limits.slots, sizeof(*s->leaves));
    s->chosen = sh_alloc_array((size_t)opts->limits.slots, sizeof(sh_sequence *));
    s->drafting.orders = sh_alloc_array((size_t)opts->limits.slots, sizeof(sh_draft_order));
    s->drafting.offers = sh_alloc_array((size_t)opts->limits.slots, sizeof(sh_draft_offer));
    s->drafting.flying = sh_alloc_array((size_t)opts->stages_in_flight, sizeof(sh_sched_flight));
    s->drafting.usual_answer = SH_SCHED_USUAL_ANSWER;
    if (opts->drafter != NULL) s->drafting.drafter_s = sh_drafter_busy_s(opts->drafter);
    sh_marks_init(&s->marks, opts->limits.vocab);
    s->masks = sh_mask_table_create(opts->limits.masks);
    s->maker = sh_mask_maker_create(opts->limits.draws);
    return s;
}

/* The link to a client, or to where it belongs. A client exists while it has open requests. */
static sh_sched_client **client_find(sh_sched *s, uint64_t id)
{
    sh_sched_client **at = &s->clients[sh_mix64(id) % SH_SCHED_CLIENT_BUCKETS];
    while (*at != NULL && (*at)->id != id) at = &(*at)->next;
    return at;
}

static void client_enter(sh_sched *s, sh_sequence *seq)
{
    sh_sched_client **at = client_find(s, seq->spec.client);
    if (*at == NULL) {
        *at = sh_alloc(sizeof(**at));
        (*at)->id = seq->spec.client;
    }
    (*at)->open++;
    seq->client = *at;
}

static void client_leave(sh_sched *s, sh_sequence *seq)
{
    if (--seq->client->open > 0) return;
    sh_sched_client **at = client_find(s, seq->client->id), *gone = *at;
    *at = gone->next;
    free(gone);
}

static void list_free(sh_sched *s, sh_sched_list *list)
{
    for (sh_sequence *seq = list->first; seq != NULL;) {
        sh_sequence *next = seq->next;
        client_leave(s, seq);
        sh_sequence_free(seq);
        seq = next;
    }
}

void sh_sched_free(sh_sched *s)
{
    if (s == NULL) return;
    sh_sched_join_masks(s);
    list_free(s, &s->waiting);
    list_free(s, &s->running);
    free(s->slots);
    free(s->leaves);
    free(s->chosen);
    free(s->drafting.orders);
    free(s->drafting.offers);
    free(s->drafting.flying);
    sh_marks_reset(&s->marks);
    sh_mask_table_free(s->masks);
    sh_mask_maker_free(s->maker);
    free(s);
}

/* Keeps a list sorted by arrival; nearly always that is the end. */
static void list_add(sh_sched_list *list, sh_sequence *seq)
{
    sh_sequence *before = list->last;
    while (before != NULL && before->order > seq->order) before = before->prev;
    seq->prev = before;
    seq->next = before == NULL ? list->first : before->next;
    *(before == NULL ? &list->first : &before->next) = seq;
    *(seq->next == NULL ? &list->last : &seq->next->prev) = seq;
}

static void list_remove(sh_sched_list *list, sh_sequence *seq)
{
    *(seq->prev == NULL ? &list->first : &seq->prev->next) = seq->next;
    *(seq->next == NULL ? &list->last : &seq->next->prev) = seq->prev;
}

static void refuse(sh_sched *s, uint64_t owner, const sh_sequence_spec *q, bool retry,
                   const sh_err *err)
{
    sh_event event = {.kind = SH_EVENT_ERROR, .id = q->id, .error = *err, .retry = retry};
    s->stats.refused++;
    s->emit(s->ctx, owner, &event);
}

/* Whether the model can do what is asked for; a pooled text needs no space for an answer. */
static bool task_fits(const sh_sched *s, const sh_sequence_spec *q, int kv_tokens, sh_err *err)
{
    int most = s->opts.context < kv_tokens ? s->opts.context : kv_tokens;
    if (!q->pooled && s->opts.headless)
        sh_err_set(err, SH_ERR_INPUT, "this model makes embeddings; it cannot write text");
    else if (q->pooled && s->opts.pool == SH_POOL_NONE)
        sh_err_set(err, SH_ERR_INPUT, "this model has no pooling; --pooling chooses one");
    else if (q->pooled && q->prompt_count > (size_t)most)
        sh_err_set(err, SH_ERR_LIMIT, "the text has %zu tokens; at most %d are possible",
                   q->prompt_count, most);
    else
        return true;
    return false;
}

static bool fits(const sh_sched *s, const sh_sequence_spec *q, bool *retry, sh_err *err)
{
    int kv_tokens = sh_blocks_total(s->blocks) * SH_KV_BLOCK;
    /* Free slots do not count against the queue: the next plan can fill them at once. */
    int free_slots = s->opts.limits.slots - s->stats.running;
    *retry = false;
    if (!task_fits(s, q, kv_tokens, err)) return false;
    if (!q->pooled && q->prompt_count >= (size_t)s->opts.context)
        sh_err_set(err, SH_ERR_LIMIT,
                   "the prompt has %zu tokens; the longest sequence is %d tokens, answer included",
                   q->prompt_count, s->opts.context);
    else if (!q->pooled && q->prompt_count >= (size_t)kv_tokens)
        sh_err_set(err, SH_ERR_LIMIT, "the prompt has %zu tokens; the KV cache holds %d in all",
                   q->prompt_count, kv_tokens);
    else if (!q->replayed && s->stats.waiting >= s->opts.queue_max + free_slots) {
        *retry = true;
        sh_err_set(err, SH_ERR_LIMIT, "the queue is full: %d requests are waiting",
                   s->stats.waiting);
    } else
        return true;
    return false;
}

/* Ends a replayed request that has no more to draw: only its last event was lost. */
static bool answered_fully(sh_sched *s, uint64_t owner, const sh_sequence_spec *q)
{
    int kv_tokens = sh_blocks_total(s->blocks) * SH_KV_BLOCK;
    int room = s->opts.context < kv_tokens ? s->opts.context : kv_tokens;
    if (q->answered == 0 || (q->answered < q->max_tokens && q->prompt_count < (size_t)room))
        return false;
    s->stats.finished++;
    s->emit(s->ctx, owner,
            &(sh_event){.kind = SH_EVENT_DONE,
                        .id = q->id,
                        .finish = SH_FINISH_LENGTH,
                        .prompt_tokens = (int)q->prompt_count - q->answered,
                        .completion_tokens = q->answered});
    return true;
}

static void bind_or_fail(sh_sched *s, sh_sequence *seq)
{
    sh_err err;
    sh_status status = sh_sched_bind(s, seq, &err);
    if (status == SH_AGAIN)
        s->unbound = true;
    else if (status != SH_OK)
        sh_sched_fail(s, seq, &err);
}

void sh_sched_bind_waiting(sh_sched *s)
{
    if (!s->unbound) return;
    s->unbound = false;
    for (sh_sequence *seq = s->waiting.first, *next; seq != NULL; seq = next) {
        next = seq->next;
        bind_or_fail(s, seq);
    }
}

static void emit_token(sh_sched *s, const sh_sequence *seq, sh_event_kind kind, const sh_pick *pick)
{
    sh_event event = {.kind = kind,
                      .id = seq->spec.id,
                      .token = pick->id,
                      .logprob = pick->logprob,
                      .top_count = pick->top_count};
    for (int i = 0; i < pick->top_count; i++) event.top[i] = pick->top[i];
    s->emit(s->ctx, seq->owner, &event);
}

/* An answer that goes on elsewhere may have been cut where its reasoning had come to its limit. A
 * grammar may not allow the end there: then it comes after the next token. */
static void reasoning_resume(sh_sched *s, sh_sequence *seq)
{
    if (!sh_sequence_reasoned(seq) || seq->spec.grammar.len > 0 || seq->count + 1 >= seq->count_max)
        return;
    sh_sequence_end_reasoning(seq);
    emit_token(s, seq, SH_EVENT_TOKEN, &(sh_pick){.id = seq->spec.reasoning_end});
}

void sh_sched_submit(sh_sched *s, uint64_t owner, const sh_sequence_spec *q)
{
    sh_sched_join_masks(s);
    sh_err err;
    bool retry;
    s->stats.requests++;
    if (answered_fully(s, owner, q)) return;
    if (!fits(s, q, &retry, &err)) {
        refuse(s, owner, q, retry, &err);
        return;
    }
    sh_sequence *seq = sh_sequence_create(q, s->opts.context);
    int64_t wait_ms = q->timeout_ms > 0 ? q->timeout_ms : s->opts.timeout_ms;
    client_enter(s, seq);
    seq->owner = owner;
    seq->order = s->order++;
    seq->submitted_ns = sh_clock_ns();
    seq->deadline = wait_ms > 0 ? sh_deadline_in_ms(wait_ms) : SH_DEADLINE_NEVER;
    seq->long_rope = sh_sched_outgrown(s, seq->count);
    seq->unshared = s->opts.whole || (q->pooled && sh_pool_kind_needs_all(s->opts.pool));
    list_add(&s->waiting, seq);
    s->stats.waiting++;
    reasoning_resume(s, seq);
    bind_or_fail(s, seq);
}

/* Takes a running sequence out of its slot and releases its blocks. The next plan tells the ranks
 * (`leaves`). */
static void slot_give_up(sh_sched *s, sh_sequence *seq)
{
    list_remove(&s->running, seq);
    s->stats.running--;
    seq->client->running--;
    s->leaves[s->leave_count++] = seq->slot;
    s->slots[seq->slot] = NULL;
    if (s->opts.drafter != NULL) sh_drafter_leave(s->opts.drafter, seq->slot);
    seq->followed = seq->probed = false;
    sh_sequence_stop(seq, s->blocks);
}

/* Removes a sequence from its list and its slot and frees it. */
static void sequence_end(sh_sched *s, sh_sequence *seq)
{
    if (seq->slot >= 0) {
        sh_sched_draft_ended(s, seq);
        slot_give_up(s, seq);
    } else {
        list_remove(&s->waiting, seq);
        s->stats.waiting--;
    }
    client_leave(s, seq);
    sh_sequence_free(seq);
}

static double seconds(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

/* The three times add up to the time since submit, also for a request that never started or never
 * got a token: the missing moments count as now. */
static void done_with(sh_sched *s, sh_sequence *seq, sh_finish finish, const float *vector)
{
    int64_t now = sh_clock_ns();
    int64_t started = seq->started_ns == 0 ? now : seq->started_ns;
    int64_t first = seq->first_token_ns == 0 ? now : seq->first_token_ns;
    sh_event event = {.kind = SH_EVENT_DONE,
                      .id = seq->spec.id,
                      .finish = finish,
                      .prompt_tokens = seq->prompt_count,
                      .cached_tokens = seq->cached_tokens < 0 ? 0 : seq->cached_tokens,
                      .completion_tokens = sh_sequence_answered(seq),
                      .drawn_tokens = sh_sequence_answered(seq) - seq->spec.answered,
                      .queue_s = seconds(seq->submitted_ns, started),
                      .prefill_s = seconds(started, first),
                      .decode_s = seconds(first, now),
                      .vector = vector,
                      .vector_len = vector == NULL ? 0 : s->vector_width};
    if (finish == SH_FINISH_CANCEL)
        s->stats.cancelled++;
    else
        s->stats.finished++;
    s->emit(s->ctx, seq->owner, &event);
    sequence_end(s, seq);
}

void sh_sched_done(sh_sched *s, sh_sequence *seq, sh_finish finish)
{
    done_with(s, seq, finish, NULL);
}

static void sequence_fail(sh_sched *s, sh_sequence *seq, const sh_err *err, int running)
{
    sh_event event = {
        .kind = SH_EVENT_ERROR, .id = seq->spec.id, .error = *err, .running = running};
    s->stats.failed++;
    s->emit(s->ctx, seq->owner, &event);
    sequence_end(s, seq);
}

void sh_sched_fail(sh_sched *s, sh_sequence *seq, const sh_err *err)
{
    sequence_fail(s, seq, err, 0);
}

static sh_sched_list *list_of(sh_sched *s, int which)
{
    return which == 0 ? &s->waiting : &s->running;
}

void sh_sched_cancel(sh_sched *s, uint64_t owner, uint64_t id)
{
    sh_sched_join_masks(s);
    for (int which = 0; which < 2; which++)
        for (sh_sequence *seq = list_of(s, which)->first; seq != NULL; seq = seq->next) {
            if (seq->owner != owner || seq->spec.id != id) continue;
            if (seq->in_flight)
                seq->cancelled = true;
            else
                sh_sched_done(s, seq, SH_FINISH_CANCEL);
            return;
        }
}

/* Calls fn for every open sequence; fn may end the one it is called for. */
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
    seq->cancelled = true; /* its last event will find no recipient */
    if (!seq->in_flight) {
        s->stats.cancelled++;
        sequence_end(s, seq);
    }
}

void sh_sched_forget(sh_sched *s, uint64_t owner)
{
    sh_sched_join_masks(s);
    each(s, forget_one, &owner);
}

struct failure {
    const sh_err *why;
    int running;
};

static void fail_one(sh_sched *s, sh_sequence *seq, const void *arg)
{
    const struct failure *failure = arg;
    seq->in_flight = false;
    sequence_fail(s, seq, failure->why, failure->running);
}

void sh_sched_fail_all(sh_sched *s, const sh_err *why)
{
    sh_sched_join_masks(s);
    each(s, fail_one, &(struct failure){why, s->stats.running});
}

static void expire_one(sh_sched *s, sh_sequence *seq, const void *arg)
{
    (void)arg;
    if (seq->in_flight || !sh_deadline_passed(seq->deadline)) return;
    sh_err err;
    sh_err_set(&err, SH_ERR_TIMEOUT, "timed out after %.3g s while %s, with %d tokens generated",
               seconds(seq->submitted_ns, sh_clock_ns()), seq->slot < 0 ? "waiting" : "running",
               sh_sequence_answered(seq));
    sh_sched_fail(s, seq, &err);
}

void sh_sched_expire(sh_sched *s)
{
    each(s, expire_one, NULL);
}

static void emit_progress(sh_sched *s, const sh_sequence *seq, int computed)
{
    s->emit(s->ctx, seq->owner,
            &(sh_event){.kind = SH_EVENT_PROGRESS, .id = seq->spec.id, .computed = computed});
}

void sh_sched_admit(sh_sched *s, sh_sequence *seq, int slot)
{
    list_remove(&s->waiting, seq);
    list_add(&s->running, seq);
    s->stats.waiting--;
    s->stats.running++;
    seq->client->running++;
    seq->slot = slot;
    s->slots[slot] = seq;
    emit_progress(s, seq, 0); /* it has started; what it found in the cache is no progress */
    if (seq->started_ns != 0) return;
    seq->started_ns = sh_clock_ns();
    s->stats.prompt_tokens += (uint64_t)seq->prompt_count;
    s->stats.cached_tokens += (uint64_t)seq->cached_tokens;
}

void sh_sched_pause(sh_sched *s, sh_sequence *seq)
{
    slot_give_up(s, seq);
    list_add(&s->waiting, seq);
    s->stats.waiting++;
    s->stats.paused++;
}

/* How many of the computed tokens must run again because wrong drafts ran after them. The KV of
 * drafts is left in place and overwritten later. A fixed-size state has taken the drafts in, and
 * the last one without them is the snapshot at the last block border. */
static int tokens_lost(const sh_sched *s, int computed)
{
    return s->opts.fixed_state ? computed % SH_KV_BLOCK : 0;
}

/* How a sequence stands after a token. */
typedef enum { OPEN, ENDED, FAILED } standing;

/* Appends a token to the answer. */
static standing token_take(sh_sched *s, sh_sequence *seq, const sh_pick *pick, sh_finish *finish,
                           sh_err *err)
{
    seq->tokens[seq->count++] = pick->id;
    s->stats.answer_tokens++;
    if (seq->first_token_ns == 0) seq->first_token_ns = sh_clock_ns();
    if (sh_sequence_stops(seq, pick->id)) {
        *finish = SH_FINISH_STOP;
        return ENDED;
    }
    if (sh_sched_match(s, seq, pick->id, err) != SH_OK) return FAILED;
    sh_sequence_reason(seq, pick->id);
    emit_token(s, seq, SH_EVENT_TOKEN, pick);
    *finish = SH_FINISH_LENGTH;
    return seq->count < seq->count_max ? OPEN : ENDED;
}

/* Appends a token that was not drawn. */
static standing token_give(sh_sched *s, sh_sequence *seq, int32_t token, sh_finish *finish,
                           sh_err *err)
{
    sh_pick pick = {.id = token, .top_count = seq->spec.logprobs > 0};
    pick.top[0].id = token;
    return token_take(s, seq, &pick, finish, err);
}

/* Ends the reasoning if it has come to its limit. A grammar may not allow that in the middle of a
 * character: then it is for the next token. Returns how many tokens that takes. */
static int reasoning_end(sh_sched *s, sh_sequence *seq, standing *now, sh_finish *finish,
                         sh_err *err)
{
    int32_t token = seq->spec.reasoning_end;
    sh_match_state after;
    if (*now != OPEN || !sh_sequence_reasoned(seq)) return 0;
    if (seq->constraint != NULL &&
        (sh_constraint_next(seq->constraint, seq->states[0], token, &after, err) != SH_OK ||
         after == SH_MATCH_DEAD))
        return 0;
    *now = token_give(s, seq, token, finish, err);
    return 1;
}

/* Appends tokens that need no draw, since the grammar allows no other. They are what a draw would
 * give, with the probability that it would report. Returns how many. */
static int forced_take(sh_sched *s, sh_sequence *seq, standing *now, sh_finish *finish, sh_err *err)
{
    enum { FORCED_MAX = 32 }; /* at a time: they all run in the next step */
    int most = FORCED_MAX < s->opts.limits.tokens / 2 ? FORCED_MAX : s->opts.limits.tokens / 2;
    int taken = 0;
    for (; *now == OPEN && taken < most; taken++) {
        int32_t token;
        if (sh_sched_only_token(s, seq, &token, err) != SH_OK) *now = FAILED;
        if (*now == FAILED || token < 0) break;
        *now = token_give(s, seq, token, finish, err);
    }
    s->stats.forced_tokens += (uint64_t)taken;
    return taken;
}

/* Appends the picks of one sequence: the first always, each further one only while the draft before
 * it was right, since it was computed on top of that draft. */
static standing picks_take(sh_sched *s, sh_sequence *seq, const sh_pick *picks, sh_finish *finish,
                           sh_err *err)
{
    int drafts = seq->draft_count, kept = 0, known = seq->count;
    standing now = OPEN;
    for (int i = 0; now == OPEN && i <= drafts; i++) {
        if (seq->mask_error != NULL && i == seq->mask_error_at) {
            *err = *seq->mask_error;
            return FAILED;
        }
        bool guessed = i < drafts && seq->tokens[known + i] == picks[i].id;
        now = token_take(s, seq, &picks[i], finish, err);
        if (!guessed || sh_sequence_reasoned(seq)) break;
        kept++;
    }
    free(seq->mask_error);
    seq->mask_error = NULL;
    /* The last token has no KV yet. */
    int computed = known + kept < seq->count ? known + kept : seq->count - 1;
    int lost = kept < drafts ? tokens_lost(s, computed) : 0;
    int more = reasoning_end(s, seq, &now, finish, err);
    more += forced_take(s, seq, &now, finish, err);
    sh_sched_draft_result(s, seq, kept, lost);
    s->stats.redone_tokens += (uint64_t)lost;
    /* If the next step cannot take them all, they run like a prompt, in chunks. */
    seq->catch_up = lost + more < s->opts.limits.tokens ? lost + more : 0;
    sh_sequence_computed(seq, s->blocks, computed - lost);
    if (s->opts.fixed_state && seq->computed < known + drafts) seq->kept = 0;
    return now;
}

/* Reports the tokens of the prompt that a step has scored. */
static void scores_take(sh_sched *s, sh_sequence *seq, const sh_pick *picks, int count)
{
    for (int i = 0; i < count; i++) emit_token(s, seq, SH_EVENT_PROMPT_TOKEN, &picks[i]);
    seq->scored += count;
}

bool sh_sched_outgrown(const sh_sched *s, int count)
{
    return s->opts.rope_original > 0 && count > s->opts.rope_original;
}

/* All keys of a sequence must be rotated with the same factors. A sequence that outgrows the short
 * factors is therefore computed again from the start, once, with the long ones. */
static void rope_switch(sh_sched *s, sh_sequence *seq)
{
    if (seq->long_rope || !sh_sched_outgrown(s, seq->count)) return;
    sh_sched_pause(s, seq);
    seq->long_rope = true;
}

/* `vector`: of a sequence whose last tokens these are, if it is pooled; else NULL. */
static void commit_one(sh_sched *s, const sh_step_seq *q, const sh_pick *picks, const float *vector,
                       const sh_seen *seen)
{
    sh_sequence *seq = s->slots[q->slot];
    if (seq == NULL || !seq->in_flight) return; /* failed meanwhile, with its group */
    seq->in_flight = false;
    sh_finish finish = SH_FINISH_CANCEL;
    sh_err err;
    standing now = OPEN;
    int scores = sh_sequence_scores(seq, q->token_count);
    if (!seq->cancelled) scores_take(s, seq, picks, scores);
    if (seq->cancelled)
        now = ENDED;
    else if (q->draw_count > scores)
        now = picks_take(s, seq, picks + scores, &finish, &err);
    else {
        sh_sequence_computed(seq, s->blocks, q->pos + q->token_count);
        emit_progress(s, seq, seq->computed);
        if (q->pool_ends) now = ENDED, finish = SH_FINISH_STOP;
    }
    switch (now) {
    case OPEN:
        rope_switch(s, seq);
        if (seq->slot >= 0 && seen->outputs != NULL) sh_sched_draft_see(s, seq, seen);
        break;
    case ENDED: done_with(s, seq, finish, finish == SH_FINISH_CANCEL ? NULL : vector); break;
    case FAILED: sh_sched_fail(s, seq, &err); break;
    }
}

void sh_sched_commit(sh_sched *s, const sh_step_plan *step, const sh_pick *picks, double step_s,
                     double alone_s)
{
    sh_sched_join_masks(s);
    /* Only steps with a sizeable prompt chunk show what a prompt token costs. */
    if (step->token_count >= 2 * SH_SCHED_CHUNK_MIN) {
        double cost = step_s / step->token_count;
        s->token_s = s->token_s == 0 ? cost : 0.7 * s->token_s + 0.3 * cost;
    }
    int draw = 0, token = 0;
    for (int i = 0; i < step->seq_count; i++) {
        const sh_step_seq *q = &step->seqs[i];
        sh_seen seen = {.pos = q->pos, .count = q->token_count, .tokens = step->tokens + token};
        if (s->outputs != NULL && q->pool == SH_POOL_NONE)
            seen.outputs = s->outputs + (size_t)token * s->output_bytes;
        commit_one(s, q, picks + draw, q->pool_ends ? s->vectors : NULL, &seen);
        draw += q->draw_count;
        token += q->token_count;
        if (q->pool_ends) s->vectors += s->vector_width;
    }
    sh_sched_draft_measure(s, step->token_count, alone_s);
    s->vectors = NULL;
    s->outputs = NULL;
}

void sh_sched_vectors(sh_sched *s, const float *vectors, int width)
{
    s->vectors = vectors;
    s->vector_width = width;
}

void sh_sched_outputs(sh_sched *s, const void *outputs, int hidden)
{
    s->outputs = outputs;
    s->output_bytes = (size_t)hidden * sizeof(float);
}

bool sh_sched_busy(const sh_sched *s)
{
    return s->waiting.first != NULL || s->running.first != NULL;
}

const sh_sched_stats *sh_sched_stats_of(sh_sched *s)
{
    return &s->stats;
}

void sh_sched_carry(sh_sched *s, const sh_sched *before)
{
    s->stats = before->stats;
    s->stats.waiting = s->stats.running = 0;
    sh_sched_draft_carry(s, before);
}
