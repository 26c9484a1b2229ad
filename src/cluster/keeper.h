/* keeper.h - decides which models are loaded.
 *
 * Models are wanted, used and left alone; hosts have memory. The keeper loads what is wanted, in
 * the order in which it was wanted, and makes room by letting other models go: idle ones before
 * busy ones, the least recently used first. A model that goes is drained first, so that its answers
 * can finish. Nothing is done here but deciding: hooks start and stop processes, and report back.
 *
 *   ABSENT -> QUEUED -> LOADING -> READY -> DRAINING -> STOPPING -> ABSENT
 *                          |                                ^
 *                          +--------> (failed) -------------+---> FAILED
 *
 * Time is passed in, in milliseconds of any clock.
 *
 * Threads: one owner. Hooks must not call the keeper. */
#ifndef SH_CLUSTER_KEEPER_H
#define SH_CLUSTER_KEEPER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_KEEPER_HOSTS_MAX = 64 };
#define SH_KEEP_FOREVER INT64_MAX

typedef enum {
    SH_KEPT_ABSENT,
    SH_KEPT_QUEUED,  /* wanted; waits for memory */
    SH_KEPT_LOADING, /* its processes are starting */
    SH_KEPT_READY,
    SH_KEPT_DRAINING, /* takes no new requests; those that run may finish */
    SH_KEPT_STOPPING, /* its processes are ending */
    SH_KEPT_FAILED,   /* as absent, and says why */
} sh_kept_state;

/* "absent", "queued", ... as clients of the keeper see them. */
const char *sh_kept_state_name(sh_kept_state state);

typedef struct {
    char *name;
    sh_kept_state state;
    char why[SH_ERR_TEXT_MAX];        /* it failed; "" if it did not */
    bool pinned;                      /* never has to go */
    int users;                        /* clients with running requests */
    int64_t keep_ms;                  /* how long it may be idle */
    int64_t used_ms;                  /* when it was wanted or used last */
    double need[SH_KEEPER_HOSTS_MAX]; /* bytes, once it was queued */

    /* Of the keeper alone. */
    uint64_t turn; /* its place in the queue */
    bool wanted;   /* while it goes: it is to come back */
    bool fresh;    /* was loaded for somebody who has not used it yet */
    int failures;  /* in a row */
    int64_t retry_ms;
} sh_kept_model;

typedef struct {
    /* Fills what the model needs on each host, in bytes. SH_AGAIN: hosts are still missing,
     * which the error says. */
    sh_status (*measure)(void *arg, int model, double *need, sh_err *err);
    /* Starts its processes. sh_keeper_up or sh_keeper_gone follows. */
    sh_status (*start)(void *arg, int model, sh_err *err);
    void (*stop)(void *arg, int model); /* sh_keeper_gone follows */
    /* Its state is another one. After DRAINING sh_keeper_drained follows. */
    void (*changed)(void *arg, int model);
    void *arg;
} sh_keeper_hooks;

typedef struct sh_keeper sh_keeper;

/* keep_ms: how long models may be idle unless a client says otherwise. */
sh_keeper *sh_keeper_create(const sh_keeper_hooks *hooks, int64_t keep_ms);
void sh_keeper_free(sh_keeper *keeper);

/* The hosts are numbered from 0. `limit`: bytes of memory that models may take there; 0: the host
 * is not there. The name is for errors. */
void sh_keeper_set_host(sh_keeper *keeper, int host, const char *name, double limit);

/* Returns the number of the model. */
int sh_keeper_add(sh_keeper *keeper, const char *name, bool pinned);
/* Forgets a model, whose number may then be used again. False: it is loaded. */
bool sh_keeper_remove(sh_keeper *keeper, int model);

/* Models are numbered from 0 up to this. */
int sh_keeper_count(const sh_keeper *keeper);
/* NULL: there is no model of this number. */
const sh_kept_model *sh_keeper_model(const sh_keeper *keeper, int model);

/* Somebody waits for it. One that failed just now is not tried again yet. */
void sh_keeper_want(sh_keeper *keeper, int model, int64_t now_ms);
/* A client has begun to use it, or has nothing running any more. */
void sh_keeper_use(sh_keeper *keeper, int model, bool begun, int64_t now_ms);
/* How long it may be idle this time; 0: not at all. */
void sh_keeper_keep(sh_keeper *keeper, int model, int64_t keep_ms);

void sh_keeper_up(sh_keeper *keeper, int model, int64_t now_ms);
void sh_keeper_drained(sh_keeper *keeper, int model);
/* It is to be stopped because of an error. */
void sh_keeper_fail(sh_keeper *keeper, int model, const char *why, int64_t now_ms);
/* Its last process has ended. */
void sh_keeper_gone(sh_keeper *keeper, int model, int64_t now_ms);

/* Acts on what has happened. */
void sh_keeper_tick(sh_keeper *keeper, int64_t now_ms);

#endif
