/* Thompson's construction and the subset construction.
 *
 * Both can be made large by a few bytes of input (nested repetitions, alternatives that stay open),
 * so each new state or edge is work that the builder counts, and the number of states is limited.
 */
#include "text/grammar/nfa.h"

#include "base/alloc.h"
#include "text/grammar/limits.h"

#include <stdlib.h>
#include <string.h>

/* Work also stands for memory: a new state or edge counts as many steps, so that the limit on work
 * keeps an automaton under 100 MiB. */
enum { NEW_STEPS = 8, MEMBER_STEPS = 4 };

void sh_nfa_init(sh_nfa *nfa, sh_grammar_builder *b)
{
    *nfa = (sh_nfa){.builder = b, .edge_count = 1};
}

void sh_nfa_reset(sh_nfa *nfa)
{
    free(nfa->heads);
    free(nfa->edges);
    sh_nfa_init(nfa, nfa->builder);
}

void sh_nfa_clear(sh_nfa *nfa)
{
    nfa->state_count = 0;
    nfa->edge_count = 1;
}

uint32_t sh_nfa_state(sh_nfa *nfa)
{
    if (nfa->state_count == nfa->state_cap) {
        nfa->state_cap = nfa->state_cap == 0 ? 64 : nfa->state_cap * 2;
        nfa->heads = sh_realloc_array(nfa->heads, nfa->state_cap, sizeof(*nfa->heads));
    }
    nfa->heads[nfa->state_count] = 0;
    sh_expr_spend(nfa->builder, NEW_STEPS);
    return nfa->state_count++;
}

void sh_nfa_add(sh_nfa *nfa, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    if (nfa->edge_count >= nfa->edge_cap) {
        nfa->edge_cap = nfa->edge_cap == 0 ? 128 : nfa->edge_cap * 2;
        nfa->edges = sh_realloc_array(nfa->edges, nfa->edge_cap, sizeof(*nfa->edges));
    }
    nfa->edges[nfa->edge_count] = (sh_nfa_edge){lo, hi, to, nfa->heads[from]};
    nfa->heads[from] = nfa->edge_count++;
    sh_expr_spend(nfa->builder, NEW_STEPS);
}

void sh_nfa_skip(sh_nfa *nfa, uint32_t from, uint32_t to)
{
    if (from != to) sh_nfa_add(nfa, from, 1, 0, to);
}

/* ---- deterministic automata, written in order ---- */

void sh_dfa_begin_state(sh_dfa_writer *w, bool accepts)
{
    if (w->lang.count + 1 >= w->state_cap) {
        w->state_cap = w->state_cap == 0 ? 16 : w->state_cap * 2;
        w->lang.states = sh_realloc_array(w->lang.states, w->state_cap, sizeof(*w->lang.states));
    }
    w->lang.states[w->lang.count++] = (sh_lang_state){(uint32_t)w->edge_count, accepts};
}

/* Joins the range to the one before where they touch and lead to the same state. */
void sh_dfa_add_edge(sh_dfa_writer *w, uint32_t lo, uint32_t hi, uint32_t to)
{
    if (w->edge_count > w->lang.states[w->lang.count - 1].first) {
        sh_lang_edge *last = &w->lang.edges[w->edge_count - 1];
        if (last->to == to && last->hi + 1 == lo) {
            last->hi = hi;
            return;
        }
    }
    if (w->edge_count == w->edge_cap) {
        w->edge_cap = w->edge_cap == 0 ? 32 : w->edge_cap * 2;
        w->lang.edges = sh_realloc_array(w->lang.edges, w->edge_cap, sizeof(*w->lang.edges));
    }
    w->lang.edges[w->edge_count++] = (sh_lang_edge){lo, hi, to};
}

void sh_dfa_finish(sh_dfa_writer *w)
{
    sh_dfa_begin_state(w, false);
    w->lang.count--;
    if (w->lang.edges == NULL) w->lang.edges = sh_alloc(sizeof(*w->lang.edges));
}

void sh_dfa_reset(sh_lang *dfa)
{
    free(dfa->states);
    free(dfa->edges);
    *dfa = (sh_lang){0};
}

/* ---- subset construction ---- */

typedef struct {
    uint32_t *items;
    size_t count, cap;
} u32s;

static void push(u32s *list, uint32_t item)
{
    if (list->count == list->cap) {
        list->cap = list->cap == 0 ? 64 : list->cap * 2;
        list->items = sh_realloc_array(list->items, list->cap, sizeof(*list->items));
    }
    list->items[list->count++] = item;
}

typedef struct {
    sh_nfa *nfa;
    u32s pool;       /* the members of all subsets, one after another */
    u32s firsts;     /* where each subset begins in the pool; one more than subsets */
    u32s slots;      /* hash table of subsets: number + 1 */
    u32s members;    /* the subset that is being made */
    u32s points;     /* borders of the ranges of a subset */
    u32s edges;      /* edges that leave a subset */
    uint32_t *marks; /* [state_count] */
    uint32_t mark;
} subsets;

static int order_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds a state and all that it reaches without a symbol. The list is its own queue. */
static void close_over(subsets *s, uint32_t state)
{
    const sh_nfa *nfa = s->nfa;
    if (s->marks[state] == s->mark) return;
    s->marks[state] = s->mark;
    size_t at = s->members.count;
    push(&s->members, state);
    for (; at < s->members.count; at++) {
        for (uint32_t e = nfa->heads[s->members.items[at]]; e != 0; e = nfa->edges[e].next) {
            const sh_nfa_edge *edge = &nfa->edges[e];
            if (edge->lo <= edge->hi || s->marks[edge->to] == s->mark) continue;
            s->marks[edge->to] = s->mark;
            push(&s->members, edge->to);
        }
    }
}

