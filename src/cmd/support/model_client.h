/* model_client.h - the model behind `shoal chat`, `shoal generate` and the library's
 * shoal_model_ask.
 *
 * It is either an engine, to which this process is a client like the API is (model_client_local.c):
 * in this process, or in another one at --socket; or a running server at --url
 * (model_client_http.c). All take the same question and report the same events, so callers need not
 * know which one they use.
 *
 * Threads: questions may be asked from several; the rest belongs to one owner. */
#ifndef SH_CMD_SUPPORT_MODEL_CLIENT_H
#define SH_CMD_SUPPORT_MODEL_CLIENT_H

#include "base/json.h"
#include "cmd/command.h"
#include "model/loader.h"
#include "text/ids.h"
#include "text/model_text.h"
#include "text/output/output.h"

#include <signal.h>

/* A question. Exactly one of the first three is set. */
typedef struct {
    const cJSON *messages; /* of a chat, in OpenAI's form */
    const char *text;      /* to continue */
    const char *ids;       /* token ids to continue: "1,2,3" */
    const cJSON *tools;    /* that a chat may call, in OpenAI's form; or NULL */
    const cJSON *stops;    /* a list of strings; or NULL */

    double temperature, top_p, repetition_penalty; /* NAN: the model's own */
    int64_t top_k;                                 /* -1: the model's own */
    double min_p;
    int64_t max_tokens; /* 0: as many as fit into the context */
    uint64_t seed;      /* below 2^53, so that JSON can represent it */

    bool details; /* also return the answer's ids and log-probabilities */
} sh_question;

/* Fills a question from the settings. own_sampling: sampling parameters that were not given are the
 * model's own instead of the defaults of the option table. */
SH_MUST_CHECK sh_status sh_question_init(sh_question *q, const sh_command_args *args,
                                         bool own_sampling, sh_err *err);
void sh_question_reset(sh_question *q); /* frees what init allocated; the rest is borrowed */

/* Appends the prompt of a chat request (sh_chat_template_render). Its messages are checked as the
 * HTTP API does, and brought into the form that templates expect. */
SH_MUST_CHECK sh_status sh_question_render(const sh_model_text *text, cJSON *request, sh_buf *out,
                                           sh_err *err);

/* Receives an answer while it is generated. */
typedef struct {
    sh_output_fn event;
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: stop the answer; or NULL */
} sh_reply_handler;

typedef struct {
    char finish[32]; /* "stop", "length", "tool_calls", "interrupted" */
    int prompt_tokens;
    int cached_tokens; /* of the prompt, from the prefix cache */
    int completion_tokens;
    double prompt_s;
    double answer_s;
    bool has_text; /* false: the model has no tokenizer, so there are only ids */
    sh_ids ids;    /* with details, as far as the server sends them */
    double *logprobs;
    size_t logprob_count;
} sh_reply;

typedef struct sh_model_client sh_model_client;

/* Whether to use --url and not --model: the one from the source of higher precedence counts. */
bool sh_model_client_is_remote(const sh_options *options);

/* If neither is given: sets --url if the server of these settings answers, else --model to the demo
 * model, and says so. */
void sh_model_client_choose(sh_options *options, const sh_settings *s);

/* False, with a message on stderr, when neither is given, or both as flags. */
bool sh_model_client_usage(const sh_command_args *args, const char *command);

enum { SH_MODEL_CLIENT_SLOTS_MAX = 32 }; /* each has a connection, of which an engine takes 64 */

typedef struct {
    bool chat; /* a model without a chat template is an error */
    int slots; /* questions at a time, 1 to SH_MODEL_CLIENT_SLOTS_MAX; more wait for their turn */
    sh_progress_fn progress; /* of loading, without context; or NULL */
    bool outlived;           /* the process goes on after close, which therefore takes its time */
} sh_model_client_opts;

/* SH_OK: ready for questions. SH_AGAIN: this process was a rank other than 0, and its work is
 * successfully done. */
SH_MUST_CHECK sh_status sh_model_client_open(const sh_command_args *args,
                                             const sh_model_client_opts *opts,
                                             sh_model_client **out, sh_err *err);
void sh_model_client_close(sh_model_client *client);

/* "models/demo on 2 ranks"; borrowed. */
const char *sh_model_client_label(const sh_model_client *client);
double sh_model_client_load_s(const sh_model_client *client);

/* Whether this failure means that no further question can be answered. */
bool sh_model_client_is_lost(const sh_model_client *client, sh_status status);

/* Sends a question and blocks until the answer is complete. *out is filled on success; free it with
 * sh_reply_reset. */
SH_MUST_CHECK sh_status sh_model_client_ask(sh_model_client *client, const sh_question *q,
                                            const sh_reply_handler *handler, sh_reply *out,
                                            sh_err *err);
void sh_reply_reset(sh_reply *reply);

/* For the implementations, whose first member this is. */
struct sh_model_client {
    char *label;
    double load_s;
    bool remote;
    sh_status (*ask)(sh_model_client *client, const sh_question *q, const sh_reply_handler *handler,
                     sh_reply *out, sh_err *err);
    void (*close)(sh_model_client *client);
};

SH_MUST_CHECK sh_status sh_model_client_local(const sh_command_args *args,
                                              const sh_model_client_opts *opts,
                                              sh_model_client **out, sh_err *err);
SH_MUST_CHECK sh_status sh_model_client_socket(const sh_command_args *args,
                                               const sh_model_client_opts *opts,
                                               sh_model_client **out, sh_err *err);
SH_MUST_CHECK sh_status sh_model_client_http(const sh_command_args *args,
                                             const sh_model_client_opts *opts,
                                             sh_model_client **out, sh_err *err);
void sh_reply_add_logprob(sh_reply *reply, double logprob);

/* The value of --stop: one text, or a JSON list of texts. A text that merely begins with '[' but is
 * not JSON is taken literally. */
SH_MUST_CHECK sh_status sh_stops_read(const char *text, cJSON **out, sh_err *err);

#endif
