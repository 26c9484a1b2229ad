/* grammar.h - the form of a text: what an answer must match, byte by byte.
 *
 * A grammar is built from expressions. The front ends (JSON Schema, regular expressions, GBNF) make
 * expressions as well, so that they combine: the calls of a dialect are literals around the JSON of
 * a schema. Compiling gives a byte automaton with a stack; matcher.h runs it.
 *
 *     sh_grammar_builder *b = sh_grammar_builder_create();
 *     sh_expr args = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = true});
 *     sh_expr call[] = {sh_expr_until(b, SH_STR("<tool_call>")),
 *                       sh_expr_literal(b, SH_STR("\n{\"name\": \"f\", \"arguments\": ")), args,
 *                       sh_expr_literal(b, SH_STR("}\n</tool_call>"))};
 *     status = sh_grammar_compile(b, sh_expr_seq(b, call, 4), &grammar, err);
 *     sh_grammar_builder_free(b);
 *
 * Errors are sticky: an expression that cannot be made leaves its error in the builder, everything
 * made from it is harmless, and sh_grammar_compile() returns the first error. What a client wrote
 * is SH_ERR_INPUT, what cannot be enforced SH_ERR_UNSUPPORTED (by its path in the schema or its
 * position in the pattern), what is too large SH_ERR_LIMIT.
 *
 * Grammars come from strangers: rules, automaton states, the work of compiling and nesting are all
 * bounded (limits.h).
 *
 * Threads: a builder has one owner. A grammar is immutable; every thread may use it. */
#ifndef SH_TEXT_GRAMMAR_GRAMMAR_H
#define SH_TEXT_GRAMMAR_GRAMMAR_H

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sh_grammar sh_grammar;
typedef struct sh_grammar_builder sh_grammar_builder;

/* An expression of one builder. It can be used any number of times. */
typedef uint32_t sh_expr;

sh_grammar_builder *sh_grammar_builder_create(void);
void sh_grammar_builder_free(sh_grammar_builder *b);

/* ---- composition ---- */

#define SH_EXPR_UNLIMITED UINT32_MAX

sh_expr sh_expr_literal(sh_grammar_builder *b, sh_str bytes);
sh_expr sh_expr_seq(sh_grammar_builder *b, const sh_expr *items, size_t count);
sh_expr sh_expr_any_of(sh_grammar_builder *b, const sh_expr *items, size_t count);
sh_expr sh_expr_repeat(sh_grammar_builder *b, sh_expr item, uint32_t min, uint32_t max);
sh_expr sh_expr_optional(sh_grammar_builder *b, sh_expr item);

/* A token by its id, for special tokens: their text never matches a literal, and no other
 * expression allows them. */
sh_expr sh_expr_token(sh_grammar_builder *b, int32_t id);

/* A rule can be used before its body is defined, also within its own body. The name is for errors.
 * A rule that begins with itself (left recursion) is an error. */
sh_expr sh_expr_rule(sh_grammar_builder *b, sh_str name);
void sh_expr_define(sh_grammar_builder *b, sh_expr rule, sh_expr body);

/* ---- text ---- */

sh_expr sh_expr_text(sh_grammar_builder *b); /* any UTF-8 text, also none */

/* Any text up to and including the first occurrence of the literal. */
sh_expr sh_expr_until(sh_grammar_builder *b, sh_str literal);

/* Any text in which none of the literals occurs. */
sh_expr sh_expr_text_without(sh_grammar_builder *b, const sh_str *literals, size_t count);

/* ---- front ends ---- */

/* One of these strings, as they are. */
sh_expr sh_expr_choice(sh_grammar_builder *b, const sh_str *choices, size_t count);

/* The whole text matches the pattern: ECMAScript's syntax and classes without what looks around
 * (assertions other than ^ and $ at the ends, back references). Lazy quantifiers match the same
 * texts as greedy ones. */
sh_expr sh_expr_regex(sh_grammar_builder *b, sh_str pattern);

/* llama.cpp's grammars, starting at the rule `root`, and the same in the notation of EBNF: rules
 * with `:` or `=`, an optional `;`, `start` for `root`, comments with `//`. */
sh_expr sh_expr_gbnf(sh_grammar_builder *b, sh_str text);

/* How JSON is written. Properties come in the order of the schema. With `spaces`, a space or a line
 * break with indentation may follow {, [, `,` and `:` and precede } and ]; the length of each is
 * limited, so that no answer consists of white space. Otherwise there is none. */
typedef struct {
    bool spaces;
    bool object; /* only objects, whatever else the schema allows */
    bool python; /* its constants: True, False and None */
} sh_json_form;

/* JSON that is valid under the schema. `schema` is only read during the call. A keyword that cannot
 * be enforced is an error with its path, such as "/properties/a/not: cannot be enforced". */
sh_expr sh_expr_json_schema(sh_grammar_builder *b, const cJSON *schema, sh_json_form form);

/* An object whose members are written between tags, or as arguments of a call in Python: for each
 * `key` NAME `middle` VALUE `end`, with `between` between two of them. Values are JSON, or strings
 * as they are: only who reads them can tell which, so `value` asks for it. No string contains
 * `stop`, which ends a value, if there is one. Nested objects are JSON. */
typedef struct {
    bool json;       /* it may be JSON; other than a string, if it may be bare as well */
    bool bare;       /* it may be a string as it is */
    sh_str not_bare; /* pattern of strings that would be read as JSON; or empty */
} sh_tag_value;

typedef struct {
    sh_expr key, middle, end, between;
    sh_str stop;
    const char *not_in_names; /* bytes that a name cannot contain */
    bool python;              /* constants as in sh_json_form */
    /* `name` is NULL for a member that the schema does not name. */
    sh_tag_value (*value)(void *arg, const char *name);
    void *arg;
} sh_tag_form;

sh_expr sh_expr_tagged_object(sh_grammar_builder *b, const cJSON *schema, const sh_tag_form *tags);

sh_expr sh_expr_json_object(sh_grammar_builder *b, sh_json_form form); /* any JSON object */
sh_expr sh_expr_json_string(sh_grammar_builder *b, sh_str value);      /* this one, quoted */

/* ---- result ---- */

/* Whether there was no error so far, for callers that want to know which part of theirs had it. */
bool sh_grammar_builder_ok(const sh_grammar_builder *b);

/* The builder remains usable, for other roots. *out is owned by the caller. */
SH_MUST_CHECK sh_status sh_grammar_compile(sh_grammar_builder *b, sh_expr root, sh_grammar **out,
                                           sh_err *err);
void sh_grammar_free(sh_grammar *grammar);

typedef struct {
    uint32_t rules;
    uint32_t states;
    size_t bytes; /* memory */
} sh_grammar_size;

sh_grammar_size sh_grammar_measure(const sh_grammar *grammar);

#endif
