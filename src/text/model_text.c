/* Reads a model's folder by the rules of transformers, as far as transformers reads it: which
 * template to use (chat_template.c), which tokens are special (tokenizer.c), what ends an answer.
 *
 * An answer ends with any id that generation_config.json or config.json lists in `eos_token_id`,
 * and with the tokenizer's eos_token: makers of models forget one or another of the three, and a
 * model whose end token we miss generates until it hits the length limit. Ids that the model cannot
 * produce are dropped here, so that no later code needs to check. */
#include "text/model_text.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20 };

struct sh_model_text {
    char *dir; /* "" when there is none */
    char *type;
    int vocab;
    sh_tokenizer *tok;
    sh_chat_template *chat;
    sh_output_dialect dialect;
    sh_sampling_recommended sampling;
    sh_ids end_ids;
};

void sh_model_text_close(sh_model_text *text)
{
    if (text == NULL) return;
    sh_tokenizer_free(text->tok);
    sh_chat_template_free(text->chat);
    sh_ids_reset(&text->end_ids);
    free(text->dir);
    free(text->type);
    free(text);
}

/* *out stays NULL if the file does not exist. */
static sh_status json_read(const char *dir, const char *file, cJSON **out, sh_err *err)
{
    char *path = sh_path_join(dir, file);
    sh_status status = sh_file_exists(path) ? sh_json_load(path, JSON_MAX, out, err) : SH_OK;
    free(path);
    return status;
}

/* `where` is the file of the folder that lists the id. */
static sh_status end_id_add(sh_model_text *text, double id, const char *where, sh_err *err)
{
    if (!(id >= 0 && id < text->vocab)) {
        SH_LOGW("%s/%s: ignoring end-of-sequence token %g: the vocabulary has %d tokens", text->dir,
                where, id, text->vocab);
        return SH_OK;
    }
    if (sh_model_text_is_end_id(text, (int32_t)id)) return SH_OK;
    if (text->end_ids.len == SH_END_IDS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s/%s: more than %d end-of-sequence tokens",
                          text->dir, where, SH_END_IDS_MAX);
    sh_ids_add(&text->end_ids, (int32_t)id);
    return SH_OK;
}

/* `eos_token_id` is one id or a list of them; it may be null or absent. */
static sh_status end_ids_add(sh_model_text *text, const cJSON *config, const char *where,
                             sh_err *err)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
    if (ids == NULL || cJSON_IsNull(ids)) return SH_OK;
    sh_status status = SH_OK;
    for (const cJSON *id = cJSON_IsArray(ids) ? ids->child : ids; id != NULL && status == SH_OK;
         id = cJSON_IsArray(ids) ? id->next : NULL) {
        if (!cJSON_IsNumber(id) || floor(id->valuedouble) != id->valuedouble)
            return sh_err_set(err, SH_ERR_INPUT,
                              "%s/%s: 'eos_token_id' must be a token id or a list of them",
                              text->dir, where);
        status = end_id_add(text, id->valuedouble, where, err);
    }
    return status;
}

/* A recommendation out of range must not keep the model from being served: warn and go on. */
static double number_of(const cJSON *config, const char *key, double min, double max,
                        double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
    if (!cJSON_IsNumber(item)) return fallback;
    if (item->valuedouble >= min && item->valuedouble <= max) return item->valuedouble;
    SH_LOGW("generation_config.json: '%s' is %g, but must be %g to %g; using %g", key,
            item->valuedouble, min, max, fallback);
    return fallback;
}

/* The fallbacks change nothing: temperature 1, no top_p, no top_k, no penalty. do_sample false
 * means greedy. */
static void sampling_read(sh_model_text *text, const cJSON *config)
{
    text->sampling = (sh_sampling_recommended){
        .temperature = number_of(config, "temperature", 0, 2, 1),
        .top_p = number_of(config, "top_p", 0, 1, 1),
        .top_k = (int)number_of(config, "top_k", 0, 1 << 24, 0),
        .repetition_penalty = number_of(config, "repetition_penalty", 0.01, 10, 1),
    };
    if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, "do_sample")))
        text->sampling.temperature = 0;
}

/* Multi-modal configs keep the settings of the language model in `text_config`. */
static sh_status config_read(sh_model_text *text, const cJSON *config, const cJSON *generation,
                             sh_err *err)
{
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(config, "text_config");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    text->type = sh_strdup(type == NULL ? "" : type);
    sampling_read(text, generation);
    sh_status status = end_ids_add(text, generation, "generation_config.json", err);
    if (status == SH_OK) status = end_ids_add(text, config, "config.json", err);
    if (status == SH_OK) status = end_ids_add(text, inner, "config.json: text_config", err);
    int32_t eos = text->tok == NULL ? -1 : sh_tokenizer_named(text->tok, SH_TOKEN_EOS);
    if (status == SH_OK && eos >= 0) status = end_id_add(text, eos, "tokenizer_config.json", err);
    return status;
}

static sh_status configs_read(sh_model_text *text, sh_err *err)
{
    cJSON *config = NULL, *generation = NULL;
    sh_status status = json_read(text->dir, "config.json", &config, err);
    if (status == SH_OK) status = json_read(text->dir, "generation_config.json", &generation, err);
    if (status == SH_OK) status = config_read(text, config, generation, err);
    cJSON_Delete(config);
    cJSON_Delete(generation);
    return status;
}

