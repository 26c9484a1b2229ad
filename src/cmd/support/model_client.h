/* model_client.h - who answers `shoal chat` and `shoal generate`.
 *
 * Either an engine that the command starts for its model and ranks, to which it is a client like
 * the API (model_client_local.c), or a server that runs already, at --url (model_client_http.c).
 * Both are asked the same question and report the same events, so the commands do not know which
 * of them it is.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_MODEL_CLIENT_H
#define SH_CMD_SUPPORT_MODEL_CLIENT_H

#include "base/json.h"
#include "cmd/command.h"
#include "text/ids.h"
#include "text/output/output.h"

#include <signal.h>

/* What is asked. Of the first three one is given. */
typedef struct {
    const cJSON *messages; /* of a chat, in OpenAI's form */
    const char *text;      /* to go on from */
    const char *ids;       /* likewise: "1,2,3" */
    const cJSON *tools;    /* that a chat may use, in OpenAI's form; or NULL */
    const cJSON *stops;    /* a list of strings; or NULL */

    double temperature, top_p, repetition_penalty; /* NAN: the model's own */
    int64_t top_k;                                 /* -1: likewise */
    double min_p;
    int64_t max_tokens; /* 0: what the context holds */
    uint64_t seed;      /* below 2^53, as JSON wants it */

    bool details; /* the answer's ids and log-probabilities are wanted */
} sh_question;

/* From the settings. own_sampling: what nobody gave is the model's own, not the table's default. */
SH_MUST_CHECK sh_status sh_question_init(sh_question *q, const sh_command_args *args,
                                         bool own_sampling, sh_err *err);
void sh_question_reset(sh_question *q); /* what init made; the rest is borrowed */

/* Who hears an answer as it comes. */
typedef struct {
    sh_output_fn event;
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: end the answer here */
} sh_hearer;

typedef struct {
    char finish[32]; /* "stop", "length", "tool_calls", "interrupted" */
    int prompt_tokens;
    int cached_tokens; /* of the prompt, not computed again */
    int completion_tokens;
    double prompt_s;
    double answer_s;
    bool has_text; /* false: the model has no tokenizer, there are only ids */
    sh_ids ids;    /* with details, as far as the server tells them */
    double *logprobs;
    size_t logprob_count;
} sh_reply;

typedef struct sh_model_client sh_model_client;

/* Whether --url is meant and not --model: whichever was given closer to the command line. */
bool sh_model_client_is_remote(const sh_options *options);

/* False, and said on stderr, when neither of them is given, or both are as flags. */
bool sh_model_client_usage(const sh_command_args *args, const char *command);

/* As they say. SH_OK: ask. SH_AGAIN: this process was another rank than 0, and its
 * work is done, and well. `chat`: a model that has no chat template will not do. */
SH_MUST_CHECK sh_status sh_model_client_open(const sh_command_args *args, bool chat,
                                             sh_model_client **out, sh_err *err);
void sh_model_client_close(sh_model_client *client);

/* "models/demo on 2 ranks"; borrowed. */
const char *sh_model_client_label(const sh_model_client *client);
double sh_model_client_load_s(const sh_model_client *client);

/* A failure after which no further question makes sense. */
bool sh_model_client_is_lost(const sh_model_client *client, sh_status status);

/* Answers; blocks until the end. *out is filled on success: sh_reply_reset. */
SH_MUST_CHECK sh_status sh_model_client_ask(sh_model_client *client, const sh_question *q,
                                            const sh_hearer *hearer, sh_reply *out, sh_err *err);
void sh_reply_reset(sh_reply *reply);

/* For the two kinds. Each fills the base, which is its first member. */
struct sh_model_client {
    char *label;
    double load_s;
    bool remote;
    sh_status (*ask)(sh_model_client *client, const sh_question *q, const sh_hearer *hearer,
                     sh_reply *out, sh_err *err);
    void (*close)(sh_model_client *client);
};

SH_MUST_CHECK sh_status sh_model_client_local(const sh_command_args *args, bool chat,
                                              sh_model_client **out, sh_err *err);
SH_MUST_CHECK sh_status sh_model_client_http(const sh_command_args *args, sh_model_client **out,
                                             sh_err *err);
void sh_reply_add_logprob(sh_reply *reply, double logprob);

#endif
