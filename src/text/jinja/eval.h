/* eval.h - walks a parsed template: expressions (eval.c) and statements (exec.c).
 *
 * Threads: a run has one owner; the tree is shared and read-only. */
#ifndef SH_TEXT_JINJA_EVAL_H
#define SH_TEXT_JINJA_EVAL_H

#include "text/jinja/call.h"
#include "text/jinja/node.h"

sh_jv sh_jeval(sh_jrun *run, const sh_jnode *node);

/* Applies a filter node to a value other than its own target. */
sh_jv sh_jeval_filter(sh_jrun *run, const sh_jnode *node, sh_jv value);

/* Evaluates a CALL node, with `caller` as an additional named argument unless it is MISSING. */
sh_jv sh_jeval_call(sh_jrun *run, const sh_jnode *node, sh_jv caller);

/* The slot that a reference denotes. */
sh_jv *sh_jref_slot(sh_jrun *run, sh_jref ref);

/* Renders the tree into the run's output. */
void sh_jtree_run(sh_jrun *run, const sh_jtree *tree);

#endif
