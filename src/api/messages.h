/* messages.h - checks the messages and tools of a chat and brings them into the form that chat
 * templates expect.
 *
 * Works on the parsed body in place: text parts are joined to a string, `developer` becomes
 * `system`, the arguments of earlier tool calls become objects. Other members of a message are
 * kept, for templates that use them.
 *
 * Threads: pure functions over their JSON. */
#ifndef SH_API_MESSAGES_H
#define SH_API_MESSAGES_H

#include "api/error.h"
#include "base/json.h"

#include <stdbool.h>

enum { SH_MESSAGES_MAX = 10000, SH_TOOLS_MAX = 1024, SH_TOOL_NAME_MAX = 128 };

bool sh_messages_shape(cJSON *messages, sh_api_error *err);
bool sh_tools_check(const cJSON *tools, sh_api_error *err);

/* Removes the `count` oldest messages after the system prompt, and more until the rest begins with
 * one of the user; the last message stays. False if there was none to remove. */
bool sh_messages_drop_oldest(cJSON *messages, int count);

/* The arguments of a call as templates print them: an object. NULL if the text is not one, or has a
 * \u0000: the model once wrote it so, and it stays a text. Owned by the caller. */
cJSON *sh_call_arguments(const char *text);

/* 1 to SH_TOOL_NAME_MAX letters, digits, '_', '-' or '.'. */
bool sh_tool_name_is_good(const char *name);

/* For tools that were checked: the name of a tool, and the tool with a name, or NULL. */
const char *sh_tool_name(const cJSON *tool);
const cJSON *sh_tools_find(const cJSON *tools, const char *name);

/* Whether the last message is the beginning of an answer: the assistant's, with text and without
 * calls. One of the assistant that says nothing begins nothing, and is removed. */
bool sh_messages_begin_answer(cJSON *messages);

#endif
