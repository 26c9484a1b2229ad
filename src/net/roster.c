/* The rules of membership. They touch no socket and no clock but the deadlines, so that they can be
 * tested without a group.
 *
 * Every attempt to form needs a moment of its own: ranks that lost the group come back within a
 * tenth of a second or two, and one that is only slower than the others must not be left out for
 * that. */
#include "net/roster.h"

#include <string.h>

enum {
    PATIENCE_MS_MIN = 1500,
    CLOSED_MS_FIRST = 5000,
    CLOSED_MS_MAX = 640000,
};

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

void sh_roster_lost(sh_roster *r)
{
    if (r->degrade_ms >= 0) sh_roster_reform(r, r->degrade_ms);
}

_Static_assert(SH_RANKS_MAX <= 64, "a bit for each number");

void sh_roster_resume(sh_roster *r, uint64_t left)
{
    if (r->formed && !r->resumed) return;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (left >> i & 1) r->member[i].state = SH_MEMBER_LEFT;
    r->formed = r->resumed = true;
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
        else if (r->member[i].state == SH_MEMBER_EXPECTED)
            r->member[i].state = r->member[i].joined ? SH_MEMBER_MISSING : SH_MEMBER_UNKNOWN;
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
        if (r->member[i].state == SH_MEMBER_EXPECTED && is_new(r, i))
            r->member[i].state = r->member[i].joined ? SH_MEMBER_MISSING : SH_MEMBER_UNKNOWN;
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
