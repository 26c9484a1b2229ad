/* status.h - error handling.
 *
 * Operating errors (a bad file, a lost peer, a rejected request) are returned as sh_status. A
 * function that deals with the outside world also takes an sh_err, never NULL; the first one that
 * knows what went wrong writes one line into it, and callers pass it on without logging it again.
 * Bugs are caught by SH_ASSERT, which stays on in release builds and must never depend on input.
 *
 * Threads: an sh_err belongs to its caller; the functions here keep no state. */
#ifndef SH_BASE_STATUS_H
#define SH_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/* Errors are ordered by how much they affect: a request, a peer, the group, the process. */
typedef enum {
    SH_AGAIN = 1, /* not an error: nothing to do now, call again */
    SH_OK = 0,
    SH_ERR_INPUT = -1,     /* a file, flag or request is invalid */
    SH_ERR_LIMIT = -2,     /* a limit was exceeded: size, depth, steps, capacity */
    SH_ERR_NOT_FOUND = -3, /* the named thing does not exist */
    SH_ERR_UNSUPPORTED = -4,
    SH_ERR_CANCELLED = -5,
    SH_ERR_TIMEOUT = -6,
    SH_ERR_AUTH = -7,
    SH_ERR_PEER = -8,  /* one peer is lost */
    SH_ERR_GROUP = -9, /* the group of ranks cannot continue */
    SH_ERR_MEMORY = -10,
    SH_ERR_SYSTEM = -11,   /* the operating system refused */
    SH_ERR_CONFLICT = -12, /* somebody else has it */
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

/* Sets status and text and returns the status, for `return sh_err_set(...)`. Control characters and
 * invalid UTF-8 become '?', and a text that is too long is cut between characters. */
sh_status sh_err_set(sh_err *err, sh_status status, const char *fmt, ...) SH_PRINTF(3, 4);

/* The same with ": <strerror(errno)>" appended and status SH_ERR_SYSTEM. */
sh_status sh_err_sys(sh_err *err, const char *fmt, ...) SH_PRINTF(2, 3);

/* Prepends "<prefix>: " to the existing text and returns the unchanged status. For callers that
 * know the context (such as a file name) that the callee did not. */
sh_status sh_err_prefix(sh_err *err, const char *fmt, ...) SH_PRINTF(2, 3);

/* A short name for logs and JSON, such as "input" or "timeout". */
const char *sh_status_name(sh_status status);

/* Reports a broken invariant on stderr and aborts. */
void sh_assert_failed(const char *expr, const char *file, int line) SH_NORETURN;

#define SH_ASSERT(expr) ((expr) ? (void)0 : sh_assert_failed(#expr, __FILE__, __LINE__))
#define SH_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
