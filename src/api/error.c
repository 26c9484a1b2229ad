/* A table maps status codes of lower layers to kinds of errors and codes. Clients compare the
 * codes, so they must not change. */
#include "api/error.h"

#include <stdio.h>

bool sh_api_fail(sh_api_error *err, int status, const char *code, const char *param,
                 const char *fmt, ...)
{
    /* sh_err_set takes care of control characters and of a UTF-8 character cut at the end. */
    sh_err text;
    char line[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    sh_err_set(&text, SH_ERR_INPUT, "%s", line);
    *err = (sh_api_error){.status = status, .code = code};
    snprintf(err->message, sizeof(err->message), "%s", text.text);
    snprintf(err->param, sizeof(err->param), "%s", param == NULL ? "" : param);
    return false;
}

/* SH_ERR_LIMIT means a limit on the request itself, or a full queue that will have space again:
 * `retry` tells them apart. Rows are tried in order. Other temporary errors, such as a lost rank or
 * an engine that stops, have a code of their own. */
static const struct {
    sh_status status;
    bool retry;
    int http;
    const char *code;
} meanings[] = {
    {SH_ERR_LIMIT, true, 429, "queue_full"},
    {SH_ERR_LIMIT, false, 400, "limit_exceeded"},
    {SH_ERR_INPUT, false, 400, "invalid_value"},
    {SH_ERR_NOT_FOUND, false, 404, "not_found"},
    {SH_ERR_UNSUPPORTED, false, 400, "unsupported"},
    {SH_ERR_CANCELLED, false, 503, "engine_stopping"},
    {SH_ERR_TIMEOUT, false, 504, "timeout"},
    {SH_ERR_PEER, false, 503, "engine_unavailable"},
    {SH_ERR_GROUP, false, 503, "rank_lost"},
    {SH_ERR_MEMORY, false, 507, "out_of_memory"},
    {SH_ERR_CONFLICT, false, 422, "idempotency_key_reused"},
};

sh_api_error sh_api_error_of(const sh_err *err, bool retry)
{
    sh_api_error out;
    int http = 500;
    const char *code = "internal_error";
    for (size_t i = 0; i < SH_COUNT_OF(meanings); i++) {
        if (meanings[i].status != err->status || (meanings[i].retry && !retry)) continue;
        http = meanings[i].http;
        code = meanings[i].code;
        break;
    }
    sh_api_fail(&out, http, code, NULL, "%s", err->text);
    if (http == 429 || http == 503) out.retry_after_s = 1;
    return out;
}
