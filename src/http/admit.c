/* The order of the checks is deliberate. Host and Origin come first, so that a foreign web page
 * gets the same answer for every path. A wrong key is only noted here; the caller delays the
 * answer. */
#include "http/admit.h"

#include "base/clock.h"
#include "http/origin.h"
#include "http/router.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 200 }; /* how many bytes of a client's input an answer repeats */

static const sh_http_refusal fine = {0, NULL};

static int shown(sh_str text)
{
    return (int)(text.len < SHOWN_MAX ? text.len : SHOWN_MAX);
}

sh_http_refusal sh_http_refusal_of(sh_http_request *req, int status, const char *fmt, ...)
{
    char text[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return (sh_http_refusal){status, sh_arena_str(&req->arena, sh_str_of(text)).ptr};
}

/* The key that a request presents, or an empty string. */
static sh_str key_of(const sh_http_head *head)
{
    sh_str bearer = sh_http_head_find(head, "authorization");
    if (bearer.len > 7 && strncasecmp(bearer.ptr, "bearer ", 7) == 0)
        return sh_str_trim(sh_str_sub(bearer, 7, bearer.len));
    return sh_http_head_find(head, "x-api-key");
}

/* The name is copied, since the keys may be read again while the request is open. */
sh_http_key sh_http_key_check(sh_http_request *req, const sh_http_keys *keys)
{
    sh_str key = key_of(&req->head);
    if (keys == NULL || sh_http_keys_count(keys) == 0) return SH_HTTP_KEY_NOT_NEEDED;
    if (key.len == 0) return SH_HTTP_KEY_MISSING;
    const sh_http_key_info *info = sh_http_keys_find(keys, key);
    if (info == NULL) return SH_HTTP_KEY_WRONG;
    if (info->expires_s != 0 && sh_clock_unix_us() / 1000000 >= info->expires_s)
        return SH_HTTP_KEY_EXPIRED;
    memcpy(req->key_name, info->name, sizeof(req->key_name));
    req->key_admin = info->admin;
    return SH_HTTP_KEY_GOOD;
}

/* The hash of a key only has to tell clients apart: the key itself was verified by keys.c. */
uint64_t sh_http_client_of(const sh_http_request *req)
{
    sh_str key = key_of(&req->head);
    return req->key == SH_HTTP_KEY_GOOD ? sh_hash64(key.ptr, key.len) : req->peer_id;
}

const char *sh_http_key_name(const sh_http_request *req)
{
    return req->key_name;
}

bool sh_http_is_trusted(const sh_http_request *req)
{
    return req->key == SH_HTTP_KEY_GOOD || req->key == SH_HTTP_KEY_NOT_NEEDED;
}

/* Without keys everybody who can reach the server may use it, and any web page in a browser on this
 * machine can reach it: so refuse foreign pages, and host names that a page's own DNS may have
 * pointed here (DNS rebinding). */
static sh_http_refusal page_check(sh_http_request *req)
{
    const sh_http_server_opts *opts = sh_http_server_opts_of(req->conn->server);
    sh_str host = sh_http_head_find(&req->head, "host");
    sh_str origin = sh_http_head_find(&req->head, "origin");
    if (opts->check_host &&
        !sh_http_host_is_ours(host, opts->host, sh_http_server_machine(req->conn->server),
                              opts->allowed_hosts))
        return sh_http_refusal_of(req, 403,
                                  "this server does not answer as '%.*s'; add the name to "
                                  "--allowed-hosts, or set API keys",
                                  shown(host), host.ptr);
    if (origin.len > 0 && !sh_http_origin_is_ours(origin, host, opts->cors))
        return sh_http_refusal_of(req, 403,
                                  "web pages of '%.*s' may not use this server; --cors lists "
                                  "those that may",
                                  shown(origin), origin.ptr);
    return fine;
}

/* A compressed body would only be reported as bad JSON. */
static sh_http_refusal encoding_check(sh_http_request *req)
{
    sh_str coding = sh_http_head_find(&req->head, "content-encoding");
    bool body = req->head.chunked || req->head.content_length > 0;
    if (!body || coding.len == 0 || sh_http_list_has(coding, "identity")) return fine;
    return sh_http_refusal_of(req, 415,
                              "this server does not support the Content-Encoding '%.*s'; send the "
                              "body as it is",
                              shown(coding), coding.ptr);
}

sh_http_refusal sh_http_admit(sh_http_request *req)
{
    const sh_http_server_opts *opts = sh_http_server_opts_of(req->conn->server);
    const sh_http_head *head = &req->head;
    sh_http_match match = sh_http_route_find(opts->routes, opts->route_count, head->method,
                                             head->path);
    req->route = match.route;
    req->param = match.param;
    req->key = sh_http_key_check(req, opts->keys);
    if (req->key == SH_HTTP_KEY_NOT_NEEDED) {
        sh_http_refusal refusal = page_check(req);
        if (refusal.status != 0) return refusal;
    }
    /* Browsers send a preflight without a key. */
    if (head->method == SH_HTTP_OPTIONS && (match.path_known || sh_str_is(head->path, "*")))
        return fine;
    if (head->method == SH_HTTP_OTHER)
        return sh_http_refusal_of(req, 501, "this server does not support the method '%.*s'",
                                  shown(head->method_text), head->method_text.ptr);
    if (!match.path_known)
        return sh_http_refusal_of(req, 404, "there is no '%.*s %.*s' here; /docs lists all paths",
                                  shown(head->method_text), head->method_text.ptr,
                                  shown(head->path), head->path.ptr);
    if (match.route == NULL)
        return sh_http_refusal_of(req, 405, "'%.*s' does not support %.*s; see the Allow header",
                                  shown(head->path), head->path.ptr, shown(head->method_text),
                                  head->method_text.ptr);
    if (!match.route->open && !sh_http_is_trusted(req))
        return (sh_http_refusal){401, req->key == SH_HTTP_KEY_EXPIRED
                                          ? "this API key has expired"
                                          : "a valid API key is required: Authorization: Bearer "
                                            "<key>"};
    return encoding_check(req);
}
