/* From a request to token ids: render the chat template, encode and check the result against
 * context and vocabulary. Everything that can be wrong with a request is found here and reported
 * with the name of its field; the engine only checks again. */
#include "api/served_model.h"

#include "api/messages.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct sh_served_model {
    int references;
    char *dir;
    char *name;
    int context;
    int vocab;
    int64_t created_s;
    sh_model_text *text;
    sh_form_cache *forms;
};

sh_served_model *sh_served_model_take(sh_served_model *model)
{
    model->references++;
    return model;
}

void sh_served_model_close(sh_served_model *model)
{
    if (model == NULL || --model->references > 0) return;
    sh_model_text_close(model->text);
    sh_form_cache_free(model->forms);
    free(model->dir);
    free(model->name);
    free(model);
}

static const char *base_name(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
}

/* A model without a tokenizer cannot be served: requests are texts. */
static sh_status text_open(sh_served_model *model, const sh_served_model_opts *opts, sh_err *err)
{
    sh_model_text_opts with = {.reasoning_parser = opts->reasoning_parser,
                               .tool_parser = opts->tool_parser,
                               .vocab = model->vocab};
    sh_status status = sh_model_text_open(model->dir, &with, &model->text, err);
    if (status == SH_OK && sh_model_text_tokenizer(model->text) == NULL)
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s: neither tokenizer.json nor tiktoken.model was found", model->dir);
    return status;
}

sh_status sh_served_model_open(const sh_engine_info *info, const sh_served_model_opts *opts,
                               sh_served_model **out, sh_err *err)
{
    sh_served_model *model = sh_alloc(sizeof(*model));
    model->references = 1;
    model->dir = sh_strdup(info->model_dir);
    while (strlen(model->dir) > 1 && model->dir[strlen(model->dir) - 1] == '/')
        model->dir[strlen(model->dir) - 1] = '\0';
    model->name = sh_strdup(opts->name == NULL ? base_name(model->dir) : opts->name);
    model->context = info->context;
    model->vocab = info->vocab;
    model->created_s = sh_clock_unix_us() / 1000000;
    if (text_open(model, opts, err) != SH_OK || sh_form_cache_create(&model->forms, err) != SH_OK) {
        sh_served_model_close(model);
        return err->status;
    }
    *out = model;
    return SH_OK;
}

const char *sh_served_model_name(const sh_served_model *model)
{
    return model->name;
}

const char *sh_served_model_dir(const sh_served_model *model)
{
    return model->dir;
}

int sh_served_model_context(const sh_served_model *model)
{
    return model->context;
}

int64_t sh_served_model_created_s(const sh_served_model *model)
{
    return model->created_s;
}

bool sh_served_model_check_name(const sh_served_model *model, const char *name, sh_api_error *err)
{
    const char *const names[] = {model->name, model->dir, base_name(model->dir), "default",
                                 "default_model"};
    if (name == NULL) return true;
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return sh_api_fail(err, 404, "model_not_found", "model",
                       "the model '%s' is not served here; '%s' is", name, model->name);
}

const sh_model_text *sh_served_model_text(const sh_served_model *model)
{
    return model->text;
}

const char *sh_served_model_type(const sh_served_model *model)
{
    return sh_model_text_type(model->text);
}

const sh_tokenizer *sh_served_model_tokenizer(const sh_served_model *model)
{
    return sh_model_text_tokenizer(model->text);
}

sh_form_cache *sh_served_model_forms(const sh_served_model *model)
{
    return model->forms;
}

void sh_served_model_piece(const sh_served_model *model, int32_t id, sh_buf *out)
{
    sh_model_text_piece(model->text, id, out);
}

static const char *messages_field(const sh_job_spec *spec)
{
    return spec->messages_field == NULL ? "messages" : spec->messages_field;
}

bool sh_served_model_render(const sh_served_model *model, const sh_job_spec *spec, sh_buf *out,
                            sh_api_error *err)
{
    if (!sh_model_text_has_chat(model->text))
        return sh_api_fail(err, 400, "no_chat_template", messages_field(spec),
                           "the model '%s' has no chat template; use /v1/completions", model->name);
    cJSON *chat = cJSON_CreateObject();
    SH_ASSERT(chat != NULL);
    cJSON_AddItemReferenceToObject(chat, "messages", spec->messages);
    if (spec->tools != NULL) cJSON_AddItemReferenceToObject(chat, "tools", spec->tools);
    if (spec->variables != NULL)
        cJSON_AddItemReferenceToObject(chat, "chat_template_kwargs", spec->variables);
    sh_err why;
    sh_status status = sh_model_text_render(model->text, chat, NULL, out, &why);
    cJSON_Delete(chat);
    if (status == SH_OK) return true;
    return sh_api_fail(err, 400, "chat_template_failed", messages_field(spec),
                       "the model's chat template rejected these messages: %s", why.text);
}

