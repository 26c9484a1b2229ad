/* An answer is recorded as the frames that a client would get (engine_messages.h), which is compact
 * and needs no second format. Its request grows with it: the tokens follow the prompt, so that a
 * sequence that was lost with its group can run again from where it was.
 *
 * Requests with a key are few, so they are in a plain list, the newest first. */
#include "engine/kept_answers.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 64 << 20 }; /* bytes of all records; complete ones make room */

typedef struct answer answer;
struct answer {
    answer *next;
    uint64_t id; /* under SH_KEPT_OWNER */
    sh_submit_message request;
    int32_t *ids; /* of the request, and the tokens since */
    size_t id_cap;
    int first;       /* tokens before the record: the request came with them */
    int score_first; /* the first of the prompt that the record reports */
    sh_buf record;   /* frames of the events with tokens, then the last event */
    bool running;    /* at the scheduler */
    bool complete;
    uint64_t owner, owner_id; /* the client; owner 0: there is none */
    sh_deadline expires;      /* when there is no client, or it is complete */
};

struct sh_kept_answers {
    sh_emit_fn emit;
    void *ctx;
    answer *list;
    int count;
    size_t bytes;
    uint64_t ids;
};

sh_kept_answers *sh_kept_create(sh_emit_fn emit, void *ctx)
{
    sh_kept_answers *k = sh_alloc(sizeof(*k));
    k->emit = emit;
    k->ctx = ctx;
    return k;
}

static void answer_remove(sh_kept_answers *k, answer *gone)
{
    answer **at = &k->list;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    k->count--;
    k->bytes -= gone->record.len + gone->id_cap * sizeof(*gone->ids) +
                gone->request.spec.grammar.len;
    sh_submit_message_reset(&gone->request);
    sh_buf_reset(&gone->record);
    free(gone->ids);
    free(gone);
}

void sh_kept_free(sh_kept_answers *k)
{
    if (k == NULL) return;
    while (k->list != NULL) answer_remove(k, k->list);
    free(k);
}

static answer *find_key(const sh_kept_answers *k, const char *key)
{
    answer *a = k->list;
    while (a != NULL && strcmp(a->request.spec.retry_key, key) != 0) a = a->next;
    return a;
}

static answer *find_client(const sh_kept_answers *k, uint64_t owner, uint64_t id)
{
    answer *a = k->list;
    while (a != NULL && (a->owner != owner || a->owner_id != id)) a = a->next;
    return a;
}

static void pass_on(const sh_kept_answers *k, const answer *a, sh_event *event)
{
    event->id = a->owner_id;
    if (a->owner != 0) k->emit(k->ctx, a->owner, event);
}

static void detach(answer *a)
{
    a->owner = 0;
    a->expires = sh_deadline_in_ms(SH_KEPT_MS);
}

/* Plays the record to the client, without the tokens that it has: the first `scored` of the prompt
 * and the first `known` of the answer. */
static void record_play(const sh_kept_answers *k, const answer *a, int scored, int known)
{
    sh_buf rest = a->record;
    sh_engine_msg_frame frame;
    sh_event event;
    sh_err ignored; /* we wrote the frames */
    while (sh_engine_msg_next(&rest, &frame, &ignored) == SH_OK &&
           sh_engine_msg_get_event(&frame, &event, &ignored) == SH_OK) {
        rest.ptr += frame.size;
        rest.len -= frame.size;
        int *has = event.kind == SH_EVENT_TOKEN ? &known : &scored;
        if (event.kind == SH_EVENT_DONE || (*has)-- <= 0) pass_on(k, a, &event);
    }
}

/* The newest client is the one that still waits. If the one before is still connected, its own
 * client has gone without a word. */
static void client_dismiss(const sh_kept_answers *k, const answer *a)
{
    sh_event moved = {.kind = SH_EVENT_ERROR};
    sh_err_set(&moved.error, SH_ERR_CONFLICT,
               "a later request with the same Idempotency-Key gets this answer");
    pass_on(k, a, &moved);
}

static void attach(const sh_kept_answers *k, answer *a, uint64_t owner,
                   const sh_sequence_spec *spec)
{
    client_dismiss(k, a);
    a->owner = owner;
    a->owner_id = spec->id;
    record_play(k, a, spec->score_from - a->score_first, spec->answered - a->first);
    if (a->complete) detach(a);
}

static answer *answer_create(sh_kept_answers *k, uint64_t owner, sh_submit_message *request)
{
    answer *a = sh_alloc(sizeof(*a));
    const sh_sequence_spec *spec = &a->request.spec;
    a->id = ++k->ids;
    a->owner = owner;
    a->owner_id = request->spec.id;
    a->request = *request;
    *request = (sh_submit_message){0};
    a->first = spec->answered;
    a->score_first = spec->score_from;
    a->id_cap = spec->prompt_count;
    a->ids = sh_alloc_array(a->id_cap, sizeof(*a->ids));
    memcpy(a->ids, spec->prompt, a->id_cap * sizeof(*a->ids));
    a->next = k->list;
    k->list = a;
    k->count++;
    k->bytes += a->id_cap * sizeof(*a->ids) + spec->grammar.len;
    return a;
}

