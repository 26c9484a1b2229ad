/* Quoting against real shells, and local runs; tests/cluster covers hosts with a real sshd. */
#include "cluster/ssh.h"

#include "base/clock.h"

#include "test.h"

#include <unistd.h>

static const sh_ssh_opts plain = {0};

static sh_ssh_job run_one(const sh_ssh_opts *opts, const char *command, sh_str input)
{
    sh_ssh_job job = {.command = command, .input = input};
    sh_ssh_run(opts, &job, 1);
    return job;
}

TEST(a_quoted_word_comes_out_of_the_shell_as_it_went_in)
{
    UNUSED_STATE;
    static const char *const words[] = {"",      "plain", "two words", "it's", "'",     "''\\''",
                                        "$HOME", "`id`",  "a\nb",      "\\",   "!x*?~", "-n"};
    for (size_t i = 0; i < SH_COUNT_OF(words); i++) {
        sh_buf once = {0}, twice = {0};
        sh_buf_add_text(&once, "printf %s ");
        sh_shell_quote(&once, sh_str_of(words[i]));
        sh_buf_add_text(&twice, "sh -c ");
        sh_shell_quote(&twice, sh_buf_str(&once));
        const char *const commands[] = {once.ptr, twice.ptr};
        for (size_t j = 0; j < SH_COUNT_OF(commands); j++) {
            sh_ssh_job job = run_one(&plain, commands[j], (sh_str){0});
            assert_int_equal(job.status, SH_OK);
            assert_true(sh_str_is(sh_buf_str(&job.out), words[i]));
            sh_ssh_job_reset(&job);
        }
        sh_buf_reset(&once);
        sh_buf_reset(&twice);
    }
}

TEST(input_goes_in_and_both_outputs_come_back)
{
    UNUSED_STATE;
    sh_buf big = {0};
    for (int i = 0; i < 100000; i++) sh_buf_addf(&big, "%d\n", i);
    sh_ssh_job job = run_one(&plain, "cat; echo oops >&2", sh_buf_str(&big));
    assert_int_equal(job.status, SH_OK);
    assert_true(sh_str_eq(sh_buf_str(&job.out), sh_buf_str(&big)));
    assert_string_equal(job.errors.ptr, "oops\n");
    sh_ssh_job_reset(&job);
    sh_buf_reset(&big);
}

TEST(a_command_that_reads_nothing_does_not_hold_up_its_input)
{
    UNUSED_STATE;
    static char big[1 << 20];
    sh_ssh_job job = run_one(&plain, "exit 0", (sh_str){big, sizeof(big)});
    assert_int_equal(job.status, SH_OK);
    sh_ssh_job_reset(&job);
}

TEST(failures_say_what_it_was)
{
    UNUSED_STATE;
    sh_ssh_job job = run_one(&plain, "echo first >&2; echo 'disk is full' >&2; exit 3",
                             (sh_str){0});
    assert_int_equal(job.code, 3);
    CHECK_FAILS(job.status, job.err, "localhost: the command ended with code 3: disk is full");
    sh_ssh_job_reset(&job);
    job = run_one(&plain, "no-such-program-here", (sh_str){0});
    CHECK_FAILS(job.status, job.err, "command not found");
    sh_ssh_job_reset(&job);
    job = run_one(&plain, "kill -9 $$", (sh_str){0});
    assert_int_equal(job.code, 128 + 9);
    sh_ssh_job_reset(&job);
    job = (sh_ssh_job){.command = "yes", .output_max = 1000};
    assert_false(sh_ssh_run(&plain, &job, 1));
    CHECK_FAILS(job.status, job.err, "printed too much");
    sh_ssh_job_reset(&job);
}

TEST(a_job_ends_at_the_deadline_and_when_it_is_cancelled)
{
    UNUSED_STATE;
    int64_t start = sh_clock_ns();
    sh_ssh_job job = run_one(&(sh_ssh_opts){.limit_ms = 200}, "sleep 50 & sleep 50", (sh_str){0});
    CHECK_FAILS(job.status, job.err, "timed out");
    sh_ssh_job_reset(&job);
    static const volatile sig_atomic_t now = 1;
    job = run_one(&(sh_ssh_opts){.cancel = &now}, "sleep 50", (sh_str){0});
    assert_int_equal(job.status, SH_ERR_CANCELLED);
    sh_ssh_job_reset(&job);
    assert_true(sh_clock_ns() - start < INT64_C(5000000000));
}

TEST(jobs_run_at_the_same_time)
{
    UNUSED_STATE;
    sh_ssh_job jobs[8] = {{0}};
    for (size_t i = 0; i < SH_COUNT_OF(jobs); i++) jobs[i].command = "sleep 0.4; echo done";
    int64_t start = sh_clock_ns();
    assert_true(sh_ssh_run(&plain, jobs, SH_COUNT_OF(jobs)));
    assert_true(sh_clock_ns() - start < INT64_C(2500000000));
    for (size_t i = 0; i < SH_COUNT_OF(jobs); i++) {
        assert_string_equal(jobs[i].out.ptr, "done\n");
        sh_ssh_job_reset(&jobs[i]);
    }
}

TEST(the_argument_list_of_ssh_asks_nothing_and_keeps_the_users_options)
{
    UNUSED_STATE;
    char **argv = sh_ssh_argv(&(sh_ssh_opts){.options = "-F my.conf  -p 22"}, "me@there",
                              "echo 'x'");
    sh_buf all = {0};
    for (char **p = argv; *p != NULL; p++) sh_buf_addf(&all, "%s|", *p);
    assert_non_null(strstr(all.ptr, "ssh|-T|-o|BatchMode=yes|"));
    assert_non_null(strstr(all.ptr, "|-F|my.conf|-p|22|"));
    assert_non_null(strstr(all.ptr, "|ConnectTimeout=5|--|me@there|exec /bin/sh -c "));
    sh_buf_reset(&all);
    sh_ssh_argv_free(argv);
}

TEST(this_machine_is_known_by_its_names_and_numbers)
{
    UNUSED_STATE;
    char own[256] = {0};
    gethostname(own, sizeof(own) - 1);
    assert_true(sh_ssh_is_local("localhost"));
    assert_true(sh_ssh_is_local("127.0.0.1"));
    assert_true(sh_ssh_is_local("127.1.2.3"));
    assert_true(sh_ssh_is_local("::1"));
    assert_true(sh_ssh_is_local(own));
    assert_false(sh_ssh_is_local("nobody-has-this-name@localhost"));
    assert_false(sh_ssh_is_local("198.51.100.7"));
    assert_false(sh_ssh_is_local("elsewhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quoted_word_comes_out_of_the_shell_as_it_went_in),
        cmocka_unit_test(input_goes_in_and_both_outputs_come_back),
        cmocka_unit_test(a_command_that_reads_nothing_does_not_hold_up_its_input),
        cmocka_unit_test(failures_say_what_it_was),
        cmocka_unit_test(a_job_ends_at_the_deadline_and_when_it_is_cancelled),
        cmocka_unit_test(jobs_run_at_the_same_time),
        cmocka_unit_test(the_argument_list_of_ssh_asks_nothing_and_keeps_the_users_options),
        cmocka_unit_test(this_machine_is_known_by_its_names_and_numbers),
    };
    /* As in the program: a command that stops reading must not kill us with SIGPIPE. */
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
