/* A model reasons, then writes text, then calls: that is the order in which output of several kinds
 * is reported that arrived together. */
#include "api/answer_blocks.h"

void sh_blocks_close(sh_block_walk *walk, const sh_block_fns *fns, void *ctx)
{
    if (walk->open == SH_BLOCK_NONE) return;
    fns->end(ctx, walk->open);
    walk->open = SH_BLOCK_NONE;
    walk->index++;
}

static void block_open(sh_block_walk *walk, sh_block_kind kind, const sh_call *call,
                       const sh_block_fns *fns, void *ctx)
{
    sh_blocks_close(walk, fns, ctx);
    walk->open = kind;
    fns->begin(ctx, kind, call);
}

static void text_walk(sh_block_walk *walk, sh_block_kind kind, const sh_buf *text,
                      const sh_block_fns *fns, void *ctx)
{
    if (text->len == 0) return;
    if (walk->open != kind) block_open(walk, kind, NULL, fns, ctx);
    fns->delta(ctx, kind, sh_buf_str(text));
}

static void call_walk(sh_block_walk *walk, const sh_choice *choice, int index,
                      const sh_block_fns *fns, void *ctx)
{
    const sh_call *call = &choice->calls[index];
    if (!sh_call_has_pending(call)) return;
    if (!call->announced) {
        block_open(walk, SH_BLOCK_CALL, call, fns, ctx);
        walk->call = index;
    }
    if (call->args.len > 0) fns->delta(ctx, SH_BLOCK_CALL, sh_buf_str(&call->args));
}

/* Calls come one after the other, so only the one that is open can have more arguments, and they
 * come before anything else. */
void sh_blocks_walk(sh_block_walk *walk, const sh_choice *choice, const sh_block_fns *fns,
                    void *ctx)
{
    int next = 0;
    if (walk->open == SH_BLOCK_CALL) {
        call_walk(walk, choice, walk->call, fns, ctx);
        next = walk->call + 1;
    }
    text_walk(walk, SH_BLOCK_REASONING, &choice->reasoning, fns, ctx);
    text_walk(walk, SH_BLOCK_TEXT, &choice->content, fns, ctx);
    for (int i = next; i < choice->call_count; i++)
        if (!choice->calls[i].announced) call_walk(walk, choice, i, fns, ctx);
}
