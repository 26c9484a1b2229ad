/* Packing and unpacking of the frames on the engine's socket. Pack and unpack functions come in
 * pairs and name the fields in the same order; that order is the protocol, and a change to it needs
 * a new SH_ENGINE_MSG_VERSION.
 *
 * A reader that runs past its end fails and returns zeros, so the get functions do not check each
 * field: sh_get_end() reports the failure once. Only counts are checked on the way, before they are
 * used as lengths. Numbers in the payload are not aligned; arrays are copied out in one block. */
#include "engine/engine_messages.h"

#include "base/alloc.h"
#include "base/pack.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 5, MAGIC = 0x4c414f48 }; /* "HOAL" */

/* Starts a frame and returns its offset; frame_close() fills in the length, which is not known
 * before the payload is written. */
static size_t frame_open(sh_buf *out, sh_engine_msg_type type)
{
    size_t at = out->len;
    sh_put_uint(out, 0, 4);
    sh_put_uint(out, (uint64_t)type, 1);
    return at;
}

static void frame_close(sh_buf *out, size_t at)
{
    size_t len = out->len - at - 4;
    SH_ASSERT(len <= SH_ENGINE_MSG_FRAME_MAX);
    for (int i = 0; i < 4; i++) out->ptr[at + (size_t)i] = (char)(len >> (8 * i));
}

sh_status sh_engine_msg_next(const sh_buf *buf, sh_engine_msg_frame *frame, sh_err *err)
{
    /* Length and type are checked as soon as they are there: a stream that is not ours must fail at
     * once instead of waiting for up to 4 GiB that never come. */
    if (buf->len < HEAD) return SH_AGAIN;
    sh_reader r = sh_reader_of(sh_buf_str(buf));
    size_t len = (size_t)sh_get_uint(&r, 4);
    unsigned type = (unsigned)sh_get_uint(&r, 1);
    if (len < 1 || len > SH_ENGINE_MSG_FRAME_MAX || type < SH_ENGINE_MSG_HELLO ||
        type > SH_ENGINE_MSG_STATS)
        return sh_err_set(err, SH_ERR_INPUT, "engine socket: invalid frame (type %u, %zu bytes)",
                          type, len);
    if (r.left < len - 1) return SH_AGAIN;
    *frame = (sh_engine_msg_frame){
        .type = (sh_engine_msg_type)type, .payload = {r.ptr, len - 1}, .size = len + 4};
    return SH_OK;
}

void sh_engine_msg_put_hello(sh_buf *out)
{
    size_t at = frame_open(out, SH_ENGINE_MSG_HELLO);
    sh_put_uint(out, MAGIC, 4);
    sh_put_uint(out, SH_ENGINE_MSG_VERSION, 4);
    frame_close(out, at);
}

sh_status sh_engine_msg_get_hello(sh_str payload, sh_err *err)
{
    sh_reader r = sh_reader_of(payload);
    uint64_t magic = sh_get_uint(&r, 4), version = sh_get_uint(&r, 4);
    sh_status status = sh_get_end(&r, "hello", err);
    if (status != SH_OK) return status;
    if (magic != MAGIC)
        return sh_err_set(err, SH_ERR_INPUT, "engine socket: the peer is not a Shoal client");
    if (version != SH_ENGINE_MSG_VERSION)
        return sh_err_set(err, SH_ERR_INPUT,
                          "engine socket: the client speaks protocol version %llu, this engine %d",
                          (unsigned long long)version, SH_ENGINE_MSG_VERSION);
    return SH_OK;
}

/* The order of these numbers is the order on the wire. */
static void put_sampling(sh_buf *out, const sh_sampling *s)
{
    const double numbers[] = {
        s->temperature,      s->top_p, s->min_p, s->repetition_penalty, s->presence_penalty,
        s->frequency_penalty};
    for (size_t i = 0; i < SH_COUNT_OF(numbers); i++) sh_put_double(out, numbers[i]);
    sh_put_uint(out, (uint32_t)s->top_k, 4);
    sh_put_uint(out, (uint32_t)s->repetition_window, 4);
    sh_put_uint(out, s->seed, 8);
    sh_put_uint(out, (uint32_t)s->logit_bias_count, 4);
    sh_put_ints(out, s->logit_bias_ids, (size_t)s->logit_bias_count);
    sh_put_floats(out, s->logit_bias, (size_t)s->logit_bias_count);
}

