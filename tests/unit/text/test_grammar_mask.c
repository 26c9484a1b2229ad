/* Masks against the definition: a token is allowed if its bytes lead to a state that is not dead.
 * Grammars and vocabularies are random; vocabularies have parts of characters, long tokens and
 * tokens that cross every border of the grammars. */
#include "grammar_case.h"

#include "base/alloc.h"

enum { TOKENS = 700, END = TOKENS - 1, OTHER_END = TOKENS - 2, MARK = TOKENS - 3 };

static uint64_t seed = 1;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static const char *const pieces[] = {"a",
                                     "b",
                                     "ab",
                                     "\"",
                                     "\\",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     " ",
                                     "\n",
                                     "1",
                                     "0",
                                     "-",
                                     ".",
                                     "e",
                                     "true",
                                     "null",
                                     "\xc3\xa9",
                                     "\xe2\x82\xac",
                                     "\xf0\x9f\x98\x80",
                                     "\xc3",
                                     "\xe2\x82",
                                     "\x80",
                                     "\xed\xa0\x80",
                                     "x",
                                     "\\n",
                                     "\\u00",
                                     "name",
                                     "\":",
                                     "\",",
                                     "aaaa",
                                     "\xce\xb1\xce\xb2"};

static void add_random_token(sh_buf *out, uint32_t id)
{
    if (id < 256)
        sh_buf_add_char(out, (char)id);
    else
        for (uint32_t n = 1 + pick(id % 5 == 0 ? 12 : 4); n > 0; n--)
            sh_buf_add_text(out, pieces[pick(SH_COUNT_OF(pieces))]);
}

static sh_token_text tokens[TOKENS];

static sh_token_trie *make_trie(sh_buf *bytes)
{
    size_t firsts[TOKENS + 1];
    int32_t ends[] = {END, OTHER_END};
    for (uint32_t id = 0; id < TOKENS; id++) {
        firsts[id] = bytes->len;
        if (id < MARK) add_random_token(bytes, id);
    }
    firsts[TOKENS] = bytes->len;
    for (uint32_t id = 0; id < TOKENS; id++)
        tokens[id] = (sh_token_text){{bytes->ptr + firsts[id], firsts[id + 1] - firsts[id]},
                                     id >= MARK};
    return sh_token_trie_build(tokens, TOKENS, ends, 2);
}

static const struct {
    const char *kind;
    const char *text;
} grammars[] = {
    {"schema", "{\"type\":\"object\"}"},
    {"schema",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},\"ab\":"
     "{\"type\":[\"integer\",\"null\"]},\"x\":{\"enum\":[\"a\",\"ab\",true]}},\"required\":["
     "\"name\"]}"},
    {"schema",
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":40}}"},
    {"schema", "{\"type\":\"string\",\"pattern\":\"^[a\xc3\xa9]{2,7}(b|\xe2\x82\xac)*$\"}"},
    {"schema", "{\"type\":\"string\",\"maxLength\":3}"},
    {"schema", "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"pattern\":\"^ab\"},{"
               "\"type\":\"number\"}]}"},
    {"schema", "{\"$ref\":\"#/$defs/"
               "t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}}}"},
    {"regex", "[^x]{3,30}x?"},
    {"regex", "(a|b|ab)*\xc3\xa9.{0,5}"},
    {"regex", "(\\w{1,6} )*[^a-z]+"},
    {"gbnf", "root ::= \"[\" (root (\",\" root)*)? \"]\" | [a-b]+ | \"\\\"\" [^\"]* \"\\\"\""},
    {"gbnf", "root ::= s s s\ns ::= [ab]* t?\nt ::= \"1\" | \"-\" t"},
    /* Text of a limited length that may go on in other ways, or not. */
    {"regex", "[^\"\\n]{0,6}[a-c]*"},
    {"regex", "[^\"]{0,6}(.x)?\""},
    {"regex", "\"[^\"]{4,19}\""},
    {"regex", "\"[^\"]{0,9}\"|\"[a-z ]*\""},
    {"gbnf", "root ::= a b\na ::= [^\"\\n]{0,5} | \"\\n\" a\nb ::= [^0-9]*"},
    {"gbnf", "root ::= a b\na ::= [^\"\\n]{5} | \"\\n\" a\nb ::= [^0-9]*"},
    {"gbnf", "root ::= \"\\\"\" ([^\"\\n] | a){5} \"\\\"\"\na ::= \"a\" a \"a\" | \"\\n\""},
    {"gbnf", "root ::= \"\\\"\" s \"\\\"\"\ns ::= [^\"\\x00-\\x1f]{2,18}"},
    {"gbnf", "root ::= a b\na ::= [^\"\\n]{0,4} | [^\"\\n]{5} \"\\\"\" | \"\\n\" a\nb ::= [^0-9]*"},
    {"gbnf", "root ::= \"\\\"\" (p | q)\np ::= [^\"\\n]{5} \"\\\"\" | \"\\n\" p\n"
             "q ::= [^\"\\n0]* \"\\\"\" | \"\\n\" q \"x\""},
    {"text", "{\"name"},
};

