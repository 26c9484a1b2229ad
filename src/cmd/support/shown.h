/* shown.h - prints an answer while it arrives, and keeps it as a message.
 *
 * Reasoning, content and tool calls look different: reasoning is dim where colors are on and ends
 * with an empty line, a call is a line with its name and arguments.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_SHOWN_H
#define SH_CMD_SUPPORT_SHOWN_H

#include "base/buf.h"
#include "base/json.h"
#include "text/output/output.h"

#include <stdio.h>

typedef struct {
    char *id;
    char *name; /* NULL: the call was broken and is dropped */
    sh_buf args;
} sh_shown_call;

/* All zeros: prints nothing, only keeps the answer. */
typedef struct {
    FILE *content_to;   /* or NULL */
    FILE *reasoning_to; /* or NULL */
    bool color;         /* dim reasoning with escape sequences */

    sh_buf content;
    sh_buf reasoning;
    sh_shown_call *calls;
    int call_count;
    bool dim;     /* currently printing reasoning */
    bool in_call; /* currently printing a call */
    bool lost;    /* writing has failed: the reader is gone */
} sh_shown;

/* An sh_output_fn; arg is the sh_shown. */
void sh_shown_event(void *arg, const sh_output_event *event);

/* Call when the answer has ended: finishes the line and resets the color. */
void sh_shown_end(sh_shown *shown);
void sh_shown_reset(sh_shown *shown);

/* The answer as a message in OpenAI's form, or only its calls (NULL when there are none). Owned by
 * the caller. */
cJSON *sh_shown_message(const sh_shown *shown);
cJSON *sh_shown_calls(const sh_shown *shown);

#endif
