/* connector.h - reaching a rank that may not be there yet.
 *
 * Tries every address of a name in turn, again and again with growing pauses, until a link is
 * welcome, until a rank that has proved the token refuses this one, or until the owner gives up.
 * What comes before that proof ends one try at most, since anybody may have sent it.
 *
 * Threads: a dial has one owner; sh_connector_step may block on the system's resolver when the
 * address is a name. */
#ifndef SH_NET_CONNECTOR_H
#define SH_NET_CONNECTOR_H

#include "net/peer_conn.h"

typedef struct {
    char address[SH_ADDR_HOST_MAX + 8]; /* "host:port" */
    sh_tls *tls;                        /* borrowed */
    sh_hello hello;
    int handshake_ms;   /* for one try */
    sh_peer_conn *conn; /* the try under way, or the link that stands; owned */
    sh_addr addr[SH_LANES_MAX];
    int addr_count;
    int addr_next;
    sh_deadline next_try;
    sh_deadline connect_end; /* of the try under way, for its connection alone */
    int tries;
    int pause_ms;
    sh_err last; /* why the last try failed */
    bool warned; /* that the tokens seem to differ */
} sh_connector;

void sh_connector_init(sh_connector *connector, const char *address, sh_tls *tls,
                       const sh_hello *hello, int handshake_ms);
void sh_connector_reset(sh_connector *connector);

/* SH_OK: connector->conn is ready. SH_AGAIN: not yet. An error is final. */
SH_MUST_CHECK sh_status sh_connector_step(sh_connector *connector, sh_err *err);

/* The link that stands is now the caller's. */
sh_peer_conn *sh_connector_take(sh_connector *connector);

#endif
