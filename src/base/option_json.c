/* Settings files in JSON: every leaf is a setting. A name is looked up together with its section
 * ({"api": {"port": 1}} is API_PORT), then as a flag ("port", "log_level"), then as a variable
 * ("API_PORT"). */
#include "base/json.h"
#include "base/option.h"

#include <ctype.h>

enum { DEPTH_MAX = 4 }; /* of sections; deeper ones are reported as a bad value */

/* The text of a leaf; list members are joined by commas, since that is how flags take lists. */
static bool leaf_text(const cJSON *item, sh_buf *out)
{
    if (cJSON_IsArray(item)) {
        for (const cJSON *part = item->child; part != NULL; part = part->next) {
            if (cJSON_IsArray(part) || !leaf_text(part, out)) return false;
            if (part->next != NULL) sh_buf_add_char(out, ',');
        }
        return true;
    }
    if (cJSON_IsBool(item))
        sh_buf_add_text(out, cJSON_IsTrue(item) ? "true" : "false");
    else if (cJSON_IsString(item) || (cJSON_IsNumber(item) && item->valuestring != NULL))
        sh_buf_add_text(out, item->valuestring);
    else if (cJSON_IsNumber(item))
        sh_buf_addf(out, "%.15g", item->valuedouble);
    return cJSON_IsBool(item) || cJSON_IsString(item) || cJSON_IsNumber(item);
}

static void variable_name(const char *section, const char *key, sh_buf *out)
{
    sh_buf_clear(out);
    sh_buf_addf(out, "%s%s%s", section, section[0] == '\0' ? "" : "_", key);
    for (size_t i = 0; i < out->len; i++) out->ptr[i] = (char)toupper((unsigned char)out->ptr[i]);
}

/* Tries the names in that order and takes the first that exists. Plain variables come last: "port"
 * is our flag, whatever PORT means to other programs. */
static sh_status named_take(sh_options *opts, const char *section, const char *key, sh_str value,
                            sh_err *err)
{
    sh_buf name = {0};
    sh_status status = SH_ERR_NOT_FOUND;
    if (section[0] != '\0') {
        variable_name(section, key, &name);
        status = sh_options_set(opts, SH_FROM_FILE, sh_buf_str(&name), value, err);
    }
    if (status == SH_ERR_NOT_FOUND) {
        sh_buf_clear(&name);
        for (const char *p = key; *p != '\0'; p++) sh_buf_add_char(&name, *p == '_' ? '-' : *p);
        status = sh_options_set(opts, SH_FROM_FILE, sh_buf_str(&name), value, err);
    }
    if (status == SH_ERR_NOT_FOUND) {
        variable_name("", key, &name);
        status = sh_options_set(opts, SH_FROM_FILE, sh_buf_str(&name), value, err);
    }
    sh_buf_reset(&name);
    if (status != SH_ERR_NOT_FOUND) return status;
    return sh_err_set(err, SH_ERR_INPUT, "'%s%s%s' is not a setting", section,
                      section[0] == '\0' ? "" : ".", key);
}

static sh_status leaf_take(sh_options *opts, const char *section, const cJSON *item, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = leaf_text(item, &text)
                           ? named_take(opts, section, item->string, sh_buf_str(&text), err)
                           : sh_err_set(err, SH_ERR_INPUT,
                                        "'%s' must be a string, a number, a boolean or a list",
                                        item->string);
    sh_buf_reset(&text);
    return status;
}

/* Only the innermost section names a setting: {"a": {"api": {"port": 1}}} is API_PORT too. */
static sh_status object_take(sh_options *opts, const char *section, const cJSON *obj, int depth,
                             sh_err *err)
{
    sh_status status = SH_OK;
    for (const cJSON *item = obj->child; status == SH_OK && item != NULL; item = item->next) {
        if (cJSON_IsNull(item)) continue;
        if (cJSON_IsObject(item) && depth < DEPTH_MAX)
            status = object_take(opts, item->string, item, depth + 1, err);
        else
            status = leaf_take(opts, section, item, err);
    }
    return status;
}

sh_status sh_options_parse_json(sh_options *opts, sh_str text, const char *path, sh_err *err)
{
    cJSON *top;
    sh_status status = sh_json_parse(text, path, &top, err);
    if (status != SH_OK) return status;
    sh_options_set_file(opts, path);
    status = object_take(opts, "", top, 0, err);
    sh_options_set_file(opts, NULL);
    cJSON_Delete(top);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s", path);
}
