/* core.h - the internals of a group, private to this folder.
 *
 * Threads: the owner of the group. */
#ifndef SH_COLL_CORE_H
#define SH_COLL_CORE_H

#include "coll/group.h"
#include "net/channel.h"
#include "net/peer_messages.h"

/* The messages that were posted ahead of time for one rank (sh_coll_expect), in order of arrival.
 */
typedef struct {
    struct sh_expected_msg {
        uint64_t group; /* id of the group that it is sent in */
        void *data;
        size_t len;
    } * list; /* [cap], a ring */
    int first, count, cap;
    bool begun; /* `msg` is the first of them and has been started */
    sh_msg msg;
} sh_expected;

enum { SH_PLAN_INLINE = 960 }; /* bytes of a plan that go with its header; see coll.c */

/* Everything of the group's own that channels read and write, in one block: some transports need
 * to know such memory in advance. */
typedef struct {
    uint8_t staging[SH_STAGING_LEN]; /* first, because it should be aligned to pages */
    uint8_t lane_head[SH_RANKS_MAX][2][SH_OP_HEAD_LEN];
    uint8_t expected_head[SH_RANKS_MAX][SH_OP_HEAD_LEN];
    uint8_t plan[SH_PLAN_INLINE];
} sh_wire_memory;

/* State shared by a group and its parts. */
typedef struct {
    sh_mesh *mesh;
    sh_watch *watch;       /* NULL in a group of one */
    int silence_ms;        /* from the options */
    int usual_op_ms;       /* from the options */
    int op_ms;             /* in force now: longer while loading */
    int64_t yield_from_ns; /* do not yield before this time; see flow_yield */
    int64_t spin_ns;
    uint64_t finished;           /* completed operations, for the heartbeats */
    uint64_t sent[SH_RANKS_MAX]; /* point-to-point messages, by rank of the whole group */
    uint64_t received[SH_RANKS_MAX];
    sh_expected expected[SH_RANKS_MAX];
    int expected_count;   /* over all ranks */
    sh_wire_memory *wire; /* NULL in a group of one */
} sh_core;

struct sh_group {
    sh_core *core;
    bool whole; /* not a part: owns the core */
    uint64_t id;
    uint64_t seq; /* of the next collective operation */
    int rank;
    int size;
    int member[SH_RANKS_MAX]; /* the members' ranks in the whole group */
};

#endif
