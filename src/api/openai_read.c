/* From OpenAI's JSON to the internal spec. The field tables check types and ranges; this file does
 * what a table cannot express: values with several forms (stop, prompt, tool_choice), fields that
 * depend on each other, and the shape of messages and tools.
 *
 * Strings and JSON in the spec point into the parsed body, lists live in the spec's arena; both are
 * owned by the spec. Values that the client did not set are NAN or INT64_MIN until here, to tell
 * them from values that mean "off". */
#include "api/messages.h"
#include "api/openai.h"
#include "api/openai_conversation.h"
#include "api/openai_fields.h"
#include "engine/engine_client.h"

#include <math.h>
#include <string.h>

/* A list of token ids. They are checked against the vocabulary later, in served_model.c. */
static bool ids_read(const cJSON *list, const char *field, sh_arena *arena, const int32_t **ids,
                     size_t *count, sh_api_error *err)
{
    size_t size = (size_t)cJSON_GetArraySize(list);
    int32_t *out = sh_arena_array(arena, size, sizeof(*out));
    const cJSON *item = list->child;
    for (size_t i = 0; i < size; i++, item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id <= INT32_MAX) || floor(id) != id)
            return sh_api_fail(err, 400, "invalid_value", field,
                               "'%s' must contain token ids: whole numbers from 0", field);
        out[i] = (int32_t)id;
    }
    *ids = out;
    *count = size;
    return true;
}

/* Half of the engine's limit: the other half is for the model's own end tokens (see job.c). */
static bool stop_ids_read(const cJSON *list, sh_job_spec *out, sh_api_error *err)
{
    size_t count;
    if (list == NULL) return true;
    if (cJSON_GetArraySize(list) > SH_STOP_IDS_MAX / 2)
        return sh_api_fail(err, 400, "invalid_value", "stop_token_ids",
                           "'stop_token_ids' has more than %d ids", SH_STOP_IDS_MAX / 2);
    if (!ids_read(list, "stop_token_ids", &out->arena, &out->stop_ids, &count, err)) return false;
    out->stop_id_count = (int)count;
    return true;
}

static bool bias_read(const cJSON *bias, sh_job_spec *out, sh_api_error *err)
{
    int count = bias == NULL ? 0 : cJSON_GetArraySize(bias);
    if (count > SH_LOGIT_BIAS_MAX)
        return sh_api_fail(err, 400, "invalid_value", "logit_bias",
                           "'logit_bias' has %d tokens; %d are allowed", count, SH_LOGIT_BIAS_MAX);
    int32_t *ids = sh_arena_array(&out->arena, (size_t)count, sizeof(*ids));
    float *values = sh_arena_array(&out->arena, (size_t)count, sizeof(*values));
    const cJSON *item = count == 0 ? NULL : bias->child;
    for (int i = 0; i < count; i++, item = item->next) {
        int64_t id;
        if (!sh_str_to_int(sh_str_of(item->string), &id) || id < 0 || id > INT32_MAX ||
            !cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 100))
            return sh_api_fail(err, 400, "invalid_value", "logit_bias",
                               "'logit_bias' must map token ids to numbers from -100 to 100; the "
                               "entry '%s' does not",
                               item->string);
        ids[i] = (int32_t)id;
        values[i] = (float)item->valuedouble;
    }
    out->bias_ids = ids;
    out->bias = values;
    out->bias_count = count;
    return true;
}

/* Some clients send 0 for "off". Nothing else below the engine's minimum is valid. */
static bool repetition_read(sh_job_spec *out, sh_api_error *err)
{
    double least = SH_MIN_OF(SH_BOUNDS_REPETITION_PENALTY);
    if (out->repetition_penalty == 0) out->repetition_penalty = 1;
    if (!(out->repetition_penalty < least)) return true;
    return sh_api_fail(err, 400, "invalid_value", "repetition_penalty",
                       "'repetition_penalty' must be 0 (off) or a number from %g to %d, not %g",
                       least, SH_MAX_OF(SH_BOUNDS_REPETITION_PENALTY), out->repetition_penalty);
}