/* Searches both templates, since only the one for tools may contain the markers of calls. */
static sh_status dialect_read(sh_model_text *text, const sh_model_text_opts *opts, sh_err *err)
{
    sh_buf source = {0};
    if (text->chat != NULL) {
        sh_buf_add_str(&source, sh_chat_template_source(text->chat, false));
        sh_buf_add_str(&source, sh_chat_template_source(text->chat, true));
    }
    text->dialect = sh_output_dialect_detect(sh_buf_str(&source), text->type);
    sh_buf_reset(&source);
    return sh_output_dialect_choose(&text->dialect, opts->reasoning_parser, opts->tool_parser, err);
}

/* A folder may lack a part when the caller wants all of them; a file that the caller named, or the
 * only part asked for, must exist. */
static sh_status parts_load(sh_model_text *text, const char *dir, const sh_model_text_opts *opts,
                            sh_err *err)
{
    sh_status status = SH_OK;
    if (opts->parts != SH_MODEL_TEXT_CHAT) {
        status = sh_tokenizer_load(opts->tokenizer != NULL ? opts->tokenizer : dir, &text->tok,
                                   err);
        if (status == SH_ERR_NOT_FOUND && opts->tokenizer == NULL &&
            opts->parts == SH_MODEL_TEXT_ALL)
            status = SH_OK;
    }
    if (status == SH_OK && opts->parts != SH_MODEL_TEXT_TOKENS) {
        status = sh_chat_template_load(dir, opts->template, &text->chat, err);
        if (status == SH_ERR_NOT_FOUND && opts->template == NULL &&
            opts->parts == SH_MODEL_TEXT_ALL)
            status = SH_OK;
    }
    return status;
}

sh_status sh_model_text_open(const char *dir, const sh_model_text_opts *opts, sh_model_text **out,
                             sh_err *err)
{
    sh_model_text *text = sh_alloc(sizeof(*text));
    text->dir = sh_strdup(dir == NULL ? "" : dir);
    sh_status status = parts_load(text, dir, opts, err);
    if (status == SH_OK && opts->parts == SH_MODEL_TEXT_ALL) {
        /* Without either size any id is accepted: there is nothing to check against. */
        text->vocab = opts->vocab > 0     ? opts->vocab
                      : text->tok != NULL ? (int)sh_tokenizer_size(text->tok)
                                          : INT32_MAX;
        status = configs_read(text, err);
        if (status == SH_OK) status = dialect_read(text, opts, err);
    }
    if (status != SH_OK) {
        sh_model_text_close(text);
        return status;
    }
    *out = text;
    return SH_OK;
}

const sh_tokenizer *sh_model_text_tokenizer(const sh_model_text *text)
{
    return text->tok;
}

sh_str sh_model_text_template(const sh_model_text *text, bool with_tools)
{
    return text->chat == NULL ? SH_STR("") : sh_chat_template_source(text->chat, with_tools);
}

bool sh_model_text_has_chat(const sh_model_text *text)
{
    return text->chat != NULL;
}

const char *sh_model_text_type(const sh_model_text *text)
{
    return text->type;
}

const sh_output_dialect *sh_model_text_dialect(const sh_model_text *text)
{
    return &text->dialect;
}

bool sh_model_text_reasoning_ids(const sh_model_text *text, int32_t *begin, int32_t *end)
{
    sh_str open, close;
    const sh_tokenizer *tokenizer = sh_model_text_tokenizer(text);
    if (tokenizer == NULL || !sh_output_reasoning_markers(text->dialect.reasoning, &open, &close))
        return false;
    *begin = sh_tokenizer_id(tokenizer, open);
    *end = sh_tokenizer_id(tokenizer, close);
    return *begin >= 0 && *end >= 0;
}

const sh_ids *sh_model_text_end_ids(const sh_model_text *text)
{
    return &text->end_ids;
}

bool sh_model_text_is_end_id(const sh_model_text *text, int32_t id)
{
    for (size_t i = 0; i < text->end_ids.len; i++)
        if (text->end_ids.ptr[i] == id) return true;
    return false;
}

sh_sampling_recommended sh_model_text_sampling(const sh_model_text *text)
{
    return text->sampling;
}

sh_status sh_model_text_render(const sh_model_text *text, const cJSON *request,
                               const sh_template_opts *opts, sh_buf *out, sh_err *err)
{
    if (text->chat == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no chat template", text->dir);
    return sh_chat_template_render(text->chat, request, opts, out, err);
}

sh_status sh_model_text_encode(const sh_model_text *text, sh_str prompt, bool rendered, sh_ids *out,
                               sh_err *err)
{
    sh_encode_opts opts = {.add_special = !rendered, .parse_special = true};
    if (text->tok == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no tokenizer.json", text->dir);
    return sh_tokenizer_encode(text->tok, prompt, opts, out, err);
}

void sh_model_text_piece(const sh_model_text *text, int32_t id, sh_buf *out)
{
    if (text->tok != NULL && id >= 0 && id < sh_tokenizer_size(text->tok))
        sh_tokenizer_bytes(text->tok, id, out);
}
