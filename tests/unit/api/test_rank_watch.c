#include "api/rank_watch.h"

#include "test.h"

#include <string.h>

#define RANKS "\"ranks\":[{\"rank\":0,\"host\":\"a\"},{\"rank\":1,\"host\":\"b\"}]"
#define READY "{\"ready\":true,\"lost\":\"\",\"missing\":[]," RANKS "}"

static void take(sh_rank_watch *watch, int64_t second, const char *text)
{
    cJSON *stats = text == NULL ? NULL : cJSON_Parse(text);
    assert_true(text == NULL || stats != NULL);
    sh_rank_watch_take(watch, second * 1000000, stats);
    cJSON_Delete(stats);
}

static void must_be(const sh_rank_watch *watch, const char *json)
{
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_rank_watch_write(watch, NULL, &w);
    sh_buf_add_char(&text, '\0');
    assert_string_equal(text.ptr, json);
    sh_buf_reset(&text);
}

TEST(a_lost_rank_has_its_host_and_the_time_when_it_was_lost)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    const char *lost =
        "{\"ready\":false,\"lost\":\"closed\",\"lost_ranks\":[1],\"missing\":[]," RANKS "}";
    take(watch, 10, READY);
    must_be(watch, "[]");
    take(watch, 11, lost);
    take(watch, 12, lost);
    must_be(watch, "[{\"rank\":1,\"host\":\"b\",\"since\":11.000}]");
    take(watch, 13, READY);
    must_be(watch, "[]");
    sh_rank_watch_free(watch);
}

TEST(a_missing_rank_keeps_the_time_of_its_loss)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    take(watch, 10, READY);
    take(watch, 11,
         "{\"ready\":false,\"lost\":\"away\",\"lost_ranks\":[1],\"missing\":[]," RANKS "}");
    take(watch, 20,
         "{\"ready\":true,\"lost\":\"\",\"missing\":[1],\"ranks\":[{\"rank\":0,\"host\":\"a\"}]}");
    must_be(watch, "[{\"rank\":1,\"host\":\"b\",\"since\":11.000}]");
    /* It left for good. */
    take(watch, 30,
         "{\"ready\":true,\"lost\":\"\",\"missing\":[],\"ranks\":[{\"rank\":0,\"host\":\"a\"}]}");
    must_be(watch, "[]");
    sh_rank_watch_free(watch);
}

TEST(a_rank_that_was_never_seen_has_no_host)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    take(watch, 10,
         "{\"ready\":true,\"lost\":\"\",\"missing\":[2],\"ranks\":[{\"rank\":0,\"host\":\"a\"}]}");
    must_be(watch, "[{\"rank\":2,\"host\":null,\"since\":10.000}]");
    sh_rank_watch_free(watch);
}

TEST(without_an_engine_all_ranks_are_away)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    take(watch, 10, READY);
    take(watch, 11, "{\"ready\":false,\"lost_ranks\":[1],\"missing\":[]," RANKS "}");
    must_be(watch, "[{\"rank\":1,\"host\":\"b\",\"since\":11.000}]");
    take(watch, 12, NULL);
    must_be(watch, "[{\"rank\":0,\"host\":\"a\",\"since\":12.000},"
                   "{\"rank\":1,\"host\":\"b\",\"since\":11.000}]");
    sh_rank_watch_free(watch);
}

TEST(a_group_that_re_forms_by_plan_has_lost_nobody)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    take(watch, 10, READY);
    take(watch, 11,
         "{\"ready\":false,\"lost\":\"rank 2 comes in\",\"lost_ranks\":[],\"missing\":[]," RANKS
         "}");
    must_be(watch, "[]");
    sh_rank_watch_free(watch);
}

TEST(numbers_out_of_range_are_ignored)
{
    UNUSED_STATE;
    sh_rank_watch *watch = sh_rank_watch_create();
    take(watch, 10,
         "{\"ready\":true,\"lost\":\"\",\"missing\":[-1,64,1e300,\"x\"],\"ranks\":[{\"rank\":900},"
         "{\"rank\":-5,\"host\":\"z\"},7]}");
    must_be(watch, "[]");
    take(watch, 11, "{\"ready\":false,\"lost_ranks\":[64,-1,1e99,\"1\"],\"ranks\":[]}");
    must_be(watch, "[]");
    must_be(NULL, "[]");
    sh_rank_watch_free(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_rank_has_its_host_and_the_time_when_it_was_lost),
        cmocka_unit_test(a_missing_rank_keeps_the_time_of_its_loss),
        cmocka_unit_test(a_rank_that_was_never_seen_has_no_host),
        cmocka_unit_test(without_an_engine_all_ranks_are_away),
        cmocka_unit_test(a_group_that_re_forms_by_plan_has_lost_nobody),
        cmocka_unit_test(numbers_out_of_range_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
