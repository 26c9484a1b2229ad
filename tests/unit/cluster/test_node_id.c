/* The identity of a machine, in its state folder. */
#include "cluster/node_id.h"

#include "base/file.h"

#include "scratch.h"

#include <unistd.h>

static void claim(char **file, int *lock)
{
    sh_err err;
    char *state = sh_path_join(dir, "state");
    CHECK_OK(sh_node_id_claim(state, file, lock, &err), err);
    free(state);
}

TEST(each_process_has_an_id_of_its_own_that_stays)
{
    UNUSED_STATE;
    uint8_t id[2][SH_NODE_ID_LEN], again[SH_NODE_ID_LEN];
    char *file[2], *same;
    int lock[2], relock;
    sh_err err;
    for (int i = 0; i < 2; i++) {
        claim(&file[i], &lock[i]);
        CHECK_OK(sh_node_id_read(file[i], id[i], &err), err);
    }
    assert_string_not_equal(file[0], file[1]);
    assert_memory_not_equal(id[0], id[1], SH_NODE_ID_LEN);
    close(lock[0]);
    claim(&same, &relock);
    assert_string_equal(same, file[0]);
    CHECK_OK(sh_node_id_read(same, again, &err), err);
    assert_memory_equal(again, id[0], SH_NODE_ID_LEN);
    close(relock);
    close(lock[1]);
    free(file[0]);
    free(file[1]);
    free(same);
}

TEST(a_new_id_replaces_the_old_one)
{
    UNUSED_STATE;
    uint8_t old[SH_NODE_ID_LEN], made[SH_NODE_ID_LEN], read[SH_NODE_ID_LEN];
    char *file = sh_path_join(dir, "node");
    sh_err err;
    CHECK_OK(sh_node_id_read(file, old, &err), err);
    CHECK_OK(sh_node_id_renew(file, made, &err), err);
    CHECK_OK(sh_node_id_read(file, read, &err), err);
    assert_memory_not_equal(old, made, SH_NODE_ID_LEN);
    assert_memory_equal(read, made, SH_NODE_ID_LEN);
    free(file);
}

TEST(a_damaged_file_is_replaced)
{
    UNUSED_STATE;
    static const char *const bad[] = {"", "xyz\n", "00112233445566778899aabbccddeeff00\n",
                                      "00112233445566778899aabbccddeefg\n"};
    char *file = sh_path_join(dir, "damaged");
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        uint8_t made[SH_NODE_ID_LEN], read[SH_NODE_ID_LEN];
        sh_err err;
        CHECK_OK(sh_file_write_private(file, bad[i], strlen(bad[i]), &err), err);
        CHECK_OK(sh_node_id_read(file, made, &err), err);
        CHECK_OK(sh_node_id_read(file, read, &err), err);
        assert_memory_equal(read, made, SH_NODE_ID_LEN);
    }
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_process_has_an_id_of_its_own_that_stays),
        cmocka_unit_test(a_new_id_replaces_the_old_one),
        cmocka_unit_test(a_damaged_file_is_replaced),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
