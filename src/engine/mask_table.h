/* mask_table.h - which masks the ranks have.
 *
 * Each rank keeps masks under numbers (engine/step_plan.h), so that a mask is sent once and then
 * named. Rank 0 decides which one is replaced; this is its view of what they have.
 *
 * Threads: the scheduler's. */
#ifndef SH_ENGINE_MASK_TABLE_H
#define SH_ENGINE_MASK_TABLE_H

#include "engine/constraint.h"

typedef struct sh_mask_table sh_mask_table;

sh_mask_table *sh_mask_table_create(int count);
void sh_mask_table_free(sh_mask_table *table);

/* A new plan begins: the masks of earlier ones may be replaced. */
void sh_mask_table_turn(sh_mask_table *table);

/* The number of a mask, from 1. If the ranks do not have it (*send), it gets the number of the mask
 * that was not used for longest. A plan must not use more than `count` masks. */
int sh_mask_table_number(sh_mask_table *table, const sh_mask_key *key, bool *send);

/* The mask of this number turned out to be another one; NULL: one that is not worth naming. */
void sh_mask_table_rename(sh_mask_table *table, int number, const sh_mask_key *key);

#endif
