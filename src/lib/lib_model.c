/* Models of the library: a model client (cmd/support/model_client.h), as `shoal chat` has one, with
 * a list of the answers that run, so that they can be cancelled. */
#include "base/alloc.h"
#include "base/hash.h"
#include "cmd/support/model_client.h"
#include "lib/lib_internal.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SEED_MAX = (INT64_C(1) << 53) - 1;

/* One question on its way, on the stack of the thread that asks. */
struct answer {
    const shoal_question *question;
    volatile sig_atomic_t stop;
    sh_buf text; /* of a piece, to terminate it */
    struct answer *next;
};

struct shoal_model {
    sh_lib_args args; /* the client refers to them */
    sh_model_client *client;
    pthread_mutex_t lock;
    struct answer *answers;
};

/* Like that of the commands, but a model and a server that are both set here are a contradiction.
 */
static sh_status place_check(const sh_options *options, sh_err *err)
{
    static const char *const places[] = {"model", "url", "socket"};
    const char *found = NULL;
    for (size_t i = 0; i < SH_COUNT_OF(places); i++) {
        if (sh_options_source(options, places[i]) != SH_FROM_FLAG) continue;
        if (found != NULL)
            return sh_err_set(err, SH_ERR_INPUT,
                              "the settings '%s' and '%s' both say where the model is", found,
                              places[i]);
        found = places[i];
    }
    for (size_t i = 0; i < SH_COUNT_OF(places) && found == NULL; i++)
        if (sh_options_given(options, places[i])) found = places[i];
    if (found == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "nothing says where the model is: set 'model', 'url' or 'socket'");
    return SH_OK;
}

static bool is_elsewhere(const sh_options *options)
{
    return sh_model_client_is_remote(options) ||
           sh_options_source(options, "socket") > sh_options_source(options, "model");
}

static sh_status client_open(shoal_model *model, sh_err *err)
{
    sh_lib_args *args = &model->args;
    sh_status status = place_check(args->options, err);
    if (status == SH_OK && !is_elsewhere(args->options)) {
        status = sh_lib_args_find_model(args, err);
        if (status == SH_OK) status = sh_lib_args_find_place(args, err);
    }
    if (status != SH_OK) return status;
    bool given = sh_options_given(args->options, "slots");
    sh_model_client_opts opts = {.slots = given ? (int)args->settings.slots : 1, .outlived = true};
    if (opts.slots > SH_MODEL_CLIENT_SLOTS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "slots: %d questions at a time; %d are allowed here",
                          opts.slots, SH_MODEL_CLIENT_SLOTS_MAX);
    return sh_model_client_open(&args->args, &opts, &model->client, err);
}

shoal_status shoal_model_open(const shoal_settings *settings, shoal_model **out, shoal_error *error)
{
    sh_err err;
    shoal_model *model = sh_alloc(sizeof(*model));
    pthread_mutex_init(&model->lock, NULL);
    sh_status status = sh_lib_args_init(&model->args, settings, &err);
    if (status == SH_OK) status = client_open(model, &err);
    if (status == SH_OK)
        *out = model;
    else
        shoal_model_close(model);
    return sh_lib_result(status, &err, error);
}

void shoal_model_close(shoal_model *model)
{
    if (model == NULL) return;
    sh_model_client_close(model->client);
    sh_lib_args_reset(&model->args);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

void shoal_question_init(shoal_question *question, size_t size)
{
    const shoal_question whole = {
        .temperature = NAN, .top_p = NAN, .repetition_penalty = NAN, .top_k = -1, .seed = -1};
    memset(question, 0, size);
    sh_lib_copy(question, size, &whole, sizeof(whole));
    question->size = size;
}

void shoal_reply_init(shoal_reply *reply, size_t size)
{
    memset(reply, 0, size);
    reply->size = size;
}

static void answer_add(shoal_model *model, struct answer *answer)
{
    pthread_mutex_lock(&model->lock);
    answer->next = model->answers;
    model->answers = answer;
    pthread_mutex_unlock(&model->lock);
}

static void answer_remove(shoal_model *model, const struct answer *answer)
{
    pthread_mutex_lock(&model->lock);
    struct answer **at = &model->answers;
    while (*at != answer) at = &(*at)->next;
    *at = answer->next;
    pthread_mutex_unlock(&model->lock);
}

static void answer_stop(struct answer *answer)
{
    __atomic_store_n(&answer->stop, 1, __ATOMIC_RELAXED);
}

void shoal_model_cancel(shoal_model *model)
{
    pthread_mutex_lock(&model->lock);
    for (struct answer *a = model->answers; a != NULL; a = a->next) answer_stop(a);
    pthread_mutex_unlock(&model->lock);
}

/* After the caller has stopped the answer it gets no more of it. */
static void on_event(void *ctx, const sh_output_event *event)
{
    static const shoal_piece_kind kinds[] = {
        [SH_OUTPUT_CONTENT] = SHOAL_PIECE_TEXT,
        [SH_OUTPUT_REASONING] = SHOAL_PIECE_REASONING,
        [SH_OUTPUT_CALL_BEGIN] = SHOAL_PIECE_CALL,
        [SH_OUTPUT_CALL_ARGS] = SHOAL_PIECE_CALL_ARGUMENTS,
        [SH_OUTPUT_CALL_BROKEN] = SHOAL_PIECE_CALL_BROKEN,
    };
    struct answer *answer = ctx;
    const shoal_question *q = answer->question;
    if (q->piece == NULL || event->kind == SH_OUTPUT_CALL_END ||
        __atomic_load_n(&answer->stop, __ATOMIC_RELAXED) != 0)
        return;
    sh_buf_clear(&answer->text);
    sh_buf_add_str(&answer->text, event->kind == SH_OUTPUT_CALL_BEGIN ? event->name : event->text);
    sh_buf_reserve(&answer->text, 1)[0] = '\0';
    if (q->piece(q->ctx, kinds[event->kind], answer->text.ptr, answer->text.len) != 0)
        answer_stop(answer);
}

static sh_status list_parse(const char *text, const char *where, const cJSON **out, sh_err *err)
{
    cJSON *list = NULL;
    if (text == NULL) return SH_OK;
    sh_status status = sh_json_parse(sh_str_of(text), where, &list, err);
    *out = list;
    if (status == SH_OK && !cJSON_IsArray(list))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: must be a JSON list, not %s", where,
                            sh_json_kind(list));
    return status;
}

