/* Messages are checked before a template sees them, so that an error names the exact place, such as
 * messages[3].content[0], instead of being whatever the template fails with. */
#include "api/messages.h"

#include "base/buf.h"

#include <stdio.h>
#include <string.h>

/* Writes "messages[3].content" and the like. */
#define PLACE(out, ...) snprintf(out, sizeof(out), __VA_ARGS__)

static bool fail_kind(sh_api_error *err, const char *place, const char *wanted, const cJSON *item)
{
    return sh_api_fail(err, 400, "invalid_type", place, "'%s' must be %s, not %s", place, wanted,
                       sh_json_kind(item));
}

/* Sets a member, whether or not it exists. */
static void string_set(cJSON *obj, const char *key, const char *text)
{
    cJSON *item = cJSON_CreateString(text);
    SH_ASSERT(item != NULL);
    if (!cJSON_ReplaceItemInObjectCaseSensitive(obj, key, item)) {
        bool added = cJSON_AddItemToObject(obj, key, item);
        SH_ASSERT(added);
    }
}

/* Appends one part of a content list; only text can go into a prompt. */
static bool part_add(const cJSON *part, const char *place, sh_buf *out, sh_api_error *err)
{
    const char *type = sh_json_text(part, "type"), *text = sh_json_text(part, "text");
    if (type == NULL) return fail_kind(err, place, "an object with a 'type'", part);
    if (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
        strcmp(type, "output_text") != 0)
        return sh_api_fail(err, 400, "unsupported_content", place,
                           "'%s' is a part of type '%s'; this model reads text only", place, type);
    if (text == NULL)
        return sh_api_fail(err, 400, "missing_field", place, "'%s' has no 'text'", place);
    sh_buf_add_text(out, text);
    return true;
}

static bool parts_join(cJSON *message, const cJSON *parts, const char *place, sh_api_error *err)
{
    sh_buf text = {0};
    char where[128];
    int index = 0;
    bool fine = true;
    for (const cJSON *part = parts->child; fine && part != NULL; part = part->next) {
        PLACE(where, "%s[%d]", place, index++);
        fine = part_add(part, where, &text, err);
    }
    if (fine) string_set(message, "content", text.ptr == NULL ? "" : text.ptr);
    sh_buf_reset(&text);
    return fine;
}

/* A string stays as it is, parts are joined. Only an assistant message may have no content: it may
 * consist of tool calls. */
static bool content_shape(cJSON *message, const char *role, int index, sh_api_error *err)
{
    char place[96];
    PLACE(place, "messages[%d].content", index);
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    if (cJSON_IsString(content)) return true;
    if (cJSON_IsArray(content)) return parts_join(message, content, place, err);
    bool may_lack = strcmp(role, "assistant") == 0;
    if (may_lack && (content == NULL || cJSON_IsNull(content))) return true;
    if (content == NULL)
        return sh_api_fail(err, 400, "missing_field", place, "'%s' is missing", place);
    return fail_kind(err, place, "a string or a list of parts", content);
}

cJSON *sh_call_arguments(const char *text)
{
    sh_err ignored;
    cJSON *parsed = NULL;
    if (sh_json_refuse_nul(sh_str_of(text), "arguments", &ignored) != SH_OK ||
        sh_json_parse(sh_str_of(text), "arguments", &parsed, &ignored) != SH_OK)
        return NULL;
    if (cJSON_IsObject(parsed)) return parsed;
    cJSON_Delete(parsed);
    return NULL;
}

/* OpenAI sends arguments as a string of JSON. */
static void arguments_shape(cJSON *function)
{
    const char *text = sh_json_text(function, "arguments");
    cJSON *parsed = text == NULL ? NULL : sh_call_arguments(text);
    if (parsed != NULL && !cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", parsed))
        cJSON_Delete(parsed);
}

static bool calls_shape(cJSON *message, int index, sh_api_error *err)
{
    char place[96];
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    PLACE(place, "messages[%d].tool_calls", index);
    if (calls == NULL || cJSON_IsNull(calls)) return true;
    if (!cJSON_IsArray(calls)) return fail_kind(err, place, "a list", calls);
    int number = 0;
    for (cJSON *call = calls->child; call != NULL; call = call->next) {
        cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
        PLACE(place, "messages[%d].tool_calls[%d].function", index, number++);
        if (!cJSON_IsObject(function) || sh_json_text(function, "name") == NULL)
            return fail_kind(err, place, "an object with a 'name'", function);
        arguments_shape(function);
    }
    return true;
}

static bool message_shape(cJSON *message, int index, sh_api_error *err)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    char place[96];
    PLACE(place, "messages[%d]", index);
    if (!cJSON_IsObject(message)) return fail_kind(err, place, "an object", message);
    const char *role = sh_json_text(message, "role");
    bool known = false;
    for (size_t i = 0; role != NULL && i < SH_COUNT_OF(roles); i++)
        known = known || strcmp(role, roles[i]) == 0;
    PLACE(place, "messages[%d].role", index);
    if (!known)
        return sh_api_fail(err, 400, "invalid_value", place,
                           "'%s' must be one of system, developer, user, assistant, tool, not %s",
                           place, role == NULL ? "nothing" : role);
    if (!content_shape(message, role, index, err) || !calls_shape(message, index, err))
        return false;
    /* Templates know the role by one name only. string_set() frees the old text of `role`. */
    if (strcmp(role, "developer") == 0)
        string_set(message, "role", "system");
    else if (strcmp(role, "function") == 0)
        string_set(message, "role", "tool");
    return true;
}

