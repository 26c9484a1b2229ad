/* automaton.h - a compiled grammar: one deterministic automaton for each rule.
 *
 * A state has edges over bytes and calls: match another rule, then go on at `back`. Several calls,
 * or calls and bytes, may be possible at once; the matcher follows all of them. States that cannot
 * complete a text have been removed, so whatever matches so far can be completed, within the limit
 * on nesting: `height` is the number of calls within calls that the shortest completion of the rule
 * needs.
 *
 * Threads: immutable. */
#ifndef SH_TEXT_GRAMMAR_AUTOMATON_H
#define SH_TEXT_GRAMMAR_AUTOMATON_H

#include "text/grammar/grammar.h"

typedef struct {
    uint8_t lo, hi;
    uint32_t to;
} sh_byte_edge;

typedef struct {
    uint32_t rule;
    uint32_t start; /* the first state of the rule */
    uint32_t back;  /* where to go on; SH_CALL_LAST if the caller has nothing left to match */
    bool leaf;      /* the rule calls no other, so it does not count as nesting */
} sh_rule_call;

#define SH_CALL_LAST UINT32_MAX

/* What the mask walk may skip: from this state, up to `chars` characters in a row match, whichever
 * they are, as long as they are in `ascii`, or beyond ASCII if `multibyte` is set. The states that
 * up to `alike` of them lead to have the same edges and calls as this one, but for those that lead
 * on in the row; `last` is the last of these. Both counts are UINT32_MAX for a state that leads to
 * itself. The run is closed if no text of its characters is longer: neither the state after the
 * last one nor a way out of the row before takes another of them. */
typedef struct {
    uint64_t ascii[2];
    uint32_t chars;
    uint32_t alike;
    uint32_t next; /* the state after one of them */
    uint32_t last;
    bool multibyte;
    bool closed;
} sh_char_run;

typedef struct {
    uint32_t edges; /* the first one; up to the next state's */
    uint32_t calls;
    uint16_t height;
    bool accepts;
    sh_char_run run;
} sh_auto_state;

struct sh_grammar {
    sh_auto_state *states; /* [state_count + 1]; a text starts at 0 */
    sh_byte_edge *edges;
    sh_rule_call *calls;
    uint32_t state_count, edge_count, call_count, rule_count;
};

static inline bool sh_auto_is_plain(const sh_grammar *g, uint32_t state)
{
    const sh_auto_state *s = &g->states[state];
    return !s->accepts && s->calls == s[1].calls;
}

#endif
