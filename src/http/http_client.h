/* http_client.h - one request to a server, and its answer.
 *
 * For tools that look at a running server or talk to it; it blocks until the answer is there or the
 * time is over.
 *
 * Threads: each call stands alone. */
#ifndef SH_HTTP_HTTP_CLIENT_H
#define SH_HTTP_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { SH_HTTP_HOST_MAX = 256 };

typedef struct {
    const char *key;   /* sent as a bearer token; or NULL */
    const char *trust; /* certificates in PEM that HTTPS may also rest on; or NULL */
    bool pinned;       /* `trust` is the server's own certificate, whatever name it has */
    const char *body;  /* JSON to POST; NULL: GET */
    int64_t wait_ms;   /* without a byte; 0: 5000 */

    /* If not NULL: gets the body of a 200 as it comes, in place of the buffer. False: it has
     * enough, and the answer counts as whole. */
    bool (*data)(void *ctx, sh_str bytes);
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: give up, SH_ERR_CANCELLED; or NULL */
} sh_http_get_opts;

/* url: "http://host:port/path?query", or https. *code is the HTTP status, the body is added to
 * `body` (at most 16 MiB). A whole answer of any status is SH_OK; one that stops in the middle is
 * SH_ERR_PEER. */
SH_MUST_CHECK sh_status sh_http_get(const char *url, const sh_http_get_opts *opts, int *code,
                                    sh_buf *body, sh_err *err);

/* "http://host:port/path", with brackets where the host is an IPv6 address; the caller frees it. */
char *sh_http_url(bool tls, const char *host, int port, const char *path);

/* The host of a parsed URL as sockets and certificates know it: "::1" for "[::1]". */
void sh_http_bare_host(const char *host, char out[SH_HTTP_HOST_MAX]);

#endif
