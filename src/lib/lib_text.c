/* Tokenizer, chat template and facts of a model's folder. */
#include "base/alloc.h"
#include "base/json.h"
#include "cmd/support/model_client.h"
#include "cmd/support/model_facts.h"
#include "lib/lib_internal.h"
#include "model/family.h"
#include "text/model_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shoal_text {
    sh_model_text *text;
};

static sh_status text_open(sh_lib_args *args, sh_model_text **out, sh_err *err)
{
    const sh_settings *s = &args->settings;
    sh_status status = sh_lib_args_find_model(args, err);
    sh_model_text_opts opts = {.tokenizer = s->tokenizer, .template = s->template};
    return status == SH_OK ? sh_model_text_open(s->model, &opts, out, err) : status;
}

shoal_status shoal_text_open(const shoal_settings *settings, shoal_text **out, shoal_error *error)
{
    sh_err err;
    sh_lib_args args;
    sh_model_text *text = NULL;
    sh_status status = sh_lib_args_init(&args, settings, &err);
    if (status == SH_OK) status = text_open(&args, &text, &err);
    if (status == SH_OK) {
        *out = sh_alloc(sizeof(**out));
        (*out)->text = text;
    }
    sh_lib_args_reset(&args);
    return sh_lib_result(status, &err, error);
}

void shoal_text_close(shoal_text *text)
{
    if (text == NULL) return;
    sh_model_text_close(text->text);
    free(text);
}

static sh_status tokenizer_of(const shoal_text *text, const sh_tokenizer **out, sh_err *err)
{
    *out = sh_model_text_tokenizer(text->text);
    if (*out != NULL) return SH_OK;
    return sh_err_set(err, SH_ERR_NOT_FOUND, "the model has no tokenizer");
}

shoal_status shoal_text_encode(const shoal_text *text, const char *utf8, size_t len, int flags,
                               int32_t **ids, size_t *count, shoal_error *error)
{
    sh_err err;
    const sh_tokenizer *tok;
    sh_ids all = {0};
    sh_encode_opts opts = {.add_special = (flags & SHOAL_SPECIAL) != 0, .parse_special = true};
    sh_status status = tokenizer_of(text, &tok, &err);
    if (status == SH_OK) status = sh_tokenizer_encode(tok, (sh_str){utf8, len}, opts, &all, &err);
    if (status == SH_OK) {
        *ids = all.len > 0 ? all.ptr : sh_realloc_array(all.ptr, 1, sizeof(*all.ptr));
        *count = all.len;
    } else {
        sh_ids_reset(&all);
    }
    return sh_lib_result(status, &err, error);
}

static void text_give(sh_buf *from, char **utf8, size_t *len)
{
    if (len != NULL) *len = from->len;
    *utf8 = sh_buf_take(from);
}

static sh_status ids_check(const sh_tokenizer *tok, const int32_t *ids, size_t count, sh_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= sh_tokenizer_size(tok))
            return sh_err_set(err, SH_ERR_INPUT, "id %zu is %d: must be 0 to %d", i, (int)ids[i],
                              (int)sh_tokenizer_size(tok) - 1);
    return SH_OK;
}

shoal_status shoal_text_decode(const shoal_text *text, const int32_t *ids, size_t count, int flags,
                               char **utf8, size_t *len, shoal_error *error)
{
    sh_err err;
    const sh_tokenizer *tok;
    sh_buf out = {0};
    sh_status status = tokenizer_of(text, &tok, &err);
    if (status == SH_OK) status = ids_check(tok, ids, count, &err);
    if (status == SH_OK) {
        sh_tokenizer_decode(tok, ids, count, (flags & SHOAL_SPECIAL) == 0, &out);
        text_give(&out, utf8, len);
    }
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_text_render(const shoal_text *text, const char *request, char **utf8,
                               size_t *len, shoal_error *error)
{
    sh_err err;
    cJSON *json = NULL;
    sh_buf out = {0};
    sh_status status = sh_json_parse(sh_str_of(request), "request", &json, &err);
    if (status == SH_OK && !cJSON_IsObject(json))
        status = sh_err_set(&err, SH_ERR_INPUT, "request: must be a JSON object, not %s",
                            sh_json_kind(json));
    if (status == SH_OK) status = sh_question_render(text->text, json, &out, &err);
    if (status == SH_OK)
        text_give(&out, utf8, len);
    else
        sh_buf_reset(&out);
    cJSON_Delete(json);
    return sh_lib_result(status, &err, error);
}

void shoal_facts_init(shoal_facts *facts, size_t size)
{
    memset(facts, 0, size);
    facts->size = size;
}

static void facts_fill(const sh_model_facts *from, shoal_facts *out)
{
    const sh_config *c = &from->config;
    shoal_facts facts = {.layers = c->layers,
                         .vocabulary = c->vocab,
                         .context = c->context,
                         .generates = !c->headless,
                         .parameters = from->parameters,
                         .active_parameters = from->active,
                         .bytes = (int64_t)from->bytes,
                         .kv_token_bytes = from->kv_token_bytes,
                         .memory = (int64_t)from->available,
                         .fits_tokens = (int64_t)sh_model_facts_tokens(from, from->available),
                         .machines = sh_model_facts_machines(from, from->available)};
    snprintf(facts.family, sizeof(facts.family), "%s", c->family->model_type);
    sh_model_quant_text(c, facts.quantization, sizeof(facts.quantization));
    sh_lib_copy(out, out->size, &facts, sizeof(facts));
}

shoal_status shoal_model_facts(const shoal_settings *settings, shoal_facts *facts,
                               shoal_error *error)
{
    sh_err err;
    sh_lib_args args;
    sh_model_facts found = {0};
    sh_status status = sh_lib_args_init(&args, settings, &err);
    if (status == SH_OK) status = sh_lib_args_find_model(&args, &err);
    if (status == SH_OK) status = sh_model_facts_gather(args.settings.model, &found, &err);
    if (status == SH_OK) facts_fill(&found, facts);
    sh_model_facts_reset(&found);
    sh_lib_args_reset(&args);
    return sh_lib_result(status, &err, error);
}
