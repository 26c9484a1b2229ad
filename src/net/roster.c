/* The rules of membership. They touch no socket and no clock but the deadlines, so that they can be
 * tested without a group.
 *
 * Every attempt to form needs a moment of its own: ranks that lost the group come back within a
 * tenth of a second or two, and one that is only slower than the others must not be left out for
 * that. */
#include "net/roster.h"

#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_MS_MIN = 1500,
    CLOSED_MS_FIRST = 5000,
    CLOSED_MS_MAX = 640000,
    SETTLE_MS = 5000, /* for guests that became members to come in */
};

/* A guest asks four times a second. One that has not for so long is gone. */
static const int64_t GUEST_NS = 3000000000;

/* Two processes with one node id must both have asked for so long: the first of two that follow
 * each other, as when a machine was restarted, is gone by then. */
static const int64_t TWIN_NS = 2 * 3000000000;

void sh_roster_init(sh_roster *r, int size, int64_t degrade_ms)
{
    memset(r, 0, sizeof(*r));
    r->degrade_ms = degrade_ms;
    r->without_at = SH_DEADLINE_NEVER;
    for (int i = 0; i < size; i++) {
        r->member[i].state = SH_MEMBER_EXPECTED;
        r->member[i].joined = r->member[i].served = true;
    }
}

void sh_roster_gather(sh_roster *r, int min_ranks, int64_t wait_ms)
{
    r->gathers = true;
    r->gathering = min_ranks > 1 || wait_ms > 0;
    r->min_ranks = min_ranks;
    r->gather_end = wait_ms >= 0 ? sh_deadline_in_ms(wait_ms) : SH_DEADLINE_NEVER;
}

static bool is_there(const sh_guest *guest, int64_t now_ns)
{
    return now_ns - guest->last_ns < GUEST_NS;
}

/* The place of a guest, or a new one, or that of a guest that is gone; NULL when all are taken. */
static sh_guest *place_of(sh_roster *r, const sh_hello *hello, int64_t now_ns)
{
    sh_guest *place = NULL;
    for (int i = 0; i < r->guest_count; i++) {
        sh_guest *guest = &r->guest[i];
        if (guest->life == hello->life && memcmp(guest->node, hello->node, SH_NODE_ID_LEN) == 0)
            return guest;
        if (!is_there(guest, now_ns)) place = guest;
    }
    if (place == NULL && r->guest_count < SH_RANKS_MAX - 1) place = &r->guest[r->guest_count++];
    if (place == NULL) return NULL;
    *place = (sh_guest){.life = hello->life, .first_ns = now_ns};
    memcpy(place->node, hello->node, SH_NODE_ID_LEN);
    return place;
}

/* The guest with the same node id that was there first, or NULL. */
static const sh_guest *twin_of(const sh_roster *r, const sh_guest *guest, int64_t now_ns)
{
    for (int i = 0; i < r->guest_count; i++) {
        const sh_guest *other = &r->guest[i];
        if (other != guest && is_there(other, now_ns) && other->first_ns <= guest->first_ns &&
            memcmp(other->node, guest->node, SH_NODE_ID_LEN) == 0)
            return other;
    }
    return NULL;
}

bool sh_roster_invite(sh_roster *r, const sh_hello *hello, int64_t now_ns)
{
    sh_guest *guest = place_of(r, hello, now_ns);
    if (guest == NULL) return true; /* it asks again */
    guest->last_ns = now_ns;
    return twin_of(r, guest, now_ns) == NULL || now_ns - guest->first_ns < TWIN_NS;
}

/* Of two with one node id only the first counts. */
static bool counts(const sh_roster *r, const sh_guest *guest, int64_t now_ns)
{
    return is_there(guest, now_ns) && twin_of(r, guest, now_ns) == NULL;
}

int sh_roster_guests(const sh_roster *r, int64_t now_ns)
{
    int count = 0;
    for (int i = 0; i < r->guest_count; i++) count += counts(r, &r->guest[i], now_ns);
    return count;
}

/* Those who were there the last time could not hold the model: it takes another. */
static bool has_untried(const sh_roster *r, int64_t now_ns)
{
    bool untried = false;
    for (int i = 0; i < r->guest_count; i++)
        untried = untried || (counts(r, &r->guest[i], now_ns) && !r->guest[i].tried);
    return !r->too_small || untried;
}

