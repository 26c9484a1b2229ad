#include "base/status.h"
#include "http/router.h"

#include "test.h"

static const sh_http_route routes[] = {
    {.method = SH_HTTP_GET, .path = "/"},
    {.method = SH_HTTP_GET, .path = "/v1/models"},
    {.method = SH_HTTP_GET, .path = "/v1/models/{id}/files"},
    {.method = SH_HTTP_GET, .path = "/v1/models/{id}"},
    {.method = SH_HTTP_POST, .path = "/v1/chat/completions"},
    {.method = SH_HTTP_DELETE, .path = "/v1/models/{id}"},
};

static sh_http_match find(sh_http_method method, const char *path)
{
    return sh_http_route_find(routes, SH_COUNT_OF(routes), method, sh_str_of(path));
}

TEST(finds_fixed_paths_with_or_without_a_closing_slash)
{
    UNUSED_STATE;
    assert_ptr_equal(find(SH_HTTP_GET, "/").route, &routes[0]);
    assert_ptr_equal(find(SH_HTTP_GET, "/v1/models").route, &routes[1]);
    assert_ptr_equal(find(SH_HTTP_GET, "/v1/models/").route, &routes[1]);
    assert_null(find(SH_HTTP_GET, "/v1/modelsx").route);
    assert_null(find(SH_HTTP_GET, "/V1/models").route);
}

TEST(gives_a_parameter_all_that_follows)
{
    UNUSED_STATE;
    sh_http_match match = find(SH_HTTP_GET, "/v1/models/org/name%20x");
    assert_ptr_equal(match.route, &routes[3]);
    assert_true(sh_str_is(match.param, "org/name%20x"));
    assert_ptr_equal(find(SH_HTTP_DELETE, "/v1/models/a").route, &routes[5]);
}

TEST(gives_a_parameter_what_is_in_between)
{
    UNUSED_STATE;
    sh_http_match match = find(SH_HTTP_GET, "/v1/models/org/name/files");
    assert_ptr_equal(match.route, &routes[2]);
    assert_true(sh_str_is(match.param, "org/name"));
    match = find(SH_HTTP_GET, "/v1/models/files");
    assert_ptr_equal(match.route, &routes[3]);
    assert_true(sh_str_is(match.param, "files"));
    assert_ptr_equal(find(SH_HTTP_DELETE, "/v1/models/a/files").route, &routes[5]);
}

TEST(serves_head_where_get_is_served)
{
    UNUSED_STATE;
    assert_ptr_equal(find(SH_HTTP_HEAD, "/v1/models").route, &routes[1]);
    assert_null(find(SH_HTTP_HEAD, "/v1/chat/completions").route);
}

TEST(tells_a_wrong_method_from_a_wrong_path)
{
    UNUSED_STATE;
    assert_true(find(SH_HTTP_GET, "/v1/chat/completions").path_known);
    assert_false(find(SH_HTTP_GET, "/v1/chat").path_known);
    sh_buf methods = {0};
    sh_http_route_methods(routes, SH_COUNT_OF(routes), sh_str_of("/v1/models/x"), &methods);
    assert_string_equal(methods.ptr, "GET, HEAD, DELETE, OPTIONS");
    sh_buf_reset(&methods);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_fixed_paths_with_or_without_a_closing_slash),
        cmocka_unit_test(gives_a_parameter_all_that_follows),
        cmocka_unit_test(gives_a_parameter_what_is_in_between),
        cmocka_unit_test(serves_head_where_get_is_served),
        cmocka_unit_test(tells_a_wrong_method_from_a_wrong_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
