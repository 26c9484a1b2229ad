/* Expressions as parts of an automaton.
 *
 * Characters become bytes here: ASCII directly, the rest as sequences of byte ranges. A set with
 * all characters beyond ASCII, which nearly every set in practice is, calls one shared rule for
 * them. That keeps automata small (a string of at most 10000 characters has 10001 states), and the
 * mask walk knows the rule. In JSON strings escapes are a call as well. */
#include "text/grammar/limits.h"
#include "text/grammar/nfa.h"

#include <string.h>

static void add(sh_nfa *nfa, sh_expr e, uint32_t from, uint32_t to, int depth);

static bool is_bytes(const sh_nfa *nfa)
{
    return nfa->call_of != NULL;
}

static void add_call(sh_nfa *nfa, sh_expr rule, uint32_t from, uint32_t to)
{
    if (!is_bytes(nfa)) {
        sh_expr_fail(nfa->builder, SH_ERR_INPUT, "a pattern cannot call rules");
        return;
    }
    uint32_t symbol = nfa->call_of(nfa, rule);
    sh_nfa_add(nfa, from, symbol, symbol, to);
}

static void add_sequence(sh_nfa *nfa, const sh_utf8_seq *seq, uint32_t from, uint32_t to)
{
    for (int i = 0; i < seq->len; i++) {
        uint32_t next = i + 1 == seq->len ? to : sh_nfa_state(nfa);
        sh_nfa_add(nfa, from, seq->lo[i], seq->hi[i], next);
        from = next;
    }
}

static void add_encoded(sh_nfa *nfa, sh_char_range range, uint32_t from, uint32_t to)
{
    sh_utf8_seq seq;
    while (sh_utf8_next_seq(&range.lo, range.hi, &seq)) add_sequence(nfa, &seq, from, to);
}

/* In a JSON string most ASCII characters stand as they are. In free text each may be escaped as
 * well; a set that is narrower has one way to write each character. */
static void add_ascii_quoted(sh_nfa *nfa, const sh_charset *set, uint32_t from, uint32_t to)
{
    bool escaped[128] = {false}, any = false, all = sh_charset_covers(set, 0, 0x7f);
    uint32_t first = 0; /* of the range of plain characters that ends before c */
    for (uint32_t c = 0; c <= 128; c++) {
        bool member = c < 128 && sh_charset_has(set, c);
        bool plain = member && c >= 0x20 && c != '"' && c != '\\';
        if (!plain && c > first) sh_nfa_add(nfa, from, first, c - 1, to);
        if (!plain) first = c + 1;
        if (!member || (plain && !all)) continue;
        escaped[c] = any = true;
    }
    if (any) add_call(nfa, sh_expr_escapes(nfa->builder, escaped), from, to);
}

static void add_set(sh_nfa *nfa, const sh_charset *set, bool quoted, uint32_t from, uint32_t to)
{
    if (!is_bytes(nfa)) {
        for (size_t i = 0; i < set->count; i++)
            sh_nfa_add(nfa, from, set->ranges[i].lo, set->ranges[i].hi, to);
        return;
    }
    if (quoted) add_ascii_quoted(nfa, set, from, to);
    bool all = sh_charset_covers(set, 0x80, SH_CHAR_MAX);
    for (size_t i = 0; i < set->count; i++) {
        sh_char_range range = set->ranges[i];
        if (quoted && range.lo < 0x80) range.lo = 0x80;
        if (all && range.hi > 0x7f) range.hi = 0x7f;
        if (range.lo <= range.hi) add_encoded(nfa, range, from, to);
    }
    if (!all) return;
    sh_grammar_builder *b = nfa->builder;
    add_call(nfa, quoted ? sh_expr_multibyte_quoted(b) : sh_expr_multibyte(b), from, to);
}

static void add_bytes(sh_nfa *nfa, const sh_expr_node *node, uint32_t from, uint32_t to)
{
    size_t len = node->text.len;
    for (size_t i = 0; i < len; i++) {
        uint32_t next = i + 1 == len ? to : sh_nfa_state(nfa);
        sh_nfa_add(nfa, from, (uint8_t)node->text.ptr[i], (uint8_t)node->text_hi[i], next);
        from = next;
    }
}

