/* Grammars as text: GBNF, which llama.cpp uses, and plain EBNF.
 *
 * A rule is a name, `::=` (or `:` or `=`), and alternatives; it ends where the next one begins, or
 * with `;`. Both notations share everything else, so one parser reads them. Directives, priorities,
 * aliases and flags of other EBNF tools are refused. */
#include "text/grammar/expr.h"
#include "text/grammar/limits.h"

#include "base/alloc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_MAX = 65000, RULES_MAX = 10000 };

typedef struct {
    sh_str name;
    sh_expr rule;
} rule_name;

typedef struct {
    size_t at;
    uint32_t line, column; /* from 1; columns in characters */
} place;

typedef struct {
    sh_grammar_builder *b;
    sh_str text;
    size_t at;
    place
        last; /* that was looked up: rules are in order, so finding all their places is one pass */
    int depth;
    rule_name *rules;
    size_t rule_count, rule_cap;
} parser;

typedef struct {
    sh_expr *items;
    size_t count, cap;
} expr_list;

static sh_expr parse_alternatives(parser *p);

static void push(expr_list *list, sh_expr e)
{
    if (list->count == list->cap) {
        list->cap = list->cap == 0 ? 8 : list->cap * 2;
        list->items = sh_realloc_array(list->items, list->cap, sizeof(*list->items));
    }
    list->items[list->count++] = e;
}

static place place_of(parser *p, size_t at)
{
    place l = p->last.line > 0 && p->last.at <= at ? p->last : (place){0, 1, 1};
    for (; l.at < at && l.at < p->text.len; l.at++) {
        char c = p->text.ptr[l.at];
        l.column = c == '\n' ? 1 : l.column + ((c & 0xc0) != 0x80);
        l.line += c == '\n';
    }
    p->last = l;
    return l;
}

static sh_expr fail(parser *p, size_t at, sh_status status, const char *what)
{
    place l = place_of(p, at);
    return sh_expr_fail(p->b, status, "grammar, line %u, column %u: %s", l.line, l.column, what);
}

static int peek(const parser *p)
{
    return p->at < p->text.len ? (uint8_t)p->text.ptr[p->at] : -1;
}

static bool take(parser *p, const char *word)
{
    size_t len = strlen(word);
    if (p->text.len - p->at < len || memcmp(p->text.ptr + p->at, word, len) != 0) return false;
    p->at += len;
    return true;
}

static void skip_space(parser *p)
{
    for (;;) {
        while (peek(p) >= 0 && isspace(peek(p))) p->at++;
        if (peek(p) != '#' && !sh_str_starts(sh_str_sub(p->text, p->at, 2), SH_STR("//"))) return;
        while (peek(p) >= 0 && peek(p) != '\n') p->at++;
    }
}

static int peek_after(const parser *p)
{
    return p->at + 1 < p->text.len ? (uint8_t)p->text.ptr[p->at + 1] : -1;
}

static bool is_name_char(int c)
{
    return isalnum(c) || c == '_' || c == '-';
}

static sh_str read_name(parser *p)
{
    size_t first = p->at;
    while (is_name_char(peek(p))) p->at++;
    return sh_str_sub(p->text, first, p->at - first);
}

static bool take_definition(parser *p)
{
    return take(p, "::=") || take(p, ":=") || take(p, ":") || take(p, "=");
}

/* Whether a rule begins here: a name and a definition sign. */
static bool at_rule(parser *p)
{
    size_t start = p->at;
    bool found = read_name(p).len > 0;
    skip_space(p);
    found = found && take_definition(p);
    p->at = start;
    return found;
}

