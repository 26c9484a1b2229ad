/* peer_messages.h - the wire format between ranks.
 *
 * A control connection carries frames: type, length, payload. A data connection carries messages
 * with an operation header. Numbers are little-endian. Everything unpacked here came from a peer
 * and is checked: lengths against the payload, texts against their buffers, counts against their
 * bounds, and a payload must be consumed exactly.
 *
 * The start of a hello (up to and including the version) never changes, so that ranks of different
 * versions can report the mismatch.
 *
 * Threads: pure functions. */
#ifndef SH_NET_PEER_MESSAGES_H
#define SH_NET_PEER_MESSAGES_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "net/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SH_PEER_PROTOCOL = 5,
    SH_RANKS_MAX = 64,
    SH_RANK_ANY = SH_RANKS_MAX, /* JOIN: rank 0 is to give a number */
    SH_LANES_MAX = 8, /* addresses of a rank, and pairs of data connections between two ranks */
    SH_SOCKETS_MAX = 2 * SH_LANES_MAX,
    SH_FRAME_HEAD_LEN = 8,
    SH_FRAME_LEN_MAX = 65536,
    SH_MODEL_ID_LEN = 32,
    SH_HOST_ID_LEN = 16,
    SH_NODE_ID_LEN = 16,
    SH_GROUP_NAME_MAX = 64, /* with the terminating zero, like the other texts */
    SH_VERSION_MAX = 32,
    SH_TRANSPORTS_MAX = 8,
    SH_TRANSPORT_NAME_MAX = 16,
    SH_OFFER_WHY_MAX = 256,
    SH_OFFER_BODY_MAX = 768,
    SH_OP_HEAD_LEN = 64, /* a cache line, so that in shared memory the body starts on one */
};

typedef enum {
    SH_FRAME_HELLO = 1, /* sh_hello, from the connecting side */
    SH_FRAME_WELCOME,   /* sh_hello, the positive answer */
    SH_FRAME_REFUSE,    /* sh_notice, the negative answer */
    SH_FRAME_WAIT,      /* sh_notice: not now; try again */
    SH_FRAME_TABLE,     /* sh_rank_table, from rank 0: the addresses of all ranks */
    SH_FRAME_OFFERS,    /* sh_offers, from the higher rank of a pair and then from the lower */
    SH_FRAME_READY,     /* to rank 0: all my connections are open */
    SH_FRAME_GO,        /* from rank 0: all ranks are ready */
    SH_FRAME_HEARTBEAT, /* sh_heartbeat */
    SH_FRAME_ABORT,     /* sh_notice: the group has failed */
    SH_FRAME_BYE,       /* this rank leaves in an orderly way */
    SH_FRAME_TAKEN,     /* sh_notice, the negative answer: another rank has this node id */
    SH_FRAME_ELSEWHERE, /* sh_notice, the negative answer: this is not the rank that was meant */
    SH_FRAME_STAY,      /* sh_notice, from rank 0: the group cannot do without this rank */
    SH_FRAME_PREPARE,   /* sh_notice, the negative answer: load a share first, see net/mesh.h */
    SH_FRAME_MODELS,    /* between hosts with several models, see cluster/model_link.h */
    SH_FRAME_TYPE_END,
} sh_frame_type;

typedef struct {
    sh_frame_type type;
    uint32_t len; /* of the payload after the header */
} sh_frame_head;

/* What a connection is for. */
typedef enum {
    SH_USE_JOIN = 1, /* to rank 0, which keeps it as the control connection */
    SH_USE_CONTROL,
    SH_USE_DATA,
    SH_USE_WEIGHTS, /* to rank 0 of a group that has formed: to get parts of the model. A rank that
                       is to come in has the epoch 0, and perhaps no number */
    SH_USE_MODELS,  /* to the host that decides which models are loaded */
    SH_USE_END,
} sh_peer_conn_use;

typedef struct {
    char text[SH_LANES_MAX][SH_ADDR_TEXT_MAX];
    int count;
    bool alternatives; /* whoever connects uses the best one; otherwise lanes use all in turn */
} sh_addr_list;

typedef struct {
    uint32_t protocol;
    uint32_t rank;
    uint32_t world; /* number of ranks in the group; 0: as many as rank 0 says */
    char version[SH_VERSION_MAX];
    char group[SH_GROUP_NAME_MAX];
    uint8_t model[SH_MODEL_ID_LEN]; /* see sh_model_id_set_any */
    uint8_t host[SH_HOST_ID_LEN];
    uint8_t
        node[SH_NODE_ID_LEN]; /* the same in all lives of a rank that has no number of its own */
    uint64_t life;            /* of the process: two with one node id are told apart by it */
    uint64_t epoch;           /* in JOIN that of the last group, or 0 */
    uint64_t left;            /* JOIN: `left` of the last group's table */
    uint64_t prepared;        /* JOIN: see sh_mesh_opts */
    uint32_t to;              /* the rank that the connection is meant for */
    uint32_t given_rank;      /* WELCOME to a JOIN: the number of the rank that asked */
    sh_peer_conn_use use;
    uint8_t socket;      /* DATA: index of the connection */
    uint8_t lanes;       /* pairs of data connections between two ranks */
    bool plain_data;     /* data connections continue without TLS */
    sh_addr_list listen; /* JOIN: where this rank can be reached */
} sh_hello;

