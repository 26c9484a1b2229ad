/* From Anthropic's JSON to the internal spec. The field tables check types and ranges; this file
 * turns messages, blocks and tools into a conversation.
 *
 * A message of the user may hold the results of calls and text at once. Templates know a message
 * for each, so the blocks of a message are spread over as many as needed; and messages of one role
 * that follow each other are one turn, as with Anthropic. */
#include "api/anthropic.h"
#include "api/anthropic_fields.h"
#include "api/conversation.h"
#include "api/messages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_MAX = 96 };

/* What a message is read with: where it goes, and where it stands in the request. */
typedef struct {
    sh_conversation *to;
    const char *role;
    sh_api_error *err;
} reader;

static bool lacks(const reader *r, const char *place, const char *what)
{
    return sh_api_fail(r->err, 400, "missing_field", place, "'%s' has no '%s'", place, what);
}

static bool text_read(const reader *r, const cJSON *block, const char *place)
{
    const char *text = sh_json_text(block, "text");
    if (text == NULL) return lacks(r, place, "text");
    sh_conversation_turn(r->to, r->role);
    sh_conversation_text(r->to, "\n", text);
    return true;
}

static bool thinking_read(const reader *r, const cJSON *block, const char *place)
{
    const char *text = sh_json_text(block, "thinking");
    if (text == NULL) return lacks(r, place, "thinking");
    sh_conversation_turn(r->to, r->role);
    sh_conversation_reasoning(r->to, text);
    return true;
}

/* Only Anthropic can read it. */
static bool redacted_read(const reader *r, const cJSON *block, const char *place)
{
    (void)r;
    (void)block;
    (void)place;
    return true;
}

static bool call_read(const reader *r, const cJSON *block, const char *place)
{
    const char *name = sh_json_text(block, "name"), *id = sh_json_text(block, "id");
    const cJSON *input = cJSON_GetObjectItemCaseSensitive(block, "input");
    if (name == NULL) return lacks(r, place, "name");
    if (id == NULL) return lacks(r, place, "id");
    if (!cJSON_IsObject(input)) return lacks(r, place, "input");
    sh_conversation_turn(r->to, r->role);
    sh_conversation_call(r->to, id, name, cJSON_Duplicate(input, true));
    return true;
}

static bool result_text_read(const reader *r, const cJSON *part, const char *place)
{
    const char *type = sh_json_text(part, "type"), *text = sh_json_text(part, "text");
    if (type == NULL || strcmp(type, "text") != 0)
        return sh_api_fail(r->err, 400, "unsupported_content", place,
                           "'%s' is a block of type '%s'; this model reads text only", place,
                           type == NULL ? "" : type);
    if (text == NULL) return lacks(r, place, "text");
    sh_conversation_text(r->to, "\n", text);
    return true;
}

static bool result_read(const reader *r, const cJSON *block, const char *place)
{
    const char *id = sh_json_text(block, "tool_use_id");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(block, "content");
    char where[PLACE_MAX];
    int index = 0;
    if (id == NULL) return lacks(r, place, "tool_use_id");
    sh_conversation_result(r->to, id, NULL);
    if (cJSON_IsString(content)) sh_conversation_text(r->to, "", content->valuestring);
    if (content == NULL || cJSON_IsString(content)) return true;
    if (!cJSON_IsArray(content))
        return sh_api_fail(r->err, 400, "invalid_type", place,
                           "'%s.content' must be a string or a list of blocks, not %s", place,
                           sh_json_kind(content));
    for (const cJSON *part = content->child; part != NULL; part = part->next) {
        snprintf(where, sizeof(where), "%s.content[%d]", place, index++);
        if (!result_text_read(r, part, where)) return false;
    }
    return true;
}

enum { BY_USER = 1, BY_ASSISTANT = 2, BY_SYSTEM = 4 };

static const struct {
    const char *type;
    int by;
    bool (*read)(const reader *r, const cJSON *block, const char *place);
} blocks[] = {
    {"text", BY_USER | BY_ASSISTANT | BY_SYSTEM, text_read},
    {"tool_result", BY_USER, result_read},
    {"tool_use", BY_ASSISTANT, call_read},
    {"thinking", BY_ASSISTANT, thinking_read},
    {"redacted_thinking", BY_ASSISTANT, redacted_read},
};

