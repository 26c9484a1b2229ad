/* Files are written completely or not at all, and never over something that is not a file. */
#include "base/file.h"

#include "base/alloc.h"

#include "scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void check_text(const char *path, const char *want)
{
    sh_err err = {0};
    sh_buf text = {0};
    CHECK_OK(sh_file_read(path, 100, &text, &err), err);
    assert_string_equal(text.ptr, want);
    sh_buf_reset(&text);
}

TEST(a_pipe_is_written_to_and_not_replaced)
{
    UNUSED_STATE;
    sh_err err = {0};
    char *path = sh_path_join(dir, "pipe"), got[8] = {0};
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    CHECK_OK(sh_file_write(path, "hello", 5, &err), err);
    assert_true(S_ISFIFO(mode_of(path)));
    assert_int_equal(read(fd, got, sizeof(got)), 5);
    assert_string_equal(got, "hello");
    close(fd);
    free(path);
}

TEST(a_link_in_place_of_the_temporary_file_is_not_followed)
{
    UNUSED_STATE;
    sh_err err = {0};
    char *path = sh_path_join(dir, "secret"), *victim = sh_path_join(dir, "victim");
    char *temp = sh_asprintf("%s.tmp.%ld", path, (long)getpid());
    CHECK_OK(sh_file_write(victim, "mine", 4, &err), err);
    assert_int_equal(symlink(victim, temp), 0);
    CHECK_OK(sh_file_write_private(path, "token", 5, &err), err);
    check_text(victim, "mine");
    check_text(path, "token");
    assert_int_equal(mode_of(path) & 0777, 0600);
    free(path);
    free(victim);
    free(temp);
}

TEST(a_private_file_does_not_keep_the_mode_of_an_open_one)
{
    UNUSED_STATE;
    sh_err err = {0};
    char *path = sh_path_join(dir, "state");
    CHECK_OK(sh_file_write(path, "old", 3, &err), err);
    CHECK_OK(sh_file_write_private(path, "new", 3, &err), err);
    assert_int_equal(mode_of(path) & 0777, 0600);
    check_text(path, "new");
    free(path);
}

TEST(a_draft_that_is_dropped_leaves_the_old_file_alone)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_draft draft;
    char *path = sh_path_join(dir, "kept");
    CHECK_OK(sh_file_write(path, "old", 3, &err), err);
    CHECK_OK(sh_draft_open(path, NULL, 0644, &draft, &err), err);
    CHECK_OK(sh_draft_add(&draft, "half", 4, &err), err);
    sh_draft_drop(&draft);
    check_text(path, "old");
    char *temp = sh_asprintf("%s.tmp.%ld", path, (long)getpid());
    assert_false(sh_file_exists(temp));
    free(temp);
    free(path);
}

TEST(a_path_is_absolute_from_the_working_directory)
{
    UNUSED_STATE;
    char *here = getcwd(NULL, 0), *joined = sh_path_join(here, "a/keys.txt");
    char *relative = sh_path_absolute("a/keys.txt"), *whole = sh_path_absolute("/etc/keys.txt");
    assert_string_equal(relative, joined);
    assert_string_equal(whole, "/etc/keys.txt");
    free(here);
    free(joined);
    free(relative);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_is_written_to_and_not_replaced),
        cmocka_unit_test(a_link_in_place_of_the_temporary_file_is_not_followed),
        cmocka_unit_test(a_private_file_does_not_keep_the_mode_of_an_open_one),
        cmocka_unit_test(a_draft_that_is_dropped_leaves_the_old_file_alone),
        cmocka_unit_test(a_path_is_absolute_from_the_working_directory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
