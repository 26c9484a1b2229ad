#include "api/history.h"

#include "base/json.h"
#include "test.h"

#include <math.h>

enum { CAP = 8 };

static sh_record record(int number)
{
    sh_record r = {.time_us = 1000000 * (int64_t)number,
                   .kind = "chat",
                   .finish = SH_ANSWER_STOP,
                   .prompt_tokens = 10,
                   .generated_tokens = 11,
                   .wall_s = number,
                   .first_token_s = 0.5,
                   .decode_s = 10.0 / number};
    snprintf(r.id, sizeof(r.id), "r%d", number);
    return r;
}

static cJSON *written(const sh_history *history, int what)
{
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_write_begin(&w, NULL, '{');
    if (what == 0) sh_history_write_recent(history, 3, &w);
    if (what == 1) sh_history_write_stats(history, &w);
    if (what == 2) sh_history_write_snapshot(history, 70 * 1000000, &w);
    sh_write_end(&w, '}');
    cJSON *json = cJSON_Parse(text.ptr);
    assert_non_null(json);
    sh_buf_reset(&text);
    return json;
}

static double number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(json, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number '%s'", key);
    return item->valuedouble;
}

TEST(keeps_the_newest_and_counts_all)
{
    UNUSED_STATE;
    sh_history *history = sh_history_create(CAP);
    for (int i = 1; i <= 20; i++) {
        sh_record r = record(i);
        sh_history_add(history, &r);
    }
    cJSON *json = written(history, 0);
    const cJSON *list = cJSON_GetObjectItem(json, "requests");
    assert_int_equal(cJSON_GetArraySize(list), 3);
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(list, 0), "request_id")->valuestring,
                        "r20");
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(list, 2), "request_id")->valuestring,
                        "r18");
    cJSON_Delete(json);
    assert_int_equal(sh_history_total(history), 20);
    sh_history_free(history);
}

TEST(computes_rates_and_percentiles)
{
    UNUSED_STATE;
    sh_history *history = sh_history_create(CAP);
    cJSON *json = written(history, 1);
    assert_true(number(json, "avg_tps") == 0 && number(json, "error_rate") == 0);
    cJSON_Delete(json);
    for (int i = 1; i <= 5; i++) {
        sh_record r = record(i); /* i tokens a second */
        if (i == 5) r.outcome = SH_OUTCOME_TIMEOUT;
        if (i == 1) r.cached_tokens = 4;
        sh_history_add(history, &r);
    }
    json = written(history, 1);
    assert_int_equal(number(json, "total_requests"), 5);
    assert_int_equal(number(json, "ok"), 4);
    assert_int_equal(number(json, "timeouts"), 1);
    assert_true(fabs(number(json, "error_rate") - 0.2) < 1e-9);
    assert_true(fabs(number(json, "avg_tps") - 3) < 1e-9);
    assert_true(fabs(number(json, "p50_tps") - 3) < 1e-9);
    assert_true(fabs(number(json, "p95_tps") - 4) < 1e-9); /* index 3 of 5 */
    assert_true(fabs(number(json, "p50_latency_s") - 2) < 1e-9);
    assert_true(fabs(number(json, "kv_cache_hit_rate") - 0.2) < 1e-9);
    cJSON_Delete(json);
    sh_history_free(history);
}

TEST(looks_back_one_minute)
{
    UNUSED_STATE;
    sh_history *history = sh_history_create(CAP);
    for (int i = 1; i <= 60; i += 10) {
        sh_record r = record(i);
        sh_history_add(history, &r);
    }
    cJSON *json = written(history, 2);
    assert_int_equal(number(json, "recent_count"), 5); /* of 11, 21, ... 51 */
    assert_true(fabs(number(json, "peak_tps_60s") - 51) < 1e-6);
    assert_int_equal(number(json, "total_tokens"), 66);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "history")), 6);
    cJSON_Delete(json);
    sh_history_free(history);
}

TEST(counts_refusals_and_leaves_them_out_of_speeds_and_times)
{
    UNUSED_STATE;
    sh_history *history = sh_history_create(CAP);
    sh_record good = record(2), bad = {.time_us = 69 * 1000000, .kind = "chat", .wall_s = 100};
    good.time_us = 68 * 1000000;
    bad.outcome = SH_OUTCOME_REFUSED;
    bad.http_status = 400;
    sh_history_add(history, &good);
    sh_history_add(history, &bad);
    bad.http_status = 503;
    sh_history_add(history, &bad);
    sh_history_count_refused(history, 503); /* without a record */

    cJSON *json = written(history, 1);
    const cJSON *by = cJSON_GetObjectItem(json, "refused_by_status");
    assert_int_equal(number(json, "total_requests"), 4);
    assert_int_equal(number(json, "ok"), 1);
    assert_int_equal(number(json, "errors"), 0);
    assert_int_equal(number(json, "refused"), 3);
    assert_int_equal(number(by, "400"), 1);
    assert_int_equal(number(by, "503"), 2);
    assert_true(number(json, "error_rate") == 0);
    assert_true(fabs(number(json, "avg_latency_s") - 2) < 1e-9);
    assert_true(fabs(number(json, "total_wall_time_s") - 2) < 1e-9);
    cJSON_Delete(json);

    json = written(history, 2);
    assert_int_equal(number(json, "error_count"), 0);
    assert_int_equal(number(json, "refused_count"), 3);
    assert_int_equal(number(json, "recent_count"), 1);
    assert_true(fabs(number(json, "avg_latency_60s") - 2) < 1e-9);
    assert_true(fabs(number(json, "avg_tps_60s") - 2) < 1e-9);
    const cJSON *points = cJSON_GetObjectItem(json, "history"), *point;
    assert_int_equal(cJSON_GetArraySize(points), 1);
    cJSON_ArrayForEach(point, points) assert_true(number(point, "tps") > 0);
    cJSON_Delete(json);

    json = written(history, 0);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "requests"), 0);
    assert_string_equal(cJSON_GetObjectItem(first, "status")->valuestring, "refused");
    assert_int_equal(number(first, "http_status"), 503);
    cJSON_Delete(json);
    sh_history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_newest_and_counts_all),
        cmocka_unit_test(computes_rates_and_percentiles),
        cmocka_unit_test(looks_back_one_minute),
        cmocka_unit_test(counts_refusals_and_leaves_them_out_of_speeds_and_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
