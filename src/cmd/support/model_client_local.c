/* The model client for an engine in this process.
 *
 * Rank 0 opens the engine as `shoal engine` does, with one slot, and talks to it over the same
 * socket protocol as the API. So there is only one decode loop in the program, and commands get
 * drafts and the prefix cache too. The socket is in a private folder and is unlinked as soon as it
 * is connected, so nothing is left behind however the process ends. Other ranks work until rank 0
 * releases them.
 *
 * Text ends where the tokenizer side says so (a stop string, the end of a tool call), which the
 * engine does not know about: such a request is cancelled, and tokens that still arrive for it are
 * skipped. */
#include "api/messages.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/support/draft_model.h"
#include "cmd/support/model_client.h"
#include "cmd/support/model_group_setup.h"
#include "cmd/support/step_driver.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "engine/engine_socket.h"
#include "model/config.h"
#include "text/answer_text.h"
#include "text/output/stop.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 512, CONNECT_MS = 10000, STOP_POLL_MS = 200 };

typedef struct {
    sh_model_client base;
    const char *model;
    sh_model_text *text;
    sh_model_group_setup setup;
    char *draft_model;
    sh_engine *engine;
    sh_engine_socket *engine_socket;
    sh_engine_client *client;
    uint64_t last_id;
    bool lost; /* the group was lost */
} local;

/* An engine that has lost its group tries for seconds to re-form it before it checks whether to
 * stop. The process is about to end, so it does not wait for that: everything is leaked. */
static void local_close(sh_model_client *base)
{
    local *l = (local *)base;
    if (l->lost) return;
    sh_engine_client_close(l->client);
    if (l->engine != NULL) sh_engine_stop(l->engine, 0);
    sh_engine_socket_close(l->engine_socket);
    sh_engine_close(l->engine);
    free(l->draft_model);
    sh_model_text_close(l->text);
    free(base->label);
    free(l);
}

/* Done before the weights are loaded, so that errors here appear at once. */
static sh_status text_open(local *l, const sh_settings *s, bool chat, sh_err *err)
{
    sh_config config;
    sh_status status = sh_config_load(s->model, &config, err);
    if (status != SH_OK) return status;
    sh_model_text_opts opts = {.tokenizer = s->tokenizer,
                               .template = s->template,
                               .reasoning_parser = s->reasoning_parser,
                               .tool_parser = s->tool_parser,
                               .vocab = config.vocab};
    status = sh_model_text_open(s->model, &opts, &l->text, err);
    sh_config_reset(&config);
    if (status == SH_OK && chat && !sh_model_text_has_chat(l->text))
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no chat template; --template names one",
                            s->model);
    return status;
}

/* Starts the engine and connects to it. */
static sh_status connect_engine(local *l, const sh_settings *s, sh_err *err)
{
    char *dir = sh_asprintf("%s/shoal-XXXXXX", s->runtime_dir != NULL ? s->runtime_dir : "/tmp");
    if (mkdtemp(dir) == NULL) {
        sh_err_sys(err, "cannot create private folder '%s'", dir);
        free(dir);
        return err->status;
    }
    char *path = sh_asprintf("%s/engine.sock", dir);
    sh_status status = sh_engine_socket_open(path, &l->engine_socket, err);
    if (status == SH_OK)
        status = sh_engine_start(l->engine, sh_engine_socket_emit, l->engine_socket, err);
    if (status == SH_OK) status = sh_engine_socket_start(l->engine_socket, l->engine, err);
    if (status == SH_OK)
        status = sh_engine_client_open(path, sh_deadline_in_ms(CONNECT_MS), &l->client, err);
    unlink(path);
    rmdir(dir);
    free(path);
    free(dir);
    return status;
}

