/* group.h - ranks that compute one thing together.
 *
 * A group is formed by joining (net/mesh.h) and then watched (coll/watch.h). Its operations are in
 * coll/coll.h; all ranks must start the same ones in the same order. Each carries group, number,
 * kind and size, checked on arrival, and has a deadline. Once anything fails, the group has failed
 * on all ranks: every call, also one that is blocked, returns SH_ERR_GROUP with the same reason,
 * which names the rank. What is left to do then is sh_group_close.
 *
 * A part of a group (a stage of a pipeline, say) is a group too. It shares the links of the whole
 * and fails with it.
 *
 * Threads: one thread owns a group and all its parts. */
#ifndef SH_COLL_GROUP_H
#define SH_COLL_GROUP_H

#include "base/status.h"
#include "coll/watch.h"
#include "net/mesh.h"

typedef struct sh_group sh_group;

typedef struct {
    sh_mesh_opts mesh;
    int silence_ms; /* how long a rank may not be heard of; 2000 */
    int op_ms;      /* how long an operation may take, 0 for ever; 60000 */
    int spin_us;    /* how long a wait spins before it sleeps; -1 chooses by the machine */
} sh_group_opts;

void sh_group_opts_init(sh_group_opts *opts);

/* Joins and starts the watch. */
SH_MUST_CHECK sh_status sh_group_open(const sh_group_opts *opts, sh_group **out, sh_err *err);

/* Says good-bye, or why not, to the others. From then on nothing is written into memory that
 * messages were expected in. A part may be closed after its whole, but not used. */
void sh_group_close(sh_group *group);

/* The ranks `members` of group (ascending, this rank among them), numbered anew from 0. */
sh_group *sh_group_part(sh_group *group, const int *members, int count);

int sh_group_rank(const sh_group *group);
int sh_group_size(const sh_group *group);
uint64_t sh_group_epoch(const sh_group *group);
const char *sh_group_path(const sh_group *group, int rank); /* "tcp", "tls", "shm"; "self" */

const char *sh_group_address(const sh_group *group, int rank); /* "ip:port" as seen from here; "" */

/* A rank that loads may be silent and keep others waiting for much longer than the group's options
 * say; these hold again when it has loaded. */
void sh_group_set_loading(sh_group *group, bool loading);

/* Ends the group for all ranks with this reason; this rank is at fault. */
void sh_group_fail(sh_group *group, const char *text);

/* SH_OK while the group stands, for a rank that waits for something else than the group. */
SH_MUST_CHECK sh_status sh_group_check(sh_group *group, sh_err *err);
int sh_group_fd(
    const sh_group *group); /* readable once the group has failed; -1 in a group of one */

#endif
