/* clock.h - time for measuring and for deadlines.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_CLOCK_H
#define SH_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of the monotonic clock; only differences are meaningful. */
int64_t sh_clock_ns(void);

/* Unix time in microseconds. */
int64_t sh_clock_unix_us(void);

/* The time at which a wait gives up, on the clock of sh_clock_ns. */
typedef int64_t sh_deadline;

#define SH_DEADLINE_NEVER INT64_MAX

sh_deadline sh_deadline_in_ms(int64_t wait_ms);
bool sh_deadline_passed(sh_deadline deadline);

/* Milliseconds left, rounded up; 0 once passed; at most INT_MAX, so that poll() can take it. */
int sh_deadline_left_ms(sh_deadline deadline);

void sh_sleep_ms(int64_t wait_ms);

#endif
