/* share_messages.h - how a rank without a copy of the model asks rank 0 for parts of it.
 *
 * A connection carries requests of one length in one direction; each is answered by a head of one
 * length and the bytes that it announces, in the order of the requests. Numbers are little-endian.
 *
 * There are three things to ask for. The outline has all that is small: the files that describe the
 * model, and name, size and header of each file of weights. A window is a part of such a file. Who
 * asks may say which bytes it has already, by their digest, and is then told if they are the same.
 * The plan says which share of the model a rank will have that is to come in; what it has to say
 * for that follows its request (engine/newcomer.c).
 *
 * Threads: pure functions. */
#ifndef SH_SHARE_SHARE_MESSAGES_H
#define SH_SHARE_SHARE_MESSAGES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "model/window.h"
#include "net/digest.h"
#include "store/cache.h"

enum {
    SH_SHARE_REQUEST_LEN = 80,
    SH_SHARE_REPLY_LEN = 48,
    SH_SHARE_WINDOW_MAX = 1 << 20,          /* bytes of a window */
    SH_SHARE_OUTLINE_MAX = 1 << 30,         /* bytes of an outline */
    SH_SHARE_REFUSAL_MAX = SH_ERR_TEXT_MAX, /* bytes of the text of a refusal */
    SH_SHARE_PLAN_MAX = 1 << 16,            /* bytes of a plan, and of what is said for it */
    SH_SHARE_FILES_MAX = 4096,
    SH_SHARE_NAME_MAX = 255,
    SH_SHARE_CONNS_MAX = 8, /* connections of one rank */
};

typedef enum {
    SH_SHARE_OUTLINE = 1,
    SH_SHARE_WINDOW,
    SH_SHARE_PLAN,
    SH_SHARE_KIND_END
} sh_share_kind;

typedef struct {
    sh_share_kind kind;
    uint32_t file;    /* WINDOW: index in the outline */
    sh_window window; /* PLAN: len is that of what follows */
    bool known;       /* the bytes with this digest are here already */
    uint8_t digest[SH_DIGEST_LEN];
} sh_share_request;

typedef enum {
    SH_SHARE_DATA = 1, /* the bytes follow */
    SH_SHARE_SAME,     /* they are what the digest says */
    SH_SHARE_REFUSED,  /* a text follows */
    SH_SHARE_ANSWER_END
} sh_share_answer;

typedef struct {
    sh_share_answer answer;
    uint64_t len;                  /* of what follows */
    uint8_t digest[SH_DIGEST_LEN]; /* of the bytes that were asked for */
} sh_share_reply;

/* A file of the model as an outline has it: all of a description, the start of a file of weights.
 */
typedef struct {
    const char *name; /* plain */
    uint64_t size;
    uint64_t written_ns; /* when it was last written: other weights may have the same outline */
    char etag[SH_BLOB_DIGEST_MAX]; /* on the hub; "": not known */
    sh_str start;
} sh_share_file;

typedef struct {
    sh_repo_name origin;  /* where the model is on the hub, with its commit; id "": not known */
    sh_share_file *files; /* sorted by name */
    int count;
} sh_share_outline;

void sh_share_request_pack(const sh_share_request *request, uint8_t out[SH_SHARE_REQUEST_LEN]);
SH_MUST_CHECK sh_status sh_share_request_unpack(const uint8_t data[SH_SHARE_REQUEST_LEN],
                                                sh_share_request *out, sh_err *err);

void sh_share_reply_pack(const sh_share_reply *reply, uint8_t out[SH_SHARE_REPLY_LEN]);
SH_MUST_CHECK sh_status sh_share_reply_unpack(const uint8_t data[SH_SHARE_REPLY_LEN],
                                              sh_share_reply *out, sh_err *err);

void sh_share_outline_pack(const sh_share_outline *outline, sh_buf *out);

/* The files are in the arena; their starts are borrowed from the bytes. */
SH_MUST_CHECK sh_status sh_share_outline_unpack(sh_str bytes, sh_arena *arena,
                                                sh_share_outline *out, sh_err *err);

/* The index of a file; -1 if there is none of this name. */
int sh_share_outline_find(const sh_share_outline *outline, const char *name);

#endif
