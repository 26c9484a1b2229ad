/* A file of the cache while it arrives: its digest decides, and what was written stays its
 * beginning. */
#include "store/blob.h"

#include "base/file.h"

#include "scratch.h"

#include <unistd.h>

/* The bytes "hello\n": as git names them (`git hash-object`), and their SHA-256 (`sha256sum`). */
#define GIT "ce013625030ba8dba906f756967f9e9ca394464a"
#define SHA256 "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

static bool go_on(void *ctx)
{
    (void)ctx;
    return true;
}

static bool stop(void *ctx)
{
    (void)ctx;
    return false;
}

static sh_err err;

static void open_blob(const char *digest, sh_blob *blob)
{
    CHECK_OK(sh_blob_open(dir, digest, 6, go_on, NULL, blob, &err), err);
}

TEST(both_kinds_of_digests_are_checked)
{
    UNUSED_STATE;
    static const char *const digests[] = {GIT, SHA256};
    for (size_t i = 0; i < SH_COUNT_OF(digests); i++) {
        sh_blob blob;
        open_blob(digests[i], &blob);
        CHECK_OK(sh_blob_add(&blob, "hel", 3, &err), err);
        CHECK_OK(sh_blob_add(&blob, "lo\n", 3, &err), err);
        assert_false(sh_blob_is_there(dir, digests[i], 6));
        CHECK_OK(sh_blob_finish(&blob, &err), err);
        sh_blob_close(&blob);
        assert_true(sh_blob_is_there(dir, digests[i], 6));
        assert_false(sh_blob_is_there(dir, digests[i], 7));
        char *path = sh_cache_blob(dir, digests[i], "");
        assert_int_equal(unlink(path), 0);
        free(path);
    }
}

TEST(it_goes_on_where_it_stopped)
{
    UNUSED_STATE;
    sh_blob blob;
    open_blob(SHA256, &blob);
    CHECK_OK(sh_blob_add(&blob, "hell", 4, &err), err);
    sh_blob_close(&blob);
    assert_int_equal(sh_blob_begun(dir, SHA256, 6), 4);
    CHECK_FAILS(sh_blob_open(dir, SHA256, 6, stop, NULL, &blob, &err), err, "stopped");
    open_blob(SHA256, &blob);
    assert_int_equal(blob.len, 4);
    CHECK_OK(sh_blob_add(&blob, "o\n", 2, &err), err);
    CHECK_OK(sh_blob_finish(&blob, &err), err);
    sh_blob_close(&blob);
    assert_int_equal(sh_blob_begun(dir, SHA256, 6), 0);
}

TEST(wrong_bytes_start_it_again)
{
    UNUSED_STATE;
    sh_blob blob;
    open_blob(GIT, &blob);
    CHECK_OK(sh_blob_add(&blob, "hallo\n", 6, &err), err);
    CHECK_FAILS(sh_blob_finish(&blob, &err), err, "not " GIT);
    assert_int_equal(blob.len, 0);
    assert_false(sh_blob_is_there(dir, GIT, 6));
    CHECK_OK(sh_blob_add(&blob, "hello\n", 6, &err), err);
    CHECK_OK(sh_blob_finish(&blob, &err), err);
    sh_blob_close(&blob);
    assert_true(sh_blob_is_there(dir, GIT, 6));
}

TEST(a_beginning_that_is_too_long_is_dropped)
{
    UNUSED_STATE;
    sh_blob blob;
    char *path = sh_cache_blob(dir, SHA256, ".incomplete");
    CHECK_OK(sh_file_write(path, "hello\nhello\n", 12, &err), err);
    assert_int_equal(sh_blob_begun(dir, SHA256, 6), 0);
    open_blob(SHA256, &blob);
    assert_int_equal(blob.len, 0);
    sh_blob_close(&blob);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_of_digests_are_checked),
        cmocka_unit_test(it_goes_on_where_it_stopped),
        cmocka_unit_test(wrong_bytes_start_it_again),
        cmocka_unit_test(a_beginning_that_is_too_long_is_dropped),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
