#include "cluster/hostfile.h"

#include "test.h"

#include <unistd.h>

static sh_hostfile *read_ok(const char *text)
{
    sh_hostfile *file = NULL;
    sh_err err;
    CHECK_OK(sh_hostfile_parse(sh_str_of(text), "hosts.json", &file, &err), err);
    return file;
}

static const char *address(const sh_hostfile *file, int rank, int idx)
{
    static sh_addr_list list;
    sh_err err;
    CHECK_OK(sh_hostfile_addresses(file, rank, SH_HOSTFILE_PORT, &list, &err), err);
    assert_true(idx < list.count);
    return list.text[idx];
}

TEST(reads_a_list_of_host_objects_and_counts_ports_up)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok(
        "[{\"ssh\": \"ana@m1\", \"ips\": [\"10.0.0.1\", \"10.0.1.1\"], \"rdma\": [null, "
        "\"mlx5_0\"]},"
        " {\"ssh\": \"m2\", \"ips\": [], \"rdma\": [[\"a\", \"b\"], null], \"extra\": 1}]");
    assert_int_equal(f->count, 2);
    assert_string_equal(f->host[0].ssh, "ana@m1");
    assert_string_equal(address(f, 0, 0), "10.0.0.1:32323");
    assert_string_equal(address(f, 0, 1), "10.0.1.1:32324");
    assert_string_equal(address(f, 1, 0), "m2:32325");
    assert_int_equal(f->host[0].rdma[0].count, 0);
    assert_string_equal(f->host[0].rdma[1].name[0], "mlx5_0");
    assert_int_equal(f->host[1].rdma[0].count, 2);
    assert_string_equal(f->backend, "");
    sh_hostfile_free(f);
}

TEST(reads_the_object_form)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok("{\"backend\": \"jaccl\", \"envs\": [\"A=1\", \"B=x=y\"], \"hosts\":"
                             " [{\"ssh\": \"me@h1\"}, {\"ssh\": \"h2\", \"ips\": [\"fe80::2\"]}]}");
    assert_string_equal(f->backend, "jaccl");
    assert_int_equal(f->env_count, 2);
    assert_string_equal(f->env[1], "B=x=y");
    assert_string_equal(address(f, 0, 0), "h1:32323");
    assert_string_equal(address(f, 1, 0), "[fe80::2]:32324");
    sh_hostfile_free(f);
}

TEST(reads_flat_and_nested_lists_of_addresses)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok("[\"0.0.0.0:9000\", \"198.51.100.1:0\", \"[::1]:9002\"]");
    assert_int_equal(f->count, 3);
    assert_string_equal(address(f, 1, 0), "198.51.100.1:0");
    assert_string_equal(address(f, 2, 0), "[::1]:9002");
    sh_hostfile_free(f);
    f = read_ok("[[\"10.0.0.1:1\", \"10.0.1.1:2\"], [\"10.0.0.2:3\", \"10.0.1.2:4\"]]");
    assert_string_equal(address(f, 1, 1), "10.0.1.2:4");
    sh_hostfile_free(f);
}

TEST(an_empty_file_is_one_host)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok(" \n");
    assert_int_equal(f->count, 1);
    sh_hostfile_free(f);
}

TEST(reads_a_device_matrix_but_finds_no_address_in_it)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok("[[null, \"rdma_en2\"], [[\"rdma_en3\"], null]]");
    sh_addr_list list;
    sh_err err;
    assert_string_equal(f->host[1].rdma[0].name[0], "rdma_en3");
    CHECK_FAILS(sh_hostfile_addresses(f, 0, 1000, &list, &err), err, "only devices");
    sh_hostfile_free(f);
}

