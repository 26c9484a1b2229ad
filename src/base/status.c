/* Error texts quote file names, requests and what peers sent, so they are sanitized here, in the
 * one place that all of them pass: log files, terminals and JSON replies can then use them as they
 * are. */
#include "base/status.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes it one printable line: no control characters, no truncated character at the end. */
static void text_clean(char *text)
{
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    size_t len = strlen(text);
    size_t valid = sh_utf8_valid_prefix(text, len);
    while (valid < len) {
        /* A character that vsnprintf cut at the end of the buffer is dropped; bytes that never were
         * UTF-8 become '?'. */
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
    int code = errno; /* before anything below can change it */
    char what[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return sh_err_set(err, SH_ERR_SYSTEM, "%s: %s", what, strerror(code));
}

/* Works on a copy, since the new text is formatted into the buffer of the old one. */
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
    case SH_ERR_CONFLICT: return "conflict";
    }
    return "unknown";
}

void sh_assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "shoal: bug: assertion '%s' failed at %s:%d\n", expr, file, line);
    abort();
}
