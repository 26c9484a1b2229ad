/* From the JSON of /v1/responses to the internal spec. A request that continues a stored response
 * gets the items of that chain before its own. */
#include "api/json_writer.h"
#include "api/messages.h"
#include "api/response_store.h"
#include "api/responses.h"
#include "api/responses_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HISTORY_VALUES = 1 << 20, CONVERSATION_MAX = 256, PLACE_MAX = 96 };

/* ---- what came before ---- */

static bool conversation_of(const cJSON *given, const char **id, sh_api_error *err)
{
    *id = cJSON_IsString(given) ? given->valuestring : sh_json_text(given, "id");
    if (given == NULL) return true;
    if (*id != NULL && (*id)[0] != '\0' && strlen(*id) <= CONVERSATION_MAX) return true;
    return sh_api_fail(err, 400, "invalid_value", "conversation",
                       "'conversation' must be an id of 1 to %d bytes, or {\"id\":...}",
                       CONVERSATION_MAX);
}

/* Which response this one continues, if any. */
static bool previous_find(const responses_fields *fields, sh_job_spec *out,
                          responses_details *details, sh_api_error *err)
{
    sh_buf id = {0};
    if (!conversation_of(fields->conversation, &details->conversation, err)) return false;
    details->previous = fields->previous;
    if (details->conversation == NULL) return true;
    if (details->previous != NULL)
        return sh_api_fail(err, 400, "invalid_value", "conversation",
                           "'conversation' and 'previous_response_id' cannot both be given");
    if (out->retriable) /* the retry would find its own first answer there, and continue it */
        return sh_api_fail(err, 400, "invalid_value", "conversation",
                           "'conversation' cannot be repeated under an Idempotency-Key, since each "
                           "request adds to it; use 'previous_response_id'");
    if (out->store != NULL &&
        sh_response_store_latest(out->store, out->owner, details->conversation, &id))
        details->previous = sh_arena_str(&out->arena, sh_buf_str(&id)).ptr;
    sh_buf_reset(&id);
    return true;
}

static bool history_parse(sh_str text, const char *previous, cJSON **items, sh_api_error *err)
{
    sh_err why;
    if (sh_json_value_count(text) > HISTORY_VALUES)
        return sh_api_fail(err, 400, "too_many_values", "previous_response_id",
                           "the conversation before '%s' is too long to continue", previous);
    if (sh_json_parse(text, "history", items, &why) == SH_OK) return true;
    *err = sh_api_error_of(&why, false);
    return false;
}

static bool history_read(const responses_details *details, sh_conversation *to, sh_api_error *err)
{
    const sh_job_spec *spec = to->spec;
    sh_buf text = {0};
    cJSON *items = NULL;
    if (details->previous == NULL) return true;
    bool fine = spec->store != NULL &&
                sh_response_store_history(spec->store, spec->owner, details->previous, &text);
    if (!fine)
        sh_api_fail(err, 404, "previous_response_not_found", "previous_response_id",
                    "the response '%s' is not stored here (any more)",
                    text.len > 0 ? text.ptr : details->previous);
    fine = fine && history_parse(sh_buf_str(&text), details->previous, &items, err) &&
           responses_items_read(items, "previous_response_id", to, err);
    cJSON_Delete(items);
    sh_buf_reset(&text);
    return fine;
}

/* ---- the conversation ---- */

static bool input_read(const responses_fields *fields, sh_conversation *to, sh_api_error *err)
{
    if (!cJSON_IsString(fields->input))
        return responses_items_read(fields->input, "input", to, err);
    sh_conversation_message(to, "user");
    sh_conversation_text(to, "", fields->input->valuestring);
    return true;
}

static bool conversation_read(const responses_fields *fields, sh_job_spec *out,
                              const responses_details *details, sh_api_error *err)
{
    sh_conversation c;
    sh_conversation_begin(&c, out);
    if (fields->instructions != NULL) {
        sh_conversation_message(&c, "system");
        sh_conversation_text(&c, "", fields->instructions);
    }
    bool fine = history_read(details, &c, err) && input_read(fields, &c, err);
    return sh_conversation_end(&c, fine, err);
}

/* ---- tools ---- */

