/* keeper_clients.h - the Unix socket at which API processes talk to the keeper of models, in lines
 * (model_keeper.h says which).
 *
 * There is one client, or two while the API is renewed. Clients are numbered; a number is used
 * again after its client is gone.
 *
 * Threads: one owner; hooks are called from sh_keeper_clients_poll. */
#ifndef SH_CMD_SUPPORT_KEEPER_CLIENTS_H
#define SH_CMD_SUPPORT_KEEPER_CLIENTS_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>

enum { SH_KEEPER_CLIENTS_MAX = 16 };

typedef struct sh_keeper_clients sh_keeper_clients;

typedef struct {
    /* A new client: what it is told first. */
    void (*came)(void *arg, int client, sh_buf *out);
    /* A line of it; what it is told in answer. False: the line makes no sense, and neither will
     * others of this client. */
    bool (*line)(void *arg, int client, sh_str line, sh_buf *out);
    void (*went)(void *arg, int client);
    void *arg;
} sh_keeper_clients_hooks;

/* The folder of the path must be private: whoever can connect is trusted to be this user. */
SH_MUST_CHECK sh_status sh_keeper_clients_open(const char *path,
                                               const sh_keeper_clients_hooks *hooks,
                                               sh_keeper_clients **out, sh_err *err);
void sh_keeper_clients_close(sh_keeper_clients *clients);

void sh_keeper_clients_poll(sh_keeper_clients *clients);              /* reads */
void sh_keeper_clients_flush(sh_keeper_clients *clients);             /* writes */
void sh_keeper_clients_tell(sh_keeper_clients *clients, sh_str line); /* to all */
bool sh_keeper_clients_here(const sh_keeper_clients *clients, int client);

#endif
