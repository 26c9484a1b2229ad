/* Sets of strings: made from expressions, combined, trimmed. */
#include "text/grammar/lang.h"

#include "base/alloc.h"
#include "text/grammar/limits.h"
#include "text/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

#define NO_STATE UINT32_MAX

/* ---- trimming ---- */

/* Whether each state can reach an accepting one. Walking backwards settles nearly everything at
 * once, since edges mostly lead to later states. */
static bool *find_live(sh_grammar_builder *b, const sh_lang *dfa, uint32_t symbol_max)
{
    bool *live = sh_alloc_array(dfa->count + 1, sizeof(*live));
    for (bool changed = true; changed && sh_expr_ok(b);) {
        changed = false;
        sh_expr_spend(b, dfa->count);
        for (uint32_t s = dfa->count; s-- > 0;) {
            if (live[s]) continue;
            size_t count;
            const sh_lang_edge *edges = sh_lang_edges(dfa, s, &count);
            live[s] = dfa->states[s].accepts;
            for (size_t i = 0; i < count && !live[s] && edges[i].lo <= symbol_max; i++)
                live[s] = live[edges[i].to];
            changed |= live[s];
        }
    }
    return live;
}

/* Copies the live states that `start` reaches into the arena, in the order in which they are
 * reached. Symbols above `symbol_max` are dropped. */
static const sh_lang *trim(sh_grammar_builder *b, const sh_lang *dfa, uint32_t start,
                           uint32_t symbol_max)
{
    bool *live = find_live(b, dfa, symbol_max);
    uint32_t *number = sh_alloc_array(dfa->count + 1, sizeof(*number)); /* + 1; 0: not reached */
    uint32_t *queue = sh_alloc_array(dfa->count + 1, sizeof(*queue));
    uint32_t queued = 1;
    sh_dfa_writer w = {0};

    queue[0] = start;
    number[start] = 1;
    for (uint32_t i = 0; i < queued; i++) {
        size_t count;
        const sh_lang_edge *edges = sh_lang_edges(dfa, queue[i], &count);
        sh_dfa_begin_state(&w, dfa->states[queue[i]].accepts);
        for (size_t k = 0; k < count && edges[k].lo <= symbol_max; k++) {
            uint32_t to = edges[k].to;
            uint32_t hi = edges[k].hi < symbol_max ? edges[k].hi : symbol_max;
            if (!live[to]) continue;
            if (number[to] == 0) {
                queue[queued] = to;
                number[to] = ++queued;
            }
            sh_dfa_add_edge(&w, edges[k].lo, hi, number[to] - 1);
        }
    }
    sh_dfa_finish(&w);
    free(live);
    free(number);
    free(queue);

    sh_lang *out = sh_arena_alloc(&b->arena, sizeof(*out));
    out->count = w.lang.count;
    out->states = sh_arena_array(&b->arena, out->count + 1, sizeof(*out->states));
    out->edges = sh_arena_array(&b->arena, w.edge_count, sizeof(*out->edges));
    memcpy(out->states, w.lang.states, (out->count + 1) * sizeof(*out->states));
    if (w.edge_count > 0) memcpy(out->edges, w.lang.edges, w.edge_count * sizeof(*out->edges));
    sh_dfa_reset(&w.lang);
    return sh_expr_spend(b, out->count) ? out : NULL;
}

const sh_lang *sh_lang_keep(sh_grammar_builder *b, const sh_lang *dfa)
{
    return trim(b, dfa, 0, SH_CHAR_MAX);
}

/* ---- simple sets ---- */