static sh_expr make_text(sh_grammar_builder *b, const char *literal)
{
    sh_expr call[] = {sh_expr_until(b, sh_str_of(literal)), sh_expr_token(b, MARK),
                      sh_expr_json_object(b, (sh_json_form){.spaces = true})};
    sh_str none = sh_str_of(literal);
    sh_expr forms[] = {sh_expr_seq(b, call, 3), sh_expr_text_without(b, &none, 1)};
    return sh_expr_any_of(b, forms, 2);
}

static sh_grammar *make_grammar(size_t i)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_grammar *g = NULL;
    sh_str text = sh_str_of(grammars[i].text);
    sh_expr e = 0;
    sh_err err;
    if (strcmp(grammars[i].kind, "schema") == 0) {
        cJSON *schema = NULL;
        CHECK_OK(sh_json_parse(text, "schema", &schema, &err), err);
        e = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = true});
        cJSON_Delete(schema);
    } else if (strcmp(grammars[i].kind, "regex") == 0)
        e = sh_expr_regex(b, text);
    else if (strcmp(grammars[i].kind, "gbnf") == 0)
        e = sh_expr_gbnf(b, text);
    else
        e = make_text(b, text.ptr);
    CHECK_OK(sh_grammar_compile(b, e, &g, &err), err);
    sh_grammar_builder_free(b);
    return g;
}

static bool allows(const sh_token_mask *mask, int32_t id)
{
    return mask->words[id / 64] >> id % 64 & 1;
}

static void check_mask(sh_matcher *m, sh_match_state at, const sh_token_mask *mask,
                       const char *what)
{
    uint32_t allowed = 0;
    for (int32_t id = 0; id < TOKENS; id++) {
        sh_match_state next = SH_MATCH_DEAD;
        sh_err err;
        CHECK_OK(sh_matcher_token(m, at, id, &next, &err), err);
        bool want = next != SH_MATCH_DEAD;
        if (id == END || id == OTHER_END) want = sh_matcher_accepts(m, at);
        if (allows(mask, id) != want)
            fail_msg("%s: token %d '%.*s' is %sallowed", what, id, (int)tokens[id].bytes.len,
                     tokens[id].bytes.ptr, want ? "not " : "");
        if (want && allowed++ == 0) assert_int_equal(mask->first, id);
    }
    assert_int_equal(mask->allowed, allowed);
}

/* A list of few tokens has those of the mask, but for ending ones. */
static void check_few(sh_matcher *m, sh_match_state at, const sh_token_mask *mask)
{
    static const uint32_t limits[] = {0, 1, 5, TOKENS};
    uint32_t without = mask->allowed - (sh_matcher_accepts(m, at) ? 2 : 0);
    int32_t ids[TOKENS];
    for (size_t i = 0; i < SH_COUNT_OF(limits); i++) {
        uint32_t count;
        sh_err err;
        CHECK_OK(sh_matcher_few(m, at, ids, limits[i], &count, &err), err);
        assert_int_equal(count, without <= limits[i] ? without : limits[i] + 1);
        for (uint32_t k = 0; k < count && k < limits[i]; k++) assert_true(allows(mask, ids[k]));
    }
}

static int32_t pick_allowed(const sh_token_mask *mask)
{
    uint32_t nth = pick(mask->allowed);
    for (int32_t id = 0;; id++)
        if (allows(mask, id) && nth-- == 0) return id;
}