static void grow_slots(subsets *s)
{
    size_t count = s->firsts.count - 1, cap = s->slots.count * 2;
    uint32_t *slots = sh_alloc_array(cap, sizeof(*slots));
    for (size_t i = 0; i < count; i++) {
        const uint32_t *items = &s->pool.items[s->firsts.items[i]];
        size_t len = s->firsts.items[i + 1] - s->firsts.items[i];
        size_t at = sh_hash64(items, len * sizeof(*items)) & (cap - 1);
        while (slots[at] != 0) at = (at + 1) & (cap - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(s->slots.items);
    s->slots = (u32s){slots, cap, cap};
}

/* The number of the subset in `members`, a new one if it was not seen before. */
static uint32_t intern(subsets *s)
{
    u32s *m = &s->members;
    size_t cap = s->slots.count, count = s->firsts.count - 1;
    if (m->count > 1) qsort(m->items, m->count, sizeof(*m->items), order_u32);
    size_t at = sh_hash64(m->items, m->count * sizeof(*m->items)) & (cap - 1);
    for (; s->slots.items[at] != 0; at = (at + 1) & (cap - 1)) {
        uint32_t other = s->slots.items[at] - 1;
        uint32_t first = s->firsts.items[other];
        if (s->firsts.items[other + 1] - first == m->count &&
            memcmp(&s->pool.items[first], m->items, m->count * sizeof(*m->items)) == 0)
            return other;
    }
    s->slots.items[at] = (uint32_t)count + 1;
    for (size_t i = 0; i < m->count; i++) push(&s->pool, m->items[i]);
    push(&s->firsts, (uint32_t)s->pool.count);
    sh_expr_spend(s->nfa->builder, (m->count + 1) * MEMBER_STEPS);
    if (count + 1 >= SH_LANG_STATES_MAX)
        sh_expr_fail(s->nfa->builder, SH_ERR_LIMIT,
                     "a part of the grammar needs more than %d states", SH_LANG_STATES_MAX);
    if ((count + 1) * 2 > cap) grow_slots(s);
    return (uint32_t)count;
}

/* Edges of all members, and the sorted points at which one of them begins or has ended. */
static void collect_edges(subsets *s, uint32_t first, uint32_t end)
{
    const sh_nfa *nfa = s->nfa;
    s->edges.count = s->points.count = 0;
    for (uint32_t i = first; i < end; i++) {
        for (uint32_t e = nfa->heads[s->pool.items[i]]; e != 0; e = nfa->edges[e].next) {
            if (nfa->edges[e].lo > nfa->edges[e].hi) continue;
            push(&s->edges, e);
            push(&s->points, nfa->edges[e].lo);
            push(&s->points, nfa->edges[e].hi + 1);
        }
    }
    u32s *p = &s->points;
    if (p->count > 1) qsort(p->items, p->count, sizeof(*p->items), order_u32);
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (kept == 0 || p->items[i] != p->items[kept - 1]) p->items[kept++] = p->items[i];
    p->count = kept;
    sh_expr_spend(nfa->builder, s->edges.count * (kept / 8 + 1));
}

static void expand(subsets *s, uint32_t subset, sh_dfa_writer *w)
{
    const sh_nfa *nfa = s->nfa;
    collect_edges(s, s->firsts.items[subset], s->firsts.items[subset + 1]);
    for (size_t i = 0; i + 1 < s->points.count; i++) {
        uint32_t lo = s->points.items[i];
        s->members.count = 0;
        s->mark++;
        for (size_t k = 0; k < s->edges.count; k++) {
            const sh_nfa_edge *edge = &nfa->edges[s->edges.items[k]];
            if (edge->lo <= lo && lo <= edge->hi) close_over(s, edge->to);
        }
        if (s->members.count == 0) continue;
        sh_dfa_add_edge(w, lo, s->points.items[i + 1] - 1, intern(s));
    }
}

static bool has_member(const subsets *s, uint32_t subset, uint32_t state)
{
    for (uint32_t i = s->firsts.items[subset]; i < s->firsts.items[subset + 1]; i++)
        if (s->pool.items[i] == state) return true;
    return false;
}

bool sh_nfa_determinize(sh_nfa *nfa, uint32_t start, uint32_t end, sh_lang *out)
{
    enum { SLOTS_FIRST = 64 };
    subsets s = {.nfa = nfa, .mark = 1};
    sh_dfa_writer w = {0};

    s.marks = sh_alloc_array(nfa->state_count, sizeof(*s.marks));
    s.slots = (u32s){sh_alloc_array(SLOTS_FIRST, sizeof(uint32_t)), SLOTS_FIRST, SLOTS_FIRST};
    push(&s.firsts, 0);
    close_over(&s, start);
    intern(&s);
    for (uint32_t i = 0; i + 1 < s.firsts.count && sh_expr_ok(nfa->builder); i++) {
        sh_dfa_begin_state(&w, has_member(&s, i, end));
        expand(&s, i, &w);
    }
    sh_dfa_finish(&w);
    free(s.marks);
    free(s.pool.items);
    free(s.firsts.items);
    free(s.slots.items);
    free(s.members.items);
    free(s.points.items);
    free(s.edges.items);
    *out = w.lang;
    if (sh_expr_ok(nfa->builder)) return true;
    sh_dfa_reset(out);
    return false;
}