const sh_lang *sh_lang_length(sh_grammar_builder *b, uint32_t min, uint32_t max)
{
    sh_dfa_writer w = {0};
    uint32_t last = max == SH_EXPR_UNLIMITED ? min : max;
    for (uint32_t i = 0; i <= last && sh_expr_spend(b, 1); i++) {
        sh_dfa_begin_state(&w, i >= min);
        if (i < last)
            sh_dfa_add_edge(&w, 0, SH_CHAR_MAX, i + 1);
        else if (max == SH_EXPR_UNLIMITED)
            sh_dfa_add_edge(&w, 0, SH_CHAR_MAX, i);
    }
    sh_dfa_finish(&w);
    const sh_lang *out = sh_expr_ok(b) ? trim(b, &w.lang, 0, SH_CHAR_MAX) : NULL;
    sh_dfa_reset(&w.lang);
    return out;
}

const sh_lang *sh_lang_any(sh_grammar_builder *b)
{
    return sh_lang_length(b, 0, SH_EXPR_UNLIMITED);
}

static bool determinize_expr(sh_grammar_builder *b, sh_expr e, sh_lang *out)
{
    sh_nfa nfa;
    sh_nfa_init(&nfa, b);
    uint32_t start = sh_nfa_state(&nfa), end = sh_nfa_state(&nfa);
    sh_nfa_add_expr(&nfa, e, start, end);
    bool ok = sh_expr_ok(b) && sh_nfa_determinize(&nfa, start, end, out);
    sh_nfa_reset(&nfa);
    return ok;
}

const sh_lang *sh_lang_from_expr(sh_grammar_builder *b, sh_expr e)
{
    sh_lang dfa;
    if (!determinize_expr(b, e, &dfa)) return NULL;
    const sh_lang *out = trim(b, &dfa, 0, SH_CHAR_MAX);
    sh_dfa_reset(&dfa);
    return out;
}

static sh_expr char_range(sh_grammar_builder *b, uint32_t lo, uint32_t hi)
{
    sh_char_range range = {lo, hi};
    return sh_expr_class(b, &(sh_charset){.ranges = &range, .count = 1});
}

static sh_expr word_expr(sh_grammar_builder *b, sh_str word)
{
    sh_expr *chars = sh_alloc_array(word.len + 1, sizeof(*chars));
    size_t count = 0;
    for (size_t i = 0; i < word.len && sh_expr_ok(b);) {
        uint32_t code;
        int len = sh_utf8_decode(word.ptr + i, word.len - i, &code);
        if (len == 0)
            sh_expr_fail(b, SH_ERR_INPUT, "a string is not valid UTF-8");
        else
            chars[count++] = char_range(b, code, code);
        i += (size_t)(len > 0 ? len : 1);
    }
    sh_expr e = sh_expr_seq(b, chars, count);
    free(chars);
    return e;
}

static sh_expr words_expr(sh_grammar_builder *b, const sh_str *words, size_t count)
{
    sh_expr *items = sh_alloc_array(count, sizeof(*items));
    for (size_t i = 0; i < count; i++) items[i] = word_expr(b, words[i]);
    sh_expr e = sh_expr_any_of(b, items, count);
    free(items);
    return e;
}

const sh_lang *sh_lang_words(sh_grammar_builder *b, const sh_str *words, size_t count)
{
    return sh_lang_from_expr(b, words_expr(b, words, count));
}

const sh_lang *sh_lang_before_first(sh_grammar_builder *b, const sh_str *words, size_t count,
                                    bool including)
{
    sh_expr any = sh_expr_repeat(b, char_range(b, 0, SH_CHAR_MAX), 0, SH_EXPR_UNLIMITED);
    sh_expr parts[] = {any, words_expr(b, words, count)};
    sh_lang dfa;
    sh_dfa_writer w = {0};
    if (count == 0) return sh_lang_any(b);
    if (!determinize_expr(b, sh_expr_seq(b, parts, 2), &dfa)) return NULL;
    for (uint32_t s = 0; s < dfa.count; s++) {
        size_t edge_count;
        const sh_lang_edge *edges = sh_lang_edges(&dfa, s, &edge_count);
        bool found = dfa.states[s].accepts;
        sh_dfa_begin_state(&w, found == including);
        if (found) continue; /* nothing comes after the first occurrence */
        for (size_t i = 0; i < edge_count; i++)
            if (including || !dfa.states[edges[i].to].accepts)
                sh_dfa_add_edge(&w, edges[i].lo, edges[i].hi, edges[i].to);
    }
    sh_dfa_finish(&w);
    const sh_lang *out = trim(b, &w.lang, 0, SH_CHAR_MAX);
    sh_dfa_reset(&w.lang);
    sh_dfa_reset(&dfa);
    return out;
}

