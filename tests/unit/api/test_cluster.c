/* Changes of the cluster, by the API's own routes, with a supervisor that this test plays. */
#include "served_api.h"

#include <sys/socket.h>

static int ends[2]; /* the supervisor's, the API's */

static int serve(void **state)
{
    static const engine_script scripts[1];
    UNUSED_STATE;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    api_control_fd = ends[1];
    api_serve(&sh_endpoints, scripts);
    return 0;
}

static int serve_end(void **state)
{
    UNUSED_STATE;
    api_serve_end();
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static void supervisor_says(const char *json)
{
    assert_int_equal(send(ends[0], json, strlen(json), 0), (ssize_t)strlen(json));
}

/* The next order; greetings in between are not answered. Owned by the caller. */
static cJSON *order_await(void)
{
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    for (;;) {
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        char bytes[4096];
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) == 0) fail_msg("no order came");
        ssize_t got = recv(ends[0], bytes, sizeof(bytes) - 1, 0);
        assert_true(got > 0);
        bytes[got] = '\0';
        cJSON *json = cJSON_Parse(bytes);
        assert_non_null(json);
        if (strcmp(sh_json_text(json, "do"), "change") == 0) return json;
        cJSON_Delete(json);
    }
}

static void reply_await(int fd)
{
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
}

/* Says the state of the order in its own words. */
static void order_take(const cJSON *order, const char *state)
{
    char text[512];
    snprintf(text, sizeof(text),
             "{\"why\":null,\"change\":{\"id\":\"%s\",\"what\":\"%s\",\"state\":\"%s\"}}",
             sh_json_text(order, "id"), sh_json_text(order, "what"), state);
    supervisor_says(text);
}

static void state_becomes(const char *part)
{
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    do {
        request("GET", "/cluster", "");
        if (strstr(reply.ptr, part) != NULL) return;
        usleep(10000);
    } while (!sh_deadline_passed(deadline));
    fail_msg("no '%s' in '%s'", part, reply.ptr);
}

TEST(says_why_nothing_can_be_changed)
{
    UNUSED_STATE;
    request("POST", "/cluster/restart", "");
    check_status(503);
    check_holds("not reported yet");
    supervisor_says("{\"why\":\"no launcher\",\"change\":null}");
    state_becomes("\"unavailable\":\"no launcher\"");
    request("DELETE", "/cluster/hosts/h2", "");
    check_status(501);
    check_holds("no launcher");
}

TEST(an_order_is_passed_on_and_its_state_shown)
{
    UNUSED_STATE;
    supervisor_says("{\"why\":null,\"change\":null}");
    state_becomes("\"launched\":true");
    more_headers = "Content-Type: application/json\r\nX-Request-Id: a;b c\r\n";
    int fd = request_send("POST", "/cluster/hosts", KEY, "{\"host\":\"me@h3\"}");
    cJSON *order = order_await();
    assert_string_equal(sh_json_text(order, "what"), "add");
    assert_string_equal(sh_json_text(order, "host"), "me@h3");
    const char *id = sh_json_text(order, "id");
    assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-._"), strlen(id));
    request("POST", "/cluster/restart", "{}");
    check_status(409);
    order_take(order, "running");
    reply_await(fd);
    check_status(202);
    check_holds("\"state\":\"running\"");
    order_take(order, "done");
    state_becomes("\"state\":\"done\"");
    cJSON_Delete(order);
    more_headers = "";
}

TEST(a_refusal_is_the_supervisors)
{
    UNUSED_STATE;
    char text[256];
    int fd = request_send("DELETE", "/cluster/hosts/h%3b", KEY, "");
    cJSON *order = order_await();
    assert_string_equal(sh_json_text(order, "host"), "h;");
    snprintf(text, sizeof(text), "{\"id\":\"%s\",\"refused\":\"a host is\",\"code\":400}",
             sh_json_text(order, "id"));
    supervisor_says("not JSON");
    supervisor_says("{\"id\":\"of another\",\"refused\":\"x\",\"code\":409}");
    supervisor_says(text);
    reply_await(fd);
    check_status(400);
    check_holds("a host is");
    cJSON_Delete(order);
}

TEST(one_who_leaves_does_not_take_the_order_back)
{
    UNUSED_STATE;
    int fd = request_send("POST", "/cluster/restart", KEY, "");
    cJSON *order = order_await();
    close(fd);
    order_take(order, "running");
    state_becomes("\"what\":\"restart\"");
    order_take(order, "done");
    state_becomes("\"state\":\"done\"");
    cJSON_Delete(order);
}

TEST(a_silent_supervisor_is_given_up)
{
    UNUSED_STATE;
    request("POST", "/cluster/restart", "");
    check_status(503);
    check_holds("does not answer");
    cJSON_Delete(order_await());
}

TEST(strangers_and_foreign_pages_order_nothing)
{
    UNUSED_STATE;
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
    } cases[] = {
        {"POST", "/cluster/restart", "Origin: http://evil.example\r\n", "", 403},
        {"POST", "/cluster/restart", "Content-Type: text/plain\r\n", "{}", 415},
        {"POST", "/cluster/restart", "", "{}", 415},
        {"DELETE", "/cluster/hosts/1", "Origin: null\r\n", "", 403},
        {"POST", "/cluster/drain", "Origin: http://evil.example\r\n", "", 403},
        {"POST", "/cluster/hosts", "Content-Type: application/json\r\n", "{}", 400},
        {"POST", "/cluster/hosts", "Content-Type: application/json\r\n", "[1]", 400},
        {"GET", "/cluster/restart", "", "", 405},
        {"PUT", "/cluster/hosts", "", "", 405},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        more_headers = cases[i].headers;
        request(cases[i].method, cases[i].path, cases[i].body);
        check_status(cases[i].status);
    }
    more_headers = "";
    request_as("wrong-0123456789abc", "POST", "/cluster/restart", "");
    check_status(401);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
}

TEST(a_drained_server_takes_no_requests)
{
    UNUSED_STATE;
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
    request("POST", "/cluster/drain", "");
    check_status(200);
    check_holds("\"draining\":true");
    request("POST", "/v1/chat/completions", chat);
    check_status(503);
    check_holds("Retry-After");
    request("GET", "/health/ready", "");
    check_status(503);
    request("GET", "/health", "");
    check_status(200);
    more_headers = "Content-Type: application/json\r\n";
    request("POST", "/cluster/drain", "{\"drain\":false}");
    more_headers = "";
    check_holds("\"draining\":false");
    request("GET", "/health/ready", "");
    check_status(200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_why_nothing_can_be_changed),
        cmocka_unit_test(an_order_is_passed_on_and_its_state_shown),
        cmocka_unit_test(a_refusal_is_the_supervisors),
        cmocka_unit_test(one_who_leaves_does_not_take_the_order_back),
        cmocka_unit_test(a_silent_supervisor_is_given_up),
        cmocka_unit_test(strangers_and_foreign_pages_order_nothing),
        cmocka_unit_test(a_drained_server_takes_no_requests),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
