#include "base/status.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line that a terminal can show: no control characters, no half character at the end. */
static void text_clean(char *text)
{
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    size_t len = strlen(text);
    size_t valid = sh_utf8_valid_prefix(text, len);
    while (valid < len) {
        /* Only a cut at the end is taken off; bytes that were never UTF-8 become '?'. */
        if (len == SH_ERR_TEXT_MAX - 1 && len - valid < 4) {
            text[valid] = '\0';
            return;
        }
        text[valid] = '?';
        valid += 1 + sh_utf8_valid_prefix(text + valid + 1, len - valid - 1);
    }
}

sh_status sh_err_set(sh_err *err, sh_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    text_clean(err->text);
    err->status = status;
    return status;
}

sh_status sh_err_sys(sh_err *err, const char *fmt, ...)
{
    int code = errno;
    char what[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return sh_err_set(err, SH_ERR_SYSTEM, "%s: %s", what, strerror(code));
}

sh_status sh_err_prefix(sh_err *err, const char *fmt, ...)
{
    char rest[SH_ERR_TEXT_MAX], prefix[SH_ERR_TEXT_MAX];
    memcpy(rest, err->text, sizeof(rest));
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof(prefix), fmt, args);
    va_end(args);
    return sh_err_set(err, err->status, "%s: %s", prefix, rest);
}

const char *sh_status_name(sh_status status)
{
    switch (status) {
    case SH_AGAIN: return "again";
    case SH_OK: return "ok";
    case SH_ERR_INPUT: return "input";
    case SH_ERR_LIMIT: return "limit";
    case SH_ERR_NOT_FOUND: return "not-found";
    case SH_ERR_UNSUPPORTED: return "unsupported";
    case SH_ERR_CANCELLED: return "cancelled";
    case SH_ERR_TIMEOUT: return "timeout";
    case SH_ERR_AUTH: return "auth";
    case SH_ERR_PEER: return "peer";
    case SH_ERR_GROUP: return "group";
    case SH_ERR_MEMORY: return "memory";
    case SH_ERR_SYSTEM: return "system";
    }
    return "unknown";
}

void sh_assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "shoal: bug: %s does not hold at %s:%d\n", expr, file, line);
    abort();
}
