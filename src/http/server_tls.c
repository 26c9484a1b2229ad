/* A new SSL_CTX is built for each load and swapped in only if all of it succeeded, so a certificate
 * that is being replaced at that moment cannot take the server down. */
#include "http/server_tls.h"

#include "base/alloc.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

struct sh_http_tls {
    char *cert_path;
    char *key_path;
    SSL_CTX *ctx;
};

static sh_status ssl_fail(sh_err *err, const char *path)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    sh_err_set(err, SH_ERR_INPUT, "%s: %s", path, reason == NULL ? "TLS error" : reason);
    ERR_clear_error();
    return err->status;
}

/* Only HTTP/1.1 is offered. If a client does not offer it, ALPN is ignored and the client decides.
 */
static int alpn_choose(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned int in_len, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    int found = SSL_select_next_proto((unsigned char **)out, out_len, ours, sizeof(ours) - 1, in,
                                      in_len);
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

/* A key with a passphrase is an error: OpenSSL's default callback would block at a prompt. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static sh_status ctx_load(const sh_http_tls *tls, SSL_CTX **out, sh_err *err)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL) return ssl_fail(err, "TLS");
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, alpn_choose, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ctx, tls->cert_path) != 1)
        ssl_fail(err, tls->cert_path);
    else if (SSL_CTX_use_PrivateKey_file(ctx, tls->key_path, SSL_FILETYPE_PEM) != 1)
        ssl_fail(err, tls->key_path);
    else if (SSL_CTX_check_private_key(ctx) != 1)
        ssl_fail(err, tls->key_path);
    else {
        *out = ctx;
        return SH_OK;
    }
    SSL_CTX_free(ctx);
    return err->status;
}

sh_status sh_http_tls_open(const char *cert_path, const char *key_path, sh_http_tls **out,
                           sh_err *err)
{
    sh_http_tls *tls = sh_alloc(sizeof(*tls));
    tls->cert_path = sh_strdup(cert_path);
    tls->key_path = sh_strdup(key_path);
    if (sh_http_tls_reload(tls, err) != SH_OK) {
        sh_http_tls_close(tls);
        return err->status;
    }
    *out = tls;
    return SH_OK;
}

sh_status sh_http_tls_reload(sh_http_tls *tls, sh_err *err)
{
    SSL_CTX *fresh = NULL;
    if (ctx_load(tls, &fresh, err) != SH_OK) return err->status;
    SSL_CTX_free(tls->ctx); /* open sessions hold their own reference */
    tls->ctx = fresh;
    return SH_OK;
}

void sh_http_tls_close(sh_http_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->ctx);
    free(tls->cert_path);
    free(tls->key_path);
    free(tls);
}

struct ssl_st *sh_http_tls_session(sh_http_tls *tls)
{
    return SSL_new(tls->ctx);
}