/* ---- patterns ---- */

static uint32_t next_state(const sh_lang *dfa, uint32_t state, uint32_t symbol)
{
    size_t count;
    const sh_lang_edge *edges = sh_lang_edges(dfa, state, &count);
    for (size_t i = 0; i < count && edges[i].lo <= symbol; i++)
        if (symbol <= edges[i].hi) return edges[i].to;
    return NO_STATE;
}

/* ^ and $ are the characters BEGIN and END here, and the text is BEGIN text END. What is left when
 * these two are taken off again is the set of texts. */
const sh_lang *sh_lang_regex(sh_grammar_builder *b, sh_str pattern, bool whole)
{
    sh_expr body = sh_expr_parse_regex(b, pattern);
    sh_expr any = sh_expr_repeat(b, char_range(b, 0, SH_CHAR_END), 0, SH_EXPR_UNLIMITED);
    sh_expr begin = sh_expr_optional(b, char_range(b, SH_CHAR_BEGIN, SH_CHAR_BEGIN));
    sh_expr end = sh_expr_optional(b, char_range(b, SH_CHAR_END, SH_CHAR_END));
    sh_expr parts[] = {whole ? begin : any, body, whole ? end : any};
    sh_lang dfa;
    if (!determinize_expr(b, sh_expr_seq(b, parts, 3), &dfa)) return NULL;
    uint32_t start = next_state(&dfa, 0, SH_CHAR_BEGIN);
    bool *ends = sh_alloc_array(dfa.count + 1, sizeof(*ends));
    for (uint32_t s = 0; s < dfa.count; s++) {
        uint32_t after = next_state(&dfa, s, SH_CHAR_END);
        ends[s] = after != NO_STATE && dfa.states[after].accepts;
    }
    for (uint32_t s = 0; s < dfa.count; s++) dfa.states[s].accepts = ends[s];
    free(ends);
    const sh_lang *out = NULL;
    if (start == NO_STATE)
        out = sh_lang_from_expr(b, SH_EXPR_AT_NEVER);
    else
        out = trim(b, &dfa, start, SH_CHAR_MAX);
    sh_dfa_reset(&dfa);
    return out;
}

/* ---- combination ---- */

typedef struct {
    uint32_t x, y; /* y may be NO_STATE in a difference */
} pair;

typedef struct {
    sh_grammar_builder *b;
    const sh_lang *x, *y;
    bool subtract;
    pair *pairs;
    uint32_t count, cap;
    uint32_t *slots; /* hash table: number + 1 */
    uint32_t slot_cap;
} product;

static uint32_t pair_hash(pair p)
{
    return (uint32_t)((p.x * 0x9e3779b97f4a7c15u + p.y) * 0xbf58476d1ce4e5b9u >> 32);
}

static void grow_pairs(product *p)
{
    free(p->slots);
    p->cap = p->cap == 0 ? 64 : p->cap * 2;
    p->slot_cap = p->cap * 2;
    p->pairs = sh_realloc_array(p->pairs, p->cap, sizeof(*p->pairs));
    p->slots = sh_alloc_array(p->slot_cap, sizeof(*p->slots));
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t at = pair_hash(p->pairs[i]) & (p->slot_cap - 1);
        while (p->slots[at] != 0) at = (at + 1) & (p->slot_cap - 1);
        p->slots[at] = i + 1;
    }
}

