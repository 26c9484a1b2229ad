#include "cmd/support/role.h"

#include "test.h"

#include <stdbool.h>

static bool removes(uint64_t role, const char *variable)
{
    char **env = sh_role_env(role, NULL);
    bool found = false;
    for (char **p = env; p != NULL && *p != NULL; p++) found = found || strcmp(*p, variable) == 0;
    sh_role_env_free(env);
    return found;
}

TEST(only_a_rank_that_asks_the_hub_gets_its_token)
{
    UNUSED_STATE;
    assert_true(removes(ROLE_RANK, "HF_TOKEN") && removes(ROLE_API, "HF_TOKEN"));
    assert_false(removes(ROLE_HUB_RANK, "HF_TOKEN"));
}

TEST(no_rank_gets_keys_and_the_api_no_cluster_token)
{
    UNUSED_STATE;
    assert_true(removes(ROLE_RANK, "SHOAL_API_KEY") && removes(ROLE_HUB_RANK, "SHOAL_API_KEY"));
    assert_true(removes(ROLE_API, "SHOAL_TOKEN"));
    assert_false(removes(ROLE_RANK, "SHOAL_TOKEN") || removes(ROLE_HUB_RANK, "SHOAL_TOKEN"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_rank_that_asks_the_hub_gets_its_token),
        cmocka_unit_test(no_rank_gets_keys_and_the_api_no_cluster_token),
    };
    return cmocka_run_group_tests_name("role", tests, NULL, NULL);
}
