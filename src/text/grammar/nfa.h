/* nfa.h - nondeterministic automata, and their translation into deterministic ones.
 *
 * Edges are ranges of symbols. For sets of strings a symbol is a code point; for the rules of a
 * grammar it is a byte, or SH_NFA_CALL + the number of a rule that is matched in between.
 *
 * Threads: one owner. */
#ifndef SH_TEXT_GRAMMAR_NFA_H
#define SH_TEXT_GRAMMAR_NFA_H

#include "text/grammar/expr.h"

enum { SH_NFA_CALL = 1 << 24 };

typedef struct {
    uint32_t lo, hi; /* lo > hi: without a symbol */
    uint32_t to;
    uint32_t next; /* of the same state; 0: none */
} sh_nfa_edge;

typedef struct sh_nfa {
    sh_grammar_builder *builder; /* for errors and work */
    /* The symbol of a rule; NULL where there are only characters. */
    uint32_t (*call_of)(struct sh_nfa *nfa, sh_expr rule);
    void *owner;
    uint32_t *heads; /* first edge of each state */
    uint32_t state_count, state_cap;
    sh_nfa_edge *edges; /* [0] is not used */
    uint32_t edge_count, edge_cap;
} sh_nfa;

void sh_nfa_init(sh_nfa *nfa, sh_grammar_builder *b);
void sh_nfa_reset(sh_nfa *nfa);
void sh_nfa_clear(sh_nfa *nfa); /* empties it but keeps the memory */

uint32_t sh_nfa_state(sh_nfa *nfa);
void sh_nfa_add(sh_nfa *nfa, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
void sh_nfa_skip(sh_nfa *nfa, uint32_t from, uint32_t to); /* without a symbol */

/* Adds the expression between two states. Adds no edge into `from` nor out of `to`. */
void sh_nfa_add_expr(sh_nfa *nfa, sh_expr e, uint32_t from, uint32_t to);

/* The deterministic automaton from `start`, accepting at `end`. False after an error, which is in
 * the builder. *out is on the heap: sh_dfa_reset. Not trimmed: states may be dead ends. */
bool sh_nfa_determinize(sh_nfa *nfa, uint32_t start, uint32_t end, sh_lang *out);
void sh_dfa_reset(sh_lang *dfa);

/* Puts together an automaton state by state, in order. */
typedef struct {
    sh_lang lang;
    size_t state_cap, edge_cap, edge_count;
} sh_dfa_writer;

void sh_dfa_begin_state(sh_dfa_writer *w, bool accepts);
void sh_dfa_add_edge(sh_dfa_writer *w, uint32_t lo, uint32_t hi, uint32_t to);
void sh_dfa_finish(sh_dfa_writer *w); /* sets the end of the last state */

#endif
