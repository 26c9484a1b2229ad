/* Names of models, revisions and files; lines of the hub's answers. */
#include "store/hub.h"
#include "store/repo_name.h"

#include "test.h"

TEST(a_name_may_have_a_revision)
{
    UNUSED_STATE;
    sh_repo_name name;
    assert_true(sh_repo_name_parse("org/a-model_1.5", &name));
    assert_string_equal(name.id, "org/a-model_1.5");
    assert_string_equal(name.revision, "main");
    assert_true(sh_repo_name_is_full(&name));
    assert_true(sh_repo_name_parse("org/x@refs/pr/12", &name));
    assert_string_equal(name.id, "org/x");
    assert_string_equal(name.revision, "refs/pr/12");
    assert_true(sh_repo_name_parse("solo", &name));
    assert_false(sh_repo_name_is_full(&name));
}

TEST(what_could_leave_a_folder_is_no_name)
{
    UNUSED_STATE;
    static const char *const names[] = {
        "",         "/",      "org/",     "/name",        "a/b/c",     ".",      "..",
        "../x",     "org/..", "org/.x",   "a..b/c",       "org/a b",   "a\\b",   "org/x@",
        "org/x@..", "@main",  "org/x@/a", "org/x@a/../b", "org/x@a@b", "org/\n", "~/x",
    };
    sh_repo_name name;
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (sh_repo_name_parse(names[i], &name)) fail_msg("'%s' is taken as a name", names[i]);
    char text[400] = {0};
    memset(text, 'a', sizeof(text) - 1);
    assert_false(sh_repo_name_parse(text, &name));
}

TEST(files_have_plain_relative_names)
{
    UNUSED_STATE;
    static const char *const good[] = {"config.json", "a/b.jinja", "model 1.safetensors",
                                       "模型.safetensors"};
    static const char *const bad[] = {"",     "/a",   "a/",   "a//b",  "../a", "a/../b",   ".a",
                                      "a/.b", "a\\b", "a\nb", "a\x7f", "\xff", "a/b/c/d/e"};
    for (size_t i = 0; i < SH_COUNT_OF(good); i++) assert_true(sh_file_name_is_safe(good[i]));
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++)
        if (sh_file_name_is_safe(bad[i])) fail_msg("'%s' is taken as a file", bad[i]);
}

static sh_hub_reply reply;

static const sh_hub_reply *header(const char *line)
{
    free(reply.location);
    reply = (sh_hub_reply){.retry_after = -1, .range_first = -1, .range_total = -1};
    sh_hub_header(&reply, sh_str_of(line));
    return &reply;
}

TEST(headers_are_read)
{
    UNUSED_STATE;
    assert_string_equal(header("ETag: \"abc\"")->etag, "abc");
    assert_string_equal(header("etag:W/\"abc\"")->etag, "abc");
    assert_string_equal(header("X-Error-Code: GatedRepo")->error_code, "GatedRepo");
    assert_string_equal(header("x-repo-commit:  123 ")->commit, "123");
    assert_string_equal(header("Location: /a b?c")->location, "/a b?c");
    assert_int_equal(header("Retry-After: 17")->retry_after, 17);
    assert_int_equal(header("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT")->retry_after, 0);
    assert_int_equal(header("Retry-After: -5")->retry_after, -1);
    assert_int_equal(header("Retry-After: soon")->retry_after, -1);
    assert_int_equal(header("Content-Range: bytes 10-19/100")->range_first, 10);
    assert_int_equal(reply.range_total, 100);
}

TEST(a_linked_etag_wins_over_the_plain_one)
{
    UNUSED_STATE;
    header("ETag: \"other\"");
    sh_hub_header(&reply, SH_STR("X-Linked-Etag: \"digest\""));
    assert_string_equal(reply.etag, "digest");
    header("X-Linked-Etag: \"digest\"");
    sh_hub_header(&reply, SH_STR("ETag: \"other\""));
    assert_string_equal(reply.etag, "digest");
}

TEST(odd_headers_change_nothing)
{
    UNUSED_STATE;
    static const char *const lines[] = {
        "",
        ":",
        "Content-Range",
        "Content-Range: bytes */100",
        "Content-Range: bytes 5-4/100",
        "Content-Range: bytes 0-100/100",
        "Content-Range: bytes 0-9/*",
        "Content-Range: lines 0-9/10",
        "Content-Range: bytes 99999999999999999999-1/2",
    };
    for (size_t i = 0; i < SH_COUNT_OF(lines); i++) {
        assert_int_equal(header(lines[i])->range_first, -1);
        assert_int_equal(reply.range_total, -1);
    }
    char line[600] = "X-Repo-Commit: ";
    memset(line + strlen(line), 'a', 500);
    assert_int_equal(strlen(header(line)->commit), sizeof(reply.commit) - 1);
    header("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_may_have_a_revision),
        cmocka_unit_test(what_could_leave_a_folder_is_no_name),
        cmocka_unit_test(files_have_plain_relative_names),
        cmocka_unit_test(headers_are_read),
        cmocka_unit_test(a_linked_etag_wins_over_the_plain_one),
        cmocka_unit_test(odd_headers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
