/* Checks the numbers; the format is checked by promtool, in tests/api. */
#include "api/metrics.h"

#include "test.h"

static sh_buf text;

static void write_with(const sh_metrics *metrics, const char *engine)
{
    cJSON *stats = engine == NULL ? NULL : cJSON_Parse(engine);
    sh_metrics_now now = {.connections = 3, .running = 2, .engine_up = true, .engine = stats};
    sh_buf_clear(&text);
    sh_metrics_write(metrics, &now, &text);
    cJSON_Delete(stats);
}

static void has(const char *line)
{
    if (strstr(text.ptr, line) == NULL) fail_msg("no '%s' in\n%s", line, text.ptr);
}

TEST(counts_by_route_and_status)
{
    UNUSED_STATE;
    static const char route[] = "/health";
    sh_metrics *metrics = sh_metrics_create();
    sh_metrics_http(metrics, "GET", route, 200, 0.002);
    sh_metrics_http(metrics, "GET", route, 200, 0.3);
    sh_metrics_http(metrics, "GET", route, 503, 200);
    write_with(metrics, NULL);
    has("shoal_http_requests_total{method=\"GET\",route=\"/health\",status=\"200\"} 2\n");
    has("shoal_http_requests_total{method=\"GET\",route=\"/health\",status=\"503\"} 1\n");
    has("shoal_http_request_duration_seconds_bucket{le=\"0.001\"} 0\n");
    has("shoal_http_request_duration_seconds_bucket{le=\"0.0025\"} 1\n");
    has("shoal_http_request_duration_seconds_bucket{le=\"0.5\"} 2\n");
    has("shoal_http_request_duration_seconds_bucket{le=\"120\"} 2\n");
    has("shoal_http_request_duration_seconds_bucket{le=\"+Inf\"} 3\n");
    has("shoal_http_request_duration_seconds_count 3\n");
    has("shoal_http_connections 3\n");
    sh_metrics_free(metrics);
}

TEST(counts_tokens_and_outcomes)
{
    UNUSED_STATE;
    sh_metrics *metrics = sh_metrics_create();
    sh_record record = {.prompt_tokens = 100, .cached_tokens = 64, .generated_tokens = 7};
    record.first_token_s = 0.02;
    sh_metrics_record(metrics, &record);
    record.outcome = SH_OUTCOME_CANCELLED;
    record.first_token_s = 0;
    sh_metrics_record(metrics, &record);
    sh_metrics_token_gap(metrics, 0.004);
    record.outcome = SH_OUTCOME_REFUSED;
    record.wall_s = 100;
    record.prompt_tokens = record.generated_tokens = record.cached_tokens = 0;
    sh_metrics_record(metrics, &record);
    sh_metrics_count_refused(metrics);
    write_with(metrics, NULL);
    has("shoal_requests_total{outcome=\"refused\"} 2\n");
    has("shoal_request_duration_seconds_count 2\n");
    has("shoal_requests_total{outcome=\"ok\"} 1\n");
    has("shoal_requests_total{outcome=\"cancelled\"} 1\n");
    has("shoal_prompt_tokens_total 200\n");
    has("shoal_prompt_tokens_cached_total 128\n");
    has("shoal_generated_tokens_total 14\n");
    has("shoal_time_to_first_token_seconds_count 1\n");
    has("shoal_inter_token_seconds_bucket{le=\"0.005\"} 1\n");
    sh_metrics_free(metrics);
}

TEST(passes_the_engines_numbers_on)
{
    UNUSED_STATE;
    sh_metrics *metrics = sh_metrics_create();
    write_with(metrics, "{\"waiting\":4,\"counts\":{\"steps\":99},\"kv\":{\"free\":\"x\"},"
                        "\"histograms\":{\"ttft_seconds\":{\"count\":3,\"sum\":1.5,"
                        "\"buckets\":[[0.1,1],[1,3]]},\"bad name{\":{\"count\":1,\"sum\":1,"
                        "\"buckets\":[]}}}");
    has("shoal_engine_queue_requests 4\n");
    has("shoal_engine_steps_total 99\n");
    has("shoal_engine_ttft_seconds_bucket{le=\"0.1\"} 1\n");
    has("shoal_engine_ttft_seconds_bucket{le=\"+Inf\"} 3\n");
    assert_null(strstr(text.ptr, "kv_free"));
    assert_null(strstr(text.ptr, "bad name"));
    sh_metrics_free(metrics);
}

static int cleanup(void **state)
{
    UNUSED_STATE;
    sh_buf_reset(&text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_by_route_and_status),
        cmocka_unit_test(counts_tokens_and_outcomes),
        cmocka_unit_test(passes_the_engines_numbers_on),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
