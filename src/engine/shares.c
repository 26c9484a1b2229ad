/* Shares are remembered with whom they were for, so that a rank can tell by itself whether its
 * memory is of any use. The election is a pure function of what all ranks have said: all come to
 * the same result without another message. */
#include "engine/shares.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sh_shares_reset(sh_shares *s)
{
    free(s->members);
    free(s->shares);
    *s = (sh_shares){0};
}

void sh_shares_keep(sh_shares *kept, uint64_t number, const sh_rank_offer *members,
                    const double *shares, int count)
{
    size_t n = (size_t)count;
    kept->number = number;
    kept->count = count;
    kept->members = sh_realloc_array(kept->members, n, sizeof(*members));
    kept->shares = sh_realloc_array(kept->shares, n, sizeof(*shares));
    memcpy(kept->members, members, n * sizeof(*members));
    memcpy(kept->shares, shares, n * sizeof(*shares));
}

enum { FILE_VERSION = 1 };

void sh_shares_pack(const sh_shares *s, sh_buf *out)
{
    sh_put_uint(out, FILE_VERSION, 4);
    sh_put_uint(out, s->number, 8);
    sh_put_uint(out, (uint64_t)s->count, 4);
    for (int i = 0; i < s->count; i++) {
        sh_rank_offer_pack(&s->members[i], out);
        sh_put_double(out, s->shares[i]);
    }
}

sh_status sh_shares_unpack(sh_str bytes, sh_shares *out, sh_err *err)
{
    sh_rank_offer members[SH_RANKS_MAX];
    double shares[SH_RANKS_MAX];
    sh_reader r = sh_reader_of(bytes);
    uint64_t version = sh_get_uint(&r, 4), number = sh_get_uint(&r, 8), count = sh_get_uint(&r, 4);
    if (version != FILE_VERSION || number == 0 || number == SH_SHARES_MINE || count == 0 ||
        count > SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "it is not a decision on shares");
    for (uint64_t i = 0; i < count; i++) {
        sh_rank_offer_unpack(&r, &members[i]);
        shares[i] = sh_get_double(&r);
        if (!(shares[i] >= 0 && shares[i] <= 1e18)) r.failed = true;
    }
    sh_status status = sh_get_end(&r, "the decision on shares", err);
    if (status == SH_OK) sh_shares_keep(out, number, members, shares, (int)count);
    return status;
}

/* Machine id and host name must both match: two machines may have the same name, and containers on
 * one machine may have memory limits of their own. */
static bool same_host(const sh_rank_offer *a, const sh_rank_offer *b)
{
    return memcmp(a->machine, b->machine, sizeof(a->machine)) == 0 && strcmp(a->host, b->host) == 0;
}

bool sh_shares_are_for(const sh_shares *kept, const sh_rank_offer *members, int count)
{
    if (kept->number == 0 || kept->count != count) return false;
    for (int i = 0; i < count; i++)
        if (kept->members[i].member != members[i].member ||
            !same_host(&kept->members[i], &members[i]))
            return false;
    return true;
}

int sh_host_ranks(const sh_rank_offer *members, int count, const sh_rank_offer *one)
{
    int ranks = 0;
    for (int i = 0; i < count; i++) ranks += same_host(&members[i], one);
    return ranks;
}

/* Ranks on one machine measure at the same time and slow each other down; the best of them counts
 * for all. */
static double host_speed(const sh_rank_offer *members, int count, const sh_rank_offer *one)
{
    double best = 0;
    for (int i = 0; i < count; i++)
        if (same_host(&members[i], one) && members[i].resources.speed > best)
            best = members[i].resources.speed;
    return best;
}

sh_status sh_shares_fit(const sh_rank_offer *members, int count, double weight_bytes,
                        const double *wanted, double *shares, sh_err *err)
{
    sh_rank_resources *resources = sh_alloc_array((size_t)count, sizeof(*resources));
    for (int i = 0; i < count; i++)
        resources[i] = (sh_rank_resources){
            members[i].resources.memory / sh_host_ranks(members, count, &members[i]), wanted[i]};
    sh_status status = sh_shares_by_resources(resources, count, weight_bytes, shares, err);
    free(resources);
    return status;
}

bool sh_shares_fit_now(const sh_shares *kept, const sh_rank_offer *members, double weight_bytes)
{
    double now[SH_RANKS_MAX], sum = 0, sum_now = 0;
    bool same = true;
    sh_err ignored;
    if (sh_shares_fit(members, kept->count, weight_bytes, kept->shares, now, &ignored) != SH_OK)
        return false;
    for (int i = 0; i < kept->count; i++) {
        sum += kept->shares[i];
        sum_now += now[i];
    }
    for (int i = 0; i < kept->count; i++)
        same = same && fabs(kept->shares[i] / sum - now[i] / sum_now) < 1e-6;
    return same;
}

/* The speed measurement is noisy: a rank above 60 % of the fastest counts as equally fast, so that
 * equal machines get equal shares. */
sh_status sh_shares_decide(const sh_rank_offer *members, int count, double weight_bytes,
                           double *shares, sh_err *err)
{
    double *speeds = sh_alloc_array((size_t)count, sizeof(*speeds)), fastest = 0;
    for (int i = 0; i < count; i++) {
        speeds[i] = host_speed(members, count, &members[i]);
        if (speeds[i] > fastest) fastest = speeds[i];
    }
    for (int i = 0; i < count; i++)
        if (speeds[i] > 0.6 * fastest) speeds[i] = fastest;
    sh_status status = sh_shares_fit(members, count, weight_bytes, speeds, shares, err);
    free(speeds);
    return status;
}

static bool is_refused(const sh_shares_vote *votes, int count, uint64_t number)
{
    for (int i = 0; i < count; i++)
        if (votes[i].refused == number) return true;
    return false;
}

int sh_shares_elect(const sh_shares_vote *votes, int count, uint64_t *number)
{
    uint64_t newest = 0, last = 0;
    int rank = 0;
    for (int i = 0; i < count; i++) {
        if (votes[i].last > last) last = votes[i].last;
        if (votes[i].usable <= newest || is_refused(votes, count, votes[i].usable)) continue;
        if (votes[i].usable == SH_SHARES_MINE && i != 0) continue; /* not theirs to say */
        newest = votes[i].usable;
        rank = i;
    }
    *number = newest == 0 || newest == SH_SHARES_MINE ? last + 1 : newest;
    return rank;
}