void sh_engine_msg_put_submit(sh_buf *out, const sh_sequence_spec *q)
{
    size_t at = frame_open(out, SH_ENGINE_MSG_SUBMIT);
    sh_put_uint(out, q->id, 8);
    sh_put_uint(out, q->client, 8);
    sh_put_uint(out, (uint64_t)q->timeout_ms, 8);
    sh_put_text(out, sh_str_of(q->retry_key));
    sh_put_uint(out, q->retry_body, 8);
    sh_put_uint(out, (uint32_t)q->answered, 4);
    sh_put_uint(out, (uint32_t)q->score_from, 4);
    sh_put_uint(out, q->replayed, 1);
    sh_put_uint(out, q->pooled, 1);
    sh_put_uint(out, (uint32_t)q->second, 4);
    sh_put_uint(out, (uint32_t)q->max_tokens, 4);
    sh_put_uint(out, (uint32_t)q->min_tokens, 4);
    sh_put_uint(out, (uint32_t)q->logprobs, 4);
    sh_put_uint(out, (uint32_t)q->reasoning_max, 4);
    sh_put_uint(out, (uint32_t)q->reasoning_begin, 4);
    sh_put_uint(out, (uint32_t)q->reasoning_end, 4);
    sh_put_uint(out, q->reasoning_begun, 1);
    sh_put_uint(out, (uint32_t)q->stop_id_count, 4);
    sh_put_ints(out, q->stop_ids, (size_t)q->stop_id_count);
    put_sampling(out, &q->sampling);
    sh_put_text(out, q->grammar);
    sh_put_uint(out, q->prompt_count, 4);
    sh_put_ints(out, q->prompt, q->prompt_count);
    frame_close(out, at);
}

/* The arrays of a spec, still in the payload and not aligned. */
struct arrays {
    const void *stop_ids, *bias_ids, *bias, *prompt;
    sh_str retry_key, grammar;
};

static void get_sampling(sh_reader *r, sh_sampling *s, struct arrays *a)
{
    s->temperature = sh_get_double(r);
    s->top_p = sh_get_double(r);
    s->min_p = sh_get_double(r);
    s->repetition_penalty = sh_get_double(r);
    s->presence_penalty = sh_get_double(r);
    s->frequency_penalty = sh_get_double(r);
    s->top_k = sh_get_int(r);
    s->repetition_window = sh_get_int(r);
    s->seed = sh_get_uint(r, 8);
    s->logit_bias_count = sh_get_int(r);
    if (s->logit_bias_count < 0 || s->logit_bias_count > SH_LOGIT_BIAS_MAX) r->failed = true;
    a->bias_ids = sh_get_array(r, (size_t)s->logit_bias_count, sizeof(int32_t));
    a->bias = sh_get_array(r, (size_t)s->logit_bias_count, sizeof(float));
}

