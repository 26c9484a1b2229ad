/* Real processes: started, crashed, started again, ended. */
#include "cluster/children.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include "test.h"

#include <signal.h>
#include <unistd.h>

static sh_err err;
static char dir[] = "/tmp/shoal-children-XXXXXX";

static int setup(void **state)
{
    UNUSED_STATE;
    sh_log_set_level(SH_LOG_ERROR);
    return mkdtemp(dir) == NULL || chdir(dir) != 0;
}

static int teardown(void **state)
{
    UNUSED_STATE;
    return system("rm -rf /tmp/shoal-children-*") != 0;
}

static void add(sh_children *c, const char *script, bool restart)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    char *env[] = {"WHO=me", NULL};
    CHECK_OK(sh_children_add(
                 c, &(sh_child_spec){.name = "child", .argv = argv, .env = env, .restart = restart},
                 &err),
             err);
}

static long lines(const char *path)
{
    sh_buf text = {0};
    if (sh_file_read(path, 1 << 20, &text, &err) != SH_OK) return 0;
    long count = 0;
    for (size_t i = 0; i < text.len; i++) count += text.ptr[i] == '\n';
    sh_buf_reset(&text);
    return count;
}

TEST(children_that_end_well_end_the_run)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c, "test \"$WHO\" = me", false);
    add(c, "exit 0", true);
    assert_int_equal(sh_children_run(c, 1000), 0);
    sh_children_free(c);
}

TEST(a_mistake_is_not_repeated_and_its_code_is_passed_on)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    sh_log_set_level(SH_LOG_ERROR);
    add(c, "echo x >>mistake; exit 7", true);
    add(c, "sleep 100", false);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 3000), 7);
    assert_true(sh_clock_ns() - start < INT64_C(3000000000));
    assert_int_equal(lines("mistake"), 1);
    sh_children_free(c);
}

TEST(a_crash_is_followed_by_a_new_start)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c, "echo x >>crash; [ $(wc -l <crash) -ge 3 ] || kill -9 $$", true);
    assert_int_equal(sh_children_run(c, 1000), 0);
    assert_int_equal(lines("crash"), 3);
    sh_children_free(c);
}

TEST(a_signal_stops_children_gently_then_by_force)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c,
        "trap 'echo x >>gentle; exit 0' TERM; sleep 0.2; kill -TERM $PPID; while :; do sleep 0.05; "
        "done",
        true);
    add(c, "trap '' TERM; while :; do sleep 0.05; done", true);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 700), 0);
    int64_t took_ms = (sh_clock_ns() - start) / 1000000;
    assert_in_range(took_ms, 700, 3000);
    assert_int_equal(lines("gentle"), 1);
    sh_children_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_that_end_well_end_the_run),
        cmocka_unit_test(a_mistake_is_not_repeated_and_its_code_is_passed_on),
        cmocka_unit_test(a_crash_is_followed_by_a_new_start),
        cmocka_unit_test(a_signal_stops_children_gently_then_by_force),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
