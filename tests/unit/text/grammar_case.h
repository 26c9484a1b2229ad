/* grammar_case.h - grammars against lists of texts, for the tests of the front ends. */
#ifndef SH_TESTS_GRAMMAR_CASE_H
#define SH_TESTS_GRAMMAR_CASE_H

#include "text/grammar/matcher.h"

#include "test.h"

enum { TEXTS_MAX = 12 };

typedef struct {
    const char *grammar;
    const char *yes[TEXTS_MAX]; /* texts that match */
    const char *no[TEXTS_MAX];
} grammar_case;

typedef struct {
    const char *grammar;
    const char *error; /* a part of it */
} refused_case;

typedef sh_expr (*make_expr)(sh_grammar_builder *b, const char *text);

__attribute__((unused)) static sh_status compile_case(make_expr make, const char *text,
                                                      sh_grammar **out, sh_err *err)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_status status = sh_grammar_compile(b, make(b, text), out, err);
    sh_grammar_builder_free(b);
    return status;
}

__attribute__((unused)) static bool case_matches(sh_matcher *m, const char *text)
{
    sh_match_state state;
    sh_err err;
    CHECK_OK(sh_matcher_bytes(m, SH_MATCH_START, sh_str_of(text), &state, &err), err);
    return sh_matcher_accepts(m, state);
}

__attribute__((unused)) static void check_case(make_expr make, const grammar_case *c)
{
    sh_grammar *g = NULL;
    sh_err err;
    if (compile_case(make, c->grammar, &g, &err) != SH_OK) fail_msg("%s: %s", c->grammar, err.text);
    sh_matcher *m = sh_matcher_create(g, NULL);
    for (int i = 0; i < TEXTS_MAX && c->yes[i] != NULL; i++)
        if (!case_matches(m, c->yes[i])) fail_msg("%s does not match %s", c->grammar, c->yes[i]);
    for (int i = 0; i < TEXTS_MAX && c->no[i] != NULL; i++)
        if (case_matches(m, c->no[i])) fail_msg("%s matches %s", c->grammar, c->no[i]);
    sh_matcher_free(m);
    sh_grammar_free(g);
}

__attribute__((unused)) static void check_refused(make_expr make, const refused_case *c)
{
    sh_grammar *g = NULL;
    sh_err err;
    if (compile_case(make, c->grammar, &g, &err) >= 0) fail_msg("%s was not refused", c->grammar);
    if (strstr(err.text, c->error) == NULL)
        fail_msg("%s: '%s' is not in the error '%s'", c->grammar, c->error, err.text);
}

#endif
