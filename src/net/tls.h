/* tls.h - TLS 1.3 with the cluster token as pre-shared key.
 *
 * Both ends prove that they know the token. Session keys also depend on an ephemeral Diffie-Hellman
 * exchange, so a token that leaks later does not decrypt recorded traffic. There are no
 * certificates: a peer that does not know the token gets an alert and nothing else.
 *
 * Threads: an sh_tls may create connections from any thread; a connection has one owner. */
#ifndef SH_NET_TLS_H
#define SH_NET_TLS_H

#include "base/status.h"

#include <openssl/ssl.h>
#include <stdbool.h>

typedef struct sh_tls sh_tls;

/* The token must pass sh_cluster_token_check. */
SH_MUST_CHECK sh_status sh_tls_create(const char *token, sh_tls **out, sh_err *err);
void sh_tls_free(sh_tls *tls);

/* A new connection over fd, which the caller still owns. Free with SSL_free; its handshake must
 * be over before the sh_tls is freed. */
SH_MUST_CHECK sh_status sh_tls_connection(sh_tls *tls, int fd, bool server, SSL **out, sh_err *err);

/* After the handshake: both ends proved the token. */
bool sh_tls_is_proven(const SSL *ssl);

/* Turns the failure of an OpenSSL call into our error; clears OpenSSL's error queue. */
sh_status sh_tls_error(const char *what, sh_err *err);

#endif