static void add_seq(sh_nfa *nfa, const sh_expr_node *node, uint32_t from, uint32_t to, int depth)
{
    for (size_t i = 0; i < node->count; i++) {
        uint32_t next = i + 1 == node->count ? to : sh_nfa_state(nfa);
        add(nfa, node->items[i], from, next, depth);
        from = next;
    }
}

static void add_repeat(sh_nfa *nfa, const sh_expr_node *node, uint32_t from, uint32_t to, int depth)
{
    sh_expr item = node->items[0];
    uint32_t at = sh_nfa_state(nfa);
    sh_nfa_skip(nfa, from, at);
    for (uint32_t i = 0; i < node->min && sh_expr_ok(nfa->builder); i++) {
        uint32_t next = sh_nfa_state(nfa);
        add(nfa, item, at, next, depth);
        at = next;
    }
    if (node->max == SH_EXPR_UNLIMITED) {
        uint32_t loop = sh_nfa_state(nfa);
        sh_nfa_skip(nfa, at, loop);
        add(nfa, item, loop, loop, depth);
        at = loop;
    } else {
        for (uint32_t i = node->min; i < node->max && sh_expr_ok(nfa->builder); i++) {
            uint32_t next = sh_nfa_state(nfa);
            sh_nfa_skip(nfa, at, to);
            add(nfa, item, at, next, depth);
            at = next;
        }
    }
    sh_nfa_skip(nfa, at, to);
}

/* All edges from one state of the set of strings to another are one set of characters. */
static void add_lang_state(sh_nfa *nfa, const sh_lang *lang, uint32_t state, uint32_t base,
                           bool quoted)
{
    size_t count;
    const sh_lang_edge *edges = sh_lang_edges(lang, state, &count);
    for (size_t i = 0; i < count; i++) {
        sh_charset set = {0};
        bool seen = false;
        for (size_t k = 0; k < count && !seen; k++) {
            if (edges[k].to != edges[i].to) continue;
            seen = k < i;
            sh_charset_add(&set, edges[k].lo, edges[k].hi);
        }
        sh_expr_spend(nfa->builder, count);
        if (!seen) add_set(nfa, &set, quoted, base + state, base + edges[i].to);
        sh_charset_reset(&set);
    }
}

static void add_lang(sh_nfa *nfa, const sh_lang *lang, bool quoted, uint32_t from, uint32_t to)
{
    uint32_t base = nfa->state_count;
    for (uint32_t i = 0; i < lang->count; i++) sh_nfa_state(nfa);
    sh_nfa_skip(nfa, from, base);
    for (uint32_t i = 0; i < lang->count && sh_expr_ok(nfa->builder); i++) {
        if (lang->states[i].accepts) sh_nfa_skip(nfa, base + i, to);
        add_lang_state(nfa, lang, i, base, quoted);
    }
}

static void add(sh_nfa *nfa, sh_expr e, uint32_t from, uint32_t to, int depth)
{
    /* Making shared rules may move the nodes, so this is a copy. */
    const sh_expr_node node = *sh_expr_at(nfa->builder, e);
    if (depth > SH_GRAMMAR_NEST_MAX) {
        sh_expr_fail(nfa->builder, SH_ERR_LIMIT, "the grammar is nested more than %d deep",
                     SH_GRAMMAR_NEST_MAX);
        return;
    }
    if (!sh_expr_ok(nfa->builder)) return;
    switch (node.kind) {
    case SH_EXPR_NEVER: break;
    case SH_EXPR_EMPTY: sh_nfa_skip(nfa, from, to); break;
    case SH_EXPR_BYTES: add_bytes(nfa, &node, from, to); break;
    case SH_EXPR_CLASS: add_set(nfa, node.set, false, from, to); break;
    case SH_EXPR_SEQ: add_seq(nfa, &node, from, to, depth + 1); break;
    case SH_EXPR_ANY_OF:
        for (size_t i = 0; i < node.count; i++) add(nfa, node.items[i], from, to, depth + 1);
        break;
    case SH_EXPR_REPEAT: add_repeat(nfa, &node, from, to, depth + 1); break;
    case SH_EXPR_RULE: add_call(nfa, e, from, to); break;
    case SH_EXPR_LANG: add_lang(nfa, node.lang, false, from, to); break;
    case SH_EXPR_LANG_QUOTED: add_lang(nfa, node.lang, true, from, to); break;
    }
}

void sh_nfa_add_expr(sh_nfa *nfa, sh_expr e, uint32_t from, uint32_t to)
{
    add(nfa, e, from, to, 0);
}
