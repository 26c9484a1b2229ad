/* From Ollama's JSON to the internal spec. */
#include "api/conversation.h"
#include "api/messages.h"
#include "api/ollama.h"
#include "api/ollama_fields.h"
#include "engine/engine_client.h"

#include <stdio.h>
#include <string.h>

enum { PLACE_MAX = 96, NOT_GIVEN = -3 };

sh_str sh_ollama_untagged(const char *name)
{
    sh_str text = sh_str_of(name);
    if (sh_str_ends(text, SH_STR(":latest"))) text.len -= strlen(":latest");
    return text;
}

/* ---- messages ---- */

static bool call_read(sh_conversation *to, const cJSON *call, const char *place, sh_api_error *err)
{
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    const char *name = sh_json_text(function, "name");
    if (name == NULL)
        return sh_api_fail(err, 400, "missing_field", place,
                           "'%s' must have a 'function' with a 'name'", place);
    if (arguments != NULL && !cJSON_IsObject(arguments))
        return sh_api_fail(err, 400, "invalid_type", place,
                           "'%s.function.arguments' must be an object, not %s", place,
                           sh_json_kind(arguments));
    sh_conversation_call(to, sh_json_text(call, "id"), name,
                         arguments == NULL ? cJSON_CreateObject()
                                           : cJSON_Duplicate(arguments, true));
    return true;
}

static bool calls_read(sh_conversation *to, const cJSON *message, int index, sh_api_error *err)
{
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls"), *call;
    char place[PLACE_MAX];
    int number = 0;
    if (calls == NULL || cJSON_IsNull(calls)) return true;
    cJSON_ArrayForEach(call, calls)
    {
        snprintf(place, sizeof(place), "messages[%d].tool_calls[%d]", index, number++);
        if (!call_read(to, call, place, err)) return false;
    }
    return true;
}

/* Ollama's content is text; pictures stand beside it. */
static bool body_read(sh_conversation *to, const cJSON *message, int index, sh_api_error *err)
{
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    const cJSON *images = cJSON_GetObjectItemCaseSensitive(message, "images");
    char place[PLACE_MAX];
    snprintf(place, sizeof(place), "messages[%d].images", index);
    if (cJSON_GetArraySize(images) > 0)
        return sh_api_fail(err, 400, "unsupported_content", place,
                           "'%s' is not supported: this model reads text only", place);
    snprintf(place, sizeof(place), "messages[%d].content", index);
    if (content != NULL && !cJSON_IsNull(content) && !cJSON_IsString(content))
        return sh_api_fail(err, 400, "invalid_type", place, "'%s' must be a string, not %s", place,
                           sh_json_kind(content));
    if (cJSON_IsString(content) && (content->valuestring[0] != '\0'))
        sh_conversation_text(to, "", content->valuestring);
    if (sh_json_text(message, "thinking") != NULL)
        sh_conversation_reasoning(to, sh_json_text(message, "thinking"));
    return calls_read(to, message, index, err);
}

static bool message_read(sh_conversation *to, const cJSON *message, int index, sh_api_error *err)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = sh_json_text(message, "role");
    char place[PLACE_MAX];
    bool known = false;
    for (size_t i = 0; role != NULL && i < SH_COUNT_OF(roles); i++) {
        if (strcmp(roles[i], role) != 0) continue;
        sh_conversation_message(to, roles[i]);
        known = true;
    }
    if (role != NULL && strcmp(role, "tool") == 0) {
        sh_conversation_result(to, sh_json_text(message, "tool_call_id"),
                               sh_json_text(message, "tool_name"));
        known = true;
    }
    snprintf(place, sizeof(place), "messages[%d].role", index);
    if (!known)
        return sh_api_fail(err, 400, "invalid_value", place,
                           "'%s' must be one of system, user, assistant, tool, not %s", place,
                           role == NULL ? "nothing" : role);
    return body_read(to, message, index, err);
}

static bool messages_read(const cJSON *messages, sh_job_spec *out, sh_api_error *err)
{
    sh_conversation c;
    bool fine = true;
    int index = 0;
    sh_conversation_begin(&c, out);
    for (const cJSON *m = messages->child; fine && m != NULL; m = m->next)
        fine = message_read(&c, m, index++, err);
    return sh_conversation_end(&c, fine, err);
}

/* ---- what both kinds share ---- */

static bool format_read(const cJSON *format, sh_job_spec *out, sh_api_error *err)
{
    const char *word = cJSON_GetStringValue(format);
    if (format == NULL || (word != NULL && word[0] == '\0')) return true;
    out->form = (sh_form){.kind = SH_FORM_JSON_SCHEMA, .field = "format", .json = format};
    if (word == NULL) return true;
    out->form = (sh_form){.kind = SH_FORM_JSON_OBJECT, .field = "format"};
    return strcmp(word, "json") == 0 ||
           sh_api_fail(err, 400, "invalid_value", "format",
                       "'format' must be \"json\" or a JSON Schema, not '%s'", word);
}

static void think_take(const cJSON *think, sh_job_spec *out)
{
    const char *level = cJSON_GetStringValue(think);
    if (think == NULL) return;
    if (level != NULL)
        cJSON_AddStringToObject(sh_job_spec_variables(out), "reasoning_effort", level);
    cJSON_AddBoolToObject(sh_job_spec_variables(out), "enable_thinking",
                          level != NULL || cJSON_IsTrue(think));
}

