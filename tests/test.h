/* test.h - what every unit test includes: cmocka and a few claims in our own words.
 *
 * Names of tests are claims. Each program is run by tests/run.sh as a process of its own with a
 * time limit. */
#ifndef SH_TESTS_TEST_H
#define SH_TESTS_TEST_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* GCC tells of its sanitizers by macros, clang by features. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#else
#define HAS_TSAN 0
#endif
#ifndef IS_EMULATED
#define IS_EMULATED 0
#endif

/* tests/run.sh aborts a program that is over its time: it says in which test it is. */
static const char *volatile running_test = "no test";

static inline void say_running_test(int signal_number)
{
    ssize_t told = write(STDOUT_FILENO, "\n# aborted in ", 14);
    told += write(STDOUT_FILENO, running_test, strlen(running_test));
    told += write(STDOUT_FILENO, "\n", 1);
    (void)told;
    raise(signal_number);
}

__attribute__((constructor)) static inline void catch_abort(void)
{
    struct sigaction action = {.sa_handler = say_running_test, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGABRT, &action, NULL);
}

/* Long tests take a shorter form here. */
#define SLOW (HAS_ASAN || HAS_TSAN || IS_EMULATED)

#define TEST(name)                                                                                 \
    static void name##_body(void **state);                                                         \
    static void name(void **state)                                                                 \
    {                                                                                              \
        running_test = #name;                                                                      \
        name##_body(state);                                                                        \
    }                                                                                              \
    static void name##_body(void **state)
#define UNUSED_STATE ((void)state)

/* The status is SH_OK; prints the error's text when it is not. */
#define CHECK_OK(call, err)                                                                        \
    do {                                                                                           \
        if ((call) != 0) fail_msg("%s: %s", #call, (err).text);                                    \
    } while (0)

/* The call fails and the text of its error holds `part`. */
#define CHECK_FAILS(call, err, part)                                                               \
    do {                                                                                           \
        if ((call) >= 0) fail_msg("%s did not fail", #call);                                       \
        if (strstr((err).text, part) == NULL)                                                      \
            fail_msg("'%s' is not in the error '%s'", part, (err).text);                           \
    } while (0)

#endif