/* top_k: not given means the model's own setting (-1 in the spec), -1 from the client means all (0
 * in the spec). */
static bool shared_read(const openai_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    if (out->top_k == INT64_MIN)
        out->top_k = -1;
    else if (out->top_k < 0)
        out->top_k = 0;
    if (fields->max_completion_tokens != 0) out->max_tokens = fields->max_completion_tokens;
    out->reasoning_field = "thinking_token_budget";
    out->prompt_logprobs = fields->prompt_logprobs >= 0;
    out->prompt_top_logprobs = out->prompt_logprobs ? fields->prompt_logprobs : 0;
    return repetition_read(out, err) && sh_job_spec_read_stops(out, fields->stop, "stop", err) &&
           stop_ids_read(fields->stop_token_ids, out, err) &&
           bias_read(fields->logit_bias, out, err) && openai_form_read(fields, out, err);
}

/* Reads the table's fields, then calls `rest` for the others. The spec is copied back even on
 * failure, because its arena has grown meanwhile and must be freed by the caller. */
static bool fields_read(const sh_field_table *table, sh_job_spec *spec,
                        bool (*rest)(openai_fields *fields, sh_api_error *err), sh_api_error *err)
{
    openai_fields fields = {
        .spec = *spec, .logprobs_count = -1, .prompt_logprobs = -1, .answer_max = -1};
    sh_job_spec *out = &fields.spec;
    out->temperature = out->top_p = out->min_p = out->repetition_penalty = NAN;
    out->top_k = INT64_MIN;
    bool fine = sh_fields_read(table, spec->json, &fields, err) && shared_read(&fields, out, err) &&
                rest(&fields, err);
    *spec = *out;
    return fine;
}

static bool tool_choice_read(const cJSON *choice, sh_job_spec *out, sh_api_error *err)
{
    static const char *const names[] = {"auto", "none", "required"};
    if (choice == NULL) return true;
    for (int i = 0; cJSON_IsString(choice) && i < 3; i++) {
        if (strcmp(choice->valuestring, names[i]) != 0) continue;
        out->tool_choice = (sh_tool_choice)i;
        return out->tool_choice != SH_TOOLS_REQUIRED ||
               sh_job_spec_require_call(out, names[i], "tool_choice", err);
    }
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(choice, "function");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function, "name"));
    if (name == NULL)
        return sh_api_fail(err, 400, "invalid_value", "tool_choice",
                           "'tool_choice' must be auto, none, required or "
                           "{\"type\":\"function\",\"function\":{\"name\":...}}");
    return sh_job_spec_choose_tool(out, name, "tool_choice", err);
}

/* Template variables come from three fields; collect them in one object. chat_template_kwargs wins.
 */
static cJSON *variables_gather(const openai_fields *fields)
{
    cJSON *vars = (cJSON *)fields->template_kwargs;
    if (vars == NULL && fields->enable_thinking == NULL && fields->reasoning_effort == NULL)
        return NULL;
    if (vars == NULL) vars = cJSON_AddObjectToObject(fields->spec.json, "chat_template_kwargs");
    SH_ASSERT(vars != NULL);
    if (fields->enable_thinking != NULL && !cJSON_HasObjectItem(vars, "enable_thinking"))
        cJSON_AddBoolToObject(vars, "enable_thinking", cJSON_IsTrue(fields->enable_thinking));
    const char *effort = fields->reasoning_effort;
    if (effort != NULL && strcmp(effort, "none") == 0) {
        if (!cJSON_HasObjectItem(vars, "enable_thinking"))
            cJSON_AddFalseToObject(vars, "enable_thinking");
    } else if (effort != NULL && !cJSON_HasObjectItem(vars, "reasoning_effort")) {
        cJSON_AddStringToObject(vars, "reasoning_effort", effort);
    }
    return vars;
}

