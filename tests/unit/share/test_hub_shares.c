/* A shard whose bytes come from the hub is the same as one that is loaded from rank 0's files,
 * whatever the hub does; and what the hub does not have under the same commit and ETag comes from
 * rank 0. The hub is tests/store/hub.py, and rank 0's model was pulled from it. */
#include "base/clock.h"
#include "base/file.h"
#include "store/pull.h"
#include "store/range_reader.h"

#include "unit/share/host.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char MODEL[] = "qwen3_moe-bf16";
static char *endpoint;
static char *snapshot; /* rank 0's folder of the model */
static sh_share_hub hub;

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (system(command) != 0) fail_msg("failed: %s", command);
}

static void faults(const char *json)
{
    shell("curl -sS -m 30 -d '{\"files\": {}, \"locate\": {}}' %s/set", endpoint);
    shell("curl -sS -m 30 -d '%s' %s/set", json, endpoint);
}

/* How many requests the hub has answered since this was asked last. */
static int requests(void)
{
    char *path = sh_path_join(dir, "log");
    sh_buf text = {0};
    sh_err err;
    int count = 0;
    CHECK_OK(sh_file_read(path, 1 << 24, &text, &err), err);
    for (size_t i = 0; i < text.len; i++) count += text.ptr[i] == '\n';
    assert_int_equal(truncate(path, 0), 0);
    sh_buf_reset(&text);
    free(path);
    return count;
}

static pid_t hub_start(void)
{
    char *log = sh_path_join(dir, "log"), *models = sh_path_join(dir, "models"),
         *address = sh_path_join(dir, "address");
    sh_deadline end = sh_deadline_in_ms(60000);
    sh_buf text = {0};
    sh_err err;
    shell("mkdir -p '%s/org' && cp -rL '%s/%s' '%s/org/demo'", models, rig_models_dir(), MODEL,
          models);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("python3", "python3", "tests/store/hub.py", models, log, address, (char *)NULL);
        _exit(127);
    }
    while (!sh_file_exists(address) && !sh_deadline_passed(end)) sh_sleep_ms(20);
    CHECK_OK(sh_file_read(address, 4096, &text, &err), err);
    endpoint = sh_buf_take(&text);
    free(log);
    free(models);
    free(address);
    return pid;
}

static void no_view(void *ctx, const sh_fetch_progress *progress)
{
    (void)ctx, (void)progress;
}

static void model_pull(void)
{
    static const volatile sig_atomic_t never = 0;
    char *cache = sh_path_join(dir, "hf");
    sh_pull_opts opts = {.cache = cache,
                         .endpoint = endpoint,
                         .timeout_ms = 60000,
                         .cancel = &never,
                         .progress = no_view};
    sh_repo_name name;
    sh_err err;
    assert_true(sh_repo_name_parse("org/demo", &name));
    CHECK_OK(sh_pull(&name, &opts, &snapshot, &err), err);
    free(cache);
}

static host host_with_hub(const char *model, int64_t timeout_ms)
{
    host h = host_open(model);
    hub = (sh_share_hub){.endpoint = endpoint, .timeout_ms = timeout_ms};
    h.hub = &hub;
    empty_cache();
    requests();
    return h;
}

