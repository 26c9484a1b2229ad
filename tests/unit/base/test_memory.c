/* Buffers and arenas: growing must keep the contents. */
#include "base/arena.h"
#include "base/buf.h"

#include "test.h"

TEST(a_buffer_keeps_its_bytes_while_it_grows)
{
    UNUSED_STATE;
    sh_buf buf = {0};
    for (int i = 0; i < 10000; i++) sh_buf_addf(&buf, "%d,", i);
    sh_str rest = sh_buf_str(&buf), part;
    for (int i = 0; sh_str_cut(&rest, ',', &part); i++) {
        int64_t value;
        assert_true(sh_str_to_int(part, &value));
        assert_int_equal(value, i);
    }
    assert_int_equal(buf.ptr[buf.len], '\0');
    sh_buf_reset(&buf);
}

TEST(dropping_the_front_moves_the_rest)
{
    UNUSED_STATE;
    sh_buf buf = {0};
    sh_buf_add_text(&buf, "hello world");
    sh_buf_drop_front(&buf, 6);
    assert_string_equal(buf.ptr, "world");
    char *taken = sh_buf_take(&buf);
    assert_string_equal(taken, "world");
    assert_int_equal(buf.len, 0);
    free(taken);
    taken = sh_buf_take(&buf);
    assert_string_equal(taken, "");
    free(taken);
}

TEST(pieces_of_an_arena_do_not_overlap)
{
    UNUSED_STATE;
    enum { COUNT = 2000 };
    sh_arena arena = {0};
    unsigned char *pieces[COUNT];
    for (int i = 0; i < COUNT; i++) {
        size_t size = (size_t)(i * 37 % 5000 + 1);
        pieces[i] = sh_arena_alloc(&arena, size);
        assert_int_equal((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
        for (size_t j = 0; j < size; j++) assert_int_equal(pieces[i][j], 0);
        memset(pieces[i], i & 255, size);
    }
    for (int i = 0; i < COUNT; i++)
        for (size_t j = 0; j < (size_t)(i * 37 % 5000 + 1); j++)
            assert_int_equal(pieces[i][j], i & 255);
    sh_arena_reset(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_keeps_its_bytes_while_it_grows),
        cmocka_unit_test(dropping_the_front_moves_the_rest),
        cmocka_unit_test(pieces_of_an_arena_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