static bool prompt_end_read(const openai_fields *fields, sh_job_spec *out, sh_api_error *err)
{
    const cJSON *go_on = fields->continue_final, *open = fields->generation_prompt;
    if (cJSON_IsTrue(go_on) && cJSON_IsTrue(open))
        return sh_api_fail(err, 400, "invalid_value", "continue_final_message",
                           "'continue_final_message' and 'add_generation_prompt' are both true; "
                           "the prompt can end in one way only");
    bool begun = go_on == NULL && open == NULL && sh_messages_begin_answer(out->messages) &&
                 !cJSON_HasObjectItem(fields->template_kwargs, "add_generation_prompt");
    if (cJSON_IsTrue(go_on) || begun)
        out->prompt_end = SH_PROMPT_CONTINUES;
    else if (cJSON_IsFalse(open))
        out->prompt_end = SH_PROMPT_CLOSED;
    if (out->prompt_end == SH_PROMPT_CONTINUES) out->keeps = false; /* the rest of an answer */
    return true;
}

static bool chat_rest(openai_fields *fields, sh_api_error *err)
{
    sh_job_spec *out = &fields->spec;
    out->chat = true;
    out->messages = (cJSON *)fields->messages;
    bool any_tools = fields->tools != NULL && fields->tools->child != NULL;
    out->tools = any_tools ? (cJSON *)fields->tools : NULL;
    if (!openai_conversation_read(fields, err)) return false;
    if (!sh_messages_shape(out->messages, err) || !prompt_end_read(fields, out, err)) return false;
    if (out->tools != NULL && !sh_tools_check(out->tools, err)) return false;
    if (!tool_choice_read(fields->tool_choice, out, err)) return false;
    if (out->top_logprobs > 0 && !out->logprobs)
        return sh_api_fail(err, 400, "invalid_value", "top_logprobs",
                           "'top_logprobs' is given but 'logprobs' is not true");
    if (out->tool_choice == SH_TOOLS_NONE) out->tools = NULL;
    out->variables = variables_gather(fields);
    return true;
}

static bool prompt_add(const cJSON *item, sh_job_spec *out, sh_api_error *err)
{
    sh_prompt *prompt = &out->prompts[out->prompt_count++];
    if (cJSON_IsString(item)) {
        prompt->text = sh_str_of(item->valuestring);
        return true;
    }
    if (!cJSON_IsArray(item) || item->child == NULL)
        return sh_api_fail(err, 400, "invalid_value", "prompt",
                           "'prompt' must be a text, token ids, or a list of either");
    return ids_read(item, "prompt", &out->arena, &prompt->ids, &prompt->id_count, err);
}

/* "text", ["text", ...], [1, 2, ...] and [[1, 2, ...], ...] are all in use. */
static bool prompts_read(const cJSON *prompt, sh_job_spec *out, sh_api_error *err)
{
    bool single = cJSON_IsString(prompt) || cJSON_IsNumber(prompt->child);
    int count = single ? 1 : cJSON_GetArraySize(prompt);
    if (count == 0 || count * out->n > SH_CHOICES_MAX)
        return sh_api_fail(err, 400, "invalid_value", "prompt",
                           "'prompt' times 'n' must give 1 to %d answers", SH_CHOICES_MAX);
    out->prompts = sh_arena_array(&out->arena, (size_t)count, sizeof(*out->prompts));
    if (single) return prompt_add(prompt, out, err);
    for (const cJSON *item = prompt->child; item != NULL; item = item->next)
        if (!prompt_add(item, out, err)) return false;
    return true;
}

static bool completion_rest(openai_fields *fields, sh_api_error *err)
{
    sh_job_spec *out = &fields->spec;
    out->parallel_calls = true;
    out->logprobs = fields->logprobs_count >= 0;
    out->top_logprobs = out->logprobs ? fields->logprobs_count : 0;
    if (fields->answer_max > 0) out->max_tokens = fields->answer_max;
    out->prompt_only = fields->answer_max == 0;
    if (fields->suffix != NULL) out->suffix = sh_str_of(fields->suffix->valuestring);
    return prompts_read(fields->prompt, out, err);
}

bool sh_openai_chat_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_openai_chat_fields, spec, chat_rest, err);
}

bool sh_openai_completion_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_openai_completion_fields, spec, completion_rest, err);
}
