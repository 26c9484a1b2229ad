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
    assert_non_null(sh_http_keys_find(keys, SH_STR("sk-one-4fZq81Lx0p")));
    assert_non_null(sh_http_keys_find(keys, SH_STR("sk-two-7hWm29Kc5r")));
    assert_null(sh_http_keys_find(keys, SH_STR("sk-one-4fZq81Lx0")));
    assert_null(sh_http_keys_find(keys, SH_STR("sk-one-4fZq81Lx0p ")));
    assert_null(sh_http_keys_find(keys, SH_STR("")));
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
    assert_non_null(sh_http_keys_find(keys, SH_STR("sk-b-7hWm29Kc5r8t")));

    static const char spaced[] = "sk-a-4fZq81Lx0p2s\nsk b 7hWm29Kc5r8t\n";
    CHECK_OK(sh_file_write(path, spaced, sizeof(spaced) - 1, &err), err);
    CHECK_FAILS(sh_http_keys_add_file(keys, path, &err), err, "line 2");
    static const char *const none[] = {"", "[]", "# later\n"};
    for (size_t i = 0; i < SH_COUNT_OF(none); i++) {
        CHECK_OK(sh_file_write(path, none[i], strlen(none[i]), &err), err);
        CHECK_FAILS(sh_http_keys_add_file(keys, path, &err), err, "no key in it");
    }
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

static sh_status object_add(sh_http_keys *keys, const char *json, sh_err *err)
{
    cJSON *object = NULL;
    CHECK_OK(sh_json_parse(sh_str_of(json), "test", &object, err), *err);
    sh_status status = sh_http_keys_add_object(keys, object, err);
    cJSON_Delete(object);
    return status;
}

#define ALICE "{\"name\":\"alice\",\"key\":\"sk-a-4fZq81Lx0p2s\""

TEST(a_key_may_have_a_name_and_limits)
{
    UNUSED_STATE;
    sh_err err;
    sh_http_keys *keys = sh_http_keys_create();
    CHECK_OK(object_add(keys,
                        ALICE ",\"requests_per_minute\":60,\"tokens_per_minute\":1000,"
                              "\"models\":[\"a\",\"b\"],\"expires\":\"2026-12-31\",\"admin\":true}",
                        &err),
             err);
    /* sha256sum of sk-b-7hWm29Kc5r8t */
    CHECK_OK(object_add(keys,
                        "{\"name\":\"bob\",\"expires\":\"2027-01-01T00:00:01Z\",\"sha256\":"
                        "\"8c6eb7de4b2da5c7ef10befddf10e725b8b38ad0a5f59d23a7f554a73f23f518\"}",
                        &err),
             err);
    const sh_http_key_info *alice = sh_http_keys_find(keys, SH_STR("sk-a-4fZq81Lx0p2s"));
    const sh_http_key_info *bob = sh_http_keys_find(keys, SH_STR("sk-b-7hWm29Kc5r8t"));
    assert_non_null(alice);
    assert_non_null(bob);
    assert_string_equal(alice->name, "alice");
    assert_int_equal(alice->requests_per_minute, 60);
    assert_int_equal(alice->tokens_per_minute, 1000);
    assert_int_equal(alice->model_count, 2);
    assert_string_equal(alice->models[1], "b");
    assert_int_equal(alice->expires_s, 1798761600); /* the end of that day */
    assert_true(alice->admin);
    assert_false(bob->admin);
    assert_int_equal(bob->expires_s, 1798761601);
    assert_int_equal(bob->requests_per_minute, 0);
    assert_ptr_equal(sh_http_keys_named(keys, "bob"), bob);
    assert_null(sh_http_keys_named(keys, "carol"));
    assert_null(sh_http_keys_named(keys, ""));
    sh_http_keys_free(keys);
}

