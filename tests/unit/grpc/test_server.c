/* Calls of one client, in order and at once, and of clients that want to do harm. */
#include "grpc_server.h"

static sh_buf out;

static int stopped(void **state)
{
    UNUSED_STATE;
    sh_buf_reset(&out);
    return 0;
}

TEST(a_call_is_answered_by_a_message_and_a_status)
{
    UNUSED_STATE;
    client c;
    server_start(server_opts());
    client_open(&c);
    call_send(&c, 1, "/t.T/Echo", "hello");
    answer_read(&c, 1, &out);
    assert_int_equal(out.len, SH_GRPC_PREFIX + 5);
    assert_memory_equal(out.ptr, "\0\0\0\0\5hello", out.len);
    check_trailer(&c, "grpc-status: 0\n");
    call_send(&c, 3, "/t.T/Echo", "");
    answer_read(&c, 3, &out);
    assert_int_equal(out.len, SH_GRPC_PREFIX);
    client_close(&c);
    server_stop();
}

TEST(an_error_is_trailers_alone_and_its_text_is_encoded)
{
    UNUSED_STATE;
    client c;
    server_start(server_opts());
    client_open(&c);
    call_send(&c, 1, "/t.T/Refuse", "x");
    answer_read(&c, 1, &out);
    assert_int_equal(out.len, 0);
    check_trailer(&c, ":status: 200\n");
    check_trailer(&c, "grpc-status: 9\n");
    check_trailer(&c, "grpc-message: 50 %25 so%0A\n");
    client_close(&c);
    server_stop();
}

TEST(what_is_wrong_with_a_call_has_a_code)
{
    UNUSED_STATE;
    static const struct {
        const char *path, *header, *value;
        const char *data; /* DATA with the end of the stream */
        size_t len;
        const char *code;
    } cases[] = {
        {"/t.T/None", NULL, NULL, "\0\0\0\0\0", 5, "grpc-status: 12\n"},
        {"/t.T/Echo", NULL, NULL, "\1\0\0\0\1x", 6, "grpc-status: 12\n"}, /* compressed */
        {"/t.T/Echo", NULL, NULL, "\7\0\0\0\1x", 6, "grpc-status: 13\n"},
        {"/t.T/Echo", NULL, NULL, "\0\3\40\0\1x", 6, "grpc-status: 8\n"}, /* 50 MiB and a byte */
        {"/t.T/Echo", NULL, NULL, "\0\0\0\0\5x", 6, "grpc-status: 3\n"},  /* cut */
        {"/t.T/Echo", NULL, NULL, "\0\0", 2, "grpc-status: 3\n"},
        {"/t.T/Echo", NULL, NULL, "\0\0\0\0\1xy", 7, "grpc-status: 12\n"}, /* two messages */
        {"/t.T/Echo", "grpc-timeout", "soon", "\0\0\0\0\0", 5, "grpc-status: 3\n"},
        {"/t.T/Hold", "grpc-timeout", "10m", "\0\0\0\0\0", 5, "grpc-status: 4\n"},
    };
    client c;
    server_start(server_opts());
    client_open(&c);
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        int32_t stream = (int32_t)(2 * i + 1);
        head_send(&c, stream, cases[i].path, cases[i].header, cases[i].value);
        frame_send(&c, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, stream, cases[i].data, cases[i].len);
        answer_read(&c, stream, &out);
        check_trailer(&c, cases[i].code);
    }
    assert_true(becomes(&gone_count, 1)); /* the handler of the call that was late */
    client_close(&c);
    server_stop();
}

TEST(a_token_is_required_if_there_is_one)
{
    UNUSED_STATE;
    client c;
    sh_err err;
    sh_http_keys *keys = sh_http_keys_create();
    sh_grpc_server_opts opts = server_opts();
    assert_int_equal(sh_http_keys_add_text(keys, "a-token-of-tests-4fZq81", &err), SH_OK);
    opts.keys = keys;
    server_start(opts);
    client_open(&c);
    call_send(&c, 1, "/t.T/Echo", "x");
    answer_read(&c, 1, &out);
    check_trailer(&c, "grpc-status: 16\n");
    head_send(&c, 3, "/t.T/Echo", "authorization", "Bearer a-token-of-tests-4fZq82");
    message_send(&c, 3, "x", 1);
    answer_read(&c, 3, &out);
    check_trailer(&c, "grpc-status: 16\n");
    head_send(&c, 5, "/t.T/Echo", "authorization", "Bearer a-token-of-tests-4fZq81");
    message_send(&c, 5, "x", 1);
    answer_read(&c, 5, &out);
    check_trailer(&c, "grpc-status: 0\n");
    client_close(&c);
    server_stop();
    sh_http_keys_free(keys);
}

