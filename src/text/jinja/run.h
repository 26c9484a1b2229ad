/* run.h - one parse or one rendering: its memory, its limits, its error handling.
 *
 * All memory of a run comes from one arena, and text under construction from one buffer used as a
 * stack, so an error needs no cleanup on its way: it is a longjmp to the entry point in template.c,
 * which frees both. Code that works on untrusted input must account for it: sh_jrun_charge() in
 * proportion to the work, sh_jrun_enter() around everything that nests.
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_RUN_H
#define SH_TEXT_JINJA_RUN_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "text/jinja/value.h"

#include <setjmp.h>

/* Slots of one activation of a function (the template, a macro, a recursive loop). */
struct sh_jframe {
    sh_jframe *up; /* of the enclosing function in the source */
    sh_jv slots[];
};

struct sh_jrun {
    sh_arena arena;
    size_t memory_max;
    sh_buf *out;
    size_t out_max;
    int64_t steps_left;     /* in addition to steps_to_clock */
    int64_t steps_to_clock; /* until the clock is read again; starts at 0 */
    sh_deadline deadline;
    int depth;
    int depth_max;
    int line;    /* being executed, for errors */
    bool raised; /* the error comes from the template, by raise_exception */
    int64_t now_us;
    const sh_jdict *vars; /* the caller's variables */
    sh_jframe *frame;     /* of the running function */
    sh_err *err;
    jmp_buf fail;
};

/* Ends the run with "line N: <text>". */
SH_NORETURN void sh_jrun_fail(sh_jrun *run, sh_status status, const char *fmt, ...) SH_PRINTF(3, 4);

/* The same for errors that Python raises as TypeError, ValueError and so on: SH_ERR_INPUT. */
#define sh_jrun_error(run, ...) sh_jrun_fail(run, SH_ERR_INPUT, __VA_ARGS__)

/* Ends the run with the error for the use of an undefined value. */
SH_NORETURN void sh_jrun_undefined(sh_jrun *run, sh_jv v);

/* Zeroed memory, counted against the run's limit. */
void *sh_jrun_alloc(sh_jrun *run, size_t size);
void *sh_jrun_array(sh_jrun *run, size_t count, size_t size);

void sh_jrun_charge_slow(sh_jrun *run);

static inline void sh_jrun_charge(sh_jrun *run, size_t steps)
{
    run->steps_to_clock -= (int64_t)steps;
    if (run->steps_to_clock < 0) sh_jrun_charge_slow(run);
}

void sh_jrun_too_deep(sh_jrun *run) SH_NORETURN;

static inline void sh_jrun_enter(sh_jrun *run)
{
    if (++run->depth > run->depth_max) sh_jrun_too_deep(run);
    sh_jrun_charge(run, 1);
}

static inline void sh_jrun_leave(sh_jrun *run)
{
    run->depth--;
}

/* Text values are built on top of the output: mark, put, take. Taking removes the text from the
 * buffer. */
static inline size_t sh_jrun_mark(const sh_jrun *run)
{
    return run->out->len;
}

void sh_jrun_put(sh_jrun *run, sh_str text);
void sh_jrun_put_char(sh_jrun *run, uint32_t code);
void sh_jrun_putf(sh_jrun *run, const char *fmt, ...) SH_PRINTF(2, 3);
void sh_jrun_pad(sh_jrun *run, sh_str fill, size_t count);
const sh_jstr *sh_jrun_take(sh_jrun *run, size_t mark);

#define SH_JRUN_PUT(run, literal) sh_jrun_put(run, SH_STR(literal))

#endif