TEST(an_object_that_is_not_understood_is_refused)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"3", "must be an object"},
        {"{\"key\":\"sk-a-4fZq81Lx0p2s\"}", "'name' is missing"},
        {"{\"name\":\"alice\"}", "one of 'key' and 'sha256'"},
        {ALICE ",\"sha256\":\"00\"}", "one of 'key' and 'sha256'"},
        {"{\"name\":\"a b\",\"key\":\"sk-a-4fZq81Lx0p2s\"}", "'name' must be"},
        {"{\"name\":\"a\",\"key\":\"short\"}", "guess"},
        {"{\"name\":\"a\",\"key\":7}", "'key' must be"},
        {"{\"name\":\"a\",\"sha256\":\"00\"}", "64 hexadecimal digits"},
        {ALICE ",\"request_per_minute\":1}", "no member request_per_minute"},
        {ALICE ",\"requests_per_minute\":0}", "'requests_per_minute' must be"},
        {ALICE ",\"requests_per_minute\":1.5}", "'requests_per_minute' must be"},
        {ALICE ",\"tokens_per_minute\":\"1\"}", "'tokens_per_minute' must be"},
        {ALICE ",\"admin\":1}", "'admin' must be"},
        {ALICE ",\"models\":[]}", "'models' must be"},
        {ALICE ",\"models\":[1]}", "'models' must be"},
        {ALICE ",\"expires\":\"tomorrow\"}", "'expires' must be"},
        {ALICE ",\"expires\":\"2026-02-30\"}", "'expires' must be"},
        {ALICE ",\"expires\":\"2026-12-31T25:00:00Z\"}", "'expires' must be"},
        {ALICE ",\"expires\":\"2026-12-31T18:00:00\"}", "'expires' must be"},
        {ALICE ",\"expires\":1798761600}", "'expires' must be"},
        {ALICE ",\"name\":\"bob\"}", "name is given twice"},
        {"{\"sk-a-4fZq81Lx0p2s\":\"alice\"}", "may be a key"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err;
        sh_http_keys *keys = sh_http_keys_create();
        CHECK_FAILS(object_add(keys, cases[i].json, &err), err, cases[i].says);
        assert_int_equal(sh_http_keys_count(keys), 0);
        assert_null(strstr(err.text, "4fZq81Lx0p2s"));
        sh_http_keys_free(keys);
    }
}

TEST(a_file_may_have_objects_in_lines_or_in_a_list)
{
    UNUSED_STATE;
    sh_err err;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"# ours\nsk-c-9kPq35Nv1w7z\n" ALICE "}\n", NULL},
        {" [" ALICE "},\n{\"name\":\"bob\",\"key\":\"sk-c-9kPq35Nv1w7z\"}]\n", NULL},
        {ALICE "}\n" ALICE "}\n", "line 2: two API keys have the name 'alice'"},
        {"[" ALICE "}," ALICE "}]", "key 2: two API keys"},
        {ALICE "\n}\n", "line 1"},
        {"[" ALICE "}", "JSON"},
    };
    char path[] = "/tmp/shoal-keys-XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_http_keys *keys = sh_http_keys_create();
        CHECK_OK(sh_file_write(path, cases[i].text, strlen(cases[i].text), &err), err);
        sh_status status = sh_http_keys_add_file(keys, path, &err);
        if (cases[i].says == NULL) {
            CHECK_OK(status, err);
            assert_int_equal(sh_http_keys_count(keys), 2);
            const sh_http_key_info *plain = sh_http_keys_find(keys, SH_STR("sk-c-9kPq35Nv1w7z"));
            assert_non_null(plain);
            assert_int_equal(plain->admin, plain->name[0] == '\0');
        } else {
            CHECK_FAILS(status, err, path);
            if (strcmp(cases[i].says, "JSON") != 0)
                assert_non_null(strstr(err.text, cases[i].says));
            assert_null(strstr(err.text, "4fZq81Lx0p2s"));
        }
        sh_http_keys_free(keys);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_for_its_keys_alone),
        cmocka_unit_test(reads_a_file_with_comments),
        cmocka_unit_test(refuses_keys_that_no_header_can_carry),
        cmocka_unit_test(refuses_keys_that_anybody_could_guess),
        cmocka_unit_test(a_key_may_have_a_name_and_limits),
        cmocka_unit_test(an_object_that_is_not_understood_is_refused),
        cmocka_unit_test(a_file_may_have_objects_in_lines_or_in_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
