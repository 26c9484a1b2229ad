/* conversation.h - writes the messages and tools of a chat in the form that templates expect.
 *
 * For dialects whose requests have another form: a reader walks through its own JSON and says what
 * it finds, in the order of the conversation. What comes out is spec->messages and spec->tools, as
 * from an OpenAI chat; nothing after it can tell the dialects apart.
 *
 * Threads: one owner. */
#ifndef SH_API_CONVERSATION_H
#define SH_API_CONVERSATION_H

#include "api/job_spec.h"

typedef struct {
    sh_job_spec *spec;
    cJSON *message;   /* the current one, or NULL */
    const char *role; /* of it */
    sh_buf content, reasoning;
    bool has_content;
} sh_conversation;

/* Starts with no messages; end in any case. */
void sh_conversation_begin(sh_conversation *c, sh_job_spec *spec);

/* Starts a message; `turn` continues the current one if it has that role. The role is a constant:
 * system, user, assistant. */
void sh_conversation_message(sh_conversation *c, const char *role);
void sh_conversation_turn(sh_conversation *c, const char *role);

/* Appends to the current message. `separator` goes between two texts. */
void sh_conversation_text(sh_conversation *c, const char *separator, const char *text);
void sh_conversation_reasoning(sh_conversation *c, const char *text);

/* A call in the current message. Takes `arguments`: an object, or a text that is none. */
void sh_conversation_call(sh_conversation *c, const char *id, const char *name, cJSON *arguments);

/* Starts the message with the result of a call; its text follows. `id` and `name` may be NULL. */
void sh_conversation_result(sh_conversation *c, const char *id, const char *name);

/* fine: nothing has failed meanwhile. False if something has, or if there are no messages or too
 * many. */
bool sh_conversation_end(sh_conversation *c, bool fine, sh_api_error *err);

typedef struct {
    const char *name, *description; /* description: or NULL */
    const cJSON *parameters;        /* JSON Schema inside spec->json; or NULL */
    bool strict;
} sh_conversation_tool;

/* `place` is the tool's, such as "tools[3]", for errors. */
bool sh_conversation_add_tool(sh_job_spec *spec, const sh_conversation_tool *tool,
                              const char *place, sh_api_error *err);

#endif
