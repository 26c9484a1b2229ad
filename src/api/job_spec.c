/* What the readers of all dialects have in common. */
#include "api/job_spec.h"

#include "api/messages.h"
#include "text/output/stop.h"

#include <math.h>
#include <string.h>

enum { REPETITION_WINDOW = 20 };

/* Everything else that a spec points to lives in the things freed here. */
void sh_job_spec_reset(sh_job_spec *spec)
{
    cJSON_Delete(spec->json);
    sh_arena_reset(&spec->arena);
    sh_buf_reset(&spec->ignored);
    *spec = (sh_job_spec){0};
}

void sh_job_spec_set_defaults(sh_job_spec *spec)
{
    spec->chat = spec->parallel_calls = true;
    spec->temperature = spec->top_p = spec->min_p = spec->repetition_penalty = NAN;
    spec->repetition_window = REPETITION_WINDOW;
    spec->top_k = spec->seed = -1;
    spec->n = 1;
}

bool sh_job_spec_read_stops(sh_job_spec *spec, const cJSON *stops, const char *field,
                            sh_api_error *err)
{
    if (stops == NULL) return true;
    bool one = cJSON_IsString(stops);
    int count = one ? 1 : cJSON_GetArraySize(stops);
    if (count > SH_STOP_COUNT_MAX)
        return sh_api_fail(err, 400, "invalid_value", field, "'%s' has %d strings; %d are allowed",
                           field, count, SH_STOP_COUNT_MAX);
    sh_str *out = sh_arena_array(&spec->arena, (size_t)count, sizeof(*out));
    const cJSON *item = one ? stops : stops->child;
    for (int i = 0; i < count; i++, item = item->next) {
        const char *text = cJSON_GetStringValue(item);
        if (text == NULL || text[0] == '\0' || strlen(text) > SH_STOP_LEN_MAX)
            return sh_api_fail(err, 400, "invalid_value", field,
                               "'%s' must contain strings of 1 to %d bytes", field,
                               SH_STOP_LEN_MAX);
        out[i] = sh_str_of(text);
    }
    spec->stops = out;
    spec->stop_count = (size_t)count;
    return true;
}

static bool stops_add(sh_job_spec *spec, const cJSON *stops, sh_api_error *err)
{
    const sh_str *own = spec->stops;
    size_t count = spec->stop_count;
    if (stops == NULL) return true;
    if (!sh_job_spec_read_stops(spec, stops, "stop", err)) return false;
    if (count + spec->stop_count > SH_STOP_COUNT_MAX)
        return sh_api_fail(err, 400, "invalid_value", "stop",
                           "'stop' has %zu strings, and the server has %zu; %d are allowed", count,
                           spec->stop_count, SH_STOP_COUNT_MAX);
    sh_str *all = sh_arena_array(&spec->arena, count + spec->stop_count, sizeof(*all));
    for (size_t i = 0; i < count; i++) all[i] = own[i];
    for (size_t i = 0; i < spec->stop_count; i++) all[count + i] = spec->stops[i];
    spec->stops = all;
    spec->stop_count += count;
    return true;
}

static void system_add(sh_job_spec *spec, const char *text)
{
    const char *role = sh_json_text(spec->messages->child, "role");
    if (role != NULL && strcmp(role, "system") == 0) return;
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", "system");
    cJSON_AddStringToObject(message, "content", text);
    cJSON_InsertItemInArray(spec->messages, 0, message);
}

bool sh_job_spec_add_defaults(sh_job_spec *spec, const sh_job_defaults *defaults, sh_api_error *err)
{
    if (spec->pooled) return true;
    if (spec->presence_penalty == 0) spec->presence_penalty = defaults->presence_penalty;
    if (spec->frequency_penalty == 0) spec->frequency_penalty = defaults->frequency_penalty;
    if (spec->chat && spec->messages != NULL && defaults->system != NULL)
        system_add(spec, defaults->system);
    return stops_add(spec, defaults->stops, err);
}

bool sh_job_spec_require_call(sh_job_spec *spec, const char *value, const char *field,
                              sh_api_error *err)
{
    spec->tool_choice = SH_TOOLS_REQUIRED;
    return spec->tools != NULL ||
           sh_api_fail(err, 400, "invalid_value", field, "'%s' is '%s' but there are no 'tools'",
                       field, value);
}

bool sh_job_spec_choose_tool(sh_job_spec *spec, const char *name, const char *field,
                             sh_api_error *err)
{
    const cJSON *only = sh_tools_find(spec->tools, name);
    if (only == NULL)
        return sh_api_fail(err, 400, "invalid_value", field,
                           "'%s' names '%s', which is not in 'tools'", field, name);
    spec->tool_choice = SH_TOOLS_NAMED;
    for (cJSON *tool = spec->tools->child, *next; tool != NULL; tool = next) {
        next = tool->next;
        if (tool != only) cJSON_Delete(cJSON_DetachItemViaPointer(spec->tools, tool));
    }
    return true;
}

cJSON *sh_job_spec_variables(sh_job_spec *spec)
{
    if (spec->variables == NULL) {
        spec->variables = cJSON_AddObjectToObject(spec->json, "");
        SH_ASSERT(spec->variables != NULL);
    }
    return spec->variables;
}
