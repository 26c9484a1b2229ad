/* Known request smuggling attempts, and what ordinary clients send. */
#include "base/status.h"
#include "http/head.h"

#include "test.h"

static sh_http_head head;
static char text[4096];

static sh_http_refusal parse(const char *message)
{
    strcpy(text, message);
    return sh_http_head_parse(text, strlen(text), &head);
}

#define CHECK_REFUSED(message, code) assert_int_equal(parse(message).status, code)
#define CHECK_TAKEN(message)                                                                       \
    do {                                                                                           \
        sh_http_refusal refusal = parse(message);                                                  \
        if (refusal.status != 0) fail_msg("%s: %s", message, refusal.why);                         \
    } while (0)

TEST(reads_what_clients_send)
{
    UNUSED_STATE;
    CHECK_TAKEN("POST /v1/chat/completions?a=1&b HTTP/1.1\r\nHost: localhost:8100\r\n"
                "Content-Length: 12\r\nX-Odd:\t spaced out \t\r\nAccept:\r\n\r\n");
    assert_int_equal(head.method, SH_HTTP_POST);
    assert_true(sh_str_is(head.path, "/v1/chat/completions"));
    assert_true(sh_str_is(head.query, "a=1&b"));
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.header_count, 4);
    assert_int_equal(head.content_length, 12);
    assert_true(head.keep_alive);
    assert_true(sh_str_is(sh_http_head_find(&head, "x-odd"), "spaced out"));
    assert_int_equal(sh_http_head_find(&head, "accept").len, 0);
    assert_int_equal(sh_http_head_find(&head, "absent").len, 0);
}

TEST(knows_when_the_connection_stays_open)
{
    UNUSED_STATE;
    CHECK_TAKEN("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n");
    assert_false(head.keep_alive);
    CHECK_TAKEN("GET / HTTP/1.0\r\n\r\n");
    assert_false(head.keep_alive);
    CHECK_TAKEN("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    assert_true(head.keep_alive);
}

TEST(takes_targets_as_proxies_write_them)
{
    UNUSED_STATE;
    CHECK_TAKEN("GET http://example.com:80/a/b?c HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_true(sh_str_is(head.path, "/a/b"));
    assert_true(sh_str_is(head.query, "c"));
    CHECK_TAKEN("GET http://example.com HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_true(sh_str_is(head.path, "/"));
    CHECK_TAKEN("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(sh_str_is(head.path, "*"));
    CHECK_TAKEN("GET /a?b=http://c/d HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(sh_str_is(head.path, "/a"));
}

TEST(refuses_two_lengths_of_one_body)
{
    UNUSED_STATE;
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                  400);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\n",
                  400);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n",
                  400);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                  "Transfer-Encoding: identity\r\n\r\n",
                  400);
}

TEST(refuses_lengths_that_are_no_numbers)
{
    UNUSED_STATE;
    static const char *const values[] = {
        "", "-1", "+5", "5,5", "5 5", "0x10", "1e3", "5;", "99999999999999999999", "½"};
    for (size_t i = 0; i < SH_COUNT_OF(values); i++) {
        char message[256];
        snprintf(message, sizeof(message),
                 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n", values[i]);
        CHECK_REFUSED(message, 400);
    }
}

TEST(refuses_transfer_codings_other_than_chunked)
{
    UNUSED_STATE;
    CHECK_TAKEN("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert_true(head.chunked);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501);
    CHECK_REFUSED("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

TEST(refuses_lines_that_others_read_otherwise)
{
    UNUSED_STATE;
    CHECK_REFUSED("GET / HTTP/1.1\nHost: a\n\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nA: b\n\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nA: b\rC: d\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nA: b\x01\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400);
}

TEST(refuses_request_lines_that_are_not_three_words)
{
    UNUSED_STATE;
    CHECK_REFUSED("GET /\r\n\r\n", 400);
    CHECK_REFUSED("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("G\"T / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("GET / http/1.1\r\nHost: a\r\n\r\n", 400);
    CHECK_REFUSED("PRI * HTTP/2.0\r\n\r\n", 505);
    CHECK_REFUSED("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505);
}

TEST(asks_for_exactly_one_host)
{
    UNUSED_STATE;
    CHECK_REFUSED("GET / HTTP/1.1\r\n\r\n", 400);
    CHECK_REFUSED("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    CHECK_TAKEN("GET / HTTP/1.0\r\n\r\n");
}

TEST(knows_one_expectation)
{
    UNUSED_STATE;
    CHECK_TAKEN("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n");
    assert_true(head.expect_continue);
    CHECK_REFUSED("POST / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\n\r\n", 417);
}

TEST(bounds_the_number_of_headers)
{
    UNUSED_STATE;
    char message[4096] = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 1; i < SH_HTTP_HEADERS_MAX; i++) strcat(message, "A: b\r\n");
    size_t len = strlen(message);
    strcat(message, "\r\n");
    CHECK_TAKEN(message);
    message[len] = '\0';
    strcat(message, "A: b\r\n\r\n");
    CHECK_REFUSED(message, 431);
}

TEST(refuses_zero_bytes)
{
    UNUSED_STATE;
    static const char message[] = "GET / HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n";
    memcpy(text, message, sizeof(message));
    assert_int_equal(sh_http_head_parse(text, sizeof(message) - 1, &head).status, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_clients_send),
        cmocka_unit_test(knows_when_the_connection_stays_open),
        cmocka_unit_test(takes_targets_as_proxies_write_them),
        cmocka_unit_test(refuses_two_lengths_of_one_body),
        cmocka_unit_test(refuses_lengths_that_are_no_numbers),
        cmocka_unit_test(refuses_transfer_codings_other_than_chunked),
        cmocka_unit_test(refuses_lines_that_others_read_otherwise),
        cmocka_unit_test(refuses_request_lines_that_are_not_three_words),
        cmocka_unit_test(asks_for_exactly_one_host),
        cmocka_unit_test(knows_one_expectation),
        cmocka_unit_test(bounds_the_number_of_headers),
        cmocka_unit_test(refuses_zero_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
