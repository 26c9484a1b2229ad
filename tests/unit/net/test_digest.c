/* Against the examples of the standard (FIPS 180-2). */
#include "net/digest.h"

#include "test.h"

TEST(digests_are_those_of_the_standard)
{
    UNUSED_STATE;
    char text[SH_DIGEST_TEXT_LEN + 1];
    sh_digest_text("abc", 3, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sh_digest_text("", 0, text);
    assert_string_equal(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(digests_are_those_of_the_standard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