static uint32_t intern_pair(product *p, uint32_t x, uint32_t y)
{
    pair wanted = {x, y};
    if (p->count == p->cap) grow_pairs(p);
    uint32_t at = pair_hash(wanted) & (p->slot_cap - 1);
    for (; p->slots[at] != 0; at = (at + 1) & (p->slot_cap - 1)) {
        pair other = p->pairs[p->slots[at] - 1];
        if (other.x == x && other.y == y) return p->slots[at] - 1;
    }
    if (p->count >= SH_LANG_STATES_MAX)
        sh_expr_fail(p->b, SH_ERR_LIMIT,
                     "a combination of string constraints needs more than %d "
                     "states",
                     SH_LANG_STATES_MAX);
    p->pairs[p->count] = wanted;
    p->slots[at] = ++p->count;
    return p->count - 1;
}

/* Splits an edge of x at the borders of y's edges. */
static void combine_edge(product *p, sh_lang_edge edge, uint32_t y, sh_dfa_writer *w)
{
    size_t count = 0;
    const sh_lang_edge *others = y == NO_STATE ? NULL : sh_lang_edges(p->y, y, &count);
    for (size_t i = 0; i < count && edge.lo <= edge.hi; i++) {
        if (others[i].hi < edge.lo) continue;
        if (others[i].lo > edge.hi) break;
        if (others[i].lo > edge.lo) {
            if (p->subtract)
                sh_dfa_add_edge(w, edge.lo, others[i].lo - 1, intern_pair(p, edge.to, NO_STATE));
            edge.lo = others[i].lo;
        }
        uint32_t hi = others[i].hi < edge.hi ? others[i].hi : edge.hi;
        sh_dfa_add_edge(w, edge.lo, hi, intern_pair(p, edge.to, others[i].to));
        edge.lo = hi + 1;
    }
    if (p->subtract && edge.lo <= edge.hi)
        sh_dfa_add_edge(w, edge.lo, edge.hi, intern_pair(p, edge.to, NO_STATE));
}

static const sh_lang *combine(sh_grammar_builder *b, const sh_lang *x, const sh_lang *y,
                              bool subtract)
{
    product p = {.b = b, .x = x, .y = y, .subtract = subtract};
    sh_dfa_writer w = {0};
    if (x == NULL || y == NULL) return NULL;
    intern_pair(&p, 0, 0);
    for (uint32_t i = 0; i < p.count && sh_expr_ok(b); i++) {
        pair at = p.pairs[i];
        size_t count;
        const sh_lang_edge *edges = sh_lang_edges(x, at.x, &count);
        bool in_y = at.y != NO_STATE && y->states[at.y].accepts;
        sh_dfa_begin_state(&w, x->states[at.x].accepts && in_y != subtract);
        sh_expr_spend(b, count + 1);
        for (size_t k = 0; k < count; k++) combine_edge(&p, edges[k], at.y, &w);
    }
    sh_dfa_finish(&w);
    free(p.pairs);
    free(p.slots);
    const sh_lang *out = sh_expr_ok(b) ? trim(b, &w.lang, 0, SH_CHAR_MAX) : NULL;
    sh_dfa_reset(&w.lang);
    return out;
}

const sh_lang *sh_lang_intersect(sh_grammar_builder *b, const sh_lang *x, const sh_lang *y)
{
    return combine(b, x, y, false);
}

const sh_lang *sh_lang_subtract(sh_grammar_builder *b, const sh_lang *x, const sh_lang *y)
{
    return combine(b, x, y, true);
}

/* ---- questions ---- */

bool sh_lang_is_empty(const sh_lang *lang)
{
    return lang->states[1].first == 0 && !lang->states[0].accepts;
}

bool sh_lang_has(const sh_lang *lang, sh_str text)
{
    uint32_t state = 0;
    for (size_t i = 0; i < text.len && state != NO_STATE;) {
        uint32_t code;
        int len = sh_utf8_decode(text.ptr + i, text.len - i, &code);
        if (len == 0) return false;
        state = next_state(lang, state, code);
        i += (size_t)len;
    }
    return state != NO_STATE && lang->states[state].accepts;
}