static const struct {
    const char *name;
    int by;
} roles[] = {{"user", BY_USER}, {"assistant", BY_ASSISTANT}, {"system", BY_SYSTEM}};

static bool block_read(const reader *r, int by, const cJSON *block, const char *place)
{
    const char *type = sh_json_text(block, "type");
    if (type == NULL)
        return sh_api_fail(r->err, 400, "invalid_type", place,
                           "'%s' must be an object with a 'type', not %s", place,
                           sh_json_kind(block));
    for (size_t i = 0; i < SH_COUNT_OF(blocks); i++) {
        if (strcmp(blocks[i].type, type) != 0) continue;
        if ((blocks[i].by & by) != 0) return blocks[i].read(r, block, place);
        return sh_api_fail(r->err, 400, "invalid_value", place,
                           "'%s' is a block of type '%s', which a message of role '%s' cannot have",
                           place, type, r->role);
    }
    return sh_api_fail(r->err, 400, "unsupported_content", place,
                       "'%s' is a block of type '%s', which is not supported; this model reads "
                       "text only",
                       place, type);
}

static bool content_read(const reader *r, int by, const cJSON *content, const char *place)
{
    char where[PLACE_MAX];
    int index = 0;
    if (cJSON_IsString(content)) {
        sh_conversation_turn(r->to, r->role);
        sh_conversation_text(r->to, "\n", content->valuestring);
        return true;
    }
    if (!cJSON_IsArray(content))
        return sh_api_fail(r->err, 400, "invalid_type", place,
                           "'%s' must be a string or a list of blocks, not %s", place,
                           sh_json_kind(content));
    for (const cJSON *block = content->child; block != NULL; block = block->next) {
        snprintf(where, sizeof(where), "%s[%d]", place, index++);
        if (!block_read(r, by, block, where)) return false;
    }
    return true;
}

static bool message_read(sh_conversation *to, const cJSON *message, int index, sh_api_error *err)
{
    char place[PLACE_MAX];
    const char *role = sh_json_text(message, "role");
    for (size_t i = 0; role != NULL && i < SH_COUNT_OF(roles); i++) {
        if (strcmp(roles[i].name, role) != 0) continue;
        reader r = {.to = to, .role = roles[i].name, .err = err};
        snprintf(place, sizeof(place), "messages[%d].content", index);
        return content_read(&r, roles[i].by, cJSON_GetObjectItemCaseSensitive(message, "content"),
                            place);
    }
    snprintf(place, sizeof(place), "messages[%d].role", index);
    return sh_api_fail(err, 400, "invalid_value", place,
                       "'%s' must be one of user, assistant, system, not %s", place,
                       role == NULL ? "nothing" : role);
}

static bool conversation_read(const anthropic_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    sh_conversation c;
    bool fine = true;
    int index = 0;
    sh_conversation_begin(&c, out);
    reader system = {.to = &c, .role = "system", .err = err};
    if (fields->system != NULL) fine = content_read(&system, BY_SYSTEM, fields->system, "system");
    for (const cJSON *m = fields->messages->child; fine && m != NULL; m = m->next)
        fine = message_read(&c, m, index++, err);
    return sh_conversation_end(&c, fine, err);
}

/* Tools that Anthropic's servers or clients implement have a type with a date. */
static bool tool_read(const cJSON *tool, int index, sh_job_spec *out, sh_api_error *err)
{
    char place[PLACE_MAX];
    const char *type = sh_json_text(tool, "type");
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(tool, "input_schema");
    snprintf(place, sizeof(place), "tools[%d]", index);
    if (!cJSON_IsObject(tool))
        return sh_api_fail(err, 400, "invalid_type", place, "'%s' must be an object, not %s", place,
                           sh_json_kind(tool));
    if (type != NULL && strcmp(type, "custom") != 0)
        return sh_api_fail(err, 400, "unsupported_tool", place,
                           "'%s' is a tool of type '%s'; only tools with an 'input_schema' of "
                           "your own are supported",
                           place, type);
    if (!cJSON_IsObject(schema))
        return sh_api_fail(err, 400, "invalid_type", place,
                           "'%s.input_schema' must be an object, not %s", place,
                           sh_json_kind(schema));
    sh_conversation_tool made = {
        .name = sh_json_text(tool, "name"),
        .description = sh_json_text(tool, "description"),
        .parameters = schema,
        .strict = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tool, "strict")),
    };
    return sh_conversation_add_tool(out, &made, place, err);
}

