/* A blocking client on a private libevent base, one per call. evhttp is good enough on this side,
 * since the server is one that the user named.
 *
 * Certificates are always verified, with no way to switch it off. Self-signed ones are supported by
 * pinning: then the certificate itself is trusted and its name does not matter. */
#include "http/http_client.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WAIT_MS = 5000, STOP_CHECK_MS = 50, BODY_MAX = 16 << 20, PORT_HTTP = 80, PORT_HTTPS = 443 };

typedef struct {
    struct event_base *base;
    struct evhttp_connection *conn;
    SSL_CTX *tls;
    SSL *ssl; /* shared with the connection; kept for its verification result */
    const sh_http_get_opts *opts;
    struct event *stop_check; /* polls opts->stop */
    bool begun;               /* part of the body has arrived */
    bool answered;
    bool enough; /* opts->data returned false */
    bool stopped;
    int code;
    sh_buf *body;
    sh_err *err;
} get;

/* Called for each chunk when streaming, and once with the rest at the end. A body that is too long
 * is cut at BODY_MAX. */
static void body_take(get *g, struct evhttp_request *request)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(in);
    g->begun = g->begun || len > 0;
    if (g->opts->data != NULL && evhttp_request_get_response_code(request) == HTTP_OK) {
        sh_str bytes = {(const char *)evbuffer_pullup(in, -1), len};
        bool more = len == 0 || g->enough || g->opts->data(g->opts->ctx, bytes);
        evbuffer_drain(in, len);
        if (!more) {
            g->enough = g->answered = true;
            g->code = HTTP_OK;
            event_base_loopbreak(g->base);
        }
        return;
    }
    if (len > BODY_MAX - g->body->len) len = BODY_MAX - g->body->len;
    evbuffer_remove(in, sh_buf_reserve(g->body, len), len);
    g->body->len += len;
    if (len > 0) g->body->ptr[g->body->len] = '\0';
}

static void on_chunk(struct evhttp_request *request, void *arg)
{
    body_take(arg, request);
}

static void on_stop_check(evutil_socket_t fd, short what, void *arg)
{
    get *g = arg;
    (void)fd;
    (void)what;
    g->stopped = __atomic_load_n(g->opts->stop, __ATOMIC_RELAXED) != 0;
    if (g->stopped) event_base_loopbreak(g->base);
}

static void on_answer(struct evhttp_request *request, void *arg)
{
    get *g = arg;
    event_base_loopbreak(g->base);
    if (request == NULL || evhttp_request_get_response_code(request) == 0) return;
    g->code = evhttp_request_get_response_code(request);
    g->answered = true;
    body_take(g, request);
}

/* With a pinned certificate the system's authorities are not loaded, and the host name is not
 * checked; otherwise the certificate must be for the host, by name or by address. */
static sh_status tls_open(get *g, const char *host, const sh_http_get_opts *opts,
                          struct bufferevent **out)
{
    const char *trust = opts->trust;
    g->tls = SSL_CTX_new(TLS_client_method());
    SSL *ssl = g->tls == NULL ? NULL : SSL_new(g->tls);
    if (ssl == NULL) return sh_err_set(g->err, SH_ERR_SYSTEM, "cannot set up TLS");
    if (!opts->pinned) SSL_CTX_set_default_verify_paths(g->tls);
    if (trust != NULL && SSL_CTX_load_verify_locations(g->tls, trust, NULL) != 1) {
        SSL_free(ssl);
        return sh_err_set(g->err, SH_ERR_INPUT, "'%s' contains no certificate", trust);
    }
    SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    SSL_set_tlsext_host_name(ssl, host);
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    if (opts->pinned)
        X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
    else if (X509_VERIFY_PARAM_set1_ip_asc(param, host) != 1)
        SSL_set1_host(ssl, host);
    SSL_up_ref(ssl);
    g->ssl = ssl;
    *out = bufferevent_openssl_socket_new(g->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING,
                                          BEV_OPT_CLOSE_ON_FREE);
    return SH_OK;
}

char *sh_http_url(bool tls, const char *host, int port, const char *path)
{
    return sh_asprintf(strchr(host, ':') == NULL ? "%s://%s:%d%s" : "%s://[%s]:%d%s",
                       tls ? "https" : "http", host, port, path);
}

void sh_http_bare_host(const char *host, char out[SH_HTTP_HOST_MAX])
{
    snprintf(out, SH_HTTP_HOST_MAX, "%s", host[0] == '[' ? host + 1 : host);
    if (host[0] == '[') out[strcspn(out, "]")] = '\0';
}

