#include "http/chunked.h"

#include "test.h"

/* Feeds a message in pieces of `piece` bytes; returns the status, or 1 if it is incomplete. */
static int feed(const char *message, size_t piece, char *body, size_t body_size, size_t *rest)
{
    sh_http_chunked chunked = {0};
    struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();
    bool done = false;
    sh_http_refusal refusal = {0, NULL};
    size_t len = strlen(message);
    for (size_t at = 0; at < len && !done && refusal.status == 0; at += piece) {
        evbuffer_add(in, message + at, piece < len - at ? piece : len - at);
        refusal = sh_http_chunked_read(&chunked, in, out, body_size - 1, &done);
    }
    size_t got = evbuffer_get_length(out);
    evbuffer_remove(out, body, got);
    body[got] = '\0';
    *rest = evbuffer_get_length(in);
    evbuffer_free(in);
    evbuffer_free(out);
    return refusal.status != 0 ? refusal.status : done ? 0 : 1;
}

static char body[64];
static size_t rest;

#define CHECK_FEED(message, status)                                                                \
    for (size_t piece = 1; piece < 70; piece++)                                                    \
    assert_int_equal(feed(message, piece, body, sizeof(body), &rest), status)

TEST(joins_chunks_however_they_are_cut)
{
    UNUSED_STATE;
    for (size_t piece = 1; piece < 60; piece++) {
        static const char message[] = "5\r\nhello\r\n1;x=\"y\"\r\n,\r\n6 \r\n world\r\n0\r\n\r\n";
        assert_int_equal(feed(message, piece, body, sizeof(body), &rest), 0);
        assert_string_equal(body, "hello, world");
    }
}

TEST(leaves_what_follows_the_body)
{
    UNUSED_STATE;
    assert_int_equal(feed("1\r\na\r\n0\r\n\r\nGET /", 100, body, sizeof(body), &rest), 0);
    assert_int_equal(rest, 5);
}

TEST(reads_over_trailers)
{
    UNUSED_STATE;
    CHECK_FEED("1\r\na\r\n0\r\nDigest: x\r\nOther: y\r\n\r\n", 0);
}

TEST(refuses_sizes_that_are_not_hexadecimal)
{
    UNUSED_STATE;
    CHECK_FEED("x\r\na\r\n0\r\n\r\n", 400);
    CHECK_FEED("-1\r\na\r\n0\r\n\r\n", 400);
    CHECK_FEED("0x1\r\na\r\n0\r\n\r\n", 400);
    CHECK_FEED("\r\na\r\n0\r\n\r\n", 400);
    CHECK_FEED("1 1\r\na\r\n0\r\n\r\n", 400);
    CHECK_FEED("FFFFFFFFFFFFFFFFF\r\na\r\n0\r\n\r\n", 400);
}

TEST(refuses_chunks_longer_than_they_say)
{
    UNUSED_STATE;
    CHECK_FEED("1\r\nab\r\n0\r\n\r\n", 400);
}

TEST(refuses_bodies_over_the_limit)
{
    UNUSED_STATE;
    CHECK_FEED("40\r\n", 413);
    CHECK_FEED("FFFFFFFFFFFFFFF\r\n", 413);
    CHECK_FEED("20\r\n01234567890123456789012345678901\r\n20\r\n", 413);
}

TEST(bounds_lines_that_do_not_end)
{
    UNUSED_STATE;
    char message[400];
    memset(message, '1', sizeof(message));
    message[1] = ';';
    message[sizeof(message) - 1] = '\0';
    assert_int_equal(feed(message, 7, body, sizeof(body), &rest), 400);
}

TEST(waits_for_the_last_byte)
{
    UNUSED_STATE;
    CHECK_FEED("1\r\na\r\n0\r\n\r", 1);
    CHECK_FEED("1\r\na\r\n0\r\n", 1);
    CHECK_FEED("5\r\nhell", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_chunks_however_they_are_cut),
        cmocka_unit_test(leaves_what_follows_the_body),
        cmocka_unit_test(reads_over_trailers),
        cmocka_unit_test(refuses_sizes_that_are_not_hexadecimal),
        cmocka_unit_test(refuses_chunks_longer_than_they_say),
        cmocka_unit_test(refuses_bodies_over_the_limit),
        cmocka_unit_test(bounds_lines_that_do_not_end),
        cmocka_unit_test(waits_for_the_last_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
