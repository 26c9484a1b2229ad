/* Which folders of a folder are models. */
#include "store/model_dir.h"

#include "base/file.h"

#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static sh_err err;

static void make(const char *path, bool model)
{
    char *full = sh_path_join(dir, path), *config = sh_path_join(full, "config.json");
    assert_int_equal(mkdir(full, 0700), 0);
    if (model) CHECK_OK(sh_file_write(config, "{}", 2, &err), err);
    free(config);
    free(full);
}

TEST(models_are_found_on_two_levels_and_through_links)
{
    UNUSED_STATE;
    sh_model_dir found;
    char *target = sh_path_join(dir, "org/a"), *link = sh_path_join(dir, "b");
    make("z", true);
    make("org", false);
    make("org/a", true);
    make("org/deep", false);
    make("org/deep/er", true); /* too deep */
    make("z/inner", true);     /* part of a model */
    make(".hidden", true);
    make("empty", false);
    assert_int_equal(symlink(target, link), 0);
    CHECK_OK(sh_model_dir_read(dir, &found, &err), err);
    assert_int_equal(found.count, 3);
    assert_string_equal(found.names[0], "b");
    assert_string_equal(found.names[1], "org/a");
    assert_string_equal(found.names[2], "z");
    sh_model_dir_reset(&found);
    free(target);
    free(link);
}

TEST(a_folder_that_is_not_there_is_an_error)
{
    UNUSED_STATE;
    sh_model_dir found;
    assert_int_equal(sh_model_dir_read("/nonexistent/shoal", &found, &err), SH_ERR_SYSTEM);
    assert_int_equal(found.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_found_on_two_levels_and_through_links),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
