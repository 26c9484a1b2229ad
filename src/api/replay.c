/* A sequence is at the engine or held. All of them are in one list in the order of arrival, which
 * is also the order in which they are submitted again.
 *
 * `reached` is how far a sequence ever came, in tokens that were computed or drawn. Recomputing a
 * prompt after a loss does not raise it, so a prompt that breaks the ranks at its third chunk makes
 * no progress by computing the first two again. Only sequences that the engine had started are
 * touched by a loss: those in its queue cannot have caused it.
 *
 * After a loss everything is held. The first trial therefore runs apart from all others; sequences
 * that it clears go on beside the next trial. A loss then proves nothing about the one on trial,
 * but makes it the first to be tried again, alone.
 *
 * The last event of a sequence may free its job and with it other sequences. So held sequences are
 * submitted from the loop and never from inside a call, and nothing is touched after an event was
 * passed on. */
#include "api/replay.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum {
    SUSPECT = 2,     /* losses without progress in between */
    HELD_MAX = 8192, /* sequences; further ones are refused */
};

struct sh_replay_sequence {
    sh_replay *replay;
    sh_replay_sequence *prev, *next;
    sh_engine_conn_event_fn fn;
    void *arg;
    sh_sequence_spec spec; /* owns its arrays; the answer so far is at the end of `prompt` */
    size_t prompt_cap;
    uint64_t model_hash; /* the model that the prompt was made for */
    uint64_t id;         /* at the engine */
    bool held;
    bool cancelled;
    bool started; /* since it was submitted last */
    bool on_trial;
    int reached;
    int reached_before; /* at the previous loss */
    int losses;         /* since the last progress */
    sh_deadline deadline;
    sh_deadline held_until; /* 0: was not held since the last progress */
    sh_err why;             /* it is held */
};

struct sh_replay {
    sh_engine_conn *conn;
    sh_trigger *soon; /* submits what is held */
    int64_t limit_ms;
    uint64_t model_hash;
    bool ready;
    sh_replay_sequence *first, *last;
    int count;
    int on_trial; /* sequences that have not made progress yet */
    int lost;     /* sequences that were at the engine and are not any more, since the trial began:
                     one that was cancelled may have been running still when the ranks were lost */
    sh_replay_stats stats;
};

static void on_event(void *arg, const sh_event *event);
static void on_soon(void *arg);

sh_replay *sh_replay_create(sh_loop *loop, sh_engine_conn *conn, int64_t limit_ms)
{
    sh_replay *r = sh_alloc(sizeof(*r));
    r->conn = conn;
    r->soon = sh_trigger_timer(loop, on_soon, r);
    r->limit_ms = limit_ms;
    return r;
}

void sh_replay_free(sh_replay *r)
{
    if (r == NULL) return;
    SH_ASSERT(r->first == NULL);
    sh_trigger_free(r->soon);
    free(r);
}

bool sh_replay_holds(const sh_replay *r)
{
    return r->limit_ms > 0;
}

sh_replay_stats sh_replay_stats_of(const sh_replay *r)
{
    return r->stats;
}

static void *copy(const void *data, size_t count, size_t size)
{
    void *to = sh_alloc_array(count, size);
    if (count > 0) memcpy(to, data, count * size);
    return to;
}

static void spec_copy(sh_replay_sequence *s, const sh_sequence_spec *spec)
{
    sh_sampling *own = &s->spec.sampling;
    size_t biases = (size_t)spec->sampling.logit_bias_count;
    s->spec = *spec;
    s->prompt_cap = spec->prompt_count;
    s->spec.prompt = copy(spec->prompt, spec->prompt_count, sizeof(int32_t));
    s->spec.stop_ids = copy(spec->stop_ids, (size_t)spec->stop_id_count, sizeof(int32_t));
    if (spec->retry_key != NULL) s->spec.retry_key = sh_strdup(spec->retry_key);
    own->logit_bias_ids = copy(own->logit_bias_ids, biases, sizeof(int32_t));
    own->logit_bias = copy(own->logit_bias, biases, sizeof(float));
    s->spec.grammar.ptr = copy(spec->grammar.ptr, spec->grammar.len, 1);
}

