/* roster.h - who belongs to a group whose ranks come and go; kept by rank 0.
 *
 * A member keeps its number for as long as the group lives. Before the group has formed for the
 * first time, all members are needed. Later one that is lost is waited for, and after a while the
 * group forms without it: it is then missing, until it comes back. A member that left on its own
 * wish is not missed.
 *
 * A group that gathers is made of whoever comes. Until it forms for the first time, ranks that ask
 * are its guests; when there are enough they get numbers, in the order of their node ids.
 *
 * Threads: one owner, who lends it to sh_mesh_join. */
#ifndef SH_NET_ROSTER_H
#define SH_NET_ROSTER_H

#include "base/clock.h"
#include "net/peer_messages.h"

typedef enum {
    SH_MEMBER_UNKNOWN,
    SH_MEMBER_EXPECTED, /* in the group, or waited for while it forms */
    SH_MEMBER_MISSING,  /* the group has formed without it */
    SH_MEMBER_LEFT,
} sh_member_state;

/* A rank that asks to come in before there is a group. */
typedef struct {
    uint8_t node[SH_NODE_ID_LEN];
    uint64_t life;
    int64_t first_ns, last_ns; /* when it asked */
    bool tried;                /* it was in a group that could not hold the model */
} sh_guest;

typedef struct {
    struct {
        sh_member_state state;
        bool joined; /* has been in the group */
        bool served; /* in the last group that formed, as the same process */
        bool left;   /* on its own wish, and has not been in the group since */
        uint8_t node[SH_NODE_ID_LEN];
    } member[SH_RANKS_MAX];
    int64_t degrade_ms;     /* how long to wait for a lost member; -1: indefinitely */
    bool formed;            /* before */
    bool resumed;           /* before, under another process; this one has not formed it yet */
    bool needs_all;         /* those who are there cannot hold the model */
    sh_deadline without_at; /* when the group forms without those who have not come */
    sh_deadline open_at;    /* newcomers are let in from then on */
    int64_t closed_ms;      /* how long they were kept out the last time */
    uint64_t tried;         /* those whom the last forming set out to connect, a bit for each */
    bool gathers;           /* the first group is made of whoever comes */
    bool gathering;         /* guests are being waited for */
    bool too_small;         /* those who were there at the last attempt could not hold the model */
    int min_ranks;          /* form when so many are there, rank 0 included; 0: not by number */
    sh_deadline gather_end; /* or at this time, with whoever is there */
    sh_guest guest[SH_RANKS_MAX];
    int guest_count;
} sh_roster;

/* Members 0 to size - 1. */
void sh_roster_init(sh_roster *roster, int size, int64_t degrade_ms);

/* The first group, of rank 0 and whoever comes, forms when there are min_ranks, or after wait_ms;
 * without either (0, and -1) at once. Call it before anything else. */
void sh_roster_gather(sh_roster *roster, int min_ranks, int64_t wait_ms);

/* A rank asks, at this time (sh_clock_ns), while guests are waited for. False: its node id is that
 * of another guest, who was first and still asks. */
bool sh_roster_invite(sh_roster *roster, const sh_hello *guest, int64_t now_ns);

/* How many guests there are. */
int sh_roster_guests(const sh_roster *roster, int64_t now_ns);

/* Whether the group is to form now. If so, guests have become members. */
bool sh_roster_settle(sh_roster *roster, int64_t now_ns);

/* The first group could not form: guests are waited for again, and if it was too small for the
 * model, until there is one that was not in it. */
void sh_roster_regather(sh_roster *roster, bool too_small);

/* The group was lost, and has to form again. */
void sh_roster_lost(sh_roster *roster);

/* The same by plan, waiting only so long. */
void sh_roster_reform(sh_roster *roster, int64_t patience_ms);

/* There was a group already: this process took over from another rank 0. `left` is what that one's
 * sh_roster_left was, as far as a rank remembers. */
void sh_roster_resume(sh_roster *roster, uint64_t left);

/* Until when an attempt to form that starts now waits for those who are expected. */
sh_deadline sh_roster_without_at(const sh_roster *roster);

bool sh_roster_expects(const sh_roster *roster, int number);

/* Whether a forming waits for this member; late: sh_roster_without_at has passed. */
bool sh_roster_waits_for(const sh_roster *roster, int number, bool late);

/* Whether a rank that is not expected may come in now. */
bool sh_roster_is_open(const sh_roster *roster);

/* The number of a rank without one: that of its last life, or a new one, or one that nobody uses
 * any more. -1 when all are taken. */
int sh_roster_assign(sh_roster *roster, const uint8_t node[SH_NODE_ID_LEN]);

/* This rank has a number, perhaps from an earlier rank 0. */
void sh_roster_know(sh_roster *roster, int number, const uint8_t node[SH_NODE_ID_LEN]);

/* This rank is about to come in. */
void sh_roster_expect(sh_roster *roster, int number);

/* It has come, while the group forms; survivor: its process was in a group before. */
void sh_roster_came(sh_roster *roster, int number, bool survivor);

void sh_roster_leave(sh_roster *roster, int number);
uint64_t sh_roster_left(const sh_roster *roster); /* a bit for each number */

/* The group has formed of the ranks numbers[0..count). */
void sh_roster_formed(sh_roster *roster, const int *numbers, int count);

/* It could not, since the model is too large for those who came: nobody can be missing. */
void sh_roster_need_all(sh_roster *roster);

/* A forming begins; later, these are the ranks that it is to connect. */
void sh_roster_begin(sh_roster *roster);
void sh_roster_try(sh_roster *roster, int number);

/* It could not with the newcomers among those who came: none are let in for a while, which doubles
 * each time in a row. Returns it in milliseconds. */
int64_t sh_roster_close(sh_roster *roster);

/* Whether some of those that it was to connect are newcomers: the group has served without them, or
 * at least without their process, and can do so again. */
bool sh_roster_has_new(const sh_roster *roster);

/* The numbers of members that are missing; returns their count. */
int sh_roster_missing(const sh_roster *roster, int out[SH_RANKS_MAX]);

#endif
