/* fetch.h - one HTTP request to a server, and its answer whole: what the commands use to ask the
 * API.
 *
 * Threads: pure function; it blocks until the answer is there or the time is over. */
#ifndef SH_HTTP_FETCH_H
#define SH_HTTP_FETCH_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *host;
    int port;
    const char *path; /* "/health" */
    const char *body; /* JSON to POST; NULL: GET */
    const char *key;  /* for Authorization: Bearer; or NULL */
    bool tls;
    const char *tls_trust; /* a PEM file of certificates to trust; NULL: the system's */
    double wait_s;
} sh_fetch_opts;

enum { SH_FETCH_BODY_MAX = 64 << 20 };

/* *code is the HTTP status. An answer is SH_OK whatever its code. */
SH_MUST_CHECK sh_status sh_fetch(const sh_fetch_opts *opts, int *code, sh_buf *body, sh_err *err);

#endif
