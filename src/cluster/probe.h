/* probe.h - times one TCP connection between two hosts, without a group.
 *
 * One host answers: it listens on the addresses that it is asked about, tells the ports and a
 * one-time secret, and goes to the background for a bounded time. The other connects to each, shows
 * the secret, and times short messages and long ones. What travels is in clear and means nothing.
 *
 * Threads: one owner a call. */
#ifndef SH_CLUSTER_PROBE_H
#define SH_CLUSTER_PROBE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_PROBE_SECRET_LEN = 32, SH_PROBE_ADDRESSES_MAX = 32 };

typedef struct sh_prober sh_prober; /* the side that answers */

/* Listens on each of the numbers "ip,ip,..."; those where it can not are left out. */
SH_MUST_CHECK sh_status sh_prober_open(const char *addresses, sh_prober **out, sh_err *err);
void sh_prober_close(sh_prober *prober);

/* {"secret": "...", "listen": ["ip:port", ...]} as one line. */
void sh_prober_describe(const sh_prober *prober, sh_buf *out);

/* Answers until a visitor says that it is the last, nobody came for idle_ms, or limit_ms are over.
 */
void sh_prober_run(sh_prober *prober, int64_t idle_ms, int64_t limit_ms);

typedef struct {
    double rtt_us; /* median of a short message there and back */
    double gbit_s; /* of long ones, in the slower direction */
} sh_probe_result;

/* Connects to "ip:port" and times it for about a second. `last` tells the other side
 * that nobody else will come, so that it ends. */
SH_MUST_CHECK sh_status sh_probe_measure(const char *address, const char *secret, bool last,
                                         sh_probe_result *out, sh_err *err);

/* Ends the other side. */
SH_MUST_CHECK sh_status sh_probe_quit(const char *address, const char *secret, sh_err *err);

/* Times how long a connection takes to be made, or to be refused, which also tells that the host is
 * there; for a host without the program. */
SH_MUST_CHECK sh_status sh_probe_knock(const char *address, double *rtt_us, sh_err *err);

#endif