static const sh_sequence_spec *run(answer *a)
{
    sh_sequence_spec *spec = &a->request.spec;
    a->running = true;
    spec->id = a->id;
    spec->prompt = a->ids;
    return spec;
}

/* The oldest complete answers make room. False when too many are under way. */
static bool room_make(sh_kept_answers *k)
{
    while (k->count >= SH_KEPT_MAX || k->bytes > RECORDS_MAX) {
        answer *oldest = NULL;
        for (answer *a = k->list; a != NULL; a = a->next)
            if (a->complete) oldest = a;
        if (oldest == NULL) return k->count < SH_KEPT_MAX;
        answer_remove(k, oldest);
    }
    return true;
}

/* Whether the record goes on from what the client has. It does not when an earlier engine gave the
 * beginning and the client has lost it: then it must be computed anew. */
static bool continues(const answer *a, const sh_sequence_spec *spec)
{
    const sh_sequence_spec *now = &a->request.spec;
    return spec->answered >= a->first && spec->answered <= now->answered &&
           spec->score_from >= a->score_first && spec->score_from <= now->score_from;
}

sh_status sh_kept_enter(sh_kept_answers *k, uint64_t owner, sh_submit_message *submit,
                        const sh_sequence_spec **out, uint64_t *cancel, sh_err *err)
{
    const sh_sequence_spec *spec = &submit->spec;
    answer *a = find_key(k, spec->retry_key);
    *out = NULL;
    *cancel = 0;
    if (a != NULL && a->request.spec.retry_body != spec->retry_body)
        return sh_err_set(err, SH_ERR_CONFLICT,
                          "this Idempotency-Key was used for another request in the last %d s",
                          SH_KEPT_MS / 1000);
    if (a != NULL && !continues(a, spec)) {
        *cancel = a->running ? a->id : 0;
        client_dismiss(k, a);
        answer_remove(k, a);
        a = NULL;
    }
    if (a == NULL && !room_make(k))
        return sh_err_set(err, SH_ERR_LIMIT, "too many requests with an Idempotency-Key are open");
    if (a == NULL) {
        *out = run(answer_create(k, owner, submit));
        return SH_OK;
    }
    attach(k, a, owner, spec);
    if (!a->complete && !a->running) {
        a->request.spec.replayed = true;
        a->request.spec.timeout_ms = spec->timeout_ms;
        *out = run(a);
    }
    sh_submit_message_reset(submit);
    return SH_OK;
}

static void token_record(sh_kept_answers *k, answer *a, int32_t token)
{
    sh_sequence_spec *spec = &a->request.spec;
    if (spec->prompt_count == a->id_cap) {
        size_t more = a->id_cap / 4 + 256;
        k->bytes += more * sizeof(*a->ids);
        a->id_cap += more;
        a->ids = sh_realloc_array(a->ids, a->id_cap, sizeof(*a->ids));
    }
    a->ids[spec->prompt_count++] = token;
    spec->answered++;
}

/* A request that failed for a reason of its own is not kept: the next try may succeed. One that was
 * lost with its group stays, to be run again. */
void sh_kept_event(sh_kept_answers *k, const sh_event *event)
{
    answer *a = k->list;
    sh_event copy = *event;
    while (a != NULL && a->id != event->id) a = a->next;
    if (a == NULL) return; /* replaced meanwhile */
    size_t before = a->record.len;
    if (event->kind == SH_EVENT_TOKEN) token_record(k, a, event->token);
    if (event->kind == SH_EVENT_PROMPT_TOKEN) a->request.spec.score_from++;
    if (event->kind != SH_EVENT_PROGRESS && event->kind != SH_EVENT_ERROR)
        sh_engine_msg_put_event(&a->record, event);
    k->bytes += a->record.len - before;
    pass_on(k, a, &copy);
    if (event->kind != SH_EVENT_DONE && event->kind != SH_EVENT_ERROR) return;
    a->running = false;
    a->complete = event->kind == SH_EVENT_DONE;
    detach(a);
    if (event->kind == SH_EVENT_ERROR && event->error.status != SH_ERR_GROUP) answer_remove(k, a);
}

uint64_t sh_kept_find(const sh_kept_answers *k, uint64_t owner, uint64_t id)
{
    const answer *a = find_client(k, owner, id);
    return a == NULL ? 0 : a->id;
}

void sh_kept_detach(sh_kept_answers *k, uint64_t owner, uint64_t id)
{
    answer *a = find_client(k, owner, id);
    if (a != NULL) detach(a);
}

void sh_kept_forget(sh_kept_answers *k, uint64_t owner)
{
    for (answer *a = k->list; a != NULL; a = a->next)
        if (a->owner == owner) detach(a);
}

uint64_t sh_kept_expire(sh_kept_answers *k)
{
    for (answer *a = k->list, *next; a != NULL; a = next) {
        next = a->next;
        if (a->owner != 0 || !sh_deadline_passed(a->expires)) continue;
        uint64_t running = a->running ? a->id : 0;
        answer_remove(k, a);
        if (running != 0) return running;
    }
    return 0;
}
