/* shoal.h - Shoal as a library: groups of processes and their collective operations, models that
 * answer prompts, their tokenizers and templates, and facts about them.
 *
 *     cc program.c $(pkg-config --cflags --libs shoal)
 *
 * docs/library.md has a guide, examples/ has programs.
 *
 * Errors. A call that can fail returns a shoal_status, and describes a failure in *err, which may
 * be NULL. Outputs are set only on success. No call ends the process, prints, installs a signal
 * handler, or changes the environment. There are two exceptions, as in any C program: a failed
 * allocation of a few bytes, and a bug in this library, abort.
 *
 * Waiting. Every call that waits for others has a deadline, which is a setting.
 *
 * Threads. Each handle says what it allows. Different handles are independent of each other. The
 * library's own threads block all signals. After fork(), only the parent may go on using handles.
 *
 * Compatibility. Functions and fields are only added; a struct with a `size` is filled by its
 * _init function, which is how the library knows what the caller was compiled with. */
#ifndef SHOAL_H
#define SHOAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHOAL_API __attribute__((visibility("default")))
#else
#define SHOAL_API
#endif

/* ---- errors, version, log -------------------------------------------------------------------- */

typedef enum {
    SHOAL_DONE = 1, /* not an error: see shoal_model_open */
    SHOAL_OK = 0,
    SHOAL_ERR_INPUT = -1, /* an argument, a setting, a file or a request is invalid */
    SHOAL_ERR_LIMIT = -2, /* a limit was exceeded */
    SHOAL_ERR_NOT_FOUND = -3,
    SHOAL_ERR_UNSUPPORTED = -4,
    SHOAL_ERR_CANCELLED = -5,
    SHOAL_ERR_TIMEOUT = -6,
    SHOAL_ERR_AUTH = -7,  /* the other side does not know the token or the key */
    SHOAL_ERR_PEER = -8,  /* a server or an engine was lost */
    SHOAL_ERR_GROUP = -9, /* a rank was lost: the group has failed, and can only be closed */
    SHOAL_ERR_MEMORY = -10,
    SHOAL_ERR_SYSTEM = -11,  /* the operating system refused */
    SHOAL_ERR_CONFLICT = -12 /* somebody else has it */
} shoal_status;

enum { SHOAL_ERROR_TEXT_MAX = 512 };

typedef struct {
    shoal_status status;
    char text[SHOAL_ERROR_TEXT_MAX]; /* one line: what was wrong, where, what is allowed */
} shoal_error;

SHOAL_API const char *shoal_version(void); /* "0.2.0" */

typedef enum { SHOAL_LOG_ERROR, SHOAL_LOG_WARN, SHOAL_LOG_INFO, SHOAL_LOG_DEBUG } shoal_log_level;
typedef void (*shoal_log_fn)(void *ctx, shoal_log_level level, const char *text);

/* Log lines up to this level go to `fn`, from any thread; NULL, as at the start: nowhere. Call it
 * before anything else. Prompts, answers, keys and tokens are never logged. */
SHOAL_API void shoal_set_log(shoal_log_fn fn, void *ctx, shoal_log_level level);

/* Frees what a call returned through a pointer. Takes NULL. */
SHOAL_API void shoal_free(void *memory);

/* ---- settings -------------------------------------------------------------------------------- */

/* Settings have the names and values of the program's flags, without the dashes: "model",
 * "threads", "ranks". docs/options.md lists them all; what a call has no use for is ignored. They
 * are copied by the calls that take them.
 *
 * Threads: one at a time. */
typedef struct shoal_settings shoal_settings;

SHOAL_API shoal_settings *shoal_settings_new(void); /* all defaults */
SHOAL_API void shoal_settings_free(shoal_settings *settings);

/* The error names the setting and what it takes. */
SHOAL_API shoal_status shoal_settings_set(shoal_settings *settings, const char *name,
                                          const char *value, shoal_error *err);

/* Settings that were not set are taken from the environment (SHOAL_MODEL and so on) by whatever is
 * opened with them. */
SHOAL_API shoal_status shoal_settings_use_environment(shoal_settings *settings, shoal_error *err);

/* ---- groups ---------------------------------------------------------------------------------- */

/* Processes, on one machine or several, that compute together. Each has a rank, from 0 to size - 1.
 *
 * All ranks must call the same operations in the same order with the same sizes; send and receive
 * concern two. A call returns when this rank's part is done. One that fails has failed the group on
 * all ranks, with a reason that names the rank; the text is the same on all of them.
 *
 * Threads: one at a time. A process may be in several groups, but only in one over MPI or RDMA. */
typedef struct shoal_group shoal_group;