/* The rule of that name, which need not be defined yet. */
static sh_expr find_rule(parser *p, sh_str name)
{
    for (size_t i = 0; i < p->rule_count; i++)
        if (sh_str_eq(p->rules[i].name, name)) return p->rules[i].rule;
    sh_expr_spend(p->b, p->rule_count + 1);
    if (p->rule_count == RULES_MAX) return fail(p, p->at, SH_ERR_LIMIT, "more than 10000 rules");
    if (p->rule_count == p->rule_cap) {
        p->rule_cap = p->rule_cap == 0 ? 16 : p->rule_cap * 2;
        p->rules = sh_realloc_array(p->rules, p->rule_cap, sizeof(*p->rules));
    }
    sh_expr rule = sh_expr_rule(p->b, name);
    p->rules[p->rule_count++] = (rule_name){name, rule};
    return rule;
}

/* ---- characters ---- */

static bool read_escape(parser *p, uint32_t *code)
{
    static const char letters[] = "n\nr\rt\tf\fv\v0\0";
    static const struct {
        char letter;
        int digits;
    } hex[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    size_t start = p->at;
    int c = peek(p);
    if (c < 0) {
        fail(p, start, SH_ERR_INPUT, "a backslash at the end");
        return false;
    }
    p->at++;
    for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
        if (c != letters[i]) continue;
        *code = (uint8_t)letters[i + 1];
        return true;
    }
    for (size_t i = 0; i < SH_COUNT_OF(hex); i++) {
        if (c != hex[i].letter) continue;
        bool ok = sh_expr_read_hex(p->text, &p->at, hex[i].digits, code) && *code <= SH_CHAR_MAX &&
                  (*code < 0xd800 || *code > 0xdfff);
        if (!ok) fail(p, start, SH_ERR_INPUT, "an escape that is not a character");
        return ok;
    }
    *code = (uint32_t)c;
    if (c > 0 && c < 0x80 && ispunct(c)) return true;
    fail(p, start, SH_ERR_INPUT, "an unknown escape");
    return false;
}

static bool read_char(parser *p, uint32_t *code)
{
    if (take(p, "\\")) return read_escape(p, code);
    int len = sh_utf8_decode(p->text.ptr + p->at, p->text.len - p->at, code);
    if (len == 0) fail(p, p->at, SH_ERR_INPUT, "not valid UTF-8");
    p->at += (size_t)len;
    return len > 0;
}

static sh_expr parse_literal(parser *p, char quote)
{
    size_t start = p->at - 1;
    expr_list list = {0};
    uint32_t code;
    while (peek(p) >= 0 && peek(p) != quote && read_char(p, &code)) {
        char utf8[4];
        sh_str one = {utf8, (size_t)sh_utf8_encode(code, utf8)};
        push(&list, sh_expr_literal(p->b, one));
    }
    sh_expr e = sh_expr_seq(p->b, list.items, list.count);
    free(list.items);
    if (peek(p) != quote) return fail(p, start, SH_ERR_INPUT, "a literal that is not closed");
    p->at++;
    if (sh_str_is(sh_str_sub(p->text, p->at, 1), "i") && !is_name_char(peek_after(p)))
        return fail(p, start, SH_ERR_UNSUPPORTED, "literals with flags are not supported");
    return e;
}

static sh_expr parse_class(parser *p)
{
    size_t start = p->at - 1;
    sh_charset set = {0};
    uint32_t lo, hi;
    bool inverted = take(p, "^"), ok = true;
    while (ok && peek(p) >= 0 && peek(p) != ']') {
        ok = read_char(p, &lo);
        hi = lo;
        if (ok && peek(p) == '-' && p->at + 1 < p->text.len && p->text.ptr[p->at + 1] != ']') {
            p->at++;
            ok = read_char(p, &hi);
        }
        if (ok && hi < lo)
            fail(p, start, SH_ERR_INPUT, "a range in the wrong order");
        else if (ok)
            sh_charset_add(&set, lo, hi);
    }
    if (inverted) sh_charset_invert(&set);
    sh_expr e = sh_expr_class(p->b, &set);
    sh_charset_reset(&set);
    if (!take(p, "]")) return fail(p, start, SH_ERR_INPUT, "a class that is not closed");
    return e;
}

