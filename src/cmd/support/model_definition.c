#include "cmd/support/model_definition.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "store/definition.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(sh_definition, member)

static const struct {
    const char *setting;
    enum { TEXT, NUMBER, COUNT } kind;
    size_t offset;
} fields[] = {
    {"model-name", TEXT, AT(name)},
    {"draft-model", TEXT, AT(draft_model)},
    {"system", TEXT, AT(system_prompt)},
    {"temperature", NUMBER, AT(temperature)},
    {"top-p", NUMBER, AT(top_p)},
    {"min-p", NUMBER, AT(min_p)},
    {"repetition-penalty", NUMBER, AT(repeat_penalty)},
    {"presence-penalty", NUMBER, AT(presence_penalty)},
    {"frequency-penalty", NUMBER, AT(frequency_penalty)},
    {"top-k", COUNT, AT(top_k)},
    {"max-tokens", COUNT, AT(max_tokens)},
    {"seed", COUNT, AT(seed)},
    {"context", COUNT, AT(context_size)},
};

/* Of `options`, by the names that LocalAI's backend for MLX has for them. */
static const struct {
    const char *key, *setting;
} options[] = {
    {"hostfile", "hostfile"},
    {"distributed_backend", "backend"},
    {"ranks", "ranks"},
    {"pooling", "pooling"},
    {"max_tokens", "max-tokens"},
    {"temperature", "temperature"},
    {"temp", "temperature"},
    {"top_p", "top-p"},
    {"min_p", "min-p"},
    {"top_k", "top-k"},
    {"repetition_penalty", "repetition-penalty"},
    {"seed", "seed"},
};

static sh_status set(sh_options *opts, const char *path, const char *name, const char *text,
                     sh_err *err)
{
    sh_status status = sh_options_set(opts, SH_FROM_FILE, sh_str_of(name), sh_str_of(text), err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s", path);
}

static sh_status field_set(sh_options *opts, const char *path, const sh_definition *d, size_t i,
                           sh_err *err)
{
    const void *at = (const char *)d + fields[i].offset;
    char number[32];
    const char *text = number;
    double value = fields[i].kind == NUMBER  ? *(const double *)at
                   : fields[i].kind == COUNT ? (double)*(const int64_t *)at
                                             : 0;
    if (fields[i].kind == TEXT) text = *(char *const *)at;
    if (text == NULL || isnan(value) || (fields[i].kind == COUNT && value < 0)) return SH_OK;
    snprintf(number, sizeof(number), "%.17g", value);
    return set(opts, path, fields[i].setting, text, err);
}

static sh_status option_set(sh_options *opts, const char *path, const char *option, sh_err *err)
{
    sh_str value = sh_str_of(option), key;
    sh_str_cut(&value, ':', &key);
    for (size_t i = 0; i < SH_COUNT_OF(options); i++) {
        if (!sh_str_is(sh_str_trim(key), options[i].key)) continue;
        char *text = sh_str_dup(sh_str_trim(value));
        sh_status status = set(opts, path, options[i].setting, text, err);
        free(text);
        return status;
    }
    SH_LOGI("%s: the option '%.*s' has no effect here", path, (int)key.len, key.ptr);
    return SH_OK;
}

static sh_status stops_set(sh_options *opts, const char *path, const sh_definition_list *stops,
                           sh_err *err)
{
    if (stops->count == 0) return SH_OK;
    cJSON *list = cJSON_CreateStringArray((const char *const *)stops->items, (int)stops->count);
    char *text = cJSON_PrintUnformatted(list);
    SH_ASSERT(text != NULL);
    sh_status status = set(opts, path, "stop", text, err);
    cJSON_free(text);
    cJSON_Delete(list);
    return status;
}

static sh_status all_set(sh_options *opts, const char *path, const sh_definition *d, sh_err *err)
{
    sh_status status = stops_set(opts, path, &d->stopwords, err);
    for (size_t i = 0; status == SH_OK && i < SH_COUNT_OF(fields); i++)
        status = field_set(opts, path, d, i, err);
    for (size_t i = 0; status == SH_OK && i < d->options.count; i++)
        status = option_set(opts, path, d->options.items[i], err);
    return status;
}

/* Each part of a server reads the file; one of them is enough to tell what has no effect. */
static void notes_log(const sh_settings *s, const sh_definition *d)
{
    sh_str rest = sh_buf_str(&d->notes), line;
    while (strcmp(s->part, "all") == 0 && sh_str_cut(&rest, '\n', &line))
        if (line.len > 0) SH_LOGI("%.*s", (int)line.len, line.ptr);
}

sh_status sh_model_definition_apply(sh_options *opts, sh_settings *s, char **owned, sh_err *err)
{
    sh_definition definition;
    const char *path = s->model;
    if (path == NULL || s->models_dir != NULL || !sh_definition_is_file(path)) return SH_OK;
    sh_status status = sh_definition_load(path, &definition, err);
    sh_options_set_file(opts, path);
    if (status == SH_OK) status = all_set(opts, path, &definition, err);
    sh_options_set_file(opts, NULL);
    if (status == SH_OK) {
        notes_log(s, &definition);
        *owned = sh_strdup(definition.model);
        s->model = *owned;
    }
    sh_definition_reset(&definition);
    return status;
}
