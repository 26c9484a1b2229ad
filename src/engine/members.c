/* A group re-forms with a pause for every request, so it does not do so lightly. Ranks that want to
 * come in wait for a moment without requests, but not indefinitely. A rank that wants to leave
 * waits a moment too: usually all ranks are being stopped, and rank 0 is about to hear of it. */
#include "engine/members.h"

#include "base/clock.h"
#include "base/log.h"

enum {
    POLL_NS = 50000000,
    LEAVE_NS = 1000000000, /* from the wish to leave to leaving */
    PLANNED_MS = 5000,     /* ranks that are alive need less to come back */
};

_Static_assert((int)SH_ENGINE_RANKS_MAX == (int)SH_RANKS_MAX, "what clients go by");

void sh_members_init(sh_members *m, int size, int64_t degrade_ms, int64_t rejoin_ms)
{
    *m = (sh_members){.rejoin_ms = rejoin_ms};
    sh_roster_init(&m->roster, size, degrade_ms);
}

/* Whether a rank has wanted to leave for long enough. */
static bool leaver_due(const sh_group *group, int64_t now_ns)
{
    for (int i = 1; i < sh_group_size(group); i++) {
        int64_t since_ns = sh_group_leaving_ns(group, i);
        if (since_ns != 0 && now_ns - since_ns >= LEAVE_NS) return true;
    }
    return false;
}

/* Lets all leave that want to and that the others can do without: when the group ends, for whatever
 * reason, they go. */
static bool leavers_release(sh_members *m, sh_group *group, const sh_model_group *mg, sh_err *why)
{
    uint64_t gone = 0;
    for (int i = 1; i < sh_group_size(group); i++) {
        sh_err cannot;
        int number = sh_group_number(group, i);
        if (sh_group_leaving_ns(group, i) == 0) continue;
        if (sh_model_group_check_without(mg, gone | UINT64_C(1) << i, &cannot) == SH_OK) {
            gone |= UINT64_C(1) << i;
            sh_roster_leave(&m->roster, number);
            sh_err_set(why, SH_ERR_CANCELLED, "rank %d leaves", number);
            continue;
        }
        SH_LOGW("rank %d cannot leave: %s", number, cannot.text);
        sh_group_keep(group, i, cannot.text);
    }
    return gone != 0;
}

/* Lets in the one that has asked for the longest time, once that is long enough. Its share is
 * loaded for this group and itself; whoever came along with it would load while all others wait.
 * They get another plan instead, for the group with this one. */
static bool comer_find(sh_members *m, sh_group *group, bool quiet, int64_t now_ns, sh_err *why)
{
    sh_knock knock[SH_KNOCKS_MAX];
    int count = sh_roster_is_open(&m->roster) ? sh_group_knocks(group, knock) : 0, number = -1;
    const sh_knock *first = NULL;
    for (int i = 0; i < count; i++) {
        int its = knock[i].number == SH_RANK_ANY ? sh_roster_assign(&m->roster, knock[i].node)
                                                 : knock[i].number;
        if (its < 0 || (first != NULL && knock[i].first_ns >= first->first_ns)) continue;
        first = &knock[i];
        number = its;
    }
    if (first == NULL || (!quiet && now_ns - first->first_ns < m->rejoin_ms * 1000000))
        return false;
    sh_roster_expect(&m->roster, number);
    sh_err_set(why, SH_ERR_CANCELLED, "rank %d at %s comes in", number, first->name);
    return true;
}

bool sh_members_poll(sh_members *m, sh_group *group, sh_model_group *mg, bool quiet, sh_err *why)
{
    int64_t now_ns = sh_clock_ns();
    if (now_ns - m->polled_ns < POLL_NS) return false;
    m->polled_ns = now_ns;
    sh_model_group_answer_newcomers(mg, group, &m->roster);
    bool changes = comer_find(m, group, quiet, now_ns, why);
    if (changes || leaver_due(group, now_ns))
        changes = leavers_release(m, group, mg, why) || changes;
    if (changes) sh_roster_reform(&m->roster, PLANNED_MS);
    return changes;
}

void sh_members_lost(sh_members *m, sh_group *group, const sh_model_group *mg)
{
    sh_err ignored;
    leavers_release(m, group, mg, &ignored);
    sh_roster_lost(&m->roster);
}

void sh_members_dismiss(sh_members *m, uint64_t ranks, uint64_t lost)
{
    int missing[SH_RANKS_MAX], count = sh_roster_missing(&m->roster, missing);
    uint64_t away = lost;
    for (int i = 0; i < count; i++) away |= UINT64_C(1) << missing[i];
    for (int i = 1; i < SH_RANKS_MAX; i++) {
        if (((ranks & away) >> i & 1) == 0) continue;
        sh_roster_leave(&m->roster, i);
        SH_LOGI("rank %d was removed, and is no longer missing", i);
    }
}

static int numbers_of(const sh_group *group, int numbers[SH_RANKS_MAX])
{
    for (int i = 0; i < sh_group_size(group); i++) numbers[i] = sh_group_number(group, i);
    return sh_group_size(group);
}

void sh_members_formed(sh_members *m, const sh_group *group)
{
    int numbers[SH_RANKS_MAX], missing[SH_RANKS_MAX];
    sh_roster_formed(&m->roster, numbers, numbers_of(group, numbers));
    int count = sh_roster_missing(&m->roster, missing);
    for (int i = 0; i < count; i++)
        SH_LOGW("the group goes on without rank %d, until it comes back", missing[i]);
}

/* Ranks that have ended the forming because they leave. */
static bool leavers_note(sh_members *m, const sh_group *group)
{
    bool any = false;
    for (int i = 1; group != NULL && i < sh_group_size(group); i++) {
        if (sh_group_leaving_ns(group, i) == 0) continue;
        sh_roster_leave(&m->roster, sh_group_number(group, i));
        any = true;
    }
    return any;
}

void sh_members_failed(sh_members *m, const sh_group *group, const sh_err *why)
{
    if (!m->roster.formed || leavers_note(m, group)) return;
    if (sh_roster_has_new(&m->roster)) {
        SH_LOGW("the group does not form with the ranks that came in; none come in for %d s",
                (int)(sh_roster_close(&m->roster) / 1000));
    } else if (why->status == SH_ERR_MEMORY) {
        SH_LOGW("the group cannot go on without the missing ranks");
        sh_roster_need_all(&m->roster);
    }
}