static void get_request(sh_reader *r, sh_sequence_spec *q, struct arrays *a)
{
    q->id = sh_get_uint(r, 8);
    q->client = sh_get_uint(r, 8);
    q->timeout_ms = (int64_t)sh_get_uint(r, 8);
    a->retry_key = sh_get_text(r);
    if (a->retry_key.len > SH_RETRY_KEY_MAX ||
        (a->retry_key.len > 0 && memchr(a->retry_key.ptr, '\0', a->retry_key.len) != NULL))
        r->failed = true;
    q->retry_body = sh_get_uint(r, 8);
    q->answered = sh_get_int(r);
    q->score_from = sh_get_int(r);
    q->replayed = sh_get_uint(r, 1) != 0;
    q->pooled = sh_get_uint(r, 1) != 0;
    q->second = sh_get_int(r);
    q->max_tokens = sh_get_int(r);
    q->min_tokens = sh_get_int(r);
    q->logprobs = sh_get_int(r);
    q->reasoning_max = sh_get_int(r);
    q->reasoning_begin = sh_get_int(r);
    q->reasoning_end = sh_get_int(r);
    q->reasoning_begun = sh_get_uint(r, 1) != 0;
    q->stop_id_count = sh_get_int(r);
    if (q->stop_id_count < 0 || q->stop_id_count > SH_STOP_IDS_MAX) r->failed = true;
    a->stop_ids = sh_get_array(r, (size_t)q->stop_id_count, sizeof(int32_t));
    get_sampling(r, &q->sampling, a);
    a->grammar = sh_get_text(r);
    if (a->grammar.len > SH_GRAMMAR_PACKED_MAX) r->failed = true;
    q->prompt_count = (size_t)sh_get_uint(r, 4);
    a->prompt = sh_get_array(r, q->prompt_count, sizeof(int32_t));
}

/* Copies an array to *at and advances it. */
static char *place(char **at, const void *data, size_t len)
{
    char *to = *at;
    if (len > 0) memcpy(to, data, len);
    *at += len;
    return to;
}

sh_status sh_engine_msg_get_submit(sh_str payload, sh_submit_message *out, sh_err *err)
{
    sh_submit_message got = {0};
    sh_sequence_spec *q = &got.spec;
    struct arrays a = {0};
    sh_reader r = sh_reader_of(payload);
    get_request(&r, q, &a);
    sh_status status = sh_get_end(&r, "submit", err);
    if (status != SH_OK) {
        *out = (sh_submit_message){.spec.id = q->id};
        return status;
    }
    /* One allocation: the arrays have elements of 4 bytes and so are aligned, bytes come last. */
    size_t word = sizeof(int32_t), stops = (size_t)q->stop_id_count * word;
    size_t biases = (size_t)q->sampling.logit_bias_count * word, prompt = q->prompt_count * word;
    char *at = got.memory = sh_alloc(stops + 2 * biases + prompt + a.grammar.len + a.retry_key.len +
                                     1);
    q->stop_ids = (const int32_t *)(void *)place(&at, a.stop_ids, stops);
    q->sampling.logit_bias_ids = (const int32_t *)(void *)place(&at, a.bias_ids, biases);
    q->sampling.logit_bias = (const float *)(void *)place(&at, a.bias, biases);
    q->prompt = (const int32_t *)(void *)place(&at, a.prompt, prompt);
    q->grammar = (sh_str){place(&at, a.grammar.ptr, a.grammar.len), a.grammar.len};
    q->retry_key = place(&at, a.retry_key.ptr, a.retry_key.len);
    *at = '\0';
    *out = got;
    return SH_OK;
}

void sh_submit_message_reset(sh_submit_message *submit)
{
    free(submit->memory);
    *submit = (sh_submit_message){0};
}

static void put_id(sh_buf *out, sh_engine_msg_type type, uint64_t id)
{
    size_t at = frame_open(out, type);
    sh_put_uint(out, id, 8);
    frame_close(out, at);
}

void sh_engine_msg_put_cancel(sh_buf *out, uint64_t id)
{
    put_id(out, SH_ENGINE_MSG_CANCEL, id);
}

void sh_engine_msg_put_detach(sh_buf *out, uint64_t id)
{
    put_id(out, SH_ENGINE_MSG_DETACH, id);
}

sh_status sh_engine_msg_get_id(sh_str payload, uint64_t *id, sh_err *err)
{
    sh_reader r = sh_reader_of(payload);
    uint64_t got = sh_get_uint(&r, 8);
    sh_status status = sh_get_end(&r, "the id of a request", err);
    if (status == SH_OK) *id = got;
    return status;
}

void sh_engine_msg_put_ask_stats(sh_buf *out)
{
    frame_close(out, frame_open(out, SH_ENGINE_MSG_ASK_STATS));
}