static bool tool_read(const cJSON *tool, int index, sh_job_spec *out, sh_api_error *err)
{
    char place[PLACE_MAX];
    const char *type = sh_json_text(tool, "type");
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(tool, "parameters");
    snprintf(place, sizeof(place), "tools[%d]", index);
    if (type == NULL)
        return sh_api_fail(err, 400, "invalid_type", place,
                           "'%s' must be an object with a 'type', not %s", place,
                           sh_json_kind(tool));
    if (strcmp(type, "function") != 0)
        return sh_api_fail(err, 400, "unsupported_tool", place,
                           "'%s' is the hosted tool '%s', which this server does not have; only "
                           "'function' is supported",
                           place, type);
    if (parameters != NULL && !cJSON_IsNull(parameters) && !cJSON_IsObject(parameters))
        return sh_api_fail(err, 400, "invalid_type", place,
                           "'%s.parameters' must be an object, not %s", place,
                           sh_json_kind(parameters));
    sh_conversation_tool made = {
        .name = sh_json_text(tool, "name"),
        .description = sh_json_text(tool, "description"),
        .parameters = cJSON_IsObject(parameters) ? parameters : NULL,
        .strict = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tool, "strict")),
    };
    return sh_conversation_add_tool(out, &made, place, err);
}

static bool tool_choice_read(const cJSON *choice, sh_job_spec *out, sh_api_error *err)
{
    const char *word = cJSON_GetStringValue(choice);
    const char *type = sh_json_text(choice, "type"), *name = sh_json_text(choice, "name");
    if (choice == NULL || (word != NULL && strcmp(word, "auto") == 0)) return true;
    if (word != NULL && strcmp(word, "none") == 0) {
        out->tools = NULL;
        return true;
    }
    if (word != NULL && strcmp(word, "required") == 0)
        return sh_job_spec_require_call(out, word, "tool_choice", err);
    if (type != NULL && strcmp(type, "function") == 0 && name != NULL)
        return sh_job_spec_choose_tool(out, name, "tool_choice", err);
    return sh_api_fail(err, 400, "invalid_value", "tool_choice",
                       "'tool_choice' must be auto, none, required or "
                       "{\"type\":\"function\",\"name\":...}");
}

static bool tools_read(const responses_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    const cJSON *tool = fields->tools == NULL ? NULL : fields->tools->child;
    for (int index = 0; tool != NULL; tool = tool->next)
        if (!tool_read(tool, index++, out, err)) return false;
    return tool_choice_read(fields->tool_choice, out, err);
}

/* ---- the answer ---- */

static bool format_read(const cJSON *format, sh_job_spec *out, sh_api_error *err)
{
    const char *type = sh_json_text(format, "type");
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(format, "schema");
    if (format == NULL || (type != NULL && strcmp(type, "text") == 0)) return true;
    if (type != NULL && strcmp(type, "json_object") == 0) {
        out->form = (sh_form){.kind = SH_FORM_JSON_OBJECT, .field = "text.format"};
        return true;
    }
    if (type == NULL || strcmp(type, "json_schema") != 0)
        return sh_api_fail(err, 400, "invalid_value", "text.format.type",
                           "'text.format.type' must be text, json_object or json_schema");
    out->form = (sh_form){
        .kind = SH_FORM_JSON_SCHEMA, .field = "text.format.schema", .json = schema};
    return cJSON_IsObject(schema) ||
           sh_api_fail(err, 400, schema == NULL ? "missing_field" : "invalid_type",
                       "text.format.schema", "'text.format.schema' must be an object, not %s",
                       schema == NULL ? "missing" : sh_json_kind(schema));
}

static bool include_read(const cJSON *include, sh_job_spec *out, sh_api_error *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, include)
    {
        if (!cJSON_IsString(item))
            return sh_api_fail(err, 400, "invalid_type", "include",
                               "'include' must contain strings");
        if (strcmp(item->valuestring, "message.output_text.logprobs") == 0)
            out->logprobs = true;
        else
            sh_fields_note(&out->ignored, "include", item->valuestring);
    }
    if (out->top_logprobs > 0) out->logprobs = true;
    return true;
}

static void reasoning_take(const responses_fields *fields, sh_job_spec *out)
{
    if (fields->effort == NULL) return;
    if (strcmp(fields->effort, "none") == 0)
        cJSON_AddFalseToObject(sh_job_spec_variables(out), "enable_thinking");
    else
        cJSON_AddStringToObject(sh_job_spec_variables(out), "reasoning_effort", fields->effort);
}

/* ---- what the answer repeats ---- */

static void echo_json(const char *key, const cJSON *item, const char *otherwise, sh_json_writer *w)
{
    char *text = item == NULL ? NULL : cJSON_PrintUnformatted(item);
    sh_write_raw(w, key, sh_str_of(text == NULL ? otherwise : text));
    cJSON_free(text);
}

