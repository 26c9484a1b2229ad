/* Real processes: started, crashed, started again, ended. */
#include "cluster/children.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static sh_err err;

static int setup(void **state)
{
    sh_log_set_level(SH_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN); /* as in the program */
    return make_dir(state) != 0 || chdir(dir) != 0;
}

static void add(sh_children *c, const char *script, sh_child_policy policy)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    char *env[] = {"WHO=me", NULL};
    CHECK_OK(
        sh_children_add(
            c, &(sh_child_spec){.name = "child", .argv = argv, .env = env, .policy = policy}, &err),
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
    add(c, "test \"$WHO\" = me", SH_CHILD_TASK);
    add(c, "exit 0", SH_CHILD_SERVICE);
    assert_int_equal(sh_children_run(c, 1000), 0);
    sh_children_free(c);
}

TEST(a_mistake_is_not_repeated_and_its_code_is_passed_on)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    sh_log_set_level(SH_LOG_ERROR);
    add(c, "echo x >>mistake; exit 7", SH_CHILD_SERVICE);
    add(c, "sleep 100", SH_CHILD_TASK);
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
    add(c, "echo x >>crash; [ $(wc -l <crash) -ge 3 ] || kill -9 $$", SH_CHILD_SERVICE);
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
        SH_CHILD_SERVICE);
    add(c, "trap '' TERM; while :; do sleep 0.05; done", SH_CHILD_SERVICE);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 700), 0);
    int64_t took_ms = (sh_clock_ns() - start) / 1000000;
    assert_in_range(took_ms, 700, 3000);
    assert_int_equal(lines("gentle"), 1);
    sh_children_free(c);
}

TEST(a_second_signal_does_not_wait_any_longer)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c,
        "trap '' TERM; sleep 0.2; kill -INT $PPID; sleep 0.3; kill -INT $PPID; while :; do sleep "
        "0.05; done",
        SH_CHILD_SERVICE);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 60000), 130);
    assert_true(sh_clock_ns() - start < INT64_C(20000000000));
    sh_children_free(c);
}

struct seen {
    sh_children *children;
    int lines, started, ended, again;
    char last[64];
};

static void seen_line(void *arg, int child, sh_str line)
{
    struct seen *seen = arg;
    seen->lines++;
    snprintf(seen->last, sizeof(seen->last), "%.*s", (int)line.len, line.ptr);
    if (sh_str_is(line, "ready")) sh_children_ready(seen->children, child);
}

static void seen_start(void *arg, int child, pid_t pid)
{
    ((struct seen *)arg)->started += child == 0 && pid > 0;
}

static void seen_end(void *arg, int child, const char *how, bool again)
{
    struct seen *seen = arg;
    (void)child;
    (void)how;
    seen->ended++;
    seen->again += again;
}

static sh_children *watched(struct seen *seen, const char *script)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    *seen = (struct seen){.children = sh_children_create()};
    sh_children_set_hooks(seen->children, &(sh_children_hooks){.line = seen_line,
                                                               .started = seen_start,
                                                               .ended = seen_end,
                                                               .arg = seen});
    sh_child_spec spec = {.name = "child",
                          .argv = argv,
                          .policy = SH_CHILD_OBSERVED_RANK,
                          .tether = true,
                          .capture = true};
    CHECK_OK(sh_children_add(seen->children, &spec, &err), err);
    return seen->children;
}

TEST(a_tether_asks_and_its_end_asks_again)
{
    UNUSED_STATE;
    struct seen seen;
    sh_children *c = watched(
        &seen, "(sleep 0.3; kill -TERM $PPID) & head -c 2 | tr -d '.\\n'; echo; cat; echo end");
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 500), 0);
    assert_true(sh_clock_ns() - start < INT64_C(3000000000));
    assert_int_equal(seen.lines, 2);
    assert_string_equal(seen.last, "Send"); /* asked once more, and the end of the pipe */
    sh_children_free(c);
}

TEST(an_error_after_ready_is_a_crash_and_one_before_it_is_final)
{
    UNUSED_STATE;
    struct seen seen;
    sh_children *c = watched(&seen, "echo x >>up; echo ready; [ $(wc -l <up) -ge 2 ] || exit 5");
    assert_int_equal(sh_children_run(c, 500), 0);
    assert_int_equal(seen.started, 2);
    assert_int_equal(seen.again, 1);
    sh_children_free(c);
    c = watched(&seen, "echo x; exit 5");
    assert_int_equal(sh_children_run(c, 500), 5);
    assert_int_equal(seen.started, 1);
    sh_children_free(c);
}

