#include "api/served.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "text/template.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20, TEMPLATE_MAX = 4 << 20, END_IDS_MAX = SH_STOP_IDS_MAX / 2 };

struct sh_served {
    int references;
    char *dir;
    char *name;
    char *type;
    int context;
    int vocab;
    int64_t created_s;
    sh_tokenizer *tok;
    sh_template *template; /* NULL: the model has none, and chats are refused */
    sh_template *tool_template;
    sh_output_dialect dialect;
    sh_sampling_own sampling;
    int32_t end_ids[END_IDS_MAX];
    int end_count;
    cJSON *config, *generation_config, *tokenizer_config; /* empty objects where there is no file */
    cJSON *specials; /* bos_token, eos_token and the like, as templates see them */
};

sh_served *sh_served_take(sh_served *served)
{
    served->references++;
    return served;
}

void sh_served_close(sh_served *served)
{
    if (served == NULL || --served->references > 0) return;
    sh_tokenizer_free(served->tok);
    sh_template_free(served->template);
    sh_template_free(served->tool_template);
    cJSON_Delete(served->config);
    cJSON_Delete(served->generation_config);
    cJSON_Delete(served->tokenizer_config);
    cJSON_Delete(served->specials);
    free(served->dir);
    free(served->name);
    free(served->type);
    free(served);
}

/* A file that may be missing, which gives an empty object. */
static sh_status json_read(const char *dir, const char *file, cJSON **out, sh_err *err)
{
    char *path = sh_path_join(dir, file);
    sh_status status = SH_OK;
    if (sh_file_exists(path))
        status = sh_json_load(path, JSON_MAX, out, err);
    else
        *out = cJSON_CreateObject();
    free(path);
    return status;
}

static void end_id_add(sh_served *served, double id)
{
    if (!(id >= 0 && id < served->vocab) || served->end_count == END_IDS_MAX) return;
    for (int i = 0; i < served->end_count; i++)
        if (served->end_ids[i] == (int32_t)id) return;
    served->end_ids[served->end_count++] = (int32_t)id;
}

/* One id or a list of them. */
static void end_ids_add(sh_served *served, const cJSON *config)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
    if (cJSON_IsNumber(ids)) end_id_add(served, ids->valuedouble);
    if (!cJSON_IsArray(ids)) return;
    for (const cJSON *id = ids->child; id != NULL; id = id->next)
        if (cJSON_IsNumber(id)) end_id_add(served, id->valuedouble);
}

static double number_of(const cJSON *obj, const char *key, double min, double max, double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    bool good = cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max;
    return good ? item->valuedouble : fallback;
}

/* The settings that the model's makers recommend. */
static void sampling_read(sh_served *served)
{
    const cJSON *config = served->generation_config;
    served->sampling = (sh_sampling_own){
        .temperature = number_of(config, "temperature", 0, 2, 1),
        .top_p = number_of(config, "top_p", 0, 1, 1),
        .top_k = (int)number_of(config, "top_k", 0, 1 << 24, 0),
        .repetition_penalty = number_of(config, "repetition_penalty", 0.01, 10, 1),
    };
    if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, "do_sample")))
        served->sampling.temperature = 0;
}

/* A token is a string, or an object that holds it as `content`. */
static void specials_read(sh_served *served)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};
    served->specials = cJSON_CreateObject();
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(served->tokenizer_config, names[i]);
        const char *text = cJSON_GetStringValue(item);
        if (cJSON_IsObject(item))
            text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "content"));
        if (text != NULL) cJSON_AddStringToObject(served->specials, names[i], text);
    }
    cJSON_AddBoolToObject(served->specials, "add_generation_prompt", true);
}

static const char config_template[] = "tokenizer_config.json: chat_template";

static sh_status template_parse(const sh_served *served, sh_str source, const char *where,
                                sh_template **out, sh_err *err)
{
    sh_status status = sh_template_parse(source, out, err);
    if (status != SH_OK) sh_err_prefix(err, "%s/%s", served->dir, where);
    return status;
}

/* tokenizer_config.json holds one template, or a list of them by name. */
static sh_status config_templates_read(sh_served *served, sh_buf *source, sh_err *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(served->tokenizer_config, "chat_template");
    if (cJSON_IsString(item)) sh_buf_add_text(source, item->valuestring);
    for (const cJSON *one = cJSON_IsArray(item) ? item->child : NULL; one != NULL;
         one = one->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "name"));
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "template"));
        if (name == NULL || text == NULL) continue;
        if (strcmp(name, "default") == 0) sh_buf_add_text(source, text);
        if (strcmp(name, "tool_use") == 0 && served->tool_template == NULL &&
            template_parse(served, sh_str_of(text), config_template, &served->tool_template, err) !=
                SH_OK)
            return err->status;
    }
    return SH_OK;
}

