/* A shard whose bytes come from rank 0, or from what was kept of them, is the same as one that is
 * loaded from the files; whatever happened to the link or to the disk in between. The server is the
 * real one, at the other end of a socket. */
#include "share/shard_cache.h"
#include "share/shard_folder.h"

#include "base/clock.h"
#include "model/synth.h"
#include "net/sock.h"

#include "unit/share/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS = SLOW ? 1 : 3 };

TEST(any_shard_is_the_same_over_a_link)
{
    char *model = model_path(*state);
    host h = host_open(model);
    sh_config config;
    sh_err err;
    CHECK_OK(sh_config_load(model, &config, &err), err);
    for (int i = 0; i < TURNS; i++) {
        sh_shard shard = random_shard(&config);
        empty_cache();
        sh_shard_origin first = load_and_compare(&h, LIMIT, &shard);
        sh_shard_origin second = load_and_compare(&h, LIMIT, &shard);
        assert_int_equal(second.link, 0);
        /* Some windows are needed twice. */
        assert_int_equal(second.disk, first.link + first.disk);
        assert_int_equal(sh_share_server_sent(h.server), first.link);
        host_close(&h);
        h = host_open(model);
    }
    sh_config_reset(&config);
    host_close(&h);
    free(model);
}

/* ---- one model, and all that may go wrong ---- */

static const char MODEL[] = "qwen3_moe-bf16";

static host small_host(void)
{
    char *model = model_path(MODEL);
    host h = host_open(model);
    free(model);
    empty_cache();
    return h;
}

/* The path of a file in the only shard folder of the cache; never freed twice in a test. */
static char *kept_file(const char *name)
{
    char *root = cache_root();
    char *command = sh_asprintf("ls -d '%s'/*/%s", root, name), text[512] = "";
    FILE *out = popen(command, "r");
    assert_non_null(out);
    assert_non_null(fgets(text, sizeof(text), out));
    pclose(out);
    text[strcspn(text, "\n")] = '\0';
    free(command);
    free(root);
    return sh_strdup(text);
}

TEST(nothing_is_kept_without_a_limit)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_origin first = load_and_compare(&h, 0, NULL), again = load_and_compare(&h, 0, NULL);
    assert_int_equal(again.link, first.link);
    assert_int_equal(again.disk, 0);
    char *root = cache_root(), *command = sh_asprintf("test -z \"$(ls '%s')\"", root);
    assert_int_equal(system(command), 0);
    free(command);
    free(root);
    host_close(&h);
}

TEST(changed_bytes_on_the_disk_are_fetched_again)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_origin first = load_and_compare(&h, LIMIT, NULL);
    char *data = kept_file("data");
    int fd = open(data, O_WRONLY);
    assert_int_equal(pwrite(fd, "damaged", 7, 5000), 7);
    close(fd);
    sh_shard_origin again = load_and_compare(&h, LIMIT, NULL);
    assert_true(again.link > 0 && again.link <= SH_SHARE_WINDOW_MAX);
    assert_int_equal(again.link + again.disk, first.link);
    sh_shard_origin healed = load_and_compare(&h, LIMIT, NULL);
    assert_int_equal(healed.link, 0);
    free(data);
    host_close(&h);
}

/* The file is cut where a process was killed, and what follows is not lost with it. */
TEST(a_journal_with_half_a_line_and_nonsense_is_used_as_far_as_it_is_good)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_origin first = load_and_compare(&h, LIMIT, NULL);
    char *journal = kept_file("journal");
    struct stat st;
    assert_int_equal(stat(journal, &st), 0);
    assert_int_equal(truncate(journal, st.st_size - 20), 0);
    sh_shard_origin again = load_and_compare(&h, LIMIT, NULL);
    assert_true(again.link > 0 && again.link <= SH_SHARE_WINDOW_MAX);
    int fd = open(journal, O_WRONLY | O_APPEND);
    static const char nonsense[] =
        "0 1 2\n99999 0 1 1 1 0 x y\n\n0 0 18446744073709551615 2 3 0 0 ";
    assert_int_equal(write(fd, nonsense, sizeof(nonsense)), sizeof(nonsense));
    close(fd);
    assert_int_equal(load_and_compare(&h, LIMIT, NULL).link, 0);
    assert_int_equal(load_and_compare(&h, LIMIT, NULL).disk, first.link);
    free(journal);
    host_close(&h);
}

/* The other end goes away as soon as something is kept. */
typedef struct {
    host *h;
    char *journal;
} cut;

static void *cut_run(void *arg)
{
    cut *c = arg;
    struct stat st;
    while (stat(c->journal, &st) == 0 && st.st_size == 0) sh_sleep_ms(0);
    sh_share_server_end_visits(c->h->server);
    return NULL;
}