/* `rendered`: the text comes from the chat template, which writes special tokens itself. */
static bool encode(const sh_served_model *model, sh_str text, bool rendered, sh_arena *arena,
                   sh_tokens *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    if (sh_model_text_encode(model->text, text, rendered, &ids, &why) != SH_OK) {
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

/* The engine would refuse such a prompt as well, but without knowing the name of the field. */
static bool tokens_check(const sh_served_model *model, const sh_tokens *tokens, const char *param,
                         sh_api_error *err)
{
    if (tokens->count == 0)
        return sh_api_fail(err, 400, "invalid_value", param, "'%s' is empty", param);
    if (tokens->count >= (size_t)model->context)
        return sh_api_fail(err, 400, "context_length_exceeded", param,
                           "'%s' has %zu tokens; the context holds %d, including at least one for "
                           "the answer",
                           param, tokens->count, model->context);
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] < 0 || tokens->ids[i] >= model->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' contains token id %d; the vocabulary has 0 to %d", param,
                               tokens->ids[i], model->vocab - 1);
    return true;
}

static bool ids_check(const sh_served_model *model, const int32_t *ids, int count,
                      const char *param, sh_api_error *err)
{
    for (int i = 0; i < count; i++)
        if (ids[i] >= model->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' contains token id %d; the vocabulary has 0 to %d", param,
                               ids[i], model->vocab - 1);
    return true;
}

static bool chat_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens *out,
                         sh_api_error *err)
{
    const sh_output_dialect *dialect = sh_model_text_dialect(model->text);
    sh_buf text = {0};
    bool fine = sh_served_model_render(model, spec, &text, err);
    bool in_reasoning = fine && sh_output_prompt_opens(dialect, sh_buf_str(&text));
    fine = fine && encode(model, sh_buf_str(&text), true, &spec->arena, out, err);
    out->in_reasoning = in_reasoning;
    out->may_reason = fine && sh_output_may_reason(dialect, sh_buf_str(&text));
    sh_buf_reset(&text);
    return fine && tokens_check(model, out, messages_field(spec), err);
}

/* Each attempt leaves out twice as many messages as the one before, so that there are few. */
static bool chat_prepare_fitting(const sh_served_model *model, sh_job_spec *spec, sh_tokens *out,
                                 sh_api_error *err)
{
    for (int drop = 1; !chat_prepare(model, spec, out, err); drop *= 2) {
        bool too_long = strcmp(err->code, "context_length_exceeded") == 0;
        if (!spec->truncates || !too_long || !sh_messages_drop_oldest(spec->messages, drop))
            return false;
    }
    return true;
}

static bool prompt_prepare(const sh_served_model *model, sh_job_spec *spec, const sh_prompt *prompt,
                           sh_tokens *out, sh_api_error *err)
{
    *out = (sh_tokens){.ids = prompt->ids, .count = prompt->id_count};
    if (prompt->text.ptr != NULL && !encode(model, prompt->text, false, &spec->arena, out, err))
        return false;
    return tokens_check(model, out, "prompt", err);
}

bool sh_served_model_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens **out,
                             size_t *count, sh_api_error *err)
{
    *count = spec->chat ? 1 : spec->prompt_count;
    sh_tokens *tokens = sh_arena_array(&spec->arena, *count, sizeof(*tokens));
    if (!ids_check(model, spec->bias_ids, spec->bias_count, "logit_bias", err) ||
        !ids_check(model, spec->stop_ids, spec->stop_id_count, "stop_token_ids", err))
        return false;
    if (spec->chat) {
        if (!chat_prepare_fitting(model, spec, tokens, err)) return false;
    } else {
        for (size_t i = 0; i < *count; i++)
            if (!prompt_prepare(model, spec, &spec->prompts[i], &tokens[i], err)) return false;
    }
    *out = tokens;
    return true;
}
