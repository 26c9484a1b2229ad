#include "api/timeline.h"

#include "base/buf.h"
#include "test.h"

#include <string.h>

static const int64_t SECOND = 1000000, START = 1700000000LL * 1000000;

/* Counters that grow with time: 20 answer tokens, 10 prompt tokens, of which 4 cached, and one
 * finished request a second, with a first token between 1 and 2 s. */
static cJSON *stats_at(double uptime_s)
{
    char text[1024];
    int n = (int)uptime_s;
    snprintf(text, sizeof(text),
             "{\"uptime_s\":%.3f,\"running\":3,\"waiting\":1,\"kv\":{\"blocks\":100,\"free\":75},"
             "\"counts\":{\"answer_tokens\":%d,\"prompt_tokens\":%d,\"cached_tokens\":%d,"
             "\"drafts_tried\":0,\"drafts_kept\":0,\"steps\":%d},\"histograms\":{"
             "\"batch_tokens\":{\"count\":%d,\"sum\":%d},"
             "\"ttft_seconds\":{\"count\":%d,\"sum\":9,\"buckets\":[[1,0],[2,%d],[4,%d]]},"
             "\"inter_token_seconds\":{\"count\":0,\"sum\":0,\"buckets\":[[1,0],[2,0],[4,0]]}}}",
             uptime_s, 20 * n, 10 * n, 4 * n, 10 * n, 10 * n, 25 * n, n, n, n);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static void take(sh_timeline *t, int64_t at_us, double uptime_s)
{
    cJSON *stats = stats_at(uptime_s);
    sh_timeline_take(t, at_us, stats);
    cJSON_Delete(stats);
}

static cJSON *written(const sh_timeline *t)
{
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_write_begin(&w, NULL, '{');
    sh_timeline_write_now(t, "now", &w);
    sh_timeline_write(t, &w);
    sh_write_end(&w, '}');
    cJSON *json = cJSON_Parse(text.ptr);
    assert_non_null(json);
    sh_buf_reset(&text);
    return json;
}

static double now_of(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "now"), name);
    if (!cJSON_IsNumber(item)) fail_msg("no number '%s'", name);
    return item->valuedouble;
}

static bool now_is_null(const cJSON *json, const char *name)
{
    return cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "now"), name));
}

static int points_of(const sh_timeline *t)
{
    cJSON *json = written(t);
    int count = cJSON_GetArraySize(cJSON_GetObjectItem(json, "points"));
    cJSON_Delete(json);
    return count;
}

TEST(counters_become_rates_and_histograms_become_percentiles)
{
    UNUSED_STATE;
    sh_timeline *t = sh_timeline_create();
    for (int s = 0; s < 20; s++) take(t, START + s * SECOND, 100 + s);
    cJSON *json = written(t);
    assert_true(now_of(json, "time") == 1700000019);
    assert_float_equal(now_of(json, "generated_tokens_per_s"), 20, 1e-3);
    assert_float_equal(now_of(json, "prompt_tokens_per_s"), 6, 1e-3);
    assert_float_equal(now_of(json, "cache_hit_rate"), 0.4, 1e-3);
    assert_float_equal(now_of(json, "tokens_per_step"), 2.5, 1e-3);
    assert_float_equal(now_of(json, "kv_used"), 0.25, 1e-3);
    assert_float_equal(now_of(json, "running"), 3, 0);
    assert_float_equal(now_of(json, "waiting"), 1, 0);
    assert_float_equal(now_of(json, "ttft_p50_s"), 1.5, 1e-3);
    assert_float_equal(now_of(json, "ttft_p95_s"), 1.95, 1e-3);
    assert_true(now_is_null(json, "inter_token_p95_s"));
    assert_true(now_is_null(json, "drafts_accepted"));
    cJSON_Delete(json);
    sh_timeline_free(t);
}

TEST(a_point_has_a_column_for_each_field_and_comes_every_five_seconds)
{
    UNUSED_STATE;
    sh_timeline *t = sh_timeline_create();
    for (int s = 0; s <= 20; s++) take(t, START + s * SECOND, 100 + s);
    cJSON *json = written(t);
    const cJSON *points = cJSON_GetObjectItem(json, "points");
    int fields = cJSON_GetArraySize(cJSON_GetObjectItem(json, "fields"));
    assert_int_equal(cJSON_GetObjectItem(json, "interval_s")->valueint, SH_TIMELINE_STEP_S);
    assert_int_equal(cJSON_GetArraySize(points), 5);
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "fields"), 1)->valuestring,
                        "generated_tokens_per_s");
    for (int i = 0; i < 5; i++)
        assert_int_equal(cJSON_GetArraySize(cJSON_GetArrayItem(points, i)), fields);
    double first = cJSON_GetArrayItem(cJSON_GetArrayItem(points, 1), 0)->valuedouble;
    double second = cJSON_GetArrayItem(cJSON_GetArrayItem(points, 2), 0)->valuedouble;
    assert_true(second - first == SH_TIMELINE_STEP_S);
    cJSON_Delete(json);
    sh_timeline_free(t);
}

