/* From expressions to a grammar.
 *
 * Each rule that the root reaches becomes a deterministic automaton. Then:
 *  - heights: how deep the shortest completion from each state nests. A state without one is a dead
 *    end; edges into it are removed, so that no answer can get stuck.
 *  - left recursion: a rule that can call itself before it has matched a byte would call itself
 *    without end. It is an error, with the rule's name and place.
 *  - runs: states from which any text of certain characters leads on, for the mask walk. */
#include "text/grammar/automaton.h"
#include "text/grammar/limits.h"
#include "text/grammar/nfa.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_HEIGHT = UINT16_MAX };

typedef struct {
    sh_expr expr;
    uint32_t start; /* its states follow each other, up to the next rule's */
    bool nullable;
    uint8_t mark; /* search for left recursion: 0 new, 1 on the path, 2 done */
} rule_info;

typedef struct {
    sh_grammar_builder *b;
    sh_grammar *g;
    rule_info *rules;
    uint32_t rule_count, rule_cap;
    uint32_t *rule_of; /* [expressions]: number + 1 */
    size_t rule_of_len;
    size_t state_cap, edge_cap, call_cap;
} compiler;

/* ---- rules to automata ---- */

static uint32_t add_rule(compiler *c, sh_expr e)
{
    if (c->rule_count == SH_GRAMMAR_RULES_MAX)
        sh_expr_fail(c->b, SH_ERR_LIMIT, "the grammar has more than %d rules",
                     SH_GRAMMAR_RULES_MAX);
    if (c->rule_count == c->rule_cap) {
        c->rule_cap = c->rule_cap == 0 ? 16 : c->rule_cap * 2;
        c->rules = sh_realloc_array(c->rules, c->rule_cap, sizeof(*c->rules));
    }
    c->rules[c->rule_count] = (rule_info){.expr = e};
    return c->rule_count++;
}

/* Expressions are still added while compiling (rules for characters), so the table grows. */
static uint32_t rule_number(compiler *c, sh_expr e)
{
    if (e >= c->rule_of_len) {
        size_t len = c->b->cap;
        c->rule_of = sh_realloc_array(c->rule_of, len, sizeof(*c->rule_of));
        memset(c->rule_of + c->rule_of_len, 0, (len - c->rule_of_len) * sizeof(*c->rule_of));
        c->rule_of_len = len;
    }
    if (c->rule_of[e] == 0) c->rule_of[e] = add_rule(c, e) + 1;
    return c->rule_of[e] - 1;
}

static uint32_t call_of(sh_nfa *nfa, sh_expr rule)
{
    return SH_NFA_CALL + rule_number(nfa->owner, rule);
}

static void add_edge(compiler *c, sh_lang_edge edge, uint32_t base)
{
    sh_grammar *g = c->g;
    if (edge.lo > UINT8_MAX) {
        for (uint32_t symbol = edge.lo; symbol <= edge.hi; symbol++) {
            if (g->call_count == c->call_cap) {
                c->call_cap = c->call_cap == 0 ? 64 : c->call_cap * 2;
                g->calls = sh_realloc_array(g->calls, c->call_cap, sizeof(*g->calls));
            }
            g->calls[g->call_count++] = (sh_rule_call){.rule = symbol - SH_NFA_CALL,
                                                       .back = base + edge.to};
        }
        return;
    }
    if (g->edge_count == c->edge_cap) {
        c->edge_cap = c->edge_cap == 0 ? 256 : c->edge_cap * 2;
        g->edges = sh_realloc_array(g->edges, c->edge_cap, sizeof(*g->edges));
    }
    g->edges[g->edge_count++] = (sh_byte_edge){(uint8_t)edge.lo, (uint8_t)edge.hi, base + edge.to};
}

