#include "grammar_case.h"

static sh_expr make(sh_grammar_builder *b, const char *text)
{
    return sh_expr_gbnf(b, sh_str_of(text));
}

TEST(grammars_match_their_texts)
{
    static const grammar_case cases[] = {
        {"root ::= \"a\" \"b\"", {"ab"}, {"a", "a b"}},
        {"root ::= x | y\nx ::= \"1\"+\ny ::= \"2\"?", {"111", "2", ""}, {"12"}},
        {"# a comment\nroot ::= # and one here\n  [0-9]{2,3} # end\n",
         {"12", "123"},
         {"1", "1234"}},
        {"root ::= (\"a\" | \"b\" [cd])*", {"", "abcbd"}, {"b"}},
        {"root ::= [^\"\\\\\\n]+", {"x\xc3\xa9"}, {"\"", "\\", "\n"}},
        {"root ::= \"\\\"\\x41\\u00e9\\U0001F600\\n\"", {"\"A\xc3\xa9\xf0\x9f\x98\x80\n"}, {"A"}},
        {"root ::= . \"b\"{2} \"c\"{1,}",
         {"\nbbc", "\xf0\x9f\x98\x80"
                   "bbcc"},
         {"bbc"}},
        {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
         {"1+(2+3)+4", "((7))"},
         {"1+", "(1"}},
        {"root ::= item (\",\" root)?\nitem ::= [a-z]", {"a", "a,b,c"}, {"a,"}},
        {"start: greeting name ;\ngreeting: \"hi \" | 'hello ' ;\nname: /[A-Z][a-z]+/ ;",
         {"hi Bob", "hello Al"},
         {"hi bob"}},
        {"// as in other EBNF\nroot = \"a\" , \"b\" ;", {"ab"}, {"a"}},
        {"root ::= a-b\na-b ::= \"x\" |\n  \"y\"", {"x", "y"}, {""}},
        {"# JSON\nroot ::= object\nvalue ::= object | array | string | number | (\"true\" | "
         "\"null\") ws\nobject ::=\n  \"{\" ws (\n    string \":\" ws value # a member\n    (\",\" "
         "ws string \":\" ws value)*\n  )? \"}\" ws\narray ::= \"[\" ws (value (\",\" ws value)*)? "
         "\"]\" ws\nstring ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | "
         "\"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\nnumber ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) "
         "(\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}",
         {"{\"a\": [1, -2.5e3, \"x\\u00e9\\n\"]}", "{\n  }"},
         {"{\"a\":}", "[]", "{\"a\":01}"}},
        {"root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | "
         "num | "
         "\"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ "
         "\\t\\n]*",
         {"1+2*(a_1 -b)= 3\n"},
         {"1+=2\n", "1=2"}},
        {"root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
         "move ::= (pawn | nonpawn | castle) [+#]?\nnonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] "
         "[1-8]\npawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\ncastle ::= \"O-O\" \"-O\"?",
         {"1. e4 e5\n2. Nf3 Nc6\n3. O-O exd4+\n"},
         {"1. e4 e5\n", "1. e9 e5\n2. a1 a2\n"}},
        {"root ::= [\\u3041-\\u3096]{1,3} [\\U0001F600-\\U0001F64F]? (\"x\" (\"y\" | "
         "\"z\"){2}){0,2} "
         "\"c\"{,2}",
         {"\xe3\x81\xb2", "\xe3\x81\xb2\xf0\x9f\x98\x80xyzxzzcc"},
         {"x", "\xe3\x81\xb2xy",
          "\xe3\x81\xb2"
          "ccc"}},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_case(make, &cases[i]);
}

TEST(faults_are_named_with_their_place)
{
    static const refused_case cases[] = {
        {"", "grammar, line 1, column 1: there is no rule 'root'"},
        {"# all\n\n  x ::= y\ny ::= \"a\"", "grammar, line 3, column 3: there is no rule 'root'"},
        {"root ::= \"\xc3\xa9\" | y", "line 1, column 16: the rule 'y' is used but not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a rule that was defined before"},
        {"root ::= \"a", "line 1, column 10: a literal that is not closed"},
        {"root ::= [a", "a class that is not closed"},
        {"root ::= \"\\", "a backslash at the end"},
        {"root ::= [\\", "a backslash at the end"},
        {"root ::= /a\\", "a pattern that is not closed"},
        {"root ::= (\"a\"", "a group that is not closed"},
        {"root ::= \"a\")", "a ) without its ("},
        {"root ::= \"a\"{2", "bounds must be"},
        {"root ::= \"a\"{3,2}", "bounds must be"},
        {"root ::= \"\\q\"", "an unknown escape"},
        {"root ::= [b-a]", "wrong order"},
        {"\n\n!", "line 3, column 1: expected a rule"},
        {"root ::= \"a\"i", "flags are not supported"},
        {"%import common.INT\nstart: INT", "line 1, column 1: directives are not supported"},
        {"root ::= root \"a\" | \"b\"",
         "grammar, line 1, column 1: 'root' begins with itself (left recursion)"},
        {"root ::= \"\xc3\xa9\" a\nb ::= \"x\"; a ::= b? c\nc ::= a \"y\" | \"z\"",
         "grammar, line 2, column 12: 'a' begins with itself (left recursion)"},
        {"root ::= \"\xc3\xa9\"; a ::= \"b\"; root ::= \"c\"",
         "line 1, column 26: a rule that was defined before"},
        {"root ::= \"a\" root", "matches no text"},
        {"root ::= /a(?=b)/", "pattern, at 1"},
        {"root ::= \"a\"{70000}", "at most 65000"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_refused(make, &cases[i]);
}

/* Each is answered, by a grammar or an error, in a short time. */
TEST(hostile_grammars_are_bounded)
{
    static const char *const cases[] = {
        "root ::= a{60000}\na ::= b{60000}\nb ::= \"x\"{60000}",
        "root ::= (((((\"a\"*)*)*)*)*)*",
        ("root ::= x x x x x x x x x x x x x x x x\nx ::= (\"a\" | \"a\" \"a\" | x0)*\nx0 ::= "
         "\"a\"?"),
        "root ::= \"(\" root \")\" root | \"\"",
        "root ::= ([a-z] | [a-y] | [a-x])* [a-m] .{40}",
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_grammar *g = NULL;
        sh_err err;
        sh_match_state at = SH_MATCH_START;
        if (compile_case(make, cases[i], &g, &err) != SH_OK) {
            assert_int_equal(err.status, SH_ERR_LIMIT);
            continue;
        }
        sh_matcher *m = sh_matcher_create(g, NULL);
        for (int k = 0; k < 3000 && at != SH_MATCH_DEAD; k++)
            if (sh_matcher_bytes(m, at, sh_str_of(i == 3 ? "(" : "a"), &at, &err) != SH_OK) break;
        sh_matcher_free(m);
        sh_grammar_free(g);
    }
}

TEST(nesting_stops_where_it_can_still_be_closed)
{
    sh_grammar *g = NULL;
    sh_err err;
    sh_match_state at = SH_MATCH_START, next;
    size_t depth = 0;
    UNUSED_STATE;
    CHECK_OK(compile_case(make, "root ::= \"(\" root \")\" | \"x\"", &g, &err), err);
    sh_matcher *m = sh_matcher_create(g, NULL);
    for (;; depth++, at = next) {
        CHECK_OK(sh_matcher_bytes(m, at, SH_STR("("), &next, &err), err);
        if (next == SH_MATCH_DEAD) break;
    }
    assert_in_range(depth, 100, 1000);
    CHECK_OK(sh_matcher_bytes(m, at, SH_STR("x"), &at, &err), err);
    for (; depth > 0; depth--) {
        assert_false(sh_matcher_accepts(m, at));
        CHECK_OK(sh_matcher_bytes(m, at, SH_STR(")"), &at, &err), err);
    }
    assert_true(sh_matcher_accepts(m, at));
    sh_matcher_free(m);
    sh_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_match_their_texts),
        cmocka_unit_test(faults_are_named_with_their_place),
        cmocka_unit_test(hostile_grammars_are_bounded),
        cmocka_unit_test(nesting_stops_where_it_can_still_be_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
