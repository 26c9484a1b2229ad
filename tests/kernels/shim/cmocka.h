/* cmocka.h - as much of cmocka as the kernels' tests need, for a cross build that has no cmocka.
 *
 * A failed claim ends its test by longjmp; results are TAP lines. Claims on a thread other than the
 * test's own are not supported.
 *
 * Threads: one. */
#ifndef SH_TESTS_KERNELS_SHIM_CMOCKA_H
#define SH_TESTS_KERNELS_SHIM_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

static jmp_buf shim_failed;

__attribute__((format(printf, 3, 4), noreturn)) static inline void
shim_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    printf("# %s:%d: ", file, line);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    longjmp(shim_failed, 1);
}

#define fail_msg(...) shim_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(claim)                                                                         \
    ((claim) ? (void)0 : shim_fail(__FILE__, __LINE__, "not true: %s", #claim))
#define assert_false(claim) assert_true(!(claim))
#define assert_non_null(ptr) assert_true((ptr) != NULL)
#define assert_null(ptr) assert_true((ptr) == NULL)
#define assert_ptr_equal(a, b) assert_true((a) == (b))
#define assert_int_equal(a, b) assert_true((intmax_t)(a) == (intmax_t)(b))
#define assert_int_not_equal(a, b) assert_true((intmax_t)(a) != (intmax_t)(b))
#define assert_in_range(x, low, high)                                                              \
    assert_true((intmax_t)(x) >= (intmax_t)(low) && (intmax_t)(x) <= (intmax_t)(high))
#define assert_memory_equal(a, b, size) assert_true(memcmp(a, b, size) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    shim_run(tests, sizeof(tests) / sizeof((tests)[0]))

static inline int shim_run(const struct CMUnitTest *tests, size_t count)
{
    int failed = 0;
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        volatile size_t at = i;
        void *state = NULL;
        int bad = setjmp(shim_failed);
        if (bad == 0) tests[at].test(&state);
        failed += bad;
        printf("%s %zu - %s\n", bad != 0 ? "not ok" : "ok", at + 1, tests[at].name);
        fflush(stdout);
    }
    return failed;
}

#endif
