/* cluster_token.h - the cluster token, the one secret that all ranks of a group share.
 *
 * It is text that a person can carry from machine to machine. What the links use is a key made from
 * it; neither is ever logged or sent.
 *
 * Threads: pure functions. */
#ifndef SH_NET_CLUSTER_TOKEN_H
#define SH_NET_CLUSTER_TOKEN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SH_CLUSTER_TOKEN_LEN = 32,     /* characters of a token that we make: 128 bits in hex */
    SH_CLUSTER_TOKEN_LEN_MIN = 22, /* the shortest that can hold 128 bits: base64 */
    SH_CLUSTER_TOKEN_LEN_MAX = 256,
    SH_CLUSTER_TOKEN_KEY_LEN = 32,
};

/* A new random token with a closing zero. */
void sh_cluster_token_make(char out[SH_CLUSTER_TOKEN_LEN + 1]);

/* Whether the text can be a token; the error does not repeat the text. A short one is refused
 * because whoever records one handshake can try all short tokens at home; so is one that needs no
 * trying, such as "aaaa...". */
SH_MUST_CHECK sh_status sh_cluster_token_check(const char *token, sh_err *err);

/* The key of the links. */
void sh_cluster_token_key(const char *token, uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN]);

/* Bytes that nobody can guess, len 256 at most. */
void sh_random(void *out, size_t len);

#endif
