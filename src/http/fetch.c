#include "http/fetch.h"

#include "base/alloc.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fetch {
    const sh_fetch_opts *opts;
    struct event_base *base;
    SSL_CTX *tls;
    struct evhttp_connection *conn;
    int code; /* 0: no answer */
    sh_buf *body;
    bool too_long;
};

static void on_done(struct evhttp_request *request, void *arg)
{
    struct fetch *f = arg;
    if (request != NULL) f->code = evhttp_request_get_response_code(request);
    if (f->code != 0) {
        struct evbuffer *in = evhttp_request_get_input_buffer(request);
        size_t len = evbuffer_get_length(in);
        evbuffer_copyout(in, sh_buf_reserve(f->body, len), len);
        f->body->len += len;
        f->body->ptr[f->body->len] = '\0';
    }
    event_base_loopbreak(f->base);
}

static void on_error(enum evhttp_request_error error, void *arg)
{
    struct fetch *f = arg;
    f->too_long = error == EVREQ_HTTP_DATA_TOO_LONG;
}

/* The certificate must be one that is trusted; its name must be the host's unless it was named as a
 * file, which is trust enough (the server may be asked by any of its addresses). */
static sh_status tls_open(struct fetch *f, SSL **out, sh_err *err)
{
    const char *trust = f->opts->tls_trust;
    f->tls = SSL_CTX_new(TLS_client_method());
    SH_ASSERT(f->tls != NULL);
    SSL_CTX_set_verify(f->tls, SSL_VERIFY_PEER, NULL);
    if (trust == NULL ? SSL_CTX_set_default_verify_paths(f->tls) != 1
                      : SSL_CTX_load_verify_locations(f->tls, trust, NULL) != 1)
        return sh_err_set(err, SH_ERR_INPUT, "%s: no certificates can be read from it",
                          trust == NULL ? "the system's store" : trust);
    /* A leaf that was named is trusted as it is. */
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(f->tls), X509_V_FLAG_PARTIAL_CHAIN);
    SSL *ssl = SSL_new(f->tls);
    SH_ASSERT(ssl != NULL);
    SSL_set_tlsext_host_name(ssl, f->opts->host);
    if (trust == NULL) SSL_set1_host(ssl, f->opts->host);
    *out = ssl;
    return SH_OK;
}

static sh_status connection_make(struct fetch *f, sh_err *err)
{
    struct bufferevent *events = NULL;
    SSL *ssl = NULL;
    sh_status status = f->opts->tls ? tls_open(f, &ssl, err) : SH_OK;
    if (status != SH_OK) return status;
    if (ssl != NULL) {
        events = bufferevent_openssl_socket_new(f->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING,
                                                BEV_OPT_CLOSE_ON_FREE);
        bufferevent_openssl_set_allow_dirty_shutdown(events, 1);
    }
    f->conn = evhttp_connection_base_bufferevent_new(f->base, NULL, events, f->opts->host,
                                                     (uint16_t)f->opts->port);
    SH_ASSERT(f->conn != NULL);
    evhttp_connection_set_max_body_size(f->conn, SH_FETCH_BODY_MAX);
    struct timeval wait = {
        .tv_sec = (long)f->opts->wait_s,
        .tv_usec = (long)((f->opts->wait_s - (double)(long)f->opts->wait_s) * 1e6)};
    evhttp_connection_set_timeout_tv(f->conn, &wait);
    return SH_OK;
}

static void request_send(struct fetch *f)
{
    const sh_fetch_opts *o = f->opts;
    struct evhttp_request *request = evhttp_request_new(on_done, f);
    SH_ASSERT(request != NULL);
    evhttp_request_set_error_cb(request, on_error);
    struct evkeyvalq *head = evhttp_request_get_output_headers(request);
    char *host = sh_asprintf(strchr(o->host, ':') == NULL ? "%s:%d" : "[%s]:%d", o->host, o->port);
    evhttp_add_header(head, "Host", host);
    evhttp_add_header(head, "Connection", "close");
    free(host);
    if (o->key != NULL) {
        char *key = sh_asprintf("Bearer %s", o->key);
        evhttp_add_header(head, "Authorization", key);
        free(key);
    }
    if (o->body != NULL) {
        evhttp_add_header(head, "Content-Type", "application/json");
        evbuffer_add(evhttp_request_get_output_buffer(request), o->body, strlen(o->body));
    }
    evhttp_make_request(f->conn, request, o->body == NULL ? EVHTTP_REQ_GET : EVHTTP_REQ_POST,
                        o->path);
}

sh_status sh_fetch(const sh_fetch_opts *opts, int *code, sh_buf *body, sh_err *err)
{
    struct fetch f = {.opts = opts, .base = event_base_new(), .body = body};
    SH_ASSERT(f.base != NULL);
    sh_status status = connection_make(&f, err);
    if (status == SH_OK) {
        request_send(&f);
        event_base_dispatch(f.base);
        if (f.code == 0)
            status = sh_err_set(err, f.too_long ? SH_ERR_LIMIT : SH_ERR_PEER,
                                f.too_long ? "the answer of %s:%d is too long"
                                           : "no API answers at %s:%d",
                                opts->host, opts->port);
    }
    if (status == SH_OK) *code = f.code;
    if (f.conn != NULL) evhttp_connection_free(f.conn);
    event_base_free(f.base);
    SSL_CTX_free(f.tls);
    return status;
}
