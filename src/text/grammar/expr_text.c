/* Expressions for free text, and the shortest front ends. */
#include "text/grammar/expr.h"
#include "text/grammar/limits.h"

#include <stdlib.h>

sh_expr sh_expr_text(sh_grammar_builder *b)
{
    return sh_expr_lang(b, sh_lang_any(b), false);
}

sh_expr sh_expr_until(sh_grammar_builder *b, sh_str literal)
{
    if (literal.len == 0) return SH_EXPR_AT_EMPTY;
    return sh_expr_lang(b, sh_lang_before_first(b, &literal, 1, true), false);
}

sh_expr sh_expr_text_without(sh_grammar_builder *b, const sh_str *literals, size_t count)
{
    return sh_expr_lang(b, sh_lang_before_first(b, literals, count, false), false);
}

sh_expr sh_expr_choice(sh_grammar_builder *b, const sh_str *choices, size_t count)
{
    if (count == 0) return sh_expr_fail(b, SH_ERR_INPUT, "a choice needs at least one string");
    return sh_expr_lang(b, sh_lang_words(b, choices, count), false);
}

sh_expr sh_expr_regex(sh_grammar_builder *b, sh_str pattern)
{
    return sh_expr_lang(b, sh_lang_regex(b, pattern, true), false);
}
