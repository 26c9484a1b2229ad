#include "text/tokenizer/vocab.h"

#include "test.h"

enum { COUNT = 20000 };

static sh_str name_of(char out[16], int i)
{
    snprintf(out, 16, "piece %d", i);
    return sh_str_of(out);
}

TEST(finds_each_piece_and_no_other)
{
    UNUSED_STATE;
    sh_vocab vocab;
    sh_err err;
    char name[16];
    sh_vocab_init(&vocab, 0);
    for (int i = 0; i < COUNT; i++)
        CHECK_OK(sh_vocab_add(&vocab, name_of(name, i), COUNT * 2 - 2 * i, &err), err);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(sh_vocab_find(&vocab, name_of(name, i)), COUNT * 2 - 2 * i);
        assert_true(sh_str_eq(sh_vocab_piece(&vocab, COUNT * 2 - 2 * i), name_of(name, i)));
        assert_null(sh_vocab_piece(&vocab, COUNT * 2 - 2 * i - 1).ptr);
    }
    assert_int_equal(sh_vocab_find(&vocab, name_of(name, COUNT)), -1);
    assert_int_equal(sh_vocab_find(&vocab, SH_STR("")), -1);
    assert_int_equal(sh_vocab_find(&vocab, SH_STR("a piece longer than all the others")), -1);
    assert_int_equal(vocab.size, COUNT * 2 + 1);
    sh_vocab_reset(&vocab);
}

TEST(refuses_ids_and_pieces_that_are_taken_or_out_of_range)
{
    UNUSED_STATE;
    sh_vocab vocab;
    sh_err err;
    sh_vocab_init(&vocab, 4);
    CHECK_OK(sh_vocab_add(&vocab, SH_STR("a"), 1, &err), err);
    CHECK_FAILS(sh_vocab_add(&vocab, SH_STR("b"), 1, &err), err,
                "id 1 is assigned to both 'a' and 'b'");
    CHECK_FAILS(sh_vocab_add(&vocab, SH_STR("a"), 2, &err), err, "'a' appears twice");
    CHECK_FAILS(sh_vocab_add(&vocab, SH_STR("c"), -1, &err), err, "'c' has id -1");
    CHECK_FAILS(sh_vocab_add(&vocab, SH_STR("c"), SH_VOCAB_MAX, &err), err, "ids must be 0");
    CHECK_OK(sh_vocab_add(&vocab, SH_STR("c"), SH_VOCAB_MAX - 1, &err), err);
    assert_int_equal(sh_vocab_find(&vocab, SH_STR("b")), -1);
    assert_int_equal(vocab.count, 2);
    sh_vocab_reset(&vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each_piece_and_no_other),
        cmocka_unit_test(refuses_ids_and_pieces_that_are_taken_or_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