TEST(errors_name_the_file_and_the_entry)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"[", "hosts.json"},
        {"7", "the top level must be a list or an object, not a number"},
        {"[]", "has 0 hosts"},
        {"{}", "'hosts' must be a list, not nothing"},
        {"{\"host\": []}", "the top level has the key 'host'; did you mean 'hosts'?"},
        {"[{\"ssh\": \"a\", \"ip\": [\"10.0.0.1\"]}]",
         "host 0 has the key 'ip'; did you mean 'ips'?"},
        {"[{\"ssh\": \"a\", \"ips\": [\"10.0.0.1:5000\"]}]",
         "'ips' of host 0 has '10.0.0.1:5000': write the address without a port"},
        {"[{\"ssh\": \"a\", \"ips\": [\"[fe80::1]:5000\"]}]", "without a port"},
        {"{\"hosts\": {}}", "'hosts' must be a list"},
        {"{\"backend\": 3, \"hosts\": []}", "'backend'"},
        {"{\"envs\": [\"A\"], \"hosts\": [{\"ssh\": \"a\"}]}", "envs[0] 'A'"},
        {"{\"envs\": [1], \"hosts\": [{\"ssh\": \"a\"}]}", "envs[0] must be a string"},
        {"[{\"ssh\": \"a\"}, {\"ips\": []}]", "'ssh' of host 1 must be a string, not nothing"},
        {"[{\"ssh\": \"-oProxyCommand=x\"}]", "'ssh' of host 0"},
        {"[{\"ssh\": \"a\"}, \"b:1\"]", "host 1 must be an object, not a string"},
        {"[{\"ssh\": \"a\", \"ips\": \"b\"}]", "'ips' of host 0 must be a list"},
        {"[{\"ssh\": \"a\", \"ips\": [1]}]", "'ips' of host 0 must be a string"},
        {"[{\"ssh\": \"a\", \"rdma\": [null, \"x\"]}]", "rdma of host 0 has 2 entries"},
        {"[{\"ssh\": \"a\", \"rdma\": [\"x\"]}]", "rdma[0] of host 0 must be null"},
        {"[{\"ssh\": \"a\", \"rdma\": [7]}]", "rdma[0] of host 0 must be null, a string"},
        {"[\"a:1\", 7]", "entry 1 must be a string or a list of strings, not a number"},
        {"[\"a:1\", \"b\"]", "entry 1: address 'b'"},
        {"[[\"a:1\"], []]", "entry 1 is an empty list"},
        {"[[\"a:1\", 2]]", "entry 0 must be a string"},
        {"[[\"a:1\",\"a:1\",\"a:1\",\"a:1\",\"a:1\",\"a:1\",\"a:1\",\"a:1\",\"a:1\"]]",
         "more than 8 addresses"},
        {"[[null, \"a\"], [null]]", "row 1 has 1 entries"},
        {"[[null, [1]], [\"a\", null]]", "row 0, column 1"},
        {"[\"-oProxyCommand=x:1\"]", "entry 0 '-oProxyCommand=x:1' is not an address"},
        {"[{\"ssh\": \"a\", \"ips\": [\"1;2\"]}]", "'ips' of host 0 '1;2' is not an address"},
        {"[{\"ssh\": \"a b\"}]", "'ssh' of host 0 'a b' is not a host name"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_hostfile *file = NULL;
        sh_err err;
        CHECK_FAILS(sh_hostfile_parse(sh_str_of(cases[i].text), "hosts.json", &file, &err), err,
                    cases[i].part);
        CHECK_FAILS(err.status, err, "hosts.json");
    }
    sh_hostfile *file = NULL;
    sh_err err;
    CHECK_FAILS(sh_hostfile_load("/nowhere/hosts.json", &file, &err), err, "/nowhere/hosts.json");
}

static const char *written(const sh_hostfile *file, sh_hostfile_form form, sh_buf *out)
{
    sh_err err;
    sh_buf_clear(out);
    CHECK_OK(sh_hostfile_write(file, form, out, &err), err);
    return out->ptr;
}

TEST(the_object_form_is_written_as_the_tools_of_mlx_do)
{
    UNUSED_STATE;
    sh_hostfile *f = read_ok(
        "{\"hosts\": [{\"ips\": [\"10.0.0.1\"], \"ssh\": \"a\\\"b\", \"rdma\": [null, "
        "[\"x\", \"y\"]]}, {\"ssh\": \"c\"}], \"envs\": [\"A=1\"]}");
    sh_buf out = {0};
    /* as Python's json.dump(..., indent=4) writes it */
    assert_string_equal(written(f, SH_HOSTFILE_OBJECT, &out), "{\n"
                                                              "    \"backend\": \"\",\n"
                                                              "    \"envs\": [\n"
                                                              "        \"A=1\"\n"
                                                              "    ],\n"
                                                              "    \"hosts\": [\n"
                                                              "        {\n"
                                                              "            \"ssh\": \"a\\\"b\",\n"
                                                              "            \"ips\": [\n"
                                                              "                \"10.0.0.1\"\n"
                                                              "            ],\n"
                                                              "            \"rdma\": [\n"
                                                              "                null,\n"
                                                              "                [\n"
                                                              "                    \"x\",\n"
                                                              "                    \"y\"\n"
                                                              "                ]\n"
                                                              "            ]\n"
                                                              "        },\n"
                                                              "        {\n"
                                                              "            \"ssh\": \"c\",\n"
                                                              "            \"ips\": [],\n"
                                                              "            \"rdma\": []\n"
                                                              "        }\n"
                                                              "    ]\n"
                                                              "}\n");
    sh_hostfile *again = read_ok(out.ptr);
    sh_buf second = {0};
    assert_string_equal(written(again, SH_HOSTFILE_OBJECT, &second), out.ptr);
    sh_hostfile_free(again);
    sh_hostfile_free(f);
    sh_buf_reset(&out);
    sh_buf_reset(&second);
}