typedef struct {
    int32_t rank; /* the rank at fault; -1 for none in particular */
    char text[400];
} sh_notice;

typedef struct {
    uint8_t host[SH_HOST_ID_LEN];
    sh_addr_list addrs; /* none: there is no rank of this number */
} sh_rank_table_row;

typedef struct {
    uint64_t epoch;
    uint64_t left; /* a bit for each number whose rank has left: the next rank 0 does not miss it */
    uint32_t count;
    sh_rank_table_row row[SH_RANKS_MAX];
} sh_rank_table;

typedef enum {
    SH_OFFER_NONE,   /* not for these two ranks */
    SH_OFFER_FAILED, /* it should have worked */
    SH_OFFER_MADE,
    SH_OFFER_END,
} sh_offer_state;

/* What a rank offers a peer for one transport (net/transport.h). */
typedef struct {
    char transport[SH_TRANSPORT_NAME_MAX];
    sh_offer_state state;
    char why[SH_OFFER_WHY_MAX]; /* unless MADE; a clause such as "they are on two machines" */
    uint32_t body_len;
    uint8_t body[SH_OFFER_BODY_MAX]; /* in the transport's own format */
} sh_offer;

typedef struct {
    uint32_t rank;                      /* who offers */
    char wanted[SH_TRANSPORT_NAME_MAX]; /* the transport that it asks for; empty: any */
    int count;
    sh_offer offer[SH_TRANSPORTS_MAX];
} sh_offers;

/* How far a rank is with loading its weights, in bytes. */
typedef struct {
    uint64_t done;
    uint64_t total; /* 0: it is not loading */
    uint64_t link;  /* of `done`, what came from rank 0 or the hub */
} sh_load_state;

typedef struct {
    uint64_t progress;   /* operations that the rank has completed */
    uint32_t silence_ms; /* how long its peers should tolerate silence from it */
    bool leaving;        /* it asks rank 0 to let it leave */
    sh_load_state load;
} sh_heartbeat;

/* Precedes the first message of every operation on a data connection. */
typedef struct {
    uint32_t kind; /* operation and element type; see coll/group.h */
    uint64_t group;
    uint64_t seq;
    uint64_t size; /* of the whole operation, in bytes */
} sh_op_head;

/* Truncates the text between characters if necessary; an impossible rank becomes -1. */
void sh_notice_set(sh_notice *notice, int rank, const char *text);

/* The same for the reason of an offer that was not made. */
void sh_offer_refuse(sh_offer *offer, sh_offer_state state, const char *why);

/* Frames: each packer appends header and payload to out. */
void sh_frame_pack(sh_buf *out, sh_frame_type type); /* without payload */
void sh_frame_pack_body(sh_buf *out, sh_frame_type type, sh_str body);
void sh_hello_pack(sh_buf *out, sh_frame_type type, const sh_hello *hello);
void sh_notice_pack(sh_buf *out, sh_frame_type type, const sh_notice *notice);
void sh_rank_table_pack(sh_buf *out, const sh_rank_table *table);
void sh_offers_pack(sh_buf *out, const sh_offers *offers);
void sh_heartbeat_pack(sh_buf *out, const sh_heartbeat *beat);

SH_MUST_CHECK sh_status sh_frame_head_unpack(const uint8_t data[SH_FRAME_HEAD_LEN],
                                             sh_frame_head *out, sh_err *err);

/* Payloads. For a hello with another protocol only the fields up to version are set. */
SH_MUST_CHECK sh_status sh_hello_unpack(const uint8_t *data, size_t len, sh_hello *out,
                                        sh_err *err);
SH_MUST_CHECK sh_status sh_notice_unpack(const uint8_t *data, size_t len, sh_notice *out,
                                         sh_err *err);
SH_MUST_CHECK sh_status sh_rank_table_unpack(const uint8_t *data, size_t len, sh_rank_table *out,
                                             sh_err *err);
SH_MUST_CHECK sh_status sh_offers_unpack(const uint8_t *data, size_t len, sh_offers *out,
                                         sh_err *err);
SH_MUST_CHECK sh_status sh_heartbeat_unpack(const uint8_t *data, size_t len, sh_heartbeat *out,
                                            sh_err *err);

/* A rank that has no copy of the model takes that of rank 0: it matches any. */
void sh_model_id_set_any(uint8_t model[SH_MODEL_ID_LEN]);
bool sh_model_id_is_any(const uint8_t model[SH_MODEL_ID_LEN]);

/* Whether two ranks can work together; the error names the rank, the field and both values. */
SH_MUST_CHECK sh_status sh_hello_compare(const sh_hello *mine, const sh_hello *theirs, sh_err *err);

void sh_op_head_pack(const sh_op_head *head, uint8_t out[SH_OP_HEAD_LEN]);
SH_MUST_CHECK sh_status sh_op_head_unpack(const uint8_t data[SH_OP_HEAD_LEN], sh_op_head *out,
                                          sh_err *err);

#endif
