/* rawlink.h - bare TCP sockets beside a group's links, to compare with.
 *
 * The ranks form a ring of sockets: each is connected to the rank on its right and on its left, in
 * clear and without any protocol. Only numbers for the comparison travel here. Addresses and a
 * one-time secret, with which a connection begins, go through the group.
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

/* len bytes go from rank 0 to rank 1 and back, `rounds` times, spinning; *seconds is half of a
 * round. Others return at once, with 0. */
SH_MUST_CHECK sh_status sh_rawlink_half_trip(const sh_rawlink *link, int rank, void *data,
                                             size_t len, int rounds, double *seconds, sh_err *err);

/* Every rank sends len bytes to the right while it takes len bytes from the left, `rounds` times;
 * *seconds is one round. */
SH_MUST_CHECK sh_status sh_rawlink_both_ways(const sh_rawlink *link, const void *out, void *in,
                                             size_t len, int rounds, double *seconds, sh_err *err);

#endif
