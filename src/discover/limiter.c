#include "discover/limiter.h"

#include <string.h>

void sh_limiter_init(sh_limiter *l, double source_rate, double all_rate)
{
    memset(l, 0, sizeof(*l));
    l->source_rate = source_rate;
    l->all_rate = all_rate;
    l->all.left = all_rate;
}

/* What has come back since the last packet, up to that of one second. */
static void refill(sh_allowance *a, double rate, int64_t now_ns)
{
    double gained = (double)(now_ns - a->at_ns) * 1e-9 * rate;
    a->left = a->left + gained > rate ? rate : a->left + gained;
    a->at_ns = now_ns;
}

bool sh_allowance_take(sh_allowance *a, double rate, int64_t now_ns)
{
    refill(a, rate, now_ns);
    if (a->left < 1) return false;
    a->left -= 1;
    return true;
}

static int place_of(sh_limiter *l, const sh_addr *from, int64_t now_ns)
{
    int quietest = 0;
    for (int i = 0; i < l->count; i++) {
        if (sh_addr_same_host(&l->source[i].from, from)) return i;
        if (l->source[i].allowance.at_ns < l->source[quietest].allowance.at_ns) quietest = i;
    }
    int at = l->count < SH_LIMITER_SOURCES ? l->count++ : quietest;
    l->source[at].from = *from;
    l->source[at].allowance = (sh_allowance){.left = l->source_rate, .at_ns = now_ns};
    return at;
}

bool sh_limiter_take(sh_limiter *l, const sh_addr *from, int64_t now_ns)
{
    sh_allowance *one = &l->source[place_of(l, from, now_ns)].allowance;
    refill(one, l->source_rate, now_ns);
    if (one->left < 1 || !sh_allowance_take(&l->all, l->all_rate, now_ns)) return false;
    one->left -= 1;
    return true;
}
