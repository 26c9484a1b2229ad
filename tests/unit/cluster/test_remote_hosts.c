/* The list of machines, and the three steps on this one; tests/cluster covers remote ones. */
#include "cluster/remote_hosts.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/version.h"

#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static sh_err err;
static int said;

static int setup(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    return make_dir(state);
}

static void count_say(void *arg, const sh_remote_host *host, const char *text)
{
    (void)arg;
    assert_non_null(host->name);
    said += strstr(text, "push") != NULL;
}

static sh_status open_text(const char *text, sh_hostfile **hosts, sh_remote_hosts *remote)
{
    CHECK_OK(sh_hostfile_parse(sh_str_of(text), "test", hosts, &err), err);
    return sh_remote_hosts_init(remote, *hosts, &err);
}

TEST(every_machine_is_there_once)
{
    UNUSED_STATE;
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    CHECK_OK(
        open_text("[{\"ssh\":\"far\"},{\"ssh\":\"me@far\"},{\"ssh\":\"far\"}]", &hosts, &remote),
        err);
    assert_int_equal(remote.count, 2);
    assert_int_equal(remote.of_rank[0], 0);
    assert_int_equal(remote.of_rank[1], 1);
    assert_int_equal(remote.of_rank[2], 0);
    assert_string_equal(remote.list[1].ssh, "me@far");
    sh_remote_hosts_reset(&remote);
    sh_hostfile_free(hosts);
    CHECK_OK(open_text("[\"127.0.0.1:9000\", \"127.0.0.2:9000\"]", &hosts, &remote), err);
    assert_int_equal(remote.count, 1);
    assert_null(remote.list[0].ssh);
    sh_remote_hosts_reset(&remote);
    sh_hostfile_free(hosts);
}

TEST(an_address_that_others_can_not_reach_is_refused)
{
    UNUSED_STATE;
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    CHECK_FAILS(open_text("[{\"ssh\":\"localhost\"},{\"ssh\":\"far\"}]", &hosts, &remote), err,
                "rank 0 has the address 'localhost'");
    sh_hostfile_free(hosts);
    CHECK_FAILS(open_text("[{\"ssh\":\"far\"},{\"ssh\":\"near\",\"ips\":[\"127.0.0.1\"]}]", &hosts,
                          &remote),
                err, "rank 1 has the address '127.0.0.1'");
    sh_hostfile_free(hosts);
    CHECK_FAILS(open_text("[[null,\"d\"],[\"d\",null]]", &hosts, &remote), err,
                "neither an address nor an ssh name");
    sh_hostfile_free(hosts);
}

static void add(sh_remote_hosts *remote, const char *name, const char *text, bool program)
{
    sh_buf bytes = {0};
    sh_buf_add_text(&bytes, text);
    sh_remote_hosts_add_file(remote, name, &bytes, program);
}

/* A program that reports this version and this model. */
static void open_local(const char *version, const char *model, sh_hostfile **hosts,
                       sh_remote_hosts *remote)
{
    char *script = sh_asprintf("#!/bin/sh\necho version %s; echo model %s\n", version, model);
    CHECK_OK(open_text("[{\"ssh\":\"localhost\"}]", hosts, remote), err);
    add(remote, "bin/shoal-x", script, true);
    add(remote, "it's/settings.env", "A=1\n", false);
    remote->state_dir = dir;
    remote->say = count_say;
    said = 0;
    CHECK_OK(sh_remote_hosts_check(remote, &err), err);
    CHECK_OK(sh_remote_hosts_push(remote, &err), err);
    free(script);
}

static void close_local(sh_hostfile *hosts, sh_remote_hosts *remote)
{
    sh_remote_hosts_reset(remote);
    sh_hostfile_free(hosts);
}

TEST(missing_and_changed_files_are_pushed_and_nothing_else)
{
    UNUSED_STATE;
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    struct stat st;
    sh_buf text = {0};
    open_local(sh_version(), "abc", &hosts, &remote);
    assert_int_equal(said, 2);
    char *path = sh_path_join(dir, "it's/settings.env");
    CHECK_OK(sh_file_read(path, 100, &text, &err), err);
    assert_string_equal(text.ptr, "A=1\n");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    CHECK_OK(sh_remote_hosts_verify(&remote, "m", true, &err), err);
    assert_string_equal(remote.list[0].model, "abc");
    close_local(hosts, &remote);

    open_local(sh_version(), "abc", &hosts, &remote);
    assert_int_equal(said, 0);
    close_local(hosts, &remote);

    CHECK_OK(sh_file_write(path, "A=2\n", 4, &err), err);
    open_local(sh_version(), "abc", &hosts, &remote);
    assert_int_equal(said, 1);
    close_local(hosts, &remote);
    sh_buf_reset(&text);
    free(path);
}

TEST(a_plugin_goes_where_the_program_goes_and_is_not_run)
{
    UNUSED_STATE;
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    sh_buf plugin = {0};
    open_local(sh_version(), "abc", &hosts, &remote);
    sh_buf_add_text(&plugin, "plugin");
    sh_remote_hosts_add_plugin(&remote, "bin/shoal-rdma.so", &plugin);
    said = 0;
    CHECK_OK(sh_remote_hosts_check(&remote, &err), err);
    CHECK_OK(sh_remote_hosts_push(&remote, &err), err);
    assert_int_equal(said, 1);
    assert_string_equal(remote.list[0].program, "bin/shoal-x");
    char *path = sh_path_join(dir, "bin/shoal-rdma.so");
    assert_true(sh_file_exists(path));
    free(path);
    close_local(hosts, &remote);
}

TEST(another_version_is_refused_with_what_to_do)
{
    UNUSED_STATE;
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    open_local("9.9.9", "abc", &hosts, &remote);
    CHECK_FAILS(sh_remote_hosts_verify(&remote, "m", true, &err), err, "has version 9.9.9");
    assert_non_null(strstr(err.text, "shoal bootstrap"));
    close_local(hosts, &remote);
}

/* Two names for one machine, so that both share a home. */
static void launch_on_shared_home(void)
{
    sh_hostfile *hosts;
    sh_remote_hosts remote;
    sh_buf bytes = {0};
    CHECK_OK(open_text("[{\"ssh\":\"far\"},{\"ssh\":\"me@far\"}]", &hosts, &remote), err);
    for (int i = 0; i < 2; i++) {
        free(remote.list[i].ssh);
        remote.list[i].ssh = NULL;
    }
    sh_buf_add_text(&bytes, "KEY=1\n");
    sh_remote_hosts_add_file_of_first(&remote, "api.env", &bytes);
    remote.state_dir = dir;
    remote.say = count_say;
    CHECK_OK(sh_remote_hosts_check(&remote, &err), err);
    CHECK_OK(sh_remote_hosts_push(&remote, &err), err);
    close_local(hosts, &remote);
}

TEST(a_file_for_one_host_stays_where_hosts_share_a_home)
{
    UNUSED_STATE;
    char *path = sh_path_join(dir, "api.env");
    for (int i = 0; i < 3; i++) {
        launch_on_shared_home();
        assert_true(sh_file_exists(path));
    }
    unlink(path);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_machine_is_there_once),
        cmocka_unit_test(an_address_that_others_can_not_reach_is_refused),
        cmocka_unit_test(missing_and_changed_files_are_pushed_and_nothing_else),
        cmocka_unit_test(a_file_for_one_host_stays_where_hosts_share_a_home),
        cmocka_unit_test(a_plugin_goes_where_the_program_goes_and_is_not_run),
        cmocka_unit_test(another_version_is_refused_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, setup, remove_dir);
}