TEST(an_hour_is_kept_and_no_more)
{
    UNUSED_STATE;
    sh_timeline *t = sh_timeline_create();
    for (int s = 0; s < 4000; s++) take(t, START + s * SECOND, 100 + s);
    cJSON *json = written(t);
    const cJSON *points = cJSON_GetObjectItem(json, "points");
    int count = cJSON_GetArraySize(points);
    double oldest = cJSON_GetArrayItem(cJSON_GetArrayItem(points, 0), 0)->valuedouble;
    double newest = cJSON_GetArrayItem(cJSON_GetArrayItem(points, count - 1), 0)->valuedouble;
    assert_int_equal(count, SH_TIMELINE_POINTS);
    assert_true(newest - oldest == 3600 - SH_TIMELINE_STEP_S);
    cJSON_Delete(json);
    sh_timeline_free(t);
}

/* A rate over the restart of an engine would be negative, one over a long silence a guess. */
TEST(a_restart_or_a_silence_leaves_a_gap_and_no_wrong_rate)
{
    UNUSED_STATE;
    sh_timeline *t = sh_timeline_create();
    for (int s = 0; s < 10; s++) take(t, START + s * SECOND, 100 + s);
    int before = points_of(t);
    take(t, START + 10 * SECOND, 1); /* anew: nothing to compare with */
    cJSON *json = written(t);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "now")));
    cJSON_Delete(json);
    assert_int_equal(points_of(t), before);
    take(t, START + 11 * SECOND, 2);
    json = written(t);
    assert_float_equal(now_of(json, "generated_tokens_per_s"), 20, 1e-3);
    cJSON_Delete(json);
    int resumed = points_of(t);
    for (int s = 12; s < 40; s++) take(t, START + s * SECOND, 2); /* the same report again */
    json = written(t);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "now")));
    cJSON_Delete(json);
    assert_int_equal(points_of(t), resumed);
    sh_timeline_take(t, START + 41 * SECOND, NULL);
    assert_int_equal(points_of(t), resumed);
    sh_timeline_free(t);
}

TEST(stats_without_the_members_give_unknown_figures)
{
    UNUSED_STATE;
    sh_timeline *t = sh_timeline_create();
    static const char *const odd[] = {
        "{\"uptime_s\":1}",
        ("{\"uptime_s\":2,\"counts\":[],\"histograms\":{\"ttft_seconds\":{\"count\":\"x\","
         "\"buckets\":[[1],2,[1,2,3],[\"a\",\"b\"]]}},\"kv\":{\"blocks\":0,\"free\":0}}"),
        "{\"uptime_s\":3,\"histograms\":{\"ttft_seconds\":{\"count\":5,\"buckets\":[]}}}"};
    for (size_t i = 0; i < SH_COUNT_OF(odd); i++) {
        cJSON *stats = cJSON_Parse(odd[i]);
        assert_non_null(stats);
        sh_timeline_take(t, START + (int64_t)i * SECOND, stats);
        cJSON_Delete(stats);
    }
    cJSON *json = written(t);
    assert_true(now_is_null(json, "generated_tokens_per_s"));
    assert_true(now_is_null(json, "ttft_p95_s"));
    assert_true(now_is_null(json, "kv_used"));
    assert_true(now_is_null(json, "running"));
    cJSON_Delete(json);
    sh_timeline_free(t);
}

TEST(a_model_that_never_ran_has_no_points)
{
    UNUSED_STATE;
    assert_int_equal(points_of(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_become_rates_and_histograms_become_percentiles),
        cmocka_unit_test(a_point_has_a_column_for_each_field_and_comes_every_five_seconds),
        cmocka_unit_test(an_hour_is_kept_and_no_more),
        cmocka_unit_test(a_restart_or_a_silence_leaves_a_gap_and_no_wrong_rate),
        cmocka_unit_test(stats_without_the_members_give_unknown_figures),
        cmocka_unit_test(a_model_that_never_ran_has_no_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
