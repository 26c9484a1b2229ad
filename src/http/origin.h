/* origin.h - which host names and which web pages a server without keys accepts.
 *
 * A browser lets any page send requests to any address, including this machine. Two headers that
 * pages cannot forge protect against that: Origin names the page, Host the name under which the
 * server was reached. The name matters because the owner of a page can point its own DNS name here,
 * and the browser then considers both the same origin (DNS rebinding).
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_ORIGIN_H
#define SH_HTTP_ORIGIN_H

#include "base/str.h"

#include <stdbool.h>

/* Whether a Host header can refer to this machine: a numeric address, localhost or a name under it,
 * `own` (the address we listen on), `machine` (the host name, also with .local), or one of
 * `allowed` (comma-separated names; ".name" includes all names under it). No header at all is fine:
 * browsers always send one. Any of the texts may be NULL. */
bool sh_http_host_is_ours(sh_str host, const char *own, const char *machine, const char *allowed);

/* Whether a page of this Origin may use a server that was reached as `host`: it was loaded from
 * there, or is one of `cors` (comma-separated origins, "*" for any; may be NULL). */
bool sh_http_origin_is_ours(sh_str origin, sh_str host, const char *cors);

#endif
