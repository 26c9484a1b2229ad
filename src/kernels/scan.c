/* The parts of a scan that are the same on every device. */
#include "kernels/scan.h"

#include <math.h>

double sh_noise_of(uint64_t bits)
{
    double v = ((double)(bits >> 12) + 0.5) * 0x1p-52; /* in (0, 1), exact */
    return -log(-log1p(-v));
}

void sh_summary_give(const sh_draw *d, const float *logits, int32_t first, int32_t len,
                     sh_logits_summary *out)
{
    int64_t at = (int64_t)d->token - first;
    bool here = at >= 0 && at < len;
    if (here) out->won = (sh_candidate){d->token, logits[at]};
    out->won_score = here ? INFINITY : -INFINITY;
}

int sh_draw_top(const sh_draw *d)
{
    int want = d->logprobs > 0 ? d->logprobs : 0;
    if (d->temperature <= 0 || !sh_draw_filters(d)) return want;
    int keep = d->top_k > 0 && d->top_k < SH_SUMMARY_TOP ? d->top_k : SH_SUMMARY_TOP;
    return keep > want ? keep : want;
}

static void adjusts_apply(const sh_adjust *list, int count, float *logits, int32_t first,
                          int32_t len)
{
    for (int i = 0; i < count; i++) {
        int64_t at = (int64_t)list[i].id - first;
        if (at < 0 || at >= len) continue;
        float l = logits[at] + list[i].bias;
        l = l > 0 ? l / list[i].factor : l * list[i].factor;
        logits[at] = l - list[i].minus;
    }
}

/* Goes from one forbidden token to the next; most words of a mask have none, or nothing else. */
static void mask_apply(const uint64_t *allowed, float *logits, int32_t first, int32_t len)
{
    for (int32_t i = 0, count; i < len; i += count) {
        int64_t id = (int64_t)first + i;
        count = 64 - (int32_t)(id % 64);
        if (count > len - i) count = len - i;
        uint64_t all = UINT64_MAX >> (64 - count), forbidden = ~(allowed[id / 64] >> id % 64) & all;
        if (forbidden == all) {
            for (int32_t b = 0; b < count; b++) logits[i + b] = -INFINITY;
            continue;
        }
        for (; forbidden != 0; forbidden &= forbidden - 1)
            logits[i + __builtin_ctzll(forbidden)] = -INFINITY;
    }
}

void sh_row_query_apply(const sh_row_query *q, float *logits, int32_t first, int32_t len)
{
    adjusts_apply(q->adjusts, q->adjust_count, logits, first, len);
    if (q->allowed != NULL) mask_apply(q->allowed, logits, first, len);
}
