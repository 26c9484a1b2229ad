/* Several models behind one API, with a scripted keeper and a scripted engine: who waits for what,
 * and what the keeper is told. */
#include "served_api.h"

static const engine_script scripts[] = {
    {.pieces = {"Hello"}, .finish = SH_FINISH_STOP},
    {.pieces = {"Hello"}, .finish = SH_FINISH_STOP, .waits = true}};

static struct {
    char path[64];
    int listener, fd;
    sh_buf in;
    pthread_t thread;
} keeper;

static void keeper_say(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    line[len++] = '\n';
    assert_int_equal(send(keeper.fd, line, (size_t)len, MSG_NOSIGNAL), len);
}

static void state_say(const char *model, const char *state)
{
    keeper_say("{\"model\":\"%s\",\"state\":\"%s\",\"dir\":\"" ENGINE_MODEL
               "\",\"socket\":\"%s\",\"why\":%s,\"pinned\":false,\"bytes\":1000,\"keep_s\":300}",
               model, state, engine.path,
               strcmp(state, "failed") == 0 ? "\"it is broken\"" : "null");
}

/* Greets the API, which waits for that. */
static void *keeper_greet(void *arg)
{
    (void)arg;
    keeper.fd = accept(keeper.listener, NULL, NULL);
    state_say("a", "absent");
    state_say("org/b", "absent");
    keeper_say("{\"listed\":true,\"default\":null}");
    return NULL;
}

/* Waits until the API has said this. What came before is forgotten. */
static void keeper_hear(const char *what, const char *model)
{
    char line[256], bytes[1024];
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    snprintf(line, sizeof(line), "{\"do\":\"%s\",\"model\":\"%s\"", what, model);
    for (;;) {
        sh_buf_add_char(&keeper.in, '\0');
        char *found = strstr(keeper.in.ptr, line);
        keeper.in.len--;
        if (found != NULL) {
            sh_buf_drop_front(&keeper.in, (size_t)(found - keeper.in.ptr) + strlen(line));
            return;
        }
        struct pollfd p = {.fd = keeper.fd, .events = POLLIN};
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) <= 0)
            fail_msg("no '%s' in '%s'", line, keeper.in.len == 0 ? "" : keeper.in.ptr);
        ssize_t got = recv(keeper.fd, bytes, sizeof(bytes), 0);
        assert_true(got > 0);
        sh_buf_add(&keeper.in, bytes, (size_t)got);
    }
}

static int ask(const char *model, int seed)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"model\":\"%s\",\"prompt\":\"x\",\"seed\":%d}", model, seed);
    return request_send("POST", "/v1/completions", KEY, body);
}

static void answer(int fd)
{
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
}

static void waits_await(void)
{
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    while (!engine_waits()) {
        assert_false(sh_deadline_passed(deadline));
        usleep(1000);
    }
}

