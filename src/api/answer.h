/* answer.h - from the engine's tokens to what a client is told.
 *
 * A choice is one answer to one prompt. Its tokens go through the detokenizer, the stop strings
 * and, in a chat, the parser of reasoning and tool calls, and end up as news: text, reasoning,
 * calls and log-probabilities that nobody has been told yet. A stream tells them as they come and
 * clears them (sh_choice_told); a whole answer lets them gather. A client that reads slowly makes
 * news gather too, and gets them in one piece later: so what is unsent is never more than the
 * answer's text.
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
    char *name;     /* NULL: it came to nothing before anybody was told */
    sh_buf args;    /* news */
    bool announced; /* id and name were told */
} sh_call;

typedef struct {
    int32_t id;
    float logprob;
    int64_t offset; /* characters of text before the token; special tokens have none of their own */
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];
} sh_token_logprobs;

typedef struct sh_choice_text sh_choice_text;

typedef struct {
    int index;     /* in the answer */
    size_t prompt; /* which of the prompts it answers */

    /* the news */
    sh_buf content;
    sh_buf reasoning;
    sh_call *calls;
    int call_count;
    sh_token_logprobs *logprobs;
    size_t logprobs_count;
    size_t logprobs_held; /* behind these; of tokens whose text is held back */
    bool begun;           /* something was told */
    bool over;            /* the end was told */

    const char *finish; /* "stop", "length", "tool_calls"; NULL while it runs */
    bool done;          /* the engine has sent its last word */
    bool failed;        /* with `error` */
    sh_api_error error;

    int prompt_tokens;
    int cached_tokens;
    int completion_tokens;
    int reasoning_tokens;
    double queue_s, prefill_s, decode_s;

    sh_choice_text *text; /* the machinery */
} sh_choice;

typedef struct {
    const sh_job_spec *spec; /* borrowed, as are served and prompts */
    const sh_served_model *served;
    const sh_tokens *prompts;
    char id[80];
    int64_t created_s;
    sh_choice *choices;
    int count;
    int open;       /* choices that are not done */
    double seconds; /* from the request to its end; set by the owner before the end is written */
} sh_answer;

/* prompts: one for a chat, else as many as the request has. */
SH_MUST_CHECK sh_status sh_answer_create(const sh_job_spec *spec, const sh_served_model *served,
                                         const sh_tokens *prompts, size_t prompt_count,
                                         sh_answer **out, sh_err *err);
void sh_answer_free(sh_answer *answer);

/* Takes an event of the choice in. True when the choice has ended by itself (a stop string, a call
 * too many) and the engine should be told to cancel it. */
bool sh_answer_event(sh_answer *answer, sh_choice *choice, const sh_event *event);

/* There is something to tell. */
bool sh_choice_has_news(const sh_choice *choice);
bool sh_call_has_news(const sh_call *call);
void sh_choice_told(sh_choice *choice);

/* Sums over the choices; a prompt counts once, however many answers it has. */
typedef struct {
    int prompt_tokens;
    int cached_tokens;
    int completion_tokens;
    int reasoning_tokens;
    double queue_s, prefill_s, decode_s; /* of the slowest choice */
} sh_usage;
sh_usage sh_answer_usage(const sh_answer *answer);

#endif
