#include "api/conversation.h"

#include "api/messages.h"

#include <stdio.h>
#include <string.h>

/* Adds to an object or, without a key, to a list; cJSON fails only without memory. */
static void add(cJSON *to, const char *key, cJSON *item)
{
    bool added = item != NULL && (key == NULL ? cJSON_AddItemToArray(to, item)
                                              : cJSON_AddItemToObject(to, key, item));
    SH_ASSERT(added);
}

static void add_text(cJSON *to, const char *key, const char *text)
{
    if (text != NULL) add(to, key, cJSON_CreateString(text));
}

/* Lists are kept in the body under a key that no client can mean. */
static cJSON *list_in(cJSON *body)
{
    cJSON *list = cJSON_CreateArray();
    add(body, "", list);
    return list;
}

void sh_conversation_begin(sh_conversation *c, sh_job_spec *spec)
{
    *c = (sh_conversation){.spec = spec};
    spec->messages = list_in(spec->json);
}

/* Completes the current message. One of the assistant may have no content, only calls. */
static void message_end(sh_conversation *c)
{
    if (c->message == NULL) return;
    bool lacks = !c->has_content && strcmp(c->role, "assistant") == 0;
    if (!lacks) add_text(c->message, "content", c->content.len == 0 ? "" : c->content.ptr);
    if (c->reasoning.len > 0) add_text(c->message, "reasoning_content", c->reasoning.ptr);
    sh_buf_clear(&c->content);
    sh_buf_clear(&c->reasoning);
    c->has_content = false;
    c->message = NULL;
}

void sh_conversation_message(sh_conversation *c, const char *role)
{
    message_end(c);
    c->message = cJSON_CreateObject();
    c->role = role;
    add(c->spec->messages, NULL, c->message);
    add_text(c->message, "role", role);
}

void sh_conversation_turn(sh_conversation *c, const char *role)
{
    if (c->message == NULL || strcmp(c->role, role) != 0) sh_conversation_message(c, role);
}

void sh_conversation_text(sh_conversation *c, const char *separator, const char *text)
{
    if (c->has_content) sh_buf_add_text(&c->content, separator);
    sh_buf_add_text(&c->content, text);
    c->has_content = true;
}

void sh_conversation_reasoning(sh_conversation *c, const char *text)
{
    sh_buf_add_text(&c->reasoning, text);
}

void sh_conversation_call(sh_conversation *c, const char *id, const char *name, cJSON *arguments)
{
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(c->message, "tool_calls");
    cJSON *call = cJSON_CreateObject(), *function = cJSON_CreateObject();
    if (calls == NULL) {
        calls = cJSON_CreateArray();
        add(c->message, "tool_calls", calls);
    }
    add(calls, NULL, call);
    add_text(call, "id", id);
    add_text(call, "type", "function");
    add(call, "function", function);
    add_text(function, "name", name);
    add(function, "arguments", arguments);
}

void sh_conversation_result(sh_conversation *c, const char *id, const char *name)
{
    sh_conversation_message(c, "tool");
    add_text(c->message, "tool_call_id", id);
    add_text(c->message, "name", name);
}

bool sh_conversation_end(sh_conversation *c, bool fine, sh_api_error *err)
{
    const char *field = c->spec->messages_field == NULL ? "messages" : c->spec->messages_field;
    int count = cJSON_GetArraySize(c->spec->messages);
    message_end(c);
    sh_buf_reset(&c->content);
    sh_buf_reset(&c->reasoning);
    if (!fine) return false;
    if (sh_messages_begin_answer(c->spec->messages)) c->spec->prompt_end = SH_PROMPT_CONTINUES;
    if (count == 0) return sh_api_fail(err, 400, "invalid_value", field, "'%s' is empty", field);
    return count <= SH_MESSAGES_MAX ||
           sh_api_fail(err, 400, "invalid_value", field, "'%s' has %d messages; %d are allowed",
                       field, count, SH_MESSAGES_MAX);
}

/* The schema stays where it is in the body and is referred to. */
static cJSON *function_make(const sh_conversation_tool *tool)
{
    cJSON *function = cJSON_CreateObject();
    SH_ASSERT(function != NULL);
    add_text(function, "name", tool->name);
    add_text(function, "description", tool->description);
    if (tool->parameters != NULL) {
        bool added = cJSON_AddItemReferenceToObject(function, "parameters",
                                                    (cJSON *)(uintptr_t)tool->parameters);
        SH_ASSERT(added);
    }
    if (tool->strict) add(function, "strict", cJSON_CreateTrue());
    return function;
}

bool sh_conversation_add_tool(sh_job_spec *spec, const sh_conversation_tool *tool,
                              const char *place, sh_api_error *err)
{
    char where[96];
    if (spec->tools == NULL) spec->tools = list_in(spec->json);
    if (cJSON_GetArraySize(spec->tools) >= SH_TOOLS_MAX)
        return sh_api_fail(err, 400, "invalid_value", "tools", "'tools' has more than %d entries",
                           SH_TOOLS_MAX);
    snprintf(where, sizeof(where), "%s.name", place);
    if (tool->name == NULL || !sh_tool_name_is_good(tool->name))
        return sh_api_fail(err, 400, "invalid_value", where,
                           "'%s' must be 1 to %d letters, digits, '_', '-' or '.'", where,
                           SH_TOOL_NAME_MAX);
    cJSON *made = cJSON_CreateObject();
    add(spec->tools, NULL, made);
    add_text(made, "type", "function");
    add(made, "function", function_make(tool));
    return true;
}
