/* probe.h - times a TCP connection between two hosts, without a group.
 *
 * One host runs the server: it listens on the given addresses, prints the ports and a one-time
 * secret, and serves for a limited time. The other host connects, presents the secret, and times
 * short and long messages. The data is sent in clear and is meaningless.
 *
 * Threads: each object and each call has one owner. */
#ifndef SH_CLUSTER_PROBE_H
#define SH_CLUSTER_PROBE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_PROBE_SECRET_LEN = 32, SH_PROBE_ADDRESSES_MAX = 32 };

typedef struct sh_probe_server sh_probe_server;

/* Listens on each address of "ip,ip,..."; skips those where it cannot. Fails if none is left. */
SH_MUST_CHECK sh_status sh_probe_server_open(const char *addresses, sh_probe_server **out,
                                             sh_err *err);
void sh_probe_server_close(sh_probe_server *server);

/* Appends {"secret": "...", "listen": ["ip:port", ...]} as one line. */
void sh_probe_server_describe(const sh_probe_server *server, sh_buf *out);

/* Serves until a client says that it is the last one, no client has come for idle_ms, or limit_ms
 * have passed. */
void sh_probe_server_run(sh_probe_server *server, int64_t idle_ms, int64_t limit_ms);

typedef struct {
    double rtt_us; /* median round trip of a short message */
    double gbit_s; /* of long messages, in the slower direction */
} sh_probe_result;

/* Connects to "ip:port" and measures for about a second. `last` tells the server that no other
 * client will come, so that it exits. */
SH_MUST_CHECK sh_status sh_probe_measure(const char *address, const char *secret, bool last,
                                         sh_probe_result *out, sh_err *err);

/* Tells the server to exit. */
SH_MUST_CHECK sh_status sh_probe_quit(const char *address, const char *secret, sh_err *err);

/* Times how long a connection takes to be established, or refused, which also proves that the host
 * is up. For hosts that cannot run the server. */
SH_MUST_CHECK sh_status sh_probe_knock(const char *address, double *rtt_us, sh_err *err);

/* Knocks once at each address, at all of them at the same time, for little more than a second.
 * rtt_us[i] is negative where nobody answered. To find neighbours: most of the link-local addresses
 * that are worth trying on an interface do not answer there. */
void sh_probe_knock_all(const char *const *addresses, int count, double *rtt_us);

#endif