static sh_expr parse_any_char(parser *p)
{
    sh_char_range all = {0, SH_CHAR_MAX};
    return sh_expr_class(p->b, &(sh_charset){.ranges = &all, .count = 1});
}

/* A pattern between slashes, as other EBNF has it for terminals. */
static sh_expr parse_pattern(parser *p)
{
    size_t start = p->at - 1, first = p->at;
    while (peek(p) >= 0 && peek(p) != '/') p->at += peek(p) == '\\' ? 2 : 1;
    if (p->at > p->text.len) p->at = p->text.len;
    if (peek(p) < 0) return fail(p, start, SH_ERR_INPUT, "a pattern that is not closed");
    sh_str pattern = sh_str_sub(p->text, first, p->at - first);
    p->at++;
    if (isalpha(peek(p)))
        return fail(p, start, SH_ERR_UNSUPPORTED, "patterns with flags are not supported");
    return sh_expr_regex(p->b, pattern);
}

/* ---- structure ---- */

static sh_expr parse_group(parser *p)
{
    size_t start = p->at - 1;
    if (++p->depth > SH_GRAMMAR_NEST_MAX / 4)
        return fail(p, start, SH_ERR_LIMIT, "groups are nested more than 50 deep");
    sh_expr e = parse_alternatives(p);
    p->depth--;
    skip_space(p);
    if (!take(p, ")")) return fail(p, start, SH_ERR_INPUT, "a group that is not closed");
    return e;
}

static sh_expr parse_atom(parser *p)
{
    if (take(p, "\"")) return parse_literal(p, '"');
    if (take(p, "'")) return parse_literal(p, '\'');
    if (take(p, "[")) return parse_class(p);
    if (take(p, "(")) return parse_group(p);
    if (take(p, "/")) return parse_pattern(p);
    if (take(p, ".")) return parse_any_char(p);
    if (isalpha(peek(p)) || peek(p) == '_') return find_rule(p, read_name(p));
    if (peek(p) == '%') return fail(p, p->at, SH_ERR_UNSUPPORTED, "directives are not supported");
    return fail(p, p->at, SH_ERR_INPUT,
                "expected a literal, a class, a group, a pattern or the name of a rule");
}

static bool read_number(parser *p, uint32_t *out)
{
    size_t first = p->at;
    for (*out = 0; isdigit(peek(p)); p->at++)
        if (*out <= REPEAT_MAX) *out = *out * 10 + (uint32_t)(peek(p) - '0');
    return p->at > first;
}

static sh_expr parse_bounds(parser *p, sh_expr e)
{
    size_t start = p->at - 1;
    uint32_t min, max;
    skip_space(p);
    bool ok = read_number(p, &min);
    max = min;
    skip_space(p);
    if (take(p, ",")) {
        skip_space(p);
        bool has_max = read_number(p, &max);
        if (!has_max) max = SH_EXPR_UNLIMITED;
        ok = ok || has_max;
        skip_space(p);
    }
    if (!take(p, "}") || !ok || min > max)
        return fail(p, start, SH_ERR_INPUT, "bounds must be {m}, {m,} or {m,n}");
    if (min > REPEAT_MAX || (max > REPEAT_MAX && max != SH_EXPR_UNLIMITED))
        return fail(p, start, SH_ERR_LIMIT, "at most 65000 repetitions are allowed");
    return sh_expr_repeat(p->b, e, min, max);
}

static sh_expr parse_repeated(parser *p)
{
    sh_expr e = parse_atom(p);
    while (sh_expr_ok(p->b)) {
        size_t before = p->at;
        skip_space(p);
        if (take(p, "*"))
            e = sh_expr_repeat(p->b, e, 0, SH_EXPR_UNLIMITED);
        else if (take(p, "+"))
            e = sh_expr_repeat(p->b, e, 1, SH_EXPR_UNLIMITED);
        else if (take(p, "?"))
            e = sh_expr_optional(p->b, e);
        else if (take(p, "{"))
            e = parse_bounds(p, e);
        else {
            p->at = before;
            break;
        }
    }
    return e;
}

