/* answer_blocks.h - the pending output of an answer as a sequence of blocks.
 *
 * For dialects that divide an answer into blocks of one kind each: reasoning, text, a call. Output
 * arrives in deltas; the walk says where a block begins and ends around them. A whole answer is the
 * same walk over everything at once.
 *
 * Threads: one owner. */
#ifndef SH_API_ANSWER_BLOCKS_H
#define SH_API_ANSWER_BLOCKS_H

#include "api/answer.h"

typedef enum {
    SH_BLOCK_NONE,
    SH_BLOCK_REASONING,
    SH_BLOCK_TEXT,
    SH_BLOCK_CALL,
} sh_block_kind;

/* Where a walk is; zero at first. */
typedef struct {
    sh_block_kind open;
    int index; /* of the open block, or of the next one */
    int call;  /* of the choice, while a call is open */
} sh_block_walk;

/* call: of a block that is one, else NULL. */
typedef struct {
    void (*begin)(void *ctx, sh_block_kind kind, const sh_call *call);
    void (*delta)(void *ctx, sh_block_kind kind, sh_str text);
    void (*end)(void *ctx, sh_block_kind kind);
} sh_block_fns;

/* Walks over the pending output; and ends the block that is open, if any. */
void sh_blocks_walk(sh_block_walk *walk, const sh_choice *choice, const sh_block_fns *fns,
                    void *ctx);
void sh_blocks_close(sh_block_walk *walk, const sh_block_fns *fns, void *ctx);

#endif