static sh_status stops_check(const cJSON *stops, sh_err *err)
{
    for (const cJSON *s = stops == NULL ? NULL : stops->child; s != NULL; s = s->next)
        if (!cJSON_IsString(s) || s->valuestring[0] == '\0')
            return sh_err_set(err, SH_ERR_INPUT,
                              "stop: must be a list of texts, none of them empty");
    return SH_OK;
}

typedef struct {
    const char *name;
    double value, min, max;
} bounded;

/* NAN is fine: it means that the value was not set. */
static sh_status numbers_check(const shoal_question *q, sh_err *err)
{
    const bounded all[] = {{"temperature", q->temperature, 0, 100},
                           {"top_p", q->top_p, 0, 1},
                           {"repetition_penalty", q->repetition_penalty, 0.01, 100},
                           {"min_p", q->min_p, 0, 1},
                           {"top_k", (double)q->top_k, -1, INT32_MAX},
                           {"max_tokens", (double)q->max_tokens, 0, INT32_MAX},
                           {"seed", (double)q->seed, -1, (double)SEED_MAX}};
    for (size_t i = 0; i < SH_COUNT_OF(all); i++)
        if (all[i].value < all[i].min || all[i].value > all[i].max)
            return sh_err_set(err, SH_ERR_INPUT, "%s is %g: must be %g to %.16g", all[i].name,
                              all[i].value, all[i].min, all[i].max);
    return SH_OK;
}

/* The caller frees the lists of *out with sh_question_reset, and messages. */
static sh_status question_read(const shoal_question *q, sh_question *out, sh_err *err)
{
    sh_status status = SH_OK;
    if ((q->messages == NULL) == (q->prompt == NULL))
        status = sh_err_set(err, SH_ERR_INPUT, "a question has either messages or a prompt");
    if (status == SH_OK) status = numbers_check(q, err);
    if (status != SH_OK) return status;
    *out = (sh_question){.text = q->prompt,
                         .temperature = q->temperature,
                         .top_p = q->top_p,
                         .repetition_penalty = q->repetition_penalty,
                         .top_k = q->top_k,
                         .min_p = q->min_p,
                         .max_tokens = q->max_tokens,
                         .seed = (uint64_t)q->seed};
    if (q->seed < 0) {
        status = sh_random_bytes(&out->seed, sizeof(out->seed), err);
        out->seed &= (uint64_t)SEED_MAX;
    }
    if (status == SH_OK) status = list_parse(q->messages, "messages", &out->messages, err);
    if (status == SH_OK) status = list_parse(q->tools, "tools", &out->tools, err);
    if (status == SH_OK) status = list_parse(q->stop, "stop", &out->stops, err);
    return status == SH_OK ? stops_check(out->stops, err) : status;
}

static void reply_fill(const sh_reply *from, shoal_reply *out)
{
    shoal_reply reply = {.prompt_tokens = from->prompt_tokens,
                         .cached_tokens = from->cached_tokens,
                         .completion_tokens = from->completion_tokens,
                         .prompt_s = from->prompt_s,
                         .answer_s = from->answer_s};
    memcpy(reply.finish, from->finish, sizeof(reply.finish));
    if (out != NULL) sh_lib_copy(out, out->size, &reply, sizeof(reply));
}

shoal_status shoal_model_ask(shoal_model *model, const shoal_question *question, shoal_reply *reply,
                             shoal_error *error)
{
    sh_err err;
    sh_question q = {0};
    sh_reply got;
    shoal_question whole;
    struct answer answer = {.question = &whole};
    sh_reply_handler handler = {.event = on_event, .ctx = &answer, .stop = &answer.stop};
    SHOAL_QUESTION_INIT(&whole);
    sh_lib_copy(&whole, sizeof(whole), question, question->size);
    sh_status status = question_read(&whole, &q, &err);
    if (status == SH_OK) {
        answer_add(model, &answer);
        status = sh_model_client_ask(model->client, &q, &handler, &got, &err);
        answer_remove(model, &answer);
        sh_buf_reset(&answer.text);
    }
    if (status == SH_OK) {
        reply_fill(&got, reply);
        sh_reply_reset(&got);
    }
    cJSON_Delete((cJSON *)(uintptr_t)q.messages);
    sh_question_reset(&q);
    return sh_lib_result(status, &err, error);
}
