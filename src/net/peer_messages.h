/* peer_messages.h - what ranks say to each other, as bytes.
 *
 * A control link carries frames: type, length, payload. A data link carries messages with an op
 * head in front. Numbers are little-endian. Everything that is unpacked here came from a peer and
 * is checked: lengths against the payload, texts against their room, counts against their bounds,
 * and a payload must be used up exactly.
 *
 * The start of a hello (up to and including the version) never changes, so that ranks of different
 * versions can tell each other so.
 *
 * Threads: pure functions. */
#ifndef SH_NET_PEER_MESSAGES_H
#define SH_NET_PEER_MESSAGES_H

#include "base/buf.h"
#include "base/status.h"
#include "net/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SH_PEER_PROTOCOL = 1,
    SH_RANKS_MAX = 64,
    SH_LANES_MAX = 8, /* addresses of a rank, and pairs of data connections between two ranks */
    SH_SOCKETS_MAX = 2 * SH_LANES_MAX,
    SH_FRAME_HEAD_LEN = 8,
    SH_FRAME_LEN_MAX = 65536,
    SH_MODEL_ID_LEN = 32,
    SH_HOST_ID_LEN = 16,
    SH_GROUP_NAME_MAX = 64, /* with the closing zero, as the other texts */
    SH_VERSION_MAX = 32,
    SH_SHM_NAME_MAX = 48,
    SH_SHM_KEY_LEN = 16,
    SH_OP_HEAD_LEN = 64, /* a cache line, so that in shared memory the body starts one too */
};

typedef enum {
    SH_FRAME_HELLO = 1, /* sh_hello, from whoever dialled */
    SH_FRAME_WELCOME,   /* sh_hello, the answer */
    SH_FRAME_REFUSE,    /* sh_notice, the other answer */
    SH_FRAME_TABLE,     /* sh_rank_table: rank 0 tells where everybody is */
    SH_FRAME_READY,     /* to rank 0: all my links stand */
    SH_FRAME_GO,        /* from rank 0: everybody's do */
    SH_FRAME_HEARTBEAT, /* sh_heartbeat */
    SH_FRAME_ABORT,     /* sh_notice: the group has failed */
    SH_FRAME_BYE,       /* the end of this rank's part, as planned */
    SH_FRAME_TYPE_END,
} sh_frame_type;

typedef struct {
    sh_frame_type type;
    uint32_t len; /* of the payload behind the head */
} sh_frame_head;

/* What a connection is for. */
typedef enum {
    SH_USE_JOIN = 1, /* to rank 0, which keeps it as the control link */
    SH_USE_CONTROL,
    SH_USE_DATA,
    SH_USE_END,
} sh_peer_conn_use;

typedef struct {
    char text[SH_LANES_MAX][SH_ADDR_TEXT_MAX];
    int count;
} sh_addr_list;

typedef struct {
    uint32_t protocol;
    uint32_t rank;
    uint32_t world; /* ranks of the group */
    char version[SH_VERSION_MAX];
    char group[SH_GROUP_NAME_MAX];
    uint8_t model[SH_MODEL_ID_LEN];
    uint8_t host[SH_HOST_ID_LEN];
    uint64_t epoch; /* 0 in JOIN: rank 0 will say */
    sh_peer_conn_use use;
    uint8_t socket;      /* DATA: which of the connections */
    uint8_t lanes;       /* pairs of data connections between two ranks; 0: MPI carries the data */
    bool plain_data;     /* data links go on in clear */
    sh_addr_list listen; /* JOIN: where this rank can be reached */
    /* DATA, socket 0: a segment that the dialling rank offers, empty for none; in a WELCOME the
     * same name says that it was attached. */
    char shm[SH_SHM_NAME_MAX];
    uint8_t shm_key[SH_SHM_KEY_LEN];
} sh_hello;

typedef struct {
    int32_t rank; /* the one at fault; -1 when nobody in particular */
    char text[400];
} sh_notice;

typedef struct {
    uint8_t host[SH_HOST_ID_LEN];
    sh_addr_list addrs;
} sh_rank_table_row;

typedef struct {
    uint64_t epoch;
    uint32_t count;
    sh_rank_table_row row[SH_RANKS_MAX];
} sh_rank_table;

typedef struct {
    uint64_t progress;   /* operations that the rank has finished */
    uint32_t silence_ms; /* how long it asks its peers to bear not hearing from it */
} sh_heartbeat;

/* In front of the first message of every operation on a data link. */
typedef struct {
    uint32_t kind; /* which operation, and on what; coll/group.h */
    uint64_t group;
    uint64_t seq;
    uint64_t size; /* of the whole operation, in bytes */
} sh_op_head;

/* The text is cut to its room at a character; a rank that can not be becomes -1. */
void sh_notice_set(sh_notice *notice, int rank, const char *text);

/* Frames: each packer appends head and payload to out. */
void sh_frame_pack(sh_buf *out, sh_frame_type type); /* without payload */
void sh_hello_pack(sh_buf *out, sh_frame_type type, const sh_hello *hello);
void sh_notice_pack(sh_buf *out, sh_frame_type type, const sh_notice *notice);
void sh_rank_table_pack(sh_buf *out, const sh_rank_table *table);
void sh_heartbeat_pack(sh_buf *out, const sh_heartbeat *beat);

SH_MUST_CHECK sh_status sh_frame_head_unpack(const uint8_t data[SH_FRAME_HEAD_LEN],
                                             sh_frame_head *out, sh_err *err);

/* Payloads. Of a hello with another protocol only the fields up to version are set. */
SH_MUST_CHECK sh_status sh_hello_unpack(const uint8_t *data, size_t len, sh_hello *out,
                                        sh_err *err);
SH_MUST_CHECK sh_status sh_notice_unpack(const uint8_t *data, size_t len, sh_notice *out,
                                         sh_err *err);
SH_MUST_CHECK sh_status sh_rank_table_unpack(const uint8_t *data, size_t len, sh_rank_table *out,
                                             sh_err *err);
SH_MUST_CHECK sh_status sh_heartbeat_unpack(const uint8_t *data, size_t len, sh_heartbeat *out,
                                            sh_err *err);

/* Whether two ranks may work together; the error names the rank, the field and both values. */
SH_MUST_CHECK sh_status sh_hello_compare(const sh_hello *mine, const sh_hello *theirs, sh_err *err);

void sh_op_head_pack(const sh_op_head *head, uint8_t out[SH_OP_HEAD_LEN]);
SH_MUST_CHECK sh_status sh_op_head_unpack(const uint8_t data[SH_OP_HEAD_LEN], sh_op_head *out,
                                          sh_err *err);

#endif
