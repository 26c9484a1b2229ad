/* Messages of strangers: texts, sizes, and what can be seen without unpacking. */
#include "grpc/frame.h"
#include "grpc/message.h"

#include "test.h"

#include "grpc/backend.pb-c.h"

static sh_arena arena;
static sh_err err;

static sh_status unpack(const void *wire, size_t len, Backend__PredictOptions **out)
{
    ProtobufCMessage *message = NULL;
    sh_arena_reset(&arena);
    sh_status status = sh_message_unpack(&backend__predict_options__descriptor, (sh_str){wire, len},
                                         &arena, &message, &err);
    *out = (Backend__PredictOptions *)message;
    return status;
}

static int arena_end(void **state)
{
    UNUSED_STATE;
    sh_arena_reset(&arena);
    return 0;
}

TEST(a_message_is_packed_and_unpacked)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT, *out;
    char *stops[] = {"a", "", "\xC3\xA9"};
    sh_buf wire = {0};
    in.prompt = "text";
    in.temperature = 0.5F;
    in.n_stopprompts = 3;
    in.stopprompts = stops;
    sh_message_frame(&in.base, &wire);
    assert_int_equal(unpack(wire.ptr + SH_GRPC_PREFIX, wire.len - SH_GRPC_PREFIX, &out), SH_OK);
    assert_string_equal(out->prompt, "text");
    assert_string_equal(out->stopprompts[2], "\xC3\xA9");
    assert_true(out->temperature == 0.5F);
    sh_buf_reset(&wire);
}

TEST(texts_that_are_none_are_refused_by_name)
{
    UNUSED_STATE;
    static const struct {
        const char *wire;
        size_t len;
        const char *field;
    } cases[] = {
        {"\x0A\3a\0b", 5, "PredictOptions.Prompt has a zero byte"},
        {"\x0A\2\xC3\x28", 4, "PredictOptions.Prompt is not UTF-8"},
        {"\x6A\1a\x6A\1\xFF", 6, "PredictOptions.StopPrompts is not UTF-8"},
        {"\xE2\2\3\x0A\1\x80", 6, "Message.role is not UTF-8"},
        {"\x0A\5a", 3, "not a valid PredictOptions"},
        {"\xFF", 1, "not a valid PredictOptions"},
    };
    Backend__PredictOptions *out;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        assert_int_equal(unpack(cases[i].wire, cases[i].len, &out), SH_ERR_INPUT);
        if (strstr(err.text, cases[i].field) == NULL)
            fail_msg("'%s' is not in '%s'", cases[i].field, err.text);
    }
}

/* Two bytes on the wire, a hundred in memory. */
TEST(a_bomb_of_empty_messages_is_refused)
{
    UNUSED_STATE;
    size_t len = 3 * (size_t)(SLOW ? 500000 : 2000000);
    char *wire = malloc(len);
    Backend__PredictOptions *out;
    for (size_t i = 0; i < len; i += 3) memcpy(wire + i, "\xE2\2\0", 3);
    assert_int_equal(unpack(wire, len, &out), SH_ERR_INPUT);
    assert_true(arena.used < 3 * len + (32 << 20));
    free(wire);
}

TEST(long_lists_are_refused)
{
    UNUSED_STATE;
    enum { COUNT = 1100000 };
    char *wire = malloc(COUNT + 6);
    Backend__PredictOptions *out;
    memcpy(wire, "\x9A\2", 2); /* EmbeddingTokens, packed */
    wire[2] = (char)(0x80 | (COUNT & 0x7F));
    wire[3] = (char)(0x80 | (COUNT >> 7 & 0x7F));
    wire[4] = (char)(COUNT >> 14);
    memset(wire + 5, 1, COUNT);
    assert_int_equal(unpack(wire, COUNT + 5, &out), SH_ERR_INPUT);
    assert_non_null(strstr(err.text, "EmbeddingTokens has 1100000 items; 1048576 are allowed"));
    free(wire);
}

static void field_count(void *arg, const ProtobufCFieldDescriptor *field)
{
    (void)field;
    ++*(int *)arg;
}

TEST(fields_that_are_set_are_found)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    char *stops[] = {""};
    int count = 0;
    sh_message_each_set(&in.base, field_count, &count);
    assert_int_equal(count, 0);
    in.prompt = "x";
    in.threads = 1;
    in.mirostateta = 0.1F;
    in.mmap = 1;
    in.n_stopprompts = 1;
    in.stopprompts = stops;
    sh_message_each_set(&in.base, field_count, &count);
    assert_int_equal(count, 5);
}

TEST(a_text_is_found_without_unpacking)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    sh_buf wire = {0};
    in.prompt = "a prompt";
    in.temperature = 0.5F;
    in.seed = 7;
    in.correlationid = "id-1";
    sh_message_frame(&in.base, &wire);
    sh_str bytes = sh_str_sub(sh_buf_str(&wire), SH_GRPC_PREFIX, wire.len);
    assert_true(sh_str_is(sh_message_find_text(bytes, 47), "id-1"));
    assert_int_equal(sh_message_find_text(bytes, 48).len, 0);
    for (size_t len = 0; len < bytes.len; len++) sh_message_find_text((sh_str){bytes.ptr, len}, 47);
    assert_int_equal(sh_message_find_text((sh_str){"\xFA\2\xFF\xFF\xFF\xFF\x0F", 7}, 47).len, 0);
    sh_buf_reset(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_packed_and_unpacked),
        cmocka_unit_test(texts_that_are_none_are_refused_by_name),
        cmocka_unit_test(a_bomb_of_empty_messages_is_refused),
        cmocka_unit_test(long_lists_are_refused),
        cmocka_unit_test(fields_that_are_set_are_found),
        cmocka_unit_test(a_text_is_found_without_unpacking),
    };
    return cmocka_run_group_tests(tests, NULL, arena_end);
}