static sh_str echo_make(const responses_fields *fields, const responses_details *details,
                        sh_arena *arena)
{
    const sh_job_spec *spec = &fields->spec;
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_write_text(&w, "instructions", fields->instructions);
    if (spec->max_tokens > 0)
        sh_write_int(&w, "max_output_tokens", spec->max_tokens);
    else
        sh_write_null(&w, "max_output_tokens");
    sh_write_bool(&w, "parallel_tool_calls", spec->parallel_calls);
    sh_write_text(&w, "previous_response_id", fields->previous);
    if (details->conversation != NULL) {
        sh_write_begin(&w, "conversation", '{');
        sh_write_text(&w, "id", details->conversation);
        sh_write_end(&w, '}');
    }
    sh_write_begin(&w, "reasoning", '{');
    sh_write_text(&w, "effort", fields->effort);
    sh_write_null(&w, "summary");
    sh_write_end(&w, '}');
    sh_write_bool(&w, "store", details->store);
    sh_write_num(&w, "temperature", spec->temperature);
    sh_write_num(&w, "top_p", spec->top_p);
    sh_write_int(&w, "top_logprobs", spec->top_logprobs);
    sh_write_begin(&w, "text", '{');
    echo_json("format", fields->format, "{\"type\":\"text\"}", &w);
    sh_write_end(&w, '}');
    echo_json("tool_choice", fields->tool_choice, "\"auto\"", &w);
    echo_json("tools", fields->tools, "[]", &w);
    sh_write_text(&w, "truncation", spec->truncates ? "auto" : "disabled");
    echo_json("metadata", fields->metadata, "{}", &w);
    sh_str kept = sh_arena_str(arena, sh_buf_str(&text));
    sh_buf_reset(&text);
    return kept;
}

/* Its id is that of another item. */
static bool is_reference(const cJSON *item)
{
    const char *type = sh_json_text(item, "type");
    return type != NULL && strcmp(type, "item_reference") == 0;
}

static void text_item_write(const char *text, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", "in_0");
    sh_write_text(w, "type", "message");
    sh_write_text(w, "role", "user");
    sh_write_begin(w, "content", '[');
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "type", "input_text");
    sh_write_text(w, "text", text);
    sh_write_end(w, '}');
    sh_write_end(w, ']');
    sh_write_end(w, '}');
}

/* The items of the request. Each gets an id by its place, see responses_stored.c; a text is a
 * message of the user. */
static sh_str input_make(cJSON *input, sh_arena *arena)
{
    char id[32];
    int index = 0;
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_write_begin(&w, NULL, '[');
    if (cJSON_IsString(input)) text_item_write(input->valuestring, &w);
    for (cJSON *item = cJSON_IsArray(input) ? input->child : NULL; item != NULL;
         item = item->next) {
        snprintf(id, sizeof(id), "in_%d", index++);
        if (!is_reference(item)) cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
        if (!is_reference(item)) cJSON_AddStringToObject(item, "id", id);
        if (sh_json_text(item, "type") == NULL) cJSON_AddStringToObject(item, "type", "message");
        echo_json(NULL, item, "null", &w);
    }
    sh_write_end(&w, ']');
    sh_str kept = sh_arena_str(arena, sh_buf_str(&text));
    sh_buf_reset(&text);
    return kept;
}

static bool rest_read(responses_fields *fields, sh_api_error *err)
{
    sh_job_spec *out = &fields->spec;
    responses_details *details = sh_arena_alloc(&out->arena, sizeof(*details));
    out->details = details;
    details->store = fields->store && out->store != NULL;
    if (fields->background)
        return sh_api_fail(err, 400, "unsupported_field", "background",
                           "'background' is not supported by this server: an answer is computed "
                           "while its client waits; use 'stream'");
    out->truncates = fields->truncation != NULL && strcmp(fields->truncation, "auto") == 0;
    reasoning_take(fields, out);
    if (!previous_find(fields, out, details, err) ||
        !conversation_read(fields, out, details, err) || !tools_read(fields, out, err) ||
        !format_read(fields->format, out, err) || !include_read(fields->include, out, err))
        return false;
    details->echo = echo_make(fields, details, &out->arena);
    if (details->store) details->input = input_make((cJSON *)(uintptr_t)fields->input, &out->arena);
    return true;
}

/* The spec is copied back even on failure, because its arena has grown meanwhile and must be freed
 * by the caller. */
bool sh_responses_read(sh_job_spec *spec, sh_api_error *err)
{
    responses_fields fields = {.spec = *spec};
    sh_job_spec_set_defaults(&fields.spec);
    fields.spec.messages_field = "input";
    fields.spec.parameters_field = "parameters";
    bool fine = sh_fields_read(&sh_responses_fields, spec->json, &fields, err) &&
                rest_read(&fields, err);
    *spec = fields.spec;
    return fine;
}