TEST(masks_are_what_trying_every_token_gives)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(grammars); i++) {
        sh_buf bytes = {0};
        sh_token_trie *trie = make_trie(&bytes);
        sh_grammar *g = make_grammar(i);
        sh_matcher *m = sh_matcher_create(g, trie);
        for (int walk = 0; walk < 6; walk++) {
            sh_match_state at = SH_MATCH_START;
            for (int steps = 0; steps < 25; steps++) {
                sh_token_mask mask;
                sh_err err;
                CHECK_OK(sh_matcher_mask(m, at, &mask, &err), err);
                assert_true(mask.allowed > 0);
                check_mask(m, at, &mask, grammars[i].text);
                check_few(m, at, &mask);
                int32_t id = pick_allowed(&mask);
                if (id == END || id == OTHER_END) break;
                CHECK_OK(sh_matcher_token(m, at, id, &at, &err), err);
            }
        }
        sh_matcher_free(m);
        sh_grammar_free(g);
        sh_token_trie_free(trie);
        sh_buf_reset(&bytes);
    }
}

/* The rule of the digit may end here, and what its caller takes next is longer than the run of the
 * rule. Random walks do not get here: most first characters could belong to the caller, too. */
TEST(text_of_a_limited_length_may_go_on_after_its_rule)
{
    static const char text[] = "root ::= a b\na ::= [^\"\n]{0,4} | [^\"\n]{5} \"\\\"\"\n"
                               "b ::= [^0-9]*";
    sh_buf bytes = {0};
    sh_token_trie *trie = make_trie(&bytes);
    sh_grammar *g = NULL;
    sh_token_mask mask;
    sh_match_state at;
    sh_err err;
    UNUSED_STATE;
    sh_grammar_builder *b = sh_grammar_builder_create();
    CHECK_OK(sh_grammar_compile(b, sh_expr_gbnf(b, SH_STR(text)), &g, &err), err);
    sh_grammar_builder_free(b);
    sh_matcher *m = sh_matcher_create(g, trie);
    CHECK_OK(sh_matcher_bytes(m, SH_MATCH_START, SH_STR("5"), &at, &err), err);
    CHECK_OK(sh_matcher_mask(m, at, &mask, &err), err);
    check_mask(m, at, &mask, text);
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_token_trie_free(trie);
    sh_buf_reset(&bytes);
}

TEST(forced_bytes_are_the_only_ones)
{
    sh_buf bytes = {0}, forced = {0};
    sh_token_trie *trie = make_trie(&bytes);
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(grammars); i++) {
        sh_grammar *g = make_grammar(i);
        sh_matcher *m = sh_matcher_create(g, trie);
        sh_match_state at = SH_MATCH_START, next;
        for (int steps = 0; steps < 60; steps++) {
            sh_token_mask mask;
            sh_err err;
            sh_buf_clear(&forced);
            CHECK_OK(sh_matcher_forced(m, at, &forced, &err), err);
            sh_match_state to = at;
            for (size_t k = 0; k < forced.len; k++) {
                assert_false(sh_matcher_accepts(m, to));
                for (int c = 0; c < 256; c++) {
                    char byte = (char)c;
                    CHECK_OK(sh_matcher_bytes(m, to, (sh_str){&byte, 1}, &next, &err), err);
                    assert_int_equal(next != SH_MATCH_DEAD, byte == forced.ptr[k]);
                }
                CHECK_OK(sh_matcher_bytes(m, to, (sh_str){&forced.ptr[k], 1}, &to, &err), err);
            }
            CHECK_OK(sh_matcher_mask(m, at, &mask, &err), err);
            int32_t id = pick_allowed(&mask);
            if (id == END || id == OTHER_END) break;
            CHECK_OK(sh_matcher_token(m, at, id, &at, &err), err);
        }
        sh_matcher_free(m);
        sh_grammar_free(g);
    }
    sh_token_trie_free(trie);
    sh_buf_reset(&bytes);
    sh_buf_reset(&forced);
}

static sh_match_state advance(sh_matcher *m, sh_match_state at, const char *text)
{
    sh_err err;
    CHECK_OK(sh_matcher_bytes(m, at, sh_str_of(text), &at, &err), err);
    return at;
}