static bool is_enough(const sh_roster *r, int64_t now_ns)
{
    bool by_number = r->min_ranks > 0 && sh_roster_guests(r, now_ns) + 1 >= r->min_ranks;
    bool unbound = r->min_ranks == 0 && r->gather_end == SH_DEADLINE_NEVER;
    return has_untried(r, now_ns) && (by_number || unbound || now_ns >= r->gather_end);
}

static int by_node(const void *a, const void *b)
{
    return memcmp(((const sh_guest *)a)->node, ((const sh_guest *)b)->node, SH_NODE_ID_LEN);
}

bool sh_roster_settle(sh_roster *r, int64_t now_ns)
{
    int number = 1;
    if (!is_enough(r, now_ns)) return false;
    qsort(r->guest, (size_t)r->guest_count, sizeof(r->guest[0]), by_node);
    memset(&r->member[1], 0, (SH_RANKS_MAX - 1) * sizeof(r->member[0]));
    for (int i = 0; i < r->guest_count; i++) {
        if (!counts(r, &r->guest[i], now_ns)) continue;
        sh_roster_know(r, number, r->guest[i].node);
        sh_roster_expect(r, number++);
    }
    r->gathering = false;
    r->without_at = sh_deadline_in_ms(SETTLE_MS);
    return true;
}

void sh_roster_regather(sh_roster *r, bool too_small)
{
    for (int i = 0; i < r->guest_count; i++) {
        for (int n = 1; too_small && n < SH_RANKS_MAX; n++)
            if ((r->tried >> n & 1) != 0 &&
                memcmp(r->member[n].node, r->guest[i].node, SH_NODE_ID_LEN) == 0)
                r->guest[i].tried = true;
    }
    r->too_small = r->too_small || too_small;
    r->gathering = true;
    r->without_at = SH_DEADLINE_NEVER;
}

void sh_roster_lost(sh_roster *r)
{
    if (r->degrade_ms >= 0) sh_roster_reform(r, r->degrade_ms);
}

_Static_assert(SH_RANKS_MAX <= 64, "a bit for each number");

void sh_roster_resume(sh_roster *r, uint64_t left)
{
    if (r->formed && !r->resumed) return;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (left >> i & 1) sh_roster_leave(r, i);
    r->formed = r->resumed = true;
    r->gathering = false;
    sh_roster_lost(r);
}

uint64_t sh_roster_left(const sh_roster *r)
{
    uint64_t bits = 0;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_LEFT) bits |= UINT64_C(1) << i;
    return bits;
}

/* The first of several failures in a row counts: attempts that fail do not prolong the wait. */
void sh_roster_reform(sh_roster *r, int64_t patience_ms)
{
    if (r->formed && !r->needs_all && r->without_at == SH_DEADLINE_NEVER)
        r->without_at = sh_deadline_in_ms(patience_ms);
}

sh_deadline sh_roster_without_at(const sh_roster *r)
{
    sh_deadline soonest = sh_deadline_in_ms(PATIENCE_MS_MIN);
    return r->without_at > soonest ? r->without_at : soonest;
}

bool sh_roster_expects(const sh_roster *r, int number)
{
    return r->member[number].state == SH_MEMBER_EXPECTED;
}

bool sh_roster_waits_for(const sh_roster *r, int number, bool late)
{
    bool for_ever = r->member[number].joined && r->degrade_ms < 0;
    return sh_roster_expects(r, number) && (!late || for_ever);
}

bool sh_roster_is_open(const sh_roster *r)
{
    return r->formed && sh_deadline_passed(r->open_at);
}

/* Numbers that nobody had come first, then those of ranks that never came in, then those of ranks
 * that left. */
static int free_number(const sh_roster *r)
{
    static const uint8_t none[SH_NODE_ID_LEN];
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_UNKNOWN &&
            memcmp(r->member[i].node, none, sizeof(none)) == 0)
            return i;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_UNKNOWN) return i;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_LEFT) return i;
    return -1;
}

