/* A fixed table with linear search: it is used only when a connection arrives, and its size bounds
 * what an attacker with many addresses can make us remember. */
#include "net/penalty.h"

/* The wait is bounded below the time a connecting rank waits for its handshake, so that a rank
 * which shares its machine with failing ones still gets in. */
enum { MEMORY_MS = 60000, WAIT_MS_MAX = 1000 };

/* The index of a source's entry that has not expired, or -1. */
static int place_of(const sh_penalty *p, const sh_addr *from)
{
    for (int i = 0; i < SH_PENALTY_SOURCES; i++)
        if (p->source[i].forget != 0 && !sh_deadline_passed(p->source[i].forget) &&
            sh_addr_same_host(&p->source[i].from, from))
            return i;
    return -1;
}

static int quietest(const sh_penalty *p)
{
    int found = 0;
    for (int i = 1; i < SH_PENALTY_SOURCES; i++)
        if (p->source[i].forget < p->source[found].forget) found = i;
    return found;
}

void sh_penalty_add(sh_penalty *p, const sh_addr *from)
{
    if (sh_addr_is_loopback(from)) return;
    int i = place_of(p, from);
    if (i < 0) {
        i = quietest(p);
        p->source[i].from = *from;
        p->source[i].failures = 0;
        p->source[i].next = 0;
    }
    p->source[i].failures++;
    p->source[i].forget = sh_deadline_in_ms(MEMORY_MS);
}

sh_deadline sh_penalty_start(sh_penalty *p, const sh_addr *from)
{
    int i = place_of(p, from);
    sh_deadline now = sh_clock_ns();
    if (i < 0 || p->source[i].failures < SH_PENALTY_FREE_TRIES) return now;
    sh_deadline start = p->source[i].next > now ? p->source[i].next : now;
    if (start - now >= (int64_t)WAIT_MS_MAX * 1000000) return now + (int64_t)WAIT_MS_MAX * 1000000;
    p->source[i].next = start + (int64_t)SH_PENALTY_PAUSE_MS * 1000000;
    return start;
}
