#include "http/keys.h"

#include "base/file.h"
#include "test.h"

#include <unistd.h>

TEST(opens_for_its_keys_alone)
{
    UNUSED_STATE;
    sh_err err;
    sh_http_keys *keys = sh_http_keys_create();
    CHECK_OK(sh_http_keys_add_text(keys, "sk-one-4fZq81Lx0p, sk-two-7hWm29Kc5r", &err), err);
    assert_int_equal(sh_http_keys_count(keys), 2);
    assert_true(sh_http_keys_has(keys, SH_STR("sk-one-4fZq81Lx0p")));
    assert_true(sh_http_keys_has(keys, SH_STR("sk-two-7hWm29Kc5r")));
    assert_false(sh_http_keys_has(keys, SH_STR("sk-one-4fZq81Lx0")));
    assert_false(sh_http_keys_has(keys, SH_STR("sk-one-4fZq81Lx0p ")));
    assert_false(sh_http_keys_has(keys, SH_STR("")));
    sh_http_keys_free(keys);
}

TEST(reads_a_file_with_comments)
{
    UNUSED_STATE;
    sh_err err;
    char path[] = "/tmp/shoal-keys-XXXXXX";
    close(mkstemp(path));
    static const char text[] = "# ours\nsk-a-4fZq81Lx0p2s\r\n\n  sk-b-7hWm29Kc5r8t\n#sk-c\n";
    CHECK_OK(sh_file_write(path, text, sizeof(text) - 1, &err), err);
    sh_http_keys *keys = sh_http_keys_create();
    CHECK_OK(sh_http_keys_add_file(keys, path, &err), err);
    assert_int_equal(sh_http_keys_count(keys), 2);
    assert_true(sh_http_keys_has(keys, SH_STR("sk-b-7hWm29Kc5r8t")));

    static const char spaced[] = "sk-a-4fZq81Lx0p2s\nsk b 7hWm29Kc5r8t\n";
    CHECK_OK(sh_file_write(path, spaced, sizeof(spaced) - 1, &err), err);
    CHECK_FAILS(sh_http_keys_add_file(keys, path, &err), err, "line 2");
    unlink(path);
    CHECK_FAILS(sh_http_keys_add_file(keys, path, &err), err, path);
    sh_http_keys_free(keys);
}

TEST(refuses_keys_that_no_header_can_carry)
{
    UNUSED_STATE;
    sh_err err;
    sh_http_keys *keys = sh_http_keys_create();
    CHECK_FAILS(sh_http_keys_add_text(keys, "sk-a-4fZq81Lx0p2s,,b", &err), err, "empty");
    CHECK_FAILS(sh_http_keys_add_text(keys, "k\xc3\xa4se", &err), err, "visible ASCII");
    sh_http_keys_free(keys);
}

TEST(refuses_keys_that_anybody_could_guess)
{
    UNUSED_STATE;
    sh_err err;
    sh_http_keys *keys = sh_http_keys_create();
    CHECK_FAILS(sh_http_keys_add_text(keys, "abc", &err), err, "an API key is too easy to guess");
    CHECK_FAILS(sh_http_keys_add_text(keys, "aaaaaaaaaaaaaaaaaaaaaaaa", &err), err, "guess");
    assert_int_equal(sh_http_keys_count(keys), 0);
    sh_http_keys_free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_for_its_keys_alone),
        cmocka_unit_test(reads_a_file_with_comments),
        cmocka_unit_test(refuses_keys_that_no_header_can_carry),
        cmocka_unit_test(refuses_keys_that_anybody_could_guess),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