void sh_engine_msg_put_dismiss(sh_buf *out, uint64_t ranks)
{
    size_t at = frame_open(out, SH_ENGINE_MSG_DISMISS);
    sh_put_uint(out, ranks, 8);
    frame_close(out, at);
}

void sh_engine_msg_put_info(sh_buf *out, const sh_engine_info *info)
{
    size_t at = frame_open(out, SH_ENGINE_MSG_INFO);
    sh_put_text(out, sh_str_of(info->model_dir));
    sh_put_uint(out, (uint32_t)info->vocab, 4);
    sh_put_uint(out, (uint32_t)info->context, 4);
    sh_put_uint(out, (uint32_t)info->world_size, 4);
    sh_put_uint(out, info->ready, 1);
    sh_put_uint(out, info->model_hash, 8);
    sh_put_uint(out, info->headless, 1);
    sh_put_uint(out, (uint32_t)info->vector_len, 4);
    sh_put_uint(out, info->scores, 1);
    sh_put_uint(out, info->normalized, 1);
    frame_close(out, at);
}

sh_status sh_engine_msg_get_info(sh_str payload, sh_engine_info *out, sh_err *err)
{
    sh_reader r = sh_reader_of(payload);
    sh_str dir = sh_get_text(&r);
    sh_engine_info info = {.vocab = sh_get_int(&r), .context = sh_get_int(&r)};
    info.world_size = sh_get_int(&r);
    info.ready = sh_get_uint(&r, 1) != 0;
    info.model_hash = sh_get_uint(&r, 8);
    info.headless = sh_get_uint(&r, 1) != 0;
    info.vector_len = sh_get_int(&r);
    info.scores = sh_get_uint(&r, 1) != 0;
    info.normalized = sh_get_uint(&r, 1) != 0;
    sh_status status = sh_get_end(&r, "info", err);
    if (status != SH_OK) return status;
    info.model_dir = sh_str_dup(dir);
    *out = info;
    return SH_OK;
}

static void put_token(sh_buf *out, const sh_event *e)
{
    sh_put_uint(out, (uint32_t)e->token, 4);
    sh_put_floats(out, &e->logprob, 1);
    sh_put_uint(out, (uint64_t)e->top_count, 1);
    for (int i = 0; i < e->top_count; i++) {
        sh_put_uint(out, (uint32_t)e->top[i].id, 4);
        sh_put_floats(out, &e->top[i].logprob, 1);
    }
}

static void put_done(sh_buf *out, const sh_event *e)
{
    sh_put_uint(out, (uint64_t)e->finish, 1);
    sh_put_uint(out, (uint32_t)e->prompt_tokens, 4);
    sh_put_uint(out, (uint32_t)e->cached_tokens, 4);
    sh_put_uint(out, (uint32_t)e->completion_tokens, 4);
    sh_put_double(out, e->queue_s);
    sh_put_double(out, e->prefill_s);
    sh_put_double(out, e->decode_s);
    sh_put_uint(out, (uint32_t)e->vector_len, 4);
    sh_put_floats(out, e->vector, (size_t)e->vector_len);
}

static const sh_engine_msg_type event_types[] = {
    [SH_EVENT_PROGRESS] = SH_ENGINE_MSG_PROGRESS,
    [SH_EVENT_PROMPT_TOKEN] = SH_ENGINE_MSG_PROMPT_TOKEN,
    [SH_EVENT_TOKEN] = SH_ENGINE_MSG_TOKEN,
    [SH_EVENT_DONE] = SH_ENGINE_MSG_DONE,
    [SH_EVENT_ERROR] = SH_ENGINE_MSG_ERROR,
    [SH_EVENT_STATS] = SH_ENGINE_MSG_STATS,
};