static void append(compiler *c, const sh_lang *dfa)
{
    sh_grammar *g = c->g;
    uint32_t base = g->state_count;
    for (uint32_t s = 0; s < dfa->count; s++) {
        size_t count;
        const sh_lang_edge *edges = sh_lang_edges(dfa, s, &count);
        if (g->state_count + 1 >= c->state_cap) {
            c->state_cap = c->state_cap == 0 ? 64 : c->state_cap * 2;
            g->states = sh_realloc_array(g->states, c->state_cap, sizeof(*g->states));
        }
        g->states[g->state_count++] = (sh_auto_state){
            .edges = g->edge_count, .calls = g->call_count, .accepts = dfa->states[s].accepts};
        for (size_t i = 0; i < count; i++) add_edge(c, edges[i], base);
    }
    if (g->state_count > SH_GRAMMAR_STATES_MAX ||
        g->edge_count + g->call_count > SH_GRAMMAR_EDGES_MAX)
        sh_expr_fail(c->b, SH_ERR_LIMIT, "the grammar needs more than %d states or %d edges",
                     SH_GRAMMAR_STATES_MAX, SH_GRAMMAR_EDGES_MAX);
}

static void build_rule(compiler *c, sh_nfa *nfa, uint32_t rule, bool is_root)
{
    sh_lang dfa;
    sh_expr e = c->rules[rule].expr;
    const sh_expr_node *node = sh_expr_at(c->b, e);
    if (!is_root && !node->defined) {
        sh_expr_fail(c->b, SH_ERR_INPUT, "the rule '%.*s' is used but not defined",
                     (int)(node->text.len < 100 ? node->text.len : 100), node->text.ptr);
        return;
    }
    sh_nfa_clear(nfa);
    uint32_t start = sh_nfa_state(nfa), end = sh_nfa_state(nfa);
    sh_nfa_add_expr(nfa, is_root ? e : node->items[0], start, end);
    if (!sh_expr_ok(c->b) || !sh_nfa_determinize(nfa, start, end, &dfa)) return;
    c->rules[rule].start = c->g->state_count;
    append(c, &dfa);
    sh_dfa_reset(&dfa);
}

static uint32_t rule_end(const compiler *c, uint32_t rule)
{
    return rule + 1 < c->rule_count ? c->rules[rule + 1].start : c->g->state_count;
}

static void build_rules(compiler *c, sh_expr root)
{
    sh_nfa nfa;
    sh_nfa_init(&nfa, c->b);
    nfa.call_of = call_of;
    nfa.owner = c;
    add_rule(c, root);
    for (uint32_t i = 0; i < c->rule_count && sh_expr_ok(c->b); i++) build_rule(c, &nfa, i, i == 0);
    sh_nfa_reset(&nfa);
    if (!sh_expr_ok(c->b)) return;
    sh_grammar *g = c->g;
    g->states[g->state_count] = (sh_auto_state){.edges = g->edge_count, .calls = g->call_count};
    g->rule_count = c->rule_count;
    for (uint32_t i = 0; i < g->call_count; i++) {
        sh_rule_call *call = &g->calls[i];
        call->start = c->rules[call->rule].start;
        call->leaf = g->states[call->start].calls == g->states[rule_end(c, call->rule)].calls;
    }
}

/* ---- heights ---- */

/* Whether nothing is left to match at the state. */
static bool is_done(const sh_auto_state *s)
{
    return s->accepts && s->edges == s[1].edges && s->calls == s[1].calls;
}

static uint16_t call_height(const sh_grammar *g, const sh_rule_call *call)
{
    uint16_t inside = g->states[call->start].height, after = g->states[call->back].height;
    if (inside == NO_HEIGHT || after == NO_HEIGHT) return NO_HEIGHT;
    if (!call->leaf && !is_done(&g->states[call->back])) inside++;
    return inside > after ? inside : after;
}

static uint16_t state_height(const sh_grammar *g, const sh_auto_state *s)
{
    uint16_t best = s->accepts ? 0 : NO_HEIGHT;
    for (uint32_t i = s->edges; i < s[1].edges && best > 0; i++)
        if (g->states[g->edges[i].to].height < best) best = g->states[g->edges[i].to].height;
    for (uint32_t i = s->calls; i < s[1].calls && best > 0; i++) {
        uint16_t height = call_height(g, &g->calls[i]);
        if (height < best) best = height;
    }
    return best;
}

/* Heights only fall, each at most as often as there are levels; edges lead forward for the most
 * part, so walking backwards settles them in a few rounds. */
