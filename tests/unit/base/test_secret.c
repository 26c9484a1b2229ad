#include "base/secret.h"

#include "base/hash.h"
#include "test.h"

static void check_refused(const char *secret, const char *why)
{
    sh_err err;
    CHECK_FAILS(sh_secret_check("the key", sh_str_of(secret), &err), err, why);
    assert_non_null(strstr(err.text, "the key is too easy to guess"));
    if (strlen(secret) > 2) assert_null(strstr(err.text, secret));
}

TEST(refuses_what_needs_no_dictionary)
{
    UNUSED_STATE;
    check_refused("", "0 characters");
    check_refused("abc", "3 characters and needs at least 16");
    check_refused("15-characters-x", "15 characters");
    check_refused("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "repeats 1 character;");
    check_refused("changemechangemechangeme", "repeats 8 characters");
    check_refused("0123456789abcde0123456789abcde0", "repeats 15 characters");
    check_refused("aaaaaaaaaaaaaaab", "2 different characters");
    check_refused("1122334411223345", "5 different characters");
    check_refused("0123456789abcdef", "runs");
    check_refused("abcdefghijklmnopqrstuvwxyz", "runs");
    check_refused("zyxwvutsrqponm9876543210", "runs");
    check_refused("aaaabbbbccccddddeeeeffff", "runs");
}

TEST(takes_what_was_drawn_at_random)
{
    UNUSED_STATE;
    static const char *const alphabets[] = {
        "0123456789abcdef",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    };
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const char *alphabet = alphabets[seed % 2];
        char secret[33] = "";
        for (uint64_t i = 0; i < 32; i++)
            secret[i] = alphabet[sh_mix64(seed * 64 + i) % strlen(alphabet)];
        sh_err err;
        CHECK_OK(sh_secret_check("the key", sh_str_of(secret), &err), err);
    }
    sh_err err;
    CHECK_OK(sh_secret_check("the key", SH_STR("sk-team-4fZq81Lx"), &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_needs_no_dictionary),
        cmocka_unit_test(takes_what_was_drawn_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
