/* mask_maker.h - makes masks on a thread of its own, while the forward pass runs that they are for.
 *
 * The owner adds orders, starts the work, and waits for it before it reads the results or uses the
 * constraints again. If the thread has not begun by then (a busy machine, or it could not be
 * started), the owner does the work itself: a mask is never later than without the thread.
 *
 * Threads: one owner. */
#ifndef SH_ENGINE_MASK_MAKER_H
#define SH_ENGINE_MASK_MAKER_H

#include "engine/constraint.h"

/* A mask to make, and what came of it. */
typedef struct {
    sh_constraint *constraint;
    sh_match_state state;
    bool may_end;
    int number;      /* the owner's */
    uint64_t *bits;  /* filled; all are set after an error */
    sh_mask_key key; /* of the mask */
    sh_err *err;     /* NULL: it was made; owned */
} sh_mask_order;

typedef struct sh_mask_maker sh_mask_maker;

/* `max`: orders at once. */
sh_mask_maker *sh_mask_maker_create(int max);
void sh_mask_maker_free(sh_mask_maker *maker); /* not while it works */

/* Adds an order to the next work; the result is to be filled. */
sh_mask_order *sh_mask_maker_add(sh_mask_maker *maker);

/* False: there are no orders. */
bool sh_mask_maker_start(sh_mask_maker *maker);

/* Waits for the work that was started, which is bounded (text/grammar/limits.h), and gives its
 * orders. */
sh_mask_order *sh_mask_maker_wait(sh_mask_maker *maker, int *count);

/* Forgets all orders. */
void sh_mask_maker_clear(sh_mask_maker *maker);

#endif