static void find_heights(compiler *c)
{
    sh_grammar *g = c->g;
    for (uint32_t s = 0; s < g->state_count; s++) g->states[s].height = NO_HEIGHT;
    for (bool changed = true; changed && sh_expr_ok(c->b);) {
        changed = false;
        sh_expr_spend(c->b, g->state_count + (g->edge_count + g->call_count) / 4);
        for (uint32_t s = g->state_count; s-- > 0;) {
            uint16_t height = state_height(g, &g->states[s]);
            if (height == g->states[s].height) continue;
            g->states[s].height = height;
            changed = true;
        }
    }
    if (!sh_expr_ok(c->b)) return;
    if (g->states[0].height == NO_HEIGHT)
        sh_expr_fail(c->b, SH_ERR_INPUT, "the grammar matches no text");
    else if (g->states[0].height >= SH_GRAMMAR_STACK_MAX)
        sh_expr_fail(c->b, SH_ERR_LIMIT, "every text of the grammar nests more than %d deep",
                     SH_GRAMMAR_STACK_MAX);
}

/* A copy in place: what is kept moves forward. */
static void drop_dead_ends(sh_grammar *g)
{
    uint32_t edges = 0, calls = 0, edge = 0, call = 0;
    for (uint32_t s = 0; s < g->state_count; s++) {
        uint32_t edge_end = g->states[s + 1].edges, call_end = g->states[s + 1].calls;
        g->states[s].edges = edges;
        g->states[s].calls = calls;
        for (; edge < edge_end; edge++)
            if (g->states[g->edges[edge].to].height != NO_HEIGHT)
                g->edges[edges++] = g->edges[edge];
        for (; call < call_end; call++)
            if (call_height(g, &g->calls[call]) != NO_HEIGHT) g->calls[calls++] = g->calls[call];
    }
    g->states[g->state_count].edges = g->edge_count = edges;
    g->states[g->state_count].calls = g->call_count = calls;
}

/* A call after which the caller is done needs no way back, so that lists written as right recursion
 * do not use up the stack. */
static void mark_last_calls(sh_grammar *g)
{
    for (uint32_t i = 0; i < g->call_count; i++)
        if (is_done(&g->states[g->calls[i].back])) g->calls[i].back = SH_CALL_LAST;
}

/* ---- left recursion ---- */

static bool *find_first_states(compiler *c, uint32_t rule)
{
    const sh_grammar *g = c->g;
    uint32_t base = c->rules[rule].start;
    uint32_t end = rule_end(c, rule);
    bool *first = sh_alloc_array(end - base, sizeof(*first));
    first[0] = true;
    for (bool changed = true; changed;) {
        changed = false;
        sh_expr_spend(c->b, 1);
        for (uint32_t s = base; s < end; s++) {
            for (uint32_t i = g->states[s].calls; first[s - base] && i < g->states[s + 1].calls;
                 i++) {
                const sh_rule_call *call = &g->calls[i];
                if (!c->rules[call->rule].nullable || first[call->back - base]) continue;
                first[call->back - base] = changed = true;
            }
        }
    }
    return first;
}

static void find_nullable(compiler *c)
{
    for (bool changed = true; changed && sh_expr_ok(c->b);) {
        changed = false;
        for (uint32_t r = c->rule_count; r-- > 0 && sh_expr_ok(c->b);) {
            if (c->rules[r].nullable) continue;
            uint32_t base = c->rules[r].start, end = rule_end(c, r);
            bool *first = find_first_states(c, r);
            for (uint32_t s = base; s < end && !c->rules[r].nullable; s++)
                c->rules[r].nullable = first[s - base] && c->g->states[s].accepts;
            changed |= c->rules[r].nullable;
            sh_expr_spend(c->b, end - base);
            free(first);
        }
    }
}

static void fail_left_recursion(compiler *c, uint32_t rule)
{
    const sh_expr_node *node = sh_expr_at(c->b, c->rules[rule].expr);
    char place[64] = "";
    if (node->line > 0)
        snprintf(place, sizeof(place), "grammar, line %u, column %u: ", node->line, node->column);
    sh_expr_fail(c->b, SH_ERR_UNSUPPORTED, "%s'%.*s' begins with itself (left recursion)", place,
                 (int)(node->text.len < 100 ? node->text.len : 100), node->text.ptr);
}

