#include "store/find.h"

#include "base/file.h"
#include "store/cache.h"

#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

static char top[64];

static void put(const char *path, const char *text)
{
    char full[512], *slash = full;
    sh_err err;
    snprintf(full, sizeof(full), "%s/%s", top, path);
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    CHECK_OK(sh_file_write(full, text, strlen(text), &err), err);
}

static int make(void **state)
{
    (void)state;
    strcpy(top, "/tmp/shoal-find-XXXXXX");
    assert_non_null(mkdtemp(top));
    put("hub/models--org--one/snapshots/aaa/config.json", "{}");
    put("hub/models--org--one/snapshots/bbb/config.json", "{}");
    put("hub/models--org--one/refs/main", "bbb\n");
    put("hub/models--org--half/refs/main", "ccc");
    put("hub/models--org--evil/refs/main", "../../../elsewhere");
    put("hub/models--org--noref/snapshots/ddd/config.json", "{}");
    put("home/.cache/huggingface/hub/models--solo/snapshots/e/config.json", "{}");
    put("home/models/x/config.json", "{}");
    put("mine/flat/config.json", "{}");
    put("elsewhere/config.json", "{}");
    return 0;
}

static int drop(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", top);
    return system(command);
}

/* The path that was found, relative to the top folder. */
static const char *find(const char *name, const char *models, const char *cache,
                        const char *hf_home)
{
    static char found[512];
    char paths[4][256], *out = NULL;
    sh_err err;
    snprintf(paths[0], sizeof(paths[0]), "%s/%s", top, models == NULL ? "" : models);
    snprintf(paths[1], sizeof(paths[1]), "%s/%s", top, cache == NULL ? "" : cache);
    snprintf(paths[2], sizeof(paths[2]), "%s/%s", top, hf_home == NULL ? "" : hf_home);
    snprintf(paths[3], sizeof(paths[3]), "%s/home", top);
    sh_store_places places = {.models = models == NULL ? NULL : paths[0],
                              .hub_cache = cache == NULL ? NULL : paths[1],
                              .hf_home = hf_home == NULL ? NULL : paths[2],
                              .home = paths[3]};
    if (sh_store_find(name, &places, &out, &err) != SH_OK) {
        snprintf(found, sizeof(found), "%s", err.text);
        return found;
    }
    bool inside = strncmp(out, top, strlen(top)) == 0;
    snprintf(found, sizeof(found), "%s", inside ? out + strlen(top) + 1 : out);
    free(out);
    return found;
}

TEST(the_revision_of_main_is_taken)
{
    UNUSED_STATE;
    assert_string_equal(find("org/one", NULL, "hub", NULL), "hub/models--org--one/snapshots/bbb");
    assert_string_equal(find("org/one", NULL, NULL, "."), "./hub/models--org--one/snapshots/bbb");
    assert_string_equal(find("org/noref", NULL, "hub", NULL),
                        "hub/models--org--noref/snapshots/ddd");
    assert_string_equal(find("solo", NULL, NULL, NULL),
                        "home/.cache/huggingface/hub/models--solo/snapshots/e");
}

TEST(a_revision_may_be_named)
{
    UNUSED_STATE;
    put("hub/models--org--one/refs/v1", "aaa");
    put("hub/models--org--one/refs/refs/pr/1", "aaa");
    assert_string_equal(find("org/one@v1", NULL, "hub", NULL),
                        "hub/models--org--one/snapshots/aaa");
    assert_string_equal(find("org/one@refs/pr/1", NULL, "hub", NULL),
                        "hub/models--org--one/snapshots/aaa");
    assert_string_equal(find("org/one@aaa", NULL, "hub", NULL),
                        "hub/models--org--one/snapshots/aaa");
    assert_non_null(strstr(find("org/one@v2", NULL, "hub", NULL), "has no complete snapshot"));
    assert_non_null(strstr(find("org/noref@v2", NULL, "hub", NULL), "has no complete snapshot"));
}

static bool is_complete(const char *snapshot)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", top, snapshot);
    return sh_cache_snapshot_is_complete(path);
}

TEST(a_snapshot_is_complete_with_all_files_of_its_index)
{
    UNUSED_STATE;
    const char *snapshot = "hub/models--org--one/snapshots/aaa";
    assert_false(is_complete(snapshot));
    put("hub/models--org--one/snapshots/aaa/model.safetensors", "x");
    assert_true(is_complete(snapshot));
    put("hub/models--org--one/snapshots/aaa/model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"model.safetensors\",\"b\":\"two.safetensors\"}}");
    assert_false(is_complete(snapshot));
    put("hub/models--org--one/snapshots/aaa/two.safetensors", "x");
    assert_true(is_complete(snapshot));
    put("hub/models--org--one/snapshots/aaa/model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"../bbb/config.json\"}}");
    assert_false(is_complete(snapshot));
}

TEST(a_folder_is_itself_and_a_folder_of_models_is_searched)
{
    UNUSED_STATE;
    assert_string_equal(find("/no/such/place", NULL, NULL, NULL), "/no/such/place");
    assert_string_equal(find("~/models/x", NULL, NULL, NULL), "home/models/x");
    assert_string_equal(find("org/flat", "mine", NULL, NULL), "mine/flat");
    assert_string_equal(find("tests", "mine", NULL, NULL), "tests");
}

TEST(what_is_not_found_is_named_with_the_places)
{
    UNUSED_STATE;
    const char *text = find("org/none", "mine", "hub", "hf");
    assert_non_null(strstr(text, "mine/models--org--none"));
    assert_non_null(strstr(text, "hub/models--org--none"));
    assert_non_null(strstr(text, "hf/hub/models--org--none"));
    assert_non_null(strstr(text, "home/.cache/huggingface/hub/models--org--none"));
    assert_non_null(strstr(find("org/half", NULL, "hub", NULL), "has no complete snapshot"));
    assert_non_null(strstr(find("org/evil", NULL, "hub", NULL), "has no complete snapshot"));
}

TEST(a_folder_of_the_cache_knows_its_name)
{
    UNUSED_STATE;
    char *name = sh_store_name("/x/hub/models--org--a--b/snapshots/abc");
    assert_string_equal(name, "org/a--b");
    free(name);
    name = sh_store_name("/x/models--solo/snapshots/abc");
    assert_string_equal(name, "solo");
    free(name);
    assert_null(sh_store_name("/x/my-models--org/snapshots/abc"));
    assert_null(sh_store_name("/x/demo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_revision_of_main_is_taken, make, drop),
        cmocka_unit_test_setup_teardown(a_folder_is_itself_and_a_folder_of_models_is_searched, make,
                                        drop),
        cmocka_unit_test_setup_teardown(what_is_not_found_is_named_with_the_places, make, drop),
        cmocka_unit_test_setup_teardown(a_revision_may_be_named, make, drop),
        cmocka_unit_test_setup_teardown(a_snapshot_is_complete_with_all_files_of_its_index, make,
                                        drop),
        cmocka_unit_test(a_folder_of_the_cache_knows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
