#include "net/peer_messages.h"

#include "test.h"

static sh_hello sample_hello(void)
{
    sh_hello h = {.protocol = SH_PEER_PROTOCOL,
                  .rank = 2,
                  .world = 5,
                  .version = "0.1.0",
                  .group = "herring",
                  .life = 0xfedcba9876543210,
                  .epoch = 0x0123456789abcdef,
                  .to = 2,
                  .use = SH_USE_DATA,
                  .socket = 1,
                  .lanes = 3,
                  .plain_data = true,
                  .listen = {{"10.0.0.1:9000", "[::1]:1"}, 2, true}};
    memset(h.model, 0xaa, sizeof(h.model));
    memset(h.host, 0xbb, sizeof(h.host));
    return h;
}

static const uint8_t *payload_of(const sh_buf *frame, sh_frame_type type, size_t *len)
{
    sh_frame_head head;
    sh_err err;
    CHECK_OK(sh_frame_head_unpack((const uint8_t *)frame->ptr, &head, &err), err);
    assert_int_equal(head.type, type);
    assert_int_equal(head.len + SH_FRAME_HEAD_LEN, frame->len);
    *len = head.len;
    return (const uint8_t *)frame->ptr + SH_FRAME_HEAD_LEN;
}

TEST(a_hello_survives_packing)
{
    UNUSED_STATE;
    sh_hello in = sample_hello();
    sh_hello out;
    sh_buf buf = {0};
    sh_err err;
    size_t len;
    sh_hello_pack(&buf, SH_FRAME_HELLO, &in);
    const uint8_t *payload = payload_of(&buf, SH_FRAME_HELLO, &len);
    CHECK_OK(sh_hello_unpack(payload, len, &out, &err), err);
    assert_memory_equal(&in, &out, sizeof(in));
    sh_buf_reset(&buf);
}

/* A payload that is truncated anywhere, or too long, is rejected, and nothing is read past its end.
 */
TEST(a_cut_or_longer_payload_is_refused)
{
    UNUSED_STATE;
    sh_hello hello = sample_hello();
    sh_rank_table *table = calloc(2, sizeof(*table));
    sh_buf buf = {0};
    sh_err err;
    size_t len;
    sh_hello_pack(&buf, SH_FRAME_HELLO, &hello);
    const uint8_t *payload = payload_of(&buf, SH_FRAME_HELLO, &len);
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, payload, cut);
        CHECK_FAILS(sh_hello_unpack(copy, cut, &hello, &err), err, "hello");
        free(copy);
    }
    sh_buf_add_char(&buf, 0);
    CHECK_FAILS(sh_hello_unpack((uint8_t *)buf.ptr + SH_FRAME_HEAD_LEN, len + 1, &hello, &err), err,
                "hello");

    *table = (sh_rank_table){.epoch = 7, .count = 2};
    table->row[0].addrs = hello.listen;
    table->row[1].addrs = hello.listen;
    sh_buf_clear(&buf);
    sh_rank_table_pack(&buf, table);
    payload = payload_of(&buf, SH_FRAME_TABLE, &len);
    CHECK_OK(sh_rank_table_unpack(payload, len, &table[1], &err), err);
    assert_int_equal(table[1].epoch, 7);
    assert_string_equal(table[1].row[1].addrs.text[1], "[::1]:1");
    for (size_t cut = 0; cut < len; cut++)
        CHECK_FAILS(sh_rank_table_unpack(payload, cut, &table[1], &err), err, "table");
    sh_buf_reset(&buf);
    free(table);
}

static sh_offers sample_offers(void)
{
    sh_offers o = {.rank = 2, .wanted = "shm", .count = 2};
    o.offer[0] = (sh_offer){.transport = "shm", .state = SH_OFFER_MADE, .body_len = 3};
    memcpy(o.offer[0].body, "\0\1\2", 3);
    o.offer[1] = (sh_offer){.transport = "rdma", .why = "no device"};
    return o;
}

TEST(offers_come_back_and_are_checked)
{
    UNUSED_STATE;
    sh_offers in = sample_offers(), out;
    sh_buf buf = {0};
    sh_err err;
    size_t len;
    sh_offers_pack(&buf, &in);
    const uint8_t *payload = payload_of(&buf, SH_FRAME_OFFERS, &len);
    CHECK_OK(sh_offers_unpack(payload, len, &out, &err), err);
    assert_memory_equal(&in, &out, sizeof(in));
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, payload, cut);
        CHECK_FAILS(sh_offers_unpack(copy, cut, &out, &err), err, "offers");
        free(copy);
    }
    /* rank, wanted, count, then: name, state, why, length of the body */
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{0, SH_RANKS_MAX}, {9, SH_TRANSPORTS_MAX + 1}, {15, SH_OFFER_END}, {19, 0xff}};
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        uint8_t *copy = malloc(len);
        memcpy(copy, payload, len);
        copy[bad[i].at] = bad[i].value;
        CHECK_FAILS(sh_offers_unpack(copy, len, &out, &err), err, "offers");
        free(copy);
    }
    sh_buf_reset(&buf);
}