/* The time to load includes connecting: it is what the user waits for. */
static sh_status engine_open(local *l, const sh_settings *s, sh_err *err)
{
    sh_engine_opts opts = {.model_group = l->setup.opts,
                           .group = l->setup.ranks.opts.mesh.size > 1 ? &l->setup.ranks.opts : NULL,
                           .queue_max = 1,
                           .stall_s = (double)s->stall_ms / 1000,
                           .drafts = (int)s->drafts};
    opts.model_group.load.progress = sh_step_driver_progress;
    int64_t start = sh_clock_ns();
    sh_status status = sh_draft_model_obtain(s, &l->draft_model, err);
    opts.draft_model = l->draft_model;
    if (status == SH_OK) status = sh_engine_open(&opts, &l->engine, err);
    if (status == SH_OK) status = connect_engine(l, s, err);
    if (status != SH_OK) return status;
    int ranks = sh_engine_client_info(l->client)->world_size;
    l->base.load_s = (double)(sh_clock_ns() - start) * 1e-9;
    l->base.label = sh_asprintf("%s on %d rank%s", l->model, ranks, ranks == 1 ? "" : "s");
    return SH_OK;
}

/* A rank other than 0: returns SH_AGAIN when rank 0 has released it. */
static sh_status work(local *l, sh_err *err)
{
    sh_model_group *model_group = NULL;
    sh_group *group = NULL;
    sh_status status = sh_model_group_setup_join(&l->setup, &model_group, &group, err);
    if (status != SH_OK) return status;
    status = sh_model_group_work(model_group, err);
    sh_group_close(group); /* first: it may still write into the model group's memory */
    sh_model_group_close(model_group);
    return status == SH_OK ? SH_AGAIN : status;
}

static bool stopped(const sh_reply_handler *handler)
{
    return handler->stop != NULL && *handler->stop != 0;
}

/* Checks the messages as the HTTP API does, brings them into the form that templates expect, and
 * renders them. */
static sh_status chat_render(const local *l, const sh_question *q, sh_buf *prompt, sh_err *err)
{
    sh_api_error why;
    cJSON *request = cJSON_CreateObject(), *messages = cJSON_Duplicate(q->messages, true);
    bool fine = sh_messages_shape(messages, &why) &&
                (q->tools == NULL || sh_tools_check(q->tools, &why));
    cJSON_AddItemToObject(request, "messages", messages);
    if (q->tools != NULL) cJSON_AddItemReferenceToObject(request, "tools", (cJSON *)q->tools);
    sh_status status = fine ? sh_model_text_render(l->text, request, NULL, prompt, err)
                            : sh_err_set(err, SH_ERR_INPUT, "%s", why.message);
    cJSON_Delete(request);
    return status;
}

static sh_status ids_take(const local *l, const char *text, sh_ids *out, sh_err *err)
{
    int32_t *ids = NULL;
    int count = 0;
    sh_status status = sh_step_driver_ids(text, sh_engine_client_info(l->client)->vocab, &ids,
                                          &count, err);
    if (status == SH_OK) sh_ids_add_all(out, ids, (size_t)count);
    free(ids);
    return status;
}

/* Sets *out to the ids of the prompt, and *in_reasoning if the rendered prompt ends inside a
 * reasoning section, so that the answer begins with reasoning. */
static sh_status prompt_make(const local *l, const sh_question *q, sh_ids *out, bool *in_reasoning,
                             sh_err *err)
{
    sh_buf prompt = {0};
    sh_status status = SH_OK;
    if (q->ids != NULL) return ids_take(l, q->ids, out, err);
    if (sh_model_text_tokenizer(l->text) == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no tokenizer.json; --ids takes token ids",
                          l->model);
    if (q->messages != NULL)
        status = chat_render(l, q, &prompt, err);
    else
        sh_buf_add_text(&prompt, q->text);
    if (status == SH_OK)
        status = sh_model_text_encode(l->text, sh_buf_str(&prompt), q->messages != NULL, out, err);
    *in_reasoning = q->messages != NULL &&
                    sh_output_prompt_opens(sh_model_text_dialect(l->text), sh_buf_str(&prompt));
    sh_buf_reset(&prompt);
    if (status == SH_OK && out->len == 0)
        status = sh_err_set(err, SH_ERR_INPUT, "the prompt is empty");
    return status;
}

