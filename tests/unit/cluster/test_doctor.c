/* Hosts that exist only as data, each with one defect: the doctor must report it and nothing else.
 */
#include "cluster/doctor.h"

#include "test.h"

enum { HOSTS = 2 };

static const char *const healthy =
    "{\"version\":\"1.2.3\",\"program\":\"/opt/shoal\",\"arch\":\"x86_64\",\"os\":\"Linux\","
    "\"cpu\":{\"cores\":8,\"level\":\"avx2\"},\"memory\":{\"total\":16e9,\"available\":8e9},"
    "\"unix_us\":1000000000,\"limits\":{\"files_soft\":65536,\"locked\":-1},"
    "\"model\":{\"dir\":\"/m\",\"hash\":\"abcd\",\"bytes\":1000},"
    "\"listen\":[{\"address\":\"10.0.0.1:32323\",\"fault\":\"\"}]}";

static sh_fingerprint fp[HOSTS];
static sh_survey_host host[HOSTS];
static sh_net_link link_ab;
static double need[HOSTS];
static int machine[HOSTS] = {0, 1};
static sh_findings findings;
static sh_doctor_view view;

static void read_host(int idx, const char *json)
{
    sh_err err;
    CHECK_OK(sh_fingerprint_parse(sh_str_of(json), "host", &fp[idx], &err), err);
    host[idx] = (sh_survey_host){.name = "h",
                                 .shown = idx == 0 ? "a" : "b",
                                 .fp = &fp[idx],
                                 .asked_us = 999000000,
                                 .answered_us = 1001000000};
}

static int clean(void **state)
{
    (void)state;
    sh_findings_reset(&findings);
    for (int i = 0; i < HOSTS; i++) read_host(i, healthy);
    link_ab = (sh_net_link){.from = 0, .to = 1, .reached = true, .rtt_us = 50, .gbit_s = 9};
    need[0] = need[1] = 1e9;
    view = (sh_doctor_view){.host = host,
                            .need = need,
                            .count = HOSTS,
                            .link = &link_ab,
                            .link_count = 1,
                            .machine = machine,
                            .version = "1.2.3"};
    return 0;
}

/* Exactly one finding is not ok: from this check, about this host, with this text and some advice.
 */
static void only(sh_finding_level level, const char *check, const char *subject, const char *part)
{
    int bad = 0;
    sh_doctor_check(&view, &findings);
    for (int i = 0; i < findings.count; i++) {
        const sh_finding *f = &findings.finding[i];
        if (f->level == SH_FINDING_OK) continue;
        bad++;
        assert_int_equal(f->level, level);
        assert_string_equal(f->check, check);
        assert_string_equal(f->subject, subject);
        if (strstr(f->text, part) == NULL) fail_msg("'%s' is not in '%s'", part, f->text);
        assert_non_null(f->advice);
    }
    assert_int_equal(bad, 1);
}

TEST(healthy_hosts_are_healthy)
{
    UNUSED_STATE;
    sh_doctor_check(&view, &findings);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_OK);
    assert_true(findings.count >= 15);
}

TEST(a_host_that_did_not_answer_is_named_with_the_reason)
{
    UNUSED_STATE;
    host[1].fp = NULL;
    view.link_count = 0;
    sh_err_set(&host[1].err, SH_ERR_AUTH, "the key was refused");
    only(SH_FINDING_FAIL, "ssh", "b", "key was refused");
}

TEST(another_version_is_named)
{
    UNUSED_STATE;
    strcpy(fp[1].version, "1.2.4");
    only(SH_FINDING_FAIL, "program", "b", "version 1.2.4 at /opt/shoal, but this host has 1.2.3");
}

TEST(a_host_without_the_program_is_a_warning_and_a_failure_on_another_cpu)
{
    UNUSED_STATE;
    read_host(1, "{\"version\":\"\",\"arch\":\"x86_64\",\"memory\":{\"available\":8e9}}");
    only(SH_FINDING_WARN, "program", "b", "not installed");
    sh_findings_reset(&findings);
    strcpy(fp[1].arch, "aarch64");
    only(SH_FINDING_FAIL, "program", "b", "not installed");
}

TEST(a_clock_that_differs_is_a_warning)
{
    UNUSED_STATE;
    fp[1].unix_us = 1060000000;
    only(SH_FINDING_WARN, "clock", "b", "59 s ahead of");
}

TEST(too_little_memory_for_the_plan_is_a_failure)
{
    UNUSED_STATE;
    need[1] = 9e9;
    only(SH_FINDING_FAIL, "memory", "b", "7.45 GiB free, its share of the model is 8.38 GiB");
}

TEST(another_model_is_a_failure_and_a_missing_one_only_on_the_host_of_rank_0)
{
    UNUSED_STATE;
    strcpy(fp[0].model_fault, "/m/config.json: No such file");
    only(SH_FINDING_FAIL, "model", "a", "No such file");
    clean(NULL);
    strcpy(fp[1].model_fault, "/m/config.json: No such file");
    only(SH_FINDING_WARN, "model", "b", "it will get its share from rank 0");
    clean(NULL);
    strcpy(fp[1].model_hash, "ffff");
    only(SH_FINDING_FAIL, "model", "b", "differs from the model on a: ffff, not abcd");
}

TEST(a_taken_port_is_a_failure)
{
    UNUSED_STATE;
    strcpy(fp[0].port[0].fault, "can not listen on 10.0.0.1:32323: Address already in use");
    only(SH_FINDING_FAIL, "port", "a", "already in use");
}