TEST(forms_that_need_more_than_the_file_has_are_refused)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_err err;
    sh_hostfile *f = read_ok("[{\"ssh\": \"a\"}, {\"ssh\": \"b\"}]");
    CHECK_FAILS(sh_hostfile_write(f, SH_HOSTFILE_MATRIX, &out, &err), err, "host 0 has no 'rdma'");
    sh_hostfile_free(f);
    f = read_ok("[[null, \"d\"], [\"d\", null]]");
    CHECK_FAILS(sh_hostfile_write(f, SH_HOSTFILE_LIST, &out, &err), err, "host 0 has neither");
    CHECK_FAILS(sh_hostfile_write(f, SH_HOSTFILE_PLAIN, &out, &err), err, "only devices");
    assert_int_equal(out.len, 0);
    sh_hostfile_free(f);
    f = read_ok("[[\"10.0.0.1:1\", \"[::1]:2\"], [\"10.0.0.2:3\"]]");
    assert_string_equal(written(f, SH_HOSTFILE_PLAIN, &out),
                        "[\n    [\n        \"10.0.0.1:1\",\n        \"[::1]:2\"\n    ],\n    [\n"
                        "        \"10.0.0.2:3\"\n    ]\n]\n");
    assert_non_null(strstr(written(f, SH_HOSTFILE_LIST, &out), "\"::1\""));
    sh_hostfile_free(f);
    sh_buf_reset(&out);
}

TEST(names_and_workers_become_hosts)
{
    UNUSED_STATE;
    sh_hostfile *f;
    sh_err err;
    CHECK_OK(sh_hostfile_of_names("a, me@b,10.0.0.3,::1", 2, &f, &err), err);
    assert_int_equal(f->count, 8);
    assert_string_equal(f->host[3].ssh, "me@b");
    assert_int_equal(f->host[3].address_count, 0);
    assert_string_equal(f->host[5].address[0], "10.0.0.3");
    assert_string_equal(address(f, 7, 0), "[::1]:32330");
    sh_hostfile_free(f);
    static const char *const bad[] = {"", ",", "a,", "a,,b", "-x", " "};
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++)
        CHECK_FAILS(sh_hostfile_of_names(bad[i], 1, &f, &err), err, "name");
    CHECK_FAILS(sh_hostfile_of_names("a,b", 64, &f, &err), err, "more than");
    CHECK_OK(sh_hostfile_of_workers("127.0.0.2,127.0.0.3", "x, y", &f, &err), err);
    assert_int_equal(f->count, 3);
    assert_string_equal(f->host[0].address[0], "127.0.0.1");
    assert_string_equal(f->host[2].ssh, "y");
    assert_string_equal(f->host[2].address[0], "127.0.0.3");
    sh_hostfile_free(f);
    CHECK_FAILS(sh_hostfile_of_workers("127.0.0.2,127.0.0.3", "x", &f, &err), err, "worker 2");
    CHECK_FAILS(sh_hostfile_of_workers("127.0.0.2", "x,y", &f, &err), err, "more ssh names");
}

