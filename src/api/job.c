/* One request to the model, from its body to the last byte of its answer.
 *
 * A job has three stages: the body becomes token ids (on the worker if it is long) and, if the
 * answer has a form, a grammar (always on a worker, unless it is known), each choice is submitted
 * (to the replay, which talks to the engine), and the events become the answer. It ends when all
 * choices are done, when one fails, or when the client disconnects, which cancels it at the engine.
 * Each of these ends is recorded once (job_record) and frees the job.
 *
 * While the worker has the job (on_worker), the spec, the prompts and the error belong to it. If
 * the client disconnects meanwhile, only `req` and `gone` are set, and on_ready() frees the job.
 * The body is copied for the worker because the request's memory goes with the client.
 *
 * Back-pressure: when a client reads slowly, its stream is not written to; output accumulates in
 * the choices, bounded by the length of the answer, and goes out when the socket has drained. The
 * engine is not slowed down. */
#include "api/api_internal.h"
#include "api/form.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A choice's sequence at the engine. */
typedef struct {
    sh_job *job;
    sh_choice *choice;
    sh_replay_sequence *run; /* NULL: it has ended */
    int64_t token_ns;        /* time of its last token */
} job_sequence;

struct sh_job {
    sh_api *api;
    sh_job *prev, *next;
    sh_http_request *req; /* NULL: the client is gone */
    atomic_bool gone;     /* the same, readable by the worker, which can then skip its work */
    const sh_job_format *format;
    const sh_field_table *fields; /* of the body */
    sh_model_waiter turn;         /* for its model, which is known once the body was read */
    sh_served_model *served;      /* NULL until the model can be used */
    sh_str body;
    char *body_copy; /* for the worker */
    bool on_worker;
    bool must_compile; /* the answer has a form whose grammar is not known yet */

    sh_job_spec spec;
    size_t json_values; /* of the body */
    sh_tokens *prompts;
    size_t prompt_count;
    sh_buf grammar; /* what the answer must match; empty: anything */
    bool refused;
    sh_api_error error;

    sh_answer *answer;
    job_sequence *sequences;
    int submitted;  /* choices that the engine has been asked for */
    bool head_sent; /* the stream's status and headers */
    bool begun;     /* and what comes before its first part */
    int64_t sent_ns;

    char id[72];
    char key_name[SH_KEY_NAME_MAX + 1];
    sh_quota *quota; /* of that key; or NULL */
    uint64_t client;
    int64_t start_ns, time_us, first_ns;
    int64_t waited_ms; /* for its model */
    int max_tokens;
    char retry_key[SH_RETRY_KEY_MAX]; /* "": the client sent no Idempotency-Key */
    uint64_t retry_body;
};