/* Depth-first over "may begin with a call of"; the length of the path is limited. */
static void check_left_recursion(compiler *c, uint32_t rule, int depth)
{
    const sh_grammar *g = c->g;
    if (depth > SH_GRAMMAR_CHAIN_MAX) {
        sh_expr_fail(c->b, SH_ERR_LIMIT, "more than %d rules begin with each other",
                     SH_GRAMMAR_CHAIN_MAX);
        return;
    }
    c->rules[rule].mark = 1;
    uint32_t base = c->rules[rule].start;
    uint32_t end = rule_end(c, rule);
    bool *first = find_first_states(c, rule);
    for (uint32_t s = base; s < end && sh_expr_ok(c->b); s++) {
        for (uint32_t i = g->states[s].calls; first[s - base] && i < g->states[s + 1].calls; i++) {
            uint32_t called = g->calls[i].rule;
            if (c->rules[called].mark == 1) fail_left_recursion(c, called);
            if (c->rules[called].mark == 0) check_left_recursion(c, called, depth + 1);
        }
    }
    free(first);
    c->rules[rule].mark = 2;
}

/* From every rule: one that is only called after some bytes can begin with itself, too. */
static void check_all_left_recursion(compiler *c)
{
    for (uint32_t r = 0; r < c->rule_count && sh_expr_ok(c->b); r++)
        if (c->rules[r].mark == 0) check_left_recursion(c, r, 0);
}

/* ---- runs ---- */

/* The state to which most ASCII characters lead. */
static uint32_t main_target(const sh_grammar *g, const sh_auto_state *s)
{
    uint32_t best = UINT32_MAX, most = 0;
    for (uint32_t i = s->edges; i < s[1].edges; i++) {
        uint32_t count = 0;
        for (uint32_t k = i; k < s[1].edges && k < i + 64; k++)
            if (g->edges[k].to == g->edges[i].to && g->edges[k].lo < 0x80)
                count += 1u + g->edges[k].hi - g->edges[k].lo;
        if (count <= most) continue;
        most = count;
        best = g->edges[i].to;
    }
    return best;
}

/* Whether a call is for any one character beyond ASCII, after which the text goes on at `back`. */
static bool is_multibyte(const compiler *c, const sh_rule_call *call, uint32_t back)
{
    sh_expr e = c->rules[call->rule].expr;
    return call->back == back && (e == c->b->multibyte || e == c->b->multibyte_quoted);
}

static bool calls_multibyte(const compiler *c, const sh_auto_state *s, uint32_t back)
{
    for (uint32_t i = s->calls; i < s[1].calls; i++)
        if (is_multibyte(c, &c->g->calls[i], back)) return true;
    return false;
}

/* Whether a text of the run's characters ends before the state `to`: nothing takes it on there. */
static bool run_ends_at(const sh_grammar *g, const sh_char_run *run, uint32_t to)
{
    if (!sh_auto_is_plain(g, to)) return false;
    for (uint32_t i = g->states[to].edges; i < g->states[to + 1].edges; i++)
        for (uint32_t c = g->edges[i].lo; c <= g->edges[i].hi; c++)
            if (c > 0x7f || (run->ascii[c / 64] >> c % 64 & 1) != 0) return false;
    return true;
}

/* Once the run of a state is known, and those of the states that follow. Calls for escapes do no
 * harm. */
static bool run_is_closed(const compiler *c, const sh_auto_state *s)
{
    const sh_char_run *run = &s->run;
    if (s->accepts || run->chars == 0 || run->chars == UINT32_MAX) return false;
    for (uint32_t i = s->calls; i < s[1].calls; i++) {
        const sh_rule_call *call = &c->g->calls[i];
        if (!is_multibyte(c, call, run->next) && !run_ends_at(c->g, run, call->start)) return false;
    }
    return run->chars == 1 ? run_ends_at(c->g, run, run->next) : c->g->states[run->next].run.closed;
}

static bool run_continues(const sh_char_run *run, const sh_char_run *next)
{
    return (run->ascii[0] & ~next->ascii[0]) == 0 && (run->ascii[1] & ~next->ascii[1]) == 0 &&
           (!run->multibyte || next->multibyte);
}

/* Whether two targets are the same, or each the next one in the row. */
static bool same_target(uint32_t x, uint32_t x_next, uint32_t y, uint32_t y_next)
{
    return x == y || (x == x_next && y == y_next);
}

