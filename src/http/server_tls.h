/* server_tls.h - the TLS certificate of the server.
 *
 * Reloading replaces certificate and key together, for new connections; if the new files do not
 * load, the old ones stay in use.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_SERVER_TLS_H
#define SH_HTTP_SERVER_TLS_H

#include "base/status.h"

typedef struct sh_http_tls sh_http_tls;

/* PEM files: the chain, starting with the server's certificate, and its private key. */
SH_MUST_CHECK sh_status sh_http_tls_open(const char *cert_path, const char *key_path,
                                         sh_http_tls **out, sh_err *err);
SH_MUST_CHECK sh_status sh_http_tls_reload(sh_http_tls *tls, sh_err *err);
void sh_http_tls_close(sh_http_tls *tls);

/* For this layer: the TLS state of one new connection, or NULL if out of memory. */
struct ssl_st;
struct ssl_st *sh_http_tls_session(sh_http_tls *tls);

#endif
