/* A key with a name, as a JSON object: {"name", "key" or "sha256", "requests_per_minute",
 * "tokens_per_minute", "models", "expires", "admin"}. A member of another name is an error, since a
 * misspelt limit would be no limit. */
#include "http/keys.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    sh_http_key_info info;
    sh_str key, digest;
} object;

static sh_status fail(const cJSON *item, const char *wanted, sh_err *err)
{
    return sh_err_set(err, SH_ERR_INPUT, "'%s' must be %s", item->string, wanted);
}

static sh_status name_read(const cJSON *item, object *out, sh_err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-";
    const char *text = cJSON_GetStringValue(item);
    size_t len = text == NULL ? 0 : strlen(text);
    if (len == 0 || len > SH_KEY_NAME_MAX || strspn(text, allowed) != len)
        return fail(item, "1 to 64 letters, digits, '_', '.', '@' or '-'", err);
    memcpy(out->info.name, text, len + 1);
    return SH_OK;
}

static sh_status key_read(const cJSON *item, object *out, sh_err *err)
{
    if (!cJSON_IsString(item)) return fail(item, "a string", err);
    out->key = sh_str_of(item->valuestring);
    return SH_OK;
}

static sh_status digest_read(const cJSON *item, object *out, sh_err *err)
{
    if (!cJSON_IsString(item)) return fail(item, "a string", err);
    out->digest = sh_str_of(item->valuestring);
    return SH_OK;
}

static sh_status limit_read(const cJSON *item, int64_t *out, sh_err *err)
{
    double number = cJSON_GetNumberValue(item);
    if (!(number >= 1 && number <= 1e12) || floor(number) != number)
        return fail(item, "a whole number from 1 to 1e12", err);
    *out = (int64_t)number;
    return SH_OK;
}

static sh_status requests_read(const cJSON *item, object *out, sh_err *err)
{
    return limit_read(item, &out->info.requests_per_minute, err);
}

static sh_status tokens_read(const cJSON *item, object *out, sh_err *err)
{
    return limit_read(item, &out->info.tokens_per_minute, err);
}

static sh_status models_read(const cJSON *item, object *out, sh_err *err)
{
    size_t count = cJSON_IsArray(item) ? (size_t)cJSON_GetArraySize(item) : 0;
    const cJSON *model = item->child;
    for (size_t i = 0; i < count; i++, model = model->next)
        if (!cJSON_IsString(model)) count = 0;
    if (count == 0) return fail(item, "a list of names of models", err);
    const char **models = sh_alloc_array(count, sizeof(*models));
    model = item->child;
    for (size_t i = 0; i < count; i++, model = model->next)
        models[i] = sh_strdup(model->valuestring);
    out->info.models = models;
    out->info.model_count = count;
    return SH_OK;
}

/* "2026-12-31", the last day on which it is good, or "2026-12-31T18:00:00Z"; both in UTC. */
static sh_status expires_read(const cJSON *item, object *out, sh_err *err)
{
    static const char wanted[] = "a day (2026-12-31) or a time in UTC (2026-12-31T18:00:00Z)";
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    struct tm at = {0};
    int day = 0, all = 0;
    int read = sscanf(text, "%4d-%2d-%2d%nT%2d:%2d:%2dZ%n", &at.tm_year, &at.tm_mon, &at.tm_mday,
                      &day, &at.tm_hour, &at.tm_min, &at.tm_sec, &all);
    bool whole_day = read == 3 && day > 0 && text[day] == '\0';
    if (!whole_day && (read != 6 || all == 0 || text[all] != '\0')) return fail(item, wanted, err);
    at.tm_year -= 1900;
    at.tm_mon -= 1;
    struct tm same = at;
    time_t when = timegm(&same);
    /* timegm turns February 30 into March 2. */
    if (same.tm_mday != at.tm_mday || same.tm_mon != at.tm_mon || same.tm_sec != at.tm_sec ||
        same.tm_min != at.tm_min || same.tm_hour != at.tm_hour || when <= 0)
        return fail(item, wanted, err);
    out->info.expires_s = (int64_t)when + (whole_day ? 24 * 3600 : 0);
    return SH_OK;
}

static sh_status admin_read(const cJSON *item, object *out, sh_err *err)
{
    if (!cJSON_IsBool(item)) return fail(item, "true or false", err);
    out->info.admin = cJSON_IsTrue(item);
    return SH_OK;
}

static const struct {
    const char *name;
    sh_status (*read)(const cJSON *item, object *out, sh_err *err);
} members[] = {
    {"name", name_read},
    {"key", key_read},
    {"sha256", digest_read},
    {"requests_per_minute", requests_read},
    {"tokens_per_minute", tokens_read},
    {"models", models_read},
    {"expires", expires_read},
    {"admin", admin_read},
};

/* A name for the log. What does not look like one may be a key in the wrong place. */
static const char *shown(const char *name)
{
    size_t len = strlen(name);
    bool plain = len <= 24 && strspn(name, "abcdefghijklmnopqrstuvwxyz_") == len;
    return plain ? name : "of that name (not shown: it may be a key)";
}

static sh_status member_read(const cJSON *item, object *out, sh_err *err)
{
    for (size_t i = 0; i < SH_COUNT_OF(members); i++)
        if (strcmp(item->string, members[i].name) == 0) return members[i].read(item, out, err);
    return sh_err_set(err, SH_ERR_INPUT,
                      "a key has no member %s; it has name, key or sha256, requests_per_minute, "
                      "tokens_per_minute, models, expires, admin",
                      shown(item->string));
}

/* Names that occur twice would make one of the values silently void. */
static sh_status members_read(const cJSON *json, object *out, sh_err *err)
{
    for (const cJSON *item = json->child; item != NULL; item = item->next) {
        for (const cJSON *other = json->child; other != item; other = other->next)
            if (strcmp(other->string, item->string) == 0)
                return sh_err_set(err, SH_ERR_INPUT, "the member %s is given twice",
                                  shown(item->string));
        if (member_read(item, out, err) != SH_OK) return err->status;
    }
    if (out->info.name[0] == '\0') return sh_err_set(err, SH_ERR_INPUT, "'name' is missing");
    if ((out->key.ptr == NULL) == (out->digest.ptr == NULL))
        return sh_err_set(err, SH_ERR_INPUT, "one of 'key' and 'sha256' must be given");
    return SH_OK;
}

sh_status sh_http_keys_add_object(sh_http_keys *keys, const cJSON *json, sh_err *err)
{
    object o = {0};
    if (!cJSON_IsObject(json))
        return sh_err_set(err, SH_ERR_INPUT, "a key must be an object, not %s", sh_json_kind(json));
    sh_status status = members_read(json, &o, err);
    if (status == SH_OK)
        status = o.key.ptr != NULL ? sh_http_keys_add_key(keys, o.key, &o.info, err)
                                   : sh_http_keys_add_digest(keys, o.digest, &o.info, err);
    if (status == SH_OK) return SH_OK;
    for (size_t i = 0; i < o.info.model_count; i++) free((void *)o.info.models[i]);
    free((void *)o.info.models);
    return status;
}