static sh_status request_make(get *g, const struct evhttp_uri *uri, const sh_http_get_opts *opts)
{
    const char *host = evhttp_uri_get_host(uri), *path = evhttp_uri_get_path(uri);
    const char *query = evhttp_uri_get_query(uri);
    bool https = strcasecmp(evhttp_uri_get_scheme(uri), "https") == 0;
    int port = evhttp_uri_get_port(uri) > 0 ? evhttp_uri_get_port(uri)
               : https                      ? PORT_HTTPS
                                            : PORT_HTTP;
    struct bufferevent *bev = NULL;
    sh_buf text = {0};
    char bare[SH_HTTP_HOST_MAX];
    sh_http_bare_host(host, bare);
    sh_status status = https ? tls_open(g, bare, opts, &bev) : SH_OK;
    if (status != SH_OK) return status;
    g->conn = evhttp_connection_base_bufferevent_new(g->base, NULL, bev, bare, (uint16_t)port);
    if (opts->data == NULL) evhttp_connection_set_max_body_size(g->conn, BODY_MAX);
    int64_t wait_ms = opts->wait_ms > 0 ? opts->wait_ms : WAIT_MS;
    struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    evhttp_connection_set_timeout_tv(g->conn, &wait);
    struct evhttp_request *request = evhttp_request_new(on_answer, g);
    if (opts->data != NULL) evhttp_request_set_chunked_cb(request, on_chunk);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Host", host);
    evhttp_add_header(headers, "Connection", "close");
    sh_buf_addf(&text, "Bearer %s", opts->key == NULL ? "" : opts->key);
    if (opts->key != NULL) evhttp_add_header(headers, "Authorization", text.ptr);
    sh_buf_clear(&text);
    sh_buf_addf(&text, "%s%s%s", path == NULL || path[0] == '\0' ? "/" : path,
                query == NULL ? "" : "?", query == NULL ? "" : query);
    if (opts->body != NULL) {
        evhttp_add_header(headers, "Content-Type", "application/json");
        evbuffer_add(evhttp_request_get_output_buffer(request), opts->body, strlen(opts->body));
    }
    enum evhttp_cmd_type kind = opts->body == NULL ? EVHTTP_REQ_GET : EVHTTP_REQ_POST;
    if (evhttp_make_request(g->conn, request, kind, text.ptr) != 0)
        status = sh_err_set(g->err, SH_ERR_SYSTEM, "cannot send the request");
    sh_buf_reset(&text);
    return status;
}

/* Runs the loop until the answer is complete, or it is clear that there will be none. */
static sh_status answer_await(get *g, const char *url)
{
    struct timeval every = {.tv_usec = STOP_CHECK_MS * 1000};
    if (g->opts->stop != NULL) {
        g->stop_check = event_new(g->base, -1, EV_PERSIST, on_stop_check, g);
        SH_ASSERT(g->stop_check != NULL);
        event_add(g->stop_check, &every);
    }
    event_base_dispatch(g->base);
    if (g->answered) return SH_OK;
    if (g->stopped) return sh_err_set(g->err, SH_ERR_CANCELLED, "stopped");
    long verdict = g->ssl == NULL ? X509_V_OK : SSL_get_verify_result(g->ssl);
    if (verdict != X509_V_OK)
        return sh_err_set(g->err, SH_ERR_INPUT, "%s: its certificate is not trusted: %s", url,
                          X509_verify_cert_error_string(verdict));
    if (g->begun)
        return sh_err_set(g->err, SH_ERR_PEER, "%s closed the connection during its answer", url);
    return sh_err_set(g->err, SH_ERR_NOT_FOUND, "%s does not answer", url);
}

sh_status sh_http_get(const char *url, const sh_http_get_opts *opts, int *code, sh_buf *body,
                      sh_err *err)
{
    get g = {.opts = opts, .body = body, .err = err};
    struct evhttp_uri *uri = evhttp_uri_parse(url);
    const char *scheme = uri == NULL ? NULL : evhttp_uri_get_scheme(uri);
    sh_status status = SH_OK;
    if (scheme == NULL || evhttp_uri_get_host(uri) == NULL ||
        (strcasecmp(scheme, "http") != 0 && strcasecmp(scheme, "https") != 0))
        status = sh_err_set(err, SH_ERR_INPUT, "'%s' is not an http or https URL", url);
    if (status == SH_OK) {
        g.base = event_base_new();
        status = request_make(&g, uri, opts);
    }
    if (status == SH_OK) status = answer_await(&g, url);
    if (status == SH_OK) *code = g.code;
    if (g.conn != NULL) evhttp_connection_free(g.conn);
    if (g.stop_check != NULL) event_free(g.stop_check);
    if (g.base != NULL) event_base_free(g.base);
    SSL_free(g.ssl);
    SSL_CTX_free(g.tls);
    if (uri != NULL) evhttp_uri_free(uri);
    return status;
}
