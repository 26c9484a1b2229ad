/* output.h - splits a model's output into content, reasoning and tool calls while it streams.
 *
 * Each family of models writes reasoning and tool calls in its own dialect. A parser is created for
 * a dialect, receives the output in pieces (split anywhere but inside a UTF-8 character) and
 * reports each event through a callback as soon as it is certain; how the text was split affects
 * only the size of the deltas. Special tokens that are markers must be part of the text, see
 * sh_output_reads().
 *
 * The parser holds back the start of a possible marker, white space that may precede a marker (it
 * belongs to the marker), and a call up to its arguments. Text that turns out not to be a tool call
 * is reported as content, byte for byte; if its arguments have been streamed already,
 * SH_OUTPUT_CALL_BROKEN precedes it. A complete call may lack its closing markers, nothing else. A
 * call whose arguments were being streamed when the output ended was cut: nothing follows its
 * SH_OUTPUT_CALL_ARGS.
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
    SH_OUTPUT_CALL_ARGS,   /* the texts of a complete call, concatenated, are one JSON object */
    SH_OUTPUT_CALL_END,    /* the call is complete */
    SH_OUTPUT_CALL_BROKEN, /* it was not a call after all; its text follows as content */
} sh_output_kind;

typedef struct {
    sh_output_kind kind;
    int call;    /* CALL_*: 0 for the first call of this output, then 1, ... */
    sh_str text; /* CONTENT, REASONING, CALL_ARGS: the delta, never empty */
    sh_str id;   /* CALL_BEGIN: the model's own id, or a generated one */
    sh_str name; /* CALL_BEGIN */
} sh_output_event;

/* The event and its texts are valid only during the callback. */
typedef void (*sh_output_fn)(void *arg, const sh_output_event *event);

/* Either may be NULL: its markers are then plain text. */
typedef struct sh_output_reasoning sh_output_reasoning;
typedef struct sh_output_tools sh_output_tools;
typedef struct {
    const sh_output_reasoning *reasoning;
    const sh_output_tools *tools;
    bool reasoning_guessed; /* by the model type alone: the template has no markers of it */
} sh_output_dialect;

/* Detects the dialect from the markers in the chat template; if it has none, from config.json's
 * model_type. Both may be empty (model_type NULL). */
sh_output_dialect sh_output_dialect_detect(sh_str template_text, const char *model_type);

/* Looks a dialect up by name; "none" gives NULL. The error message lists the names. */
SH_MUST_CHECK sh_status sh_output_reasoning_named(const char *name, const sh_output_reasoning **out,
                                                  sh_err *err);
SH_MUST_CHECK sh_status sh_output_tools_named(const char *name, const sh_output_tools **out,
                                              sh_err *err);

/* Overrides the detected dialect by name; NULL and "auto" keep what was detected. */
SH_MUST_CHECK sh_status sh_output_dialect_choose(sh_output_dialect *dialect, const char *reasoning,
                                                 const char *tools, sh_err *err);

/* The texts around reasoning; false if it is not one text on either side. */
bool sh_output_reasoning_markers(const sh_output_reasoning *reasoning, sh_str *open, sh_str *close);

/* "none" for NULL. */
const char *sh_output_reasoning_name(const sh_output_reasoning *reasoning);
const char *sh_output_tools_name(const sh_output_tools *tools);

/* True if the rendered prompt ends with the opening marker, so that the output starts inside the
 * reasoning. */
bool sh_output_prompt_opens(const sh_output_dialect *dialect, sh_str prompt);

/* Whether the text, the beginning of an answer, ends inside the reasoning. */
bool sh_output_text_reasons(const sh_output_dialect *dialect, sh_str text);

/* Whether reasoning is to be expected after the rendered prompt: not if it ends with the closing
 * marker, as templates write it to turn reasoning off, nor if it was only guessed that the model
 * reasons. */
bool sh_output_may_reason(const sh_output_dialect *dialect, sh_str prompt);

typedef struct {
    bool in_reasoning;  /* see sh_output_prompt_opens */
    const cJSON *tools; /* the request's list, borrowed for the parser's lifetime; NULL: unknown.
                           Provides the types of arguments that are not written as JSON, and the
                           names that a call without markers may have */
    uint64_t id_seed;   /* call ids are derived from it: use a random one for each output */
} sh_output_opts;

typedef struct sh_output sh_output;

sh_output *sh_output_create(const sh_output_dialect *dialect, const sh_output_opts *opts,
                            sh_output_fn fn, void *arg);
void sh_output_free(sh_output *output);

void sh_output_push(sh_output *output, sh_str text);

/* Whether a special token with this text may be part of a marker. One that is not means nothing to
 * the parser and should not be pushed: it would show up as content. */
bool sh_output_reads(const sh_output *output, sh_str special);

/* Ends the output: reports what was held back. Do not push after it. */
void sh_output_finish(sh_output *output);

/* Number of complete calls so far. */
int sh_output_calls(const sh_output *output);

#endif
