/* Reads a JSON object by a table of fields, and writes the JSON Schema of the same table.
 *
 * There is one reader for each type (`readers`), which checks one value and stores it at the row's
 * offset; the types of the struct members must match the comments on sh_field_type, since nothing
 * checks that. A missing field and null are the same: many clients send null for what they do not
 * set. Errors name the field by its full path and say what would be accepted. */
#include "api/field.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 96 };

/* The arguments of a reader. */
typedef struct {
    const sh_field *row;
    const char *name; /* the full path: "stream_options.include_usage" */
    const cJSON *item;
    void *to;
    sh_api_error *err;
} value;

static bool fail_type(const value *v, const char *wanted)
{
    return sh_api_fail(v->err, 400, "invalid_type", v->name, "'%s' must be %s, not %s", v->name,
                       wanted, sh_json_kind(v->item));
}

static bool read_bool(const value *v)
{
    if (!cJSON_IsBool(v->item)) return fail_type(v, "true or false");
    *(bool *)v->to = cJSON_IsTrue(v->item);
    return true;
}

/* JSON numbers are doubles, so a whole number is one without a fraction; `max` is at most 2^53. */
static bool read_int(const value *v)
{
    if (!cJSON_IsNumber(v->item)) return fail_type(v, "a whole number");
    double number = v->item->valuedouble;
    if (floor(number) != number || !(number >= v->row->min && number <= v->row->max))
        return sh_api_fail(v->err, 400, "invalid_value", v->name,
                           "'%s' must be a whole number from %.0f to %.0f, not %.9g", v->name,
                           v->row->min, v->row->max, number);
    *(int64_t *)v->to = (int64_t)number;
    return true;
}

static bool read_number(const value *v)
{
    if (!cJSON_IsNumber(v->item)) return fail_type(v, "a number");
    double number = v->item->valuedouble;
    if (!(number >= v->row->min && number <= v->row->max))
        return sh_api_fail(v->err, 400, "invalid_value", v->name,
                           "'%s' must be a number from %g to %g, not %.9g", v->name, v->row->min,
                           v->row->max, number);
    *(double *)v->to = number;
    return true;
}

static bool is_one_of(const char *choices, const char *text)
{
    sh_str rest = sh_str_of(choices), choice;
    while (sh_str_cut(&rest, '|', &choice))
        if (sh_str_is(choice, text)) return true;
    return false;
}

static bool read_string(const value *v)
{
    if (!cJSON_IsString(v->item)) return fail_type(v, "a string");
    const char *text = v->item->valuestring;
    if (v->row->choices != NULL && !is_one_of(v->row->choices, text))
        return sh_api_fail(v->err, 400, "invalid_value", v->name,
                           "'%s' must be one of %s, not '%s'", v->name, v->row->choices, text);
    if ((double)strlen(text) > v->row->max)
        return sh_api_fail(v->err, 400, "invalid_value", v->name,
                           "'%s' has %zu bytes; %.0f are allowed", v->name, strlen(text),
                           v->row->max);
    *(const char **)v->to = text;
    return true;
}

static int kind_of(const cJSON *item)
{
    if (cJSON_IsBool(item)) return SH_KIND_BOOL;
    if (cJSON_IsNumber(item)) return SH_KIND_NUMBER;
    if (cJSON_IsString(item)) return SH_KIND_STRING;
    if (cJSON_IsArray(item)) return SH_KIND_ARRAY;
    return SH_KIND_OBJECT;
}

static const struct {
    int kind;
    const char *schema;
    const char *words;
} kind_names[] = {
    {SH_KIND_BOOL, "boolean", "true or false"}, {SH_KIND_NUMBER, "number", "a number"},
    {SH_KIND_STRING, "string", "a string"},     {SH_KIND_ARRAY, "array", "a list"},
    {SH_KIND_OBJECT, "object", "an object"},
};

static bool read_json(const value *v)
{
    if ((kind_of(v->item) & v->row->kinds) == 0) {
        char words[128] = "";
        for (size_t i = 0; i < SH_COUNT_OF(kind_names); i++)
            if ((v->row->kinds & kind_names[i].kind) != 0)
                snprintf(words + strlen(words), sizeof(words) - strlen(words), "%s%s",
                         words[0] == '\0' ? "" : " or ", kind_names[i].words);
        return fail_type(v, words);
    }
    *(const cJSON **)v->to = v->item;
    return true;
}

/* Values that change nothing are accepted, because clients send their defaults. */
static bool read_refused(const value *v)
{
    char *text = cJSON_PrintUnformatted(v->item);
    bool fine = v->row->neutral != NULL && text != NULL && is_one_of(v->row->neutral, text);
    cJSON_free(text);
    if (fine) return true;
    return sh_api_fail(
        v->err, 400, "unsupported_field", v->name, "'%s' is not supported by this server%s%s%s",
        v->name, v->row->neutral == NULL ? "" : " (except ",
        v->row->neutral == NULL ? "" : v->row->neutral, v->row->neutral == NULL ? "" : ")");
}