static int tries_of(const char *script)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    struct seen seen = {.children = sh_children_create()};
    sh_children_set_hooks(seen.children, &(sh_children_hooks){.started = seen_start, .arg = &seen});
    sh_child_spec spec = {.name = "child", .argv = argv, .policy = SH_CHILD_LOCAL_RANK};
    CHECK_OK(sh_children_add(seen.children, &spec, &err), err);
    assert_int_equal(sh_children_run(seen.children, 500), 128 + SIGKILL);
    sh_children_free(seen.children);
    return seen.started;
}

TEST(a_rank_gets_three_tries_to_come_up_and_any_number_after_that)
{
    UNUSED_STATE;
    assert_int_equal(tries_of("kill -9 $$"), 3);
    sh_children *c = sh_children_create();
    char *argv[] = {"/bin/sh", "-c",
                    "echo x >>told; [ $(wc -l <told) -ge 4 ] && exit 0; "
                    "[ $(wc -l <told) -ge 2 ] || echo R >/dev/fd/$SHOAL_READY_FD; kill -9 $$",
                    NULL};
    sh_child_spec spec = {.name = "child", .argv = argv, .policy = SH_CHILD_LOCAL_RANK};
    CHECK_OK(sh_children_add(c, &spec, &err), err);
    assert_int_equal(sh_children_run(c, 500), 0);
    assert_int_equal(lines("told"), 4);
    sh_children_free(c);
}

TEST(a_tethered_process_ends_with_its_tether)
{
    UNUSED_STATE;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0); /* else the child would hold it too */
    sh_children *c = sh_children_create();
    sh_children_set_tether(c, pipes[0]);
    add(c, "sleep 100", SH_CHILD_SERVICE);
    assert_int_equal(write(pipes[1], "..", 2), 2);
    close(pipes[1]);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 3000), 0);
    assert_true(sh_clock_ns() - start < INT64_C(2000000000));
    sh_children_free(c);
    close(pipes[0]);
}

/* Milliseconds between the starts that were noted in a file. */
static int64_t gap_ms(const char *path, int start)
{
    long long at[16] = {0};
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i <= start; i++) assert_int_equal(fscanf(file, "%lld", &at[i]), 1);
    fclose(file);
    return (at[start] - at[start - 1]) / 1000000;
}

TEST(three_restarts_come_at_once_and_later_ones_after_a_pause)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c,
        "date +%s%N >>came; printf R >/dev/fd/$SHOAL_READY_FD; [ $(wc -l <came) -ge 6 ] || kill -9 "
        "$$",
        SH_CHILD_LOCAL_RANK);
    add(c, "date +%s%N >>mute; [ $(wc -l <mute) -ge 6 ] || kill -9 $$", SH_CHILD_SERVICE);
    assert_int_equal(sh_children_run(c, 1000), 0);
    for (int i = 1; i <= 3; i++) {
        assert_in_range(gap_ms("came", i), 0, 450);
        assert_in_range(gap_ms("mute", i), 0, 450);
    }
    assert_in_range(gap_ms("came", 4), 500, 950); /* it comes up, so the pause does not grow */
    assert_in_range(gap_ms("came", 5), 500, 950);
    assert_in_range(gap_ms("mute", 4), 500, 950);
    assert_in_range(gap_ms("mute", 5), 1000, 1900);
    sh_children_free(c);
}

enum { FROZEN_MS = 500 };

TEST(a_rank_that_stops_to_beat_is_killed_and_one_that_never_did_is_not)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    sh_children_set_frozen(c, FROZEN_MS);
    add(c,
        "date +%s%N >>frozen; [ $(wc -l <frozen) -ge 2 ] && exit 0; "
        "printf . >/dev/fd/$SHOAL_READY_FD; kill -STOP $$",
        SH_CHILD_LOCAL_RANK);
    add(c, "echo x >>silent; sleep 1.2", SH_CHILD_LOCAL_RANK);
    add(c,
        "echo x >>beats; for i in 1 2 3 4 5 6; do printf . >/dev/fd/$SHOAL_READY_FD; sleep 0.2; "
        "done",
        SH_CHILD_LOCAL_RANK);
    assert_int_equal(sh_children_run(c, 1000), 0);
    assert_in_range(gap_ms("frozen", 1), FROZEN_MS, 3 * FROZEN_MS);
    assert_int_equal(lines("silent"), 1);
    assert_int_equal(lines("beats"), 1);
    sh_children_free(c);
}

static pid_t pid_in(const char *path)
{
    sh_buf text = {0};
    sh_deadline end = sh_deadline_in_ms(5000);
    while (lines(path) == 0 && !sh_deadline_passed(end)) sh_sleep_ms(5);
    CHECK_OK(sh_file_read(path, 100, &text, &err), err);
    sh_buf_add_char(&text, '\0');
    pid_t pid = (pid_t)atol(text.ptr);
    sh_buf_reset(&text);
    return pid;
}

