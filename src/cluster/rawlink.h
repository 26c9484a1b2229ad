/* rawlink.h - raw TCP sockets between the ranks of a group, as a baseline for its links.
 *
 * The ranks form a ring of sockets: each is connected to its right and its left neighbour, in clear
 * and without any protocol. Only test data is sent. Ports, and a one-time secret that each
 * connection begins with, are exchanged through the group.
 *
 * Threads: one owner; all calls are collective. */
#ifndef SH_CLUSTER_RAWLINK_H
#define SH_CLUSTER_RAWLINK_H

#include "coll/group.h"

typedef struct {
    int left;
    int right;
} sh_rawlink;

SH_MUST_CHECK sh_status sh_rawlink_open(sh_group *group, sh_rawlink *out, sh_err *err);
void sh_rawlink_close(sh_rawlink *link);

/* Sends len bytes from rank 0 to rank 1 and back, `rounds` times, spinning. *seconds is half a
 * round trip. Other ranks return at once, with 0. */
SH_MUST_CHECK sh_status sh_rawlink_half_trip(const sh_rawlink *link, int rank, void *data,
                                             size_t len, int rounds, double *seconds, sh_err *err);

/* Every rank sends len bytes to the right while it receives len bytes from the left, `rounds`
 * times. *seconds is the time of one round. */
SH_MUST_CHECK sh_status sh_rawlink_both_ways(const sh_rawlink *link, const void *out, void *in,
                                             size_t len, int rounds, double *seconds, sh_err *err);

#endif