/* One request for ranges that are near each other, and no byte at a wrong place. */
TEST(ranges_are_merged_over_short_gaps)
{
    enum { SIZE = 1000000, COUNT = 5 };
    UNUSED_STATE;
    char *path = sh_path_join(dir, "models/org/demo/large.safetensors");
    char *bytes = sh_alloc(SIZE), *got = sh_alloc(SIZE);
    uint8_t digest[SH_DIGEST_LEN];
    sh_hub_file file = {.path = "large.safetensors", .size = SIZE};
    sh_listing listing = {.files = &file, .count = 1};
    sh_repo_name name;
    sh_err err;
    for (int i = 0; i < SIZE; i++) bytes[i] = (char)dice(256);
    CHECK_OK(sh_file_write(path, bytes, SIZE, &err), err);
    sh_digest(bytes, SIZE, digest);
    for (int i = 0; i < SH_DIGEST_LEN; i++) snprintf(file.digest + 2 * i, 3, "%02x", digest[i]);
    strcpy(listing.commit, strrchr(snapshot, '/') + 1);
    assert_true(sh_repo_name_parse("org/demo", &name));
    sh_hub_opts opts = {.endpoint = endpoint, .name = &name, .timeout_ms = 60000};
    sh_range_reader *reader = sh_range_reader_create(&opts, &listing, -1);
    const sh_file_range ranges[COUNT] = {{0, 10, got},
                                         {10, 1, got + 20},
                                         {100000, 7000, got + 30},
                                         {500000, 70000, got + 10000},
                                         {SIZE - 3, 3, got + 90000}};
    faults("{}");
    requests();
    CHECK_OK(sh_range_reader_read(reader, 0, ranges, COUNT, &err), err);
    assert_int_equal(requests(), 4); /* where the file is, and three spans */
    for (int i = 0; i < COUNT; i++)
        assert_memory_equal(ranges[i].to, bytes + ranges[i].at, (size_t)ranges[i].len);
    assert_int_equal(got[10] | got[21] | got[7030] | got[80000] | got[90003], 0);
    sh_range_reader_free(reader);
    assert_int_equal(unlink(path), 0);
    free(path);
    free(bytes);
    free(got);
}

TEST(any_shard_comes_from_the_hub_and_is_kept)
{
    UNUSED_STATE;
    sh_config config;
    sh_err err;
    CHECK_OK(sh_config_load(snapshot, &config, &err), err);
    faults("{}");
    for (int i = 0; i < 3; i++) {
        host h = host_with_hub(snapshot, 60000);
        sh_shard shard = random_shard(&config);
        sh_shard_origin first = load_and_compare(&h, LIMIT, &shard);
        assert_int_equal(first.link, 0);
        assert_true(first.hub > 0 && requests() > 0);
        sh_shard_origin second = load_and_compare(&h, LIMIT, &shard);
        assert_int_equal(second.link + second.hub, 0);
        assert_int_equal(second.disk, first.hub + first.disk);
        assert_int_equal(requests(), 0);
        host_close(&h);
    }
    sh_config_reset(&config);
}

TEST(what_goes_wrong_for_a_while_is_tried_again)
{
    static const char *const cases[] = {
        "{\"files\": {\"cut\": 4000, \"times\": 9}}",
        "{\"files\": {\"status\": 503, \"times\": 2}}",
        "{\"files\": {\"shifted\": true, \"times\": 2}}",
        "{\"files\": {\"more\": true, \"times\": 2}}",
        "{\"files\": {\"expire\": true, \"times\": 2}}",
        "{\"locate\": {\"status\": 429, \"times\": 1, \"headers\": {\"Retry-After\": \"0\"}}}",
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        host h = host_with_hub(snapshot, 60000);
        faults(cases[i]);
        sh_shard_origin origin = load_and_compare(&h, LIMIT, NULL);
        if (origin.link > 0) fail_msg("from rank 0: %s", cases[i]);
        host_close(&h);
    }
}

TEST(another_file_and_a_hub_that_fails_leave_it_to_rank_0)
{
    static const char *const cases[] = {
        "{\"locate\": {\"etag\": \"0000\"}}",
        "{\"locate\": {\"commit\": \"ffffffffffffffffffffffffffffffffffffffff\"}}",
        "{\"locate\": {\"status\": 404}}",
        "{\"files\": {\"total\": 99999999}}",
        "{\"files\": {\"whole\": true}}",
        "{\"files\": {\"status\": 403}}",
        "{\"files\": {\"status\": 500}}",
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        host h = host_with_hub(snapshot, 100);
        faults(cases[i]);
        sh_shard_origin origin = load_and_compare(&h, LIMIT, NULL);
        if (origin.hub > 0 || origin.link == 0) fail_msg("from the hub: %s", cases[i]);
        assert_true(requests() > 0);
        host_close(&h);
    }
}