TEST(a_hello_of_another_protocol_still_says_who_and_which_version)
{
    UNUSED_STATE;
    sh_hello mine = sample_hello();
    sh_hello theirs = sample_hello();
    sh_hello out;
    sh_buf buf = {0};
    sh_err err;
    size_t len;
    theirs.protocol = 99;
    snprintf(theirs.version, sizeof(theirs.version), "9.0.0");
    sh_hello_pack(&buf, SH_FRAME_HELLO, &theirs);
    sh_buf_add_text(&buf, "what a later version may add");
    const uint8_t *payload = (const uint8_t *)buf.ptr + SH_FRAME_HEAD_LEN;
    len = buf.len - SH_FRAME_HEAD_LEN;
    CHECK_OK(sh_hello_unpack(payload, len, &out, &err), err);
    CHECK_FAILS(sh_hello_compare(&mine, &out, &err), err, "rank 2 has version 9.0.0");
    snprintf(out.version, sizeof(out.version), "%s", mine.version);
    CHECK_FAILS(sh_hello_compare(&mine, &out, &err), err, "link protocol 99");
    sh_buf_reset(&buf);
}

TEST(a_rank_without_a_model_fits_any_model_but_not_none)
{
    UNUSED_STATE;
    sh_hello mine = sample_hello(), theirs = sample_hello();
    sh_err err;
    sh_model_id_set_any(theirs.model);
    assert_true(sh_model_id_is_any(theirs.model));
    CHECK_OK(sh_hello_compare(&mine, &theirs, &err), err);
    CHECK_OK(sh_hello_compare(&theirs, &mine, &err), err);
    sh_model_id_set_any(mine.model); /* two such ranks */
    CHECK_OK(sh_hello_compare(&mine, &theirs, &err), err);
    memset(mine.model, 0, sizeof(mine.model)); /* a group that only tests links */
    CHECK_FAILS(sh_hello_compare(&mine, &theirs, &err), err, "model");
    memset(mine.model, 0xaa, sizeof(mine.model));
    memset(theirs.model, 0xab, sizeof(theirs.model));
    CHECK_FAILS(sh_hello_compare(&mine, &theirs, &err), err, "model");
}

TEST(heads_that_are_no_frames_are_refused)
{
    UNUSED_STATE;
    static const uint8_t bad[][SH_FRAME_HEAD_LEN] = {
        {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T'}, /* another protocol */
        {0x5f, 0, 0, 0, 0, 0, 0, 0},              /* no type */
        {0x5f, 99, 0, 0, 0, 0, 0, 0},             /* an unknown type */
        {0x5f, 1, 1, 0, 0, 0, 0, 0},              /* reserved bytes are in use */
        {0x5f, 1, 0, 0, 1, 0, 1, 0},              /* longer than any frame */
        {0x5f, 1, 0, 0, 0xff, 0xff, 0xff, 0xff},
    };
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        sh_frame_head head;
        sh_err err;
        CHECK_FAILS(sh_frame_head_unpack(bad[i], &head, &err), err, "not a Shoal frame");
    }
}

TEST(notices_and_beats_come_back_and_long_texts_are_cut_at_a_character)
{
    UNUSED_STATE;
    sh_notice in;
    sh_notice out;
    sh_heartbeat beat = {
        .progress = 1ull << 40, .silence_ms = 2000, .load = {1ull << 33, 1ull << 34, 77}};
    sh_heartbeat beat_out;
    sh_buf buf = {0};
    sh_err err;
    size_t len;
    char text[1024] = "";
    for (int i = 0; i < 300; i++) strcat(text, "\xc3\xa9");
    sh_notice_set(&in, 3, text);
    sh_notice_pack(&buf, SH_FRAME_ABORT, &in);
    const uint8_t *payload = payload_of(&buf, SH_FRAME_ABORT, &len);
    CHECK_OK(sh_notice_unpack(payload, len, &out, &err), err);
    assert_int_equal(out.rank, 3);
    assert_int_equal(strlen(out.text), 398);
    sh_buf_clear(&buf);
    sh_heartbeat_pack(&buf, &beat);
    payload = payload_of(&buf, SH_FRAME_HEARTBEAT, &len);
    CHECK_OK(sh_heartbeat_unpack(payload, len, &beat_out, &err), err);
    assert_int_equal(beat_out.progress, beat.progress);
    assert_int_equal(beat_out.silence_ms, 2000);
    assert_memory_equal(&beat_out.load, &beat.load, sizeof(beat.load));
    sh_notice_set(&in, 1000, "x");
    assert_int_equal(in.rank, -1);
    sh_buf_reset(&buf);
}

TEST(an_op_head_is_little_endian_and_checked)
{
    UNUSED_STATE;
    sh_op_head in = {.kind = 3, .group = 0x1122334455667788, .seq = 5, .size = 1ull << 33};
    sh_op_head out;
    uint8_t raw[SH_OP_HEAD_LEN];
    sh_err err;
    sh_op_head_pack(&in, raw);
    assert_memory_equal(raw, "SHO1\3\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\5", 17);
    CHECK_OK(sh_op_head_unpack(raw, &out, &err), err);
    assert_int_equal(out.size, in.size);
    raw[0] ^= 1;
    CHECK_FAILS(sh_op_head_unpack(raw, &out, &err), err, "not an operation header");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_survives_packing),
        cmocka_unit_test(a_cut_or_longer_payload_is_refused),
        cmocka_unit_test(offers_come_back_and_are_checked),
        cmocka_unit_test(a_hello_of_another_protocol_still_says_who_and_which_version),
        cmocka_unit_test(a_rank_without_a_model_fits_any_model_but_not_none),
        cmocka_unit_test(heads_that_are_no_frames_are_refused),
        cmocka_unit_test(notices_and_beats_come_back_and_long_texts_are_cut_at_a_character),
        cmocka_unit_test(an_op_head_is_little_endian_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
