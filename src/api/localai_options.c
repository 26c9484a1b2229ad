/* What LoadModel asks for: fields of ModelOptions, and its Options, texts of the form "key:value".
 *
 * A key is a setting of the ranks, a default for requests, or something that this server does not
 * do. The last kind, and keys that nobody knows, are named in the answer: a model that silently
 * runs without what its user configured is worse than one that does not start. A value that is
 * wrong is an error. */
#include "api/localai.h"

#include "engine/engine_client.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LIMITS(...) .min = SH_MIN_OF(__VA_ARGS__), .max = SH_MAX_OF(__VA_ARGS__)
#define AT(member) .offset = offsetof(sh_localai_wish, member)

static const char no_code[] = "models are data here: no program of a model's folder is ever run, "
                              "so there is nothing to trust";
static const char own_files[] = "the model's own files say it";
static const char not_known[] = "not an option of this backend";

static const struct option {
    const char *key;
    enum { SETTING, NUMBER, COUNT, NOT_DONE } kind;
    const char *to; /* SETTING: a flag; NOT_DONE: why */
    size_t offset;
    double min, max;
} options[] = {
    {"hostfile", SETTING, "hostfile", 0, 0, 0},
    {"distributed_backend", SETTING, "backend", 0, 0, 0},
    {"ranks", SETTING, "ranks", 0, 0, 0},
    {"pooling", SETTING, "pooling", 0, 0, 0},
    {"max_tokens", COUNT, .max = 1 << 24, AT(max_tokens)},
    {"temperature", NUMBER, LIMITS(SH_BOUNDS_TEMPERATURE), AT(sampling.temperature)},
    {"temp", NUMBER, LIMITS(SH_BOUNDS_TEMPERATURE), AT(sampling.temperature)},
    {"top_p", NUMBER, LIMITS(SH_BOUNDS_TOP_P), AT(sampling.top_p)},
    {"min_p", NUMBER, LIMITS(SH_BOUNDS_MIN_P), AT(sampling.min_p)},
    {"top_k", COUNT, LIMITS(SH_BOUNDS_TOP_K), AT(sampling.top_k)},
    {"repetition_penalty", NUMBER, LIMITS(SH_BOUNDS_REPETITION_PENALTY),
     AT(sampling.repetition_penalty)},
    {"seed", COUNT, .max = SH_SEED_MAX, AT(sampling.seed)},
    {"trust_remote_code", NOT_DONE, no_code, 0, 0, 0},
    {"eos_token", NOT_DONE, own_files, 0, 0, 0},
    {"pad_token", NOT_DONE, own_files, 0, 0, 0},
    {"bos_token", NOT_DONE, own_files, 0, 0, 0},
    {"unk_token", NOT_DONE, own_files, 0, 0, 0},
    {"sep_token", NOT_DONE, own_files, 0, 0, 0},
    {"cls_token", NOT_DONE, own_files, 0, 0, 0},
    {"mask_token", NOT_DONE, own_files, 0, 0, 0},
    {"xtc_threshold", NOT_DONE, "this sampler does not exist here; see min_p", 0, 0, 0},
    {"xtc_probability", NOT_DONE, "this sampler does not exist here; see min_p", 0, 0, 0},
    {"max_cache_entries", NOT_DONE, "the prefix cache takes the memory that is free", 0, 0, 0},
    {"max_kv_size", NOT_DONE, "the length of a sequence is set by context_size", 0, 0, 0},
};

sh_api_sampling sh_localai_sampling(void)
{
    return (sh_api_sampling){.temperature = 0,
                             .top_p = NAN,
                             .min_p = NAN,
                             .repetition_penalty = NAN,
                             .top_k = -1,
                             .seed = -1};
}

static void note(sh_localai_wish *wish, sh_str key, const char *why)
{
    sh_buf_addf(&wish->notes, "%s%.*s: %s", wish->notes.len == 0 ? "" : "; ", (int)key.len, key.ptr,
                why);
}

static const struct option *option_find(sh_str key)
{
    for (size_t i = 0; i < SH_COUNT_OF(options); i++)
        if (sh_str_is(key, options[i].key)) return &options[i];
    return NULL;
}

