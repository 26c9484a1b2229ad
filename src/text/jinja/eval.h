/* eval.h - walks a parsed template: expressions (eval.c) and statements (exec.c).
 *
 * Threads: a run has one owner; the tree is shared and read-only. */
#ifndef SH_TEXT_JINJA_EVAL_H
#define SH_TEXT_JINJA_EVAL_H

#include "text/jinja/call.h"
#include "text/jinja/node.h"

sh_jv sh_jeval(sh_jrun *run, const sh_jnode *node);

/* A filter node applied to a value that does not come from its own target. */
sh_jv sh_jeval_filter(sh_jrun *run, const sh_jnode *node, sh_jv value);

/* Calls what a CALL node names, with `caller` as one more named argument unless it is MISSING. */
sh_jv sh_jeval_call(sh_jrun *run, const sh_jnode *node, sh_jv caller);

/* The slot that a name stands for. */
sh_jv *sh_jref_slot(sh_jrun *run, sh_jref ref);

/* Renders the tree into the run's output. */
void sh_jtree_run(sh_jrun *run, const sh_jtree *tree);

#endif