TEST(of_all_machines_the_one_at_hand_is_rank_0)
{
    UNUSED_STATE;
    sh_hostfile *f;
    sh_err err;
    char own[64] = {0}, list[128];
    if (gethostname(own, sizeof(own) - 1) != 0 || strcmp(own, "localhost") == 0) skip();
    for (int at = 0; at < 2; at++) {
        snprintf(list, sizeof(list), at == 0 ? "%s,127.0.0.3" : "127.0.0.3,%s", own);
        CHECK_OK(sh_hostfile_of_workers(list, at == 0 ? "me,you" : "you,me", &f, &err), err);
        assert_int_equal(f->count, 2);
        assert_string_equal(f->host[0].address[0], own);
        assert_string_equal(f->host[0].ssh, "127.0.0.1");
        assert_string_equal(f->host[1].address[0], "127.0.0.3");
        assert_string_equal(f->host[1].ssh, "you");
        sh_hostfile_free(f);
    }
    CHECK_FAILS(sh_hostfile_of_workers(own, "me", &f, &err), err,
                "is this machine: list the other");
}

/* What mlx.distributed_config writes for three hosts in a mesh, for a ring of four with two cables
 * to each neighbour, and the list form that a rank by hand gets. */
static const char MLX_MESH[] =
    "{\"backend\": \"jaccl\", \"envs\": [\"MLX_METAL_FAST_SYNCH=1\"], \"hosts\": ["
    "{\"ssh\": \"m1\", \"ips\": [\"192.168.1.10\"], \"rdma\": [null, \"rdma_en2\", \"rdma_en3\"]},"
    "{\"ssh\": \"m2\", \"ips\": [\"192.168.1.11\"], \"rdma\": [\"rdma_en2\", null, \"rdma_en3\"]},"
    "{\"ssh\": \"m3\", \"ips\": [\"192.168.1.12\"], \"rdma\": [\"rdma_en2\", \"rdma_en3\", "
    "null]}]}";
static const char MLX_RING[] =
    "{\"backend\": \"jaccl-ring\", \"envs\": [], \"hosts\": ["
    "{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"], \"rdma\": [null, [\"r1\", \"r2\"], null, [\"r3\", "
    "\"r4\"]]},"
    "{\"ssh\": \"b\", \"ips\": [], \"rdma\": [[\"r1\", \"r2\"], null, [\"r3\", \"r4\"], null]},"
    "{\"ssh\": \"c\", \"ips\": [], \"rdma\": [null, [\"r1\", \"r2\"], null, [\"r3\", \"r4\"]]},"
    "{\"ssh\": \"d\", \"ips\": [], \"rdma\": [[\"r1\", \"r2\"], null, [\"r3\", \"r4\"], null]}]}";

TEST(hostfiles_of_mlx_have_the_devices_that_their_backend_needs)
{
    UNUSED_STATE;
    sh_err err;
    sh_hostfile *mesh = read_ok(MLX_MESH), *ring = read_ok(MLX_RING);
    CHECK_OK(sh_hostfile_check_devices(mesh, sh_backend_find(mesh->backend), &err), err);
    assert_string_equal(sh_hostfile_devices(mesh, 1, 2)->name[0], "rdma_en3");
    CHECK_OK(sh_hostfile_check_devices(ring, sh_backend_find(ring->backend), &err), err);
    assert_int_equal(sh_hostfile_devices(ring, 0, 3)->count, 2);
    assert_int_equal(sh_hostfile_devices(ring, 0, 2)->count, 0);
    CHECK_FAILS(
        sh_hostfile_check_devices(ring, sh_backend_find("jaccl"), &err), err,
        "hosts.json: rdma[2] of host 0 names no device, but jaccl needs one between every two");
    sh_hostfile_free(mesh);
    sh_hostfile_free(ring);
}

