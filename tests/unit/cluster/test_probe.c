#include "cluster/probe.h"

#include "base/clock.h"
#include "base/json.h"

#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static char address[80], secret[80];
static pid_t server_pid;

static int start(void **state)
{
    (void)state;
    sh_probe_server *server;
    sh_err err;
    sh_buf text = {0};
    cJSON *info;
    CHECK_OK(sh_probe_server_open("127.0.0.1,203.0.113.7,nonsense", &server, &err), err);
    sh_probe_server_describe(server, &text);
    CHECK_OK(sh_json_parse(sh_buf_str(&text), "info", &info, &err), err);
    const cJSON *listen = cJSON_GetObjectItem(info, "listen");
    assert_int_equal(cJSON_GetArraySize(listen), 1);
    snprintf(address, sizeof(address), "%s", cJSON_GetArrayItem(listen, 0)->valuestring);
    snprintf(secret, sizeof(secret), "%s", cJSON_GetObjectItem(info, "secret")->valuestring);
    server_pid = fork();
    if (server_pid == 0) {
        sh_probe_server_run(server, 5000, 20000);
        _exit(0);
    }
    sh_probe_server_close(server);
    cJSON_Delete(info);
    sh_buf_reset(&text);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    kill(server_pid, SIGKILL);
    waitpid(server_pid, NULL, 0);
    return 0;
}

TEST(a_link_is_timed_and_the_last_client_stops_the_server)
{
    UNUSED_STATE;
    sh_probe_result result = {0};
    sh_err err;
    int code = -1;
    CHECK_OK(sh_probe_measure(address, secret, false, &result, &err), err);
    assert_true(result.rtt_us > 0.5 && result.rtt_us < 1e5);
    assert_true(result.gbit_s > 0.01 && result.gbit_s < 10000);
    CHECK_OK(sh_probe_measure(address, secret, true, &result, &err), err);
    for (int i = 0; i < 100 && waitpid(server_pid, &code, WNOHANG) == 0; i++) sh_sleep_ms(20);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

TEST(without_the_secret_nothing_is_measured)
{
    UNUSED_STATE;
    sh_probe_result result = {0};
    sh_err err;
    CHECK_FAILS(sh_probe_measure(address, "00000000000000000000000000000000", false, &result, &err),
                err, "another machine");
    CHECK_FAILS(sh_probe_measure(address, "short", false, &result, &err), err, "characters");
    CHECK_OK(sh_probe_measure(address, secret, false, &result, &err), err);
}

TEST(knocking_needs_no_answerer_but_a_host)
{
    UNUSED_STATE;
    double rtt_us = 0;
    sh_err err;
    CHECK_OK(sh_probe_knock("127.0.0.1:1", &rtt_us, &err), err);
    assert_true(rtt_us > 0);
    CHECK_FAILS(sh_probe_knock("nonsense", &rtt_us, &err), err, "nonsense");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_link_is_timed_and_the_last_client_stops_the_server, start,
                                        stop),
        cmocka_unit_test_setup_teardown(without_the_secret_nothing_is_measured, start, stop),
        cmocka_unit_test(knocking_needs_no_answerer_but_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
