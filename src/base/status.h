/* status.h - how a function says that it failed.
 *
 * Operating failures (a bad file, a lost peer, a refused request) are returned as
 * sh_status. A function that talks to the world also takes an sh_err, never NULL, and the
 * first that knows what went wrong writes one line into it; callers pass it on and do not
 * log it again. Bugs are SH_ASSERT, which stays on in release builds and never looks at
 * input.
 *
 * Threads: an sh_err belongs to its caller; the functions here keep no state. */
#ifndef SH_BASE_STATUS_H
#define SH_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/* Errors are ordered by the largest thing that they ruin. */
typedef enum {
    SH_AGAIN = 1, /* not an error: nothing to do now, call again */
    SH_OK = 0,
    SH_ERR_INPUT = -1,     /* a file, flag or request is not what it must be */
    SH_ERR_LIMIT = -2,     /* a bound was hit: size, depth, steps, room */
    SH_ERR_NOT_FOUND = -3, /* the named thing does not exist */
    SH_ERR_UNSUPPORTED = -4,
    SH_ERR_CANCELLED = -5,
    SH_ERR_TIMEOUT = -6,
    SH_ERR_AUTH = -7,
    SH_ERR_PEER = -8,  /* one peer is lost */
    SH_ERR_GROUP = -9, /* the group of ranks can not go on */
    SH_ERR_MEMORY = -10,
    SH_ERR_SYSTEM = -11, /* the operating system refused */
} sh_status;

enum { SH_ERR_TEXT_MAX = 512 };

typedef struct {
    sh_status status;
    char text[SH_ERR_TEXT_MAX]; /* one line, no newline, valid UTF-8 */
} sh_err;

#if defined(__GNUC__)
#define SH_MUST_CHECK __attribute__((warn_unused_result))
#define SH_PRINTF(fmt_idx, arg_idx) __attribute__((format(printf, fmt_idx, arg_idx)))
#define SH_NORETURN __attribute__((noreturn))
#else
#define SH_MUST_CHECK
#define SH_PRINTF(fmt_idx, arg_idx)
#define SH_NORETURN
#endif

/* Writes status and text and returns the status, so that `return sh_err_set(...)` reads well.
 * Control characters of the text become '?', and a text that is too long is cut at a character. */
sh_status sh_err_set(sh_err *err, sh_status status, const char *fmt, ...) SH_PRINTF(3, 4);

/* The same with ": <strerror(errno)>" behind it and status SH_ERR_SYSTEM. */
sh_status sh_err_sys(sh_err *err, const char *fmt, ...) SH_PRINTF(2, 3);

/* Puts "<prefix>: " in front of a text that is there already; the status stays. For callers that
 * know the place (a file's name) where the callee knew only the fault. Returns the status. */
sh_status sh_err_prefix(sh_err *err, const char *fmt, ...) SH_PRINTF(2, 3);

/* A short name for logs and JSON, such as "input" or "timeout". */
const char *sh_status_name(sh_status status);

/* Reports a broken invariant on stderr and aborts. */
void sh_assert_failed(const char *expr, const char *file, int line) SH_NORETURN;

#define SH_ASSERT(expr) ((expr) ? (void)0 : sh_assert_failed(#expr, __FILE__, __LINE__))
#define SH_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
