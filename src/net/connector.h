/* connector.h - connecting to a rank that may not have started yet.
 *
 * Tries every address of a name or of a list in turn, repeatedly and with growing pauses, until a
 * connection is welcomed, until a rank that has proved the token refuses it, or until the owner
 * gives up. Before that proof an error ends only the current attempt, since anybody may have caused
 * it. Of a list of addresses, which are those of one machine, the nearest comes first
 * (address_race.h).
 *
 * Threads: a connector has one owner; sh_connector_step may block on the system's resolver if the
 * address is a name. */
#ifndef SH_NET_CONNECTOR_H
#define SH_NET_CONNECTOR_H

#include "net/address_race.h"
#include "net/peer_conn.h"

enum { SH_CONNECTOR_ADDRESS_MAX = SH_LANES_MAX * SH_ADDR_TEXT_MAX };

typedef struct {
    char address[SH_CONNECTOR_ADDRESS_MAX]; /* "host:port", or several of them with commas */
    sh_tls *tls;                            /* borrowed */
    sh_hello hello;
    int handshake_ms;   /* per attempt */
    sh_peer_conn *conn; /* the current attempt, or the open connection; owned */
    sh_addr addr[SH_LANES_MAX];
    int addr_count;
    int addr_next;
    sh_address_race race; /* count is 0 while there is none */
    sh_deadline next_try;
    sh_deadline connect_end; /* of the current attempt, for the TCP connect alone */
    int tries;
    int pause_ms;
    sh_err last; /* why the last attempt failed */
    bool warned; /* that the tokens seem to differ */
} sh_connector;

void sh_connector_init(sh_connector *connector, const char *address, sh_tls *tls,
                       const sh_hello *hello, int handshake_ms);
void sh_connector_reset(sh_connector *connector);

/* SH_OK: connector->conn is open. SH_AGAIN: not yet. An error is final. */
SH_MUST_CHECK sh_status sh_connector_step(sh_connector *connector, sh_err *err);

/* Hands the open connection over to the caller. */
sh_peer_conn *sh_connector_take(sh_connector *connector);

#endif