static int setup(void **state)
{
    (void)state;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(keeper.path, sizeof(keeper.path), "/tmp/shoal-keeper-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", keeper.path);
    snprintf(engine.path, sizeof(engine.path), "/tmp/shoal-script-%d", (int)getpid());
    keeper.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(keeper.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(keeper.listener, 4), 0);
    assert_int_equal(pthread_create(&keeper.thread, NULL, keeper_greet, NULL), 0);
    api_keeper_path = keeper.path;
    api_serve(&sh_endpoints, scripts);
    pthread_join(keeper.thread, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    api_serve_end();
    close(keeper.fd);
    close(keeper.listener);
    unlink(keeper.path);
    sh_buf_reset(&keeper.in);
    return 0;
}

TEST(all_models_are_listed_with_their_states)
{
    UNUSED_STATE;
    request("GET", "/v1/models", "");
    CHECK_SEQUENCE("\"id\":\"a\"", "\"state\":\"not loaded\"", "\"id\":\"org/b\"");
    request("GET", "/v1/models/org/b", "");
    check_status(200);
    request("GET", "/api/tags", "");
    CHECK_SEQUENCE("\"name\":\"a\"", "\"name\":\"org/b\"");
    request("GET", "/api/ps", "");
    check_holds("{\"models\":[]}");
    request("GET", "/health", "");
    check_status(200);
}

TEST(a_name_must_be_given_and_known)
{
    UNUSED_STATE;
    request("POST", "/v1/completions", "{\"model\":\"c\",\"prompt\":\"x\"}");
    check_status(404);
    check_holds("model_not_found");
    check_holds("'a', 'org/b'");
    request("POST", "/v1/completions", "{\"prompt\":\"x\"}");
    check_status(400);
    check_holds("must name one of the models");
    request("POST", "/tokenize", "{\"model\":\"c\",\"content\":\"x\"}");
    check_status(404);
}

TEST(a_request_waits_until_its_model_is_loaded)
{
    UNUSED_STATE;
    int fd = ask("a", 0);
    keeper_hear("want", "a");
    state_say("a", "loading");
    state_say("a", "ready");
    answer(fd);
    check_status(200);
    check_holds("\"model\":\"a\"");
    check_holds("Hello");
    keeper_hear("busy", "a");
    keeper_hear("idle", "a");
    request("POST", "/v1/completions", "{\"model\":\"default\",\"prompt\":\"x\",\"seed\":0}");
    check_status(400); /* being loaded does not make it the default */
    request("POST", "/tokenize", "{\"model\":\"a\",\"content\":\"Hello\"}");
    check_holds("\"count\":1");
    request("GET", "/api/ps", "");
    check_holds("\"name\":\"a\"");
}

TEST(a_model_that_goes_lets_answers_finish_and_others_wait)
{
    UNUSED_STATE;
    int running = ask("a", 1);
    waits_await();
    keeper_hear("busy", "a");
    state_say("a", "draining");
    int late = ask("a", 0);
    keeper_hear("want", "a");
    engine_go();
    answer(running);
    check_status(200);
    keeper_hear("drained", "a");
    state_say("a", "stopping");
    state_say("a", "absent");
    keeper_hear("want", "a");
    state_say("a", "ready");
    answer(late);
    check_status(200);
    check_holds("Hello");
}

TEST(a_model_that_fails_fails_its_own_requests)
{
    UNUSED_STATE;
    int fd = ask("org/b", 0);
    keeper_hear("want", "org/b");
    state_say("org/b", "failed");
    answer(fd);
    check_status(503);
    check_holds("the model 'org/b' cannot be loaded: it is broken");
    fd = ask("a", 0);
    answer(fd);
    check_status(200);
    fd = ask("b", 0); /* the last part of its name; it is tried again */
    keeper_hear("want", "org/b");
    state_say("org/b", "failed");
    answer(fd);
    check_status(503);
}

TEST(ollamas_clients_say_how_long_a_model_stays)
{
    UNUSED_STATE;
    request("POST", "/api/generate",
            "{\"model\":\"a\",\"prompt\":\"x\",\"stream\":false,\"keep_alive\":\"1h30m\","
            "\"options\":{\"seed\":0}}");
    check_status(200);
    keeper_hear("keep", "a");
    assert_non_null(strstr(keeper.in.ptr, "\"seconds\":5400"));
    request("POST", "/api/generate", "{\"model\":\"org/b\",\"keep_alive\":0,\"stream\":false}");
    check_status(200); /* it is not loaded for that */
    check_holds("\"done_reason\":\"unload\"");
    keeper_hear("keep", "org/b");
    request("POST", "/api/generate", "{\"model\":\"a\",\"prompt\":\"x\",\"keep_alive\":\"soon\"}");
    check_status(400);
    check_holds("keep_alive");
}

TEST(a_stream_that_waited_in_vain_ends_with_an_error)
{
    UNUSED_STATE;
    int fd = request_send("POST", "/v1/messages", KEY,
                          "{\"model\":\"org/b\",\"max_tokens\":9,\"stream\":true,\"messages\":[{"
                          "\"role\":\"user\",\"content\":\"x\"}]}");
    keeper_hear("want", "org/b");
    state_say("org/b", "failed");
    answer(fd);
    check_holds("cannot be loaded: it is broken");
}

TEST(a_model_whose_folder_is_gone_is_gone)
{
    UNUSED_STATE;
    int fd = ask("org/b", 0);
    keeper_hear("want", "org/b");
    state_say("org/b", "unlisted");
    answer(fd);
    check_holds("its folder is gone");
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    do request("GET", "/v1/models", "");
    while (strstr(reply.ptr, "org/b") != NULL && !sh_deadline_passed(deadline));
    check_holds("\"id\":\"a\"");
    assert_null(strstr(reply.ptr, "org/b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_models_are_listed_with_their_states),
        cmocka_unit_test(a_name_must_be_given_and_known),
        cmocka_unit_test(a_request_waits_until_its_model_is_loaded),
        cmocka_unit_test(a_model_that_goes_lets_answers_finish_and_others_wait),
        cmocka_unit_test(a_model_that_fails_fails_its_own_requests),
        cmocka_unit_test(ollamas_clients_say_how_long_a_model_stays),
        cmocka_unit_test(a_stream_that_waited_in_vain_ends_with_an_error),
        cmocka_unit_test(a_model_whose_folder_is_gone_is_gone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
