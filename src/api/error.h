/* error.h - why a request failed, in the API's own terms.
 *
 * `status` is the kind of error, named by the HTTP status that fits best, and `code` the error
 * itself. A dialect turns them into the status, the words and the body that its clients expect.
 *
 * Threads: pure functions. */
#ifndef SH_API_ERROR_H
#define SH_API_ERROR_H

#include "base/status.h"

#include <stdbool.h>

typedef struct {
    int status;        /* the kind of error */
    const char *code;  /* machine-readable; constant */
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

#endif