TEST(devices_suit_a_backend_or_the_error_names_the_cell)
{
    UNUSED_STATE;
    static const struct {
        const char *text, *jaccl, *ring; /* NULL: they suit */
    } cases[] = {
        {"[[null]]", "at least two ranks", "at least two ranks"},
        {"[[null, \"a\"], [\"b\", null]]", NULL, NULL},
        {"[[null, [\"a\", \"b\"]], [\"c\", null]]",
         "row 0, column 1 names 2 devices, but row 1, column 0 names 1", "names 2 devices"},
        {"[[null, [\"a\", \"b\"]], [[\"c\", \"d\"], null]]", NULL, NULL},
        {"[[null, [\"a0\", \"a1\", \"a2\", \"a3\", \"a4\", \"a5\", \"a6\", \"a7\", \"a8\"]], "
         "[[\"b0\", \"b1\", \"b2\", \"b3\", \"b4\", \"b5\", \"b6\", \"b7\", \"b8\"], null]]",
         "row 0, column 1 names 9 devices; at most 8", "row 0, column 1 names 9 devices"},
        {"[[null, null], [\"b\", null]]",
         "row 0, column 1 names 0 devices, but row 1, column 0 names 1", "row 0, column 1"},
        {"[[null, null], [null, null]]", "row 0, column 1 names no device, but jaccl needs",
         "jaccl-ring needs one between each rank and the next"},
        {"[[null, \"a\", null, \"b\"], [\"a\", null, \"b\", null], [null, \"a\", null, \"b\"], "
         "[\"a\", null, \"b\", null]]",
         "row 0, column 2", NULL},
        {"[[null, \"a\", null, \"b\"], [\"a\", null, \"b\", null], [null, \"a\", null, \"b\"], "
         "[\"a\", null, [], null]]",
         "row 0, column 2", "row 2, column 3 names 1 device, but row 3, column 2 names 0"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_hostfile *f = read_ok(cases[i].text);
        const char *want[] = {cases[i].jaccl, cases[i].ring};
        assert_true(f->is_matrix);
        for (int k = 0; k < 2; k++) {
            sh_err err;
            sh_status status = sh_hostfile_check_devices(
                f, sh_backend_find(k == 0 ? "jaccl" : "jaccl-ring"), &err);
            assert_int_equal(status == SH_OK, want[k] == NULL);
            if (want[k] != NULL && strstr(err.text, want[k]) == NULL)
                fail_msg("'%s' is not in '%s'", want[k], err.text);
        }
        sh_hostfile_free(f);
    }
}

TEST(a_matrix_may_be_given_as_text)
{
    UNUSED_STATE;
    sh_err err;
    sh_hostfile *f;
    CHECK_OK(sh_hostfile_load_matrix(" [[null, \"a\"], [\"b\", null]]", "X", &f, &err), err);
    assert_int_equal(f->count, 2);
    assert_string_equal(f->where, "X");
    sh_hostfile_free(f);
    CHECK_FAILS(sh_hostfile_load_matrix("[\"10.0.0.1:1\"]", "X", &f, &err), err,
                "X: must be a matrix of devices");
    CHECK_FAILS(sh_hostfile_load_matrix("[[null, \"../x\"], [\"b\", null]]", "X", &f, &err), err,
                "X: row 0, column 1 '../x' is not the name of a device");
    CHECK_FAILS(sh_hostfile_load_matrix("/nowhere/m.json", "X", &f, &err), err, "/nowhere/m.json");
}

TEST(backends_are_known_by_name)
{
    UNUSED_STATE;
    assert_null(sh_backend_find("gloo"));
    assert_string_equal(sh_backend_find("")->name, "ring");
    assert_null(sh_backend_transport(sh_backend_find("any")));
    assert_ptr_equal(sh_backend_transport(sh_backend_find("mpi")), &sh_transport_mpi);
    assert_true(sh_backend_find("mpi")->own_launcher);
    assert_false(sh_backend_is_built_in(sh_backend_find("nccl")));
    assert_int_equal(sh_backend_find("jaccl")->devices, SH_DEVICES_EVERYWHERE);
    assert_int_equal(sh_backend_find("jaccl-ring")->devices, SH_DEVICES_NEIGHBOURS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_list_of_host_objects_and_counts_ports_up),
        cmocka_unit_test(of_all_machines_the_one_at_hand_is_rank_0),
        cmocka_unit_test(reads_the_object_form),
        cmocka_unit_test(reads_flat_and_nested_lists_of_addresses),
        cmocka_unit_test(an_empty_file_is_one_host),
        cmocka_unit_test(reads_a_device_matrix_but_finds_no_address_in_it),
        cmocka_unit_test(errors_name_the_file_and_the_entry),
        cmocka_unit_test(the_object_form_is_written_as_the_tools_of_mlx_do),
        cmocka_unit_test(forms_that_need_more_than_the_file_has_are_refused),
        cmocka_unit_test(names_and_workers_become_hosts),
        cmocka_unit_test(hostfiles_of_mlx_have_the_devices_that_their_backend_needs),
        cmocka_unit_test(devices_suit_a_backend_or_the_error_names_the_cell),
        cmocka_unit_test(a_matrix_may_be_given_as_text),
        cmocka_unit_test(backends_are_known_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