static bool is_alike(const sh_grammar *g, uint32_t x, uint32_t y, uint32_t y_next)
{
    const sh_auto_state *a = &g->states[x], *b = &g->states[y];
    if (a->accepts != b->accepts || a->height != b->height ||
        a[1].edges - a->edges != b[1].edges - b->edges ||
        a[1].calls - a->calls != b[1].calls - b->calls)
        return false;
    for (uint32_t i = 0; i < a[1].edges - a->edges; i++) {
        sh_byte_edge ea = g->edges[a->edges + i], eb = g->edges[b->edges + i];
        if (ea.lo != eb.lo || ea.hi != eb.hi || !same_target(ea.to, y, eb.to, y_next)) return false;
    }
    for (uint32_t i = 0; i < a[1].calls - a->calls; i++) {
        sh_rule_call ca = g->calls[a->calls + i], cb = g->calls[b->calls + i];
        if (ca.rule != cb.rule || !same_target(ca.back, y, cb.back, y_next)) return false;
    }
    return true;
}

static void extend_run(sh_grammar *g, uint32_t n, uint32_t to)
{
    sh_char_run *run = &g->states[n].run;
    const sh_char_run *next = &g->states[to].run;
    run->chars = 1;
    run->next = to;
    if (to == n) run->chars = run->alike = UINT32_MAX;
    if (to <= n || !run_continues(run, next)) return;
    run->chars = next->chars == UINT32_MAX ? UINT32_MAX : next->chars + 1;
    if (next->alike == UINT32_MAX || !is_alike(g, n, to, next->next)) return;
    run->alike = next->alike + 1;
    run->last = next->last;
}

/* Backwards, since the states of a string with a limited length follow each other. The text of a
 * run stays within a rule and, as heights do not grow, within the limit on nesting. */
static void find_runs(compiler *c)
{
    sh_grammar *g = c->g;
    for (uint32_t n = g->state_count; n-- > 0;) {
        sh_auto_state *s = &g->states[n];
        uint32_t to = main_target(g, s);
        s->run.last = n;
        if (to == UINT32_MAX || g->states[to].height > s->height) continue;
        for (uint32_t i = s->edges; i < s[1].edges; i++) {
            sh_byte_edge edge = g->edges[i];
            for (uint32_t k = edge.lo; edge.to == to && k <= edge.hi && k < 0x80; k++)
                s->run.ascii[k / 64] |= (uint64_t)1 << k % 64;
        }
        s->run.multibyte = calls_multibyte(c, s, to);
        extend_run(g, n, to);
        s->run.closed = run_is_closed(c, s);
    }
}

/* ---- all together ---- */

static void compile(compiler *c, sh_expr root)
{
    if (sh_expr_ok(c->b)) build_rules(c, root);
    if (sh_expr_ok(c->b)) find_heights(c);
    if (sh_expr_ok(c->b)) drop_dead_ends(c->g);
    if (sh_expr_ok(c->b)) find_nullable(c);
    if (sh_expr_ok(c->b)) check_all_left_recursion(c);
    if (!sh_expr_ok(c->b)) return;
    find_runs(c);
    mark_last_calls(c->g);
}

sh_status sh_grammar_compile(sh_grammar_builder *b, sh_expr root, sh_grammar **out, sh_err *err)
{
    compiler c = {.b = b, .g = sh_alloc(sizeof(*c.g))};
    compile(&c, root);
    free(c.rules);
    free(c.rule_of);
    if (!sh_expr_ok(b)) {
        sh_grammar_free(c.g);
        *err = b->err;
        return err->status;
    }
    *out = c.g;
    return SH_OK;
}

void sh_grammar_free(sh_grammar *g)
{
    if (g == NULL) return;
    free(g->states);
    free(g->edges);
    free(g->calls);
    free(g);
}

sh_grammar_size sh_grammar_measure(const sh_grammar *g)
{
    return (sh_grammar_size){.rules = g->rule_count,
                             .states = g->state_count,
                             .bytes = g->state_count * sizeof(*g->states) +
                                      g->edge_count * sizeof(*g->edges) +
                                      g->call_count * sizeof(*g->calls)};
}