static bool tools_read(const anthropic_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    const char *choice = fields->tool_choice == NULL ? "auto" : fields->tool_choice;
    const cJSON *tool = fields->tools == NULL ? NULL : fields->tools->child;
    for (int index = 0; tool != NULL; tool = tool->next)
        if (!tool_read(tool, index++, out, err)) return false;
    out->parallel_calls = !fields->one_call;
    if (strcmp(choice, "any") == 0)
        return sh_job_spec_require_call(out, choice, "tool_choice.type", err);
    if (strcmp(choice, "tool") == 0 && fields->tool_name == NULL)
        return sh_api_fail(err, 400, "missing_field", "tool_choice.name",
                           "'tool_choice' is of type 'tool' but has no 'name'");
    if (strcmp(choice, "tool") == 0)
        return sh_job_spec_choose_tool(out, fields->tool_name, "tool_choice.name", err);
    if (strcmp(choice, "none") == 0) out->tools = NULL;
    return true;
}

static bool thinking_take(const anthropic_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    if (fields->effort != NULL)
        cJSON_AddStringToObject(sh_job_spec_variables(out), "reasoning_effort", fields->effort);
    if (fields->thinking == NULL || strcmp(fields->thinking, "adaptive") == 0) return true;
    bool enabled = strcmp(fields->thinking, "enabled") == 0;
    cJSON_AddBoolToObject(sh_job_spec_variables(out), "enable_thinking", enabled);
    if (fields->thinking_budget == 0) return true;
    if (enabled && out->max_tokens > 0 && fields->thinking_budget >= out->max_tokens)
        return sh_api_fail(err, 400, "invalid_value", "thinking.budget_tokens",
                           "'thinking.budget_tokens' must be below 'max_tokens'");
    if (enabled) out->reasoning_max = fields->thinking_budget;
    out->reasoning_field = "thinking.budget_tokens";
    return true;
}

static bool form_read(const cJSON *format, const char *field, sh_job_spec *out, sh_api_error *err)
{
    const char *type = sh_json_text(format, "type");
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(format, "schema");
    if (format == NULL) return true;
    if (type == NULL || strcmp(type, "json_schema") != 0 || !cJSON_IsObject(schema))
        return sh_api_fail(err, 400, "invalid_value", field,
                           "'%s' must be {\"type\":\"json_schema\",\"schema\":{...}}", field);
    if (out->form.kind != SH_FORM_FREE)
        return sh_api_fail(err, 400, "invalid_value", field,
                           "'%s' and '%s' both prescribe the form of the answer", field,
                           out->form.field);
    out->form = (sh_form){.kind = SH_FORM_JSON_SCHEMA, .field = field, .json = schema};
    return true;
}

static bool rest_read(const anthropic_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    return conversation_read(fields, out, err) && tools_read(fields, out, err) &&
           thinking_take(fields, out, err) &&
           sh_job_spec_read_stops(out, fields->stop_sequences, "stop_sequences", err) &&
           form_read(fields->output_config_format, "output_config.format.schema", out, err) &&
           form_read(fields->output_format, "output_format.schema", out, err);
}

/* The spec is copied back even on failure, because its arena has grown meanwhile and must be freed
 * by the caller. */
static bool fields_read(const sh_field_table *table, sh_job_spec *spec, sh_api_error *err)
{
    anthropic_fields fields = {.spec = *spec};
    sh_job_spec_set_defaults(&fields.spec);
    fields.spec.parameters_field = "input_schema";
    bool fine = sh_fields_read(table, spec->json, &fields, err) &&
                rest_read(&fields, &fields.spec, err);
    *spec = fields.spec;
    return fine;
}

bool sh_anthropic_messages_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_anthropic_messages_fields, spec, err);
}

bool sh_anthropic_count_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_anthropic_count_fields, spec, err);
}
