/* placement.h - the hosts that a launched cluster is meant to have: hosts.json in the launcher's
 * state folder.
 *
 * It is a hostfile with a few more keys for each host. `launch` writes it; `hosts add` and `hosts
 * remove` change it and signal the launcher, which then starts ranks, or asks them to leave, until
 * those that run are those of the file. A rank keeps its number while the cluster lives, and the
 * numbers of ranks that left are not used again.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_PLACEMENT_H
#define SH_CLUSTER_PLACEMENT_H

#include "base/json.h"
#include "cluster/remote_hosts.h"

typedef struct {
    int rank;
    const char *name;    /* for messages */
    const char *ssh;     /* the name that ssh uses; NULL: this machine */
    const char *folder;  /* its state folder */
    const char *program; /* relative to that */
} sh_place;

typedef struct {
    cJSON *json; /* the file; the strings of the list are in it */
    sh_place list[SH_RANKS_MAX];
    int count;
    int next;     /* the number of the rank that is added next */
    bool changed; /* since it was launched */
} sh_placement;

/* The ranks of a launch: one for each entry of its hostfile. Call after sh_remote_hosts_verify. */
SH_MUST_CHECK sh_status sh_placement_init(sh_placement *members, const sh_remote_hosts *hosts,
                                          sh_err *err);

/* Reads hosts.json; SH_ERR_NOT_FOUND when there is none. */
SH_MUST_CHECK sh_status sh_placement_read(sh_placement *members, const char *state, sh_err *err);
SH_MUST_CHECK sh_status sh_placement_write(const sh_placement *members, const char *state,
                                           sh_err *err);
void sh_placement_reset(sh_placement *members);

/* Adds rank `next`: entry `idx` of the hosts. */
SH_MUST_CHECK sh_status sh_placement_add(sh_placement *members, const sh_remote_hosts *hosts,
                                         int idx, sh_err *err);
void sh_placement_remove(sh_placement *members, int idx);

/* The index of a rank in the list; -1: it is not a member. */
int sh_placement_find(const sh_placement *members, int rank);

/* The hostfile of these ranks, in the order of the list. */
SH_MUST_CHECK sh_status sh_placement_hostfile(const sh_placement *members, sh_hostfile **out,
                                              sh_err *err);

#endif