/* Joins a group: waits until all ranks have come, at most "join-timeout" seconds. With NULL
 * everything is taken from the environment, as `shoal launch -- PROGRAM`, mpirun and srun set it;
 * without any of them this is a group of one. Otherwise the settings are
 *
 *   rank, ranks           which one this is, of how many
 *   coordinator           "host:port", where rank 0 listens and the others find it
 *   token                 the secret of the group: `shoal token` makes one. Without it only
 *                         loopback addresses are allowed, unless "insecure" is "true"
 *   op-timeout            seconds that an operation may take, 0 for no limit
 *   hostfile, listen, backend, transport, peer-timeout-ms, ...   as for the program */
SHOAL_API shoal_status shoal_group_open(const shoal_settings *settings, shoal_group **out,
                                        shoal_error *err);
SHOAL_API void shoal_group_close(shoal_group *group); /* takes NULL */

SHOAL_API int shoal_group_rank(const shoal_group *group);
SHOAL_API int shoal_group_size(const shoal_group *group);

/* From now on an operation may take so long, 0 for no limit. Meant to be the same on all ranks. */
SHOAL_API shoal_status shoal_group_set_timeout(shoal_group *group, int64_t ms, shoal_error *err);

/* Returns when all ranks have called it. */
SHOAL_API shoal_status shoal_barrier(shoal_group *group, shoal_error *err);

/* Copies from rank `root` to all. */
SHOAL_API shoal_status shoal_broadcast(shoal_group *group, int root, void *data, size_t len,
                                       shoal_error *err);
SHOAL_API shoal_status shoal_broadcast_i64(shoal_group *group, int root, int64_t *values,
                                           size_t count, shoal_error *err);

/* Each number becomes the sum over all ranks, or their largest. Floats are added in the order of
 * the ranks, so all ranks get the same bits. A sum of integers that overflows wraps around. */
SHOAL_API shoal_status shoal_all_reduce_f32(shoal_group *group, float *values, size_t count,
                                            shoal_error *err);
typedef enum { SHOAL_SUM, SHOAL_MAX } shoal_reduction;
SHOAL_API shoal_status shoal_all_reduce_i64(shoal_group *group, int64_t *values, size_t count,
                                            shoal_reduction reduction, shoal_error *err);

/* all = `len` bytes of every rank, in their order; it has size * len bytes. */
SHOAL_API shoal_status shoal_all_gather(shoal_group *group, const void *mine, size_t len, void *all,
                                        shoal_error *err);

/* `len` is the same on both sides. */
SHOAL_API shoal_status shoal_send(shoal_group *group, int to, const void *data, size_t len,
                                  shoal_error *err);
SHOAL_API shoal_status shoal_receive(shoal_group *group, int from, void *data, size_t len,
                                     shoal_error *err);

/* ---- models ---------------------------------------------------------------------------------- */

/* A model that answers: in this process, in a running engine, or on a server.
 *
 * Threads: ask and cancel from any; open and close belong to one. A process may have several. */
typedef struct shoal_model shoal_model;

/* The settings say where it is, with one of
 *
 *   model     a folder, or the name of a model in the cache of the Hugging Face tools (nothing is
 *             downloaded: `shoal pull` does that). It is loaded into this process. With "ranks" and
 *             the other settings of a group it is spread over its processes, which all make this
 *             call: rank 0 gets the model; the others compute for it until it closes the model,
 *             and then get SHOAL_DONE and no model.
 *   url       a server with OpenAI's API, such as "http://127.0.0.1:8100"; "api-key", "model-name"
 *   socket    the Unix socket of a running `shoal engine`
 *
 * and with "slots" how many questions are answered at a time (1 unless it is set), "threads",
 * "context", "draft-model" and so on. NULL: from the environment. */
SHOAL_API shoal_status shoal_model_open(const shoal_settings *settings, shoal_model **out,
                                        shoal_error *err);
SHOAL_API void shoal_model_close(shoal_model *model); /* takes NULL */

typedef enum {
    SHOAL_PIECE_TEXT,
    SHOAL_PIECE_REASONING,
    SHOAL_PIECE_CALL,           /* a tool call begins: the text is the name of the function */
    SHOAL_PIECE_CALL_ARGUMENTS, /* its arguments, one JSON object in pieces */
    SHOAL_PIECE_CALL_BROKEN     /* it was not a call after all; its text follows as text */
} shoal_piece_kind;

/* A piece of an answer, of complete UTF-8 characters; valid during the call and zero-terminated.
 * Called on the thread that asks. Returns 0 to go on; anything else stops the answer. */
typedef int (*shoal_piece_fn)(void *ctx, shoal_piece_kind kind, const char *text, size_t len);

