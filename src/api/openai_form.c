/* The form of the answer, in all the ways in which clients ask for it: OpenAI's response_format,
 * the guided_* fields and structured_outputs of vLLM, grammar and json_schema of llama.cpp. Only
 * the outer shape is checked here; what the schema or the grammar says is checked by compiling it.
 */
#include "api/openai_fields.h"

#include <stddef.h>
#include <string.h>

enum { SCHEMA_TEXT_MAX = 256 << 10 };

static const struct {
    const char *name;
    size_t offset;
    sh_form_kind kind;
} form_fields[] = {
    {"guided_json", offsetof(openai_fields, guided_json), SH_FORM_JSON_SCHEMA},
    {"guided_regex", offsetof(openai_fields, guided_regex), SH_FORM_REGEX},
    {"guided_choice", offsetof(openai_fields, guided_choice), SH_FORM_CHOICE},
    {"guided_grammar", offsetof(openai_fields, guided_grammar), SH_FORM_GRAMMAR},
    {"guided_json_object", offsetof(openai_fields, guided_json_object), SH_FORM_JSON_OBJECT},
    {"structured_outputs.json", offsetof(openai_fields, form_json), SH_FORM_JSON_SCHEMA},
    {"structured_outputs.regex", offsetof(openai_fields, form_regex), SH_FORM_REGEX},
    {"structured_outputs.choice", offsetof(openai_fields, form_choice), SH_FORM_CHOICE},
    {"structured_outputs.grammar", offsetof(openai_fields, form_grammar), SH_FORM_GRAMMAR},
    {"structured_outputs.json_object", offsetof(openai_fields, form_json_object),
     SH_FORM_JSON_OBJECT},
    {"grammar", offsetof(openai_fields, grammar), SH_FORM_GRAMMAR},
    {"json_schema", offsetof(openai_fields, json_schema), SH_FORM_JSON_SCHEMA},
};

/* Sets the form, unless there is one. */
static bool form_set(sh_job_spec *out, sh_form form, sh_api_error *err)
{
    if (out->form.kind != SH_FORM_FREE)
        return sh_api_fail(err, 400, "invalid_value", form.field,
                           "'%s' and '%s' both prescribe the form of the answer; only one may",
                           out->form.field, form.field);
    out->form = form;
    return true;
}

/* A schema that was sent as a text is parsed into the body, which owns it. */
static bool schema_parse(const char *text, sh_job_spec *out, sh_form *form, sh_api_error *err)
{
    cJSON *parsed = NULL;
    sh_err why;
    if (strlen(text) > SCHEMA_TEXT_MAX)
        return sh_api_fail(err, 400, "invalid_value", form->field,
                           "'%s' has %zu bytes; %d are allowed in a text", form->field,
                           strlen(text), SCHEMA_TEXT_MAX);
    if (sh_json_refuse_nul(sh_str_of(text), "schema", &why) != SH_OK ||
        sh_json_parse(sh_str_of(text), "schema", &parsed, &why) != SH_OK)
        return sh_api_fail(err, 400, "invalid_value", form->field, "'%s' is not JSON: %s",
                           form->field, why.text);
    bool added = cJSON_AddItemToObject(out->json, "", parsed);
    SH_ASSERT(added);
    form->json = parsed;
    return cJSON_IsObject(parsed) ||
           sh_api_fail(err, 400, "invalid_type", form->field, "'%s' must be an object, not %s",
                       form->field, sh_json_kind(parsed));
}

static bool choices_check(const sh_form *form, sh_api_error *err)
{
    bool fine = form->json->child != NULL;
    for (const cJSON *item = form->json->child; item != NULL; item = item->next)
        fine = fine && cJSON_IsString(item);
    return fine || sh_api_fail(err, 400, "invalid_value", form->field,
                               "'%s' must be a list of strings, at least one", form->field);
}

/* An empty text or `false` is how some clients write that there is no form. */
static bool field_take(const cJSON *item, sh_form form, sh_job_spec *out, sh_api_error *err)
{
    const char *text = cJSON_GetStringValue(item);
    if (cJSON_IsFalse(item) || (text != NULL && text[0] == '\0')) return true;
    form.json = item;
    if (form.kind == SH_FORM_CHOICE && !choices_check(&form, err)) return false;
    if (form.kind == SH_FORM_JSON_SCHEMA && text != NULL && !schema_parse(text, out, &form, err))
        return false;
    if (text != NULL) form.text = sh_str_of(text);
    return form_set(out, form, err);
}

/* OpenAI puts the schema into json_schema.schema, llama.cpp into schema beside json_object. */
static bool response_format_read(const cJSON *format, sh_job_spec *out, sh_api_error *err)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(format, "type"));
    const cJSON *outer = cJSON_GetObjectItemCaseSensitive(format, "json_schema");
    sh_form form = {.field = "response_format"};
    if (format == NULL || (type != NULL && strcmp(type, "text") == 0)) return true;
    if (type != NULL && strcmp(type, "json_object") == 0) {
        form.json = cJSON_GetObjectItemCaseSensitive(format, "schema");
        form.kind = form.json == NULL ? SH_FORM_JSON_OBJECT : SH_FORM_JSON_SCHEMA;
        form.field = form.json == NULL ? form.field : "response_format.schema";
    } else if (type != NULL && strcmp(type, "json_schema") == 0) {
        form.json = cJSON_GetObjectItemCaseSensitive(outer, "schema");
        form.kind = SH_FORM_JSON_SCHEMA;
        form.field = "response_format.json_schema.schema";
    } else {
        return sh_api_fail(err, 400, "invalid_value", "response_format.type",
                           "'response_format.type' must be text, json_object or json_schema");
    }
    if (form.kind == SH_FORM_JSON_SCHEMA && !cJSON_IsObject(form.json))
        return sh_api_fail(err, 400, form.json == NULL ? "missing_field" : "invalid_type",
                           form.field, "'%s' must be an object, not %s", form.field,
                           form.json == NULL ? "missing" : sh_json_kind(form.json));
    return form_set(out, form, err);
}

bool openai_form_read(const openai_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    if (!response_format_read(fields->response_format, out, err)) return false;
    for (size_t i = 0; i < SH_COUNT_OF(form_fields); i++) {
        const cJSON *item = *(const cJSON *const *)((const char *)fields + form_fields[i].offset);
        sh_form form = {.kind = form_fields[i].kind, .field = form_fields[i].name};
        if (item != NULL && !field_take(item, form, out, err)) return false;
    }
    return true;
}
