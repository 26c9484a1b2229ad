/* Expressions: composition, and the rules for characters that all grammars share. */
#include "text/grammar/expr.h"

#include "base/alloc.h"
#include "text/grammar/limits.h"
#include "text/grammar/token_trie.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sh_expr add(sh_grammar_builder *b, sh_expr_node node)
{
    if (b->count >= SH_GRAMMAR_EXPRS_MAX)
        return sh_expr_fail(b, SH_ERR_LIMIT, "the grammar has more than %d expressions",
                            SH_GRAMMAR_EXPRS_MAX);
    if (b->count == b->cap) {
        b->cap = b->cap == 0 ? 64 : b->cap * 2;
        b->nodes = sh_realloc_array(b->nodes, b->cap, sizeof(*b->nodes));
    }
    b->nodes[b->count] = node;
    return (sh_expr)b->count++;
}

sh_grammar_builder *sh_grammar_builder_create(void)
{
    sh_grammar_builder *b = sh_alloc(sizeof(*b));
    add(b, (sh_expr_node){.kind = SH_EXPR_NEVER});
    add(b, (sh_expr_node){.kind = SH_EXPR_EMPTY});
    return b;
}

void sh_grammar_builder_free(sh_grammar_builder *b)
{
    if (b == NULL) return;
    sh_arena_reset(&b->arena);
    free(b->nodes);
    free(b->escapes);
    free(b);
}

bool sh_grammar_builder_ok(const sh_grammar_builder *b)
{
    return sh_expr_ok(b);
}

const sh_expr_node *sh_expr_at(const sh_grammar_builder *b, sh_expr e)
{
    SH_ASSERT(e < b->count);
    return &b->nodes[e];
}

sh_expr sh_expr_fail(sh_grammar_builder *b, sh_status status, const char *fmt, ...)
{
    char text[SH_ERR_TEXT_MAX];
    va_list args;
    if (b->err.status != SH_OK) return SH_EXPR_AT_NEVER;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    sh_err_set(&b->err, status, "%s", text);
    return SH_EXPR_AT_NEVER;
}

bool sh_expr_spend(sh_grammar_builder *b, uint64_t steps)
{
    b->work += steps;
    if (b->work > SH_GRAMMAR_WORK_MAX || b->arena.used > SH_GRAMMAR_ARENA_MAX)
        sh_expr_fail(b, SH_ERR_LIMIT, "the grammar is too complex: compiling it takes too long");
    return sh_expr_ok(b);
}

/* ---- composition ---- */

sh_expr sh_expr_literal(sh_grammar_builder *b, sh_str bytes)
{
    if (bytes.len == 0) return SH_EXPR_AT_EMPTY;
    if (bytes.len > SH_GRAMMAR_TEXT_MAX || !sh_expr_spend(b, bytes.len))
        return sh_expr_fail(b, SH_ERR_LIMIT, "a literal has %zu bytes, at most %d are allowed",
                            bytes.len, SH_GRAMMAR_TEXT_MAX);
    sh_str text = sh_arena_str(&b->arena, bytes);
    return add(b, (sh_expr_node){.kind = SH_EXPR_BYTES, .text = text, .text_hi = text.ptr});
}

static sh_expr add_list(sh_grammar_builder *b, sh_expr_kind kind, const sh_expr *items,
                        size_t count)
{
    sh_expr *copy = sh_arena_array(&b->arena, count, sizeof(*copy));
    memcpy(copy, items, count * sizeof(*copy));
    return add(b, (sh_expr_node){.kind = kind, .items = copy, .count = count});
}

sh_expr sh_expr_seq(sh_grammar_builder *b, const sh_expr *items, size_t count)
{
    if (count == 0) return SH_EXPR_AT_EMPTY;
    if (count == 1) return items[0];
    if (!sh_expr_spend(b, count)) return SH_EXPR_AT_NEVER;
    for (size_t i = 0; i < count; i++)
        if (items[i] == SH_EXPR_AT_NEVER) return SH_EXPR_AT_NEVER;
    return add_list(b, SH_EXPR_SEQ, items, count);
}

