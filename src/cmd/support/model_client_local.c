/* The model client for an engine in this process.
 *
 * Rank 0 opens the engine as `shoal engine` does, and talks to it over the same socket protocol as
 * the API. So there is only one decode loop in the program, and commands get drafts and the prefix
 * cache too. The socket is in a private folder and is unlinked as soon as it is connected, so
 * nothing is left behind however the process ends. Other ranks work until rank 0 releases them.
 *
 * The engine may also be one that runs already (--socket): then only the connections are ours.
 *
 * Each question that runs at the same time as others has a connection of its own, so threads share
 * nothing but the list of them.
 *
 * Text ends where the tokenizer side says so (a stop string, the end of a tool call), which the
 * engine does not know about: such a request is cancelled, and tokens that still arrive for it are
 * skipped. */
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
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 512, CONNECT_MS = 10000, STOP_POLL_MS = 200 };

typedef struct {
    sh_engine_client *client;
    uint64_t last_id;
    bool busy;
} connection;

typedef struct {
    sh_model_client base;
    const char *model;
    sh_model_text *text;
    sh_model_group_setup setup;
    char *draft_model;
    sh_engine *engine; /* NULL: it is another process */
    sh_engine_socket *engine_socket;
    connection *conns;
    int conn_count;
    pthread_mutex_t lock; /* over what follows, and which connections are busy */
    pthread_cond_t freed;
    bool lost;     /* the group was lost */
    bool outlived; /* see sh_model_client_opts */
} local;

/* An engine that has lost its group tries for seconds to re-form it before it checks whether to
 * stop. A process that is about to end does not wait for that: everything is leaked. */
static void local_close(sh_model_client *base)
{
    local *l = (local *)base;
    if (l->lost && !l->outlived) return;
    for (int i = 0; i < l->conn_count; i++) sh_engine_client_close(l->conns[i].client);
    free(l->conns);
    pthread_cond_destroy(&l->freed);
    pthread_mutex_destroy(&l->lock);
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
    sh_status status = sh_config_load(l->model, &config, err);
    if (status != SH_OK) return status;
    sh_model_text_opts opts = {.tokenizer = s->tokenizer,
                               .template = s->template,
                               .reasoning_parser = s->reasoning_parser,
                               .tool_parser = s->tool_parser,
                               .vocab = config.vocab};
    status = sh_model_text_open(l->model, &opts, &l->text, err);
    sh_config_reset(&config);
    if (status == SH_OK && chat && !sh_model_text_has_chat(l->text))
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no chat template; --template names one",
                            l->model);
    return status;
}

static sh_status connections_open(local *l, const char *path, int count, sh_err *err)
{
    sh_deadline deadline = sh_deadline_in_ms(CONNECT_MS);
    sh_status status = SH_OK;
    l->conns = sh_alloc_array((size_t)count, sizeof(*l->conns));
    while (l->conn_count < count && status == SH_OK) {
        status = sh_engine_client_open(path, deadline, NULL, &l->conns[l->conn_count].client, err);
        if (status == SH_OK) l->conn_count++;
    }
    return status;
}

static const sh_engine_info *engine_info(const local *l)
{
    return sh_engine_client_info(l->conns[0].client);
}

static bool stopped(const sh_reply_handler *handler)
{
    return handler->stop != NULL && __atomic_load_n(handler->stop, __ATOMIC_RELAXED) != 0;
}

/* Waits for a connection that no other thread uses; NULL when the question is stopped before. */
static connection *connection_take(local *l, const sh_reply_handler *handler)
{
    connection *c = NULL;
    pthread_mutex_lock(&l->lock);
    while (c == NULL && !stopped(handler)) {
        for (int i = 0; i < l->conn_count && c == NULL; i++)
            if (!l->conns[i].busy) c = &l->conns[i];
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++; /* to look at `stop` again */
        if (c == NULL) pthread_cond_timedwait(&l->freed, &l->lock, &until);
    }
    if (c != NULL) c->busy = true;
    pthread_mutex_unlock(&l->lock);
    return c;
}

static void connection_put_back(local *l, connection *c, bool lost)
{
    pthread_mutex_lock(&l->lock);
    c->busy = false;
    l->lost = l->lost || lost;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
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
    if (status == SH_OK) status = connections_open(l, path, l->setup.opts.slots, err);
    unlink(path);
    rmdir(dir);
    free(path);
    free(dir);
    return status;
}