TEST(a_key_that_must_come_is_forced)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_grammar *g = NULL;
    sh_buf forced = {0};
    sh_err err;
    cJSON *schema = cJSON_Parse(
        "{\"type\":\"object\",\"properties\":{\"h\xc3\xa9\":{\"type\":\"boolean\"}},"
        "\"required\":[\"h\xc3\xa9\"],\"additionalProperties\":false}");
    UNUSED_STATE;
    CHECK_OK(sh_grammar_compile(b, sh_expr_json_schema(b, schema, (sh_json_form){.spaces = false}),
                                &g, &err),
             err);
    sh_matcher *m = sh_matcher_create(g, NULL);
    CHECK_OK(sh_matcher_forced(m, SH_MATCH_START, &forced, &err), err);
    assert_string_equal(forced.ptr, "{\"h\xc3\xa9\":");
    sh_buf_clear(&forced);
    CHECK_OK(sh_matcher_forced(m, advance(m, SH_MATCH_START, "{\"h\xc3\xa9\":f"), &forced, &err),
             err);
    assert_string_equal(forced.ptr, "alse}");
    sh_buf_reset(&forced);
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_grammar_builder_free(b);
    cJSON_Delete(schema);
}

TEST(equal_states_are_one_and_earlier_ones_stay)
{
    sh_buf bytes = {0};
    sh_token_trie *trie = make_trie(&bytes);
    sh_grammar *g = make_grammar(2); /* a list of strings */
    sh_matcher *m = sh_matcher_create(g, trie);
    sh_token_mask mask, again;
    sh_err err;
    UNUSED_STATE;
    sh_match_state one = advance(m, SH_MATCH_START, "[\"ab\",");
    assert_int_equal(advance(m, SH_MATCH_START, "[\"xyz\",\"\\n\xc3\xa9\","), one);
    assert_int_equal(advance(m, one, "oops"), SH_MATCH_DEAD);
    assert_int_equal(advance(m, SH_MATCH_DEAD, "a"), SH_MATCH_DEAD);
    assert_true(advance(m, one, "\"ab\"]") != SH_MATCH_DEAD);
    assert_false(sh_matcher_accepts(m, SH_MATCH_DEAD));
    CHECK_OK(sh_matcher_mask(m, one, &mask, &err), err);
    uint32_t number = mask.number, allowed = mask.allowed;
    /* More masks than the cache has; the first is computed again and has the same number. */
    sh_match_state at = advance(m, SH_MATCH_START, "[");
    for (int i = 0; i < 40; i++) at = advance(m, at, "\"ab\",");
    for (int i = 0; i < 400; i++) {
        sh_buf text = {0};
        sh_buf_addf(&text, "\"%.*s", i % 41, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        sh_match_state in = advance(m, one, text.ptr);
        if (in != SH_MATCH_DEAD) CHECK_OK(sh_matcher_mask(m, in, &again, &err), err);
        sh_buf_reset(&text);
    }
    CHECK_OK(sh_matcher_mask(m, one, &again, &err), err);
    assert_int_equal(again.number, number);
    assert_int_equal(again.allowed, allowed);
    CHECK_OK(sh_matcher_mask(m, SH_MATCH_DEAD, &again, &err), err);
    assert_int_equal(again.allowed, 0);
    assert_int_equal(again.first, -1);
    assert_true(sh_matcher_memory(m) > 0);
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_token_trie_free(trie);
    sh_buf_reset(&bytes);
}

TEST(special_tokens_match_only_where_they_are_named)
{
    sh_buf bytes = {0};
    sh_token_trie *trie = make_trie(&bytes);
    sh_grammar *g = make_grammar(SH_COUNT_OF(grammars) - 1);
    sh_matcher *m = sh_matcher_create(g, trie);
    sh_token_mask mask;
    sh_err err;
    UNUSED_STATE;
    CHECK_OK(sh_matcher_mask(m, SH_MATCH_START, &mask, &err), err);
    assert_false(allows(&mask, MARK));
    assert_true(allows(&mask, END));
    sh_match_state at = advance(m, SH_MATCH_START, "say {\"name");
    CHECK_OK(sh_matcher_mask(m, at, &mask, &err), err);
    assert_int_equal(mask.allowed, 1);
    assert_int_equal(mask.first, MARK);
    CHECK_OK(sh_matcher_token(m, at, MARK, &at, &err), err);
    assert_true(sh_matcher_accepts(m, advance(m, at, "{}")));
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_token_trie_free(trie);
    sh_buf_reset(&bytes);
}

/* The text comes back as the tokenizer's own tokens, each allowed where it stands. */
TEST(tokens_of_a_real_tokenizer_match)
{
    static const char text[] =
        "{\"name\": \"Gr\xc3\xbc\xc3\x9f dich, \\\"x\\\" \xf0\x9f\x98\x80\"}";
    sh_tokenizer *tok = NULL;
    sh_ids ids = {0};
    sh_err err;
    UNUSED_STATE;
    CHECK_OK(sh_tokenizer_load("tests/data/tokenizers/qwen2.json", &tok, &err), err);
    CHECK_OK(sh_tokenizer_encode(tok, SH_STR(text), (sh_encode_opts){0}, &ids, &err), err);
    int32_t end = 0;
    while (!sh_tokenizer_is_special(tok, end)) end++;
    sh_token_trie *trie = sh_token_trie_create(tok, &end, 1);
    sh_grammar *g = make_grammar(0);
    sh_matcher *m = sh_matcher_create(g, trie);
    sh_match_state at = SH_MATCH_START;
    for (size_t i = 0; i < ids.len; i++) {
        sh_token_mask mask;
        CHECK_OK(sh_matcher_mask(m, at, &mask, &err), err);
        assert_true(allows(&mask, ids.ptr[i]));
        assert_false(allows(&mask, end));
        CHECK_OK(sh_matcher_token(m, at, ids.ptr[i], &at, &err), err);
    }
    assert_true(sh_matcher_accepts(m, at));
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_token_trie_free(trie);
    sh_ids_reset(&ids);
    sh_tokenizer_free(tok);
}

TEST(errors_stay_in_the_builder)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_grammar *g = NULL;
    sh_err err;
    UNUSED_STATE;
    sh_expr parts[] = {sh_expr_regex(b, SH_STR("a(")), sh_expr_literal(b, SH_STR("x")),
                       sh_expr_gbnf(b, SH_STR("also wrong"))};
    CHECK_FAILS(sh_grammar_compile(b, sh_expr_seq(b, parts, 3), &g, &err), err, "not closed");
    assert_int_equal(err.status, SH_ERR_INPUT);
    sh_grammar_builder_free(b);
    b = sh_grammar_builder_create();
    sh_expr rule = sh_expr_rule(b, SH_STR("later"));
    CHECK_FAILS(sh_grammar_compile(b, rule, &g, &err), err, "'later' is used but not defined");
    sh_grammar_builder_free(b);
}

