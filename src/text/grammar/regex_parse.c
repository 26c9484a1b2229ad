/* Regular expressions as expressions of characters.
 *
 * The syntax is what ECMAScript and Python have in common; \d, \w, \s and . mean what they mean in
 * ECMAScript. What needs to look around (look-ahead, \b, back references) is not a regular set in
 * the form that we need and is refused by its position. Lazy quantifiers are read as greedy ones:
 * they prefer other matches of a part, but match the same texts. */
#include "text/grammar/expr.h"
#include "text/grammar/limits.h"

#include "base/alloc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_MAX = 65000 };

typedef struct {
    sh_grammar_builder *b;
    sh_str text;
    size_t at;
    int depth;
} parser;

typedef struct {
    sh_expr *items;
    size_t count, cap;
} expr_list;

static void push(expr_list *list, sh_expr e)
{
    if (list->count == list->cap) {
        list->cap = list->cap == 0 ? 8 : list->cap * 2;
        list->items = sh_realloc_array(list->items, list->cap, sizeof(*list->items));
    }
    list->items[list->count++] = e;
}

static sh_expr parse_alternatives(parser *p);

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

static sh_expr refuse(parser *p, size_t at, const char *what)
{
    return sh_expr_fail(p->b, SH_ERR_UNSUPPORTED, "pattern, at %zu: %s cannot be enforced", at,
                        what);
}

static sh_expr complain(parser *p, size_t at, const char *what)
{
    return sh_expr_fail(p->b, SH_ERR_INPUT, "pattern, at %zu: %s", at, what);
}

static sh_expr one_char(parser *p, uint32_t code)
{
    sh_char_range range = {code, code};
    return sh_expr_class(p->b, &(sh_charset){.ranges = &range, .count = 1});
}

/* ---- escapes ---- */

