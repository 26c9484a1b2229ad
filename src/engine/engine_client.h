/* engine_client.h - the client side of the engine's Unix socket, as the API process uses it.
 *
 * The engine (rank 0) listens on a Unix socket, mode 0600; a client submits requests of token ids
 * and gets events back: progress of its prompt, tokens as they are drawn, then one DONE or ERROR
 * for each request. A request whose engine was lost can be submitted again with what was answered
 * so far: sampling depends on positions and seed alone, so it goes on as if nothing had been. Text,
 * templates and stop strings belong to the API; ids, sampling and stop ids to the engine.
 *
 * After the connection is open the client never blocks: the owner polls sh_engine_client_fd() for
 * reading (and for writing while sh_engine_client_wants_write()), calls sh_engine_client_progress()
 * and takes events until SH_AGAIN. When the engine is lost, every open request gets an error event
 * and progress returns SH_ERR_PEER; the owner closes the client and opens a new one.
 *
 * Threads: one owner. */
#ifndef SH_ENGINE_ENGINE_CLIENT_H
#define SH_ENGINE_ENGINE_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/bounds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SH_TOP_LOGPROBS_MAX = SH_MAX_OF(SH_BOUNDS_LOGPROBS),
    SH_STOP_IDS_MAX = 64,
    SH_RETRY_KEY_MAX = 320,
    SH_LOGIT_BIAS_MAX = 1024,
    SH_GRAMMAR_PACKED_MAX = 16 << 20, /* bytes of a packed grammar */
    SH_ENGINE_RANKS_MAX = 64          /* numbers of ranks are below */
};

/* How a token is drawn. Zero is not a default: fill from sh_sampling_default(). */
typedef struct {
    double temperature;        /* 0: greedy */
    int top_k;                 /* 0: all */
    double top_p;              /* 1: all */
    double min_p;              /* 0: all */
    double repetition_penalty; /* 1: none; over the last repetition_window tokens */
    double presence_penalty;
    double frequency_penalty;
    int repetition_window;
    uint64_t seed;
    int logit_bias_count;
    const int32_t *logit_bias_ids; /* borrowed for the call */
    const float *logit_bias;
} sh_sampling;

sh_sampling sh_sampling_default(void);

typedef struct {
    uint64_t id;           /* the caller's, unique among its open requests */
    uint64_t client;       /* for fairness: requests of one client share its turn */
    const int32_t *prompt; /* borrowed for the call, like all pointers here */
    size_t prompt_count;
    int answered; /* the last so many of `prompt` are the answer so far, which goes on after them */
    int score_from; /* 0: no; else the probabilities of the prompt's tokens from this one on are
                       reported before the answer; the first token has none, so 1 means all */
    bool replayed;  /* was accepted before: a full queue does not refuse it */
    const char *retry_key; /* the answer is kept under it for a while, and given to whoever asks for
                              it again; NULL or "": it is not */
    uint64_t retry_body;   /* stands for the request: another one under the same key is refused */
    int max_tokens;
    int min_tokens;
    const int32_t *stop_ids; /* only these end the answer; they are not part of it */
    int stop_id_count;
    int reasoning_max; /* tokens of reasoning, after which reasoning_end follows; 0: no limit */
    int32_t reasoning_begin, reasoning_end; /* the tokens around it */
    bool reasoning_begun;                   /* the prompt ends in the middle of it */
    int logprobs; /* -1: none; else the number of alternatives besides the token itself */
    sh_sampling sampling;
    sh_str grammar; /* what the answer must match, packed (text/grammar/pack.h); empty: none. A stop
                       id is then allowed only where the text may end. */
    int64_t timeout_ms; /* from submit to done; 0: the engine's default */
    bool pooled;        /* no answer is drawn: DONE brings one vector, made as the model says */
    int second;         /* pooled: the second text of a pair starts here; 0: there is none */
} sh_sequence_spec;

/* Checks a request for an engine whose model has `vocab` tokens; the error names the field, its
 * value and the valid range. */
SH_MUST_CHECK sh_status sh_sequence_spec_check(const sh_sequence_spec *spec, int vocab,
                                               sh_err *err);

typedef enum {
    SH_FINISH_STOP,   /* a stop id, or end of text */
    SH_FINISH_LENGTH, /* max_tokens reached, or the context or the KV cache is full */
    SH_FINISH_CANCEL,
} sh_finish;