TEST(ambiguity_is_limited)
{
    /* Each a may belong to any of the open rules, each of which remembers where it began. */
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_grammar *g = NULL;
    sh_err err = {.status = SH_OK};
    UNUSED_STATE;
    sh_expr e = sh_expr_gbnf(
        b, SH_STR("root ::= s\ns ::= \"a\" s \"x\" | \"a\" s \"y\" s \"z\" | \"a\" s? | \"a\""));
    CHECK_OK(sh_grammar_compile(b, e, &g, &err), err);
    sh_matcher *m = sh_matcher_create(g, NULL);
    sh_match_state at = SH_MATCH_START;
    sh_status status = SH_OK;
    for (int i = 0; i < 2000 && status == SH_OK && at != SH_MATCH_DEAD; i++)
        status = sh_matcher_bytes(m, at, SH_STR("a"), &at, &err);
    if (status != SH_OK) assert_int_equal(status, SH_ERR_LIMIT);
    assert_true(sh_matcher_memory(m) < 256 << 20);
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_grammar_builder_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_what_trying_every_token_gives),
        cmocka_unit_test(text_of_a_limited_length_may_go_on_after_its_rule),
        cmocka_unit_test(forced_bytes_are_the_only_ones),
        cmocka_unit_test(a_key_that_must_come_is_forced),
        cmocka_unit_test(equal_states_are_one_and_earlier_ones_stay),
        cmocka_unit_test(special_tokens_match_only_where_they_are_named),
        cmocka_unit_test(tokens_of_a_real_tokenizer_match),
        cmocka_unit_test(errors_stay_in_the_builder),
        cmocka_unit_test(ambiguity_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
