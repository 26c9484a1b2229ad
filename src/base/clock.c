/* Waits are expressed as deadlines instead of durations, so that a wait which is interrupted or
 * restarted does not start counting afresh. */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

static int64_t clock_read(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t sh_clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

int64_t sh_clock_unix_us(void)
{
    return clock_read(CLOCK_REALTIME) / 1000;
}

/* A wait too long to represent is one without a limit. */
sh_deadline sh_deadline_in_ms(int64_t wait_ms)
{
    int64_t wait_ns;
    if (__builtin_mul_overflow(wait_ms, (int64_t)1000000, &wait_ns)) return SH_DEADLINE_NEVER;
    sh_deadline at;
    return __builtin_add_overflow(sh_clock_ns(), wait_ns, &at) ? SH_DEADLINE_NEVER : at;
}

bool sh_deadline_passed(sh_deadline deadline)
{
    return deadline != SH_DEADLINE_NEVER && sh_clock_ns() >= deadline;
}

int sh_deadline_left_ms(sh_deadline deadline)
{
    if (deadline == SH_DEADLINE_NEVER) return INT_MAX;
    int64_t left_ns = deadline - sh_clock_ns();
    if (left_ns <= 0) return 0;
    /* Rounded up: rounding down would make poll() return early and spin on the last millisecond. */
    int64_t left_ms = (left_ns - 1) / 1000000 + 1;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void sh_sleep_ms(int64_t wait_ms)
{
    struct timespec t = {.tv_sec = (time_t)(wait_ms / 1000),
                         .tv_nsec = (long)(wait_ms % 1000) * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) continue;
}
