/* error.h - errors as clients of the API see them.
 *
 * One envelope for every client: {"error":{"message","type","code","param"},"detail":message}.
 * OpenAI's libraries read `error`, the older clients of port 8100 and 8080 read `detail`.
 *
 * Threads: pure functions. */
#ifndef SH_API_ERROR_H
#define SH_API_ERROR_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct {
    int status;        /* of HTTP */
    const char *code;  /* machine-readable, or NULL; constant */
    char param[96];    /* the field, or "" */
    int retry_after_s; /* 0: no Retry-After header */
    char message[SH_ERR_TEXT_MAX];
} sh_api_error;

/* Fills *err and returns false, to be used as `return sh_api_fail(...)`. param may be NULL. */
bool sh_api_fail(sh_api_error *err, int status, const char *code, const char *param,
                 const char *fmt, ...) SH_PRINTF(5, 6);

/* Translates an error of a lower layer. `retry`: the engine says that the same request may succeed
 * later. */
sh_api_error sh_api_error_of(const sh_err *err, bool retry);

/* The envelope, as one JSON object. */
void sh_api_error_write(const sh_api_error *err, sh_buf *out);

#endif
