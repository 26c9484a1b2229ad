/* penalty.h - rate limiting for machines that repeatedly fail to prove the token.
 *
 * A source that has failed a few times within a minute may start a handshake only every
 * SH_PENALTY_PAUSE_MS, so that tokens cannot be tried at full speed. Loopback is exempt: other
 * users of this machine are few and known, and one of our own ranks may share that address with
 * them.
 *
 * The table is small: when it is full, the source that has been quiet for longest is dropped.
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
        sh_deadline forget; /* when the entry expires; 0: never used */
        sh_deadline next;   /* when its next handshake may start */
    } source[SH_PENALTY_SOURCES];
} sh_penalty;

/* Records a handshake from there that failed to prove the token. */
void sh_penalty_add(sh_penalty *penalty, const sh_addr *from);

/* When a connection that arrived just now may start its handshake; not in the future unless the
 * source is being limited. Each call reserves a slot. */
sh_deadline sh_penalty_start(sh_penalty *penalty, const sh_addr *from);

#endif
