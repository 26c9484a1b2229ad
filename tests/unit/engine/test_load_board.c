/* What is said about loading while one waits. */
#include "engine/load_board.h"

#include "test.h"

#include <string.h>

TEST(small_models_are_shown_in_megabytes_and_nothing_exceeds_a_hundred_percent)
{
    UNUSED_STATE;
    char text[256];
    sh_load_board *board = sh_load_board_create();
    sh_load_board_set(board, 0, &(sh_load_state){.done = 9, .total = 8});
    sh_load_board_set(board, 1, &(sh_load_state){.done = 1200000, .total = 4400000, .link = 1});
    sh_load_board_set(board, 2, &(sh_load_state){.done = 3499999999, .total = 3500000000});
    sh_load_board_text(board, text, sizeof(text));
    assert_non_null(strstr(text, "rank 0: 100 %,"));
    assert_non_null(strstr(text, "rank 1: 27 % of 4.4 MB, "));
    assert_non_null(strstr(text, "MB/s from rank 0"));
    assert_non_null(strstr(text, "rank 2: 99 % of 3.5 GB, "));
    sh_load_board_clear(board);
    sh_load_board_text(board, text, sizeof(text));
    assert_string_equal(text, "");
    sh_load_board_free(board);
}

TEST(programs_get_numbers)
{
    UNUSED_STATE;
    sh_buf json = {0};
    sh_load_board *board = sh_load_board_create();
    sh_load_board_json(board, &json);
    assert_string_equal(json.ptr, "[]");
    sh_buf_clear(&json);
    sh_load_board_set(board, 1, &(sh_load_state){.done = 12, .total = 44, .link = 1});
    sh_load_board_set(board, 3, &(sh_load_state){.done = 5, .total = 5});
    sh_load_board_json(board, &json);
    assert_string_equal(json.ptr,
                        "[{\"rank\":1,\"done\":12,\"total\":44,\"rate\":0,\"linked\":true},"
                        "{\"rank\":3,\"done\":5,\"total\":5,\"rate\":0,\"linked\":false}]");
    sh_buf_reset(&json);
    sh_load_board_free(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_are_shown_in_megabytes_and_nothing_exceeds_a_hundred_percent),
        cmocka_unit_test(programs_get_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
