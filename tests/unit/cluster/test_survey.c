#include "cluster/survey.h"

#include "test.h"

TEST(names_of_an_ssh_config_are_found_and_patterns_are_not)
{
    UNUSED_STATE;
    sh_arena arena = {0};
    const char *out[8];
    int count = sh_ssh_config_hosts(
        SH_STR("# Host no\nHost a b.example\n  HostName 10.0.0.1\nHost *\nhost\tc !d e?f\n"
               "Host=g\nHostName x\nMatch host y\nHost -oProxyCommand=z \"q\"\n"),
        &arena, out, 8);
    assert_int_equal(count, 4);
    assert_string_equal(out[0], "a");
    assert_string_equal(out[1], "b.example");
    assert_string_equal(out[2], "c");
    assert_string_equal(out[3], "g");
    assert_int_equal(sh_ssh_config_hosts(SH_STR("Host a b c"), &arena, out, 2), 2);
    sh_arena_reset(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_an_ssh_config_are_found_and_patterns_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
