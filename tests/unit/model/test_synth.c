/* A model of random weights loads and runs like a real one, whatever its family, and an interrupted
 * run can be resumed. */
#include "model/shapes.h"
#include "model/synth.h"

#include "rig.h"
#include "scratch.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_like(const char *model, int bits, uint64_t file_max)
{
    sh_err err = {0};
    sh_buf text = {0};
    sh_synth_opts opts = {.bits = bits, .group = 32, .file_max = file_max};
    char *path = sh_asprintf("%s/%s/config.json", "tests/data/models", model);
    CHECK_OK(sh_file_read(path, 1 << 20, &text, &err), err);
    CHECK_OK(sh_synth_write(sh_buf_str(&text), path, dir, &opts, &err), err);
    sh_buf_reset(&text);
    free(path);
}

static void check_runs(void)
{
    const int32_t ids[6] = {1, 5, 9, 100, 2, 3};
    rig r = rig_open(dir, false, NULL, 1);
    int vocab = r.config->vocab;
    float *logits = sh_alloc_array((size_t)(6 * vocab), sizeof(*logits));
    rig_run(&r, ids, 0, 6, 6, 0, logits);
    double squares = 0;
    for (int i = 0; i < 6 * vocab; i++) {
        assert_true(isfinite(logits[i]));
        squares += (double)logits[i] * (double)logits[i];
    }
    double rms = sqrt(squares / (6 * vocab));
    if (!(rms > 0.3 && rms < 3)) fail_msg("logits of size %g", rms);
    free(logits);
    rig_close(&r);
}

TEST(every_family_can_be_made_and_run)
{
    UNUSED_STATE;
    static const char *const models[] = {
        "llama-4bit",   "gpt_oss-long-mxfp4",      "mixtral-4bit",         "qwen3_moe-long-4bit",
        "kimi_k2-4bit", "deepseek_v2-4bit",        "glm4_moe-4bit",        "gemma3_text-long-4bit",
        "qwen2-window", "phi3-longrope-long-4bit", "deepseek_v3-4bit",     "ministral3-long-4bit",
        "lfm2-bf16",    "lfm2-long-4bit",          "qwen3_next-long-4bit",
    };
    for (size_t i = 0; i < SH_COUNT_OF(models); i++) {
        write_like(models[i], i % 3 == 0 ? 16 : 4, 0);
        check_runs();
    }
}

static char *find_file(const char *pattern)
{
    glob_t found = {0};
    char *whole = sh_path_join(dir, pattern);
    assert_int_equal(glob(whole, 0, NULL, &found), 0);
    char *path = sh_strdup(found.gl_pathv[0]);
    globfree(&found);
    free(whole);
    return path;
}

TEST(many_files_have_an_index_and_lost_ones_come_back_the_same)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_buf before = {0}, after = {0};
    struct stat kept_before, kept_after;
    write_like("qwen3_moe-long-4bit", 4, 100000);
    check_runs();
    char *first = find_file("model-00001-of-*"), *second = find_file("model-00002-of-*");
    CHECK_OK(sh_file_read(second, 1 << 20, &before, &err), err);
    assert_int_equal(stat(first, &kept_before), 0);
    assert_int_equal(unlink(second), 0);
    write_like("qwen3_moe-long-4bit", 4, 100000);
    CHECK_OK(sh_file_read(second, 1 << 20, &after, &err), err);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.ptr, after.ptr, before.len);
    assert_int_equal(stat(first, &kept_after), 0);
    assert_int_equal(kept_before.st_ino, kept_after.st_ino);
    sh_buf_reset(&before);
    sh_buf_reset(&after);
    free(first);
    free(second);
}

TEST(every_known_shape_is_a_config)
{
    UNUSED_STATE;
    char list[512];
    sh_str rest = sh_str_of(sh_shape_list(list, sizeof(list))), name;
    int count = 0;
    while (sh_str_cut(&rest, ',', &name)) {
        sh_err err = {0};
        sh_config config;
        char *text = sh_str_dup(sh_str_trim(name));
        CHECK_OK(sh_config_parse(sh_str_of(sh_shape_find(text)), text, &config, &err), err);
        sh_config_reset(&config);
        free(text);
        count++;
    }
    assert_true(count >= 7);
    assert_null(sh_shape_find("nothing"));
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(every_family_can_be_made_and_run),
        IN_DIR(many_files_have_an_index_and_lost_ones_come_back_the_same),
        cmocka_unit_test(every_known_shape_is_a_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