TEST(streams_wait_for_the_windows_of_their_client)
{
    UNUSED_STATE;
    enum { MESSAGES = 2000, STREAMS = 4 };
    client c;
    size_t got[STREAMS] = {0};
    int open = STREAMS;
    server_start(server_opts());
    client_open(&c);
    for (int i = 0; i < STREAMS; i++) call_send(&c, 2 * i + 1, "/t.T/Flow", "2000");
    while (open > 0) {
        assert_true(frame_read(&c));
        if (c.type == NGHTTP2_DATA) got[c.stream / 2] += c.payload.len;
        if (c.type == NGHTTP2_HEADERS && (c.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
            check_trailer(&c, "grpc-status: 8\n");
            check_trailer(&c, "grpc-message: enough\n");
            open--;
        }
    }
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(got[i], (size_t)MESSAGES * (PIECE + SH_GRPC_PREFIX));
    client_close(&c);
    server_stop();
}

TEST(a_client_that_cancels_or_leaves_is_reported)
{
    UNUSED_STATE;
    client c;
    uint32_t code = htonl(NGHTTP2_CANCEL);
    server_start(server_opts());
    client_open(&c);
    call_send(&c, 1, "/t.T/Hold", "x");
    call_send(&c, 3, "/t.T/Hold", "x");
    assert_true(becomes(&held_count, 2));
    frame_send(&c, NGHTTP2_RST_STREAM, 0, 1, &code, sizeof(code));
    assert_true(becomes(&gone_count, 1));
    client_close(&c);
    assert_true(becomes(&gone_count, 2));
    server_stop();
}

TEST(a_client_that_does_not_read_is_given_up)
{
    UNUSED_STATE;
    client c;
    sh_grpc_server_opts opts = server_opts();
    opts.send_ms = 300;
    server_start(opts);
    client_open(&c);
    c.auto_window = false;
    call_send(&c, 1, "/t.T/Flow", "2000");
    assert_true(becomes(&gone_count, 1));
    assert_true(frame_await(&c, NGHTTP2_RST_STREAM));
    client_close(&c);
    server_stop();
}

TEST(half_open_connections_and_idle_ones_are_closed)
{
    UNUSED_STATE;
    client c, idle, silent;
    sh_grpc_server_opts opts = server_opts();
    opts.receive_ms = opts.idle_ms = 200;
    server_start(opts);
    client_dial(&silent);
    client_open(&idle);
    client_open(&c);
    head_send(&c, 1, "/t.T/Echo", NULL, NULL); /* and no message */
    answer_read(&c, 1, &out);
    check_trailer(&c, "grpc-status: 4\n");
    assert_true(frame_await(&idle, NGHTTP2_GOAWAY));
    assert_int_equal(goaway_code(&idle), NGHTTP2_NO_ERROR);
    assert_false(frame_read(&idle));
    while (frame_read(&silent)) continue; /* it gets the server's settings, then the end */
    client_close(&silent);
    client_close(&c);
    client_close(&idle);
    server_stop();
}

TEST(a_server_that_stops_lets_calls_finish)
{
    UNUSED_STATE;
    client c;
    server_start(server_opts());
    client_open(&c);
    head_send(&c, 1, "/t.T/Echo", NULL, NULL);
    call_send(&c, 3, "/t.T/Echo", "x");
    answer_read(&c, 3, &out); /* so the first has arrived */
    sh_trigger_poke(drain_wake);
    assert_true(frame_await(&c, NGHTTP2_GOAWAY));
    message_send(&c, 1, "late", 4);
    answer_read(&c, 1, &out);
    check_trailer(&c, "grpc-status: 0\n");
    while (frame_read(&c)) continue; /* it closes the connection */
    client_close(&c);
    server_stop();
}

/* Floods end with GOAWAY, ENHANCE_YOUR_CALM; how soon depends on the kind. */
static void flood(void (*send_one)(client *c, int i), int most)
{
    client c;
    server_start(server_opts());
    client_open(&c);
    for (int i = 0; i < most; i++) send_one(&c, i);
    assert_true(frame_await(&c, NGHTTP2_GOAWAY));
    assert_int_equal(goaway_code(&c), NGHTTP2_ENHANCE_YOUR_CALM);
    client_close(&c);
    client_open(&c); /* others are served */
    call_send(&c, 1, "/t.T/Echo", "x");
    answer_read(&c, 1, &out);
    check_trailer(&c, "grpc-status: 0\n");
    client_close(&c);
    server_stop();
}

static void reset_one(client *c, int i)
{
    uint32_t code = htonl(NGHTTP2_CANCEL);
    head_send(c, 2 * i + 1, "/t.T/Hold", NULL, NULL);
    frame_send(c, NGHTTP2_RST_STREAM, 0, 2 * i + 1, &code, sizeof(code));
}

static void ping_one(client *c, int i)
{
    (void)i;
    frame_send(c, NGHTTP2_PING, 0, 0, "12345678", 8);
}

static void settings_one(client *c, int i)
{
    (void)i;
    frame_send(c, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void window_one(client *c, int i)
{
    (void)i;
    window_open(c, 0, 1);
}

static void empty_one(client *c, int i)
{
    if (i == 0) head_send(c, 1, "/t.T/Echo", NULL, NULL);
    frame_send(c, NGHTTP2_DATA, 0, 1, NULL, 0);
}

TEST(rapid_resets_are_stopped)
{
    UNUSED_STATE;
    flood(reset_one, 400);
}

TEST(pings_settings_windows_and_empty_data_are_stopped)
{
    UNUSED_STATE;
    flood(ping_one, 3000);
    flood(settings_one, 3000);
    flood(window_one, 3000);
    flood(empty_one, 3000);
}

/* A header that fills the table, then many references of one byte each. */
TEST(a_bomb_of_headers_is_stopped)
{
    UNUSED_STATE;
    enum { VALUE = 3000, REFERENCES = 4000 };
    client c;
    uint8_t block[16384];
    char value[VALUE + 1];
    server_start(server_opts());
    client_open(&c);
    memset(value, 'v', VALUE);
    value[VALUE] = '\0';
    head_send(&c, 1, "/t.T/Echo", "x-bomb", value);
    nghttp2_nv list[] = {nv(":method", "POST"), nv(":scheme", "http"), nv(":path", "/t.T/Echo")};
    ssize_t len = nghttp2_hd_deflate_hd(c.deflater, block, sizeof(block), list, 3);
    assert_true(len > 0 && (size_t)len + REFERENCES < sizeof(block));
    memset(block + len, 0x80 | 62, REFERENCES); /* the newest entry of the table */
    frame_send(&c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 3, block, (size_t)len + REFERENCES);
    assert_true(frame_await(&c, NGHTTP2_GOAWAY));
    client_close(&c);
    server_stop();
}

TEST(endless_continuations_are_stopped)
{
    UNUSED_STATE;
    client c;
    server_start(server_opts());
    client_open(&c);
    frame_send(&c, NGHTTP2_HEADERS, 0, 1, "\x82", 1);
    for (int i = 0; i < 100; i++) frame_send(&c, NGHTTP2_CONTINUATION, 0, 1, "\x86", 1);
    assert_true(frame_await(&c, NGHTTP2_GOAWAY));
    client_close(&c);
    server_stop();
}

TEST(long_metadata_is_refused)
{
    UNUSED_STATE;
    client c;
    char value[8001];
    memset(value, 'v', 8000);
    value[8000] = '\0';
    server_start(server_opts());
    client_open(&c);
    head_send(&c, 1, "/t.T/Echo", "x-long", value);
    answer_read(&c, 1, &out);
    check_trailer(&c, "grpc-status: 8\n");
    client_close(&c);
    server_stop();
}

TEST(noise_is_answered_by_the_end)
{
    UNUSED_STATE;
    client c;
    server_start(server_opts());
    client_open(&c);
    bytes_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n GET / HTTP/1.1\r\n\r\n", 47);
    while (frame_read(&c)) continue;
    client_close(&c);
    server_stop();
}

TEST(a_full_server_closes_idle_connections_first)
{
    UNUSED_STATE;
    enum { MOST = 8 };
    client busy, idle[MOST];
    server_start(server_opts());
    client_open(&busy);
    call_send(&busy, 1, "/t.T/Hold", "x");
    assert_true(becomes(&held_count, 1));
    for (int i = 0; i < MOST; i++) {
        client_open(&idle[i]);
        call_send(&idle[i], 1, "/t.T/Echo", "x");
        answer_read(&idle[i], 1, &out);
    }
    while (frame_read(&idle[0])) continue; /* the oldest was closed */
    call_send(&busy, 3, "/t.T/Echo", "x");
    answer_read(&busy, 3, &out);
    client_close(&busy);
    for (int i = 0; i < MOST; i++) client_close(&idle[i]);
    server_stop();
}

TEST(calls_of_all_connections_together_are_bounded)
{
    UNUSED_STATE;
    enum { EACH = 16, ALL = 24 };
    client c, other;
    uint32_t code;
    server_start(server_opts());
    client_open(&c);
    client_open(&other);
    for (int i = 0; i < EACH; i++) call_send(&c, 2 * i + 1, "/t.T/Hold", "x");
    assert_true(becomes(&held_count, EACH));
    for (int i = 0; i <= ALL - EACH; i++) call_send(&other, 2 * i + 1, "/t.T/Hold", "x");
    assert_true(frame_await(&other, NGHTTP2_RST_STREAM));
    assert_int_equal(other.stream, 2 * (ALL - EACH) + 1);
    memcpy(&code, other.payload.ptr, sizeof(code));
    assert_int_equal(ntohl(code), NGHTTP2_REFUSED_STREAM);
    client_close(&c); /* makes room */
    assert_true(becomes(&gone_count, EACH));
    call_send(&other, 101, "/t.T/Echo", "x");
    answer_read(&other, 101, &out);
    check_trailer(&other, "grpc-status: 0\n");
    client_close(&other);
    server_stop();
}

TEST(long_messages_go_both_ways)
{
    UNUSED_STATE;
    size_t len = SLOW ? 4 << 20 : 20 << 20;
    client c;
    char *text = malloc(len);
    memset(text, 'a', len);
    server_start(server_opts());
    client_open(&c);
    head_send(&c, 1, "/t.T/Echo", NULL, NULL);
    /* As much as the window of the connection allows; that of the stream is larger. */
    uint8_t prefix[SH_GRPC_PREFIX] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
                                      (uint8_t)(len >> 8), (uint8_t)len};
    size_t window = 65535, at = 0;
    frame_send(&c, NGHTTP2_DATA, 0, 1, prefix, sizeof(prefix));
    window -= sizeof(prefix);
    while (at < len) {
        size_t part = len - at < 16384 ? len - at : 16384;
        while (window < part) {
            assert_true(frame_await(&c, NGHTTP2_WINDOW_UPDATE));
            uint32_t more;
            memcpy(&more, c.payload.ptr, sizeof(more));
            if (c.stream == 0) window += ntohl(more);
        }
        frame_send(&c, NGHTTP2_DATA, at + part == len ? NGHTTP2_FLAG_END_STREAM : 0, 1, text + at,
                   part);
        window -= part;
        at += part;
    }
    answer_read(&c, 1, &out);
    assert_int_equal(out.len, len + SH_GRPC_PREFIX);
    assert_memory_equal(out.ptr + SH_GRPC_PREFIX, text, len);
    free(text);
    client_close(&c);
    server_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_answered_by_a_message_and_a_status),
        cmocka_unit_test(an_error_is_trailers_alone_and_its_text_is_encoded),
        cmocka_unit_test(what_is_wrong_with_a_call_has_a_code),
        cmocka_unit_test(a_token_is_required_if_there_is_one),
        cmocka_unit_test(streams_wait_for_the_windows_of_their_client),
        cmocka_unit_test(a_client_that_cancels_or_leaves_is_reported),
        cmocka_unit_test(a_client_that_does_not_read_is_given_up),
        cmocka_unit_test(half_open_connections_and_idle_ones_are_closed),
        cmocka_unit_test(a_server_that_stops_lets_calls_finish),
        cmocka_unit_test(rapid_resets_are_stopped),
        cmocka_unit_test(pings_settings_windows_and_empty_data_are_stopped),
        cmocka_unit_test(a_bomb_of_headers_is_stopped),
        cmocka_unit_test(endless_continuations_are_stopped),
        cmocka_unit_test(long_metadata_is_refused),
        cmocka_unit_test(noise_is_answered_by_the_end),
        cmocka_unit_test(a_full_server_closes_idle_connections_first),
        cmocka_unit_test(calls_of_all_connections_together_are_bounded),
        cmocka_unit_test(long_messages_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, stopped);
}
