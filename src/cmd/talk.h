/* talk.h - text in, text out, on a session: what generate and chat share.
 *
 * Holds the tokenizer and chat template of the model's folder beside the session. Tokens whose KV
 * is still there are not computed again: a prompt that begins like the last one goes on from there.
 *
 * Threads: one owner. */
#ifndef SH_CMD_TALK_H
#define SH_CMD_TALK_H

#include "cmd/session.h"
#include "text/chat_template.h"
#include "text/ids.h"
#include "text/tokenizer.h"

#include <signal.h>

typedef struct {
    const sh_settings *settings;
    sh_session session;
    sh_tokenizer *tokenizer;    /* NULL: the folder has none */
    sh_chat_template *template; /* likewise */
    sh_ids held;                /* tokens whose KV the session holds */
    uint64_t seed;
} sh_talk;

typedef enum { SH_TALK_STOP, SH_TALK_LENGTH, SH_TALK_INTERRUPTED } sh_talk_finish;

/* Where an answer goes as it comes. */
typedef struct {
    void (*text)(void *ctx, sh_str piece); /* or NULL */
    void *ctx;
    bool special;                      /* show special tokens too, but never the one that ends */
    const volatile sig_atomic_t *stop; /* not 0: end here; or NULL */
} sh_talk_sink;

typedef struct {
    sh_talk_finish finish;
    int prompt_tokens;
    int held_tokens; /* of the prompt, not computed again */
    double prompt_s;
    double answer_s;
    sh_ids ids;      /* of the answer, without the one that ended it */
    float *logprobs; /* [ids.len] */
} sh_talk_answer;

/* As sh_session_open. *out stays where it is. */
SH_MUST_CHECK sh_status sh_talk_open(const sh_command_args *args, sh_talk *out, sh_err *err);
void sh_talk_close(sh_talk *talk);

/* The ids of a text; of a request {messages, ...} through the chat template. */
SH_MUST_CHECK sh_status sh_talk_encode(const sh_talk *talk, const char *text, sh_ids *out,
                                       sh_err *err);
SH_MUST_CHECK sh_status sh_talk_encode_chat(const sh_talk *talk, const cJSON *request,
                                            sh_buf *prompt, sh_ids *out, sh_err *err);

/* Computes the prompt and draws until an end. The answer is filled on success:
 * sh_talk_answer_reset. */
SH_MUST_CHECK sh_status sh_talk_run(sh_talk *talk, const sh_ids *prompt, const sh_talk_sink *sink,
                                    sh_talk_answer *out, sh_err *err);
void sh_talk_answer_reset(sh_talk_answer *answer);

/* "stop", "length" or "interrupted". */
const char *sh_talk_finish_name(sh_talk_finish finish);

#endif