/* What is asked. Exactly one of `messages` and `prompt` is set. */
typedef struct {
    size_t size;
    const char *messages; /* a chat: JSON list [{"role": "user", "content": "Hi"}, ...] */
    const char *prompt;   /* a text to continue */
    const char *tools;    /* functions that a chat may call: JSON list in OpenAI's form; or NULL */
    const char *stop;     /* texts that end the answer: JSON list; or NULL */
    double temperature, top_p, repetition_penalty; /* NAN: what the model's makers recommend */
    double min_p;                                  /* 0: off */
    int64_t top_k;                                 /* -1: what they recommend; 0: off */
    int64_t max_tokens;                            /* 0: as many as fit */
    int64_t seed; /* 0 to 2^53 - 1: the same one gives the same answer; -1: random */
    shoal_piece_fn piece;
    void *ctx; /* of `piece` */
} shoal_question;

SHOAL_API void shoal_question_init(shoal_question *question, size_t size);
#define SHOAL_QUESTION_INIT(question) shoal_question_init((question), sizeof(*(question)))

typedef struct {
    size_t size;
    char finish[32]; /* "stop", "length", "tool_calls"; "interrupted": by `piece` or by cancel */
    int prompt_tokens;
    int cached_tokens; /* of the prompt, which need not be computed */
    int completion_tokens;
    double prompt_s, answer_s; /* seconds to the first token, and from there to the end */
} shoal_reply;

SHOAL_API void shoal_reply_init(shoal_reply *reply, size_t size);
#define SHOAL_REPLY_INIT(reply) shoal_reply_init((reply), sizeof(*(reply)))

/* Returns when the answer is complete. `reply` may be NULL. */
SHOAL_API shoal_status shoal_model_ask(shoal_model *model, const shoal_question *question,
                                       shoal_reply *reply, shoal_error *err);

/* Interrupts all answers that are running or waiting. Not for signal handlers. */
SHOAL_API void shoal_model_cancel(shoal_model *model);

/* ---- text ------------------------------------------------------------------------------------ */

/* The tokenizer and the chat template of a model's folder (settings "model", "tokenizer",
 * "template").
 *
 * Threads: any. */
typedef struct shoal_text shoal_text;

SHOAL_API shoal_status shoal_text_open(const shoal_settings *settings, shoal_text **out,
                                       shoal_error *err);
SHOAL_API void shoal_text_close(shoal_text *text); /* takes NULL */

/* Flags of the two calls below. */
enum {
    SHOAL_SPECIAL = 1 /* encode: also add the tokens that the tokenizer puts around a text, such as
                         a start token; decode: also show special tokens */
};

/* Special tokens that are written out in the text become those tokens. Free *ids. */
SHOAL_API shoal_status shoal_text_encode(const shoal_text *text, const char *utf8, size_t len,
                                         int flags, int32_t **ids, size_t *count, shoal_error *err);

/* Ids that are not in the vocabulary are an error. *utf8 is zero-terminated; free it. `len` may be
 * NULL. */
SHOAL_API shoal_status shoal_text_decode(const shoal_text *text, const int32_t *ids, size_t count,
                                         int flags, char **utf8, size_t *len, shoal_error *err);

/* The prompt of a chat: `request` is a JSON object with "messages" and, optionally, "tools",
 * "documents", "add_generation_prompt" (true if absent) and other variables of the template. */
SHOAL_API shoal_status shoal_text_render(const shoal_text *text, const char *request, char **utf8,
                                         size_t *len, shoal_error *err);

/* ---- facts ----------------------------------------------------------------------------------- */

typedef struct {
    size_t size;
    char family[64];        /* "qwen3", "llama" */
    char quantization[160]; /* "none", or such as "affine, 4 bits in groups of 64" */
    int layers;
    int vocabulary;
    int context;   /* longest sequence, in tokens */
    int generates; /* 0: it makes embeddings, not text */
    int64_t parameters;
    int64_t active_parameters; /* used for one token */
    int64_t bytes;             /* of the weights in the files */
    int64_t kv_token_bytes;    /* of KV cache for each token, as f16 */
    int64_t memory;            /* of this machine */
    int64_t fits_tokens;       /* of context that fit here beside the weights; 0: it does not fit */
    int machines;              /* like this one that hold it together, with up to 8192 tokens */
} shoal_facts;

SHOAL_API void shoal_facts_init(shoal_facts *facts, size_t size);
#define SHOAL_FACTS_INIT(facts) shoal_facts_init((facts), sizeof(*(facts)))

/* Reads config.json and the headers of the weight files of the setting "model". */
SHOAL_API shoal_status shoal_model_facts(const shoal_settings *settings, shoal_facts *facts,
                                         shoal_error *err);

#ifdef __cplusplus
}
#endif

#endif