/* A folder that is no snapshot, and a snapshot with a file of its own. */
TEST(files_that_are_not_from_the_hub_come_from_rank_0)
{
    UNUSED_STATE;
    char *plain = sh_path_join(dir, "plain"), *other = sh_path_join(dir, "models--org--demo");
    char *own = sh_asprintf("%s/snapshots/%s", other, strrchr(snapshot, '/') + 1);
    faults("{}");
    shell("cp -rL '%s' '%s' && mkdir -p '%s' && cp -rL '%s'/* '%s'", snapshot, plain, own, snapshot,
          own);
    const char *const folders[] = {plain, own};
    for (size_t i = 0; i < SH_COUNT_OF(folders); i++) {
        host h = host_with_hub(folders[i], 60000);
        sh_shard_origin origin = load_and_compare(&h, LIMIT, NULL);
        assert_true(origin.hub == 0 && origin.link > 0);
        assert_int_equal(requests(), 0);
        host_close(&h);
    }
    free(plain);
    free(other);
    free(own);
}

/* Only rank 0 can tell whether what is kept from before is what it has now. */
TEST(what_is_kept_is_compared_with_rank_0_if_its_files_were_written_since)
{
    UNUSED_STATE;
    faults("{}");
    host h = host_with_hub(snapshot, 60000);
    sh_shard_origin first = load_and_compare(&h, LIMIT, NULL);
    host_close(&h);
    shell("touch '%s'/../../blobs/*", snapshot);
    h = host_open(snapshot);
    h.hub = &hub;
    requests();
    sh_shard_origin second = load_and_compare(&h, LIMIT, NULL);
    assert_int_equal(second.hub + second.link, 0);
    assert_int_equal(second.disk, first.hub + first.disk);
    assert_int_equal(requests(), 0);
    host_close(&h);
}

TEST(a_group_that_ends_does_not_wait_for_the_hub)
{
    UNUSED_STATE;
    int stop[2];
    host h = host_with_hub(snapshot, 60000);
    sh_share_link link = link_to(&h);
    char *root = cache_root();
    sh_shard_source *source = sh_shard_source_create(root, LIMIT, h.hub);
    bool changed;
    rig r;
    sh_err err;
    faults("{\"files\": {\"status\": 503, \"headers\": {\"Retry-After\": \"250\"}}}");
    assert_int_equal(pipe(stop), 0);
    link.stop_fd = stop[0];
    CHECK_OK(sh_shard_source_connect(source, &link, h.id, 1, &changed, &err), err);
    assert_int_equal(write(stop[1], "x", 1), 1);
    int64_t start = sh_clock_ns();
    assert_int_not_equal(
        model_load(&r, sh_shard_source_dir(source), NULL, sh_shard_source_windows(source), &err),
        SH_OK);
    assert_true(sh_clock_ns() - start < 100 * INT64_C(1000000000));
    rig_close(&r);
    sh_shard_source_free(source);
    close(stop[0]);
    close(stop[1]);
    free(root);
    host_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_merged_over_short_gaps),
        cmocka_unit_test(any_shard_comes_from_the_hub_and_is_kept),
        cmocka_unit_test(what_goes_wrong_for_a_while_is_tried_again),
        cmocka_unit_test(another_file_and_a_hub_that_fails_leave_it_to_rank_0),
        cmocka_unit_test(files_that_are_not_from_the_hub_come_from_rank_0),
        cmocka_unit_test(what_is_kept_is_compared_with_rank_0_if_its_files_were_written_since),
        cmocka_unit_test(a_group_that_ends_does_not_wait_for_the_hub),
    };
    void *none = NULL;
    if (system("command -v python3 curl >/dev/null") != 0) {
        puts("# skipped: shares from a hub need python3 and curl");
        return 0;
    }
    if (make_dir(&none) != 0) return 1;
    pid_t pid = hub_start();
    model_pull();
    int failed = cmocka_run_group_tests_name("hub shares", tests, NULL, NULL);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    free(endpoint);
    free(snapshot);
    return failed + remove_dir(&none);
}
