/* Checks the numbers; the format is checked by promtool, in tests/api. */
#include "api/metrics.h"
#include "api/quota.h"

#include "base/file.h"

#include "test.h"

static sh_buf text;

static void write_with(const sh_metrics *metrics, const char *engine)
{
    cJSON *stats = engine == NULL ? NULL : cJSON_Parse(engine);
    sh_metrics_engine engines[] = {{"m\"1", true, stats}, {"m2", false, NULL}};
    sh_metrics_now now = {
        .connections = 3, .running = 2, .engines = engines, .engine_count = SH_COUNT_OF(engines)};
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
    has("shoal_engine_up{model=\"m\\\"1\"} 1\n");
    has("shoal_engine_up{model=\"m2\"} 0\n");
    has("shoal_engine_queue_requests{model=\"m\\\"1\"} 4\n");
    has("shoal_engine_steps_total{model=\"m\\\"1\"} 99\n");
    has("shoal_engine_ttft_seconds_bucket{model=\"m\\\"1\",le=\"0.1\"} 1\n");
    has("shoal_engine_ttft_seconds_bucket{model=\"m\\\"1\",le=\"+Inf\"} 3\n");
    assert_null(strstr(text.ptr, "kv_free"));
    assert_null(strstr(text.ptr, "bad name"));
    sh_metrics_free(metrics);
}

TEST(says_which_ranks_are_up)
{
    UNUSED_STATE;
    sh_metrics *metrics = sh_metrics_create();
    write_with(metrics, "{\"ranks\":[{\"rank\":0},{\"rank\":2}],\"missing\":[1]}");
    has("shoal_rank_up{model=\"m\\\"1\",rank=\"0\"} 1\n");
    has("shoal_rank_up{model=\"m\\\"1\",rank=\"1\"} 0\n");
    has("shoal_rank_up{model=\"m\\\"1\",rank=\"2\"} 1\n");
    sh_metrics_free(metrics);
}

/* Everything that an engine of two ranks reports. */
static const char stats[] =
    "{\"step_s\":1,\"schedule_s\":1,\"mask_s\":1,\"waiting\":0,\"waiting_max\":1,\"running\":0,"
    "\"slots\":1,\"world_size\":2,\"imbalance\":{\"ratio\":1,\"rank\":0},\"counts\":{\"requests\":"
    "0,"
    "\"paused\":0,\"drafts_tried\":0,\"drafts_kept\":0,\"group_failures\":0,\"group_changes\":0,"
    "\"missing_ranks\":0},\"kv\":{\"blocks\":1,\"free\":1,\"cached\":0},\"missing\":[],\"ranks\":[{"
    "\"rank\":0,\"compute_s\":0,\"memory\":{\"resident\":1,\"available\":1},\"collectives\":{"
    "\"sum\":{\"calls\":0,\"bytes\":0,\"seconds\":0}}}],\"histograms\":{\"step_seconds\":{"
    "\"count\":0,\"sum\":0,\"buckets\":[[1,0]]}}}";

/* The name without what a histogram adds to it. */
static bool is_written(const char *name, size_t len)
{
    static const char *const ends[] = {"", "_bucket", "_sum", "_count"};
    for (size_t i = 0; i < SH_COUNT_OF(ends); i++) {
        char line[160];
        size_t end = strlen(ends[i]);
        if (len <= end || strncmp(name + len - end, ends[i], end) != 0) continue;
        snprintf(line, sizeof(line), "# TYPE %.*s ", (int)(len - end), name);
        if (strstr(text.ptr, line) != NULL) return true;
    }
    return false;
}

TEST(the_dashboard_shows_metrics_that_exist)
{
    UNUSED_STATE;
    sh_err err;
    sh_buf file = {0};
    sh_metrics *metrics = sh_metrics_create();
    sh_quotas *quotas = sh_quotas_create();
    cJSON *json = NULL;
    int found = 0;
    CHECK_OK(sh_file_read("docs/grafana.json", 1 << 20, &file, &err), err);
    CHECK_OK(sh_json_parse(sh_buf_str(&file), "docs/grafana.json", &json, &err), err);
    write_with(metrics, stats);
    sh_quotas_write(quotas, &text);
    for (const char *at = file.ptr; (at = strpbrk(at, "sp")) != NULL; at++) {
        size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        bool named = strncmp(at, "shoal_", 6) == 0 || strncmp(at, "process_", 8) == 0;
        if (named && !is_written(at, len)) fail_msg("there is no metric %.*s", (int)len, at);
        found += named;
        if (len > 0) at += len - 1;
    }
    assert_true(found > 40);
    cJSON_Delete(json);
    sh_quotas_free(quotas);
    sh_metrics_free(metrics);
    sh_buf_reset(&file);
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
        cmocka_unit_test(says_which_ranks_are_up),
        cmocka_unit_test(the_dashboard_shows_metrics_that_exist),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