int sh_roster_assign(sh_roster *r, const uint8_t node[SH_NODE_ID_LEN])
{
    static const uint8_t none[SH_NODE_ID_LEN];
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (memcmp(r->member[i].node, node, SH_NODE_ID_LEN) == 0 &&
            memcmp(node, none, sizeof(none)))
            return i;
    int number = free_number(r);
    if (number > 0) memcpy(r->member[number].node, node, SH_NODE_ID_LEN);
    return number;
}

void sh_roster_know(sh_roster *r, int number, const uint8_t node[SH_NODE_ID_LEN])
{
    memcpy(r->member[number].node, node, SH_NODE_ID_LEN);
}

void sh_roster_expect(sh_roster *r, int number)
{
    r->member[number].state = SH_MEMBER_EXPECTED;
}

/* Where those who were there could not hold the model, one more may be what is needed: a forming
 * with it is tried, without those who are missing. */
void sh_roster_came(sh_roster *r, int number, bool survivor)
{
    if (r->needs_all && !sh_roster_expects(r, number)) {
        r->needs_all = false;
        r->without_at = sh_deadline_in_ms(0);
    }
    if (!survivor) r->member[number].served = false;
}

void sh_roster_leave(sh_roster *r, int number)
{
    r->member[number].state = SH_MEMBER_LEFT;
    r->member[number].left = true;
}

/* One that was expected has not come. */
static void stay_away(sh_roster *r, int number)
{
    r->member[number].state = r->member[number].left     ? SH_MEMBER_LEFT
                              : r->member[number].joined ? SH_MEMBER_MISSING
                                                         : SH_MEMBER_UNKNOWN;
}

/* One that the group never goes on without is no newcomer, whatever its process. */
static bool is_new(const sh_roster *r, int number)
{
    return !r->member[number].served && (r->degrade_ms >= 0 || !r->member[number].joined);
}

void sh_roster_formed(sh_roster *r, const int *numbers, int count)
{
    bool stood_up = false; /* by one that had asked to come in */
    if (sh_roster_has_new(r)) r->closed_ms = 0;
    for (int i = 0; i < SH_RANKS_MAX; i++) {
        bool here = false;
        for (int k = 0; k < count; k++) here = here || numbers[k] == i;
        stood_up = stood_up || (!here && sh_roster_expects(r, i) && is_new(r, i));
        if (here)
            r->member[i].state = SH_MEMBER_EXPECTED;
        else if (sh_roster_expects(r, i))
            stay_away(r, i);
        if (here) r->member[i].left = false;
        r->member[i].joined = r->member[i].joined || here;
        r->member[i].served = here;
    }
    r->formed = true;
    r->resumed = r->needs_all = false;
    r->without_at = SH_DEADLINE_NEVER;
    if (stood_up) sh_roster_close(r);
}

void sh_roster_need_all(sh_roster *r)
{
    for (int i = 0; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_MISSING) r->member[i].state = SH_MEMBER_EXPECTED;
    r->needs_all = true;
    r->without_at = SH_DEADLINE_NEVER;
}

int64_t sh_roster_close(sh_roster *r)
{
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (sh_roster_expects(r, i) && is_new(r, i)) stay_away(r, i);
    r->closed_ms = r->closed_ms == 0 ? CLOSED_MS_FIRST : 2 * r->closed_ms;
    if (r->closed_ms > CLOSED_MS_MAX) r->closed_ms = CLOSED_MS_MAX;
    r->open_at = sh_deadline_in_ms(r->closed_ms);
    return r->closed_ms;
}

void sh_roster_begin(sh_roster *r)
{
    r->tried = 0;
}

void sh_roster_try(sh_roster *r, int number)
{
    r->tried |= UINT64_C(1) << number;
}

bool sh_roster_has_new(const sh_roster *r)
{
    for (int i = 1; i < SH_RANKS_MAX && r->formed; i++)
        if ((r->tried >> i & 1) != 0 && is_new(r, i)) return true;
    return false;
}

int sh_roster_missing(const sh_roster *r, int out[SH_RANKS_MAX])
{
    int count = 0;
    for (int i = 0; i < SH_RANKS_MAX; i++)
        if (r->member[i].state == SH_MEMBER_MISSING) out[count++] = i;
    return count;
}
