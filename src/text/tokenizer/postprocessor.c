/* Reduces the processors of a file to lists of ids. Of several that describe pairs, the last
 * counts.
 */
#include "text/tokenizer/postprocessor.h"

#include "text/tokenizer/component.h"
#include "text/tokenizer/vocab.h"

#include <math.h>
#include <string.h>

enum { PARTS_MAX = 64 };

/* Only the range is checked here; whether there is such a token is checked when all are known. */
static sh_status id_add(const cJSON *item, const char *where, sh_ids *out, sh_err *err)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < SH_VOCAB_MAX) || value != floor(value))
        return sh_err_set(err, SH_ERR_INPUT, "%s: a token id is %s, not an integer from 0 to %d",
                          where, sh_json_kind(item), SH_VOCAB_MAX - 1);
    sh_ids_add(out, (int32_t)value);
    return SH_OK;
}

/* A later processor in a sequence adds its ids around those of the earlier ones. */
static void wrap(sh_postprocessor *post, sh_postprocessor *outer)
{
    sh_ids_add_all(&outer->before, post->before.ptr, post->before.len);
    sh_ids_add_all(&post->after, outer->after.ptr, outer->after.len);
    sh_ids_reset(&post->before);
    sh_ids_reset(&outer->after);
    post->before = outer->before;
    outer->before = (sh_ids){0};
}

/* Appends the ids of a special token of a template. */
static sh_status special_add(const cJSON *json, const char *name, const char *where, sh_ids *out,
                             sh_err *err)
{
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(specials, name), "ids");
    if (!cJSON_IsArray(ids))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'special_tokens' has no ids for '%s'", where,
                          name);
    const cJSON *id;
    cJSON_ArrayForEach(id, ids)
    {
        sh_status status = id_add(id, where, out, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static void pair_set(sh_postprocessor *post, const sh_ids lists[3])
{
    sh_ids *own[3] = {&post->pair_before, &post->between, &post->pair_after};
    post->pairs = true;
    for (int i = 0; i < 3; i++) {
        own[i]->len = 0;
        sh_ids_add_all(own[i], lists[i].ptr, lists[i].len);
    }
}

/* Special tokens before the text (sequence A) go to `before`, those after it to `after`. */
static sh_status template_read(const cJSON *json, const char *where, sh_postprocessor *out,
                               sh_err *err)
{
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(json, "single"), *part;
    int texts = 0;
    if (!cJSON_IsArray(single) || cJSON_GetArraySize(single) > PARTS_MAX)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: 'single' must be a list of up to %d items, not %s", where, PARTS_MAX,
                          sh_json_kind(single));
    cJSON_ArrayForEach(part, single)
    {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(part, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "Sequence");
        const char *name = NULL;
        sh_status status = sh_json_string_required(special != NULL ? special : text, "id", where,
                                                   &name, err);
        if (status == SH_OK && special != NULL)
            status = special_add(json, name, where, texts == 0 ? &out->before : &out->after, err);
        if (status != SH_OK) return status;
        if (special == NULL) texts += strcmp(name, "A") == 0 ? 1 : 2;
    }
    if (texts != 1)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: 'single' must contain sequence A once",
                          where);
    return SH_OK;
}

/* A template for pairs that is not A and B once each, in that order, is as good as none. */
static sh_status pair_read(const cJSON *json, const char *where, sh_postprocessor *out, sh_err *err)
{
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, "pair"), *part;
    sh_ids lists[3] = {{0}};
    int texts = 0;
    bool fits = cJSON_IsArray(pair) && cJSON_GetArraySize(pair) <= PARTS_MAX;
    sh_status status = SH_OK;
    cJSON_ArrayForEach(part, pair)
    {
        if (!fits) break;
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(part, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "Sequence");
        const char *name = NULL;
        status = sh_json_string_required(special != NULL ? special : text, "id", where, &name, err);
        if (status == SH_OK && special != NULL)
            status = special_add(json, name, where, &lists[texts], err);
        if (status != SH_OK) break;
        if (special != NULL) continue;
        fits = texts < 2 && strcmp(name, texts == 0 ? "A" : "B") == 0;
        texts += fits;
    }
    fits = fits && texts == 2 && status == SH_OK;
    if (fits) pair_set(out, lists);
    for (int i = 0; i < 3; i++) sh_ids_reset(&lists[i]);
    return status;
}

static sh_status read_template(void *to, const void *arg, const cJSON *json, const char *where,
                               sh_err *err)
{
    (void)arg;
    sh_postprocessor outer = {0};
    sh_status status = template_read(json, where, &outer, err);
    if (status == SH_OK) wrap(to, &outer);
    if (status == SH_OK) status = pair_read(json, where, to, err);
    sh_postprocessor_reset(&outer);
    return status;
}

/* Bert and Roberta: "cls" before and "sep" after, each a name with an id. Between two texts there
 * is one "sep", or two (`arg` is not NULL). */
static sh_status read_pair(void *to, const void *arg, const cJSON *json, const char *where,
                           sh_err *err)
{
    sh_postprocessor outer = {0};
    const cJSON *cls = cJSON_GetObjectItemCaseSensitive(json, "cls");
    const cJSON *sep = cJSON_GetObjectItemCaseSensitive(json, "sep");
    sh_status status = id_add(cJSON_GetArrayItem(cls, 1), where, &outer.before, err);
    if (status == SH_OK) status = id_add(cJSON_GetArrayItem(sep, 1), where, &outer.after, err);
    if (status == SH_OK) {
        sh_ids lists[3] = {{0}};
        sh_ids_add_all(&lists[0], outer.before.ptr, 1);
        for (int i = 0; i < (arg == NULL ? 1 : 2); i++)
            sh_ids_add_all(&lists[1], outer.after.ptr, 1);
        sh_ids_add_all(&lists[2], outer.after.ptr, 1);
        pair_set(to, lists);
        for (int i = 0; i < 3; i++) sh_ids_reset(&lists[i]);
    }
    if (status == SH_OK) wrap(to, &outer);
    sh_postprocessor_reset(&outer);
    return status;
}

/* ByteLevel only adjusts offsets, which we do not track. */
static sh_status read_nothing(void *to, const void *arg, const cJSON *json, const char *where,
                              sh_err *err)
{
    (void)to, (void)arg, (void)json, (void)where, (void)err;
    return SH_OK;
}

static const sh_component_kind kinds[] = {
    {"TemplateProcessing", read_template, NULL},
    {"ByteLevel", read_nothing, NULL},
    {"BertProcessing", read_pair, NULL},
    {"RobertaProcessing", read_pair, ""},
};

static const sh_component_family family = {"post_processor", "processors", kinds,
                                           SH_COUNT_OF(kinds)};

sh_status sh_postprocessor_read(const cJSON *json, const char *where, sh_postprocessor *out,
                                sh_err *err)
{
    return sh_component_read(json, &family, out, where, err);
}

void sh_postprocessor_reset(sh_postprocessor *post)
{
    sh_ids_reset(&post->before);
    sh_ids_reset(&post->after);
    sh_ids_reset(&post->pair_before);
    sh_ids_reset(&post->between);
    sh_ids_reset(&post->pair_after);
}
