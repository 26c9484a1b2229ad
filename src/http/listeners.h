/* listeners.h - the sockets on which connections arrive.
 *
 * They are apart from the server because they outlive it: `serve` opens them and lends them to each
 * API process that it starts. Clients that connect while the API is being replaced wait in the
 * kernel's queue instead of being refused, and the port stays the same.
 *
 * Threads: an sh_listeners has one owner. */
#ifndef SH_HTTP_LISTENERS_H
#define SH_HTTP_LISTENERS_H

#include "base/status.h"

enum { SH_LISTENERS_MAX = 8 };

typedef struct {
    int fds[SH_LISTENERS_MAX + 1]; /* 0 after the last */
    int count;
    int port;
} sh_listeners;

/* Listens on every address that the host name resolves to. Port 0: any free one. */
SH_MUST_CHECK sh_status sh_listeners_open(const char *host, int port, sh_listeners *out,
                                          sh_err *err);

/* Takes over inherited sockets: their numbers, separated by commas. */
SH_MUST_CHECK sh_status sh_listeners_adopt(const char *numbers, sh_listeners *out, sh_err *err);

void sh_listeners_close(sh_listeners *listeners);

#endif
