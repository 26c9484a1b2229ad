/* limits.h - what a grammar may cost. Grammars come with requests, so each of these is reached by
 * someone; the error names the limit.
 *
 * Threads: constants. */
#ifndef SH_TEXT_GRAMMAR_LIMITS_H
#define SH_TEXT_GRAMMAR_LIMITS_H

enum {
    SH_GRAMMAR_TEXT_MAX = 1 << 20,    /* bytes of a pattern, a GBNF text, a literal */
    SH_GRAMMAR_EXPRS_MAX = 1 << 20,   /* expressions in a builder */
    SH_GRAMMAR_ARENA_MAX = 128 << 20, /* memory of a builder */
    SH_GRAMMAR_RULES_MAX = 1 << 15,   /* rules of a compiled grammar */
    SH_GRAMMAR_STATES_MAX = 1 << 18,  /* automaton states of all rules */
    SH_GRAMMAR_EDGES_MAX = 1 << 21,   /* their byte ranges and calls */
    SH_GRAMMAR_NEST_MAX = 200,        /* groups in a pattern, expressions, schemas within schemas */
    SH_GRAMMAR_WORK_MAX = 40000000,   /* elementary steps of compiling, well under a second */
    SH_GRAMMAR_STACK_MAX = 400,       /* calls within calls; deeper nesting does not match */
    SH_GRAMMAR_CHAIN_MAX = 4000,      /* rules that begin with each other */
    SH_GRAMMAR_PARALLEL_MAX = 4096,   /* ways to read one text at the same time */
    SH_LANG_STATES_MAX = 1 << 15,     /* states of one set of strings */
    SH_MATCHER_MEMORY_MAX = 64 << 20, /* states and stacks of one matcher, without masks */
    SH_MATCHER_WORK_MAX = 1 << 22,    /* steps of single threads for one mask, about 0.1 s */
    SH_MATCHER_MASKS_MAX = 256,       /* masks that a matcher keeps */
};

#endif
