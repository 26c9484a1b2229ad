/* A linear search over the route table, which is short. The first match wins, so specific paths
 * must come before patterns. */
#include "http/router.h"

#include <string.h>

static bool path_matches(const char *pattern, sh_str path, sh_str *param)
{
    const char *brace = strchr(pattern, '{');
    *param = (sh_str){"", 0};
    if (brace == NULL) return sh_str_is(path, pattern);
    sh_str fixed = {pattern, (size_t)(brace - pattern)};
    sh_str after = sh_str_of(strchr(brace, '}') + 1);
    if (path.len <= fixed.len + after.len || !sh_str_starts(path, fixed) ||
        !sh_str_ends(path, after))
        return false;
    *param = sh_str_sub(path, fixed.len, path.len - fixed.len - after.len);
    return true;
}

/* A trailing slash means the same path. */
static sh_str path_plain(sh_str path)
{
    while (path.len > 1 && path.ptr[path.len - 1] == '/') path.len--;
    return path;
}

sh_http_match sh_http_route_find(const sh_http_route *routes, size_t count, sh_http_method method,
                                 sh_str path)
{
    sh_http_match match = {.param = {"", 0}};
    path = path_plain(path);
    sh_http_method served = method == SH_HTTP_HEAD ? SH_HTTP_GET : method;
    for (size_t i = 0; i < count; i++) {
        sh_str param;
        if (!path_matches(routes[i].path, path, &param)) continue;
        match.path_known = true;
        if (routes[i].method != served) continue;
        match.route = &routes[i];
        match.param = param;
        return match;
    }
    return match;
}

void sh_http_route_methods(const sh_http_route *routes, size_t count, sh_str path, sh_buf *out)
{
    path = path_plain(path);
    for (size_t i = 0; i < count; i++) {
        sh_str param;
        if (!path_matches(routes[i].path, path, &param)) continue;
        sh_buf_addf(out, "%s, ", sh_http_method_name(routes[i].method));
        if (routes[i].method == SH_HTTP_GET) sh_buf_add_text(out, "HEAD, ");
    }
    sh_buf_add_text(out, "OPTIONS");
}
