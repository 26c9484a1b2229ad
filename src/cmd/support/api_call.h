/* api_call.h - one HTTP request to a running API.
 *
 * Threads: calls are independent. */
#ifndef SH_CMD_SUPPORT_API_CALL_H
#define SH_CMD_SUPPORT_API_CALL_H

#include "base/buf.h"
#include "base/status.h"
#include "cmd/support/settings.h"
#include "http/http_client.h"

#include <stdint.h>

/* The address of a path, owned by the caller; `base` as below, it may end with slashes. */
char *sh_api_url(const sh_settings *s, const char *base, const char *path);

/* base: "http://host:port"; NULL: the API described by the settings (--host, --port, --tls-cert).
 * Sends the first API key of the settings. body: JSON to POST; NULL: GET. An answer with any HTTP
 * status is SH_OK. */
SH_MUST_CHECK sh_status sh_api_call(const sh_settings *s, const char *base, const char *path,
                                    const char *body, int64_t wait_ms, int *code, sh_buf *out,
                                    sh_err *err);

/* The same with all options of the HTTP client; key and trust are filled in from the settings. */
SH_MUST_CHECK sh_status sh_api_call_with(const sh_settings *s, const char *base, const char *path,
                                         sh_http_get_opts opts, int *code, sh_buf *out,
                                         sh_err *err);

#endif
