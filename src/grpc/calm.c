#include "grpc/calm.h"

#include <nghttp2/nghttp2.h>

enum { COST_RESET = 10, COST_OTHER = 1, NS_PER_UNIT = 1000000000 / SH_CALM_PER_S };

void sh_calm_init(sh_calm *calm, int64_t now_ns)
{
    *calm = (sh_calm){.left = SH_CALM_MOST, .filled_ns = now_ns};
}

static void add(sh_calm *calm, int64_t units)
{
    calm->left += units;
    if (calm->left > SH_CALM_MOST) calm->left = SH_CALM_MOST;
}

/* Headers are bounded by the number of streams, and a stream that is not answered is reset. */
static int64_t cost_of(uint8_t type, size_t len)
{
    if (type == NGHTTP2_RST_STREAM) return COST_RESET;
    bool content = type == NGHTTP2_HEADERS || (type == NGHTTP2_DATA && len > 0);
    return content ? 0 : COST_OTHER;
}

bool sh_calm_received(sh_calm *calm, uint8_t type, size_t len, int64_t now_ns)
{
    int64_t units = (now_ns - calm->filled_ns) / NS_PER_UNIT;
    calm->filled_ns += units * NS_PER_UNIT;
    add(calm, units);
    calm->left -= cost_of(type, len);
    return calm->left >= 0;
}

void sh_calm_sent(sh_calm *calm)
{
    add(calm, SH_CALM_PER_SENT);
}
