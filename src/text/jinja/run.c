/* The accounting must be cheap, as it happens at every node of the tree: sh_jrun_charge() only
 * decrements a counter. The total of steps and the clock are looked at here, once in 10000 steps.
 * Copying costs a step for each 64 bytes, so a template cannot hide work in long strings. */
#include "text/jinja/run.h"

#include "text/jinja/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_PER_CLOCK = 10000, BYTES_PER_STEP = 64 };

void sh_jrun_fail(sh_jrun *run, sh_status status, const char *fmt, ...)
{
    char text[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    text[sh_utf8_valid_prefix(text, strlen(text))] = '\0'; /* vsnprintf may split a character */
    if (run->raised)
        sh_err_set(run->err, status, "%s", text);
    else
        sh_err_set(run->err, status, "line %d: %s", run->line, text);
    longjmp(run->fail, 1);
}

/* The texts are those of Jinja's Undefined. */
void sh_jrun_undefined(sh_jrun *run, sh_jv v)
{
    const sh_jundef *undef = v.u.undef;
    if (undef->hint != NULL) sh_jrun_error(run, "%.*s", (int)undef->hint->len, undef->hint->ptr);
    const sh_jstr *name = sh_jv_repr(run, undef->name);
    if (undef->obj.kind == SH_JV_MISSING)
        sh_jrun_error(run, "%.*s is undefined", (int)name->len, name->ptr);
    bool none = undef->obj.kind == SH_JV_NONE;
    const char *type = none ? "None" : sh_jv_type(undef->obj);
    const char *object = none ? "" : " object";
    if (undef->name.kind != SH_JV_STR)
        sh_jrun_error(run, "%s%s has no element %.*s", type, object, (int)name->len, name->ptr);
    sh_jrun_error(run, "'%s%s' has no attribute %.*s", type, object, (int)name->len, name->ptr);
}

void *sh_jrun_alloc(sh_jrun *run, size_t size)
{
    if (size > run->memory_max || run->arena.used > run->memory_max - size)
        sh_jrun_fail(run, SH_ERR_LIMIT, "the template needs more than %zu MiB of memory",
                     run->memory_max >> 20);
    sh_jrun_charge(run, size / BYTES_PER_STEP);
    return sh_arena_alloc(&run->arena, size);
}

void *sh_jrun_array(sh_jrun *run, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) total = SIZE_MAX;
    return sh_jrun_alloc(run, total);
}

/* Moves the next portion of steps from the total to the counter, which is negative here. */
void sh_jrun_charge_slow(sh_jrun *run)
{
    int64_t more = STEPS_PER_CLOCK - run->steps_to_clock;
    if (more > run->steps_left) more = run->steps_left;
    run->steps_left -= more;
    run->steps_to_clock += more;
    if (run->steps_to_clock < 0)
        sh_jrun_fail(run, SH_ERR_LIMIT, "the template takes more steps than allowed");
    if (sh_deadline_passed(run->deadline))
        sh_jrun_fail(run, SH_ERR_LIMIT, "the template takes longer than allowed");
}

void sh_jrun_too_deep(sh_jrun *run)
{
    sh_jrun_fail(run, SH_ERR_LIMIT, "nested more than %d levels deep", run->depth_max);
}

static void output_charge(sh_jrun *run, size_t len)
{
    if (len > run->out_max || run->out->len > run->out_max - len)
        sh_jrun_fail(run, SH_ERR_LIMIT, "the template produces more than %zu KiB of text",
                     run->out_max >> 10);
    sh_jrun_charge(run, len / BYTES_PER_STEP);
}

void sh_jrun_put(sh_jrun *run, sh_str text)
{
    output_charge(run, text.len);
    sh_buf_add_str(run->out, text);
}

void sh_jrun_put_char(sh_jrun *run, uint32_t code)
{
    output_charge(run, 4);
    sh_buf_add_utf8(run->out, code);
}

void sh_jrun_putf(sh_jrun *run, const char *fmt, ...)
{
    char text[512]; /* numbers, and %.*f of the largest double with a bounded precision */
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    SH_ASSERT(len >= 0 && (size_t)len < sizeof(text));
    sh_jrun_put(run, (sh_str){text, (size_t)len});
}

void sh_jrun_pad(sh_jrun *run, sh_str fill, size_t count)
{
    size_t total;
    if (__builtin_mul_overflow(fill.len, count, &total)) total = SIZE_MAX;
    output_charge(run, total);
    for (size_t i = 0; i < count; i++) sh_buf_add_str(run->out, fill);
}

/* Copies to the arena: the buffer moves when it grows, so values must not point into it. */
const sh_jstr *sh_jrun_take(sh_jrun *run, size_t mark)
{
    SH_ASSERT(mark <= run->out->len);
    size_t len = run->out->len - mark;
    const sh_jstr *str = sh_jstr_new(run, (sh_str){len == 0 ? "" : run->out->ptr + mark, len});
    run->out->len = mark;
    return str;
}
