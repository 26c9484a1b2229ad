/* The server against clients that close early, send slowly, or have no key. */
#include "unit/http/server.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define HOST "Host: localhost\r\n"
#define KEY "sk-one-4fZq81Lx0p"
#define BEARER "Authorization: Bearer " KEY "\r\n"

static sh_http_keys *keys;

static sh_http_server_opts opts_with_key(void)
{
    sh_err err;
    sh_http_server_opts opts = server_opts();
    keys = sh_http_keys_create();
    CHECK_OK(sh_http_keys_add_text(keys, KEY ", sk-two-7hWm29Kc5r", &err), err);
    opts.keys = keys;
    return opts;
}

static void serve_with_key(void)
{
    sh_http_server_opts opts = opts_with_key();
    serve(&opts);
}

static void serve_plain(void)
{
    sh_http_server_opts opts = server_opts();
    serve(&opts);
}

static void serve_with_key_end(void)
{
    serve_end();
    sh_http_keys_free(keys);
}

TEST(answers_a_client_that_has_closed_its_side)
{
    UNUSED_STATE;
    serve_plain();
    check_asked("GET /now HTTP/1.1\r\n" HOST "\r\n", "body 0");
    check_asked("GET /later HTTP/1.1\r\n" HOST "\r\n", "at last");
    check_asked("GET /later HTTP/1.0\r\n\r\n", "at last");
    check_asked("POST /later HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}", "at last");
    check_asked("GET /stream HTTP/1.1\r\n" HOST "\r\n", "0\r\n\r\n");
    check_asked("GET /stream HTTP/1.0\r\n\r\n", "piece piece piece piece ");
    /* Pipelined requests are answered too, an incomplete one is not. */
    const char *text = ask("GET /later HTTP/1.1\r\n" HOST "\r\nGET /stream HTTP/1.1\r\n" HOST
                           "\r\nGET /now HTTP/1.1\r\n" HOST "\r\nGET /now HTT");
    const char *first = strstr(text, "at last"), *second = strstr(text, "0\r\n\r\n"),
               *third = strstr(text, "body 0");
    assert_true(first != NULL && second > first && third > second);
    assert_null(strstr(third + 1, "HTTP/1.1"));
    assert_int_equal(atomic_load(&gone_count), 0);
    serve_end();
}

static void check_gone(const char *request, int64_t most_ms)
{
    atomic_store(&gone_count, 0);
    int fd = dial();
    say(fd, request);
    sh_sleep_ms(100);
    close(fd);
    int64_t start = now_ms();
    while (atomic_load(&gone_count) == 0 && now_ms() - start < most_ms) sh_sleep_ms(10);
    if (atomic_load(&gone_count) == 0) fail_msg("nobody noticed: %s", request);
}

TEST(notices_a_client_that_has_closed_all)
{
    UNUSED_STATE;
    serve_plain();
    check_gone("GET /never HTTP/1.1\r\n" HOST "\r\n", PATIENCE_MS);
    check_gone("GET /stream HTTP/1.1\r\n" HOST "\r\n", PATIENCE_MS);
    serve_end();
}

