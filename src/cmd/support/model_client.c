/* What both kinds of model client share: questions from settings, the choice between --model and
 * --url, and replies. */
#include "cmd/support/model_client.h"

#include "api/messages.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/system.h"
#include "cmd/support/api_call.h"
#include "cmd/support/demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOOLS_FILE_MAX = 16 << 20, PROBE_MS = 1000 };

static const uint64_t SEED_MAX = (UINT64_C(1) << 53) - 1;

sh_status sh_stops_read(const char *text, cJSON **out, sh_err *err)
{
    sh_err not_json;
    cJSON *list = NULL;
    if (text[0] != '[' || sh_json_parse(sh_str_of(text), "--stop", &list, &not_json) != SH_OK) {
        list = cJSON_CreateArray();
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        if (!cJSON_IsString(item) || item->valuestring[0] == '\0') {
            cJSON_Delete(list);
            return sh_err_set(err, SH_ERR_INPUT,
                              "--stop takes a text or a JSON list of texts, none of them empty");
        }
    *out = list;
    return SH_OK;
}

static sh_status tools_read(const char *path, cJSON **out, sh_err *err)
{
    cJSON *list = NULL;
    sh_status status = sh_json_load(path, TOOLS_FILE_MAX, &list, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsArray(list)) {
        cJSON_Delete(list);
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: tools must be a list of functions in OpenAI's form", path);
    }
    *out = list;
    return SH_OK;
}

/* Whether a sampling parameter was given is asked of the options, not guessed from its value: 0 is
 * a valid temperature. The same goes for the seed, whose default is random. */
sh_status sh_question_init(sh_question *q, const sh_command_args *args, bool own_sampling,
                           sh_err *err)
{
    const sh_settings *s = args->settings;
    const sh_options *given = args->options;
    cJSON *stops = NULL, *tools = NULL;
    *q = (sh_question){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .top_k = s->top_k,
        .repetition_penalty = own_sampling ? NAN : 1,
        .min_p = s->min_p,
        .max_tokens = s->max_tokens,
        .seed = (uint64_t)s->seed,
    };
    if (own_sampling && !sh_options_given(given, "temperature")) q->temperature = NAN;
    if (own_sampling && !sh_options_given(given, "top-p")) q->top_p = NAN;
    if (own_sampling && !sh_options_given(given, "top-k")) q->top_k = -1;
    sh_status status = SH_OK;
    if (!sh_options_given(given, "seed")) status = sh_random_bytes(&q->seed, sizeof(q->seed), err);
    q->seed &= SEED_MAX;
    if (status == SH_OK && s->stop != NULL) status = sh_stops_read(s->stop, &stops, err);
    if (status == SH_OK && s->tools != NULL) status = tools_read(s->tools, &tools, err);
    q->stops = stops;
    q->tools = tools;
    if (status != SH_OK) sh_question_reset(q);
    return status;
}

void sh_question_reset(sh_question *q)
{
    cJSON_Delete((cJSON *)q->stops);
    cJSON_Delete((cJSON *)q->tools);
    *q = (sh_question){0};
}

sh_status sh_question_render(const sh_model_text *text, cJSON *request, sh_buf *out, sh_err *err)
{
    sh_api_error why;
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(request, "messages");
    const cJSON *tools = cJSON_GetObjectItemCaseSensitive(request, "tools");
    if (!cJSON_IsArray(messages) || (tools != NULL && !cJSON_IsArray(tools)))
        return sh_err_set(err, SH_ERR_INPUT, "'%s' must be a list",
                          cJSON_IsArray(messages) ? "tools" : "messages");
    if (!sh_messages_shape(messages, &why) || (tools != NULL && !sh_tools_check(tools, &why)))
        return sh_err_set(err, SH_ERR_INPUT, "%s", why.message);
    return sh_model_text_render(text, request, NULL, out, err);
}

bool sh_model_client_is_remote(const sh_options *options)
{
    return sh_options_source(options, "url") > sh_options_source(options, "model");
}

/* A probe must not delay the demo model for long. */
static bool server_answers(const sh_settings *s)
{
    sh_buf answer = {0};
    sh_err ignored;
    int code = 0;
    bool answers = sh_api_call(s, NULL, "/health", NULL, PROBE_MS, &code, &answer, &ignored) ==
                       SH_OK &&
                   sh_str_find(sh_buf_str(&answer), SH_STR("\"status\""), 0) < answer.len;
    sh_buf_reset(&answer);
    return answers;
}

/* The lowest source that counts as given: whatever the user sets would have won. */
static void choice_take(sh_options *options, const char *name, const char *text)
{
    sh_err ignored; /* our own values are valid */
    fprintf(stderr, "using %s %s\n", strcmp(name, "url") == 0 ? "the server at" : "the demo model,",
            text);
    sh_status status = sh_options_set(options, SH_FROM_FILE, sh_str_of(name), sh_str_of(text),
                                      &ignored);
    SH_ASSERT(status == SH_OK);
}

void sh_model_client_choose(sh_options *options, const sh_settings *s)
{
    char *found = NULL;
    sh_err ignored;
    if (sh_options_given(options, "model") || sh_options_given(options, "url")) return;
    if (server_answers(s)) {
        found = sh_api_url(s, NULL, "");
        choice_take(options, "url", found);
    } else if (sh_program_path(&found, &ignored) == SH_OK) {
        char *demo = sh_demo_find(found);
        if (demo != NULL) choice_take(options, "model", demo);
        free(demo);
    }
    free(found);
}

/* --model from the environment and --url as a flag are fine: the flag wins. Both as flags are a
 * contradiction. */
bool sh_model_client_usage(const sh_command_args *args, const char *command)
{
    bool model = sh_options_given(args->options, "model");
    bool both = sh_options_source(args->options, "url") == SH_FROM_FLAG &&
                sh_options_source(args->options, "model") == SH_FROM_FLAG;
    if (both) fprintf(stderr, "shoal: %s takes --model or --url, not both\n", command);
    if (both || model || sh_model_client_is_remote(args->options)) return !both;
    fprintf(stderr, "shoal: %s needs --model, or --url for a running server\n", command);
    return false;
}

/* The setting from the source of highest precedence says where the model is. */
sh_status sh_model_client_open(const sh_command_args *args, const sh_model_client_opts *opts,
                               sh_model_client **out, sh_err *err)
{
    if (sh_model_client_is_remote(args->options)) return sh_model_client_http(args, opts, out, err);
    if (sh_options_source(args->options, "socket") > sh_options_source(args->options, "model"))
        return sh_model_client_socket(args, opts, out, err);
    return sh_model_client_local(args, opts, out, err);
}

void sh_model_client_close(sh_model_client *client)
{
    if (client != NULL) client->close(client);
}

const char *sh_model_client_label(const sh_model_client *client)
{
    return client->label;
}

double sh_model_client_load_s(const sh_model_client *client)
{
    return client->load_s;
}

/* A server at --url may come back, so there the user can simply try again; a local engine whose
 * ranks are lost cannot. */
bool sh_model_client_is_lost(const sh_model_client *client, sh_status status)
{
    return !client->remote &&
           (status == SH_ERR_PEER || status == SH_ERR_GROUP || status == SH_ERR_TIMEOUT);
}

/* The reply is passed on only on success, so that callers have nothing to free after an error. */
sh_status sh_model_client_ask(sh_model_client *client, const sh_question *q,
                              const sh_reply_handler *handler, sh_reply *out, sh_err *err)
{
    sh_reply reply = {0};
    sh_status status = client->ask(client, q, handler, &reply, err);
    if (status == SH_OK)
        *out = reply;
    else
        sh_reply_reset(&reply);
    return status;
}

void sh_reply_add_logprob(sh_reply *reply, double logprob)
{
    reply->logprobs = sh_realloc_array(reply->logprobs, reply->logprob_count + 1, sizeof(double));
    reply->logprobs[reply->logprob_count++] = logprob;
}

void sh_reply_reset(sh_reply *reply)
{
    sh_ids_reset(&reply->ids);
    free(reply->logprobs);
    *reply = (sh_reply){0};
}
