/* Ctrl-C once and twice, each in its own process. */
#include "cmd/support/interrupt.h"

#include "cmd/command.h"

#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

/* The exit code of a process that gets this many signals and then exits with 7. */
static int code_after(int signals)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sh_interrupt_catch();
        for (int i = 0; i < signals; i++) raise(SIGINT);
        _exit(sh_interrupted == (signals > 0) ? 7 : 8);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(the_first_sets_the_flag_and_the_second_ends_the_program)
{
    UNUSED_STATE;
    assert_int_equal(code_after(0), 7);
    assert_int_equal(code_after(1), 7);
    assert_int_equal(code_after(2), SH_EXIT_INTERRUPTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sets_the_flag_and_the_second_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
