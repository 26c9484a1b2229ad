/* core.h - the insides of a group, for group.c and flow.c.
 *
 * Threads: the owner of the group. */
#ifndef SH_COLL_CORE_H
#define SH_COLL_CORE_H

#include "coll/group.h"
#include "net/channel.h"
#include "net/peer_messages.h"

/* Messages of one rank that were asked for ahead of time, in the order in which they come. */
typedef struct {
    struct sh_expected_msg {
        uint64_t group; /* in which it is sent */
        void *data;
        size_t len;
    } * list; /* [cap], a ring */
    int first, count, cap;
    bool begun; /* `msg` is the first of them, under way */
    sh_msg msg;
    uint8_t head[SH_OP_HEAD_LEN];
} sh_expected;

/* What a group and its parts share. */
typedef struct {
    sh_mesh *mesh;
    sh_watch *watch;       /* NULL in a group of one */
    int silence_ms;        /* as the options say */
    int usual_op_ms;       /* likewise */
    int op_ms;             /* now: longer while loading */
    int64_t yield_from_ns; /* until then a rank that waits does not yield */
    int64_t spin_ns;
    uint64_t finished;           /* operations, for the beats */
    uint64_t sent[SH_RANKS_MAX]; /* point to point, by rank of the whole */
    uint64_t received[SH_RANKS_MAX];
    sh_expected expected[SH_RANKS_MAX];
    int expected_count; /* of all ranks together */
    void *staging;
} sh_core;

struct sh_group {
    sh_core *core;
    bool whole; /* owns the core */
    uint64_t id;
    uint64_t seq; /* of the next operation of all members */
    int rank;
    int size;
    int member[SH_RANKS_MAX]; /* ranks of the whole */
};

#endif