static bool object_read(const sh_field_table *table, const char *outer, const cJSON *obj, void *out,
                        sh_api_error *err);

static bool read_object(const value *v)
{
    if (!cJSON_IsObject(v->item)) return fail_type(v, "an object");
    return object_read(v->row->inner, v->row->name, v->item, v->to, v->err);
}

static bool read_ignored(const value *v)
{
    (void)v;
    return true;
}

static bool (*const readers[])(const value *v) = {
    [SH_FIELD_BOOL] = read_bool,       [SH_FIELD_INT] = read_int,
    [SH_FIELD_NUMBER] = read_number,   [SH_FIELD_STRING] = read_string,
    [SH_FIELD_JSON] = read_json,       [SH_FIELD_OBJECT] = read_object,
    [SH_FIELD_IGNORED] = read_ignored, [SH_FIELD_REFUSED] = read_refused,
};

/* Reads one field, or checks that it may be missing. */
static bool row_read(const sh_field *row, const char *outer, const cJSON *obj, void *out,
                     sh_api_error *err)
{
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof(name), "%s%s%s", outer == NULL ? "" : outer, outer == NULL ? "" : ".",
             row->name);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, row->name);
    if (item == NULL || cJSON_IsNull(item))
        return !row->required ||
               sh_api_fail(err, 400, "missing_field", name, "the field '%s' is missing", name);
    /* The fields of an inner object lie in the same struct, at their own offsets. */
    void *to = row->type == SH_FIELD_OBJECT ? out : (char *)out + row->offset;
    return readers[row->type](
        &(value){.row = row, .name = name, .item = item, .to = to, .err = err});
}

static bool object_read(const sh_field_table *table, const char *outer, const cJSON *obj, void *out,
                        sh_api_error *err)
{
    for (; table != NULL; table = table->more)
        for (size_t i = 0; i < table->count; i++)
            if (!row_read(&table->rows[i], outer, obj, out, err)) return false;
    return true;
}

/* Only scalars have defaults; other members of the struct are left as the caller set them. */
static void defaults_set(const sh_field_table *table, void *out)
{
    for (; table != NULL; table = table->more) {
        for (size_t i = 0; i < table->count; i++) {
            const sh_field *row = &table->rows[i];
            void *to = (char *)out + row->offset;
            if (row->inner != NULL) defaults_set(row->inner, out);
            if (row->fallback == NULL) continue;
            if (row->type == SH_FIELD_BOOL) *(bool *)to = strcmp(row->fallback, "true") == 0;
            if (row->type == SH_FIELD_INT) *(int64_t *)to = strtoll(row->fallback, NULL, 10);
            if (row->type == SH_FIELD_NUMBER) *(double *)to = strtod(row->fallback, NULL);
        }
    }
}

bool sh_fields_read(const sh_field_table *table, const cJSON *obj, void *out, sh_api_error *err)
{
    if (!cJSON_IsObject(obj))
        return sh_api_fail(err, 400, "invalid_type", NULL, "the body must be a JSON object, not %s",
                           sh_json_kind(obj));
    defaults_set(table, out);
    return object_read(table, NULL, obj, out, err);
}

static const sh_field *row_find(const sh_field_table *table, const char *name)
{
    for (; table != NULL; table = table->more)
        for (size_t i = 0; i < table->count; i++)
            if (strcmp(table->rows[i].name, name) == 0) return &table->rows[i];
    return NULL;
}

void sh_fields_note(sh_buf *out, const char *outer, const char *name)
{
    enum { NAME_SHOWN = 64, ALL_SHOWN = 512 };
    if (sh_str_ends(sh_buf_str(out), SH_STR(", ..."))) return;
    if (out->len > 0) sh_buf_add_text(out, ", ");
    if (out->len > ALL_SHOWN) {
        sh_buf_add_text(out, "...");
        return;
    }
    if (outer != NULL) sh_buf_addf(out, "%s.", outer);
    for (int i = 0; i < NAME_SHOWN && name[i] != '\0'; i++)
        sh_buf_add_char(out, name[i] > ' ' && name[i] < 127 && name[i] != ',' ? name[i] : '?');
}

static void unknown_find(const sh_field_table *table, const char *outer, const cJSON *obj,
                         sh_buf *out)
{
    for (const cJSON *item = obj->child; item != NULL; item = item->next) {
        const sh_field *row = row_find(table, item->string);
        if (row == NULL)
            sh_fields_note(out, outer, item->string);
        else if (row->type == SH_FIELD_OBJECT && cJSON_IsObject(item))
            unknown_find(row->inner, row->name, item, out);
    }
}

void sh_fields_unknown(const sh_field_table *table, const cJSON *obj, sh_buf *out)
{
    unknown_find(table, NULL, obj, out);
}