/* The time to load includes connecting: it is what the user waits for. */
static sh_status engine_open(local *l, const sh_settings *s, sh_progress_fn progress, sh_err *err)
{
    sh_engine_opts opts = {.model_group = l->setup.opts,
                           .group = l->setup.ranks.opts.mesh.size > 1 ? &l->setup.ranks.opts : NULL,
                           .queue_max = l->setup.opts.slots,
                           .stall_s = (double)s->stall_ms / 1000,
                           .drafts = (int)s->drafts};
    opts.model_group.load.progress = progress;
    int64_t start = sh_clock_ns();
    sh_status status = sh_draft_model_obtain(s, &l->draft_model, err);
    opts.draft_model = l->draft_model;
    if (status == SH_OK) status = sh_engine_open(&opts, &l->engine, err);
    if (status == SH_OK) status = connect_engine(l, s, err);
    if (status != SH_OK) return status;
    int ranks = engine_info(l)->world_size;
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

static sh_status chat_render(const local *l, const sh_question *q, sh_buf *prompt, sh_err *err)
{
    cJSON *request = cJSON_CreateObject();
    cJSON_AddItemToObject(request, "messages", cJSON_Duplicate(q->messages, true));
    if (q->tools != NULL) cJSON_AddItemReferenceToObject(request, "tools", (cJSON *)q->tools);
    sh_status status = sh_question_render(l->text, request, prompt, err);
    cJSON_Delete(request);
    return status;
}

static sh_status ids_take(const local *l, const char *text, sh_ids *out, sh_err *err)
{
    int32_t *ids = NULL;
    int count = 0;
    sh_status status = sh_step_driver_ids(text, engine_info(l)->vocab, &ids, &count, err);
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

static sh_status submit(const local *l, connection *c, const sh_question *q, const sh_ids *prompt,
                        sh_err *err)
{
    const sh_engine_info *info = sh_engine_client_info(c->client);
    const sh_ids *ends = sh_model_text_end_ids(l->text);
    int64_t space = info->context - (int64_t)prompt->len;
    if (space < 1)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "the prompt has %zu tokens, which leaves no space for an answer in a "
                          "context of %d",
                          prompt->len, info->context);
    sh_sequence_spec request = {
        .id = ++c->last_id,
        .prompt = prompt->ptr,
        .prompt_count = prompt->len,
        .max_tokens = (int)(q->max_tokens > 0 && q->max_tokens < space ? q->max_tokens : space),
        .stop_ids = ends->ptr,
        .stop_id_count = (int)ends->len,
        .logprobs = q->details ? 0 : -1,
        .sampling = sampling_of(l, q),
    };
    return sh_engine_client_submit(c->client, &request, err);
}

/* Waits for the next event. If a stop is requested meanwhile, the request is cancelled, once; its
 * last event still arrives. */
static sh_status event_wait(connection *c, const sh_reply_handler *handler, bool *cancelled,
                            sh_event *event, sh_err *err)
{
    while (sh_engine_client_next(c->client, event) != SH_OK) {
        if (stopped(handler) && !*cancelled) {
            sh_engine_client_cancel(c->client, c->last_id);
            *cancelled = true;
        }
        short wanted = (short)(POLLIN | (sh_engine_client_wants_write(c->client) ? POLLOUT : 0));
        struct pollfd p = {.fd = sh_engine_client_fd(c->client), .events = wanted};
        if (poll(&p, 1, STOP_POLL_MS) < 0 && errno != EINTR) return sh_err_sys(err, "poll");
        /* A lost engine also ends the request, with an event that carries the reason. */
        if (sh_engine_client_progress(c->client, err) != SH_OK) continue;
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
static sh_status answer_read(connection *c, const sh_question *q, const sh_reply_handler *handler,
                             sh_answer_text *reader, sh_reply *out, sh_err *err)
{
    bool ended = false, cancelled = false;
    for (sh_event event;;) {
        sh_status status = event_wait(c, handler, &cancelled, &event, err);
        if (status != SH_OK) return status;
        if (event.id != c->last_id) continue;
        if (event.kind == SH_EVENT_ERROR) {
            *err = event.error;
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
            sh_engine_client_cancel(c->client, c->last_id);
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
    connection *c = status == SH_OK ? connection_take(l, handler) : NULL;
    if (c != NULL) {
        status = submit(l, c, q, &prompt, err);
        if (status == SH_OK) status = answer_read(c, q, handler, reader, out, err);
        connection_put_back(l, c, status != SH_OK && sh_model_client_is_lost(base, status));
    } else if (status == SH_OK) {
        snprintf(out->finish, sizeof(out->finish), "interrupted");
    }
    out->has_text = sh_model_text_tokenizer(l->text) != NULL;
    sh_answer_text_free(reader);
    sh_ids_reset(&prompt);
    return status;
}

static local *local_create(const sh_model_client_opts *opts)
{
    local *l = sh_alloc(sizeof(*l));
    l->base = (sh_model_client){.ask = local_ask, .close = local_close};
    l->outlived = opts->outlived;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->freed, NULL);
    return l;
}

static sh_status opened(local *l, sh_status status, sh_model_client **out)
{
    if (status == SH_OK)
        *out = &l->base;
    else
        local_close(&l->base);
    return status;
}

/* Other ranks never get a client: they spend their life in work() and return SH_AGAIN. */
sh_status sh_model_client_local(const sh_command_args *args, const sh_model_client_opts *opts,
                                sh_model_client **out, sh_err *err)
{
    const sh_settings *s = args->settings;
    local *l = local_create(opts);
    l->model = s->model;
    sh_status status = sh_model_group_setup_init(&l->setup, args, err);
    sh_model_group_opts *group = &l->setup.opts;
    group->slots = opts->slots;
    group->draws = sh_engine_draws(group->slots);
    group->chunk = CHUNK;
    if (status == SH_OK && l->setup.ranks.opts.mesh.rank > 0) {
        status = work(l, err);
    } else {
        if (status == SH_OK) status = text_open(l, s, opts->chat, err);
        if (status == SH_OK) status = engine_open(l, s, opts->progress, err);
    }
    return opened(l, status, out);
}

/* The folder of the model is what the engine says: a Unix socket leads to the same machine. */
sh_status sh_model_client_socket(const sh_command_args *args, const sh_model_client_opts *opts,
                                 sh_model_client **out, sh_err *err)
{
    const sh_settings *s = args->settings;
    local *l = local_create(opts);
    sh_status status = connections_open(l, s->socket, opts->slots, err);
    if (status == SH_OK) {
        l->model = engine_info(l)->model_dir;
        l->base.label = sh_asprintf("%s at %s", l->model, s->socket);
        status = text_open(l, s, opts->chat, err);
    }
    return opened(l, status, out);
}
