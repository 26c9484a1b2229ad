#include "api/served.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct sh_served {
    int references;
    char *dir;
    char *name;
    int context;
    int vocab;
    int64_t created_s;
    sh_model_text *text;
};

sh_served *sh_served_take(sh_served *served)
{
    served->references++;
    return served;
}

void sh_served_close(sh_served *served)
{
    if (served == NULL || --served->references > 0) return;
    sh_model_text_close(served->text);
    free(served->dir);
    free(served->name);
    free(served);
}

static const char *base_name(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
}

/* Requests are texts: a model whose texts nobody can read cannot be served. */
static sh_status text_open(sh_served *served, const sh_served_opts *opts, sh_err *err)
{
    sh_model_text_opts with = {.reasoning_parser = opts->reasoning_parser,
                               .tool_parser = opts->tool_parser,
                               .vocab = served->vocab};
    sh_status status = sh_model_text_open(served->dir, &with, &served->text, err);
    if (status == SH_OK && sh_model_text_tokenizer(served->text) == NULL)
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s: has neither tokenizer.json nor tiktoken.model", served->dir);
    return status;
}

sh_status sh_served_open(const sh_engine_info *info, const sh_served_opts *opts, sh_served **out,
                         sh_err *err)
{
    sh_served *served = sh_alloc(sizeof(*served));
    served->references = 1;
    served->dir = sh_strdup(info->model_dir);
    while (strlen(served->dir) > 1 && served->dir[strlen(served->dir) - 1] == '/')
        served->dir[strlen(served->dir) - 1] = '\0';
    served->name = sh_strdup(opts->name == NULL ? base_name(served->dir) : opts->name);
    served->context = info->context;
    served->vocab = info->vocab;
    served->created_s = sh_clock_unix_us() / 1000000;
    if (text_open(served, opts, err) != SH_OK) {
        sh_served_close(served);
        return err->status;
    }
    *out = served;
    return SH_OK;
}

const char *sh_served_name(const sh_served *served)
{
    return served->name;
}

const char *sh_served_dir(const sh_served *served)
{
    return served->dir;
}

int sh_served_context(const sh_served *served)
{
    return served->context;
}

int64_t sh_served_created_s(const sh_served *served)
{
    return served->created_s;
}

bool sh_served_is_named(const sh_served *served, const char *name)
{
    const char *const names[] = {served->name, served->dir, base_name(served->dir), "default",
                                 "default_model"};
    if (name == NULL) return true;
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

const sh_model_text *sh_served_text(const sh_served *served)
{
    return served->text;
}

const char *sh_served_type(const sh_served *served)
{
    return sh_model_text_type(served->text);
}

const sh_tokenizer *sh_served_tokenizer(const sh_served *served)
{
    return sh_model_text_tokenizer(served->text);
}

void sh_served_piece(const sh_served *served, int32_t id, sh_buf *out)
{
    sh_model_text_piece(served->text, id, out);
}

bool sh_served_render(const sh_served *served, const sh_request *request, sh_buf *out,
                      sh_api_error *err)
{
    if (!sh_model_text_has_chat(served->text))
        return sh_api_fail(err, 400, "no_chat_template", "messages",
                           "the model '%s' has no chat template; use /v1/completions",
                           served->name);
    cJSON *chat = cJSON_CreateObject();
    SH_ASSERT(chat != NULL);
    cJSON_AddItemReferenceToObject(chat, "messages", request->messages);
    if (request->tools != NULL) cJSON_AddItemReferenceToObject(chat, "tools", request->tools);
    if (request->variables != NULL)
        cJSON_AddItemReferenceToObject(chat, "chat_template_kwargs", request->variables);
    sh_err why;
    sh_status status = sh_model_text_render(served->text, chat, NULL, out, &why);
    cJSON_Delete(chat);
    if (status == SH_OK) return true;
    return sh_api_fail(err, 400, "chat_template_failed", "messages",
                       "the model's chat template does not take these messages: %s", why.text);
}

static bool encode(const sh_served *served, sh_str text, bool rendered, sh_arena *arena,
                   sh_tokens *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    if (sh_model_text_encode(served->text, text, rendered, &ids, &why) != SH_OK) {
        sh_ids_reset(&ids);
        *err = sh_api_error_of(&why, false);
        return false;
    }
    int32_t *copy = sh_arena_array(arena, ids.len, sizeof(*copy));
    if (ids.len > 0) memcpy(copy, ids.ptr, ids.len * sizeof(*copy));
    *out = (sh_tokens){.ids = copy, .count = ids.len};
    sh_ids_reset(&ids);
    return true;
}

static bool tokens_check(const sh_served *served, const sh_tokens *tokens, const char *param,
                         sh_api_error *err)
{
    if (tokens->count == 0)
        return sh_api_fail(err, 400, "invalid_value", param, "'%s' is empty", param);
    if (tokens->count >= (size_t)served->context)
        return sh_api_fail(err, 400, "context_length_exceeded", param,
                           "'%s' has %zu tokens; with at least one for the answer the context "
                           "holds %d",
                           param, tokens->count, served->context);
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] < 0 || tokens->ids[i] >= served->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' has the token id %d; the vocabulary has 0 to %d", param,
                               tokens->ids[i], served->vocab - 1);
    return true;
}