/* The whole machine sleeps, and the supervisor is the first to wake up. */
TEST(a_supervisor_that_was_stopped_kills_nobody)
{
    UNUSED_STATE;
    pid_t supervisor = fork();
    if (supervisor == 0) {
        sh_children *c = sh_children_create();
        sh_children_set_frozen(c, FROZEN_MS);
        add(c,
            "echo $$ >>slept; for i in 1 2 3 4 5 6; do printf . >/dev/fd/$SHOAL_READY_FD; "
            "sleep 0.2; done",
            SH_CHILD_LOCAL_RANK);
        _exit(sh_children_run(c, 1000));
    }
    pid_t child = pid_in("slept");
    sh_sleep_ms(200);
    kill(supervisor, SIGSTOP);
    kill(child, SIGSTOP);
    sh_sleep_ms(3 * FROZEN_MS);
    kill(supervisor, SIGCONT);
    sh_sleep_ms(100);
    kill(child, SIGCONT);
    int status = -1;
    assert_int_equal(waitpid(supervisor, &status, 0), supervisor);
    assert_int_equal(status, 0);
    assert_int_equal(lines("slept"), 1); /* it was not started again */
}

TEST(a_patient_supervisor_passes_the_first_request_on_and_obeys_the_second)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    sh_children_set_patient(c);
    add(c, "trap 'sleep 0.3; exit 0' TERM; kill -INT $PPID; while :; do sleep 0.05; done",
        SH_CHILD_RANK);
    assert_int_equal(sh_children_run(c, 0), 0); /* it was let go, whatever the signal */
    sh_children_free(c);
    c = sh_children_create();
    sh_children_set_patient(c);
    add(c,
        "trap 'echo x >>asked' TERM; kill -INT $PPID; sleep 0.3; kill -INT $PPID; "
        "while :; do sleep 0.05; done",
        SH_CHILD_RANK);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 0), 130);
    assert_true(sh_clock_ns() - start < INT64_C(5000000000));
    assert_true(lines("asked") >= 2);
    sh_children_free(c);
}

TEST(what_crashes_after_the_request_is_not_started_again)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    sh_children_set_patient(c);
    add(c,
        "echo x >>once; printf R >/dev/fd/$SHOAL_READY_FD; trap 'kill -9 $$' TERM; "
        "kill -TERM $PPID; while :; do sleep 0.05; done",
        SH_CHILD_RANK);
    assert_int_equal(sh_children_run(c, 0), 128 + SIGKILL);
    assert_int_equal(lines("once"), 1);
    sh_children_free(c);
}

TEST(a_rank_that_is_asked_to_leave_may_refuse_any_number_of_times)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c,
        "n=0; trap 'n=$((n + 1)); [ $n -lt 3 ] || exit 0' USR1; "
        "while :; do kill -USR1 $PPID; sleep 0.1; done",
        SH_CHILD_RANK);
    assert_int_equal(sh_children_run(c, 0), 0);
    sh_children_free(c);
}

/* One order after the other: a shell handles signals that came together in any order. */
static void *orders_give(void *arg)
{
    const int *fd = arg;
    sh_deadline deadline = sh_deadline_in_ms(10000);
    bool told = write(*fd, ".N", 2) == 2;
    while (told && access("renewed", F_OK) != 0 && !sh_deadline_passed(deadline)) sh_sleep_ms(5);
    return write(*fd, "L", 1) == 1 ? arg : NULL;
}

/* The orders of a tether become signals. */
TEST(a_tether_renews_a_supervisor_and_lets_it_leave)
{
    UNUSED_STATE;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    sh_children *c = sh_children_create();
    sh_children_set_tether(c, pipes[0]);
    add(c,
        "trap 'echo x >>renewed' USR2; trap 'exit 0' USR1; touch traps; "
        "while :; do sleep 0.05; done",
        SH_CHILD_OBSERVED_RANK);
    while (access("traps", F_OK) != 0) sh_sleep_ms(5);
    pthread_t giver;
    assert_int_equal(pthread_create(&giver, NULL, orders_give, &pipes[1]), 0);
    assert_int_equal(sh_children_run(c, 3000), 0);
    pthread_join(giver, NULL);
    assert_int_equal(lines("renewed"), 1);
    sh_children_free(c);
    close(pipes[0]);
    close(pipes[1]);
}

static void on_told(void *arg, sh_str text)
{
    sh_buf *all = arg;
    sh_buf_add_str(all, text);
    sh_buf_add_char(all, '|');
}

