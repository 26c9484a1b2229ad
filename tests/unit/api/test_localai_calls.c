/* LocalAI's calls from the wire to the engine: the whole API, with a scripted engine, and a
 * supervisor that says what the test wants. */
#include "api/localai.h"
#include "base/log.h"
#include "http/listeners.h"

#include "h2_client.h"
#include "scripted_engine.h"

#include <signal.h>

#define TOKEN "a-token-of-tests-4fZq81"

static const engine_script scripts[] = {
    [1] = {.pieces = {"Hello", " there"}, .finish = SH_FINISH_STOP},
    [2] = {.pieces = {"Later"}, .finish = SH_FINISH_STOP, .waits = true},
    [3] = {.pieces = {"Half"}, .error = SH_ERR_MEMORY},
};

static sh_served_model *served;
static sh_api_opts api_opts;
static pthread_t api_thread;
static int supervisor; /* our end of its socket */
static client c;
static int32_t stream = -1;
static sh_buf out;
static sh_arena arena;

static void *api_main(void *arg)
{
    sh_err err;
    (void)arg;
    if (sh_api_run(&api_opts, &err) != SH_OK) fprintf(stderr, "%s\n", err.text);
    return NULL;
}

static int api_start(void **state)
{
    UNUSED_STATE;
    static char fds[16];
    sh_err err;
    sh_listeners sockets;
    int ends[2];
    sh_log_set_level(SH_LOG_ERROR);
    sh_engine_info info = {.model_dir = ENGINE_MODEL, .vocab = 4096, .context = 2048};
    CHECK_OK(sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err), err);
    CHECK_OK(sh_listeners_open("127.0.0.1", 0, &sockets, &err), err);
    port = sockets.port;
    snprintf(fds, sizeof(fds), "%d", sockets.fds[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    supervisor = ends[0];
    snprintf(engine.path, sizeof(engine.path), "/tmp/shoal-script-%d", (int)getpid());
    api_opts = (sh_api_opts){.host = "127.0.0.1",
                             .socket_path = engine.path,
                             .grpc_fds = fds,
                             .grpc_token = TOKEN,
                             .model_fd = ends[1],
                             .replay_s = -1,
                             .grace_s = 2,
                             .connections_max = 16,
                             .header_bytes_max = 8192,
                             .bodies_bytes_max = 1 << 20,
                             .idle_s = 60,
                             .receive_s = 60,
                             .send_s = 60};
    assert_int_equal(pthread_create(&api_thread, NULL, api_main, NULL), 0);
    client_open(&c);
    return 0;
}

static int api_end(void **state)
{
    UNUSED_STATE;
    client_close(&c);
    kill(getpid(), SIGTERM);
    pthread_join(api_thread, NULL);
    engine_stop();
    sh_served_model_close(served);
    close(api_opts.model_fd);
    sh_buf_reset(&out);
    sh_arena_reset(&arena);
    return 0;
}

/* ---- calls ---- */

static int32_t send_call(const char *method, const ProtobufCMessage *message)
{
    char path[64];
    sh_buf wire = {0};
    snprintf(path, sizeof(path), "/backend.Backend/%s", method);
    sh_message_frame(message, &wire);
    head_send(&c, stream += 2, path, "authorization", "Bearer " TOKEN);
    message_send(&c, stream, wire.ptr + SH_GRPC_PREFIX, wire.len - SH_GRPC_PREFIX);
    sh_buf_reset(&wire);
    return stream;
}

/* The answer of a call, which has one message. */
static const void *answer(int32_t of, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = NULL;
    sh_err err;
    answer_read(&c, of, &out);
    check_trailer(&c, "grpc-status: 0\n");
    assert_true(out.len >= SH_GRPC_PREFIX);
    sh_str wire = sh_str_sub(sh_buf_str(&out), SH_GRPC_PREFIX, out.len);
    CHECK_OK(sh_message_unpack(type, wire, &arena, &message, &err), err);
    return message;
}

static void check_state(Backend__StatusResponse__State want)
{
    Backend__HealthMessage ask = BACKEND__HEALTH_MESSAGE__INIT;
    const Backend__StatusResponse *status = answer(send_call("Status", &ask.base),
                                                   &backend__status_response__descriptor);
    assert_int_equal(status->state, want);
}

static void check_result(int32_t of, bool success, const char *text)
{
    const Backend__Result *result = answer(of, &backend__result__descriptor);
    assert_int_equal(result->success, success);
    if (strstr(result->message, text) == NULL) fail_msg("no '%s' in '%s'", text, result->message);
}

static void check_fails(int32_t of, const char *code, const char *text)
{
    answer_read(&c, of, &out);
    check_trailer(&c, code);
    check_trailer(&c, text);
}

static int32_t predict(const char *method, int seed)
{
    Backend__PredictOptions ask = BACKEND__PREDICT_OPTIONS__INIT;
    ask.prompt = "Hi";
    ask.seed = seed;
    return send_call(method, &ask.base);
}

static int32_t load(const char *model)
{
    Backend__ModelOptions ask = BACKEND__MODEL_OPTIONS__INIT;
    ask.model = (char *)(uintptr_t)model;
    return send_call("LoadModel", &ask.base);
}

static int32_t unload(void)
{
    Backend__HealthMessage ask = BACKEND__HEALTH_MESSAGE__INIT;
    return send_call("Free", &ask.base);
}

/* ---- the supervisor ---- */

static void check_order(const char *want)
{
    char line[1024];
    size_t len = 0;
    struct pollfd p = {.fd = supervisor, .events = POLLIN};
    do {
        if (poll(&p, 1, H2_PATIENCE_MS) == 0) fail_msg("the API asks for nothing");
        assert_int_equal(recv(supervisor, line + len, 1, 0), 1);
    } while (line[len++] != '\n' && len < sizeof(line));
    line[len - 1] = '\0';
    assert_string_equal(line, want);
}

static void say(const char *line)
{
    assert_int_equal(send(supervisor, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
}

/* ---- */

TEST(without_a_model_there_is_nothing_to_ask)
{
    UNUSED_STATE;
    check_state(BACKEND__STATUS_RESPONSE__STATE__UNINITIALIZED);
    check_fails(predict("Predict", 1), "grpc-status: 9\n", "call LoadModel first");
    check_result(unload(), true, "no model is loaded");
}

TEST(a_model_that_does_not_start_is_reported)
{
    UNUSED_STATE;
    int32_t call = load("org/none");
    check_order("{\"do\":\"load\",\"settings\":{\"model\":\"org/none\"}}");
    check_state(BACKEND__STATUS_RESPONSE__STATE__BUSY);
    check_fails(load("org/other"), "grpc-status: 9\n", "being loaded");
    say("{\"state\":\"failed\",\"why\":\"there is none\"}\n");
    check_result(call, false, "there is none");
    check_state(BACKEND__STATUS_RESPONSE__STATE__UNINITIALIZED);
}

TEST(a_model_is_loaded_when_its_engine_has_connected)
{
    UNUSED_STATE;
    int32_t call = load("org/name");
    check_order("{\"do\":\"load\",\"settings\":{\"model\":\"org/name\"}}");
    say("{\"state\":\"started\"}\n");
    check_state(BACKEND__STATUS_RESPONSE__STATE__BUSY);
    engine_start(scripts, sh_served_model_tokenizer(served));
    check_result(call, true, "is loaded");
    check_state(BACKEND__STATUS_RESPONSE__STATE__READY);
    check_result(load("org/name"), true, "is loaded"); /* the same again */
}

TEST(an_answer_is_one_message_or_several)
{
    UNUSED_STATE;
    const Backend__Reply *whole = answer(predict("Predict", 1), &backend__reply__descriptor);
    assert_int_equal(whole->message.len, strlen("Hello there"));
    assert_memory_equal(whole->message.data, "Hello there", whole->message.len);
    assert_int_equal(whole->n_chat_deltas, 0);
    int32_t call = predict("PredictStream", 1);
    answer_read(&c, call, &out);
    check_trailer(&c, "grpc-status: 0\n");
    assert_true(out.len > 2 * SH_GRPC_PREFIX + strlen("Hello there"));
    check_fails(predict("PredictStream", 3), "grpc-status: 8\n", "the script ends here");
}

TEST(a_busy_model_is_not_replaced_but_freed)
{
    UNUSED_STATE;
    int32_t waits = predict("PredictStream", 2);
    while (!engine_waits()) sh_sleep_ms(1);
    check_fails(load("org/other"), "grpc-status: 9\n", "answering requests");
    int32_t call = unload();
    check_fails(waits, "grpc-status: 14\n", "unloaded");
    check_order("{\"do\":\"free\"}");
    say("{\"state\":\"freed\"}\n");
    check_result(call, true, "unloaded");
    check_state(BACKEND__STATUS_RESPONSE__STATE__UNINITIALIZED);
}

TEST(a_supervisor_that_is_gone_is_reported)
{
    UNUSED_STATE;
    close(supervisor);
    check_result(load("org/name"), false, "supervisor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_model_there_is_nothing_to_ask),
        cmocka_unit_test(a_model_that_does_not_start_is_reported),
        cmocka_unit_test(a_model_is_loaded_when_its_engine_has_connected),
        cmocka_unit_test(an_answer_is_one_message_or_several),
        cmocka_unit_test(a_busy_model_is_not_replaced_but_freed),
        cmocka_unit_test(a_supervisor_that_is_gone_is_reported),
    };
    return cmocka_run_group_tests(tests, api_start, api_end);
}