static sh_expr parse_sequence(parser *p)
{
    expr_list list = {0};
    while (sh_expr_ok(p->b)) {
        skip_space(p);
        if (peek(p) < 0 || strchr("|);", peek(p)) != NULL || at_rule(p)) break;
        if (take(p, ",")) continue; /* ISO's EBNF has commas between parts */
        push(&list, parse_repeated(p));
    }
    sh_expr e = sh_expr_seq(p->b, list.items, list.count);
    free(list.items);
    return e;
}

static sh_expr parse_alternatives(parser *p)
{
    expr_list list = {0};
    do push(&list, parse_sequence(p));
    while (take(p, "|") && sh_expr_ok(p->b));
    sh_expr e = sh_expr_any_of(p->b, list.items, list.count);
    free(list.items);
    return e;
}

static void parse_rule(parser *p)
{
    size_t start = p->at;
    if (!at_rule(p)) {
        if (peek(p) == '%')
            fail(p, start, SH_ERR_UNSUPPORTED, "directives are not supported");
        else
            fail(p, start, SH_ERR_INPUT, "expected a rule: name ::= ...");
        return;
    }
    sh_expr rule = find_rule(p, read_name(p));
    skip_space(p);
    take_definition(p);
    if (!sh_expr_ok(p->b)) return;
    if (sh_expr_at(p->b, rule)->defined) {
        fail(p, start, SH_ERR_INPUT, "a rule that was defined before");
        return;
    }
    place l = place_of(p, start);
    sh_expr body = parse_alternatives(p);
    if (sh_expr_ok(p->b)) sh_expr_define(p->b, rule, body);
    sh_expr_set_place(p->b, rule, l.line, l.column);
    if (!take(p, ";") && peek(p) == ')') fail(p, p->at, SH_ERR_INPUT, "a ) without its (");
}

/* Names are parts of the text, so they tell where they were used first. */
static void check_defined(parser *p)
{
    for (size_t i = 0; i < p->rule_count && sh_expr_ok(p->b); i++) {
        sh_str name = p->rules[i].name;
        char what[160];
        if (sh_expr_at(p->b, p->rules[i].rule)->defined) continue;
        snprintf(what, sizeof(what), "the rule '%.*s' is used but not defined",
                 (int)(name.len < 100 ? name.len : 100), name.ptr);
        fail(p, (size_t)(name.ptr - p->text.ptr), SH_ERR_INPUT, what);
    }
}

/* If there is none, the fault is with all rules: it is placed where they begin. */
static sh_expr find_root(parser *p)
{
    for (size_t i = 0; i < p->rule_count; i++)
        if (sh_str_is(p->rules[i].name, "root")) return p->rules[i].rule;
    for (size_t i = 0; i < p->rule_count; i++)
        if (sh_str_is(p->rules[i].name, "start")) return p->rules[i].rule;
    p->at = 0;
    skip_space(p);
    return fail(p, p->at, SH_ERR_INPUT, "there is no rule 'root'");
}

sh_expr sh_expr_gbnf(sh_grammar_builder *b, sh_str text)
{
    parser p = {.b = b, .text = text};
    if (text.len > SH_GRAMMAR_TEXT_MAX)
        return sh_expr_fail(b, SH_ERR_LIMIT, "the grammar has %zu bytes, at most %d are allowed",
                            text.len, SH_GRAMMAR_TEXT_MAX);
    for (skip_space(&p); p.at < text.len && sh_expr_ok(b); skip_space(&p)) parse_rule(&p);
    if (sh_expr_ok(b)) check_defined(&p);
    sh_expr root = sh_expr_ok(b) ? find_root(&p) : SH_EXPR_AT_NEVER;
    free(p.rules);
    return root;
}
