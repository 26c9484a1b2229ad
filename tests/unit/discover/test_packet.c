/* Packets of discovery: what they hold, and what is not opened. */
#include "discover/packet.h"

#include "test.h"

static sh_packet_key key, other;

static int make_keys(void **state)
{
    UNUSED_STATE;
    sh_packet_key_init(&key, "00112233445566778899aabbccddeef0");
    sh_packet_key_init(&other, "10112233445566778899aabbccddeef0");
    return 0;
}

static sh_addr addr_of(const char *text)
{
    sh_addr addr;
    sh_err err;
    CHECK_OK(sh_addr_parse(text, &addr, &err), err);
    return addr;
}

static sh_answer_packet full_answer(void)
{
    sh_answer_packet a = {.rank = 3, .world = 64, .port = 32323, .addr_count = SH_LANES_MAX};
    memset(a.nonce, 7, sizeof(a.nonce));
    memset(a.node, 9, sizeof(a.node));
    memset(a.host, 'h', sizeof(a.host) - 1);
    memset(a.model, 'm', sizeof(a.model) - 1);
    for (int i = 0; i < SH_LANES_MAX; i++)
        a.addr[i] = addr_of(i % 2 == 0 ? "10.0.0.1:32323" : "[2001:db8::1]:32323");
    return a;
}

TEST(what_was_sealed_is_opened)
{
    UNUSED_STATE;
    uint8_t bytes[SH_PACKET_LEN];
    sh_packet packet;
    sh_err err;
    sh_answer_packet answer = full_answer();
    sh_answer_seal(&key, &answer, bytes);
    assert_true(sh_packet_is_ours(&key, bytes, sizeof(bytes)));
    CHECK_OK(sh_packet_open(&key, bytes, &packet, &err), err);
    assert_false(packet.is_query);
    assert_memory_equal(&packet.as.answer, &answer, sizeof(answer));
    sh_query query = {.nonce = {1, 2, 3}, .seek = SH_SEEK_ALL};
    sh_query_seal(&key, &query, bytes);
    CHECK_OK(sh_packet_open(&key, bytes, &packet, &err), err);
    assert_true(packet.is_query);
    assert_memory_equal(&packet.as.query, &query, sizeof(query));
}

TEST(nothing_in_a_packet_can_be_read_without_the_token)
{
    UNUSED_STATE;
    uint8_t bytes[SH_PACKET_LEN], again[SH_PACKET_LEN];
    sh_answer_packet answer = full_answer();
    sh_answer_seal(&key, &answer, bytes);
    sh_answer_seal(&key, &answer, again);
    for (size_t i = 0; i + 8 <= sizeof(bytes); i++) {
        assert_memory_not_equal(bytes + i, "hhhhhhhh", 8);
        assert_memory_not_equal(bytes + i, "mmmmmmmm", 8);
    }
    assert_memory_not_equal(bytes + 16, again + 16, 12); /* and each looks different */
    assert_memory_not_equal(bytes + 28, again + 28, 64);
}

TEST(another_network_is_told_apart_without_opening)
{
    UNUSED_STATE;
    uint8_t bytes[SH_PACKET_LEN + 1] = {0};
    sh_query query = {.seek = SH_SEEK_SERVER};
    sh_query_seal(&other, &query, bytes);
    assert_false(sh_packet_is_ours(&key, bytes, SH_PACKET_LEN));
    sh_query_seal(&key, &query, bytes);
    assert_true(sh_packet_is_ours(&key, bytes, SH_PACKET_LEN));
    assert_false(sh_packet_is_ours(&key, bytes, SH_PACKET_LEN - 1));
    assert_false(sh_packet_is_ours(&key, bytes, SH_PACKET_LEN + 1));
    assert_false(sh_packet_is_ours(&key, bytes, 0));
}

/* Also by somebody who has seen the mark of the network. */
TEST(every_changed_bit_is_noticed)
{
    UNUSED_STATE;
    uint8_t bytes[SH_PACKET_LEN];
    sh_query query = {.nonce = {5}, .seek = SH_SEEK_SERVER};
    sh_query_seal(&key, &query, bytes);
    for (size_t i = 0; i < 8 * sizeof(bytes); i += SLOW ? 13 : 1) {
        sh_packet packet;
        sh_err err;
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_false(sh_packet_is_ours(&key, bytes, sizeof(bytes)) &&
                     sh_packet_open(&key, bytes, &packet, &err) == SH_OK);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    sh_packet packet;
    sh_err err;
    memcpy(bytes + 8, other.network, sizeof(other.network));
    assert_int_equal(sh_packet_open(&other, bytes, &packet, &err), SH_ERR_AUTH);
}

TEST(a_query_cannot_be_passed_off_as_an_answer)
{
    UNUSED_STATE;
    uint8_t bytes[SH_PACKET_LEN];
    sh_query query = {.seek = SH_SEEK_SERVER};
    sh_packet packet;
    sh_err err;
    sh_query_seal(&key, &query, bytes);
    bytes[5] = 2;
    assert_true(sh_packet_is_ours(&key, bytes, sizeof(bytes)));
    assert_int_equal(sh_packet_open(&key, bytes, &packet, &err), SH_ERR_AUTH);
}

TEST(a_malformed_body_is_refused)
{
    UNUSED_STATE;
    static const struct {
        size_t at;
        uint8_t value;
    } faults[] = {
        {32, 65},   /* the rank */
        {36, 65},   /* the size of the group */
        {42, 64},   /* the length of the host's name */
        {46, 0xff}, /* the name: not UTF-8 */
        {46, 0},
        {176, 9}, /* how many addresses */
        {177, 5}, /* the length of one */
        {SH_PACKET_BODY_LEN - 1, 1},
    };
    uint8_t good[SH_PACKET_BODY_LEN], body[SH_PACKET_BODY_LEN];
    sh_packet packet = {.as.answer = full_answer()}, read;
    sh_err err;
    sh_packet_body_write(&packet, good);
    CHECK_OK(sh_packet_body_read(false, good, &read, &err), err);
    for (size_t i = 0; i < SH_COUNT_OF(faults); i++) {
        memcpy(body, good, sizeof(body));
        body[faults[i].at] = faults[i].value;
        CHECK_FAILS(sh_packet_body_read(false, body, &read, &err), err, "malformed answer");
    }
    memset(body, 0, sizeof(body));
    CHECK_FAILS(sh_packet_body_read(true, body, &read, &err), err, "malformed query");
    packet.as.answer.addr[1] = addr_of("[fe80::1]:32323");
    sh_packet_body_write(&packet, body);
    CHECK_FAILS(sh_packet_body_read(false, body, &read, &err), err, "malformed answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sealed_is_opened),
        cmocka_unit_test(nothing_in_a_packet_can_be_read_without_the_token),
        cmocka_unit_test(another_network_is_told_apart_without_opening),
        cmocka_unit_test(every_changed_bit_is_noticed),
        cmocka_unit_test(a_query_cannot_be_passed_off_as_an_answer),
        cmocka_unit_test(a_malformed_body_is_refused),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
