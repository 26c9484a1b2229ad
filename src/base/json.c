/* cJSON does the parsing. This file adds what it lacks for untrusted input: a check that the text
 * is UTF-8 and one value only, line and column in errors, typed getters with bounds, and the
 * spelling of numbers. cJSON keeps only a double, but chat templates distinguish 1.0 from 1, and
 * integers may have more digits than a double holds; so such numbers also keep their source text.
 */
#include "base/json.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Line and column of a byte offset, counted from 1; columns count characters, not bytes. */
static void place_find(sh_str text, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at && i < text.len; i++) {
        if (text.ptr[i] == '\n') {
            ++*line;
            *column = 1;
        } else if ((text.ptr[i] & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

static sh_status fault_at(sh_str text, size_t at, const char *where, const char *what, sh_err *err)
{
    int line, column;
    place_find(text, at, &line, &column);
    return sh_err_set(err, SH_ERR_INPUT, "%s: %s at line %d, column %d", where, what, line, column);
}

enum { EXACT_DIGITS = 15 }; /* a double holds any decimal number of that many digits exactly */

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The next number at or after *at in a valid JSON text; moves *at past it. Strings are skipped, so
 * digits in them do not count; anything else that starts with a digit or '-' is a number. */
static sh_str number_next(sh_str text, size_t *at)
{
    size_t i = *at;
    while (i < text.len && text.ptr[i] != '-' && (text.ptr[i] < '0' || text.ptr[i] > '9')) {
        if (text.ptr[i] == '"')
            for (i++; i < text.len && text.ptr[i] != '"'; i++) i += text.ptr[i] == '\\';
        i++;
    }
    size_t start = i;
    while (i < text.len && in_number(text.ptr[i])) i++;
    *at = i;
    return sh_str_sub(text, start, i - start);
}

/* Whether the double alone reproduces the number as it was written. */
static bool is_plain(sh_str number)
{
    for (size_t i = 0; i < number.len; i++)
        if (number.ptr[i] == '.' || number.ptr[i] == 'e' || number.ptr[i] == 'E') return false;
    return number.len <= EXACT_DIGITS;
}

/* Walks tree and text in parallel: numbers occur in the same order in both. */
static void spellings_keep(cJSON *item, sh_str text, size_t *at)
{
    for (; item != NULL; item = item->next) {
        spellings_keep(item->child, text, at);
        if (!cJSON_IsNumber(item)) continue;
        sh_str number = number_next(text, at);
        if (is_plain(number)) continue;
        item->valuestring = cJSON_malloc(number.len + 1);
        if (item->valuestring == NULL) continue;
        memcpy(item->valuestring, number.ptr, number.len);
        item->valuestring[number.len] = '\0';
    }
}

/* cJSON limits the nesting depth itself; UTF-8 and text after the value are checked here. */
sh_status sh_json_parse(sh_str text, const char *where, cJSON **out, sh_err *err)
{
    size_t valid = sh_utf8_valid_prefix(text.ptr, text.len);
    if (valid < text.len) return fault_at(text, valid, where, "not valid UTF-8", err);
    const char *end = text.ptr;
    cJSON *root = text.len == 0 ? NULL : cJSON_ParseWithLengthOpts(text.ptr, text.len, &end, 0);
    if (root == NULL) return fault_at(text, (size_t)(end - text.ptr), where, "not valid JSON", err);
    sh_str rest = sh_str_trim(sh_str_sub(text, (size_t)(end - text.ptr), text.len));
    if (rest.len > 0) {
        cJSON_Delete(root);
        return fault_at(text, (size_t)(rest.ptr - text.ptr), where,
                        "unexpected text after the JSON value", err);
    }
    size_t at = 0;
    spellings_keep(root, text, &at);
    *out = root;
    return SH_OK;
}

/* Counts separators outside of strings. A container starts with '[' or '{' and may hold one more
 * value than it has commas, so this never counts too few. Works on invalid JSON too. */
size_t sh_json_value_count(sh_str text)
{
    size_t count = 1;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '"')
            for (i++; i < text.len && text.ptr[i] != '"'; i++) i += text.ptr[i] == '\\';
        else
            count += c == ',' || c == '[' || c == '{';
    }
    return count;
}

sh_status sh_json_refuse_nul(sh_str text, const char *where, sh_err *err)
{
    static const char nul[] = "\\u0000";
    for (size_t i = 0; i + sizeof(nul) - 1 <= text.len; i++) {
        if (text.ptr[i] != '\\') continue;
        if (memcmp(text.ptr + i, nul, sizeof(nul) - 1) == 0)
            return fault_at(text, i, where, "a string contains \\u0000", err);
        i++; /* skip the escaped character: it may be a backslash, as in "\\u0000" */
    }
    return SH_OK;
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name that occurs twice in the object, or NULL. */
static const char *duplicate_in(const cJSON *object)
{
    const char *few[16], **names = few, *found = NULL;
    size_t count = 0;
    for (const cJSON *item = object->child; item != NULL; item = item->next) count++;
    if (count > SH_COUNT_OF(few)) names = sh_alloc_array(count, sizeof(*names));
    count = 0;
    for (const cJSON *item = object->child; item != NULL; item = item->next)
        names[count++] = item->string;
    qsort(names, count, sizeof(*names), names_compare);
    for (size_t i = 1; i < count && found == NULL; i++)
        if (strcmp(names[i - 1], names[i]) == 0) found = names[i];
    if (names != few) free(names);
    return found;
}

sh_status sh_json_refuse_duplicates(const cJSON *json, const char *where, sh_err *err)
{
    const char *name = cJSON_IsObject(json) ? duplicate_in(json) : NULL;
    if (name != NULL)
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%.64s' occurs twice in one object", where, name);
    for (const cJSON *item = json->child; item != NULL; item = item->next) {
        if (item->child == NULL) continue;
        sh_status status = sh_json_refuse_duplicates(item, where, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

sh_status sh_json_load(const char *path, size_t max_len, cJSON **out, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, max_len, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), path, out, err);
    sh_buf_reset(&text);
    return status;
}

const char *sh_json_text(const cJSON *obj, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

const char *sh_json_kind(const cJSON *item)
{
    if (item == NULL) return "nothing";
    switch (item->type & 0xff) {
    case cJSON_False:
    case cJSON_True: return "a boolean";
    case cJSON_NULL: return "null";
    case cJSON_Number: return "a number";
    case cJSON_String: return "a string";
    case cJSON_Array: return "a list";
    case cJSON_Object: return "an object";
    }
    return "something unknown";
}

/* Clients send null for "use the default", so null counts as absent. */
static const cJSON *field(const cJSON *obj, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static sh_status missing(const char *key, const char *where, sh_err *err)
{
    return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' is missing", where, key);
}

sh_status sh_json_int(const cJSON *obj, const char *key, const char *where, int64_t min,
                      int64_t max, int64_t *out, sh_err *err)
{
    const cJSON *item = field(obj, key);
    if (item == NULL) return SH_OK;
    double value = item->valuedouble;
    if (!cJSON_IsNumber(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be a whole number, not %s", where, key,
                          sh_json_kind(item));
    if (!(value >= (double)min && value <= (double)max) || value != floor(value))
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: '%s' must be a whole number from %lld to %lld, not %.17g", where,
                          key, (long long)min, (long long)max, value);
    /* (double)INT64_MAX rounds up to 2^63, which does not fit: converting it would be undefined. */
    *out = value >= 9223372036854775807.0 ? INT64_MAX : (int64_t)value;
    return SH_OK;
}

sh_status sh_json_int_required(const cJSON *obj, const char *key, const char *where, int64_t min,
                               int64_t max, int64_t *out, sh_err *err)
{
    if (field(obj, key) == NULL) return missing(key, where, err);
    return sh_json_int(obj, key, where, min, max, out, err);
}

sh_status sh_json_double(const cJSON *obj, const char *key, const char *where, double min,
                         double max, double *out, sh_err *err)
{
    const cJSON *item = field(obj, key);
    if (item == NULL) return SH_OK;
    if (!cJSON_IsNumber(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be a number, not %s", where, key,
                          sh_json_kind(item));
    if (!(item->valuedouble >= min && item->valuedouble <= max))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be a number from %g to %g, not %g",
                          where, key, min, max, item->valuedouble);
    *out = item->valuedouble;
    return SH_OK;
}

sh_status sh_json_bool(const cJSON *obj, const char *key, const char *where, bool *out, sh_err *err)
{
    const cJSON *item = field(obj, key);
    if (item == NULL) return SH_OK;
    if (!cJSON_IsBool(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be true or false, not %s", where, key,
                          sh_json_kind(item));
    *out = cJSON_IsTrue(item);
    return SH_OK;
}

sh_status sh_json_string(const cJSON *obj, const char *key, const char *where, const char **out,
                         sh_err *err)
{
    const cJSON *item = field(obj, key);
    if (item == NULL) return SH_OK;
    if (!cJSON_IsString(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' must be a string, not %s", where, key,
                          sh_json_kind(item));
    *out = item->valuestring;
    return SH_OK;
}

sh_status sh_json_string_required(const cJSON *obj, const char *key, const char *where,
                                  const char **out, sh_err *err)
{
    if (field(obj, key) == NULL) return missing(key, where, err);
    return sh_json_string(obj, key, where, out, err);
}