static sh_status number_set(const struct option *o, sh_str value, sh_localai_wish *wish,
                            sh_err *err)
{
    double number;
    bool whole = o->kind == COUNT;
    if (!sh_str_to_double(value, &number) || !(number >= o->min && number <= o->max) ||
        (whole && floor(number) != number))
        return sh_err_set(err, SH_ERR_INPUT,
                          "option '%s' must be a %snumber from %g to %g, not "
                          "'%.*s'",
                          o->key, whole ? "whole " : "", o->min, o->max,
                          (int)(value.len < 64 ? value.len : 64), value.ptr);
    char *at = (char *)wish + o->offset;
    if (whole)
        *(int64_t *)(void *)at = (int64_t)number;
    else
        *(double *)(void *)at = number;
    return SH_OK;
}

static void setting_set(sh_localai_wish *wish, const char *name, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(wish->settings, name);
    cJSON_AddStringToObject(wish->settings, name, value);
}

static sh_status option_read(const char *text, sh_localai_wish *wish, sh_err *err)
{
    sh_str value = sh_str_of(text), key;
    sh_str_cut(&value, ':', &key);
    key = sh_str_trim(key);
    value = sh_str_trim(value);
    const struct option *o = option_find(key);
    if (o == NULL)
        note(wish, sh_str_sub(key, 0, 64), not_known);
    else if (o->kind == NOT_DONE)
        note(wish, key, o->to);
    else if (o->kind == SETTING)
        setting_set(wish, o->to, value.ptr);
    else
        return number_set(o, value, wish, err);
    return SH_OK;
}

static bool is_folder(const char *path)
{
    struct stat at;
    return stat(path, &at) == 0 && S_ISDIR(at.st_mode);
}

/* LocalAI sends a name, and the path that it would have among its own models, whether it is there
 * or not. */
static sh_status model_read(const Backend__ModelOptions *in, sh_localai_wish *wish, sh_err *err)
{
    char path[4096];
    if (in->model[0] == '\0' && in->modelfile[0] == '\0')
        return sh_err_set(err, SH_ERR_INPUT, "ModelOptions names no model: Model is empty");
    snprintf(path, sizeof(path), "%s/%s", in->modelpath, in->model);
    bool there = in->modelpath[0] != '\0' && is_folder(path);
    setting_set(wish, "model",
                in->modelfile[0] != '\0' && is_folder(in->modelfile) ? in->modelfile
                : there                                              ? path
                : in->model[0] != '\0'                               ? in->model
                                                                     : in->modelfile);
    return SH_OK;
}

static void field_note(void *arg, const ProtobufCFieldDescriptor *field)
{
    static const uint8_t used[] = {1, 2, 3, 10, 15, 21, 39, 51, 54, 59, 62};
    for (size_t i = 0; i < SH_COUNT_OF(used); i++)
        if (used[i] == field->id) return;
    note(arg, sh_str_of(field->name), "has no effect here");
}

/* 0 is how the wire says that nothing was said. */
static sh_status length_check(const char *name, int32_t value, sh_err *err)
{
    enum { LENGTH_MAX = 1 << 24 }; /* as in a file that defines a model */
    if (value >= 0 && value <= LENGTH_MAX) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT, "%s must be from 0 to %d tokens, not %d", name, LENGTH_MAX,
                      value);
}

static void fields_read(const Backend__ModelOptions *in, sh_localai_wish *wish)
{
    char number[16];
    int32_t context = in->contextsize > 0 ? in->contextsize : in->maxmodellen;
    snprintf(number, sizeof(number), "%d", context);
    if (context > 0) setting_set(wish, "context", number);
    if (in->draftmodel[0] != '\0') setting_set(wish, "draft-model", in->draftmodel);
    if (in->trustremotecode) note(wish, SH_STR("TrustRemoteCode"), no_code);
    sh_message_each_set(&in->base, field_note, wish);
}

sh_status sh_localai_wish_read(const Backend__ModelOptions *in, sh_localai_wish *out, sh_err *err)
{
    *out = (sh_localai_wish){.settings = cJSON_CreateObject(), .sampling = sh_localai_sampling()};
    sh_status status = model_read(in, out, err);
    if (status == SH_OK) status = length_check("ContextSize", in->contextsize, err);
    if (status == SH_OK) status = length_check("MaxModelLen", in->maxmodellen, err);
    fields_read(in, out);
    for (size_t i = 0; status == SH_OK && i < in->n_options; i++)
        status = option_read(in->options[i], out, err);
    return status;
}

void sh_localai_wish_reset(sh_localai_wish *wish)
{
    cJSON_Delete(wish->settings);
    sh_buf_reset(&wish->notes);
    *wish = (sh_localai_wish){0};
}
