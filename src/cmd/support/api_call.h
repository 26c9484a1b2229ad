/* api_call.h - one question to a running API.
 *
 * Threads: each call stands alone. */
#ifndef SH_CMD_SUPPORT_API_CALL_H
#define SH_CMD_SUPPORT_API_CALL_H

#include "base/buf.h"
#include "base/status.h"
#include "cmd/support/settings.h"
#include "http/http_client.h"

#include <stdint.h>

/* base: "http://host:port"; NULL: the API that the settings describe (--host, --port, --tls-cert).
 * The first of the settings' keys is shown. body: JSON to POST; NULL: GET. An answer of any status
 * is SH_OK. */
SH_MUST_CHECK sh_status sh_api_call(const sh_settings *s, const char *base, const char *path,
                                    const char *body, int64_t wait_ms, int *code, sh_buf *out,
                                    sh_err *err);

/* The same with all that the client can do; key and trust of opts come from the settings. */
SH_MUST_CHECK sh_status sh_api_call_with(const sh_settings *s, const char *base, const char *path,
                                         sh_http_get_opts opts, int *code, sh_buf *out,
                                         sh_err *err);

#endif
