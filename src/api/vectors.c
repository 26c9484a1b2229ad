#include "api/vectors.h"

#include "base/base64.h"

#include <math.h>
#include <stdio.h>

static bool ids_read(const cJSON *list, const char *param, sh_arena *arena, sh_prompt *out,
                     sh_api_error *err)
{
    size_t count = (size_t)cJSON_GetArraySize(list);
    int32_t *ids = sh_arena_array(arena, count, sizeof(*ids));
    const cJSON *item = list->child;
    for (size_t i = 0; i < count; i++, item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id <= INT32_MAX) || floor(id) != id)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' must be a text or token ids: whole numbers from 0", param);
        ids[i] = (int32_t)id;
    }
    out->ids = ids;
    out->id_count = count;
    return true;
}

/* An input is a text or ids, a document a text or an object that has one. */
static bool input_read(const cJSON *item, bool document, const char *param, sh_arena *arena,
                       sh_prompt *out, sh_api_error *err)
{
    const cJSON *text = item;
    if (document && cJSON_IsObject(item)) text = cJSON_GetObjectItemCaseSensitive(item, "text");
    if (cJSON_IsString(text)) {
        out->text = sh_str_of(text->valuestring);
        return true;
    }
    if (!document && cJSON_IsArray(item)) return ids_read(item, param, arena, out, err);
    return sh_api_fail(err, 400, "invalid_value", param, "'%s' must be a text, not %s", param,
                       sh_json_kind(item));
}

bool sh_inputs_read(const cJSON *list, const char *field, bool single, sh_job_spec *out,
                    sh_api_error *err)
{
    int count = single ? 1 : cJSON_GetArraySize(list);
    if (count < 1 || count > SH_INPUTS_MAX)
        return sh_api_fail(err, 400, "invalid_value", field,
                           "'%s' has %d entries; 1 to %d are allowed", field, count, SH_INPUTS_MAX);
    out->field = field;
    out->listed = !single;
    out->pooled = true;
    out->n = 1;
    out->prompt_count = (size_t)count;
    out->prompts = sh_arena_array(&out->arena, (size_t)count, sizeof(*out->prompts));
    const cJSON *item = single ? list : list->child;
    for (int i = 0; i < count; i++, item = item->next) {
        char param[64];
        snprintf(param, sizeof(param), single ? "%s" : "%s[%d]", field, i);
        if (!input_read(item, out->query.ptr != NULL, param, &out->arena, &out->prompts[i], err))
            return false;
    }
    return true;
}

/* Shortens a vector to what was asked for; one of length 1 keeps that length. */
static int vector_shorten(const sh_answer *answer, float *vector, int len)
{
    int64_t wanted = answer->spec->dimensions;
    double squares = 0;
    if (wanted == 0 || wanted >= len) return len;
    for (int i = 0; i < wanted; i++) squares += (double)vector[i] * (double)vector[i];
    double factor = squares > 0 && sh_served_model_normalizes(answer->served) ? 1 / sqrt(squares)
                                                                              : 1;
    for (int i = 0; i < wanted; i++) vector[i] = (float)((double)vector[i] * factor);
    return (int)wanted;
}

/* Nine digits give a float back exactly. What is not a number is null in JSON. */
static void numbers_write(const float *vector, int len, sh_buf *out)
{
    sh_buf_add_char(out, '[');
    for (int i = 0; i < len; i++) {
        if (isfinite(vector[i]))
            sh_buf_addf(out, "%s%.9g", i > 0 ? "," : "", (double)vector[i]);
        else
            sh_buf_add_text(out, i > 0 ? ",null" : "null");
    }
    sh_buf_add_char(out, ']');
}

void sh_vector_write(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    int len = vector_shorten(answer, choice->vector, choice->vector_len);
    if (!answer->spec->base64) {
        numbers_write(choice->vector, len, out);
        return;
    }
    sh_buf_add_char(out, '"');
    sh_base64_encode(choice->vector, (size_t)len * sizeof(float), out);
    sh_buf_add_char(out, '"');
}

void sh_vectors_write(const sh_answer *answer, const char *name, sh_json_writer *w)
{
    sh_write_begin(w, name, '[');
    for (int i = 0; i < answer->count; i++)
        sh_write_raw(w, NULL, sh_buf_str(&answer->choices[i].content));
    sh_write_end(w, ']');
}