static bool ids_check(const sh_served *served, const int32_t *ids, int count, const char *param,
                      sh_api_error *err)
{
    for (int i = 0; i < count; i++)
        if (ids[i] >= served->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' has the token id %d; the vocabulary has 0 to %d", param,
                               ids[i], served->vocab - 1);
    return true;
}

/* A model that has to call a function is given the beginning of the call. */
static bool call_lead(const sh_served *served, sh_request *request, bool in_reasoning, sh_buf *text,
                      sh_str *lead, sh_api_error *err)
{
    size_t start = text->len;
    if (request->tool_choice != SH_TOOLS_REQUIRED && request->tool_choice != SH_TOOLS_NAMED)
        return true;
    if (!sh_output_call_lead(sh_model_text_dialect(served->text), in_reasoning, request->tool_name,
                             text))
        return sh_api_fail(err, 400, "unsupported_value", "tool_choice",
                           "'tool_choice' cannot make the model '%s' call a function: how it "
                           "writes calls is not known (--tool-parser)",
                           served->name);
    *lead = sh_arena_str(&request->arena, sh_str_sub(sh_buf_str(text), start, text->len));
    return true;
}

static bool chat_prepare(const sh_served *served, sh_request *request, sh_tokens *out,
                         sh_api_error *err)
{
    const sh_output_dialect *dialect = sh_model_text_dialect(served->text);
    sh_buf text = {0};
    sh_str lead = {"", 0};
    bool fine = sh_served_render(served, request, &text, err);
    bool in_reasoning = fine && sh_output_prompt_opens(dialect, sh_buf_str(&text));
    fine = fine && call_lead(served, request, in_reasoning, &text, &lead, err) &&
           encode(served, sh_buf_str(&text), true, &request->arena, out, err);
    out->in_reasoning = in_reasoning;
    out->lead = lead;
    sh_buf_reset(&text);
    return fine && tokens_check(served, out, "messages", err);
}

static bool prompt_prepare(const sh_served *served, sh_request *request, const sh_prompt *prompt,
                           sh_tokens *out, sh_api_error *err)
{
    *out = (sh_tokens){.ids = prompt->ids, .count = prompt->id_count};
    if (prompt->text.ptr != NULL && !encode(served, prompt->text, false, &request->arena, out, err))
        return false;
    return tokens_check(served, out, "prompt", err);
}

bool sh_served_prepare(const sh_served *served, sh_request *request, sh_tokens **out, size_t *count,
                       sh_api_error *err)
{
    *count = request->chat ? 1 : request->prompt_count;
    sh_tokens *tokens = sh_arena_array(&request->arena, *count, sizeof(*tokens));
    if (!ids_check(served, request->bias_ids, request->bias_count, "logit_bias", err) ||
        !ids_check(served, request->stop_ids, request->stop_id_count, "stop_token_ids", err))
        return false;
    if (request->chat) {
        if (!chat_prepare(served, request, tokens, err)) return false;
    } else {
        for (size_t i = 0; i < *count; i++)
            if (!prompt_prepare(served, request, &request->prompts[i], &tokens[i], err))
                return false;
    }
    *out = tokens;
    return true;
}
