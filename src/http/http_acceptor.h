/* http_acceptor.h - taking connections from listening sockets, for the servers that are built on
 * it.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_HTTP_ACCEPTOR_H
#define SH_HTTP_HTTP_ACCEPTOR_H

#include "http/listeners.h"
#include "http/loop.h"

#include <stdbool.h>
#include <sys/socket.h>

typedef struct sh_http_acceptor sh_http_acceptor;

typedef struct {
    const char *name; /* of the server, for the log */
    /* The connection is the callee's; peer: the address in text. */
    void (*accepted)(void *ctx, int fd, const struct sockaddr *addr, const char *peer);
    void (*starved)(void *ctx); /* out of descriptors, most likely: close what can be; or NULL */
    void *ctx;
} sh_http_acceptor_events;

/* Takes the sockets over, also where it fails. */
SH_MUST_CHECK sh_status sh_http_acceptor_open(sh_loop *loop, sh_listeners *sockets,
                                              const sh_http_acceptor_events *events,
                                              sh_http_acceptor **out, sh_err *err);
int sh_http_acceptor_port(const sh_http_acceptor *acceptor);

/* While it is off, new connections wait in the kernel's queue. */
void sh_http_acceptor_set(sh_http_acceptor *acceptor, bool on);
bool sh_http_acceptor_is_on(const sh_http_acceptor *acceptor);

/* Off, and never on again. */
void sh_http_acceptor_end(sh_http_acceptor *acceptor);

/* New connections are refused instead of waiting. */
void sh_http_acceptor_refuse(sh_http_acceptor *acceptor);
void sh_http_acceptor_close(sh_http_acceptor *acceptor);

#endif