sh_expr sh_expr_any_of(sh_grammar_builder *b, const sh_expr *items, size_t count)
{
    if (count == 0) return SH_EXPR_AT_NEVER;
    if (count == 1) return items[0];
    if (!sh_expr_spend(b, count)) return SH_EXPR_AT_NEVER;
    return add_list(b, SH_EXPR_ANY_OF, items, count);
}

sh_expr sh_expr_repeat(sh_grammar_builder *b, sh_expr item, uint32_t min, uint32_t max)
{
    if (min > max) return SH_EXPR_AT_NEVER;
    if (min == 1 && max == 1) return item;
    if (max == 0) return SH_EXPR_AT_EMPTY;
    if (item == SH_EXPR_AT_NEVER) return min == 0 ? SH_EXPR_AT_EMPTY : SH_EXPR_AT_NEVER;
    sh_expr e = add_list(b, SH_EXPR_REPEAT, &item, 1);
    b->nodes[e].min = min;
    b->nodes[e].max = max;
    return e;
}

sh_expr sh_expr_optional(sh_grammar_builder *b, sh_expr item)
{
    return sh_expr_repeat(b, item, 0, 1);
}

sh_expr sh_expr_token(sh_grammar_builder *b, int32_t id)
{
    char bytes[SH_TOKEN_MARK_LEN];
    sh_token_mark(id, bytes);
    return sh_expr_literal(b, (sh_str){bytes, sizeof(bytes)});
}

sh_expr sh_expr_rule(sh_grammar_builder *b, sh_str name)
{
    sh_expr body = SH_EXPR_AT_NEVER;
    if (!sh_expr_spend(b, name.len + 1)) return SH_EXPR_AT_NEVER;
    sh_expr e = add_list(b, SH_EXPR_RULE, &body, 1);
    b->nodes[e].text = sh_arena_str(&b->arena, name);
    return e;
}

void sh_expr_define(sh_grammar_builder *b, sh_expr rule, sh_expr body)
{
    if (rule == SH_EXPR_AT_NEVER) return; /* the builder has failed */
    SH_ASSERT(b->nodes[rule].kind == SH_EXPR_RULE && !b->nodes[rule].defined);
    b->nodes[rule].items[0] = body;
    b->nodes[rule].defined = true;
}

void sh_expr_set_place(sh_grammar_builder *b, sh_expr rule, uint32_t line, uint32_t column)
{
    if (rule == SH_EXPR_AT_NEVER) return; /* the builder has failed */
    b->nodes[rule].line = line;
    b->nodes[rule].column = column;
}

sh_expr sh_expr_named(sh_grammar_builder *b, const char *name, sh_expr body)
{
    sh_expr rule = sh_expr_rule(b, sh_str_of(name));
    sh_expr_define(b, rule, body);
    return rule;
}

const sh_charset *sh_expr_keep_set(sh_grammar_builder *b, const sh_charset *set)
{
    sh_charset *copy = sh_arena_alloc(&b->arena, sizeof(*copy));
    copy->ranges = sh_arena_array(&b->arena, set->count, sizeof(*copy->ranges));
    copy->count = set->count;
    if (set->count > 0) memcpy(copy->ranges, set->ranges, set->count * sizeof(*copy->ranges));
    return copy;
}

sh_expr sh_expr_class(sh_grammar_builder *b, const sh_charset *set)
{
    if (set->count == 0) return SH_EXPR_AT_NEVER;
    if (!sh_expr_spend(b, set->count)) return SH_EXPR_AT_NEVER;
    return add(b, (sh_expr_node){.kind = SH_EXPR_CLASS, .set = sh_expr_keep_set(b, set)});
}

sh_expr sh_expr_lang(sh_grammar_builder *b, const sh_lang *lang, bool quoted)
{
    if (lang == NULL || sh_lang_is_empty(lang)) return SH_EXPR_AT_NEVER;
    return add(b,
               (sh_expr_node){.kind = quoted ? SH_EXPR_LANG_QUOTED : SH_EXPR_LANG, .lang = lang});
}

/* ---- the rules for characters ---- */