/* Whatever letters are in it: they are no orders. */
TEST(a_tether_carries_lines_of_text)
{
    UNUSED_STATE;
    static const char first[] = ".TSTOP NOW, Lads\n.", second[] = "T\nTlast\n";
    int pipes[2];
    sh_buf told = {0};
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    sh_children *c = sh_children_create();
    sh_children_set_hooks(c, &(sh_children_hooks){.told = on_told, .arg = &told});
    sh_children_set_tether(c, pipes[0]);
    assert_int_equal(write(pipes[1], first, strlen(first)), (ssize_t)strlen(first));
    assert_int_equal(write(pipes[1], second, strlen(second)), (ssize_t)strlen(second));
    add(c, "exec sleep 0.3", SH_CHILD_TASK);
    assert_int_equal(sh_children_run(c, 3000), 0);
    assert_string_equal(told.ptr, "STOP NOW, Lads||last|");
    sh_children_free(c);
    sh_buf_reset(&told);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(agents_of_members_leave_and_fail_alone_and_that_of_rank_0_ends_all)
{
    UNUSED_STATE;
    sh_children *c = sh_children_create();
    add(c, "exec sleep 0.5", SH_CHILD_AGENT);
    add(c, "exit 0", SH_CHILD_MEMBER_AGENT);
    add(c, "exit 7", SH_CHILD_ADDED_AGENT);
    add(c, "exec sleep 100", SH_CHILD_MEMBER_AGENT);
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_children_run(c, 1000), 0);
    assert_in_range((sh_clock_ns() - start) / 1000000, 400, 5000);
    sh_children_free(c);
    c = sh_children_create();
    add(c, "exec sleep 100", SH_CHILD_AGENT);
    add(c, "exit 7", SH_CHILD_MEMBER_AGENT);
    assert_int_equal(sh_children_run(c, 1000), 7);
    sh_children_free(c);
}

/* Ranks of models come and go beside the others. */
static struct {
    sh_children *c;
    int first, second;
    int step;
} models;

static void models_step(void *arg)
{
    (void)arg;
    sh_children *c = models.c;
    if (models.step == 0 && sh_children_state(c, models.first) == SH_CHILD_GONE) {
        assert_string_equal(sh_children_reason(c, models.first), "no such file");
        sh_children_stop(c, models.first, 0);
        add(c, "echo R >&$SHOAL_READY_FD; trap 'exit 0' TERM; while :; do sleep .05; done",
            SH_CHILD_MODEL_RANK);
        models.second = sh_children_last(c);
        assert_int_equal(models.second, models.first); /* its place */
        models.step++;
    } else if (models.step == 1 && sh_children_state(c, models.second) == SH_CHILD_UP) {
        sh_children_stop(c, models.second, 30000);
        models.step++;
    } else if (models.step == 2 && sh_children_state(c, models.second) == SH_CHILD_GONE) {
        models.step++;
        sh_children_give_up(c, 5);
    }
}

TEST(a_model_fails_alone_says_why_and_makes_room)
{
    UNUSED_STATE;
    sh_children *c = models.c = sh_children_create();
    sh_children_set_hooks(c, &(sh_children_hooks){.polled = models_step});
    sh_children_set_standing(c);
    add(c, "sleep 100", SH_CHILD_TASK);
    add(c, "echo 'Eno such file' >&$SHOAL_READY_FD; exit 3", SH_CHILD_MODEL_RANK);
    models.first = sh_children_last(c);
    assert_int_equal(sh_children_run(c, 1000), 5);
    assert_int_equal(models.step, 3);
    sh_children_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_that_end_well_end_the_run),
        cmocka_unit_test(a_mistake_is_not_repeated_and_its_code_is_passed_on),
        cmocka_unit_test(a_crash_is_followed_by_a_new_start),
        cmocka_unit_test(a_signal_stops_children_gently_then_by_force),
        cmocka_unit_test(a_second_signal_does_not_wait_any_longer),
        cmocka_unit_test(a_patient_supervisor_passes_the_first_request_on_and_obeys_the_second),
        cmocka_unit_test(what_crashes_after_the_request_is_not_started_again),
        cmocka_unit_test(a_rank_that_is_asked_to_leave_may_refuse_any_number_of_times),
        cmocka_unit_test(a_tether_renews_a_supervisor_and_lets_it_leave),
        cmocka_unit_test(a_tether_carries_lines_of_text),
        cmocka_unit_test(agents_of_members_leave_and_fail_alone_and_that_of_rank_0_ends_all),
        cmocka_unit_test(a_tether_asks_and_its_end_asks_again),
        cmocka_unit_test(an_error_after_ready_is_a_crash_and_one_before_it_is_final),
        cmocka_unit_test(a_rank_gets_three_tries_to_come_up_and_any_number_after_that),
        cmocka_unit_test(a_tethered_process_ends_with_its_tether),
        cmocka_unit_test(three_restarts_come_at_once_and_later_ones_after_a_pause),
        cmocka_unit_test(a_rank_that_stops_to_beat_is_killed_and_one_that_never_did_is_not),
        cmocka_unit_test(a_supervisor_that_was_stopped_kills_nobody),
        cmocka_unit_test(a_model_fails_alone_says_why_and_makes_room),
    };
    return cmocka_run_group_tests(tests, setup, remove_dir);
}
