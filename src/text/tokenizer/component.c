/* Depth and number of parts are limited: the file is untrusted, and every part costs time for each
 * text that is encoded. */
#include "text/tokenizer/component.h"

#include <string.h>

enum { DEPTH_MAX = 8, PARTS_MAX = 64 };

typedef struct {
    const sh_component_family *family;
    void *to;
    const char *where;
    int parts;
} reader;

static const sh_component_kind *kind_find(const sh_component_family *family, const char *type)
{
    for (size_t i = 0; i < family->count; i++)
        if (strcmp(family->kinds[i].type, type) == 0) return &family->kinds[i];
    return NULL;
}

/* One component, or a Sequence of them, which may be nested. */
static sh_status read_part(reader *r, const cJSON *json, int depth, sh_err *err)
{
    const char *type = NULL, *name = r->family->name;
    if (!cJSON_IsObject(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: %s must be an object, not %s", r->where, name,
                          sh_json_kind(json));
    sh_status status = sh_json_string_required(json, "type", r->where, &type, err);
    if (status != SH_OK) return sh_err_prefix(err, "%s", name);
    if (strcmp(type, "Sequence") != 0) {
        const sh_component_kind *kind = kind_find(r->family, type);
        if (kind == NULL)
            return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: %s '%s' is not supported", r->where,
                              name, type);
        if (++r->parts > PARTS_MAX)
            return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d parts in %s", r->where,
                              PARTS_MAX, name);
        status = kind->read(r->to, kind->arg, json, r->where, err);
        return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s '%s'", name, type);
    }
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, r->family->list), *part;
    if (!cJSON_IsArray(list))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' of the %s must be a list, not %s", r->where,
                          r->family->list, name, sh_json_kind(list));
    if (depth == DEPTH_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: %s is nested deeper than %d", r->where, name,
                          DEPTH_MAX);
    cJSON_ArrayForEach(part, list)
    {
        status = read_part(r, part, depth + 1, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

sh_status sh_component_read(const cJSON *json, const sh_component_family *family, void *to,
                            const char *where, sh_err *err)
{
    reader r = {.family = family, .to = to, .where = where};
    if (json == NULL || cJSON_IsNull(json)) return SH_OK;
    return read_part(&r, json, 0, err);
}

sh_status sh_component_char(const cJSON *json, const char *key, const char *where, uint32_t *out,
                            sh_err *err)
{
    const char *text = NULL;
    uint32_t code = 0;
    sh_status status = sh_json_string(json, key, where, &text, err);
    if (status != SH_OK || text == NULL) return status;
    size_t len = strlen(text);
    if (len == 0 || sh_utf8_decode(text, len, &code) != (int)len)
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be one character, not '%s'", where, key,
                          text);
    *out = code;
    return SH_OK;
}