/* chat_template.jinja comes before tokenizer_config.json. */
static sh_status templates_read(sh_served *served, sh_err *err)
{
    sh_buf source = {0};
    char *path = sh_path_join(served->dir, "chat_template.jinja");
    bool apart = sh_file_exists(path);
    sh_status status = apart ? sh_file_read(path, TEMPLATE_MAX, &source, err)
                             : config_templates_read(served, &source, err);
    if (status == SH_OK && source.len > 0)
        status = template_parse(served, sh_buf_str(&source),
                                apart ? "chat_template.jinja" : config_template, &served->template,
                                err);
    if (status == SH_OK)
        served->dialect = sh_output_dialect_detect(sh_buf_str(&source), served->type);
    sh_buf_reset(&source);
    free(path);
    return status;
}

static const char *base_name(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
}

static sh_status files_read(sh_served *served, sh_err *err)
{
    sh_status status = sh_tokenizer_load(served->dir, &served->tok, err);
    if (status == SH_OK) status = json_read(served->dir, "config.json", &served->config, err);
    if (status == SH_OK)
        status = json_read(served->dir, "generation_config.json", &served->generation_config, err);
    if (status == SH_OK)
        status = json_read(served->dir, "tokenizer_config.json", &served->tokenizer_config, err);
    if (status != SH_OK) return status;
    const char *type = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(served->config, "model_type"));
    served->type = sh_strdup(type == NULL ? "" : type);
    end_ids_add(served, served->generation_config);
    end_ids_add(served, served->config);
    end_id_add(served, sh_tokenizer_named(served->tok, SH_TOKEN_EOS));
    sampling_read(served);
    specials_read(served);
    return templates_read(served, err);
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
    if (files_read(served, err) != SH_OK ||
        sh_output_dialect_choose(&served->dialect, opts->reasoning_parser, opts->tool_parser,
                                 err) != SH_OK) {
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

const char *sh_served_type(const sh_served *served)
{
    return served->type;
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

const sh_tokenizer *sh_served_tokenizer(const sh_served *served)
{
    return served->tok;
}

void sh_served_piece(const sh_served *served, int32_t id, sh_buf *out)
{
    if (id >= 0 && id < sh_tokenizer_size(served->tok)) sh_tokenizer_bytes(served->tok, id, out);
}

const sh_output_dialect *sh_served_dialect(const sh_served *served)
{
    return &served->dialect;
}

sh_sampling_own sh_served_sampling(const sh_served *served)
{
    return served->sampling;
}

const int32_t *sh_served_end_ids(const sh_served *served, int *count)
{
    *count = served->end_count;
    return served->end_ids;
}

static bool chat_render(const sh_served *served, const sh_request *request, sh_buf *out,
                        sh_api_error *err)
{
    const sh_template *template = served->template;
    if (request->tools != NULL && served->tool_template != NULL) template = served->tool_template;
    if (template == NULL)
        return sh_api_fail(err, 400, "no_chat_template", "messages",
                           "the model '%s' has no chat template; use /v1/completions",
                           served->name);
    cJSON *own = cJSON_CreateObject();
    SH_ASSERT(own != NULL);
    cJSON_AddItemReferenceToObject(own, "messages", request->messages);
    if (request->tools != NULL) cJSON_AddItemReferenceToObject(own, "tools", request->tools);
    const cJSON *vars[] = {served->specials, request->variables, own};
    if (request->variables == NULL) vars[1] = served->specials;
    sh_err why;
    sh_status status = sh_template_render(template, vars, SH_COUNT_OF(vars), NULL, out, &why);
    cJSON_Delete(own);
    if (status == SH_OK) return true;
    return sh_api_fail(err, 400, "chat_template_failed", "messages",
                       "the model's chat template does not take these messages: %s", why.text);
}

static bool encode(const sh_served *served, sh_str text, bool add_special, sh_arena *arena,
                   sh_tokens *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    sh_encode_opts opts = {.add_special = add_special, .parse_special = true};
    if (sh_tokenizer_encode(served->tok, text, opts, &ids, &why) != SH_OK) {
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
    if (!sh_output_call_lead(&served->dialect, in_reasoning, request->tool_name, text))
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
    sh_buf text = {0};
    sh_str lead = {"", 0};
    bool fine = chat_render(served, request, &text, err);
    bool in_reasoning = fine && sh_output_prompt_opens(&served->dialect, sh_buf_str(&text));
    fine = fine && call_lead(served, request, in_reasoning, &text, &lead, err) &&
           encode(served, sh_buf_str(&text), false, &request->arena, out, err);
    out->in_reasoning = in_reasoning;
    out->lead = lead;
    sh_buf_reset(&text);
    return fine && tokens_check(served, out, "messages", err);
}

static bool prompt_prepare(const sh_served *served, sh_request *request, const sh_prompt *prompt,
                           sh_tokens *out, sh_api_error *err)
{
    *out = (sh_tokens){.ids = prompt->ids, .count = prompt->id_count};
    if (prompt->text.ptr != NULL && !encode(served, prompt->text, true, &request->arena, out, err))
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