static void choices_write(const char *key, const char *choices, bool raw, bool or_null,
                          sh_json_writer *w)
{
    sh_str rest = sh_str_of(choices), choice;
    sh_write_begin(w, key, '[');
    while (sh_str_cut(&rest, '|', &choice)) {
        if (raw)
            sh_write_raw(w, NULL, choice);
        else
            sh_write_str(w, NULL, choice);
    }
    if (or_null) sh_write_null(w, NULL);
    sh_write_end(w, ']');
}

static void type_write(const char *type, bool or_null, sh_json_writer *w)
{
    if (!or_null) {
        sh_write_text(w, "type", type);
        return;
    }
    sh_write_begin(w, "type", '[');
    sh_write_text(w, NULL, type);
    sh_write_text(w, NULL, "null");
    sh_write_end(w, ']');
}

static void kinds_write(int kinds, bool or_null, sh_json_writer *w)
{
    sh_write_begin(w, "type", '[');
    for (size_t i = 0; i < SH_COUNT_OF(kind_names); i++)
        if ((kinds & kind_names[i].kind) != 0) sh_write_text(w, NULL, kind_names[i].schema);
    if (or_null) sh_write_text(w, NULL, "null");
    sh_write_end(w, ']');
}

static void bounds_write(const sh_field *row, const char *type, bool or_null, sh_json_writer *w)
{
    type_write(type, or_null, w);
    sh_write_num(w, "minimum", row->min);
    sh_write_num(w, "maximum", row->max);
}

/* A field that may be missing may also be null, and the document must not refuse what the server
 * accepts. */
static void row_schema_inside(const sh_field *row, sh_json_writer *w)
{
    bool or_null = !row->required;
    switch (row->type) {
    case SH_FIELD_BOOL: type_write("boolean", or_null, w); break;
    case SH_FIELD_INT: bounds_write(row, "integer", or_null, w); break;
    case SH_FIELD_NUMBER: bounds_write(row, "number", or_null, w); break;
    case SH_FIELD_STRING:
        type_write("string", or_null, w);
        sh_write_num(w, "maxLength", row->max);
        if (row->choices != NULL) choices_write("enum", row->choices, false, or_null, w);
        break;
    case SH_FIELD_JSON:
        if (row->schema == NULL) kinds_write(row->kinds, or_null, w);
        break;
    case SH_FIELD_REFUSED:
        if (row->neutral != NULL)
            choices_write("enum", row->neutral, true, true, w);
        else
            sh_write_text(w, "type", "null");
        sh_write_bool(w, "deprecated", true);
        break;
    case SH_FIELD_IGNORED:
    case SH_FIELD_OBJECT: break;
    }
}

/* A schema given as text goes into a list, so that the members written here can stand beside it. */
static void row_schema_text(const sh_field *row, sh_json_writer *w)
{
    if (row->schema == NULL) return;
    sh_write_begin(w, row->required ? "allOf" : "anyOf", '[');
    sh_write_raw(w, NULL, sh_str_of(row->schema));
    if (!row->required) sh_write_raw(w, NULL, SH_STR("{\"type\":\"null\"}"));
    sh_write_end(w, ']');
}

static void table_schema(const sh_field_table *table, const char *rules, bool or_null,
                         sh_json_writer *w);

static void row_schema(const sh_field *row, sh_json_writer *w)
{
    const char *lead = row->type == SH_FIELD_REFUSED   ? "Not supported, refused: "
                       : row->type == SH_FIELD_IGNORED ? "Accepted without effect: "
                                                       : "";
    char text[512];
    sh_write_begin(w, row->name, '{');
    row_schema_inside(row, w);
    row_schema_text(row, w);
    if (row->type == SH_FIELD_OBJECT) table_schema(row->inner, NULL, true, w);
    if (row->fallback != NULL) sh_write_raw(w, "default", sh_str_of(row->fallback));
    snprintf(text, sizeof(text), "%s%s", lead, row->meaning);
    sh_write_text(w, "description", text);
    sh_write_end(w, '}');
}

static void table_schema(const sh_field_table *table, const char *rules, bool or_null,
                         sh_json_writer *w)
{
    type_write("object", or_null, w);
    sh_write_begin(w, "required", '[');
    for (const sh_field_table *part = table; part != NULL; part = part->more)
        for (size_t i = 0; i < part->count; i++)
            if (part->rows[i].required) sh_write_text(w, NULL, part->rows[i].name);
    sh_write_end(w, ']');
    sh_write_begin(w, "properties", '{');
    for (const sh_field_table *part = table; part != NULL; part = part->more)
        for (size_t i = 0; i < part->count; i++) row_schema(&part->rows[i], w);
    sh_write_end(w, '}');
    if (rules != NULL) sh_write_raw(w, "allOf", sh_str_of(rules));
}

void sh_fields_schema(const sh_field_table *table, const char *rules, const char *key,
                      sh_json_writer *w)
{
    sh_write_begin(w, key, '{');
    table_schema(table, rules, false, w);
    sh_write_end(w, '}');
}