static void answer_add(sh_replay_sequence *s, int32_t token)
{
    int32_t *ids = (int32_t *)s->spec.prompt;
    if (s->spec.prompt_count == s->prompt_cap) {
        s->prompt_cap += s->prompt_cap / 4 + 256;
        ids = sh_realloc_array(ids, s->prompt_cap, sizeof(*ids));
    }
    ids[s->spec.prompt_count++] = token;
    s->spec.prompt = ids;
    s->spec.answered++;
}

static sh_replay_sequence *sequence_create(sh_replay *r, const sh_sequence_spec *spec)
{
    sh_replay_sequence *s = sh_alloc(sizeof(*s));
    s->replay = r;
    s->model_hash = r->model_hash;
    s->deadline = spec->timeout_ms > 0 ? sh_deadline_in_ms(spec->timeout_ms) : SH_DEADLINE_NEVER;
    spec_copy(s, spec);
    s->prev = r->last;
    *(r->last == NULL ? &r->first : &r->last->next) = s;
    r->last = s;
    r->count++;
    return s;
}

static void trial_leave(sh_replay_sequence *s)
{
    if (!s->on_trial) return;
    s->on_trial = false;
    if (--s->replay->on_trial == 0) sh_trigger_start(s->replay->soon, 0);
}

static void sequence_free(sh_replay_sequence *s)
{
    sh_replay *r = s->replay;
    trial_leave(s);
    r->stats.held -= s->held;
    r->count--;
    *(s->prev == NULL ? &r->first : &s->prev->next) = s->next;
    *(s->next == NULL ? &r->last : &s->next->prev) = s->prev;
    free((void *)s->spec.prompt);
    free((void *)s->spec.stop_ids);
    free((void *)s->spec.retry_key);
    free((void *)s->spec.sampling.logit_bias_ids);
    free((void *)s->spec.sampling.logit_bias);
    free((void *)s->spec.grammar.ptr);
    free(s);
}

static void sequence_end(sh_replay_sequence *s, const sh_event *last)
{
    sh_engine_conn_event_fn fn = s->fn;
    void *arg = s->arg;
    sequence_free(s);
    fn(arg, last);
}

static void sequence_fail(sh_replay_sequence *s, const sh_err *why)
{
    sequence_end(s, &(sh_event){.kind = SH_EVENT_ERROR, .error = *why});
}

/* It had all it needs. */
static void cancelled_end(sh_replay_sequence *s)
{
    sequence_end(s, &(sh_event){.kind = SH_EVENT_DONE, .finish = SH_FINISH_CANCEL});
}

static bool is_absence(sh_status status)
{
    return status == SH_ERR_GROUP || status == SH_ERR_PEER;
}

static void sequence_hold(sh_replay_sequence *s, const sh_err *why)
{
    sh_replay *r = s->replay;
    s->held = true;
    s->why = *why;
    r->stats.held++;
    if (s->held_until == 0)
        s->held_until = r->limit_ms == SH_REPLAY_NO_LIMIT ? SH_DEADLINE_NEVER
                                                          : sh_deadline_in_ms(r->limit_ms);
}

/* The time that has passed counts against the request's limit. */
static sh_status sequence_send(sh_replay_sequence *s, sh_err *err)
{
    sh_replay *r = s->replay;
    if (s->deadline != SH_DEADLINE_NEVER) {
        int64_t left = sh_deadline_left_ms(s->deadline);
        s->spec.timeout_ms = left > 0 ? left : 1;
    }
    s->started = false;
    sh_status status = sh_engine_conn_submit(r->conn, &s->spec, on_event, s, &s->id, err);
    if (is_absence(status)) r->ready = false;
    return status;
}

