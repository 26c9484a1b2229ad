/* The file that carries the program of a launch to its hosts. */
#include "cmd/support/launch_program.h"

#include "base/file.h"
#include "cluster/state_dir.h"
#include "scratch.h"

#include <unistd.h>

static void file_put(const char *text)
{
    sh_err err;
    CHECK_OK(sh_state_dir_write(dir, SH_LAUNCH_PROGRAM_FILE, sh_str_of(text), &err), err);
}

TEST(words_and_folder_come_back)
{
    UNUSED_STATE;
    sh_err err;
    sh_launch_program program;
    sh_buf text = {0};
    char *words[] = {"printf", "%s\n", "", "\"'$x\xc3\xb6", NULL};
    char *here = getcwd(NULL, 0);
    sh_launch_program_init(&program, 4, words);
    sh_launch_program_write(&program, &text);
    sh_launch_program_reset(&program);
    file_put(text.ptr);
    CHECK_OK(sh_launch_program_read(dir, &program, &err), err);
    for (int i = 0; i < 4; i++) assert_string_equal(program.argv[i], words[i]);
    assert_null(program.argv[4]);
    assert_string_equal(program.folder, here);
    CHECK_OK(sh_launch_program_check(&program, &err), err);
    sh_launch_program_reset(&program);
    sh_buf_reset(&text);
    free(here);
}

TEST(a_path_that_leads_to_a_file_is_made_absolute)
{
    UNUSED_STATE;
    sh_err err;
    sh_launch_program program;
    char *relative[] = {"./Makefile", NULL}, *missing[] = {"./none", NULL};
    sh_launch_program_init(&program, 1, relative);
    assert_true(program.argv[0][0] == '/');
    CHECK_FAILS(sh_launch_program_check(&program, &err), err, "Permission denied");
    sh_launch_program_reset(&program);
    sh_launch_program_init(&program, 1, missing);
    assert_string_equal(program.argv[0], "./none");
    CHECK_FAILS(sh_launch_program_check(&program, &err), err, "No such file");
    sh_launch_program_reset(&program);
}

TEST(a_file_that_is_not_one_is_refused)
{
    UNUSED_STATE;
    static const char *const bad[] = {"[]",
                                      "{\"argv\": []}",
                                      "{\"argv\": [], \"folder\": \"/\"}",
                                      "{\"argv\": [\"a\", 1], \"folder\": \"/\"}",
                                      "{\"argv\": {\"a\": \"b\"}, \"folder\": \"/\"}",
                                      "{\"argv\": [\"a\"], \"folder\": 3}"};
    sh_err err;
    sh_launch_program program;
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        file_put(bad[i]);
        CHECK_FAILS(sh_launch_program_read(dir, &program, &err), err, "must have a list of words");
    }
    file_put("{");
    CHECK_FAILS(sh_launch_program_read(dir, &program, &err), err, SH_LAUNCH_PROGRAM_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_folder_come_back),
        cmocka_unit_test(a_path_that_leads_to_a_file_is_made_absolute),
        cmocka_unit_test(a_file_that_is_not_one_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
