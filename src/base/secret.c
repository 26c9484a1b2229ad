/* Three cheap measures of structure, each in one pass or two: the period, the number of distinct
 * characters, and how often a run is broken. A random hex string passes all of them. */
#include "base/secret.h"

#include <stdbool.h>

/* The length of the shortest piece that gives the text when repeated (the last copy may be cut). */
static size_t period_of(sh_str text)
{
    for (size_t period = 1; period < text.len; period++) {
        size_t i = period;
        while (i < text.len && text.ptr[i] == text.ptr[i - period]) i++;
        if (i == text.len) return period;
    }
    return text.len;
}

static size_t distinct_count(sh_str text)
{
    bool seen[256] = {false};
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) {
        count += !seen[(unsigned char)text.ptr[i]];
        seen[(unsigned char)text.ptr[i]] = true;
    }
    return count;
}

/* Counts characters that break a run: those that neither repeat the previous one nor continue its
 * step. "aaaa", "1234" and "8642" have no break after their second character. */
static size_t turn_count(sh_str text)
{
    size_t count = 1;
    for (size_t i = 1; i < text.len; i++) {
        int stride = text.ptr[i] - text.ptr[i - 1];
        count += stride != 0 && (i == 1 || stride != text.ptr[i - 1] - text.ptr[i - 2]);
    }
    return count;
}

sh_status sh_secret_check(const char *what, sh_str secret, sh_err *err)
{
    static const char advice[] = "`openssl rand -hex 24` makes a good one";
    if (secret.len < SH_SECRET_LEN_MIN)
        return sh_err_set(
            err, SH_ERR_INPUT,
            "%s is too easy to guess: it has %zu characters and needs at least %d; %s", what,
            secret.len, SH_SECRET_LEN_MIN, advice);
    size_t period = period_of(secret);
    if (period < SH_SECRET_LEN_MIN)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s is too easy to guess: it repeats %zu character%s; %s", what, period,
                          period == 1 ? "" : "s", advice);
    if (distinct_count(secret) < SH_SECRET_DISTINCT_MIN)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s is too easy to guess: it has %zu different characters and needs at "
                          "least %d; %s",
                          what, distinct_count(secret), SH_SECRET_DISTINCT_MIN, advice);
    if (turn_count(secret) < SH_SECRET_TURNS_MIN)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s is too easy to guess: it consists of runs such as 'abcd'; %s", what,
                          advice);
    return SH_OK;
}
