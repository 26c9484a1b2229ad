/* dial.h - reaching a rank that may not be there yet.
 *
 * Tries every address of a name in turn, again and again with growing pauses, until a link is
 * welcome, until a rank that has proved the token refuses this one, or until the owner gives up.
 * What comes before that proof ends one try at most, since anybody may have sent it.
 *
 * Threads: a dial has one owner; sh_dial_step may block on the system's resolver when the address
 * is a name. */
#ifndef SH_NET_DIAL_H
#define SH_NET_DIAL_H

#include "net/link.h"

typedef struct {
    char address[SH_ADDR_HOST_MAX + 8]; /* "host:port" */
    sh_tls *tls;                        /* borrowed */
    sh_hello hello;
    int handshake_ms; /* for one try */
    sh_link *link;    /* the try under way, or the link that stands; owned */
    sh_addr addr[SH_LANES_MAX];
    int addr_count;
    int addr_next;
    sh_deadline next_try;
    sh_deadline connect_end; /* of the try under way, for its connection alone */
    int tries;
    int pause_ms;
    sh_err last; /* why the last try failed */
    bool warned; /* that the tokens seem to differ */
} sh_dial;

void sh_dial_init(sh_dial *dial, const char *address, sh_tls *tls, const sh_hello *hello,
                  int handshake_ms);
void sh_dial_reset(sh_dial *dial);

/* SH_OK: dial->link is ready. SH_AGAIN: not yet. An error is final. */
SH_MUST_CHECK sh_status sh_dial_step(sh_dial *dial, sh_err *err);

/* The link that stands is now the caller's. */
sh_link *sh_dial_take(sh_dial *dial);

#endif
