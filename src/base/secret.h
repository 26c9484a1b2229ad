/* secret.h - whether a text can keep anybody out.
 *
 * A key or token that a person typed may be one that everybody tries first. What is refused here is
 * what needs no dictionary to guess: short texts, few different characters, one piece repeated,
 * runs such as "abcdef" or "98765". A pass phrase of common words passes; no program can tell how
 * it was chosen.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_SECRET_H
#define SH_BASE_SECRET_H

#include "base/status.h"
#include "base/str.h"

enum {
    SH_SECRET_LEN_MIN = 16, /* as hex digits: 64 bits */
    SH_SECRET_DISTINCT_MIN = 6,
    SH_SECRET_TURNS_MIN = 8, /* characters that do not go on as the two before them began */
};

/* `what` names the secret in the error, such as "an API key"; the text itself is never in it. */
SH_MUST_CHECK sh_status sh_secret_check(const char *what, sh_str secret, sh_err *err);

#endif
