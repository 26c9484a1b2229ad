/* limiter.h - how many packets of each source, and of all together, are worth looking at.
 *
 * Each source may send a number of packets at once, and from then on so many a second; so may all
 * sources together. Sources are machines, not ports. The table is small: when it is full, the
 * source that has been quiet for longest is forgotten.
 *
 * Threads: one owner. */
#ifndef SH_DISCOVER_LIMITER_H
#define SH_DISCOVER_LIMITER_H

#include "net/addr.h"

enum { SH_LIMITER_SOURCES = 64 };

typedef struct {
    double left; /* packets that may come at once */
    int64_t at_ns;
} sh_allowance;

typedef struct {
    double source_rate, all_rate; /* packets a second, and as many at once */
    struct {
        sh_addr from;
        sh_allowance allowance;
    } source[SH_LIMITER_SOURCES];
    int count;
    sh_allowance all;
} sh_limiter;

/* Whether one more is allowed now, of `rate` a second. */
bool sh_allowance_take(sh_allowance *allowance, double rate, int64_t now_ns);

void sh_limiter_init(sh_limiter *limiter, double source_rate, double all_rate);

/* Whether one more packet from there is within the limits at this time (sh_clock_ns). One that is
 * not costs its source nothing. */
bool sh_limiter_take(sh_limiter *limiter, const sh_addr *from, int64_t now_ns);

#endif
