/* The list of hosts that a cluster is meant to have: numbers that stay, and bad files. */
#include "cluster/placement.h"

#include "base/alloc.h"
#include "cluster/state_dir.h"

#include "scratch.h"

static sh_err err;

/* As after a launch or in `hosts add`: all hosts are known. */
static void hosts_open(const char *text, sh_hostfile **file, sh_remote_hosts *hosts)
{
    CHECK_OK(sh_hostfile_parse(sh_str_of(text), "test", file, &err), err);
    CHECK_OK(sh_remote_hosts_init(hosts, *file, &err), err);
    for (int i = 0; i < hosts->count; i++) {
        hosts->list[i].state = sh_strdup("/state");
        hosts->list[i].program = sh_strdup("bin/shoal");
    }
}

static void launch(sh_placement *p, const char *text)
{
    sh_hostfile *file;
    sh_remote_hosts hosts;
    hosts_open(text, &file, &hosts);
    CHECK_OK(sh_placement_init(p, &hosts, &err), err);
    sh_remote_hosts_reset(&hosts);
    sh_hostfile_free(file);
}

static void add(sh_placement *p, const char *name)
{
    char text[128];
    sh_hostfile *file;
    sh_remote_hosts hosts;
    snprintf(text, sizeof(text), "[{\"ssh\": \"a\"}, {\"ssh\": \"%s\"}]", name);
    hosts_open(text, &file, &hosts);
    CHECK_OK(sh_placement_add(p, &hosts, 1, &err), err);
    sh_remote_hosts_reset(&hosts);
    sh_hostfile_free(file);
}

static const char THREE[] =
    "{\"backend\": \"ring\", \"envs\": [\"K=V\"], \"hosts\": [{\"ssh\": \"me@a\", \"ips\": "
    "[\"10.9.0.1\"]}, {\"ssh\": \"b\"}, {\"ssh\": \"c\"}]}";

TEST(a_rank_keeps_its_number_and_no_number_is_used_twice)
{
    UNUSED_STATE;
    sh_placement p;
    launch(&p, THREE);
    assert_int_equal(p.count, 3);
    assert_false(p.changed);
    add(&p, "d");
    sh_placement_remove(&p, sh_placement_find(&p, 1));
    sh_placement_remove(&p, sh_placement_find(&p, 3));
    add(&p, "e");
    assert_true(p.changed);
    assert_int_equal(p.count, 3);
    assert_int_equal(p.list[1].rank, 2);
    assert_string_equal(p.list[1].name, "c");
    assert_int_equal(p.list[2].rank, 4);
    assert_string_equal(p.list[2].ssh, "e");
    assert_int_equal(sh_placement_find(&p, 1), -1);
    sh_placement_reset(&p);
}

TEST(it_is_read_as_it_was_written_and_is_a_hostfile)
{
    UNUSED_STATE;
    sh_placement p, again;
    sh_hostfile *file;
    launch(&p, THREE);
    add(&p, "d");
    sh_placement_remove(&p, 1);
    CHECK_OK(sh_placement_write(&p, dir, &err), err);
    CHECK_OK(sh_placement_read(&again, dir, &err), err);
    assert_int_equal(again.count, 3);
    assert_int_equal(again.next, 4);
    assert_true(again.changed);
    assert_string_equal(again.list[0].ssh, "me@a");
    assert_string_equal(again.list[2].folder, "/state");
    CHECK_OK(sh_placement_hostfile(&again, &file, &err), err);
    assert_int_equal(file->count, 3);
    assert_string_equal(file->backend, "ring");
    assert_string_equal(file->env[0], "K=V");
    assert_string_equal(file->host[0].address[0], "10.9.0.1");
    assert_string_equal(file->host[2].ssh, "d");
    sh_hostfile_free(file);
    sh_placement_reset(&p);
    sh_placement_reset(&again);
}

TEST(numbers_run_out_with_advice)
{
    UNUSED_STATE;
    sh_placement p;
    launch(&p, THREE);
    while (p.next < SH_RANKS_MAX) {
        add(&p, "d");
        sh_placement_remove(&p, p.count - 1);
    }
    sh_hostfile *file;
    sh_remote_hosts hosts;
    hosts_open("[{\"ssh\": \"a\"}, {\"ssh\": \"d\"}]", &file, &hosts);
    CHECK_FAILS(sh_placement_add(&p, &hosts, 1, &err), err, "restart --cold");
    sh_remote_hosts_reset(&hosts);
    sh_hostfile_free(file);
    sh_placement_reset(&p);
}

static void refused(const char *text, const char *why)
{
    sh_placement p;
    CHECK_OK(sh_state_dir_write(dir, "hosts.json", sh_str_of(text), &err), err);
    CHECK_FAILS(sh_placement_read(&p, dir, &err), err, why);
    sh_placement_reset(&p);
}

TEST(a_bad_file_is_refused_with_the_reason)
{
    UNUSED_STATE;
    refused("{", "hosts.json");
    refused("{}", "'next'");
    refused("{\"next\": 1}", "has 0 hosts");
    refused("{\"next\": 1, \"hosts\": [{}]}", "'rank'");
    refused("{\"next\": 1, \"hosts\": [{\"rank\": 0, \"name\": 5}]}", "'name'");
    refused("{\"next\": 9, \"hosts\": [{\"rank\": 0, \"name\": \"a\", \"folder\": \"/\", "
            "\"program\": \"p\"}, {\"rank\": 0, \"name\": \"b\", \"folder\": \"/\", "
            "\"program\": \"p\"}]}",
            "rank 0 twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_keeps_its_number_and_no_number_is_used_twice),
        cmocka_unit_test(it_is_read_as_it_was_written_and_is_a_hostfile),
        cmocka_unit_test(numbers_run_out_with_advice),
        cmocka_unit_test(a_bad_file_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
