/* cluster_link.h - the API's side of the socket to its supervisor, for changes of the cluster.
 *
 * The API is confined and starts nothing. It asks; the supervisor checks, and passes the order on
 * to the launcher. The messages are described in cmd/support/cluster_control.h.
 *
 * Threads: the loop's. */
#ifndef SH_API_CLUSTER_LINK_H
#define SH_API_CLUSTER_LINK_H

#include "base/json.h"
#include "http/loop.h"

#include <stdint.h>

typedef struct sh_cluster_link sh_cluster_link;

/* How the supervisor has taken an order: code 202, or the status of an error and why. */
typedef void (*sh_cluster_fn)(void *arg, int code, const char *why);

/* fd stays the caller's; 0 or below: there is no supervisor. */
sh_cluster_link *sh_cluster_link_create(sh_loop *loop, int fd);
void sh_cluster_link_free(sh_cluster_link *link);

/* Another process takes over: what the supervisor says is for that one. */
void sh_cluster_link_leave(sh_cluster_link *link);

/* Call it about once a second: asks for the state while it may change, and gives up on an order
 * that is not answered. */
void sh_cluster_link_tick(sh_cluster_link *link);

/* Why the cluster cannot be changed; NULL: it can. */
const char *sh_cluster_link_why(const sh_cluster_link *link);

/* The last change, as JSON; "null": there was none. */
sh_str sh_cluster_link_change(const sh_cluster_link *link);

/* The ranks that were removed from the cluster, a bit for each number. */
uint64_t sh_cluster_link_removed(const sh_cluster_link *link);

/* host: NULL if the order takes none. fn is called once, unless the order is forgotten before; it
 * may be called at once. */
void sh_cluster_link_ask(sh_cluster_link *link, const char *id, const char *what, const char *host,
                         sh_cluster_fn fn, void *arg);

/* The one who asked has left; the order stays. */
void sh_cluster_link_forget(sh_cluster_link *link, const void *arg);

#endif
