/* http_client.h - one HTTP request and its answer.
 *
 * For commands that query a running server or chat with it; blocks until the answer is complete or
 * the timeout expires.
 *
 * Threads: calls are independent of each other. */
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
    const char *trust; /* PEM file of certificates to trust in addition, for HTTPS; or NULL */
    bool pinned;       /* `trust` is the server's own certificate, whatever name it has */
    const char *body;  /* JSON to POST; NULL: GET */
    int64_t wait_ms;   /* timeout without receiving a byte; 0: 5000 */

    /* If not NULL: gets the body of a 200 as it arrives, instead of the buffer. Returns false when
     * it has enough; the answer then counts as complete. */
    bool (*data)(void *ctx, sh_str bytes);
    void *ctx;
    const volatile sig_atomic_t *stop; /* if it becomes nonzero: SH_ERR_CANCELLED; or NULL */
} sh_http_get_opts;

/* url: "http://host:port/path?query", or https. *code is the HTTP status; the body is appended to
 * `body` (at most 16 MiB). A complete answer of any status is SH_OK; one that breaks off is
 * SH_ERR_PEER. */
SH_MUST_CHECK sh_status sh_http_get(const char *url, const sh_http_get_opts *opts, int *code,
                                    sh_buf *body, sh_err *err);

/* "http://host:port/path", with brackets around an IPv6 host; owned by the caller. */
char *sh_http_url(bool tls, const char *host, int port, const char *path);

/* The host of a parsed URL as sockets and certificates use it: "::1" for "[::1]". */
void sh_http_bare_host(const char *host, char out[SH_HTTP_HOST_MAX]);

#endif