TEST(refuses_at_the_head_and_lets_the_answer_be_read)
{
    UNUSED_STATE;
    enum { BODY = 3 << 20 };
    serve_with_key();
    int fd = dial();
    int64_t start = now_ms();
    say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n");
    const char *text = hear(fd, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 401"));
    assert_non_null(strstr(text, "Connection: close"));
    assert_true(now_ms() - start < PATIENCE_MS); /* it waits three times as long for the body */
    close(fd);

    /* A client that sends its whole body before it reads still gets the answer. */
    fd = dial();
    char *body = calloc(1, BODY);
    say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3145728\r\n\r\n");
    for (size_t sent = 0; sent < BODY; sent += 65536) {
        assert_int_equal(send(fd, body + sent, 65536, MSG_NOSIGNAL), 65536);
        if (sent == 1 << 20) sh_sleep_ms(500);
    }
    text = hear(fd, NULL);
    assert_non_null(strstr(text, "HTTP/1.1 401"));
    assert_null(strstr(text, "(reset)"));
    close(fd);
    free(body);
    check_asked("POST /now HTTP/1.1\r\n" HOST BEARER "Content-Length: 2\r\n\r\n{}", "body 2");
    serve_with_key_end();
}

/* Opens `count` connections that all send `text`; the caller closes them. */
static void crowd_open(int *fds, int count, const char *text)
{
    for (int i = 0; i < count; i++) {
        fds[i] = dial();
        say(fds[i], text);
        sh_sleep_ms(10); /* it is read before the next one connects */
    }
}

/* Connections that are busy for certain: the handler of each request runs before the next one
 * connects. */
static void busy_open(int *fds, int count, const char *text)
{
    for (int i = 0; i < count; i++) {
        int before = atomic_load(&late_count);
        int64_t start = now_ms();
        fds[i] = dial();
        say(fds[i], text);
        while (atomic_load(&late_count) == before && now_ms() - start < 10000) sh_sleep_ms(1);
    }
}

static void crowd_close(const int *fds, int count)
{
    for (int i = 0; i < count; i++) close(fds[i]);
}

TEST(serves_clients_with_a_key_when_others_block_the_connections)
{
    UNUSED_STATE;
    enum { CROWD = 24 };
    static const char *const blockers[] = {
        "",
        "GET /no",
        "POST /now HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\nabc",
        "POST /now HTTP/1.1\r\n" HOST "Authorization: Bearer wrong\r\nContent-Length: 9\r\n\r\n",
        "GET /now HTTP/1.1\r\n" HOST "\r\n",
    };
    sh_http_server_opts opts = opts_with_key();
    opts.connections_max = 16;
    serve(&opts);
    for (size_t i = 0; i < SH_COUNT_OF(blockers); i++) {
        int fds[CROWD];
        crowd_open(fds, CROWD, blockers[i]);
        int64_t start = now_ms();
        check_asked("POST /now HTTP/1.1\r\n" HOST BEARER "Content-Length: 2\r\n\r\n{}", "body 2");
        if (now_ms() - start > PATIENCE_MS) fail_msg("too late for: %s", blockers[i]);
        crowd_close(fds, CROWD);
    }
    serve_with_key_end();
}

TEST(closes_those_first_that_have_waited_longest_without_a_key)
{
    UNUSED_STATE;
    sh_http_server_opts opts = opts_with_key();
    opts.connections_max = 4;
    serve(&opts);
    int body = dial(), proven = dial(), busy = dial();
    say(busy, "GET /later HTTP/1.1\r\n" HOST BEARER "\r\n");
    say(body, "POST /now HTTP/1.1\r\n" HOST BEARER "Content-Length: 4\r\n\r\nab");
    say(proven, "GET /now HTTP/1.1\r\n" HOST BEARER "\r\n");
    check_hears(proven, "body 0");
    for (int i = 0; i < 12; i++) {
        int stranger = dial();
        say(stranger, "GET /n");
        sh_sleep_ms(5);
        close(stranger);
        int open = dial();
        say(open, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n");
        check_hears(open, "401");
        close(open);
    }
    check_hears(busy, "at last");
    say(body, "cd");
    check_hears(body, "body 4");
    say(proven, "GET /now HTTP/1.1\r\n" HOST BEARER "\r\n");
    check_hears(proven, "body 0");
    close(body);
    close(proven);
    close(busy);
    serve_with_key_end();
}

TEST(takes_new_connections_when_busy_ones_are_done)
{
    UNUSED_STATE;
    sh_http_server_opts opts = server_opts();
    opts.connections_max = 2;
    serve(&opts);
    int fds[3];
    busy_open(fds, 2, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    crowd_open(fds + 2, 1, "GET /later HTTP/1.1\r\n" HOST "\r\n"); /* has to wait */
    for (int i = 0; i < 3; i++) check_hears(fds[i], "at last");    /* and stay open, idle */
    int64_t start = now_ms();
    check_asked("GET /now HTTP/1.1\r\n" HOST "\r\n", "body 0");
    assert_true(now_ms() - start < PATIENCE_MS);
    crowd_close(fds, 3);
    serve_end();
}

TEST(caps_the_connections_of_one_address)
{
    UNUSED_STATE;
    sh_http_server_opts opts = server_opts();
    opts.peer_connections_max = 2;
    serve(&opts);
    int fds[2];
    busy_open(fds, 2, "GET /never HTTP/1.1\r\n" HOST "\r\n");
    int third = dial();
    assert_string_equal(hear(third, NULL), "");
    close(third);
    crowd_close(fds, 2);
    sh_sleep_ms(600);
    /* Connections that only wait are evicted. */
    crowd_open(fds, 2, "GET /n");
    check_asked("GET /now HTTP/1.1\r\n" HOST "\r\n", "body 0");
    crowd_close(fds, 2);
    serve_end();
}

TEST(sends_foreign_pages_and_names_away)
{
    UNUSED_STATE;
    static const struct {
        const char *headers, *status;
    } cases[] = {
        {"Host: localhost:8100\r\n", "200"},
        {"Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n", "200"},
        {"Host: localhost\r\nOrigin: http://good.example\r\n", "200"},
        {"Host: proxy.example\r\n", "200"},
        {"Host: localhost\r\nOrigin: https://evil.example\r\n", "403"},
        {"Host: localhost\r\nOrigin: null\r\n", "403"},
        {"Host: localhost:1\r\nOrigin: http://localhost:2\r\n", "403"},
        {"Host: evil.example\r\n", "403"},
        {"Host: evil.example\r\nUser-Agent: curl/8\r\n", "403"},
        {"Host: evil.example\r\nOrigin: http://evil.example\r\n", "403"},
        {"Host: evil.local\r\n", "403"},
    };
    sh_http_server_opts opts = server_opts();
    opts.cors = "http://good.example";
    opts.allowed_hosts = "proxy.example";
    serve(&opts);
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char request[256], status[32];
        snprintf(request, sizeof(request), "GET /now HTTP/1.1\r\n%s\r\n", cases[i].headers);
        snprintf(status, sizeof(status), "HTTP/1.1 %s", cases[i].status);
        check_asked(request, status);
    }
    check_asked("POST /now HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
                "Content-Length: 2\r\nContent-Type: text/plain\r\n\r\n{}",
                "'https://evil.example' may not use this server; --cors");
    check_asked("GET /now HTTP/1.1\r\nHost: evil.example\r\n\r\n", "--allowed-hosts");
    serve_end();

    serve_with_key(); /* a page cannot know the key, so nothing else is required */
    check_asked("GET /now HTTP/1.1\r\nHost: any.example\r\nOrigin: http://x\r\n" BEARER "\r\n",
                "HTTP/1.1 200");
    serve_with_key_end();
}

TEST(slows_wrong_keys_down_and_no_others)
{
    UNUSED_STATE;
    serve_with_key();
    for (int i = 0; i < 5; i++) {
        int64_t start = now_ms();
        check_asked("GET /now HTTP/1.1\r\n" HOST "X-Api-Key: sk-wrong\r\n\r\n", "HTTP/1.1 401");
        if (i == 4) assert_true(now_ms() - start >= 500);
    }
    int64_t start, took = 500;
    for (int i = 0; i < 20 && took >= 500; i++) { /* slowed down, none would be faster */
        start = now_ms();
        check_asked("GET /now HTTP/1.1\r\n" HOST BEARER "\r\n", "HTTP/1.1 200");
        check_asked("GET /now HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 401");
        took = now_ms() - start;
    }
    assert_true(took < 500);
    start = now_ms(); /* open routes do not allow faster guessing */
    check_asked("GET /open HTTP/1.1\r\n" HOST "X-Api-Key: sk-wrong\r\n\r\n", "trusted 0");
    assert_true(now_ms() - start >= 500);
    check_asked("GET /open HTTP/1.1\r\n" HOST "\r\n", "trusted 0");
    check_asked("GET /open HTTP/1.1\r\n" HOST BEARER "\r\n", "trusted 1");
    serve_with_key_end();
}

TEST(bounds_all_bodies_together)
{
    UNUSED_STATE;
    sh_http_server_opts opts = server_opts();
    opts.bodies_bytes_max = 10000;
    serve(&opts);
    char request[8192];
    int head = snprintf(request, sizeof(request),
                        "POST /later HTTP/1.1\r\n" HOST "Content-Length: 6000\r\n\r\n");
    memset(request + head, 'a', 6000);
    request[head + 6000] = '\0';
    bool refused = false;
    for (int i = 0; i < 20 && !refused;
         i++) { /* the first may have its answer before the second asks */
        int first;
        busy_open(&first, 1, request);
        const char *text = ask(request);
        refused = strstr(text, "HTTP/1.1 503") != NULL && strstr(text, "Retry-After: 1") != NULL;
        check_hears(first, "at last");
        close(first);
    }
    assert_true(refused);
    check_asked(request, "at last");
    serve_end();
}

static unsigned long long client_of(const char *headers)
{
    char request[256];
    unsigned long long client = 0;
    snprintf(request, sizeof(request), "GET /now HTTP/1.1\r\n" HOST "%s\r\n", headers);
    const char *place = strstr(ask(request), "client ");
    assert_non_null(place);
    assert_int_equal(sscanf(place, "client %llx", &client), 1);
    return client;
}

TEST(knows_clients_by_key_or_by_address)
{
    UNUSED_STATE;
    serve_with_key();
    assert_true(client_of(BEARER) == client_of("X-Api-Key: " KEY "\r\n"));
    assert_true(client_of(BEARER) != client_of("X-Api-Key: sk-two-7hWm29Kc5r\r\n"));
    serve_with_key_end();
    serve_plain();
    unsigned long long plain = client_of("");
    assert_true(client_of(BEARER) == plain);
    assert_true(client_of("Authorization: Bearer something-else\r\n") == plain);
    assert_true(client_of("X-Api-Key: a-third\r\n") == plain);
    serve_end();
}

TEST(names_what_it_does_not_have)
{
    UNUSED_STATE;
    serve_plain();
    check_asked("GET /v1/nowhere?x=1 HTTP/1.1\r\n" HOST "\r\n", "'GET /v1/nowhere'");
    check_asked("POST /stream HTTP/1.1\r\n" HOST "\r\n", "'/stream' does not support POST");
    check_asked("BREW /stream HTTP/1.1\r\n" HOST "\r\n", "method 'BREW'");
    check_asked("POST /now HTTP/1.1\r\n" HOST "Content-Length: 9000000\r\n\r\n",
                "the body has 9000000 bytes; this server accepts at most 4194304");
    serve_end();
}

/* A certificate for the duration of a test. */
static void certificate_write(const char *cert_path, const char *key_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_sign(cert, key, EVP_sha256());
    FILE *file = fopen(cert_path, "w");
    PEM_write_X509(file, cert);
    fclose(file);
    file = fopen(key_path, "w");
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* Sends a request over TLS, closes its side, and reads the answer. */
static void check_tls_half_closed(SSL_CTX *ctx, const char *request, const char *part)
{
    char text[4096];
    size_t len = 0;
    int got, fd = dial();
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_true(SSL_write(ssl, request, (int)strlen(request)) > 0);
    assert_true(SSL_shutdown(ssl) >= 0);
    while (len < sizeof(text) - 1 &&
           (got = SSL_read(ssl, text + len, (int)(sizeof(text) - 1 - len))) > 0)
        len += (size_t)got;
    text[len] = '\0';
    if (strstr(text, part) == NULL) fail_msg("no '%s' in '%s'", part, text);
    SSL_free(ssl);
    close(fd);
}

TEST(answers_over_tls_when_one_side_is_closed)
{
    UNUSED_STATE;
    char cert[] = "/tmp/shoal-cert-XXXXXX", key[] = "/tmp/shoal-key-XXXXXX";
    close(mkstemp(cert));
    close(mkstemp(key));
    certificate_write(cert, key);
    sh_err err;
    sh_http_server_opts opts = server_opts();
    CHECK_OK(sh_http_tls_open(cert, key, &opts.tls, &err), err);
    serve(&opts);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    check_tls_half_closed(ctx, "GET /later HTTP/1.1\r\n" HOST "\r\n", "at last");
    check_tls_half_closed(ctx, "GET /stream HTTP/1.1\r\n" HOST "\r\n", "0\r\n\r\n");
    check_tls_half_closed(ctx, "GET /now HTTP/1.0\r\n\r\n", "body 0");
    SSL_CTX_free(ctx);
    serve_end();
    sh_http_tls_close(opts.tls);
    unlink(cert);
    unlink(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_a_client_that_has_closed_its_side),
        cmocka_unit_test(notices_a_client_that_has_closed_all),
        cmocka_unit_test(refuses_at_the_head_and_lets_the_answer_be_read),
        cmocka_unit_test(serves_clients_with_a_key_when_others_block_the_connections),
        cmocka_unit_test(closes_those_first_that_have_waited_longest_without_a_key),
        cmocka_unit_test(takes_new_connections_when_busy_ones_are_done),
        cmocka_unit_test(caps_the_connections_of_one_address),
        cmocka_unit_test(sends_foreign_pages_and_names_away),
        cmocka_unit_test(slows_wrong_keys_down_and_no_others),
        cmocka_unit_test(bounds_all_bodies_together),
        cmocka_unit_test(knows_clients_by_key_or_by_address),
        cmocka_unit_test(names_what_it_does_not_have),
        cmocka_unit_test(answers_over_tls_when_one_side_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