TEST(what_came_before_the_link_was_cut_is_kept)
{
    UNUSED_STATE;
    host h = small_host();
    rig r;
    pthread_t thread;
    sh_err err = {0};
    sh_shard_source *source = source_open(&h, LIMIT);
    cut c = {&h, kept_file("journal")};
    assert_int_equal(pthread_create(&thread, NULL, cut_run, &c), 0);
    sh_status status = model_load(&r, sh_shard_source_dir(source), NULL,
                                  sh_shard_source_windows(source), &err);
    pthread_join(thread, NULL);
    uint64_t came = sh_shard_source_origin(source).link;
    rig_close(&r);
    sh_shard_source_free(source);
    if (status != SH_OK) assert_int_equal(status, SH_ERR_PEER); /* it may just have been faster */
    sh_shard_origin again = load_and_compare(&h, LIMIT, NULL);
    assert_true(again.disk > 0);
    assert_true(again.disk <= came || status == SH_OK);
    free(c.journal);
    host_close(&h);
}

/* The same model, written again: first with the same bytes, then with other weights. */
TEST(other_weights_of_the_same_shape_are_noticed)
{
    UNUSED_STATE;
    char *model = model_path(MODEL), *copy = sh_path_join(dir, "copy");
    char *command = sh_asprintf("rm -rf '%s'; cp -r '%s' '%s'", copy, model, copy);
    assert_int_equal(system(command), 0);
    empty_cache();
    host h = host_open(copy);
    sh_shard_origin first = load_and_compare(&h, LIMIT, NULL);
    host_close(&h);

    assert_int_equal(system(command), 0);
    h = host_open(copy);
    sh_shard_origin same = load_and_compare(&h, LIMIT, NULL);
    assert_int_equal(same.link, 0);
    assert_int_equal(same.disk, first.link);
    host_close(&h);

    char *weights = sh_path_join(copy, "model.safetensors");
    struct stat st;
    assert_int_equal(stat(weights, &st), 0);
    int fd = open(weights, O_WRONLY);
    assert_int_equal(pwrite(fd, "otherwise", 9, st.st_size - 9), 9);
    close(fd);
    h = host_open(copy);
    sh_shard_origin other = load_and_compare(&h, LIMIT, NULL);
    assert_true(other.link > 0 && other.link <= SH_SHARE_WINDOW_MAX);
    host_close(&h);
    free(weights);
    free(command);
    free(copy);
    free(model);
}

/* A layer with matrices of several pieces. */
TEST(other_shares_use_all_that_is_here_of_them)
{
    UNUSED_STATE;
    const sh_str text = SH_STR(
        "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":1,"
        "\"intermediate_size\":16384,\"num_attention_heads\":8,\"num_key_value_heads\":8,"
        "\"rms_norm_eps\":1e-5,\"vocab_size\":512,\"max_position_embeddings\":512,"
        "\"tie_word_embeddings\":true}");
    sh_synth_opts opts = {.bits = 4, .group = 64};
    char *model = sh_path_join(dir, "wide");
    sh_config config;
    sh_shard even[2], uneven[2];
    sh_err err = {0};
    CHECK_OK(sh_synth_write(text, "config", model, &opts, &err), err);
    CHECK_OK(sh_config_load(model, &config, &err), err);
    CHECK_OK(sh_shard_plan(&config, &(sh_plan_opts){2, 1, (double[]){1, 1}, 0}, even, &err), err);
    CHECK_OK(sh_shard_plan(&config, &(sh_plan_opts){2, 1, (double[]){3, 2}, 0}, uneven, &err), err);
    empty_cache();
    host h = host_open(model);
    uint64_t large = load_and_compare(&h, LIMIT, &even[1]).link;
    sh_shard_origin less = load_and_compare(&h, LIMIT, &uneven[1]);
    assert_int_equal(less.link, 0); /* all of it was a part of the larger share */
    assert_true(less.disk < large);
    empty_cache();
    assert_int_equal(load_and_compare(&h, LIMIT, &uneven[1]).link, less.disk);
    sh_shard_origin more = load_and_compare(&h, LIMIT, &even[1]);
    assert_int_equal(more.disk, less.disk);
    assert_int_equal(more.link, large - less.disk); /* only the rest travels */
    assert_int_equal(load_and_compare(&h, LIMIT, &even[1]).link, 0);
    host_close(&h);
    sh_config_reset(&config);
    free(model);
}

