/* job_spec.h - the internal form of a request, common to all dialects.
 *
 * A dialect reads its own JSON into this struct; everything after that (prompt, engine, answer)
 * sees nothing else. What it points to lives in its arena or in the parsed body, which it owns, and
 * is freed by sh_job_spec_reset.
 *
 * Threads: a spec has one owner at a time; it may be filled by one thread and used by another. */
#ifndef SH_API_JOB_SPEC_H
#define SH_API_JOB_SPEC_H

#include "api/error.h"
#include "api/response_store.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_CHOICES_MAX = 128 };
#define SH_SEED_MAX 9007199254740992.0 /* 2^53: a double represents all integers up to it */

typedef enum { SH_TOOLS_AUTO, SH_TOOLS_NONE, SH_TOOLS_REQUIRED, SH_TOOLS_NAMED } sh_tool_choice;

/* How the prompt of a chat ends. */
typedef enum {
    SH_PROMPT_OPENS_ANSWER,
    SH_PROMPT_CONTINUES, /* inside the last message, which the answer goes on with */
    SH_PROMPT_CLOSED,    /* after the last message */
} sh_prompt_end;

/* Text, or ids when text.ptr is NULL. */
typedef struct {
    sh_str text;
    const int32_t *ids;
    size_t id_count;
} sh_prompt;

typedef enum {
    SH_FORM_FREE,
    SH_FORM_JSON_OBJECT,
    SH_FORM_JSON_SCHEMA,
    SH_FORM_REGEX,
    SH_FORM_CHOICE,
    SH_FORM_GRAMMAR,
} sh_form_kind;

/* What the content of the answer must match. */
typedef struct {
    sh_form_kind kind;
    const char *field; /* where it stands in the request */
    const cJSON *json; /* the schema, or a list of strings */
    sh_str text;       /* the pattern or the grammar */
} sh_form;

typedef struct {
    sh_arena arena;
    cJSON *json; /* the body */

    /* Set by the owner before the body is read. */
    sh_response_store *store;         /* earlier answers; or NULL */
    sh_response_store *conversations; /* earlier chats; or NULL */
    uint64_t owner;                   /* whose they are */
    size_t body_len;
    bool retriable; /* the client may repeat it under its Idempotency-Key */

    const char *model; /* NULL: the one that is served */
    bool chat;

    /* chat: shaped as templates expect them, all inside json */
    cJSON *messages;
    cJSON *tools;     /* NULL: none */
    cJSON *variables; /* of the template; NULL: none */
    sh_tool_choice tool_choice;
    bool parallel_calls;
    sh_prompt_end prompt_end;
    bool truncates;               /* leave out old messages if the prompt is too long */
    bool nothing;                 /* nothing is to be generated: the answer has no choices */
    const char *messages_field;   /* the client's word, for errors; NULL: "messages" */
    const char *parameters_field; /* likewise, of a tool; NULL: "function.parameters" */

    /* not chat */
    sh_prompt *prompts;
    size_t prompt_count;
    sh_str suffix; /* what follows the answer: it fills the middle; empty: nothing */
    bool echo;
    bool prompt_only; /* no answer is wanted: max_tokens was given as 0 */

    /* sampling; NAN or -1: the settings of the server or the model */
    double temperature, top_p, min_p;
    int64_t top_k;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t repetition_window;
    int64_t seed; /* -1: the server's, or any */
    const int32_t *bias_ids;
    const float *bias;
    int bias_count;

    /* how many answers, and when they end */
    int64_t n;
    int64_t max_tokens; /* 0: the server's default */
    int64_t min_tokens;
    int64_t reasoning_max;       /* tokens; 0: no limit */
    const char *reasoning_field; /* that says so */
    bool ignore_eos;
    const sh_str *stops;
    size_t stop_count;
    const int32_t *stop_ids;
    int stop_id_count;
    double timeout_s; /* 0: the engine's default */

    bool keep_given;
    double keep_s; /* how long the model may stay loaded without requests; below 0: forever */

    sh_form form;

    /* pooled: no answer is drawn, each prompt becomes a vector */
    bool pooled;
    const char *field;          /* what the request calls the prompts */
    bool listed;                /* they are in a list: errors name the index */
    const char *prompt_name;    /* of a prompt of the model that goes before each; NULL: none */
    int64_t dimensions;         /* of a vector; 0: the model's */
    bool base64;                /* vectors are bytes, not numbers */
    int64_t truncate;           /* keep so many tokens of a longer prompt; -1: as many as the model
                                   takes; 0: refuse longer ones */
    const char *truncate_field; /* the client's word; NULL: "truncate_prompt_tokens" */
    sh_str query;          /* each prompt is the second text of a pair with it; ptr NULL: none */
    int64_t top_n;         /* rerank: how many of the best to report; 0: all */
    bool return_documents; /* rerank: with their texts */

    /* what to report */
    bool logprobs;
    int64_t top_logprobs;
    bool prompt_logprobs; /* of the prompt's tokens, too */
    int64_t prompt_top_logprobs;
    bool token_ids;
    bool stream;
    bool include_usage;
    const char *conversation_id; /* NULL: not given */
    bool keeps;                  /* the conversation can be continued by its id */
    sh_str input;                /* if it is kept: the messages of the client, as JSON */
    const char *previous;        /* the answer that this one continues; NULL: none */
    const void *details;         /* what else the format needs for its answer, in the arena */
    sh_buf ignored;              /* fields that have no effect, see sh_fields_note */
} sh_job_spec;

/* What the server adds to requests, besides sampling. */
typedef struct {
    const char *system; /* message of chats that have none; or NULL */
    const cJSON *stops; /* strings that end answers, besides those of the request; or NULL */
    double presence_penalty, frequency_penalty; /* of requests that have none, or 0 */
} sh_job_defaults;

/* What the file that describes a model says for requests that leave it open. */
typedef struct {
    sh_job_defaults added; /* points to the next two */
    char *system;
    cJSON *stops;
    double temperature, top_p, min_p, repetition_penalty; /* NAN: nothing */
    int64_t top_k, max_tokens, seed;                      /* -1: nothing */
} sh_model_defaults;

/* Appends what the files of a model's folder tell about its weights, as a JSON object; nothing if
 * they cannot be read. */
typedef void (*sh_facts_reader)(const char *dir, sh_buf *out);

/* Reads such a file into *out, which the caller frees. */
typedef sh_status (*sh_defaults_reader)(const char *file, sh_model_defaults *out, sh_err *err);

/* Zero is a valid empty spec. */
void sh_job_spec_reset(sh_job_spec *spec);

/* A chat in which nothing is set. */
void sh_job_spec_set_defaults(sh_job_spec *spec);

/* Stop strings: one, or a list, or NULL for none. */
bool sh_job_spec_read_stops(sh_job_spec *spec, const cJSON *stops, const char *field,
                            sh_api_error *err);

/* To a spec that was read. */
bool sh_job_spec_add_defaults(sh_job_spec *spec, const sh_job_defaults *defaults,
                              sh_api_error *err);

/* The answer must be a call of this tool, which is then the only one in the prompt. */
bool sh_job_spec_choose_tool(sh_job_spec *spec, const char *name, const char *field,
                             sh_api_error *err);

/* The answer must contain a call. */
bool sh_job_spec_require_call(sh_job_spec *spec, const char *value, const char *field,
                              sh_api_error *err);

/* The variables of the template, an object inside json; made if there is none. */
cJSON *sh_job_spec_variables(sh_job_spec *spec);

#endif