/* Seconds, or Go's form of a duration: "5m", "1h30m", "300ms". */
static bool duration_read(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    bool negative = text[0] == '-';
    const char *at = text + negative;
    double sum = 0, value;
    if (sh_str_to_double(sh_str_of(text), out)) return true;
    while (*at >= '0' && *at <= '9') {
        size_t digits = strspn(at, "0123456789."), unit = 0;
        if (!sh_str_to_double((sh_str){at, digits}, &value)) return false;
        at += digits;
        while (unit < SH_COUNT_OF(units) &&
               !sh_str_starts(sh_str_of(at), sh_str_of(units[unit].unit)))
            unit++;
        if (unit == SH_COUNT_OF(units)) return false;
        sum += value * units[unit].seconds;
        at += strlen(units[unit].unit);
    }
    *out = negative ? -sum : sum;
    return at > text + negative && *at == '\0';
}

bool sh_ollama_keep_read(const cJSON *keep_alive, sh_job_spec *out, sh_api_error *err)
{
    const char *text = cJSON_GetStringValue(keep_alive);
    if (keep_alive == NULL) return true;
    out->keep_given = true;
    if (cJSON_IsNumber(keep_alive)) out->keep_s = keep_alive->valuedouble;
    if (text != NULL && !duration_read(text, &out->keep_s))
        return sh_api_fail(err, 400, "invalid_value", "keep_alive",
                           "'keep_alive' must be a number of seconds or a duration such as 5m; "
                           "below 0 is forever");
    return true;
}

static void limits_take(const ollama_fields *fields, sh_job_spec *out)
{
    if (fields->num_predict > 0) out->max_tokens = fields->num_predict;
    if (fields->repeat_last_n == 0) out->repetition_penalty = 1;
    if (fields->repeat_last_n > 0) out->repetition_window = fields->repeat_last_n;
    if (fields->repeat_last_n == -1)
        out->repetition_window = SH_MAX_OF(SH_BOUNDS_REPETITION_WINDOW);
}

static bool shared_read(ollama_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    if (out->model != NULL)
        out->model = sh_arena_str(&out->arena, sh_ollama_untagged(out->model)).ptr;
    if (fields->context != NULL) sh_fields_note(&out->ignored, NULL, "context");
    limits_take(fields, out);
    think_take(fields->think, out);
    return sh_ollama_keep_read(fields->keep_alive, out, err) &&
           format_read(fields->format, out, err) &&
           sh_job_spec_read_stops(out, fields->stop, "options.stop", err);
}

/* The spec is copied back even on failure, because its arena has grown meanwhile and must be freed
 * by the caller. */
static bool fields_read(const sh_field_table *table, sh_job_spec *spec,
                        bool (*rest)(ollama_fields *fields, sh_api_error *err), sh_api_error *err)
{
    ollama_fields fields = {.spec = *spec, .repeat_last_n = NOT_GIVEN};
    sh_job_spec_set_defaults(&fields.spec);
    bool fine = sh_fields_read(table, spec->json, &fields, err) &&
                shared_read(&fields, &fields.spec, err) && rest(&fields, err);
    *spec = fields.spec;
    return fine;
}

/* ---- the two kinds ---- */

static bool chat_rest(ollama_fields *fields, sh_api_error *err)
{
    sh_job_spec *out = &fields->spec;
    bool any_tools = fields->tools != NULL && fields->tools->child != NULL;
    out->tools = any_tools ? (cJSON *)(uintptr_t)fields->tools : NULL;
    out->nothing = fields->messages == NULL || fields->messages->child == NULL;
    if (out->tools != NULL && !sh_tools_check(out->tools, err)) return false;
    return out->nothing || messages_read(fields->messages, out, err);
}

/* Without the template, what only the template could write has no effect. */
static bool raw_read(const ollama_fields *fields, sh_job_spec *out)
{
    if (fields->system != NULL && fields->system[0] != '\0')
        sh_fields_note(&out->ignored, NULL, "system");
    if (fields->think != NULL) sh_fields_note(&out->ignored, NULL, "think");
    out->chat = false;
    out->prompts = sh_arena_array(&out->arena, 1, sizeof(*out->prompts));
    out->prompts[0].text = sh_str_of(fields->prompt);
    out->prompt_count = 1;
    return true;
}

static bool generate_rest(ollama_fields *fields, sh_api_error *err)
{
    sh_job_spec *out = &fields->spec;
    sh_conversation c;
    out->messages_field = "prompt";
    out->nothing = fields->prompt == NULL || fields->prompt[0] == '\0';
    if (out->nothing) return true;
    if (fields->suffix != NULL) out->suffix = sh_str_of(fields->suffix);
    if (fields->raw || out->suffix.len > 0) return raw_read(fields, out);
    sh_conversation_begin(&c, out);
    if (fields->system != NULL && fields->system[0] != '\0') {
        sh_conversation_message(&c, "system");
        sh_conversation_text(&c, "", fields->system);
    }
    sh_conversation_message(&c, "user");
    sh_conversation_text(&c, "", fields->prompt);
    return sh_conversation_end(&c, true, err);
}

bool sh_ollama_chat_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_ollama_chat_fields, spec, chat_rest, err);
}

bool sh_ollama_generate_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_ollama_generate_fields, spec, generate_rest, err);
}