static double seconds_since(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

/* Also cancels what is still running at the engine; none of its events will reach the job. */
static void job_free(sh_job *job)
{
    sh_api *api = job->api;
    for (int i = 0; job->answer != NULL && i < job->answer->count; i++)
        if (job->sequences[i].run != NULL) sh_replay_forget(job->sequences[i].run);
    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        api->jobs = job->next;
    if (job->next != NULL) job->next->prev = job->prev;
    api->job_count--;
    if (job->answer != NULL && job->format->state_reset != NULL && job->answer->state != NULL)
        job->format->state_reset(job->answer->state);
    sh_answer_free(job->answer);
    sh_api_parsed_free(api, job->spec.json, job->json_values);
    job->spec.json = NULL;
    sh_job_spec_reset(&job->spec);
    sh_served_model_close(job->served);
    sh_model_release(&job->turn);
    free(job->sequences);
    free(job->body_copy);
    sh_buf_reset(&job->grammar);
    free(job);
}

/* Counts, keeps and logs a request. Each goes through here exactly once. */
static void record_take(sh_api *api, const sh_record *record)
{
    sh_history_add(api->history, record);
    sh_metrics_record(api->metrics, record);
    if (api->request_log == NULL) return;
    sh_buf line = {0};
    sh_json_writer w = sh_json_writer_on(&line);
    sh_record_write(record, NULL, &w);
    fprintf(api->request_log, "%s\n", line.ptr);
    sh_buf_reset(&line);
}

static const char *model_name(const sh_job *job)
{
    const char *name = job->served != NULL       ? sh_served_model_name(job->served)
                       : job->turn.model != NULL ? sh_model_name(job->turn.model)
                                                 : NULL;
    return name == NULL ? "" : name;
}

static void job_record(sh_job *job, sh_outcome outcome, int http_status, const char *error)
{
    int64_t now = sh_clock_ns();
    sh_record record = {
        .time_us = job->time_us,
        .kind = job->format->kind,
        .outcome = outcome,
        .http_status = http_status,
        .stream = !job->on_worker && job->spec.stream, /* the worker may be writing spec */
        .max_tokens = job->max_tokens,
        .wall_s = seconds_since(job->start_ns, now),
        .first_token_s = job->first_ns == 0 ? 0 : seconds_since(job->start_ns, job->first_ns),
    };
    snprintf(record.id, sizeof(record.id), "%s", job->id);
    snprintf(record.model, sizeof(record.model), "%s", model_name(job));
    snprintf(record.key, sizeof(record.key), "%s", job->key_name);
    snprintf(record.error, sizeof(record.error), "%s", error);
    if (job->answer != NULL) {
        sh_usage usage = sh_answer_usage(job->answer);
        sh_quota_charge(job->quota, 0, usage.completion_tokens);
        if (job->answer->count > 0) record.finish = job->answer->choices[0].finish;
        record.prompt_tokens = usage.prompt_tokens;
        record.cached_tokens = usage.cached_tokens;
        record.generated_tokens = usage.completion_tokens;
        record.queue_s = usage.queue_s;
        record.prefill_s = usage.prefill_s;
        record.decode_s = usage.decode_s;
    }
    record_take(job->api, &record);
}

/* A refused request cost the model nothing and must not count in its speeds and error rate. */
static sh_outcome outcome_of(const sh_job *job, const sh_api_error *error)
{
    if (error->status == 504) return SH_OUTCOME_TIMEOUT;
    return error->status < 500 && job->first_ns == 0 ? SH_OUTCOME_REFUSED : SH_OUTCOME_ERROR;
}

static void answer_ended(const sh_job *job, const sh_api_error *error)
{
    if (job->answer != NULL && job->format->ended != NULL) job->format->ended(job->answer, error);
}

/* The headers wait for the first part, so that an error before it can still be an HTTP status. To
 * be called before a part is made, since the dialect may count what it has written. A stream that
 * waits for its model has headers, but has not begun. */
static void stream_start(sh_job *job)
{
    sh_buf out = {0};
    if (!job->head_sent) sh_api_stream_start(job->req, job->format->framing->content_type);
    job->head_sent = true;
    if (job->begun || job->answer == NULL) return;
    job->begun = true;
    if (job->format->begin == NULL) return;
    job->format->begin(job->answer, &out);
    sh_http_stream_write(job->req, sh_buf_str(&out));
    sh_buf_reset(&out);
}

static void stream_write(sh_job *job, sh_buf *out)
{
    if (out->len == 0) return; /* a part that the dialect has no form for: the stream stays quiet */
    sh_http_stream_write(job->req, sh_buf_str(out));
    job->sent_ns = sh_clock_ns();
}

/* An answer without choices has no use for the model. */
static sh_status answer_make(sh_job *job, sh_err *err)
{
    sh_status status = sh_answer_create(&job->spec, job->served, job->prompts, job->prompt_count,
                                        &job->answer, err);
    if (status != SH_OK) return status;
    job->answer->model = model_name(job);
    snprintf(job->answer->id, sizeof(job->answer->id), "%s%s", job->format->id_prefix,
             strncmp(job->id, "req_", 4) == 0 ? job->id + 4 : job->id);
    job->answer->state = sh_alloc(job->format->state_size);
    job->answer->created_s = job->time_us / 1000000;
    job->sequences = sh_alloc_array((size_t)job->answer->count, sizeof(job_sequence));
    return SH_OK;
}

/* The error of a stream, as a part of it. */
static void stream_fail(sh_job *job, const sh_api_error *error)
{
    sh_buf out = {0};
    sh_err err;
    if (job->answer != NULL || answer_make(job, &err) == SH_OK)
        job->format->fail(job->answer, error, &out);
    sh_http_stream_write(job->req, sh_buf_str(&out));
    sh_http_stream_end(job->req);
    sh_buf_reset(&out);
}

/* Ends the job with an error: an HTTP status if nothing was sent yet, else a part of the stream. */
static void job_fail(sh_job *job, const sh_api_error *error)
{
    int status = sh_api_dialect_of(job->req)->error_status(error);
    job_record(job, outcome_of(job, error), status, error->message);
    /* Errors of the client and timeouts are in the request log; only ours go to the main log. */
    if (error->status >= 500 && error->status != 504)
        SH_LOGW("request %s: %s", job->id, error->message);
    if (job->head_sent)
        stream_fail(job, error);
    else
        sh_api_reply_error(job->req, error);
    answer_ended(job, error);
    job_free(job);
}

static void on_gone(void *arg)
{
    sh_job *job = arg;
    job->req = NULL;
    atomic_store_explicit(&job->gone, true, memory_order_relaxed);
    job_record(job, SH_OUTCOME_CANCELLED, 499, "the client disconnected");
    if (job->on_worker) return; /* on_ready() frees it */
    sh_api_error error;
    sh_api_fail(&error, 499, "cancelled", NULL, "the client disconnected");
    answer_ended(job, &error);
    job_free(job);
}

/* Sends the pending output of a choice, unless the client reads too slowly. The last output of the
 * answer is sent in any case. */
static void choice_send(sh_job *job, sh_choice *choice)
{
    if (choice->over || (!sh_choice_has_pending(choice) && !choice->done)) return;
    if (job->head_sent && sh_http_stream_blocked(job->req) && job->answer->open > 0) return;
    sh_buf out = {0};
    stream_start(job);
    job->format->part(job->answer, choice, &out);
    sh_choice_sent(choice);
    stream_write(job, &out);
    sh_buf_reset(&out);
}

static void on_drained(void *arg)
{
    sh_job *job = arg;
    for (int i = 0; job->answer != NULL && i < job->answer->count; i++)
        choice_send(job, &job->answer->choices[i]);
}

static void job_finish(sh_job *job)
{
    sh_buf out = {0};
    job->answer->seconds = seconds_since(job->start_ns, sh_clock_ns());
    job_record(job, SH_OUTCOME_OK, 200, "");
    if (job->spec.stream) {
        for (int i = 0; i < job->answer->count; i++) choice_send(job, &job->answer->choices[i]);
        stream_start(job);
        job->format->end(job->answer, &out);
        stream_write(job, &out);
        sh_http_stream_end(job->req);
    } else {
        job->format->whole(job->answer, &out);
        sh_api_reply_json(job->req, 200, &out);
    }
    sh_buf_reset(&out);
    answer_ended(job, NULL);
    job_free(job);
}

/* Writing numbers takes longer than anything else here, so it is not left for the end. */
static void vector_write(sh_job *job, sh_choice *choice)
{
    if (choice->vector == NULL || job->format->part == NULL) return;
    job->format->part(job->answer, choice, &choice->content);
    free(choice->vector);
    choice->vector = NULL;
}

static void token_time(job_sequence *sequence)
{
    int64_t now = sh_clock_ns();
    if (sequence->job->first_ns == 0) sequence->job->first_ns = now;
    if (sequence->token_ns != 0)
        sh_metrics_token_gap(sequence->job->api->metrics, seconds_since(sequence->token_ns, now));
    sequence->token_ns = now;
}

static sh_status choices_submit(sh_job *job, sh_err *err);

/* A vector has come: writes it, where the dialect writes them one by one, and asks for the next. */
static void vector_next(sh_job *job, sh_choice *choice)
{
    sh_err err;
    vector_write(job, choice);
    if (choices_submit(job, &err) == SH_OK) return;
    sh_api_error error = sh_api_error_of(&err, false);
    job_fail(job, &error);
}

/* One event of one choice. Failing or finishing frees the job, so nothing may follow. */
static void on_event(void *arg, const sh_event *event)
{
    job_sequence *sequence = arg;
    sh_job *job = sequence->job;
    sh_choice *choice = sequence->choice;
    if (event->kind == SH_EVENT_PROMPT_TOKEN) {
        /* It is sent with the first token of the answer. */
        sh_answer_event(job->answer, choice, event);
        return;
    }
    if (event->kind == SH_EVENT_TOKEN)
        token_time(sequence);
    else
        sequence->run = NULL;
    if (sh_answer_event(job->answer, choice, event)) sh_replay_cancel(sequence->run);
    if (choice->failed) {
        sh_api_error error = choice->error; /* a copy: job_fail() frees the choice */
        job_fail(job, &error);
    } else if (job->answer->open == 0) {
        vector_write(job, choice);
        job_finish(job);
    } else if (job->spec.pooled) {
        vector_next(job, choice);
    } else if (job->spec.stream) {
        choice_send(job, choice);
    }
}

sh_api_sampling sh_api_sampling_of(const sh_api *api, const sh_served_model *served)
{
    sh_sampling_recommended model = sh_model_text_sampling(sh_served_model_text(served));
    sh_api_sampling out = {.temperature = model.temperature,
                           .top_p = model.top_p,
                           .repetition_penalty = model.repetition_penalty,
                           .top_k = model.top_k,
                           .seed = -1};
    const sh_model_defaults *defined = sh_served_model_defaults(served);
    if (!isnan(defined->temperature)) out.temperature = defined->temperature;
    if (!isnan(defined->top_p)) out.top_p = defined->top_p;
    if (!isnan(defined->min_p)) out.min_p = defined->min_p;
    if (!isnan(defined->repetition_penalty)) out.repetition_penalty = defined->repetition_penalty;
    if (defined->top_k >= 0) out.top_k = defined->top_k;
    out.seed = defined->seed;
    const sh_api_sampling *given = api->opts->sampling;
    if (given == NULL) return out;
    if (!isnan(given->temperature)) out.temperature = given->temperature;
    if (!isnan(given->top_p)) out.top_p = given->top_p;
    if (!isnan(given->min_p)) out.min_p = given->min_p;
    if (!isnan(given->repetition_penalty)) out.repetition_penalty = given->repetition_penalty;
    if (given->top_k >= 0) out.top_k = given->top_k;
    if (given->seed >= 0) out.seed = given->seed;
    return out;
}

int64_t sh_api_max_tokens_of(const sh_api *api, const sh_served_model *served)
{
    int64_t defined = sh_served_model_defaults(served)->max_tokens;
    return api->opts->max_tokens > 0 ? api->opts->max_tokens : defined > 0 ? defined : 0;
}

/* The request's values, else the server's or the model's. Each choice has its own seed, or they
 * would all be the same. */
static sh_sampling sampling_of(const sh_job *job, int choice)
{
    const sh_job_spec *spec = &job->spec;
    sh_api_sampling own = sh_api_sampling_of(job->api, job->served);
    sh_sampling s = sh_sampling_default();
    if (spec->pooled) return s;
    s.temperature = isnan(spec->temperature) ? own.temperature : spec->temperature;
    s.top_p = isnan(spec->top_p) ? own.top_p : spec->top_p;
    s.top_k = (int)(spec->top_k < 0 ? own.top_k : spec->top_k);
    s.min_p = isnan(spec->min_p) ? own.min_p : spec->min_p;
    s.repetition_penalty = isnan(spec->repetition_penalty) ? own.repetition_penalty
                                                           : spec->repetition_penalty;
    s.repetition_window = (int)spec->repetition_window;
    s.presence_penalty = spec->presence_penalty;
    s.frequency_penalty = spec->frequency_penalty;
    s.seed = (uint64_t)spec->seed + (uint64_t)choice;
    s.logit_bias_count = spec->bias_count;
    s.logit_bias_ids = spec->bias_ids;
    s.logit_bias = spec->bias;
    return s;
}

/* Each of the two kinds fills at most half of the array: readers and model_text.h refuse more. */
_Static_assert(SH_END_IDS_MAX <= SH_STOP_IDS_MAX / 2, "end ids and stop ids do not fit");

/* An answer of one token ends without them. Clients that score a prompt ask for one and take the
 * last log-probability for its own, so it must be reported whatever the token is. */
static int stop_ids_of(const sh_job *job, int32_t out[SH_STOP_IDS_MAX])
{
    const sh_job_spec *spec = &job->spec;
    if (spec->echo && spec->logprobs && job->max_tokens == 1 && job->grammar.len == 0) return 0;
    const sh_ids *ends = sh_model_text_end_ids(sh_served_model_text(job->served));
    int count = 0;
    for (int i = 0; i < spec->stop_id_count; i++) out[count++] = spec->stop_ids[i];
    for (size_t i = 0; !spec->ignore_eos && i < ends->len; i++) out[count++] = ends->ptr[i];
    return count;
}

/* What the context leaves after the prompt, lowered by the server's limit and by the request. */
static int max_tokens_of(const sh_job *job, const sh_tokens *prompt)
{
    const sh_api_opts *opts = job->api->opts;
    int64_t most = sh_served_model_context(job->served) - (int64_t)prompt->count;
    int64_t wanted = job->spec.max_tokens;
    if (wanted == 0) wanted = sh_api_max_tokens_of(job->api, job->served);
    if (job->spec.prompt_only) wanted = 1; /* the engine always draws one */
    if (opts->max_tokens_hard > 0 && most > opts->max_tokens_hard) most = opts->max_tokens_hard;
    return (int)(wanted == 0 || wanted > most ? most : wanted);
}

/* The engine's default counts here as well, because the request may outlive that engine, or come
 * while there is none. */
static double timeout_of(const sh_job *job)
{
    return job->spec.timeout_s > 0 ? job->spec.timeout_s : job->api->request_timeout_s;
}

/* What the wait for the model has left of it; 0: no limit. */
static int64_t time_left_ms(const sh_job *job)
{
    int64_t limit = (int64_t)ceil(timeout_of(job) * 1000), left = limit - job->waited_ms;
    return limit == 0 ? 0 : left > 1 ? left : 1;
}

/* One number for prompt and answer; what was not asked for is left out of the answer. */
static int logprobs_of(const sh_job_spec *spec)
{
    int64_t answer = spec->logprobs ? spec->top_logprobs : -1;
    int64_t prompt = spec->prompt_logprobs ? spec->prompt_top_logprobs : -1;
    return (int)(answer > prompt ? answer : prompt);
}

/* A limit that cannot be kept is named as ignored. A model that does not reason keeps any. */
static void reasoning_check(const sh_served_model *served, sh_job_spec *spec)
{
    const sh_model_text *text = sh_served_model_text(served);
    int32_t begin, end;
    if (spec->reasoning_max == 0 || sh_model_text_dialect(text)->reasoning == NULL ||
        sh_model_text_reasoning_ids(text, &begin, &end))
        return;
    sh_fields_note(&spec->ignored, NULL, spec->reasoning_field);
}

static void reasoning_limit(const sh_job *job, const sh_tokens *prompt, sh_sequence_spec *out)
{
    if (job->spec.reasoning_max == 0 ||
        !sh_model_text_reasoning_ids(sh_served_model_text(job->served), &out->reasoning_begin,
                                     &out->reasoning_end))
        return;
    out->reasoning_max = (int)job->spec.reasoning_max;
    out->reasoning_begun = prompt->in_reasoning;
}

static sh_status choice_submit(sh_job *job, sh_choice *choice, sh_err *err)
{
    const sh_job_spec *spec = &job->spec;
    const sh_tokens *prompt = &job->prompts[choice->prompt];
    int32_t stop_ids[SH_STOP_IDS_MAX];
    /* A form begins with the message that the answer continues: that part was answered before. */
    int answered = job->grammar.len > 0 ? (int)prompt->begun : 0;
    job->max_tokens = max_tokens_of(job, prompt);
    sh_sequence_spec out = {
        .client = job->client,
        .prompt = prompt->ids,
        .prompt_count = prompt->count,
        .answered = answered,
        .max_tokens = job->max_tokens + answered,
        .min_tokens = spec->min_tokens > 0 ? (int)spec->min_tokens + answered : 0,
        .stop_ids = stop_ids,
        .stop_id_count = stop_ids_of(job, stop_ids),
        .score_from = sh_answer_score_from(spec),
        .logprobs = logprobs_of(spec),
        .sampling = sampling_of(job, choice->index),
        .grammar = sh_buf_str(&job->grammar),
        .timeout_ms = time_left_ms(job),
        .pooled = spec->pooled,
        .second = (int)prompt->second,
    };
    reasoning_limit(job, prompt, &out);
    if (spec->pooled) out.max_tokens = 1; /* none is drawn, but 0 would be invalid */
    char retry_key[SH_RETRY_KEY_MAX + 16];
    if (job->retry_key[0] != '\0' && !spec->pooled) {
        snprintf(retry_key, sizeof(retry_key), "%d:%s", choice->index, job->retry_key);
        out.retry_key = retry_key;
        out.retry_body = job->retry_body;
    }
    job_sequence *sequence = &job->sequences[choice->index];
    *sequence = (job_sequence){.job = job, .choice = choice};
    return sh_replay_submit(job->turn.model->replay, &out, on_event, sequence, &sequence->run, err);
}

/* Only with --log-prompts. */
static void prompt_log(const sh_job *job)
{
    for (size_t i = 0; i < job->prompt_count; i++) {
        sh_buf text = {0};
        sh_tokenizer_decode(sh_served_model_tokenizer(job->served), job->prompts[i].ids,
                            job->prompts[i].count, false, &text);
        SH_LOGI("request %s: prompt: %s", job->id, text.ptr == NULL ? "" : text.ptr);
        sh_buf_reset(&text);
    }
}

/* Texts of answers all run at once. Vectors are asked for a few at a time: thousands of them must
 * not fill the engine's queue. */
static sh_status choices_submit(sh_job *job, sh_err *err)
{
    enum { VECTORS_AT_ONCE = 64 };
    const sh_answer *answer = job->answer;
    int ended = answer->count - answer->open;
    sh_status status = SH_OK;
    while (status == SH_OK && job->submitted < answer->count &&
           (!job->spec.pooled || job->submitted - ended < VECTORS_AT_ONCE))
        status = choice_submit(job, &answer->choices[job->submitted++], err);
    return status;
}

static sh_status job_submit(sh_job *job, sh_err *err)
{
    sh_status status = SH_OK;
    if (job->api->opts->log_prompts) prompt_log(job);
    if (job->spec.seed < 0) job->spec.seed = sh_api_sampling_of(job->api, job->served).seed;
    if (job->spec.seed < 0) {
        status = sh_random_bytes(&job->spec.seed, sizeof(job->spec.seed), err);
        job->spec.seed &= INT64_MAX;
    }
    if (status == SH_OK) status = answer_make(job, err);
    if (status != SH_OK) return status;
    status = choices_submit(job, err);
    sh_quota_charge(job->quota, sh_answer_usage(job->answer).prompt_tokens, 0);
    return status;
}

/* Reads the body. Runs on the loop or on the worker's thread, like what follows. */
static void job_read(void *arg)
{
    sh_job *job = arg;
    sh_job_spec *spec = &job->spec;
    job->refused = true;
    if (atomic_load_explicit(&job->gone, memory_order_relaxed)) return;
    if (!sh_api_parse_as(job->api, job->format, job->body, &spec->json, &job->json_values,
                         &job->error))
        return;
    if (job->fields != NULL && cJSON_IsObject(spec->json))
        sh_fields_unknown(job->fields, spec->json, &spec->ignored);
    job->refused = !job->format->read(spec, &job->error) ||
                   !sh_job_spec_add_defaults(spec, &job->api->opts->defaults, &job->error);
}

/* Makes token ids of it. */
static void job_prepare(void *arg)
{
    sh_job *job = arg;
    sh_job_spec *spec = &job->spec;
    job->refused = true;
    if (atomic_load_explicit(&job->gone, memory_order_relaxed)) return;
    const sh_job_defaults *defined = &sh_served_model_defaults(job->served)->added;
    if (!sh_job_spec_add_defaults(spec, defined, &job->error)) return;
    if (!sh_served_model_check_task(job->served, spec, &job->error)) return;
    if (!sh_form_check(job->served, spec, &job->error)) return;
    reasoning_check(job->served, spec);
    job->refused = !spec->nothing && !sh_served_model_prepare(job->served, spec, &job->prompts,
                                                              &job->prompt_count, &job->error);
    if (job->refused || spec->nothing || !sh_form_is_needed(job->served, spec)) return;
    job->must_compile = !sh_form_find(job->served, spec, job->prompts, &job->grammar);
}

/* On the thread for grammars. */
static void job_compile(void *arg)
{
    sh_job *job = arg;
    if (atomic_load_explicit(&job->gone, memory_order_relaxed)) return;
    job->must_compile = false;
    job->refused = !sh_form_compile(job->served, &job->spec, job->prompts, &job->grammar,
                                    &job->error);
}

/* A request for more answers than the engine can ever queue would get 429 and be retried
 * indefinitely; refuse it with 400 instead. */
static bool answers_fit(const sh_job *job, sh_api_error *err)
{
    const sh_api_model *model = job->turn.model;
    double capacity = sh_model_stat(model, "waiting_max", INFINITY) +
                      sh_model_stat(model, "slots", 0);
    double count = (double)job->prompt_count * (double)job->spec.n;
    return job->spec.pooled || count <= capacity ||
           sh_api_fail(err, 400, "invalid_value", "n",
                       "%.0f answers were requested; this server takes %.0f at "
                       "a time",
                       count, capacity);
}

/* Gives the job to a worker, or refuses it if too many are waiting. */
static void job_hand_over(sh_job *job, sh_text_worker *worker, sh_text_worker_fn run,
                          sh_text_worker_fn done)
{
    sh_api_error error;
    job->on_worker = true;
    if (sh_text_worker_submit(worker, run, done, job) == SH_OK) return;
    job->on_worker = false;
    sh_api_refuse_waiting(&error);
    job_fail(job, &error);
}

/* Back on the loop, with all that the engine needs, or an error; the client may have left
 * meanwhile. */
static void on_ready(void *arg)
{
    sh_job *job = arg;
    sh_err err;
    job->on_worker = false;
    if (job->req == NULL) {
        job_free(job);
    } else if (job->refused) {
        sh_api_error error = job->error;
        job_fail(job, &error);
    } else if (job_submit(job, &err) != SH_OK) {
        sh_api_error error = sh_api_error_of(&err, false);
        job_fail(job, &error);
    } else if (job->answer->count == 0) {
        job_finish(job);
    }
}

static void on_prepared(void *arg)
{
    sh_job *job = arg;
    if (!job->refused) job->refused = !answers_fit(job, &job->error);
    if (job->req != NULL && !job->refused && job->must_compile)
        job_hand_over(job, job->api->form_worker, job_compile, on_ready);
    else
        on_ready(job);
}

/* The model can be used, or will not be. */
static void on_turn(void *arg, const sh_api_error *error)
{
    sh_job *job = arg;
    sh_api_error lacks;
    sh_api_model *model = job->turn.model;
    if (error == NULL && model->served == NULL) {
        sh_model_ready(model, &lacks);
        error = &lacks;
    }
    if (error != NULL) {
        job_fail(job, error);
        return;
    }
    job->waited_ms = (sh_clock_ns() - job->start_ns) / 1000000;
    job->served = sh_served_model_take(model->served);
    if (job->body.len > SH_API_INLINE_BYTES) {
        job_hand_over(job, job->api->worker, job_prepare, on_prepared);
        return;
    }
    job_prepare(job);
    on_prepared(job);
}

/* Ollama's clients unload a model with a request that asks for nothing, and to keep it for no time.
 * There is nothing to load it for. */
static void job_unload(sh_job *job)
{
    sh_err err;
    if (answer_make(job, &err) == SH_OK)
        job_finish(job);
    else
        job_fail(job, &(sh_api_error){.status = 500});
}

/* The body has been read: finds the model, and waits for it if need be. */
static void model_take(sh_job *job)
{
    sh_api_model *model = sh_models_find(job->api, job->spec.model, &job->error);
    double limit_s = timeout_of(job);
    if (model == NULL || !sh_model_is_allowed(model, job->key_name, &job->error)) {
        sh_api_error error = job->error;
        job_fail(job, &error);
        return;
    }
    job->turn.model = model;
    job->turn.go = on_turn;
    job->turn.arg = job;
    job->turn.deadline = limit_s > 0 ? sh_deadline_in_ms((int64_t)(limit_s * 1000))
                                     : SH_DEADLINE_NEVER;
    if (job->spec.keep_given) sh_model_keep(model, job->spec.keep_s);
    if (job->spec.nothing && job->spec.keep_given && job->spec.keep_s == 0)
        job_unload(job);
    else if (!sh_model_wait(model, &job->turn))
        on_turn(job, NULL);
}

static void on_read(void *arg)
{
    sh_job *job = arg;
    job->on_worker = false;
    free(job->body_copy);
    job->body_copy = NULL;
    if (job->req == NULL) {
        job_free(job);
        return;
    }
    sh_http_body_done(job->req);
    if (job->spec.keep_given && !sh_models_several(job->api))
        sh_fields_note(&job->spec.ignored, NULL, "keep_alive");
    if (job->spec.ignored.len > 0)
        sh_http_add_header(job->req, "X-Shoal-Ignored-Fields", job->spec.ignored.ptr);
    if (job->refused) {
        sh_api_error error = job->error;
        job_fail(job, &error);
    } else {
        model_take(job);
    }
}

/* A key stands for one request of one client. */
static bool retry_key_read(sh_job *job, sh_api_error *error)
{
    enum { KEY_MAX = 255 };
    sh_str key = sh_http_header_of(job->req, "idempotency-key");
    if (key.len > KEY_MAX)
        return sh_api_fail(error, 400, "invalid_value", "Idempotency-Key",
                           "the Idempotency-Key has %zu bytes; it may have %d", key.len, KEY_MAX);
    if (key.len == 0) return true;
    snprintf(job->retry_key, sizeof(job->retry_key), "%016llx:%s:%.*s",
             (unsigned long long)job->client, job->format->kind, (int)key.len, key.ptr);
    job->retry_body = sh_hash128((sh_key128){0}, job->body.ptr, job->body.len).lo;
    job->spec.retriable = true;
    return true;
}

static sh_job *job_create(sh_api *api, sh_http_request *req, const sh_job_format *format)
{
    sh_job *job = sh_alloc(sizeof(*job));
    job->api = api;
    job->req = req;
    job->format = format;
    job->fields = sh_api_endpoint_of(req)->fields;
    job->body = sh_http_body(req);
    job->client = sh_http_client_of(req); /* requests of one client share its turn */
    job->spec.store = api->responses;
    job->spec.conversations = api->conversations;
    job->spec.body_len = job->body.len;
    job->spec.owner = job->client;
    job->start_ns = job->sent_ns = sh_http_start_ns(req);
    job->time_us = sh_clock_unix_us();
    snprintf(job->id, sizeof(job->id), "%s", sh_http_id(req));
    snprintf(job->key_name, sizeof(job->key_name), "%s", sh_http_key_name(req));
    job->next = api->jobs;
    if (api->jobs != NULL) api->jobs->prev = job;
    api->jobs = job;
    api->job_count++;
    return job;
}

/* What the key of the request allows, if it has a name. */
static bool quota_take(sh_job *job, sh_api_error *error)
{
    const sh_http_key_info *key = sh_http_keys_named(job->api->keys, job->key_name);
    if (key == NULL) return true;
    sh_quota *quota = sh_quotas_of(job->api->quotas, key);
    bool taken = sh_quota_take(quota, key, sh_clock_ns(), error);
    sh_quota_headers(quota, key, job->req);
    if (taken) job->quota = quota;
    return taken;
}

/* Refuses a request because no model is available. */
static void unready_refuse(sh_api *api, sh_http_request *req, const sh_job_format *format,
                           const sh_api_error *error)
{
    sh_record record = {
        .time_us = sh_clock_unix_us(),
        .kind = format->kind,
        .outcome = SH_OUTCOME_REFUSED,
        .http_status = sh_api_dialect_of(req)->error_status(error),
        .wall_s = seconds_since(sh_http_start_ns(req), sh_clock_ns()),
    };
    snprintf(record.id, sizeof(record.id), "%s", sh_http_id(req));
    snprintf(record.error, sizeof(record.error), "%.*s", (int)sizeof(record.error) - 1,
             error->message);
    record_take(api, &record);
    sh_api_reply_error(req, error);
}

/* Whether requests can be answered, or wait for that. */
static bool takes_requests(const sh_api *api, sh_api_error *error)
{
    const sh_api_model *main = sh_models_main(api);
    bool waits = main->served != NULL && sh_replay_holds(main->replay);
    return (!sh_models_several(api) && waits) || sh_api_ready(api, error);
}

void sh_job_start(sh_api *api, sh_http_request *req, const sh_job_format *format)
{
    sh_api_error error;
    if (!sh_api_takes_jobs(api, &error) || !takes_requests(api, &error)) {
        unready_refuse(api, req, format, &error);
        return;
    }
    sh_job *job = job_create(api, req, format);
    sh_http_watch_client(req, on_gone, on_drained, job);
    if (!quota_take(job, &error) || !retry_key_read(job, &error)) {
        job_fail(job, &error);
        return;
    }
    if (job->body.len <= SH_API_INLINE_BYTES) {
        job_read(job);
        on_read(job);
        return;
    }
    /* The client may disconnect while the worker reads, and the request's memory is freed then. */
    job->body_copy = sh_str_dup(job->body);
    job->body.ptr = job->body_copy;
    job_hand_over(job, api->worker, job_read, on_read);
}

void sh_jobs_keep_alive(sh_api *api, int64_t quiet_ms)
{
    int64_t now = sh_clock_ns();
    for (sh_job *job = api->jobs; job != NULL; job = job->next) {
        if (job->on_worker || !job->spec.stream) continue;
        if (job->answer == NULL && !job->turn.waits) continue;
        if (job->format->keep_alive == NULL || sh_http_stream_blocked(job->req)) continue;
        if (now - job->sent_ns < quiet_ms * 1000000) continue;
        sh_buf out = {0};
        stream_start(job);
        job->format->keep_alive(&out);
        stream_write(job, &out);
        sh_buf_reset(&out);
    }
}

/* What a worker has is left to it; it finds no engine afterwards. */
void sh_jobs_fail(sh_api *api, const sh_api_error *error)
{
    for (sh_job *job = api->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (!job->on_worker) job_fail(job, error);
    }
}

void sh_jobs_end(sh_api *api)
{
    while (api->jobs != NULL) job_free(api->jobs);
}
