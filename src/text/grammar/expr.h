/* expr.h - the expressions of a grammar, as the front ends make them and the compiler reads them.
 *
 * Expressions live in the builder's arena and are never changed, except that a rule gets its body.
 * Making one that cannot match yields NEVER, which swallows the sequence around it.
 *
 * Threads: a builder has one owner. */
#ifndef SH_TEXT_GRAMMAR_EXPR_H
#define SH_TEXT_GRAMMAR_EXPR_H

#include "base/arena.h"
#include "text/grammar/charset.h"
#include "text/grammar/grammar.h"
#include "text/grammar/lang.h"

typedef enum {
    SH_EXPR_NEVER, /* matches nothing */
    SH_EXPR_EMPTY, /* matches the empty text */
    SH_EXPR_BYTES, /* a byte from text to text_hi at each place */
    SH_EXPR_CLASS, /* one character of a set, in UTF-8 */
    SH_EXPR_SEQ,
    SH_EXPR_ANY_OF,
    SH_EXPR_REPEAT,
    SH_EXPR_RULE,
    SH_EXPR_LANG,        /* one of a regular set of strings, in UTF-8 */
    SH_EXPR_LANG_QUOTED, /* the same as the inside of a JSON string */
} sh_expr_kind;

typedef struct {
    sh_expr_kind kind;
    bool defined;          /* RULE */
    uint32_t min, max;     /* REPEAT */
    uint32_t line, column; /* RULE: where the client defined it; 0: in no text */
    sh_str text;           /* BYTES; the name of a RULE */
    const char *text_hi;
    sh_expr *items; /* SEQ, ANY_OF; one for REPEAT and RULE */
    size_t count;
    const sh_charset *set;
    const sh_lang *lang;
} sh_expr_node;

/* The rule for the escapes of a set of ASCII characters. */
typedef struct {
    uint64_t ascii[2];
    sh_expr rule;
} sh_escape_rule;

struct sh_grammar_builder {
    sh_arena arena;
    sh_expr_node *nodes;
    size_t count, cap;
    sh_expr multibyte;        /* rule: any character of two bytes or more; 0 until used */
    sh_expr multibyte_quoted; /* rule: such a character in a JSON string, also as \uXXXX */
    sh_escape_rule *escapes;
    size_t escape_count, escape_cap;
    uint64_t work;
    sh_err err; /* the first error; status SH_OK without one */
};

/* NEVER and EMPTY have fixed numbers. */
enum { SH_EXPR_AT_NEVER = 0, SH_EXPR_AT_EMPTY = 1 };

const sh_expr_node *sh_expr_at(const sh_grammar_builder *b, sh_expr e);

/* Keeps the error if it is the first. Returns NEVER, for `return sh_expr_fail(...)`. */
sh_expr sh_expr_fail(sh_grammar_builder *b, sh_status status, const char *fmt, ...) SH_PRINTF(3, 4);

/* Counts work; false, with an error, when too much was done. */
bool sh_expr_spend(sh_grammar_builder *b, uint64_t steps);

static inline bool sh_expr_ok(const sh_grammar_builder *b)
{
    return b->err.status == SH_OK;
}

sh_expr sh_expr_class(sh_grammar_builder *b, const sh_charset *set);           /* copies the set */
sh_expr sh_expr_lang(sh_grammar_builder *b, const sh_lang *lang, bool quoted); /* borrows */

/* A new rule with this body, so that it is compiled once however often it is used. */
sh_expr sh_expr_named(sh_grammar_builder *b, const char *name, sh_expr body);

/* Where a rule is defined, for errors that are found when it is compiled. */
void sh_expr_set_place(sh_grammar_builder *b, sh_expr rule, uint32_t line, uint32_t column);

/* A copy of a set or a text in the builder's arena. */
const sh_charset *sh_expr_keep_set(sh_grammar_builder *b, const sh_charset *set);

/* The parts of characters that are rules of their own: shared, and known to the mask walk. */
sh_expr sh_expr_multibyte(sh_grammar_builder *b);
sh_expr sh_expr_multibyte_quoted(sh_grammar_builder *b);
sh_expr sh_expr_escapes(sh_grammar_builder *b, const bool ascii[128]);

/* Reads exactly `digits` hex digits at *at and advances it. */
bool sh_expr_read_hex(sh_str text, size_t *at, int digits, uint32_t *code);

/* The pattern as an expression of characters, for sh_lang_from_expr(). */
sh_expr sh_expr_parse_regex(sh_grammar_builder *b, sh_str pattern);

#endif
