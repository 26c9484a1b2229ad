#include "cluster/fingerprint.h"

#include "base/buf.h"

#include "scratch.h"
#include "test.h"

static sh_fingerprint fp;

static void parse(const char *text)
{
    sh_err err;
    CHECK_OK(sh_fingerprint_parse(sh_str_of(text), "host", &fp, &err), err);
}

TEST(what_this_host_prints_is_read_back)
{
    UNUSED_STATE;
    cJSON *top = sh_fingerprint_gather(&(sh_fingerprint_opts){
        .cpu_level = "avx2", .program = "/x", .model_fault = "gone", .listen = "127.0.0.1:0"});
    char *text = cJSON_Print(top);
    parse(text);
    assert_string_equal(fp.cpu_level, "avx2");
    assert_string_equal(fp.program, "/x");
    assert_string_equal(fp.model_fault, "gone");
    assert_true(fp.cores > 0 && fp.memory_total > 0 && fp.memory_available > 0 && fp.unix_us > 0);
    assert_true(fp.version[0] != '\0' && fp.hostname[0] != '\0');
    bool loopback = false;
    for (int i = 0; i < fp.address_count; i++)
        loopback |= strcmp(fp.address[i].text, "127.0.0.1") == 0 && fp.address[i].prefix == 8 &&
                    fp.interface[fp.address[i].interface].loopback;
    assert_true(loopback);
    assert_int_equal(fp.port_count, 1);
    assert_string_equal(fp.port[0].fault, "");
    cJSON_free(text);
    cJSON_Delete(top);
}

TEST(the_script_says_the_same_of_this_host_as_the_program)
{
    UNUSED_STATE;
    FILE *file = fopen("build/fingerprint-script.sh", "w");
    char line[4096];
    sh_buf said = {0};
    assert_non_null(file);
    fputs(sh_fingerprint_script, file);
    fclose(file);
    FILE *run = popen("/bin/sh build/fingerprint-script.sh", "r");
    while (fgets(line, sizeof(line), run) != NULL) sh_buf_add_text(&said, line);
    assert_int_equal(pclose(run), 0);
    remove("build/fingerprint-script.sh");
    parse(said.ptr);
    sh_fingerprint *script = malloc(sizeof(*script));
    *script = fp;
    cJSON *top = sh_fingerprint_gather(&(sh_fingerprint_opts){0});
    char *text = cJSON_Print(top);
    parse(text);
    assert_string_equal(script->version, "");
    assert_string_equal(script->hostname, fp.hostname);
    assert_string_equal(script->arch, fp.arch);
    assert_int_equal(script->memory_total > 0, 1);
    /* without iproute2 it knows no addresses */
    if (script->address_count > 0) assert_int_equal(script->address_count, fp.address_count);
    cJSON_free(text);
    cJSON_Delete(top);
    free(script);
    sh_buf_reset(&said);
}

static void put(const char *name, const char *text)
{
    char *command = sh_asprintf("mkdir -p \"$(dirname '%s/%s')\" && printf '%s\\n' >'%s/%s'", dir,
                                name, text, dir, name);
    assert_int_equal(system(command), 0);
    free(command);
}

TEST(ports_of_rdma_devices_are_read_from_sysfs)
{
    UNUSED_STATE;
    put("mlx5_0/ports/1/state", "4: ACTIVE");
    put("mlx5_0/ports/1/link_layer", "Ethernet");
    put("mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
    put("mlx5_0/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    put("mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001");
    put("mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2");
    put("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth1");
    put("mlx5_0/ports/2/state", "1: DOWN");
    put("mlx5_0/ports/2/link_layer", "InfiniBand");
    put("rxe0/ports/1/state", "4: ACTIVE");
    put("rxe0/parent", "eth2");
    cJSON *top = cJSON_CreateObject();
    sh_fingerprint_add_rdma(top, dir);
    char *text = cJSON_Print(top);
    parse(text);
    cJSON_free(text);
    cJSON_Delete(top);
    assert_int_equal(fp.device_count, 3);
    const sh_fp_device *d = fp.device;
    assert_string_equal(d[0].name, "mlx5_0");
    assert_string_equal(d[0].state, "ACTIVE");
    assert_string_equal(d[0].rate, "100 Gb/sec (4X EDR)");
    assert_string_equal(d[0].interface, "eth1");
    assert_int_equal(d[0].gid_count, 1);
    assert_int_equal(d[0].gid[0].index, 3);
    assert_string_equal(d[0].gid[0].type, "RoCE v2");
    assert_string_equal(d[1].name, "mlx5_0:2");
    assert_string_equal(d[1].state, "DOWN");
    assert_string_equal(d[1].layer, "InfiniBand");
    assert_string_equal(d[2].name, "rxe0");
    assert_string_equal(d[2].interface, "eth2");
}

TEST(nothing_from_another_host_is_trusted)
{
    UNUSED_STATE;
    sh_err err;
    sh_buf text = {0};
    CHECK_FAILS(sh_fingerprint_parse(SH_STR("[]"), "host", &fp, &err), err, "host: a fingerprint");
    CHECK_FAILS(sh_fingerprint_parse(SH_STR(""), "host", &fp, &err), err, "host");
    parse("{\"version\":7,\"cpu\":[],\"memory\":{\"total\":\"x\",\"available\":1e300},"
          "\"interfaces\":{},\"gateways\":[1,null],\"rdma\":\"x\",\"model\":{}}");
    assert_string_equal(fp.version, "");
    assert_int_equal(fp.memory_total, 0);
    assert_int_equal(fp.memory_available, 0);
    assert_int_equal(fp.interface_count, 0);
    assert_true(fp.model_asked && fp.model_fault[0] != '\0');
    sh_buf_add_text(&text, "{\"interfaces\":[");
    for (int i = 0; i < 300; i++)
        sh_buf_addf(&text,
                    "%s{\"name\":\"%0200d\",\"addresses\":[\"10.0.0.1/24\",\"10.0.0.1/33\",\"x/"
                    "1\",\"::1/128\",7]}",
                    i == 0 ? "" : ",", i);
    sh_buf_add_text(&text, "]}");
    parse(text.ptr);
    assert_int_equal(fp.interface_count, SH_FP_INTERFACES_MAX);
    assert_int_equal(fp.address_count, SH_FP_ADDRESSES_MAX);
    for (int i = 0; i < fp.address_count; i++) assert_int_equal(fp.address[i].interface, i / 2);
    sh_buf_reset(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_this_host_prints_is_read_back),
        cmocka_unit_test(the_script_says_the_same_of_this_host_as_the_program),
        cmocka_unit_test(ports_of_rdma_devices_are_read_from_sysfs),
        cmocka_unit_test(nothing_from_another_host_is_trusted),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
