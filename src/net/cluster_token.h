/* cluster_token.h - the cluster token, the one secret that all ranks of a group share.
 *
 * It is text that a person can copy from machine to machine. Connections use a key derived from it;
 * neither is ever logged or sent.
 *
 * Threads: pure functions. */
#ifndef SH_NET_CLUSTER_TOKEN_H
#define SH_NET_CLUSTER_TOKEN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SH_CLUSTER_TOKEN_LEN = 32,     /* length of generated tokens: 128 bits in hex */
    SH_CLUSTER_TOKEN_LEN_MIN = 22, /* the shortest text that can hold 128 bits: base64 */
    SH_CLUSTER_TOKEN_LEN_MAX = 256,
    SH_CLUSTER_TOKEN_KEY_LEN = 32,
};

/* A new random token, zero-terminated. */
void sh_cluster_token_make(char out[SH_CLUSTER_TOKEN_LEN + 1]);

/* Whether the text is acceptable as a token; the error does not contain the text. Short tokens are
 * rejected because a recorded handshake allows guessing them offline; so are predictable ones such
 * as "aaaa...". */
SH_MUST_CHECK sh_status sh_cluster_token_check(const char *token, sh_err *err);

/* Derives the pre-shared key of the connections. */
void sh_cluster_token_key(const char *token, uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN]);

/* Cryptographically secure random bytes; len is at most 256. */
void sh_random(void *out, size_t len);

#endif
