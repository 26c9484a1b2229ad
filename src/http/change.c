#include "http/change.h"

#include "http/conn.h"
#include "http/origin.h"

#include <string.h>
#include <strings.h>

/* IPv4 on a socket of IPv6 begins with "::ffff:". */
bool sh_http_peer_is_local(const char *peer)
{
    const char *mapped = "::ffff:";
    if (peer[0] == '\0' || strcmp(peer, "::1") == 0) return true;
    if (strncasecmp(peer, mapped, strlen(mapped)) == 0) peer += strlen(mapped);
    return strncmp(peer, "127.", 4) == 0;
}

static bool is_json(sh_str type)
{
    sh_str rest = type, first;
    if (!sh_str_cut(&rest, ';', &first)) return false;
    first = sh_str_trim(first);
    const sh_str json = SH_STR("application/json");
    return first.len == json.len && strncasecmp(first.ptr, json.ptr, json.len) == 0;
}

static sh_http_refusal key_check(bool keyed, bool admin)
{
    if (keyed && !admin)
        return (sh_http_refusal){403, "this API key may not change the server: its entry in the "
                                      "file of keys has no \"admin\": true"};
    return (sh_http_refusal){0, NULL};
}

sh_http_refusal sh_http_change_check(const sh_http_change *c)
{
    sh_http_refusal by_key = key_check(c->keyed, c->admin);
    if (by_key.status != 0) return by_key;
    if (!c->keyed && (!sh_http_peer_is_local(c->peer) || c->forwarded))
        return (sh_http_refusal){403, "without API keys, the server can be changed from its own "
                                      "machine only; set --api-key or --api-key-file"};
    if (!c->keyed && !c->host_is_ours)
        return (sh_http_refusal){403, "without API keys, the server can be changed under its own "
                                      "name only; add this one to --allowed-hosts"};
    if (c->origin.len > 0 && !sh_http_origin_is_ours(c->origin, c->host, NULL))
        return (sh_http_refusal){403, "of all web pages, only the server's own may change it"};
    if (c->has_body && !is_json(c->content_type))
        return (sh_http_refusal){415, "the Content-Type of a change must be application/json"};
    return (sh_http_refusal){0, NULL};
}

sh_http_refusal sh_http_change_admit_key(const sh_http_request *req)
{
    return key_check(req->key == SH_HTTP_KEY_GOOD, req->key_admin);
}

sh_http_refusal sh_http_change_admit(const sh_http_request *req)
{
    static const char *const marks[] = {"forwarded", "x-forwarded-for", "x-forwarded-host",
                                        "x-real-ip", "via"};
    const sh_http_head *head = &req->head;
    sh_http_change change = {
        .keyed = req->key == SH_HTTP_KEY_GOOD,
        .admin = req->key_admin,
        .peer = req->peer,
        .host = sh_http_head_find(head, "host"),
        .origin = sh_http_head_find(head, "origin"),
        .content_type = sh_http_head_find(head, "content-type"),
        .has_body = req->body != NULL || head->chunked || head->content_length > 0,
    };
    for (size_t i = 0; i < SH_COUNT_OF(marks); i++)
        change.forwarded = change.forwarded || sh_http_head_find(head, marks[i]).len > 0;
    if (req->conn != NULL) {
        const sh_http_server_opts *opts = sh_http_server_opts_of(req->conn->server);
        change.host_is_ours = sh_http_host_is_ours(change.host, opts->host,
                                                   sh_http_server_machine(req->conn->server),
                                                   opts->allowed_hosts);
    }
    return sh_http_change_check(&change);
}
