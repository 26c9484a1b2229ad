/* origin.h - which names and which web pages a server without keys answers to.
 *
 * A browser lets any page send requests to any address, this machine's included. Two headers, which
 * pages cannot forge, tell: Origin names the page, Host the name under which the server was
 * reached. The name matters because a page can let its own DNS point here, and is then of one
 * origin with us.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_ORIGIN_H
#define SH_HTTP_ORIGIN_H

#include "base/str.h"

#include <stdbool.h>

/* Whether the value of a Host header can be this machine's: a number, localhost or a name under it,
 * `own` (the address listened on), `machine` (its host name, also with .local), or one of `allowed`
 * (names by commas; ".name" stands for all under it). No header at all is fine: that is no browser.
 * Any of the texts may be NULL. */
bool sh_http_host_is_ours(sh_str host, const char *own, const char *machine, const char *allowed);

/* Whether a page of this Origin may ask a server that was reached as `host`: it came from there
 * itself, or is one of `cors` (origins by commas, "*" for any; may be NULL). */
bool sh_http_origin_is_ours(sh_str origin, sh_str host, const char *cors);

#endif
