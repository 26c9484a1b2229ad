/* Protection against foreign web pages and DNS rebinding, by comparing names only: nothing is
 * resolved, since the attacker controls what DNS answers. */
#include "http/origin.h"

#include "http/head.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool same(sh_str a, sh_str b)
{
    return a.len == b.len && strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

static bool ends_with(sh_str text, sh_str end)
{
    return text.len > end.len && same(sh_str_sub(text, text.len - end.len, end.len), end);
}

/* Strips the port and the trailing dot of a fully qualified name. */
static sh_str name_of(sh_str host)
{
    sh_str name = host;
    if (host.len > 0 && host.ptr[0] == '[') return host;
    size_t colon = sh_str_find(host, SH_STR(":"), 0);
    name.len = colon;
    if (name.len > 1 && name.ptr[name.len - 1] == '.') name.len--;
    return name;
}

/* "127.0.0.1", "[::1]", "[::1]:8100": no DNS is involved, so no page can claim it as its own name.
 */
static bool is_number(sh_str name)
{
    char text[INET6_ADDRSTRLEN + 2];
    struct in6_addr number;
    if (name.len >= sizeof(text)) return false;
    snprintf(text, sizeof(text), "%.*s", (int)name.len, name.ptr);
    if (text[0] != '[') return inet_pton(AF_INET, text, &number) == 1;
    char *end = strchr(text, ']');
    if (end == NULL || (end[1] != '\0' && end[1] != ':')) return false;
    *end = '\0';
    return inet_pton(AF_INET6, text + 1, &number) == 1;
}

static bool is_listed(sh_str name, const char *list)
{
    sh_str rest = sh_str_of(list), item;
    while (sh_str_cut(&rest, ',', &item)) {
        item = sh_str_trim(item);
        if (item.len == 0) continue;
        if (same(name, item) || (item.ptr[0] == '.' && ends_with(name, item))) return true;
    }
    return false;
}

/* The machine's host name, as it is or with the suffix of multicast DNS. */
static bool is_machine(sh_str name, const char *machine)
{
    sh_str own = sh_str_of(machine), local = SH_STR(".local");
    if (own.len == 0 || same(name, own)) return own.len > 0;
    return ends_with(name, local) && same(sh_str_sub(name, 0, name.len - local.len), own);
}

bool sh_http_host_is_ours(sh_str host, const char *own, const char *machine, const char *allowed)
{
    sh_str name = name_of(host);
    if (host.len == 0 || is_number(name)) return true;
    if (same(name, SH_STR("localhost")) || ends_with(name, SH_STR(".localhost"))) return true;
    if (own != NULL && same(name, sh_str_of(own))) return true;
    if (machine != NULL && is_machine(name, machine)) return true;
    return allowed != NULL && is_listed(name, allowed);
}

/* The scheme is not compared, so that a proxy may add TLS. "null", the origin of sandboxed pages
 * and files, has no scheme and is refused. */
bool sh_http_origin_is_ours(sh_str origin, sh_str host, const char *cors)
{
    size_t scheme = sh_str_find(origin, SH_STR("://"), 0);
    if (cors != NULL && (strcmp(cors, "*") == 0 || is_listed(origin, cors))) return true;
    if (scheme == origin.len || host.len == 0) return false;
    return same(sh_str_sub(origin, scheme + 3, origin.len), host);
}
