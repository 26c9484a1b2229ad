/* The state folder, and references to processes. */
#include "cluster/state_dir.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cluster/run_list.h"

#include "scratch.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static sh_err err;

TEST(files_of_the_folder_are_for_their_owner_alone)
{
    UNUSED_STATE;
    struct stat st;
    sh_buf text = {0};
    char *path = sh_path_join(dir, "a/b/c"), *file = sh_path_join(path, "x");
    CHECK_OK(sh_state_dir_make(path, &err), err);
    CHECK_OK(sh_state_dir_make(path, &err), err);
    CHECK_OK(sh_state_dir_write(path, "x", SH_STR("hello"), &err), err);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    CHECK_OK(sh_state_dir_read(path, "x", true, &text, &err), err);
    assert_string_equal(text.ptr, "hello");
    sh_buf_reset(&text);
    CHECK_FAILS(sh_state_dir_make("/proc/none/x", &err), err, "/proc/none/x");
    free(file);
    free(path);
}

/* Whether the shell version of the check gives the same verdict as sh_state_dir_check. */
static bool shell_agrees(const char *path, bool good)
{
    sh_buf script = {0};
    sh_buf_addf(&script, "d='%s'\n", path);
    sh_state_dir_shell_check(&script);
    sh_buf_add_text(&script, "exit 0");
    char *command = sh_asprintf("exec 2>/dev/null\n%s", script.ptr);
    bool agrees = (system(command) == 0) == good;
    free(command);
    sh_buf_reset(&script);
    return agrees;
}

TEST(a_folder_or_a_file_of_others_is_refused)
{
    UNUSED_STATE;
    sh_buf text = {0};
    char *path = sh_path_join(dir, "shared"), *file = sh_path_join(path, "token");
    assert_true(shell_agrees(path, true)); /* it does not exist yet */
    CHECK_OK(sh_state_dir_check(path, &err), err);
    CHECK_OK(sh_state_dir_make(path, &err), err);
    CHECK_OK(sh_state_dir_write(path, "token", SH_STR("abc"), &err), err);
    assert_true(shell_agrees(path, true));
    assert_int_equal(chmod(file, 0644), 0);
    CHECK_FAILS(sh_state_dir_read(path, "token", true, &text, &err), err, "others may read");
    CHECK_OK(sh_state_dir_read(path, "token", false, &text, &err), err);
    sh_buf_reset(&text);
    assert_int_equal(chmod(file, 0600), 0);
    static const mode_t wide[] = {0770, 0707, 01777};
    for (size_t i = 0; i < SH_COUNT_OF(wide); i++) {
        assert_int_equal(chmod(path, wide[i]), 0);
        CHECK_FAILS(sh_state_dir_make(path, &err), err, "others may write");
        CHECK_FAILS(sh_state_dir_read(path, "token", true, &text, &err), err, "others may write");
        assert_true(shell_agrees(path, false));
    }
    assert_int_equal(chmod(path, 0755), 0);
    CHECK_OK(sh_state_dir_read(path, "token", true, &text, &err), err);
    sh_buf_reset(&text);
    if (chown(file, 12345, 12345) == 0) { /* only root can give it away */
        CHECK_FAILS(sh_state_dir_read(path, "token", true, &text, &err), err, "another user");
        assert_int_equal(chown(path, 12345, 12345), 0);
        CHECK_FAILS(sh_state_dir_make(path, &err), err, "another user");
        assert_true(shell_agrees(path, false));
    }
    free(file);
    free(path);
}

TEST(home_is_each_hosts_own)
{
    UNUSED_STATE;
    setenv("HOME", "/home/me", 1);
    char *path = sh_state_dir_path("~/x/y");
    assert_string_equal(path, "/home/me/x/y");
    free(path);
    path = sh_state_dir_path("/abs");
    assert_string_equal(path, "/abs");
    free(path);
    sh_buf word = {0};
    sh_state_dir_shell_word("~/it's", &word);
    assert_string_equal(word.ptr, "\"$HOME\"/'it'\\''s'");
    sh_buf_reset(&word);
}

TEST(one_lock_at_a_time)
{
    UNUSED_STATE;
    int first = -1, second = -1;
    CHECK_OK(sh_state_dir_lock(dir, "lock", &first, &err), err);
    assert_int_equal(sh_state_dir_lock(dir, "lock", &second, &err), SH_AGAIN);
    close(first);
    CHECK_OK(sh_state_dir_lock(dir, "lock", &second, &err), err);
    close(second);
}

TEST(a_process_is_known_by_more_than_its_number)
{
    UNUSED_STATE;
    char text[SH_PROCESS_TEXT_MAX];
    sh_process back;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    sh_process child = sh_process_of(pid), other = child;
    sh_process_format(&child, text);
    assert_true(sh_process_parse(text, &back));
    assert_true(sh_process_alive(&back));
    other.start++;
    assert_false(sh_process_alive(&other));
    assert_false(sh_process_signal(&other, SIGKILL));
    other = child;
    other.boot[0] = other.boot[0] == '0' ? '1' : '0';
    assert_false(sh_process_signal(&other, SIGKILL));
    assert_true(sh_process_alive(&back));
    assert_true(sh_process_signal(&back, SIGKILL));
    usleep(100000);
    assert_false(sh_process_alive(&back)); /* although it is still a zombie */
    waitpid(pid, NULL, 0);
    assert_false(sh_process_alive(&back));
    assert_false(sh_process_parse("", &back));
    assert_false(sh_process_parse("12", &back));
    assert_false(sh_process_alive(&(sh_process){0}));
}

TEST(a_launcher_is_found_without_its_folder)
{
    UNUSED_STATE;
    sh_process found;
    CHECK_OK(sh_run_list_add(dir, "/some/state", &err), err);
    assert_true(sh_run_list_find(dir, "/some/state", &found));
    assert_int_equal(found.pid, getpid());
    assert_false(sh_run_list_find(dir, "/other/state", &found));
    char *list = sh_asprintf("%s/shoal-launch-%lld", dir, (long long)getuid());
    assert_int_equal(chmod(list, 0777), 0); /* somebody else could have written it */
    assert_false(sh_run_list_find(dir, "/some/state", &found));
    CHECK_FAILS(sh_run_list_add(dir, "/some/state", &err), err, "");
    assert_int_equal(chmod(list, 0700), 0);
    sh_run_list_remove(dir, "/some/state");
    assert_false(sh_run_list_find(dir, "/some/state", &found));
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_folder_are_for_their_owner_alone),
        cmocka_unit_test(a_folder_or_a_file_of_others_is_refused),
        cmocka_unit_test(home_is_each_hosts_own),
        cmocka_unit_test(one_lock_at_a_time),
        cmocka_unit_test(a_process_is_known_by_more_than_its_number),
        cmocka_unit_test(a_launcher_is_found_without_its_folder),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
