/* openai_conversation.h - chats that go on by their `conversation_id`. Private to openai_*.c.
 *
 * OpenAI's chats have no memory: clients send all messages each time. Here an answer also names its
 * conversation. A later request with that id needs to send only what is new, and the server puts
 * the kept messages before it. A client that sends an answer of the assistant among its messages
 * keeps the history itself, and nothing is put before it.
 *
 * Threads: as those of dialect.h. */
#ifndef SH_API_OPENAI_CONVERSATION_H
#define SH_API_OPENAI_CONVERSATION_H

#include "api/answer.h"
#include "api/openai_fields.h"

/* What was sent of the answer so far; the state of a chat (sh_answer.state). */
typedef struct {
    sh_buf content, reasoning;
    sh_buf *args; /* of its calls */
    int arg_count;
} openai_conversation;

/* Puts the kept messages before those of the request, which are still as the client sent them. */
bool openai_conversation_read(openai_fields *fields, sh_api_error *err);

/* Takes the pending output of a streamed choice, before it is sent. */
void openai_conversation_part(const sh_answer *answer, const sh_choice *choice);

/* Keeps the request and its answer, unless that failed. */
void openai_conversation_ended(const sh_answer *answer, const sh_api_error *error);
void openai_conversation_reset(void *state);

/* The id that the answer names; NULL: none, because it is not kept. */
const char *openai_conversation_id(const sh_answer *answer);

#endif
