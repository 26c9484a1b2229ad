/* Both forms of a token, what is refused, and the keys. */
#include "net/cluster_token.h"

#include "test.h"

static const char SECRET[] = "00112233445566778899aabbccddeef0";

static char *wrapped(const char *secret, const char *const *places, int count)
{
    sh_cluster_token token = {.place_count = count};
    sh_buf text = {0};
    sh_err err;
    snprintf(token.secret, sizeof(token.secret), "%s", secret);
    for (int i = 0; i < count; i++)
        snprintf(token.place[i], sizeof(token.place[i]), "%s", places[i]);
    CHECK_OK(sh_cluster_token_wrap(&token, &text, &err), err);
    return sh_buf_take(&text);
}

TEST(a_wrapped_token_holds_the_secret_and_the_addresses)
{
    UNUSED_STATE;
    static const char *const secrets[] = {SECRET, "Tr0ub4dor&3-correct-horse-battery"};
    static const char *const places[] = {"10.0.0.1:32323", "[2001:db8::7]:9", "gpu.example.org:1"};
    for (size_t i = 0; i < SH_COUNT_OF(secrets); i++)
        for (int count = 0; count <= 3; count++) {
            sh_cluster_token token;
            sh_err err;
            char *text = wrapped(secrets[i], places, count);
            assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyz1234567"), strlen(text));
            CHECK_OK(sh_cluster_token_parse(text, &token, &err), err);
            assert_string_equal(token.secret, secrets[i]);
            assert_int_equal(token.place_count, count);
            for (int k = 0; k < count; k++) assert_string_equal(token.place[k], places[k]);
            free(text);
        }
}

TEST(it_may_be_typed_in_capitals)
{
    UNUSED_STATE;
    sh_cluster_token token;
    sh_err err;
    char *text = wrapped(SECRET, NULL, 0);
    assert_int_equal(strlen(text), 42);
    for (char *p = text; *p != '\0'; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    CHECK_OK(sh_cluster_token_parse(text, &token, &err), err);
    assert_string_equal(token.secret, SECRET);
    free(text);
}

TEST(every_mistyped_character_is_noticed)
{
    UNUSED_STATE;
    sh_err err;
    char *text = wrapped(SECRET, (const char *[]){"10.0.0.1:1"}, 1);
    size_t len = strlen(text);
    for (size_t i = 6; i < len; i++) {
        char was = text[i];
        text[i] = was == 'a' ? 'b' : 'a';
        CHECK_FAILS(sh_cluster_token_check(text, &err), err, "copy it again");
        assert_null(strstr(err.text, text + 6));
        text[i] = was;
    }
    for (size_t cut = len - 1; cut > 6; cut--) {
        text[cut] = '\0';
        CHECK_FAILS(sh_cluster_token_check(text, &err), err, "copy it again");
    }
    free(text);
}

TEST(a_secret_of_less_than_128_bits_is_refused)
{
    UNUSED_STATE;
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"short", "bits, must be 128"},
        {"00112233445566778899aabb", "96 bits"},          /* hex */
        {"12093847561029384756102938", "86 bits"},        /* digits */
        {"qwmnrtzpxlkjvbhgfdsayc", "114 bits"},           /* letters */
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "too easy"}, /* long enough */
        {"0123 5533 with a blank, which is long", "character 5"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        sh_err err;
        CHECK_FAILS(sh_cluster_token_check(bad[i].text, &err), err, bad[i].why);
        assert_null(strstr(err.text, bad[i].text));
    }
    sh_err err;
    char longest[SH_CLUSTER_TOKEN_LEN_MAX + 2];
    for (size_t i = 0; i < sizeof(longest) - 1; i++) longest[i] = (char)('!' + i * 7 % 90);
    longest[sizeof(longest) - 1] = '\0';
    CHECK_FAILS(sh_cluster_token_check(longest, &err), err, "at most 256");
    longest[sizeof(longest) - 2] = '\0';
    CHECK_OK(sh_cluster_token_check(longest, &err), err);
}

TEST(a_weak_secret_is_refused_in_its_wrapping_too)
{
    UNUSED_STATE;
    sh_err err;
    char *text = wrapped("weak", NULL, 0);
    CHECK_FAILS(sh_cluster_token_check(text, &err), err, "bits, must be 128");
    free(text);
}

TEST(a_token_that_would_be_too_long_is_not_made)
{
    UNUSED_STATE;
    sh_cluster_token token = {.place_count = 4};
    sh_buf text = {0};
    sh_err err;
    memcpy(token.secret, SECRET, sizeof(SECRET));
    for (int i = 0; i < 4; i++)
        snprintf(token.place[i], sizeof(token.place[i]), "%060d.example.org:1", i);
    CHECK_FAILS(sh_cluster_token_wrap(&token, &text, &err), err, "fewer");
    sh_buf_reset(&text);
}

TEST(keys_depend_on_the_secret_and_on_their_use_alone)
{
    UNUSED_STATE;
    uint8_t key[3][SH_CLUSTER_TOKEN_KEY_LEN], same[SH_CLUSTER_TOKEN_KEY_LEN];
    char *text = wrapped(SECRET, (const char *[]){"10.0.0.1:1"}, 1);
    for (int use = 0; use < 3; use++) {
        sh_cluster_token_key(SECRET, (sh_cluster_token_use)use, key[use]);
        sh_cluster_token_key(text, (sh_cluster_token_use)use, same);
        assert_memory_equal(key[use], same, sizeof(same));
        for (int other = 0; other < use; other++)
            assert_memory_not_equal(key[use], key[other], sizeof(same));
    }
    free(text);
}

/* Computed with Python: hmac over SHA-256, extract with a salt of zeros, then expand. */
TEST(keys_are_those_of_hkdf)
{
    UNUSED_STATE;
    static const uint8_t want[] = {0xab, 0xc3, 0x93, 0xbf, 0x81, 0x41, 0x6d, 0x69, 0x7a, 0xe5, 0xf5,
                                   0x03, 0x05, 0x02, 0xde, 0x1f, 0x9f, 0xa8, 0x7e, 0x49, 0x0c, 0xba,
                                   0xd4, 0x30, 0xa2, 0x74, 0xeb, 0xe9, 0x2c, 0x97, 0xa9, 0x90};
    uint8_t key[SH_CLUSTER_TOKEN_KEY_LEN];
    sh_cluster_token_key(SECRET, SH_TOKEN_KEY_LINKS, key);
    assert_memory_equal(key, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrapped_token_holds_the_secret_and_the_addresses),
        cmocka_unit_test(it_may_be_typed_in_capitals),
        cmocka_unit_test(every_mistyped_character_is_noticed),
        cmocka_unit_test(a_secret_of_less_than_128_bits_is_refused),
        cmocka_unit_test(a_weak_secret_is_refused_in_its_wrapping_too),
        cmocka_unit_test(a_token_that_would_be_too_long_is_not_made),
        cmocka_unit_test(keys_depend_on_the_secret_and_on_their_use_alone),
        cmocka_unit_test(keys_are_those_of_hkdf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