/* A class would call the rule that is made here, so the bytes are spelled out. */
static sh_expr multibyte_body(sh_grammar_builder *b)
{
    sh_expr items[32];
    size_t count = 0;
    uint32_t lo = 0x80;
    sh_utf8_seq seq;
    while (sh_utf8_next_seq(&lo, SH_CHAR_MAX, &seq)) {
        sh_str low = {(const char *)seq.lo, (size_t)seq.len};
        sh_str high = {(const char *)seq.hi, (size_t)seq.len};
        items[count] = sh_expr_literal(b, low);
        b->nodes[items[count++]].text_hi = sh_arena_str(&b->arena, high).ptr;
        SH_ASSERT(count < SH_COUNT_OF(items));
    }
    return sh_expr_any_of(b, items, count);
}

sh_expr sh_expr_multibyte(sh_grammar_builder *b)
{
    if (b->multibyte == 0) b->multibyte = sh_expr_named(b, "character", multibyte_body(b));
    return b->multibyte;
}

/* Escapes of characters beyond ASCII: \u0080 to \uffff without surrogates, and pairs of those. */
static const char multibyte_escapes[] =
    "\\\\u(00[89a-fA-F][0-9a-fA-F]|0[1-9a-fA-F][0-9a-fA-F]{2}|[1-9a-cA-CefEF][0-9a-fA-F]{3}|"
    "[dD][0-7][0-9a-fA-F]{2}|[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})";

sh_expr sh_expr_multibyte_quoted(sh_grammar_builder *b)
{
    if (b->multibyte_quoted != 0) return b->multibyte_quoted;
    sh_expr rule = sh_expr_rule(b, SH_STR("character"));
    sh_expr forms[] = {multibyte_body(b), sh_expr_regex(b, sh_str_of(multibyte_escapes))};
    sh_expr_define(b, rule, sh_expr_any_of(b, forms, 2));
    b->multibyte_quoted = rule;
    return rule;
}

static sh_expr hex_digit(sh_grammar_builder *b, uint32_t digit)
{
    sh_charset set = {0};
    uint32_t lower = (uint32_t) "0123456789abcdef"[digit];
    sh_charset_add(&set, lower, lower);
    if (digit > 9) sh_charset_add(&set, lower - 'a' + 'A', lower - 'a' + 'A');
    sh_expr e = sh_expr_class(b, &set);
    sh_charset_reset(&set);
    return e;
}

static sh_expr escapes_body(sh_grammar_builder *b, const bool ascii[128])
{
    static const char letters[] = "\"\"\\\\//\bb\ff\nn\rr\tt"; /* a character, then its letter */
    sh_expr forms[128 + sizeof(letters)];
    size_t count = 0;
    for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
        char text[] = {'\\', letters[i + 1]};
        if (ascii[(uint8_t)letters[i]]) forms[count++] = sh_expr_literal(b, (sh_str){text, 2});
    }
    for (uint32_t c = 0; c < 128; c++) {
        if (!ascii[c]) continue;
        sh_expr parts[] = {sh_expr_literal(b, SH_STR("\\u00")), hex_digit(b, c >> 4),
                           hex_digit(b, c & 15)};
        forms[count++] = sh_expr_seq(b, parts, 3);
    }
    return sh_expr_any_of(b, forms, count);
}

sh_expr sh_expr_escapes(sh_grammar_builder *b, const bool ascii[128])
{
    uint64_t bits[2] = {0};
    for (uint32_t c = 0; c < 128; c++) bits[c / 64] |= (uint64_t)ascii[c] << c % 64;
    for (size_t i = 0; i < b->escape_count; i++)
        if (b->escapes[i].ascii[0] == bits[0] && b->escapes[i].ascii[1] == bits[1])
            return b->escapes[i].rule;
    if (b->escape_count == b->escape_cap) {
        b->escape_cap = b->escape_cap == 0 ? 8 : b->escape_cap * 2;
        b->escapes = sh_realloc_array(b->escapes, b->escape_cap, sizeof(*b->escapes));
    }
    sh_expr rule = sh_expr_named(b, "escape", escapes_body(b, ascii));
    b->escapes[b->escape_count++] = (sh_escape_rule){{bits[0], bits[1]}, rule};
    return rule;
}
