/* TLS 1.3 with an external pre-shared key. OpenSSL models such a key as a session to resume, hence
 * the made-up SSL_SESSION and "session reused" as the sign that the key was proved. Everything that
 * could let a peer in without the key is off: older versions, certificates, tickets, caching. */
#include "net/tls.h"

#include "base/alloc.h"
#include "net/cluster_token.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The identity sent along with the proof; it only says which key is meant. */
static const unsigned char IDENTITY[] = "shoal-1";

/* Both suites use SHA-256, which the key is bound to; CPUs without AES instructions are faster with
 * the second. */
static const char SUITES[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
static const unsigned char SUITE_OF_KEY[2] = {0x13, 0x01};

struct sh_tls {
    SSL_CTX *ctx;
    uint8_t key[SH_CLUSTER_TOKEN_KEY_LEN];
};

/* As OpenSSL's own for sockets, which uses write(): but a closed connection must be an error, not a
 * SIGPIPE. To ignore that signal is not ours to decide, as this may be a library of another
 * program. */
static int socket_write(BIO *bio, const char *data, int len)
{
    int fd = -1;
    BIO_get_fd(bio, &fd);
    BIO_clear_retry_flags(bio);
    ssize_t put = send(fd, data, (size_t)len, MSG_NOSIGNAL);
    if (put < 0 && BIO_sock_should_retry(-1)) BIO_set_retry_write(bio);
    return (int)put;
}

static BIO_METHOD *socket_bio;

static void socket_bio_make(void)
{
    const BIO_METHOD *own = BIO_s_socket();
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOCKET, "socket without SIGPIPE");
    if (method != NULL && BIO_meth_set_write(method, socket_write) == 1 &&
        BIO_meth_set_read(method, BIO_meth_get_read(own)) == 1 &&
        BIO_meth_set_ctrl(method, BIO_meth_get_ctrl(own)) == 1 &&
        BIO_meth_set_create(method, BIO_meth_get_create(own)) == 1 &&
        BIO_meth_set_destroy(method, BIO_meth_get_destroy(own)) == 1)
        socket_bio = method;
    else
        BIO_meth_free(method);
}

/* How connections read and write. There is one for the whole process: a connection that is handed
 * over, to send weights, may live longer than the group and the sh_tls that it came from. */
static const BIO_METHOD *socket_method(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, socket_bio_make);
    return socket_bio;
}

/* The cipher of the session only fixes the hash (SHA-256); either suite can be negotiated. */
static SSL_SESSION *session_of_key(SSL *ssl)
{
    const sh_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, SUITE_OF_KEY);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session == NULL || cipher == NULL ||
        SSL_SESSION_set1_master_key(session, tls->key, sizeof(tls->key)) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                       SSL_SESSION **out)
{
    (void)md;
    *id = IDENTITY;
    *id_len = sizeof(IDENTITY) - 1;
    *out = session_of_key(ssl);
    return *out != NULL;
}

/* The server's side. An unknown identity is not an error for OpenSSL: it then tries certificates,
 * has none, and the handshake fails. */
static int find_session(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **out)
{
    bool known = id_len == sizeof(IDENTITY) - 1 && memcmp(id, IDENTITY, id_len) == 0;
    *out = known ? session_of_key(ssl) : NULL;
    return 1;
}

static bool ctx_set_up(SSL_CTX *ctx)
{
    if (ctx == NULL || SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, SUITES) != 1 ||
        SSL_CTX_set1_groups_list(ctx, "X25519:P-256") != 1 || SSL_CTX_set_num_tickets(ctx, 0) != 1)
        return false;
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* A write that is repeated after SH_AGAIN may come from another address: gather_record copies
     * into a buffer on the stack. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_psk_use_session_callback(ctx, use_session);
    SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    return true;
}

sh_status sh_tls_create(const char *token, sh_tls **out, sh_err *err)
{
    sh_status status = sh_cluster_token_check(token, err);
    if (status != SH_OK) return status;
    sh_tls *tls = sh_alloc(sizeof(*tls));
    sh_cluster_token_key(token, SH_TOKEN_KEY_LINKS, tls->key);
    tls->ctx = SSL_CTX_new(TLS_method());
    if (socket_method() == NULL || !ctx_set_up(tls->ctx)) {
        status = sh_tls_error("cannot set up TLS 1.3 with a pre-shared key", err);
        sh_tls_free(tls);
        return status;
    }
    SSL_CTX_set_app_data(tls->ctx, tls);
    *out = tls;
    return SH_OK;
}

void sh_tls_free(sh_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->ctx);
    OPENSSL_cleanse(tls->key, sizeof(tls->key));
    free(tls);
}

sh_status sh_tls_connection(sh_tls *tls, int fd, bool server, SSL **out, sh_err *err)
{
    SSL *ssl = SSL_new(tls->ctx);
    BIO *bio = BIO_new(socket_method());
    if (ssl == NULL || bio == NULL) {
        SSL_free(ssl);
        BIO_free(bio);
        return sh_tls_error("TLS connection", err);
    }
    BIO_set_fd(bio, fd, BIO_NOCLOSE);
    SSL_set_bio(ssl, bio, bio);
    if (server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
        /* No certificate is trusted, so a server that presents one instead of the proof fails. */
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    }
    *out = ssl;
    return SH_OK;
}

bool sh_tls_is_proven(const SSL *ssl)
{
    return SSL_is_init_finished(ssl) && SSL_session_reused(ssl) &&
           SSL_version(ssl) == TLS1_3_VERSION;
}

/* With a wrong token the accepting side fails to verify the binder, and the connecting side gets an
 * alert. */
static bool is_wrong_token(unsigned long code)
{
    switch (ERR_GET_REASON(code)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER: return true;
    default: return false;
    }
}

sh_status sh_tls_error(const char *what, sh_err *err)
{
    unsigned long code = ERR_get_error();
    const char *reason = ERR_reason_error_string(code);
    ERR_clear_error();
    if (is_wrong_token(code))
        return sh_err_set(err, SH_ERR_AUTH, "%s: the cluster tokens of the two ends differ", what);
    return sh_err_set(err, SH_ERR_PEER, "%s: %s", what, reason != NULL ? reason : "unknown error");
}
