/* group.h - ranks that compute together.
 *
 * A group is formed by joining (net/mesh.h) and then watched (coll/watch.h). Its operations are in
 * coll/coll.h; all ranks must start the same ones in the same order. Each operation carries group,
 * number, kind and size, which are checked on arrival, and has a deadline. Once anything fails, the
 * group has failed on all ranks: every call, including one that is blocked, returns SH_ERR_GROUP
 * with the same reason, which names the rank. All that is left to do then is sh_group_close.
 *
 * A part of a group (such as a pipeline stage) is a group too. It shares the connections of the
 * whole group and fails with it.
 *
 * Threads: one thread owns a group and all its parts. */
#ifndef SH_COLL_GROUP_H
#define SH_COLL_GROUP_H

#include "base/status.h"
#include "coll/watch.h"
#include "net/mesh.h"

enum { SH_STAGING_LEN = 8 << 20 }; /* bytes of an operation that may be in transit */

typedef struct sh_group sh_group;

typedef struct {
    sh_mesh_opts mesh;
    int silence_ms; /* how long a rank may be silent; default 2000 */
    int op_ms;      /* how long an operation may take, 0 for no limit; default 60000 */
    int spin_us;    /* how long to spin before sleeping; -1: decide by the number of CPUs */
} sh_group_opts;

void sh_group_opts_init(sh_group_opts *opts);

/* Whether a group with these options can form again after a rank was lost. */
bool sh_group_opts_can_reform(const sh_group_opts *opts);

const char *sh_group_opts_backend(const sh_group_opts *opts); /* "ring", "mpi", "jaccl" */

/* Joins and starts the watch. */
SH_MUST_CHECK sh_status sh_group_open(const sh_group_opts *opts, sh_group **out, sh_err *err);

/* Notifies the other ranks that this one leaves, or why the group failed. Afterwards nothing is
 * written to the buffers of expected messages. A part may be closed after the whole group, but not
 * used. */
void sh_group_close(sh_group *group);

/* Registers memory of many operations to come, so that no transport has to copy it; at may be NULL.
 * It must stay in place until it is unregistered or the group is closed. What is not registered
 * works too, with a copy. */
SH_MUST_CHECK sh_status sh_group_register_memory(sh_group *group, void *at, size_t len,
                                                 sh_err *err);
void sh_group_unregister_memory(sh_group *group, void *at);

/* A group of the ranks `members` of group (ascending, including this rank), renumbered from 0. */
sh_group *sh_group_split(sh_group *group, const int *members, int count);

int sh_group_rank(const sh_group *group);
int sh_group_size(const sh_group *group);
/* The number by which users know a rank. It differs where the group has formed without some. */
int sh_group_number(const sh_group *group, int rank);
uint64_t sh_group_epoch(const sh_group *group);
uint64_t sh_group_left(const sh_group *group); /* see sh_rank_table */
const char *sh_group_path(const sh_group *group,
                          int rank); /* "tcp", "tls", "shm", "rdma"; "self" */

const char *sh_group_device(const sh_group *group, int rank); /* that reaches it: "mlx5_0"; "" */

const char *sh_group_address(const sh_group *group, int rank); /* "ip:port" as seen from here; "" */

/* While it loads, a rank may be silent and keep others waiting for much longer than the options
 * allow; with loading == false the options apply again. */
void sh_group_set_loading(sh_group *group, bool loading);

/* How long an operation may take from now on, 0 for no limit. */
void sh_group_set_op_ms(sh_group *group, int op_ms);

/* Fails the group on all ranks with this reason; this rank is at fault. */
void sh_group_fail(sh_group *group, const char *text);

/* Ranks that come and go, where rank 0 keeps a roster: see coll/watch.h. Asking to leave is for any
 * thread; ranks are those of the group. */
int sh_group_knocks(sh_group *group, sh_knock out[SH_KNOCKS_MAX]);
void sh_group_ask_to_leave(sh_group *group);
bool sh_group_must_stay(sh_group *group, char why[SH_STAY_TEXT_MAX]); /* NULL: no reason wanted */
int64_t sh_group_leaving_ns(const sh_group *group, int rank);
void sh_group_keep(sh_group *group, int rank, const char *text);

/* How far the ranks are with loading: see coll/watch.h. Numbers are those that users know. */
void sh_group_set_load(sh_group *group, const sh_load_state *load);
void sh_group_on_load(sh_group *group, sh_load_fn fn, void *ctx);

/* Weights over the group's connections: rank 0 sets who sends them (see sh_watch_set_visitor), the
 * others connect to it (see sh_mesh_connect; for any thread). */
void sh_group_set_visitor(sh_group *group, sh_visitor_fn visitor, void *ctx);
SH_MUST_CHECK sh_status sh_group_connect(const sh_group *group, int index, sh_deadline deadline,
                                         sh_stream *out, sh_err *err);
const uint8_t *sh_group_model(const sh_group *group); /* id of rank 0's model [SH_MODEL_ID_LEN] */

/* SH_OK unless the group has failed, for a rank that is waiting for something else. */
SH_MUST_CHECK sh_status sh_group_check(sh_group *group, sh_err *err);
/* The number of the rank that it has failed by; -1: none in particular. */
int sh_group_at_fault(sh_group *group);
int sh_group_fd(
    const sh_group *group); /* readable once the group has failed; -1 in a group of one */

#endif
