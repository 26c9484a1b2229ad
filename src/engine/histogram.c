/* Counts are kept for each bucket and made cumulative only when they are written out, so adding a
 * value touches one counter. */
#include "engine/histogram.h"

void sh_hist_add(sh_hist *h, double value)
{
    double bound = h->least;
    int i = 0;
    while (i < SH_HIST_BUCKETS && value > bound) {
        bound *= h->factor;
        i++;
    }
    h->counts[i]++;
    h->total++;
    h->sum += value;
}

void sh_hist_json(const sh_hist *h, sh_buf *out)
{
    sh_buf_addf(out, "\"%s\":{\"count\":%llu,\"sum\":%.9g,\"buckets\":[", h->name,
                (unsigned long long)h->total, h->sum);
    double bound = h->least;
    uint64_t below = 0;
    for (int i = 0; i < SH_HIST_BUCKETS; i++, bound *= h->factor) {
        below += h->counts[i];
        sh_buf_addf(out, "%s[%.6g,%llu]", i == 0 ? "" : ",", bound, (unsigned long long)below);
    }
    sh_buf_add_text(out, "]}");
}