TEST(a_rank_with_another_number_takes_over_what_is_here)
{
    UNUSED_STATE;
    host h = small_host();
    uint64_t all = load_and_compare(&h, LIMIT, NULL).link;
    char *data = kept_file("data"), *root = cache_root();
    char *command = sh_asprintf("cd '%s' && for i in *-1.0; do mv $i ${i%%-1.0}-5.0; done", root);
    assert_int_equal(system(command), 0);
    sh_shard_origin again = load_and_compare(&h, LIMIT, NULL);
    assert_int_equal(again.link, 0);
    assert_int_equal(again.disk, all);
    assert_int_equal(access(data, F_OK), 0); /* under its own number again */
    free(command);
    free(root);
    free(data);
    host_close(&h);
}

/* What a command says about the cache, as a number. */
static uint64_t ask_cache(const char *format)
{
    char *root = cache_root(), text[32] = "";
    char *command = sh_asprintf("cd '%s' && %s", root, format);
    FILE *out = popen(command, "r");
    assert_non_null(fgets(text, sizeof(text), out));
    pclose(out);
    free(command);
    free(root);
    return strtoull(text, NULL, 10);
}

static uint64_t link_bytes(const char *name, uint64_t limit)
{
    char *model = model_path(name);
    host h = host_open(model);
    uint64_t bytes = load_and_compare(&h, limit, NULL).link;
    host_close(&h);
    free(model);
    return bytes;
}

TEST(the_model_that_was_not_used_lately_goes_first)
{
    UNUSED_STATE;
    static const char *const names[] = {"qwen3_moe-bf16", "llama-4bit", "lfm2-bf16"};
    empty_cache();
    uint64_t third = link_bytes(names[2], 0), first = link_bytes(names[0], LIMIT);
    assert_true(link_bytes(names[1], LIMIT) > 0);
    /* Enough for the second and the third, but not for all of them. */
    uint64_t limit = ask_cache("du -sk . | cut -f1") * 1024 + third - first / 2;
    uint64_t came = link_bytes(names[2], limit);
    assert_true(came > third / 2 && came <= third); /* some windows are needed twice */
    assert_int_equal(ask_cache("ls | wc -l"), 2);
    assert_int_equal(link_bytes(names[1], limit), 0);
    assert_int_equal(link_bytes(names[2], limit), 0);
}

TEST(a_cache_that_is_too_small_keeps_a_part_and_everything_works)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_origin first = load_and_compare(&h, 200 << 10, NULL);
    assert_int_equal(first.disk, 0);
    sh_shard_origin again = load_and_compare(&h, 200 << 10, NULL);
    assert_true(again.disk > 0 && again.disk <= 200 << 10);
    assert_int_equal(again.link + again.disk, first.link);
    host_close(&h);
}

TEST(two_processes_do_not_share_a_folder)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_source *a = source_open(&h, LIMIT), *b = source_open(&h, LIMIT);
    assert_string_not_equal(sh_shard_source_dir(a), sh_shard_source_dir(b));
    sh_shard_source_free(a);
    sh_shard_source_free(b);
    host_close(&h);
}

TEST(an_outline_is_not_a_model)
{
    UNUSED_STATE;
    host h = small_host();
    sh_shard_source *source = source_open(&h, LIMIT);
    sh_tensors *set = NULL;
    sh_err err;
    CHECK_FAILS(sh_tensors_open(sh_shard_source_dir(source), &set, &err), err, "shard cache");
    sh_shard_source_free(source);
    host_close(&h);
}

/* ---- requests that are wrong ---- */

static void refused(host *h, uint32_t file, sh_window window, const char *why)
{
    static char data[SH_SHARE_WINDOW_MAX];
    sh_share_link link = link_to(h);
    sh_share_client *client = sh_share_client_create(&link);
    sh_share_part part = {.request = {.kind = SH_SHARE_WINDOW, .file = file, .window = window},
                          .data = data};
    sh_err err = {0};
    CHECK_FAILS(sh_share_client_read(client, &part, 1, &err), err, why);
    sh_share_client_free(client);
}

TEST(windows_outside_the_files_are_refused)
{
    UNUSED_STATE;
    host h = small_host();
    refused(&h, 77, sh_window_range(0, 1), "no file number 77");
    refused(&h, 0, sh_window_range(0, 0), "are allowed");
    refused(&h, 0, sh_window_range(UINT64_MAX, 2), "are allowed");
    refused(&h, 0, (sh_window){0, UINT64_MAX / 2, 8, 4}, "are allowed");
    refused(&h, 0, (sh_window){0, 1, 8, 4}, "are allowed");
    refused(&h, 0, sh_window_range(0, 1 << 19), "are allowed");
    refused(&h, 0, sh_window_range(0, UINT64_MAX), "are allowed");
    host_close(&h);
}