void sh_engine_msg_put_event(sh_buf *out, const sh_event *e)
{
    size_t at = frame_open(out, event_types[e->kind]);
    sh_put_uint(out, e->id, 8);
    switch (e->kind) {
    case SH_EVENT_PROGRESS: sh_put_uint(out, (uint32_t)e->computed, 4); break;
    case SH_EVENT_PROMPT_TOKEN:
    case SH_EVENT_TOKEN: put_token(out, e); break;
    case SH_EVENT_DONE: put_done(out, e); break;
    case SH_EVENT_ERROR:
        sh_put_uint(out, (uint32_t)e->error.status, 4);
        sh_put_uint(out, e->retry, 1);
        sh_put_uint(out, (uint32_t)e->running, 4);
        sh_put_text(out, sh_str_of(e->error.text));
        break;
    case SH_EVENT_STATS: sh_put_text(out, e->stats); break;
    }
    frame_close(out, at);
}

static float get_float(sh_reader *r)
{
    float value = 0;
    const void *bytes = sh_get_array(r, 1, sizeof(value));
    if (bytes != NULL) memcpy(&value, bytes, sizeof(value));
    return value;
}

static void get_token(sh_reader *r, sh_event *e)
{
    e->token = sh_get_int(r);
    e->logprob = get_float(r);
    e->top_count = (int)sh_get_uint(r, 1);
    if (e->top_count > SH_TOP_LOGPROBS_MAX) r->failed = true;
    for (int i = 0; !r->failed && i < e->top_count; i++) {
        e->top[i].id = sh_get_int(r);
        e->top[i].logprob = get_float(r);
    }
}

static void get_done(sh_reader *r, sh_event *e)
{
    unsigned finish = (unsigned)sh_get_uint(r, 1);
    if (finish > SH_FINISH_CANCEL) r->failed = true;
    e->finish = (sh_finish)finish;
    e->prompt_tokens = sh_get_int(r);
    e->cached_tokens = sh_get_int(r);
    e->completion_tokens = sh_get_int(r);
    e->queue_s = sh_get_double(r);
    e->prefill_s = sh_get_double(r);
    e->decode_s = sh_get_double(r);
    e->vector_len = sh_get_int(r);
    if (e->vector_len < 0) r->failed = true;
    e->vector = r->failed ? NULL : sh_get_array(r, (size_t)e->vector_len, sizeof(float));
}

/* The status must be one of the known errors: it selects the HTTP status of the reply. */
static void get_error(sh_reader *r, sh_event *e)
{
    int status = sh_get_int(r);
    e->retry = sh_get_uint(r, 1) != 0;
    e->running = sh_get_int(r);
    sh_str text = sh_get_text(r);
    if (status >= 0 || status < SH_ERR_CONFLICT)
        r->failed = true;
    else
        sh_err_set(&e->error, (sh_status)status, "%.*s", (int)text.len, text.ptr);
}

sh_status sh_engine_msg_get_event(const sh_engine_msg_frame *frame, sh_event *out, sh_err *err)
{
    sh_reader r = sh_reader_of(frame->payload);
    sh_event e = {.id = sh_get_uint(&r, 8)};
    switch (frame->type) {
    case SH_ENGINE_MSG_PROGRESS: e.kind = SH_EVENT_PROGRESS, e.computed = sh_get_int(&r); break;
    case SH_ENGINE_MSG_PROMPT_TOKEN: e.kind = SH_EVENT_PROMPT_TOKEN, get_token(&r, &e); break;
    case SH_ENGINE_MSG_TOKEN: e.kind = SH_EVENT_TOKEN, get_token(&r, &e); break;
    case SH_ENGINE_MSG_DONE: e.kind = SH_EVENT_DONE, get_done(&r, &e); break;
    case SH_ENGINE_MSG_ERROR: e.kind = SH_EVENT_ERROR, get_error(&r, &e); break;
    case SH_ENGINE_MSG_STATS: e.kind = SH_EVENT_STATS, e.stats = sh_get_text(&r); break;
    default:
        return sh_err_set(err, SH_ERR_INPUT, "engine socket: frame type %d is not an event",
                          (int)frame->type);
    }
    sh_status status = sh_get_end(&r, "event", err);
    if (status == SH_OK) *out = e;
    return status;
}