/* NaN and -1 stand for "not given": then the model's recommendation counts. */
static sh_sampling sampling_of(const local *l, const sh_question *q)
{
    sh_sampling_recommended own = sh_model_text_sampling(l->text);
    sh_sampling s = sh_sampling_default();
    s.temperature = isnan(q->temperature) ? own.temperature : q->temperature;
    s.top_p = isnan(q->top_p) ? own.top_p : q->top_p;
    s.top_k = q->top_k < 0 ? own.top_k : (int)q->top_k;
    s.min_p = q->min_p;
    s.repetition_penalty = isnan(q->repetition_penalty) ? own.repetition_penalty
                                                        : q->repetition_penalty;
    s.seed = q->seed;
    return s;
}

static sh_status submit(local *l, const sh_question *q, const sh_ids *prompt, sh_err *err)
{
    const sh_engine_info *info = sh_engine_client_info(l->client);
    const sh_ids *ends = sh_model_text_end_ids(l->text);
    int64_t space = info->context - (int64_t)prompt->len;
    if (space < 1)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "the prompt has %zu tokens, which leaves no space for an answer in a "
                          "context of %d",
                          prompt->len, info->context);
    sh_sequence_spec request = {
        .id = ++l->last_id,
        .prompt = prompt->ptr,
        .prompt_count = prompt->len,
        .max_tokens = (int)(q->max_tokens > 0 && q->max_tokens < space ? q->max_tokens : space),
        .stop_ids = ends->ptr,
        .stop_id_count = (int)ends->len,
        .logprobs = q->details ? 0 : -1,
        .sampling = sampling_of(l, q),
    };
    return sh_engine_client_submit(l->client, &request, err);
}

/* Waits for the next event. If a stop is requested meanwhile, the request is cancelled, once; its
 * last event still arrives. */
static sh_status event_wait(local *l, const sh_reply_handler *handler, bool *cancelled,
                            sh_event *event, sh_err *err)
{
    while (sh_engine_client_next(l->client, event) != SH_OK) {
        if (stopped(handler) && !*cancelled) {
            sh_engine_client_cancel(l->client, l->last_id);
            *cancelled = true;
        }
        short wanted = (short)(POLLIN | (sh_engine_client_wants_write(l->client) ? POLLOUT : 0));
        struct pollfd p = {.fd = sh_engine_client_fd(l->client), .events = wanted};
        if (poll(&p, 1, STOP_POLL_MS) < 0 && errno != EINTR) return sh_err_sys(err, "poll");
        /* A lost engine also ends the request, with an event that carries the reason. */
        if (sh_engine_client_progress(l->client, err) != SH_OK) continue;
    }
    return SH_OK;
}

/* `ended`: the text itself ended the answer, which then was cancelled by us; so its reason is that
 * of the text, and not "interrupted". */
static void done_take(const sh_event *event, const sh_answer_text *reader, bool ended,
                      bool interrupted, sh_reply *out)
{
    const char *finish = sh_answer_text_finish_reason(reader);
    if (!ended && interrupted)
        finish = "interrupted";
    else if (!ended && event->finish == SH_FINISH_LENGTH)
        finish = "length";
    snprintf(out->finish, sizeof(out->finish), "%s", finish);
    out->prompt_tokens = event->prompt_tokens;
    out->cached_tokens = event->cached_tokens;
    out->prompt_s = event->queue_s + event->prefill_s;
    out->answer_s = event->decode_s;
}