sh_status sh_replay_submit(sh_replay *r, const sh_sequence_spec *spec, sh_engine_conn_event_fn fn,
                           void *arg, sh_replay_sequence **out, sh_err *err)
{
    if (r->stats.held >= HELD_MAX)
        return sh_err_set(err, SH_ERR_GROUP, "%d requests wait already for the group to re-form",
                          r->stats.held);
    sh_replay_sequence *s = sequence_create(r, spec);
    s->fn = fn;
    s->arg = arg;
    sh_status status = r->on_trial == 0 && (r->ready || !sh_replay_holds(r))
                           ? sequence_send(s, err)
                           : sh_err_set(err, SH_ERR_GROUP, "the group has not re-formed");
    if (status != SH_OK && (!is_absence(status) || !sh_replay_holds(r))) {
        sequence_free(s);
        return status;
    }
    if (status != SH_OK) sequence_hold(s, err);
    *out = s;
    return SH_OK;
}

void sh_replay_cancel(sh_replay_sequence *s)
{
    s->cancelled = true;
    if (s->held)
        sh_trigger_start(s->replay->soon, 0);
    else
        sh_engine_conn_cancel(s->replay->conn, s->id);
}

void sh_replay_forget(sh_replay_sequence *s)
{
    if (!s->held) {
        sh_engine_conn_forget(s->replay->conn, s->id);
        s->replay->lost++;
    }
    sequence_free(s);
}

/* The engine has started it, and it may have come further than ever before. */
static void progress(sh_replay_sequence *s, int reached)
{
    s->started = true;
    if (reached <= s->reached) return;
    s->reached = reached;
    s->losses = 0;
    s->held_until = 0;
    trial_leave(s);
}

/* A planned stop (CANCELLED) and a refusal (retry) say nothing about the sequence. */
static bool loss_count(sh_replay_sequence *s, const sh_event *event)
{
    if (!s->started || event->retry || event->error.status == SH_ERR_CANCELLED) return false;
    s->losses = s->reached > s->reached_before ? 1 : s->losses + 1;
    s->reached_before = s->reached;
    return true;
}

static void give_up(sh_replay_sequence *s, const sh_err *last)
{
    sh_err err;
    sh_err_set(&err, SH_ERR_SYSTEM,
               "the group was lost %d times in a row while it computed this request, the last time "
               "this one alone; it was given up: %s",
               s->losses, last->text);
    s->replay->stats.given_up++;
    sequence_fail(s, &err);
}

/* All sequences at the engine are lost together, each with an event of its own. Whether one was
 * alone is known here for those of this process; the engine knows of other clients. */
static void loss_take(sh_replay_sequence *s, const sh_event *event)
{
    sh_replay *r = s->replay;
    bool alone = r->count - r->stats.held == 1 && r->lost == 0 && event->running <= 1;
    bool tried = s->on_trial;
    bool counts = loss_count(s, event);
    r->lost += !event->retry;
    s->spec.replayed = s->spec.replayed || !event->retry;
    trial_leave(s);
    if (tried && counts && alone)
        give_up(s, &event->error);
    else
        sequence_hold(s, &event->error);
}

static void error_take(sh_replay_sequence *s, const sh_event *event)
{
    sh_status status = event->error.status;
    bool lost = is_absence(status) || status == SH_ERR_CANCELLED;
    if (lost) s->replay->ready = false;
    if (lost && s->cancelled) {
        s->replay->lost++;
        cancelled_end(s);
    } else if (lost && sh_replay_holds(s->replay))
        loss_take(s, event);
    else
        sequence_end(s, event);
}

static void on_event(void *arg, const sh_event *event)
{
    sh_replay_sequence *s = arg;
    switch (event->kind) {
    case SH_EVENT_PROGRESS: progress(s, event->computed); break;
    case SH_EVENT_PROMPT_TOKEN:
        s->spec.score_from++;
        s->fn(s->arg, event);
        break;
    case SH_EVENT_TOKEN:
        answer_add(s, event->token);
        progress(s, (int)s->spec.prompt_count);
        s->fn(s->arg, event);
        break;
    case SH_EVENT_DONE: sequence_end(s, event); break;
    case SH_EVENT_ERROR: error_take(s, event); break;
    case SH_EVENT_STATS: break;
    }
}