TEST(a_slow_link_is_a_warning_and_none_a_failure)
{
    UNUSED_STATE;
    link_ab.gbit_s = 0.1;
    only(SH_FINDING_WARN, "link", "a - b", "0.10 Gbit/s");
    clean(NULL);
    link_ab.rtt_us = 4000;
    only(SH_FINDING_WARN, "link", "a - b", "4000 us");
    clean(NULL);
    link_ab.reached = false;
    strcpy(link_ab.fault, "no answer within 1500 ms");
    only(SH_FINDING_FAIL, "link", "a - b", "no answer");
}

TEST(a_firewall_is_named_only_while_connections_fail)
{
    UNUSED_STATE;
    strcpy(fp[0].firewall, "ufw");
    sh_doctor_check(&view, &findings);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_OK);
}

TEST(low_limits_are_warnings)
{
    UNUSED_STATE;
    fp[0].files_soft = 1024;
    only(SH_FINDING_WARN, "files", "a", "1024");
    clean(NULL);
    fp[0].device_count = 1;
    strcpy(fp[0].rdma_plugin, "/x/shoal-rdma.so");
    fp[0].locked = 65536;
    only(SH_FINDING_WARN, "locked", "a", "65536");
}

TEST(devices_that_the_hostfile_names_must_be_there_and_active)
{
    UNUSED_STATE;
    sh_hostfile *file;
    sh_err err;
    CHECK_OK(
        sh_hostfile_parse(SH_STR("[[null, \"mlx5_0\"], [\"mlx5_1\", null]]"), "f", &file, &err),
        err);
    view.file = file;
    for (int i = 0; i < HOSTS; i++) {
        fp[i].device_count = 1;
        strcpy(fp[i].device[0].name, i == 0 ? "mlx5_0" : "mlx5_1");
        strcpy(fp[i].device[0].state, "ACTIVE");
        strcpy(fp[i].rdma_plugin, "/x/shoal-rdma.so");
    }
    strcpy(fp[1].device[0].state, "DOWN");
    only(SH_FINDING_WARN, "rdma", "b", "mlx5_1 is DOWN");
    sh_findings_reset(&findings);
    strcpy(fp[1].device[0].name, "other");
    only(SH_FINDING_FAIL, "rdma", "b", "has no device 'mlx5_1'");
    sh_hostfile_free(file);
}

TEST(a_hostfile_for_rdma_needs_devices_and_the_plugin)
{
    UNUSED_STATE;
    sh_hostfile *file;
    sh_err err;
    CHECK_OK(sh_hostfile_parse(SH_STR("{\"backend\": \"jaccl\", \"hosts\": [{\"ssh\": \"a\"}, "
                                      "{\"ssh\": \"b\"}]}"),
                               "f", &file, &err),
             err);
    view.file = file;
    for (int i = 0; i < HOSTS; i++) {
        fp[i].device_count = 1;
        strcpy(fp[i].device[0].name, "rxe0");
        strcpy(fp[i].device[0].state, "ACTIVE");
        strcpy(fp[i].rdma_plugin, "/x/shoal-rdma.so");
    }
    fp[1].rdma_plugin[0] = '\0';
    only(SH_FINDING_FAIL, "plugin", "b", "no RDMA plugin");
    sh_findings_reset(&findings);
    view.plugin = "/here/shoal-rdma.so"; /* which launch would copy there */
    sh_doctor_check(&view, &findings);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_OK);
    sh_findings_reset(&findings);
    strcpy(fp[1].rdma_plugin, "/x/shoal-rdma.so");
    fp[1].device_count = 0;
    only(SH_FINDING_FAIL, "rdma", "b", "no devices, but the hostfile asks for jaccl");
    sh_hostfile_free(file);
}

TEST(what_another_host_says_can_not_drive_the_terminal)
{
    UNUSED_STATE;
    sh_buf text = {0};
    strcpy(fp[1].os, "\033[2J\xff");
    sh_doctor_check(&view, &findings);
    sh_findings_text(&findings, false, &text);
    assert_null(strchr(text.ptr, 033));
    assert_true(sh_utf8_valid(text.ptr, text.len));
    sh_buf_reset(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(healthy_hosts_are_healthy, clean),
        cmocka_unit_test_setup(a_host_that_did_not_answer_is_named_with_the_reason, clean),
        cmocka_unit_test_setup(another_version_is_named, clean),
        cmocka_unit_test_setup(a_host_without_the_program_is_a_warning_and_a_failure_on_another_cpu,
                               clean),
        cmocka_unit_test_setup(a_clock_that_differs_is_a_warning, clean),
        cmocka_unit_test_setup(too_little_memory_for_the_plan_is_a_failure, clean),
        cmocka_unit_test_setup(
            another_model_is_a_failure_and_a_missing_one_only_on_the_host_of_rank_0, clean),
        cmocka_unit_test_setup(a_taken_port_is_a_failure, clean),
        cmocka_unit_test_setup(a_slow_link_is_a_warning_and_none_a_failure, clean),
        cmocka_unit_test_setup(a_firewall_is_named_only_while_connections_fail, clean),
        cmocka_unit_test_setup(low_limits_are_warnings, clean),
        cmocka_unit_test_setup(devices_that_the_hostfile_names_must_be_there_and_active, clean),
        cmocka_unit_test_setup(a_hostfile_for_rdma_needs_devices_and_the_plugin, clean),
        cmocka_unit_test_setup(what_another_host_says_can_not_drive_the_terminal, clean),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sh_findings_reset(&findings);
    return failed;
}