/* Reads tokens until the request has ended. */
static sh_status answer_read(local *l, const sh_question *q, const sh_reply_handler *handler,
                             sh_answer_text *reader, sh_reply *out, sh_err *err)
{
    bool ended = false, cancelled = false;
    for (sh_event event;;) {
        sh_status status = event_wait(l, handler, &cancelled, &event, err);
        if (status != SH_OK) return status;
        if (event.id != l->last_id) continue;
        if (event.kind == SH_EVENT_ERROR) {
            *err = event.error;
            l->lost = sh_model_client_is_lost(&l->base, err->status);
            return err->status;
        }
        if (event.kind == SH_EVENT_DONE) {
            bool interrupted = event.finish == SH_FINISH_CANCEL;
            sh_answer_text_finish(reader);
            done_take(&event, reader, ended, interrupted, out);
            break;
        }
        if (ended || event.kind != SH_EVENT_TOKEN) continue;
        out->completion_tokens++;
        sh_ids_add(&out->ids, event.token);
        if (q->details) sh_reply_add_logprob(out, (double)event.logprob);
        ended = sh_answer_text_push(reader, event.token);
        if (ended) {
            sh_engine_client_cancel(l->client, l->last_id);
            cancelled = true;
        }
    }
    /* Tokens whose text was cut by a stop string are not part of the answer. */
    out->ids.len = sh_answer_text_settled(reader);
    if (q->details) out->logprob_count = out->ids.len;
    return SH_OK;
}

static sh_status reader_create(const local *l, const sh_question *q, const sh_ids *prompt,
                               bool in_reasoning, const sh_reply_handler *handler,
                               sh_answer_text **out, sh_err *err)
{
    sh_str stops[SH_STOP_COUNT_MAX];
    size_t count = 0;
    for (const cJSON *s = q->stops == NULL ? NULL : q->stops->child; s != NULL; s = s->next) {
        if (count == SH_STOP_COUNT_MAX)
            return sh_err_set(err, SH_ERR_INPUT, "--stop has more than %d texts",
                              SH_STOP_COUNT_MAX);
        stops[count++] = sh_str_of(s->valuestring);
    }
    sh_answer_text_opts opts = {
        .chat = q->messages != NULL,
        .in_reasoning = in_reasoning,
        .tools = q->tools,
        .prompt = prompt->ptr,
        .prompt_count = q->messages != NULL ? 0 : prompt->len,
        .stops = stops,
        .stop_count = count,
    };
    return sh_answer_text_create(l->text, &opts, handler->event, handler->ctx, out, err);
}

static sh_status local_ask(sh_model_client *base, const sh_question *q,
                           const sh_reply_handler *handler, sh_reply *out, sh_err *err)
{
    local *l = (local *)base;
    sh_ids prompt = {0};
    sh_answer_text *reader = NULL;
    bool in_reasoning = false;
    sh_status status = prompt_make(l, q, &prompt, &in_reasoning, err);
    if (status == SH_OK) status = reader_create(l, q, &prompt, in_reasoning, handler, &reader, err);
    if (status == SH_OK) status = submit(l, q, &prompt, err);
    if (status == SH_OK) status = answer_read(l, q, handler, reader, out, err);
    out->has_text = sh_model_text_tokenizer(l->text) != NULL;
    sh_answer_text_free(reader);
    sh_ids_reset(&prompt);
    return status;
}

/* Other ranks never get a client: they spend their life in work() and return SH_AGAIN. */
sh_status sh_model_client_local(const sh_command_args *args, bool chat, sh_model_client **out,
                                sh_err *err)
{
    const sh_settings *s = args->settings;
    local *l = sh_alloc(sizeof(*l));
    l->base = (sh_model_client){.ask = local_ask, .close = local_close};
    l->model = s->model;
    sh_status status = sh_model_group_setup_init(&l->setup, args, err);
    sh_model_group_opts *opts = &l->setup.opts;
    opts->slots = 1;
    opts->draws = sh_engine_draws(opts->slots);
    opts->chunk = CHUNK;
    if (status == SH_OK && l->setup.ranks.opts.mesh.rank > 0) {
        status = work(l, err);
    } else {
        if (status == SH_OK) status = text_open(l, s, chat, err);
        if (status == SH_OK) status = engine_open(l, s, err);
    }
    if (status != SH_OK) {
        local_close(&l->base);
        return status;
    }
    *out = &l->base;
    return SH_OK;
}
