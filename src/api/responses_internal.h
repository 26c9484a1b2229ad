/* responses_internal.h - what the files of the Responses API share. Private to responses_*.c.
 *
 * Threads: one owner each. */
#ifndef SH_API_RESPONSES_INTERNAL_H
#define SH_API_RESPONSES_INTERNAL_H

#include "api/conversation.h"

/* Fields before they are interpreted. Pointers are borrowed from the request's JSON. */
typedef struct {
    sh_job_spec spec; /* most fields go straight here */
    const cJSON *input, *tools, *tool_choice, *include, *format, *metadata, *conversation;
    const char *instructions, *previous, *effort, *truncation;
    bool store, background;
} responses_fields;

/* What an answer needs besides the spec (spec->details). Texts live in the spec's arena. */
typedef struct {
    bool store;
    const char *previous;     /* the response that this one continues; or NULL */
    const char *conversation; /* or NULL */
    sh_str echo;              /* the members of a response that repeat the request: "a":1,"b":2 */
    sh_str input;             /* the request's own items, as a list; only if it is stored */
} responses_details;

/* Appends the items of a list to the conversation. `field` is the name of the list. */
bool responses_items_read(const cJSON *items, const char *field, sh_conversation *to,
                          sh_api_error *err);

#endif
