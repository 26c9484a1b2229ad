/* answer.h - from the engine's tokens to what is sent to the client.
 *
 * A choice is one answer to one prompt. Its tokens go through the detokenizer, the stop strings
 * and, in a chat, the parser of reasoning and tool calls, and end up as pending output: text,
 * reasoning, calls and log-probabilities that have not been sent yet. A stream sends them as they
 * arrive and clears them (sh_choice_sent); an answer in one piece lets them accumulate. For a
 * client that reads slowly they accumulate too and are sent in one chunk later, so what is unsent
 * is never larger than the answer's text.
 *
 * Threads: an answer has one owner. */
#ifndef SH_API_ANSWER_H
#define SH_API_ANSWER_H

#include "api/job_spec.h"
#include "api/served_model.h"
#include "base/buf.h"
#include "engine/engine_client.h"

typedef struct {
    char *id;
    char *name;     /* NULL: the call was dropped before anything of it was sent */
    sh_buf args;    /* pending */
    bool announced; /* id and name were sent */
    bool complete;  /* all of its arguments came; never, if the end of the answer cut it */
} sh_call;

typedef struct {
    int32_t id;
    float logprob;
    int64_t offset; /* characters of text before the token; special tokens have no text */
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];
} sh_token_logprobs;

/* Why a choice has ended; every dialect has its own words for it. */
typedef enum {
    SH_ANSWER_RUNNING,     /* it has not */
    SH_ANSWER_STOP,        /* the model ended it, or drew a stop id */
    SH_ANSWER_STOP_STRING, /* a stop string of the request */
    SH_ANSWER_LENGTH,      /* the longest answer allowed */
    SH_ANSWER_TOOL_CALLS,  /* the model waits for the results of its calls */
} sh_answer_finish;

typedef struct sh_choice_text sh_choice_text;

typedef struct {
    int index;     /* in the answer */
    size_t prompt; /* index of the prompt that it answers */

    /* Pending output. */
    sh_buf content;
    sh_buf reasoning;
    sh_call *calls;
    int call_count;
    sh_token_logprobs *logprobs;
    size_t logprobs_count;
    size_t logprobs_held;               /* after these: of tokens whose text is still held back */
    sh_token_logprobs *prompt_logprobs; /* if the spec asks for them; the first token has none */
    size_t prompt_logprobs_count;
    bool begun; /* the first chunk was sent */
    bool over;  /* the last chunk was sent */

    sh_answer_finish finish;
    int stop;    /* index of the stop string that ended it, or -1 */
    bool done;   /* the engine's last event has arrived */
    bool failed; /* see `error` */
    sh_api_error error;

    int prompt_tokens;
    int cached_tokens;
    int completion_tokens;
    int reasoning_tokens;
    double queue_s, prefill_s, decode_s;

    float *vector; /* of a pooled prompt, which has no text; NULL: not there yet */
    int vector_len;

    sh_choice_text *text; /* private to answer.c */
} sh_choice;

typedef struct {
    const sh_job_spec *spec; /* borrowed, as are served and prompts */
    const sh_served_model *served;
    const char *model; /* its name */
    const sh_tokens *prompts;
    char id[80];
    int64_t created_s;
    sh_choice *choices;
    int count;
    int open;       /* choices that are not done */
    double seconds; /* from request to end; set by the owner before the end is written */
    void *state;    /* what a dialect remembers between the parts of a stream; set by the owner */
} sh_answer;

/* prompts: one for a chat, else all prompts of the request. */
SH_MUST_CHECK sh_status sh_answer_create(const sh_job_spec *spec, const sh_served_model *served,
                                         const sh_tokens *prompts, size_t prompt_count,
                                         sh_answer **out, sh_err *err);
void sh_answer_free(sh_answer *answer);

/* The engine's score_from for this spec. */
int sh_answer_score_from(const sh_job_spec *spec);

/* Processes an event of the choice. True when the choice has ended before the engine noticed (a
 * stop string, the last allowed call): the caller should cancel it at the engine. */
bool sh_answer_event(sh_answer *answer, sh_choice *choice, const sh_event *event);

/* Whether there is output to send; and that all of it was sent. */
bool sh_choice_has_pending(const sh_choice *choice);
bool sh_call_has_pending(const sh_call *call);
void sh_choice_sent(sh_choice *choice);

/* Sums over the choices; a prompt counts once, even if it has several answers. */
typedef struct {
    int prompt_tokens;
    int cached_tokens;
    int completion_tokens;
    int reasoning_tokens;
    double queue_s, prefill_s, decode_s; /* of the slowest choice */
} sh_usage;
sh_usage sh_answer_usage(const sh_answer *answer);

#endif
