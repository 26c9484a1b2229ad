/* packet.h - the packets by which machines with one token find each other.
 *
 * A searcher sends a query with a nonce, and whoever holds the same token answers with where it is.
 * A packet has a fixed length, so that an answer is no larger than what asked for it, and its size
 * says nothing:
 *
 *   magic (4), version (1), kind (1), zeros (2)
 *   network (8)    derived from the token: others are told apart without cryptography
 *   iv (12)        random
 *   body           encrypted; a query or an answer, and zeros
 *   seal (16)      over all of the above, by a key that is derived from the token
 *
 * Opening a packet is the proof that its sender holds the token; a copy of one has it too. So an
 * answer counts only with the nonce of a query that is still open, and a query moves nobody to do
 * more than answer.
 *
 * Threads: pure functions over values. */
#ifndef SH_DISCOVER_PACKET_H
#define SH_DISCOVER_PACKET_H

#include "base/status.h"
#include "net/cluster_token.h"
#include "net/peer_messages.h"

enum {
    SH_PACKET_LEN = 512,
    SH_PACKET_NONCE_LEN = 16,
    SH_PACKET_NETWORK_LEN = 8,
    SH_PACKET_HOST_MAX = 64, /* with the terminating zero, like the other texts */
    SH_PACKET_MODEL_MAX = 64,
};

/* What is derived from a token; wipe it with OPENSSL_cleanse. */
typedef struct {
    uint8_t seal[SH_CLUSTER_TOKEN_KEY_LEN];
    uint8_t network[SH_PACKET_NETWORK_LEN];
} sh_packet_key;

void sh_packet_key_init(sh_packet_key *key, const char *token);

/* Who is to answer. */
typedef enum {
    SH_SEEK_SERVER = 1, /* rank 0 */
    SH_SEEK_ALL,        /* every rank */
    SH_SEEK_END,
} sh_seek;

typedef struct {
    uint8_t nonce[SH_PACKET_NONCE_LEN];
    sh_seek seek;
} sh_query;

typedef struct {
    uint8_t nonce[SH_PACKET_NONCE_LEN]; /* of the query */
    uint8_t node[SH_NODE_ID_LEN];
    uint32_t rank;  /* SH_RANK_ANY: it has no number yet */
    uint32_t world; /* ranks in the group; 0: it has not formed */
    uint16_t port;  /* where it accepts ranks */
    char host[SH_PACKET_HOST_MAX];
    char model[SH_PACKET_MODEL_MAX];
    sh_addr addr[SH_LANES_MAX]; /* with that port; never link-local */
    int addr_count;
} sh_answer_packet;

typedef struct {
    bool is_query;
    union {
        sh_query query;
        sh_answer_packet answer;
    } as;
} sh_packet;

/* Each makes a packet with a fresh iv. */
void sh_query_seal(const sh_packet_key *key, const sh_query *query, uint8_t out[SH_PACKET_LEN]);
void sh_answer_seal(const sh_packet_key *key, const sh_answer_packet *answer,
                    uint8_t out[SH_PACKET_LEN]);

/* Whether the bytes may be a packet of this network. Costs a comparison of 16 bytes. */
bool sh_packet_is_ours(const sh_packet_key *key, const uint8_t *data, size_t len);

/* Opens and reads such a packet. SH_ERR_AUTH: not sealed with this key; SH_ERR_PEER: malformed. */
SH_MUST_CHECK sh_status sh_packet_open(const sh_packet_key *key, const uint8_t data[SH_PACKET_LEN],
                                       sh_packet *out, sh_err *err);

/* The body alone, in clear; for the two above and for tests. */
enum { SH_PACKET_BODY_LEN = SH_PACKET_LEN - 8 - SH_PACKET_NETWORK_LEN - 12 - 16 };
SH_MUST_CHECK sh_status sh_packet_body_read(bool is_query, const uint8_t body[SH_PACKET_BODY_LEN],
                                            sh_packet *out, sh_err *err);
void sh_packet_body_write(const sh_packet *packet, uint8_t body[SH_PACKET_BODY_LEN]);

#endif
