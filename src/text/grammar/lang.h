/* lang.h - regular sets of strings, as deterministic automata over code points.
 *
 * Constraints on a string (pattern, length, format, excluded names) become sets, which are then
 * intersected; only the result is written as bytes. State 0 is the start; a missing edge means that
 * nothing matches. Every state is reachable and can reach an accepting one, except that the empty
 * set has one state.
 *
 * Sets live in the builder's arena. A function that fails leaves its error there and returns NULL;
 * NULL as an argument gives NULL.
 *
 * Threads: as for the builder. */
#ifndef SH_TEXT_GRAMMAR_LANG_H
#define SH_TEXT_GRAMMAR_LANG_H

#include "text/grammar/charset.h"
#include "text/grammar/grammar.h"

typedef struct {
    uint32_t lo, hi;
    uint32_t to;
} sh_lang_edge;

typedef struct {
    uint32_t first; /* edges, sorted; up to the next state's */
    bool accepts;
} sh_lang_state;

typedef struct sh_lang {
    sh_lang_state *states; /* [count + 1] */
    sh_lang_edge *edges;
    uint32_t count;
} sh_lang;

/* Characters that no text has: the start and the end of it, for ^ and $. */
enum { SH_CHAR_BEGIN = SH_CHAR_MAX + 1, SH_CHAR_END = SH_CHAR_MAX + 2 };

const sh_lang *sh_lang_any(sh_grammar_builder *b); /* all strings */
const sh_lang *sh_lang_words(sh_grammar_builder *b, const sh_str *words, size_t count);

/* max may be SH_EXPR_UNLIMITED. */
const sh_lang *sh_lang_length(sh_grammar_builder *b, uint32_t min, uint32_t max);

/* Of an expression without rules, bytes and tokens. */
const sh_lang *sh_lang_from_expr(sh_grammar_builder *b, sh_expr e);

/* A copy of an automaton on the heap, trimmed. */
const sh_lang *sh_lang_keep(sh_grammar_builder *b, const sh_lang *dfa);

/* Strings that match the whole pattern, or of which a part matches. */
const sh_lang *sh_lang_regex(sh_grammar_builder *b, sh_str pattern, bool whole);

const sh_lang *sh_lang_intersect(sh_grammar_builder *b, const sh_lang *x, const sh_lang *y);
const sh_lang *sh_lang_subtract(sh_grammar_builder *b, const sh_lang *x, const sh_lang *y);

/* Strings in which no member occurs, or which end with the first occurrence of one. */
const sh_lang *sh_lang_before_first(sh_grammar_builder *b, const sh_str *words, size_t count,
                                    bool including);

bool sh_lang_is_empty(const sh_lang *lang);
bool sh_lang_has(const sh_lang *lang, sh_str text);

/* The edges of a state. */
static inline const sh_lang_edge *sh_lang_edges(const sh_lang *lang, uint32_t state, size_t *count)
{
    *count = lang->states[state + 1].first - lang->states[state].first;
    return &lang->edges[lang->states[state].first];
}

#endif
