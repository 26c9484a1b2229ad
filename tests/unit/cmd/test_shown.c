/* What an answer prints, and the message that is kept of it. */
#include "cmd/support/shown.h"

#include "test.h"

static char *screen; /* what was printed */
static size_t screen_len;

static void send(sh_shown *s, sh_output_kind kind, int call, const char *text)
{
    bool begins = kind == SH_OUTPUT_CALL_BEGIN;
    sh_output_event event = {.kind = kind,
                             .call = call,
                             .text = sh_str_of(begins ? "" : text),
                             .name = sh_str_of(begins ? text : ""),
                             .id = SH_STR("call_1")};
    sh_shown_event(s, &event);
}

static void check(sh_shown *s, const char *printed, const char *message)
{
    sh_shown_end(s);
    fclose(s->content_to);
    assert_string_equal(screen, printed);
    cJSON *json = sh_shown_message(s);
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, message);
    cJSON_free(text);
    cJSON_Delete(json);
    sh_shown_reset(s);
    free(screen);
}

static sh_shown start(bool color)
{
    FILE *to = open_memstream(&screen, &screen_len);
    return (sh_shown){.content_to = to, .reasoning_to = to, .color = color};
}

TEST(reasoning_is_marked_and_kept_next_to_the_content)
{
    UNUSED_STATE;
    sh_shown s = start(true);
    send(&s, SH_OUTPUT_REASONING, 0, "hm");
    send(&s, SH_OUTPUT_REASONING, 0, "m");
    send(&s, SH_OUTPUT_CONTENT, 0, "Yes");
    check(&s, "\x1b[2mhmm\x1b[0m\n\nYes",
          "{\"role\":\"assistant\",\"content\":\"Yes\",\"reasoning_content\":\"hmm\"}");
    s = start(false);
    send(&s, SH_OUTPUT_REASONING, 0, "hm");
    check(&s, "hm\n\n", "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\"}");
}

#define CALL(name, args)                                                                           \
    "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"" args "\"}}"

TEST(calls_are_lines_and_a_broken_one_is_dropped)
{
    UNUSED_STATE;
    sh_shown s = start(false);
    send(&s, SH_OUTPUT_CALL_BEGIN, 0, "f");
    send(&s, SH_OUTPUT_CALL_ARGS, 0, "{}");
    send(&s, SH_OUTPUT_CALL_BEGIN, 1, "g"); /* as servers send it: without an end */
    send(&s, SH_OUTPUT_CALL_ARGS, 1, "[");
    send(&s, SH_OUTPUT_CALL_BROKEN, 1, "");
    send(&s, SH_OUTPUT_CONTENT, 0, "text");
    send(&s, SH_OUTPUT_CALL_BEGIN, 1 << 30, "far"); /* beyond the limit: ignored */
    check(&s, "f {}\ng [\ntext",
          "{\"role\":\"assistant\",\"content\":\"text\",\"tool_calls\":[" CALL("f", "{}") "]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_is_marked_and_kept_next_to_the_content),
        cmocka_unit_test(calls_are_lines_and_a_broken_one_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
