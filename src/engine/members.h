/* members.h - when a running group re-forms because ranks come or go; rank 0's decision.
 *
 * Threads: belongs to the engine's thread. */
#ifndef SH_ENGINE_MEMBERS_H
#define SH_ENGINE_MEMBERS_H

#include "engine/model_group.h"
#include "net/roster.h"

typedef struct {
    sh_roster roster;
    int64_t rejoin_ms; /* ranks that want to come in wait so long for a quiet moment */
    int64_t polled_ns;
} sh_members;

/* degrade_ms: after a loss the group forms without ranks that do not come back within this time;
 * -1: never. */
void sh_members_init(sh_members *members, int size, int64_t degrade_ms, int64_t rejoin_ms);

/* Answers ranks that prepare to come in. Whether the group should re-form now; `why` names the
 * rank. quiet: no request would notice. Cheap enough to be called after every step. */
bool sh_members_poll(sh_members *members, sh_group *group, sh_model_group *mg, bool quiet,
                     sh_err *why);

/* These ranks, a bit for each number, are not coming back: those that are missing, or waited for
 * since the group was lost with them (`lost`), count as ranks that left. */
void sh_members_dismiss(sh_members *members, uint64_t ranks, uint64_t lost);

/* The group was lost, and has to form again. */
void sh_members_lost(sh_members *members, sh_group *group, const sh_model_group *mg);

/* The group has formed, or could not; then there may be none. */
void sh_members_formed(sh_members *members, const sh_group *group);
void sh_members_failed(sh_members *members, const sh_group *group, const sh_err *why);

#endif