bool sh_messages_shape(cJSON *messages, sh_api_error *err)
{
    int count = cJSON_GetArraySize(messages), index = 0;
    if (count == 0)
        return sh_api_fail(err, 400, "invalid_value", "messages", "'messages' is empty");
    if (count > SH_MESSAGES_MAX)
        return sh_api_fail(err, 400, "invalid_value", "messages",
                           "'messages' has %d entries; %d are allowed", count, SH_MESSAGES_MAX);
    for (cJSON *message = messages->child; message != NULL; message = message->next)
        if (!message_shape(message, index++, err)) return false;
    return true;
}

bool sh_messages_begin_answer(cJSON *messages)
{
    int count = cJSON_GetArraySize(messages);
    cJSON *last = cJSON_GetArrayItem(messages, count - 1);
    const char *role = sh_json_text(last, "role"), *content = sh_json_text(last, "content");
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(last, "tool_calls");
    if (role == NULL || strcmp(role, "assistant") != 0 || (calls != NULL && calls->child != NULL))
        return false;
    if (content != NULL && content[0] != '\0') return true;
    bool says_nothing = sh_json_text(last, "reasoning_content") == NULL;
    if (says_nothing && count > 1) cJSON_Delete(cJSON_DetachItemViaPointer(messages, last));
    return false;
}

static bool has_role(const cJSON *message, const char *role)
{
    const char *own = sh_json_text(message, "role");
    return own != NULL && strcmp(own, role) == 0;
}

bool sh_messages_drop_oldest(cJSON *messages, int count)
{
    cJSON *oldest = messages->child, *next;
    int dropped = 0;
    while (oldest != NULL && has_role(oldest, "system")) oldest = oldest->next;
    for (; oldest != NULL && oldest->next != NULL; oldest = next, dropped++) {
        if (dropped >= count && has_role(oldest, "user")) break;
        next = oldest->next;
        cJSON_Delete(cJSON_DetachItemViaPointer(messages, oldest));
    }
    return dropped > 0;
}

bool sh_tool_name_is_good(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= SH_TOOL_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

static bool tool_check(const cJSON *tool, int index, sh_api_error *err)
{
    char place[96];
    PLACE(place, "tools[%d]", index);
    const char *type = sh_json_text(tool, "type");
    if (type == NULL) return fail_kind(err, place, "an object with a 'type'", tool);
    if (strcmp(type, "function") != 0)
        return sh_api_fail(err, 400, "unsupported_tool", place,
                           "'%s' is a tool of type '%s'; only 'function' is supported", place,
                           type);
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    const char *name = sh_json_text(function, "name");
    PLACE(place, "tools[%d].function.name", index);
    if (name == NULL || !sh_tool_name_is_good(name))
        return sh_api_fail(err, 400, "invalid_value", place,
                           "'%s' must be 1 to %d letters, digits, '_', '-' or '.'", place,
                           SH_TOOL_NAME_MAX);
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    PLACE(place, "tools[%d].function.parameters", index);
    if (parameters != NULL && !cJSON_IsNull(parameters) && !cJSON_IsObject(parameters))
        return fail_kind(err, place, "an object", parameters);
    return true;
}

bool sh_tools_check(const cJSON *tools, sh_api_error *err)
{
    int index = 0;
    if (cJSON_GetArraySize(tools) > SH_TOOLS_MAX)
        return sh_api_fail(err, 400, "invalid_value", "tools", "'tools' has more than %d entries",
                           SH_TOOLS_MAX);
    for (const cJSON *tool = tools->child; tool != NULL; tool = tool->next)
        if (!tool_check(tool, index++, err)) return false;
    return true;
}

const char *sh_tool_name(const cJSON *tool)
{
    return sh_json_text(cJSON_GetObjectItemCaseSensitive(tool, "function"), "name");
}

const cJSON *sh_tools_find(const cJSON *tools, const char *name)
{
    for (const cJSON *tool = tools == NULL ? NULL : tools->child; tool != NULL; tool = tool->next)
        if (strcmp(sh_tool_name(tool), name) == 0) return tool;
    return NULL;
}
