/* output.h - what a model's output text means: content, reasoning and tool calls, as it comes.
 *
 * Families of models write reasoning and tool calls in dialects of their own. A parser is told the
 * dialect, gets the output in pieces (cut anywhere but inside a UTF-8 character) and reports events
 * through a callback, each as soon as it is certain; how the text was cut changes nothing but the
 * size of the deltas. Special tokens that are markers must be part of the text (sh_output_reads).
 *
 * What is held back: the beginning of a possible marker, white space that may stand before a marker
 * (it belongs to the marker), and a call up to its arguments. Text that is no tool call
 * after all comes out as content, byte for byte; when its arguments were streamed already,
 * SH_OUTPUT_CALL_BROKEN goes before it. Only closing markers may be missing from a whole call.
 *
 * Threads: a parser has one owner; dialects are constant tables. */
#ifndef SH_TEXT_OUTPUT_OUTPUT_H
#define SH_TEXT_OUTPUT_OUTPUT_H

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SH_OUTPUT_CONTENT,
    SH_OUTPUT_REASONING,
    SH_OUTPUT_CALL_BEGIN,
    SH_OUTPUT_CALL_ARGS,   /* the texts of one call joined are one JSON object */
    SH_OUTPUT_CALL_END,    /* the call is whole */
    SH_OUTPUT_CALL_BROKEN, /* it is not; its text follows as content */
} sh_output_kind;

typedef struct {
    sh_output_kind kind;
    int call;    /* CALL_*: 0 for the first call of this output, then 1, ... */
    sh_str text; /* CONTENT, REASONING, CALL_ARGS: the delta, never empty */
    sh_str id;   /* CALL_BEGIN: the model's own id, or a new one */
    sh_str name; /* CALL_BEGIN */
} sh_output_event;

/* The event and its texts are borrowed for the time of the call. */
typedef void (*sh_output_fn)(void *arg, const sh_output_event *event);

/* Either may be NULL: then such markers are plain text. */
typedef struct sh_output_reasoning sh_output_reasoning;
typedef struct sh_output_tools sh_output_tools;
typedef struct {
    const sh_output_reasoning *reasoning;
    const sh_output_tools *tools;
} sh_output_dialect;

/* Picks the dialect from the markers in the text of the chat template; where it has none, from
 * config.json's model_type. Both may be empty (model_type NULL). */
sh_output_dialect sh_output_dialect_detect(sh_str template_text, const char *model_type);

/* By name; "none" gives NULL. The error lists the names. */
SH_MUST_CHECK sh_status sh_output_reasoning_named(const char *name, const sh_output_reasoning **out,
                                                  sh_err *err);
SH_MUST_CHECK sh_status sh_output_tools_named(const char *name, const sh_output_tools **out,
                                              sh_err *err);

/* Puts what is named in place of what was detected; NULL and "auto" leave it. */
SH_MUST_CHECK sh_status sh_output_dialect_choose(sh_output_dialect *dialect, const char *reasoning,
                                                 const char *tools, sh_err *err);

/* "none" for NULL. */
const char *sh_output_reasoning_name(const sh_output_reasoning *reasoning);
const char *sh_output_tools_name(const sh_output_tools *tools);

/* True when the rendered prompt ends with the opening marker, so that the output begins inside the
 * reasoning. */
bool sh_output_prompt_opens(const sh_output_dialect *dialect, sh_str prompt);

/* What a prompt has to end with so that the model can only go on with a call: the beginning of one,
 * of the function `name` if that is not NULL and the dialect lets it be said. It is part of the
 * output too: push it first. False when the dialect has no calls. */
bool sh_output_call_lead(const sh_output_dialect *dialect, bool in_reasoning, const char *name,
                         sh_buf *out);

typedef struct {
    bool in_reasoning;  /* see sh_output_prompt_opens */
    const cJSON *tools; /* the request's list, borrowed while the parser lives; NULL: not known.
                           Gives the types of arguments that are not written as JSON, and the names
                           that an unmarked call may have */
    uint64_t id_seed;   /* new ids are made from it: take a random one for each output */
} sh_output_opts;

typedef struct sh_output sh_output;

sh_output *sh_output_create(const sh_output_dialect *dialect, const sh_output_opts *opts,
                            sh_output_fn fn, void *arg);
void sh_output_free(sh_output *output);

void sh_output_push(sh_output *output, sh_str text);

/* Whether a special token of this text is part of a marker; one that is not is no text at all, and
 * need not be pushed. */
bool sh_output_reads(const sh_output *output, sh_str special);

/* The output has ended: reports what was held back. Push no more. */
void sh_output_finish(sh_output *output);

/* Calls that ended whole so far. */
int sh_output_calls(const sh_output *output);

#endif
