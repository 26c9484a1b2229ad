/* model_link.h - between the host that decides which models are loaded and the workers that run
 * ranks of them.
 *
 * A worker keeps one connection (net/peer_conn.h, its use is MODELS) and says what its host has. It
 * is told to start and stop ranks, and says what became of them. Both ends show that they are
 * alive.
 *
 * Threads: a link has one owner; packing is pure. */
#ifndef SH_CLUSTER_MODEL_LINK_H
#define SH_CLUSTER_MODEL_LINK_H

#include "base/clock.h"
#include "net/peer_conn.h"

typedef enum {
    SH_MODEL_HOST = 1, /* from a worker, first: its name in `text`, its memory */
    SH_MODEL_START,    /* to a worker: everything but `memory` and `text` */
    SH_MODEL_STOP,     /* to a worker: `load` */
    SH_MODEL_UP,       /* from a worker: the rank of `load` has come up */
    SH_MODEL_GONE,     /* from a worker: it has ended for good; `text` says how */
    SH_MODEL_ALIVE,
    SH_MODEL_KIND_END,
} sh_model_message_kind;

enum { SH_MODEL_NAME_MAX = 512, SH_MODEL_PATH_MAX = 2048 };

typedef struct {
    sh_model_message_kind kind;
    uint64_t load;  /* the number of this loading of a model */
    double memory;  /* bytes for models */
    uint32_t rank;  /* in the group of the model */
    uint32_t ranks; /* that it has */
    uint16_t port;  /* of rank 0 of that group, at the address of this link */
    uint64_t kv_tokens;
    char name[SH_MODEL_NAME_MAX]; /* of the model */
    char dir[SH_MODEL_PATH_MAX];  /* its folder on rank 0's host */
    char text[SH_ERR_TEXT_MAX];
} sh_model_message;

/* Appends a frame. */
void sh_model_message_pack(sh_buf *out, const sh_model_message *message);
SH_MUST_CHECK sh_status sh_model_message_unpack(const uint8_t *data, size_t len,
                                                sh_model_message *out, sh_err *err);

typedef struct {
    sh_peer_conn *conn; /* NULL: there is none */
    sh_deadline beat_at, silent_at;
} sh_model_link;

/* Takes over an open connection. */
void sh_model_link_open(sh_model_link *link, sh_peer_conn *conn);
void sh_model_link_close(sh_model_link *link);
void sh_model_link_send(sh_model_link *link, const sh_model_message *message);

/* To be called often. SH_OK: *out is the next message; SH_AGAIN: there is none; else the link is
 * lost. */
SH_MUST_CHECK sh_status sh_model_link_step(sh_model_link *link, sh_model_message *out, sh_err *err);

#endif
