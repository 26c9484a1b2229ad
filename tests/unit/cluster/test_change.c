#include "cluster/change.h"

#include "base/clock.h"
#include "base/file.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(takes_only_orders_that_cannot_mean_anything_else)
{
    UNUSED_STATE;
    static const struct {
        const char *line, *says; /* NULL: fine */
    } cases[] = {
        {"req_1 restart", NULL},
        {"req_1.a-b add h3", NULL},
        {"r add me@h3.example", NULL},
        {"r add [fd77::3]", NULL},
        {"r add fe80::1%eth0", NULL},
        {"r remove 2", NULL},
        {"", "no id"},
        {" restart", "no id"},
        {"a;b restart", "no id"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa restart", "no id"},
        {"r", "a change is"},
        {"r stop", "a change is"},
        {"r restart h3", "takes no host"},
        {"r add", "a host is"},
        {"r add ", "a host is"},
        {"r add h3 h4", "a host is"},
        {"r add -oProxyCommand=x", "a host is"},
        {"r add --help", "a host is"},
        {"r add .h3", "a host is"},
        {"r add h3;x", "a host is"},
        {"r add $(x)", "a host is"},
        {"r add h3\n", "a host is"},
        {"r add h\xc3\xa9", "a host is"},
        {"r remove ../h3", "a host is"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_change_order order;
        sh_err err;
        sh_status status = sh_change_parse(sh_str_of(cases[i].line), &order, &err);
        if (cases[i].says == NULL)
            CHECK_OK(status, err);
        else
            CHECK_FAILS(status, err, cases[i].says);
    }
    char text[300];
    memset(text, 'h', sizeof(text));
    assert_true(sh_change_is_host((sh_str){text, SH_CHANGE_HOST_MAX}));
    assert_false(sh_change_is_host((sh_str){text, SH_CHANGE_HOST_MAX + 1}));
    assert_false(sh_change_is_host((sh_str){"h\0x", 3}));
}

static sh_status outcome(sh_change *change, sh_err *said)
{
    sh_deadline end = sh_deadline_in_ms(30000);
    sh_status status;
    while ((status = sh_change_poll(change, said)) == SH_AGAIN) {
        if (sh_deadline_passed(end)) fail_msg("the command does not end");
        sh_sleep_ms(5);
    }
    return status;
}

/* A program that shows its arguments, fails for one host and stays for another. */
static const char SCRIPT[] = "#!/bin/sh\n"
                             "echo some log line\n"
                             "case $* in\n"
                             "*bad) echo 'shoal: no such host' >&2; echo more; exit 1 ;;\n"
                             "*slow) exec sleep 100 ;;\n"
                             "esac\n"
                             "echo \"$*\"\n";

TEST(runs_the_command_that_a_user_would_type)
{
    UNUSED_STATE;
    static const struct {
        const char *line, *says;
        bool fails;
    } cases[] = {
        {"a restart", "restart --warm --state-dir /the state", false},
        {"b add h3", "hosts add --state-dir /the state -- h3", false},
        {"c remove 2", "hosts remove --state-dir /the state -- 2", false},
        {"d add bad", "no such host", true},
    };
    char path[] = "/tmp/shoal-change-XXXXXX";
    sh_change change = {0};
    sh_change_order order;
    sh_err err;
    close(mkstemp(path));
    CHECK_OK(sh_file_write(path, SCRIPT, strlen(SCRIPT), &err), err);
    chmod(path, 0700);
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        CHECK_OK(sh_change_parse(sh_str_of(cases[i].line), &order, &err), err);
        CHECK_OK(sh_change_start(&change, &order, path, "/the state", &err), err);
        assert_int_equal(sh_change_start(&change, &order, path, "/", &err), SH_ERR_CONFLICT);
        assert_int_equal(outcome(&change, &err) != SH_OK, cases[i].fails);
        assert_string_equal(err.text, cases[i].says);
        assert_int_equal(change.id[0], cases[i].line[0]);
    }
    CHECK_OK(sh_change_parse(SH_STR("e add slow"), &order, &err), err);
    CHECK_OK(sh_change_start(&change, &order, path, "/", &err), err);
    sh_change_end(&change);
    assert_int_equal(sh_change_poll(&change, &err), SH_AGAIN); /* there is none */
    CHECK_OK(sh_change_start(&change, &order, "/nowhere/shoal", "/", &err), err);
    assert_int_equal(outcome(&change, &err), SH_ERR_PEER);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_only_orders_that_cannot_mean_anything_else),
        cmocka_unit_test(runs_the_command_that_a_user_would_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
