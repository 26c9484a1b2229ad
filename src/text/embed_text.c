#include "text/embed_text.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>

enum { JSON_MAX = 16 << 20 };

struct sh_embed_text {
    cJSON *own;    /* config_sentence_transformers.json or NULL */
    cJSON *config; /* config.json or NULL */
    const cJSON *prompts;
    const cJSON *dimensions; /* a list of them, or NULL */
    bool matryoshka;
    bool lowers;
};

void sh_embed_text_close(sh_embed_text *t)
{
    if (t == NULL) return;
    cJSON_Delete(t->own);
    cJSON_Delete(t->config);
    free(t);
}

/* *out stays NULL if the file does not exist. */
static sh_status json_read(const char *dir, const char *file, cJSON **out, sh_err *err)
{
    char *path = sh_path_join(dir, file);
    sh_status status = sh_file_exists(path) ? sh_json_load(path, JSON_MAX, out, err) : SH_OK;
    free(path);
    return status;
}

static sh_status lowers_read(const char *dir, bool *out, sh_err *err)
{
    cJSON *json = NULL;
    sh_status status = json_read(dir, "sentence_bert_config.json", &json, err);
    if (status == SH_OK)
        status = sh_json_bool(json, "do_lower_case", "sentence_bert_config.json", out, err);
    cJSON_Delete(json);
    return status;
}

/* A model with a list allows what is in it; "is_matryoshka" without a list allows any. */
static sh_status matryoshka_read(sh_embed_text *t, sh_err *err)
{
    const cJSON *item;
    t->dimensions = cJSON_GetObjectItemCaseSensitive(t->config, "matryoshka_dimensions");
    if (!cJSON_IsArray(t->dimensions)) t->dimensions = NULL;
    cJSON_ArrayForEach(item, t->dimensions) if (!cJSON_IsNumber(item)) return sh_err_set(
        err, SH_ERR_INPUT, "config.json: 'matryoshka_dimensions' must hold numbers");
    t->matryoshka = t->dimensions != NULL;
    return sh_json_bool(t->config, "is_matryoshka", "config.json", &t->matryoshka, err);
}

sh_status sh_embed_text_open(const char *dir, sh_embed_text **out, sh_err *err)
{
    sh_embed_text *t = sh_alloc(sizeof(*t));
    sh_status status = json_read(dir, "config_sentence_transformers.json", &t->own, err);
    if (status == SH_OK) status = json_read(dir, "config.json", &t->config, err);
    if (status == SH_OK) status = lowers_read(dir, &t->lowers, err);
    if (status == SH_OK) status = matryoshka_read(t, err);
    t->prompts = cJSON_GetObjectItemCaseSensitive(t->own, "prompts");
    if (!cJSON_IsObject(t->prompts)) t->prompts = NULL;
    if (status == SH_OK)
        *out = t;
    else
        sh_embed_text_close(t);
    return status;
}

const char *sh_embed_text_prompt(const sh_embed_text *t, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(t->prompts, name));
}

static const char *list_write(const cJSON *list, char *out, size_t cap)
{
    const cJSON *item;
    size_t len = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, list)
    {
        const char *comma = len > 0 ? ", " : "";
        int more = item->string != NULL
                       ? snprintf(out + len, cap - len, "%s%s", comma, item->string)
                       : snprintf(out + len, cap - len, "%s%.0f", comma, item->valuedouble);
        if (more < 0 || (size_t)more >= cap - len) break;
        len += (size_t)more;
    }
    return out;
}

const char *sh_embed_text_prompts(const sh_embed_text *t, char *out, size_t cap)
{
    return list_write(t->prompts, out, cap);
}

void sh_embed_text_write(const sh_embed_text *t, const char *prompt, sh_str input, sh_buf *out)
{
    sh_buf whole = {0};
    sh_buf *to = t->lowers ? &whole : out;
    sh_buf_add_text(to, prompt);
    sh_buf_add_str(to, input);
    if (t->lowers) sh_unicode_lower(sh_buf_str(&whole), out);
    sh_buf_reset(&whole);
}

bool sh_embed_text_shortens(const sh_embed_text *t, int64_t dimensions)
{
    const cJSON *item;
    bool listed = t->dimensions == NULL;
    cJSON_ArrayForEach(item, t->dimensions)
        listed = listed || item->valuedouble == (double)dimensions;
    return t->matryoshka && listed;
}

const char *sh_embed_text_dimensions(const sh_embed_text *t, char *out, size_t cap)
{
    if (!t->matryoshka) return "";
    return t->dimensions == NULL ? "any" : list_write(t->dimensions, out, cap);
}
