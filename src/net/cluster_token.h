/* cluster_token.h - the cluster token, the one secret that all ranks of a group share.
 *
 * It is text that a person can copy from machine to machine. Connections and announcements use keys
 * derived from it; neither token nor keys are ever logged or sent.
 *
 * A token has one of two forms:
 *   plain    the secret itself, any visible ASCII characters
 *   wrapped  "shoal1" and letters and digits, which hold the secret, a checksum, and perhaps the
 *            addresses where rank 0 can be found
 * Both forms of one secret are the same token: the keys depend on the secret alone.
 *
 * Threads: pure functions. */
#ifndef SH_NET_CLUSTER_TOKEN_H
#define SH_NET_CLUSTER_TOKEN_H

#include "base/buf.h"
#include "base/status.h"
#include "net/addr.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SH_CLUSTER_TOKEN_LEN = 32, /* length of generated secrets: 128 bits in hex */
    SH_CLUSTER_TOKEN_BITS = 128,
    SH_CLUSTER_TOKEN_LEN_MAX = 256, /* in either form */
    SH_CLUSTER_TOKEN_KEY_LEN = 32,
    SH_CLUSTER_TOKEN_PLACES_MAX = 4,
};

/* What a token says. */
typedef struct {
    char secret[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    char place[SH_CLUSTER_TOKEN_PLACES_MAX][SH_ADDR_TEXT_MAX]; /* "host:port" of rank 0 */
    int place_count;
} sh_cluster_token;

/* A new random secret, which is a plain token; zero-terminated. */
void sh_cluster_token_make(char out[SH_CLUSTER_TOKEN_LEN + 1]);

/* Reads either form. Secrets of less than 128 bits are rejected, because a recorded handshake or
 * announcement allows guessing them offline; so are predictable ones such as "aaaa...", and a
 * wrapped token that was mistyped. The error never contains the text. */
SH_MUST_CHECK sh_status sh_cluster_token_parse(const char *text, sh_cluster_token *out,
                                               sh_err *err);

/* The same where only the verdict is needed. */
SH_MUST_CHECK sh_status sh_cluster_token_check(const char *text, sh_err *err);

/* Appends the wrapped form; SH_ERR_LIMIT if that is longer than a token may be. */
SH_MUST_CHECK sh_status sh_cluster_token_wrap(const sh_cluster_token *token, sh_buf *out,
                                              sh_err *err);

/* What a key is for. Keys for different uses say nothing about each other. */
typedef enum {
    SH_TOKEN_KEY_LINKS,        /* pre-shared key of the connections between ranks */
    SH_TOKEN_KEY_DISCOVERY,    /* encrypts announcements */
    SH_TOKEN_KEY_DISCOVERY_ID, /* marks announcements, in clear */
} sh_cluster_token_use;

/* The token must pass sh_cluster_token_check. */
void sh_cluster_token_key(const char *text, sh_cluster_token_use use,
                          uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN]);

/* Cryptographically secure random bytes; len is at most 256. */
void sh_random(void *out, size_t len);

#endif