typedef struct {
    int32_t id;
    float logprob;
} sh_token_logprob;

typedef enum {
    SH_EVENT_PROGRESS,     /* it has started, or a part of its prompt was computed */
    SH_EVENT_PROMPT_TOKEN, /* a token of the prompt, see score_from */
    SH_EVENT_TOKEN,
    SH_EVENT_DONE,
    SH_EVENT_ERROR,
    SH_EVENT_STATS,
} sh_event_kind;

typedef struct {
    sh_event_kind kind;
    uint64_t id; /* of the request; 0 for STATS */

    /* PROGRESS */
    int computed; /* tokens of the sequence, answered ones included */

    /* PROMPT_TOKEN, TOKEN */
    int32_t token;
    float logprob;
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];

    /* DONE */
    sh_finish finish;
    int prompt_tokens;
    int cached_tokens; /* of the prompt, taken from the prefix cache */
    int completion_tokens;
    int drawn_tokens;   /* those of this submission alone; not sent to clients */
    double queue_s;     /* waiting for a slot */
    double prefill_s;   /* from then to the first token */
    double decode_s;    /* from then to the end */
    const void *vector; /* of a pooled request: floats, not aligned; borrowed until the next call */
    int vector_len;

    /* ERROR */
    sh_err error; /* INPUT, LIMIT, TIMEOUT, CANCELLED (the engine stops, or the
                     group re-forms by plan), GROUP (a rank was lost),
                     PEER (the engine is gone) */
    int running;  /* sequences that ran when the group was lost; 0: not known */
    bool retry;   /* refused for now, by a full queue or a group that re-forms: the same request may
                     succeed later */

    /* STATS: one JSON object, borrowed until the next call */
    sh_str stats;
} sh_event;

/* The engine's answer to HELLO. */
typedef struct {
    const char *model_dir;
    int vocab;
    int context; /* longest sequence */
    int world_size;
    bool ready;          /* the group is formed and the model is loaded */
    uint64_t model_hash; /* tells models apart, whatever their folders are called */
    bool headless;       /* the model cannot write text */
    int vector_len;      /* of a pooled request; 0: the model has no pooling */
    bool scores;         /* the vector is the score of a pair of texts */
    bool normalized;     /* vectors have the length 1 */
} sh_engine_info;

typedef struct sh_engine_client sh_engine_client;

/* Connects and exchanges versions; waits at most until the deadline. SH_ERR_GROUP: the engine is
 * not ready; `loading` (NULL: not wanted) is then how far its ranks are (load_board.h), or empty.
 */
SH_MUST_CHECK sh_status sh_engine_client_open(const char *socket_path, sh_deadline deadline,
                                              sh_buf *loading, sh_engine_client **out, sh_err *err);
void sh_engine_client_close(sh_engine_client *client); /* cancels open requests */

int sh_engine_client_fd(const sh_engine_client *client);
bool sh_engine_client_wants_write(const sh_engine_client *client);
const sh_engine_info *sh_engine_client_info(const sh_engine_client *client);

/* These queue a message and never wait. submit refuses a prompt or a grammar that does not fit into
 * a frame. */
SH_MUST_CHECK sh_status sh_engine_client_submit(sh_engine_client *client,
                                                const sh_sequence_spec *spec, sh_err *err);
void sh_engine_client_cancel(sh_engine_client *client, uint64_t id);
void sh_engine_client_detach(sh_engine_client *client, uint64_t id); /* of a request with a key */
void sh_engine_client_ask_stats(sh_engine_client *client);
/* These ranks, a bit for each number, are not coming back: the group no longer misses them. */
void sh_engine_client_dismiss(sh_engine_client *client, uint64_t ranks);

/* Stats requests since the last event from the engine. A running engine answers each one at once,
 * so a count that grows means that it is frozen. */
int sh_engine_client_unanswered(const sh_engine_client *client);

/* Treats the engine as lost. */
void sh_engine_client_give_up(sh_engine_client *client, const char *why);

/* Moves bytes both ways as far as the socket allows. SH_OK, or SH_ERR_PEER when the engine is lost.
 */
SH_MUST_CHECK sh_status sh_engine_client_progress(sh_engine_client *client, sh_err *err);

/* The next event: SH_OK, or SH_AGAIN when there is none. */
SH_MUST_CHECK sh_status sh_engine_client_next(sh_engine_client *client, sh_event *event);

#endif
