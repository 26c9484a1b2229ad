/* penalty.h - machines that keep failing to prove the token have to wait.
 *
 * A source that has failed a few times within a minute may begin a handshake only every so often,
 * so that nobody tries tokens at full speed. Loopback never waits: other users of this machine are
 * few and known, and a rank of our own may share that address with one of them.
 *
 * The table is small: when it is full the source that has been quiet for longest is forgotten.
 *
 * Threads: one owner. */
#ifndef SH_NET_PENALTY_H
#define SH_NET_PENALTY_H

#include "base/clock.h"
#include "net/addr.h"

enum { SH_PENALTY_SOURCES = 64, SH_PENALTY_FREE_TRIES = 5, SH_PENALTY_PAUSE_MS = 100 };

typedef struct {
    struct {
        sh_addr from;
        int failures;
        sh_deadline forget; /* 0: the place was never used */
        sh_deadline next;   /* when its next handshake may begin */
    } source[SH_PENALTY_SOURCES];
} sh_penalty;

/* A handshake from there failed for want of the token. */
void sh_penalty_add(sh_penalty *penalty, const sh_addr *from);

/* When a connection that came just now may begin its handshake: a time that has passed for those
 * who need not wait. Asking takes the place in the queue. */
sh_deadline sh_penalty_start(sh_penalty *penalty, const sh_addr *from);

#endif