static void add_shorthand(sh_charset *set, char letter)
{
    static const sh_char_range digits[] = {{'0', '9'}};
    static const sh_char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const sh_char_range spaces[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    sh_charset part = {0};
    int kind = tolower(letter);
    const sh_char_range *ranges = kind == 'd' ? digits : kind == 'w' ? words : spaces;
    size_t count = kind == 'd' ? 1 : kind == 'w' ? 4 : SH_COUNT_OF(spaces);
    for (size_t i = 0; i < count; i++) sh_charset_add(&part, ranges[i].lo, ranges[i].hi);
    if (isupper(letter)) sh_charset_invert(&part);
    sh_charset_add_set(set, &part);
    sh_charset_reset(&part);
}

bool sh_expr_read_hex(sh_str text, size_t *at, int digits, uint32_t *code)
{
    uint32_t value = 0;
    if (text.len - *at < (size_t)digits) return false;
    for (int i = 0; i < digits; i++) {
        int c = tolower((uint8_t)text.ptr[*at + (size_t)i]);
        if (!isxdigit(c)) return false;
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *at += (size_t)digits;
    *code = value;
    return true;
}

/* After \u: four digits, a pair of surrogates, or any number of digits in braces. */
static bool read_unicode(parser *p, uint32_t *code)
{
    if (take(p, "{")) {
        uint32_t digit = 0;
        size_t first = p->at;
        for (*code = 0; sh_expr_read_hex(p->text, &p->at, 1, &digit) && *code <= SH_CHAR_MAX;)
            *code = *code * 16 + digit;
        return p->at > first && take(p, "}") && *code <= SH_CHAR_MAX;
    }
    if (!sh_expr_read_hex(p->text, &p->at, 4, code)) return false;
    size_t after = p->at;
    uint32_t low;
    if (*code >= 0xd800 && *code <= 0xdbff && take(p, "\\u") &&
        sh_expr_read_hex(p->text, &p->at, 4, &low) && low >= 0xdc00 && low <= 0xdfff)
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    else
        p->at = after;
    return *code < 0xd800 || *code > 0xdfff;
}

/* A character after the backslash; false, with an error, if it is none. */
static bool read_escape(parser *p, bool in_class, uint32_t *code)
{
    static const char letters[] = "t\tn\nr\rf\fv\v0";
    size_t start = p->at - 1;
    int c = peek(p);
    if (c < 0) {
        complain(p, start, "a backslash at the end");
        return false;
    }
    p->at++;
    for (size_t i = 0; i < sizeof(letters); i += 2) {
        if (letters[i] != c) continue;
        *code = (uint8_t)letters[i + 1];
        if (c == '0' && isdigit(peek(p))) refuse(p, start, "an octal escape");
        return sh_expr_ok(p->b);
    }
    if (c == 'b' && in_class) {
        *code = '\b';
        return true;
    }
    if ((c == 'x' && sh_expr_read_hex(p->text, &p->at, 2, code)) ||
        (c == 'u' && read_unicode(p, code)))
        return true;
    if (c == 'x' || c == 'u')
        complain(p, start, "an escape without its hexadecimal digits");
    else if (c == 'b' || c == 'B')
        refuse(p, start, "a word boundary");
    else if (isdigit(c) || c == 'k')
        refuse(p, start, "a back reference");
    else if (c == 'p' || c == 'P')
        refuse(p, start, "a Unicode property");
    else if (isalpha(c))
        complain(p, start, "an unknown escape");
    *code = (uint32_t)c;
    if (c >= 0x80) complain(p, start, "an unknown escape");
    return sh_expr_ok(p->b);
}

static bool is_shorthand(int c)
{
    return c > 0 && strchr("dDwWsS", c) != NULL;
}

/* ---- classes ---- */

static bool read_plain(parser *p, uint32_t *code)
{
    int len = sh_utf8_decode(p->text.ptr + p->at, p->text.len - p->at, code);
    p->at += (size_t)len;
    return len > 0;
}

/* One end of a range, or a whole shorthand, for which *code is set to UINT32_MAX. */
static bool read_class_item(parser *p, sh_charset *set, uint32_t *code)
{
    if (!take(p, "\\")) return read_plain(p, code);
    if (!is_shorthand(peek(p))) return read_escape(p, true, code);
    add_shorthand(set, p->text.ptr[p->at++]);
    *code = UINT32_MAX;
    return true;
}

static bool read_class_range(parser *p, sh_charset *set)
{
    size_t start = p->at;
    uint32_t lo, hi;
    if (!read_class_item(p, set, &lo)) return false;
    if (lo == UINT32_MAX) return true;
    hi = lo;
    if (peek(p) == '-' && p->at + 1 < p->text.len && p->text.ptr[p->at + 1] != ']') {
        p->at++;
        if (!read_class_item(p, set, &hi)) return false;
        if (hi == UINT32_MAX || hi < lo) {
            complain(p, start, "a range whose ends are in the wrong order");
            return false;
        }
    }
    sh_charset_add(set, lo, hi);
    return true;
}

static sh_expr parse_class(parser *p)
{
    size_t start = p->at - 1;
    sh_charset set = {0};
    bool inverted = take(p, "^");
    if (peek(p) == ']') return complain(p, start, "an empty class");
    while (peek(p) >= 0 && peek(p) != ']')
        if (!read_class_range(p, &set)) break;
    sh_expr e = SH_EXPR_AT_NEVER;
    if (!take(p, "]"))
        complain(p, start, "a class that is not closed");
    else {
        if (inverted) sh_charset_invert(&set);
        e = sh_expr_class(p->b, &set);
    }
    sh_charset_reset(&set);
    return e;
}

static sh_expr parse_dot(parser *p)
{
    sh_charset set = {0};
    sh_charset_add(&set, '\n', '\n');
    sh_charset_add(&set, '\r', '\r');
    sh_charset_add(&set, 0x2028, 0x2029);
    sh_charset_invert(&set);
    sh_expr e = sh_expr_class(p->b, &set);
    sh_charset_reset(&set);
    return e;
}

/* ---- structure ---- */

static bool skip_group_head(parser *p)
{
    static const char *const looks[] = {"?=", "?!", "?<=", "?<!"};
    size_t start = p->at - 1;
    for (size_t i = 0; i < SH_COUNT_OF(looks); i++)
        if (take(p, looks[i])) refuse(p, start, "looking ahead or behind");
    if (take(p, "?:") || !sh_expr_ok(p->b)) return sh_expr_ok(p->b);
    if (take(p, "?<") || take(p, "?P<")) {
        while (isalnum(peek(p)) || peek(p) == '_') p->at++;
        if (!take(p, ">")) complain(p, start, "a group name that is not closed");
    } else if (peek(p) == '?')
        refuse(p, start, "this kind of group");
    return sh_expr_ok(p->b);
}

static sh_expr parse_group(parser *p)
{
    size_t start = p->at - 1;
    if (!skip_group_head(p)) return SH_EXPR_AT_NEVER;
    if (++p->depth > SH_GRAMMAR_NEST_MAX)
        return sh_expr_fail(p->b, SH_ERR_LIMIT,
                            "pattern, at %zu: groups are nested more than %d deep", start,
                            SH_GRAMMAR_NEST_MAX);
    sh_expr e = parse_alternatives(p);
    p->depth--;
    if (!take(p, ")")) return complain(p, start, "a group that is not closed");
    return e;
}

static sh_expr parse_backslash(parser *p)
{
    uint32_t code;
    if (is_shorthand(peek(p))) {
        sh_charset set = {0};
        add_shorthand(&set, p->text.ptr[p->at++]);
        sh_expr e = sh_expr_class(p->b, &set);
        sh_charset_reset(&set);
        return e;
    }
    if (take(p, "A")) return one_char(p, SH_CHAR_BEGIN);
    if (take(p, "Z") || take(p, "z")) return one_char(p, SH_CHAR_END);
    return read_escape(p, false, &code) ? one_char(p, code) : SH_EXPR_AT_NEVER;
}

static sh_expr parse_atom(parser *p)
{
    size_t start = p->at;
    uint32_t code;
    switch (peek(p)) {
    case '(': p->at++; return parse_group(p);
    case '[': p->at++; return parse_class(p);
    case '.': p->at++; return parse_dot(p);
    case '^': p->at++; return one_char(p, SH_CHAR_BEGIN);
    case '$': p->at++; return one_char(p, SH_CHAR_END);
    case '\\': p->at++; return parse_backslash(p);
    case '*':
    case '+':
    case '?': return complain(p, start, "a quantifier without anything before it");
    default:
        if (!read_plain(p, &code)) return complain(p, start, "not valid UTF-8");
        return one_char(p, code);
    }
}

static bool read_number(parser *p, uint32_t *out)
{
    size_t first = p->at;
    for (*out = 0; isdigit(peek(p)); p->at++)
        if (*out <= REPEAT_MAX) *out = *out * 10 + (uint32_t)(peek(p) - '0');
    return p->at > first;
}

/* {2}, {2,}, {2,5} or {,5}; anything else in braces stands for itself. */
static bool read_bounds(parser *p, uint32_t *min, uint32_t *max)
{
    size_t start = p->at;
    if (!take(p, "{")) return false;
    bool has_min = read_number(p, min), has_max = has_min;
    *max = *min;
    if (take(p, ",")) {
        has_max = read_number(p, max);
        if (!has_max) *max = SH_EXPR_UNLIMITED;
    }
    if (take(p, "}") && (has_min || has_max)) {
        if (*min > REPEAT_MAX || (has_max && *max > REPEAT_MAX))
            sh_expr_fail(p->b, SH_ERR_LIMIT, "pattern, at %zu: at most %d repetitions are allowed",
                         start, REPEAT_MAX);
        else if (*min > *max)
            complain(p, start, "a quantifier whose bounds are in the wrong order");
        return true;
    }
    p->at = start;
    return false;
}

static sh_expr parse_quantified(parser *p)
{
    size_t start = p->at;
    sh_expr e = parse_atom(p);
    uint32_t min = 0, max = SH_EXPR_UNLIMITED;
    bool anchor = p->at == start + 1 && (p->text.ptr[start] == '^' || p->text.ptr[start] == '$');
    if (take(p, "+"))
        min = 1;
    else if (take(p, "?"))
        max = 1;
    else if (!take(p, "*") && !read_bounds(p, &min, &max))
        return e;
    if (anchor) return complain(p, start, "a quantifier after an anchor");
    if (!take(p, "?") && peek(p) == '+') return refuse(p, p->at, "a possessive quantifier");
    return sh_expr_repeat(p->b, e, min, max);
}

static sh_expr parse_sequence(parser *p)
{
    expr_list list = {0};
    while (peek(p) >= 0 && peek(p) != '|' && peek(p) != ')' && sh_expr_ok(p->b))
        push(&list, parse_quantified(p));
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

sh_expr sh_expr_parse_regex(sh_grammar_builder *b, sh_str pattern)
{
    parser p = {.b = b, .text = pattern};
    if (pattern.len > SH_GRAMMAR_TEXT_MAX)
        return sh_expr_fail(b, SH_ERR_LIMIT, "a pattern has %zu bytes, at most %d are allowed",
                            pattern.len, SH_GRAMMAR_TEXT_MAX);
    sh_expr e = parse_alternatives(&p);
    if (p.at < pattern.len) complain(&p, p.at, "a ) without its (");
    return e;
}