/* They become parts of URLs on the other side. */
TEST(an_outline_with_an_odd_origin_is_refused)
{
#define COMMIT "0123456789abcdef0123456789abcdef01234567"
    static const struct {
        const char *id, *commit, *etag, *why; /* NULL: allowed */
    } cases[] = {
        {"", "", "", NULL},
        {"org/demo", COMMIT, COMMIT, NULL},
        {"org/demo", COMMIT, "", NULL},
        {"org/demo", "main", COMMIT, "says that it is from the hub"},
        {"org/demo", "", COMMIT, "says that it is from the hub"},
        {"", COMMIT, COMMIT, "says that it is from the hub"},
        {"org/../demo", COMMIT, COMMIT, "says that it is from the hub"},
        {"org/demo@main", COMMIT, COMMIT, "says that it is from the hub"},
        {"org/demo?x=", COMMIT, COMMIT, "says that it is from the hub"},
        {"org/demo", COMMIT, "abc", "has an ETag of 'config.json' that is not a digest"},
        {"org/demo", COMMIT, COMMIT "z", "has an ETag of 'config.json' that is not a digest"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_share_file file = {.name = "config.json", .size = 2, .start = SH_STR("{}")};
        sh_share_outline outline = {.files = &file, .count = 1}, again;
        sh_arena arena = {0};
        sh_buf packed = {0};
        sh_err err;
        strcpy(outline.origin.id, cases[i].id);
        strcpy(outline.origin.revision, cases[i].commit);
        strcpy(file.etag, cases[i].etag);
        sh_share_outline_pack(&outline, &packed);
        sh_status status = sh_share_outline_unpack(sh_buf_str(&packed), &arena, &again, &err);
        if (cases[i].why != NULL) {
            CHECK_FAILS(status, err, cases[i].why);
        } else {
            CHECK_OK(status, err);
            assert_string_equal(again.origin.id, cases[i].id);
            assert_string_equal(again.files[0].etag, cases[i].etag);
        }
        sh_arena_reset(&arena);
        sh_buf_reset(&packed);
    }
}

TEST(bytes_that_are_no_request_end_the_connection)
{
    UNUSED_STATE;
    host h = small_host();
    sh_stream stream;
    sh_err err;
    char bytes[SH_SHARE_REQUEST_LEN] = "GET / HTTP/1.1\r\n\r\n", byte;
    struct iovec part = {bytes, sizeof(bytes)};
    CHECK_OK(link_open(&h, 0, &stream, &err), err);
    CHECK_OK(sh_stream_send(&stream, &part, 1, -1, 10000, &err), err);
    CHECK_FAILS(sh_stream_recv(&stream, &byte, 1, -1, 10000, &err), err, "closed");
    sh_stream_close(&stream);
    host_close(&h);
}

TEST(a_rank_has_a_bounded_number_of_connections)
{
    UNUSED_STATE;
    host h = small_host();
    sh_stream streams[SH_SHARE_CONNS_MAX + 1];
    sh_err err;
    char byte;
    for (int i = 0; i <= SH_SHARE_CONNS_MAX; i++)
        CHECK_OK(link_open(&h, i, &streams[i], &err), err);
    CHECK_FAILS(sh_stream_recv(&streams[SH_SHARE_CONNS_MAX], &byte, 1, -1, 10000, &err), err,
                "closed");
    for (int i = 0; i <= SH_SHARE_CONNS_MAX; i++) sh_stream_close(&streams[i]);
    host_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_kept_without_a_limit),
        cmocka_unit_test(changed_bytes_on_the_disk_are_fetched_again),
        cmocka_unit_test(a_journal_with_half_a_line_and_nonsense_is_used_as_far_as_it_is_good),
        cmocka_unit_test(what_came_before_the_link_was_cut_is_kept),
        cmocka_unit_test(other_weights_of_the_same_shape_are_noticed),
        cmocka_unit_test(other_shares_use_all_that_is_here_of_them),
        cmocka_unit_test(a_rank_with_another_number_takes_over_what_is_here),
        cmocka_unit_test(the_model_that_was_not_used_lately_goes_first),
        cmocka_unit_test(a_cache_that_is_too_small_keeps_a_part_and_everything_works),
        cmocka_unit_test(two_processes_do_not_share_a_folder),
        cmocka_unit_test(an_outline_is_not_a_model),
        cmocka_unit_test(windows_outside_the_files_are_refused),
        cmocka_unit_test(an_outline_with_an_odd_origin_is_refused),
        cmocka_unit_test(bytes_that_are_no_request_end_the_connection),
        cmocka_unit_test(a_rank_has_a_bounded_number_of_connections),
    };
    void *none = NULL;
    if (make_dir(&none) != 0) return 1;
    int failed = rig_each_model("shares", any_shard_is_the_same_over_a_link);
    failed += cmocka_run_group_tests_name("shares", tests, NULL, NULL);
    return failed + remove_dir(&none);
}
