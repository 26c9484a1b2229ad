/* secret.h - rejecting keys and tokens that are easy to guess.
 *
 * A key or token typed by a person may be one that attackers try first. Rejected is what can be
 * guessed without a dictionary: short texts, few distinct characters, a repeated piece, runs such
 * as "abcdef" or "98765". A passphrase of common words is accepted; no program can tell how it was
 * chosen.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_SECRET_H
#define SH_BASE_SECRET_H

#include "base/status.h"
#include "base/str.h"

enum {
    SH_SECRET_LEN_MIN = 16, /* 64 bits in hex digits */
    SH_SECRET_DISTINCT_MIN = 6,
    SH_SECRET_TURNS_MIN = 8, /* characters that do not continue the run of the two before them */
};

/* `what` names the secret in the error, such as "an API key"; the secret itself is never shown. */
SH_MUST_CHECK sh_status sh_secret_check(const char *what, sh_str secret, sh_err *err);

#endif
