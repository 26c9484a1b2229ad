/* shown.h - an answer on the screen, and what is kept of it.
 *
 * Reasoning, content and tool calls are told apart as they are printed: reasoning is dim where
 * there are colours and ends with an empty line, a call is a line with its name and arguments.
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
    char *name; /* NULL: it came to nothing */
    sh_buf args;
} sh_shown_call;

/* Zero prints nothing and only keeps. */
typedef struct {
    FILE *content_to;   /* or NULL */
    FILE *reasoning_to; /* likewise */
    bool color;         /* of the reasoning */

    sh_buf content;
    sh_buf reasoning;
    sh_shown_call *calls;
    int call_count;
    bool dim;     /* the text on the screen is reasoning just now */
    bool in_call; /* or a call */
    bool lost;    /* nobody reads any more */
} sh_shown;

/* An sh_output_fn; arg is the sh_shown. */
void sh_shown_event(void *arg, const sh_output_event *event);

/* The answer has ended: the screen is plain again. */
void sh_shown_end(sh_shown *shown);
void sh_shown_reset(sh_shown *shown);

/* The answer as a message of the conversation, or the calls alone (NULL when there are none); owned
 * by the caller. */
cJSON *sh_shown_message(const sh_shown *shown);
cJSON *sh_shown_calls(const sh_shown *shown);

#endif