void sh_replay_ready(sh_replay *r, uint64_t model_hash)
{
    r->model_hash = model_hash;
    r->ready = true;
    if (r->stats.held > 0) sh_trigger_start(r->soon, 0);
}

/* Among those that are held: the most losses, if that makes a suspect, and how many have as many.
 */
static int suspects(const sh_replay *r, int *losses)
{
    int count = 0;
    *losses = SUSPECT;
    for (const sh_replay_sequence *s = r->first; s != NULL; s = s->next) {
        if (!s->held || s->losses < *losses) continue;
        if (s->losses > *losses) count = 0;
        *losses = s->losses;
        count++;
    }
    return count;
}

/* Submits a held sequence again. False when the engine is gone again. */
static bool sequence_replay(sh_replay_sequence *s)
{
    sh_replay *r = s->replay;
    sh_err err;
    if (s->model_hash != r->model_hash) {
        sh_err_set(&err, s->spec.answered == 0 ? SH_ERR_GROUP : SH_ERR_SYSTEM,
                   "the server was restarted with another model before this answer was complete");
        sequence_fail(s, &err);
        return true;
    }
    bool again = s->spec.replayed;
    s->spec.replayed = true; /* one that only waited here was accepted too */
    sh_status status = sequence_send(s, &err);
    if (is_absence(status)) s->spec.replayed = again;
    if (is_absence(status)) return false;
    s->held = false;
    r->stats.held--;
    r->stats.replays += again;
    if (status != SH_OK) sequence_fail(s, &err);
    return true;
}

/* The first held sequence with at least so many losses. Searched from the start each time, because
 * the end of one sequence may have freed any other. */
static sh_replay_sequence *held_first(const sh_replay *r, int losses)
{
    sh_replay_sequence *s = r->first;
    while (s != NULL && (!s->held || s->losses < losses)) s = s->next;
    return s;
}

static void trial_start(sh_replay *r, int losses, int count)
{
    r->lost = 0;
    for (sh_replay_sequence *s; count > 0 && (s = held_first(r, losses)) != NULL; count--) {
        s->on_trial = true;
        r->on_trial++;
        if (sequence_replay(s)) continue;
        trial_leave(s);
        return;
    }
}

static void replay_all(sh_replay *r)
{
    sh_replay_sequence *s;
    while ((s = held_first(r, 0)) != NULL && sequence_replay(s)) continue;
}

static sh_replay_sequence *held_cancelled(const sh_replay *r)
{
    sh_replay_sequence *s = r->first;
    while (s != NULL && !(s->held && s->cancelled)) s = s->next;
    return s;
}

static void on_soon(void *arg)
{
    sh_replay *r = arg;
    int losses;
    for (sh_replay_sequence *s; (s = held_cancelled(r)) != NULL;) cancelled_end(s);
    if (!r->ready || r->on_trial > 0) return;
    int count = suspects(r, &losses);
    if (count > 0)
        trial_start(r, losses, (count + 1) / 2);
    else
        replay_all(r);
}

void sh_replay_stop(sh_replay *r)
{
    r->limit_ms = 0;
    for (sh_replay_sequence *s; (s = held_first(r, 0)) != NULL;) {
        sh_err why = s->why;
        sequence_fail(s, &why);
    }
}

/* Why a held sequence has to end now. False: it may wait on. */
static bool expired(const sh_replay_sequence *s, sh_err *err)
{
    if (!s->held) return false;
    if (sh_deadline_passed(s->deadline))
        sh_err_set(err, SH_ERR_TIMEOUT, "timed out with %d tokens generated, waiting after: %s",
                   s->spec.answered, s->why.text);
    else if (sh_deadline_passed(s->held_until))
        sh_err_set(err, s->why.status, "%s; the group was not back within %.3g s", s->why.text,
                   (double)s->replay->limit_ms * 1e-3);
    else
        return false;
    return true;
}

void sh_replay_expire(sh_replay *r)
{
    sh_err err;
    for (sh_replay_sequence *s = r->first; s != NULL;) {
        if (!expired(s, &err)) {
            s = s->next;
            continue;
        }
        sequence_fail(s, &err);
        s = r->first;
    }
}
