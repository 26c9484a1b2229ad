/* scripted_engine.h - an engine's socket that answers every request from a script.
 *
 * For tests of the API. The seed of a request is the number of its script, so that a test chooses
 * what the model says. Include it in one file per program.
 *
 * Threads: the engine has a thread of its own; the others call what follows it. */
#ifndef SH_TESTS_UNIT_API_SCRIPTED_ENGINE_H
#define SH_TESTS_UNIT_API_SCRIPTED_ENGINE_H

#include "engine/engine_messages.h"
#include "text/model_text.h"

#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ENGINE_MODEL "models/demo"

enum { ENGINE_POLL_MS = 5, PIECES_MAX = 4 };

typedef struct {
    const char *pieces[PIECES_MAX]; /* of text */
    sh_finish finish;
    sh_status error; /* instead of finishing; SH_OK: none */
    bool retry;
    bool waits; /* says nothing before engine_go() */
} engine_script;

static struct {
    const engine_script *scripts;
    const sh_tokenizer *tokenizer;
    char path[64];
    int listener, client;
    sh_buf in, out;
    uint64_t waiting; /* the request of a script that waits, or 0 */
    const engine_script *waiting_script;
    atomic_bool waits, go, stop;
    pthread_t thread;
} engine;

static void engine_event(uint64_t id, sh_event event)
{
    event.id = id;
    sh_engine_msg_put_event(&engine.out, &event);
}

static void engine_play(uint64_t id, const engine_script *script)
{
    sh_encode_opts opts = {.parse_special = true};
    sh_ids ids = {0};
    sh_err err;
    for (int i = 0; i < PIECES_MAX && script->pieces[i] != NULL; i++)
        CHECK_OK(
            sh_tokenizer_encode(engine.tokenizer, sh_str_of(script->pieces[i]), opts, &ids, &err),
            err);
    for (size_t i = 0; i < ids.len; i++)
        engine_event(id, (sh_event){.kind = SH_EVENT_TOKEN, .token = ids.ptr[i]});
    sh_event last = {.kind = SH_EVENT_DONE, .finish = script->finish};
    if (script->error != SH_OK) {
        last = (sh_event){.kind = SH_EVENT_ERROR, .retry = script->retry};
        sh_err_set(&last.error, script->error, "the script ends here");
    }
    engine_event(id, last);
    sh_ids_reset(&ids);
}

static void engine_submit(sh_str payload)
{
    sh_submit_message submit = {0};
    sh_err err;
    CHECK_OK(sh_engine_msg_get_submit(payload, &submit, &err), err);
    const engine_script *script = &engine.scripts[submit.spec.sampling.seed];
    if (script->waits) {
        engine.waiting = submit.spec.id;
        engine.waiting_script = script;
        atomic_store(&engine.waits, true);
    } else {
        engine_play(submit.spec.id, script);
    }
    sh_submit_message_reset(&submit);
}

static void engine_take(const sh_engine_msg_frame *frame)
{
    switch (frame->type) {
    case SH_ENGINE_MSG_HELLO:
        sh_engine_msg_put_info(&engine.out, &(sh_engine_info){.model_dir = ENGINE_MODEL,
                                                              .vocab = 4096,
                                                              .context = 2048,
                                                              .world_size = 1,
                                                              .ready = true});
        break;
    case SH_ENGINE_MSG_SUBMIT: engine_submit(frame->payload); break;
    case SH_ENGINE_MSG_ASK_STATS:
        engine_event(0, (sh_event){.kind = SH_EVENT_STATS, .stats = SH_STR("{}")});
        break;
    default: break; /* the end of a script may cross a cancel, as in a real engine */
    }
}

static void engine_read(void)
{
    char bytes[4096];
    ssize_t got = recv(engine.client, bytes, sizeof(bytes), MSG_DONTWAIT);
    sh_engine_msg_frame frame;
    sh_err err;
    if (got > 0) sh_buf_add(&engine.in, bytes, (size_t)got);
    if (got == 0) { /* another may come */
        close(engine.client);
        engine.client = -1;
    }
    while (sh_engine_msg_next(&engine.in, &frame, &err) == SH_OK) {
        engine_take(&frame);
        sh_buf_drop_front(&engine.in, frame.size);
    }
}

static void *engine_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&engine.stop)) {
        struct pollfd p = {.fd = engine.client < 0 ? engine.listener : engine.client,
                           .events = POLLIN};
        poll(&p, 1, ENGINE_POLL_MS);
        if ((p.revents & POLLIN) != 0 && engine.client < 0)
            engine.client = accept(engine.listener, NULL, NULL);
        else if ((p.revents & POLLIN) != 0)
            engine_read();
        if (engine.waiting != 0 && atomic_exchange(&engine.go, false)) {
            engine_play(engine.waiting, engine.waiting_script);
            engine.waiting = 0;
            atomic_store(&engine.waits, false);
        }
        if (engine.out.len > 0 && engine.client >= 0)
            send(engine.client, engine.out.ptr, engine.out.len, MSG_NOSIGNAL);
        sh_buf_clear(&engine.out);
    }
    return NULL;
}

/* Whether a script waits, and to let it continue. */
static inline bool engine_waits(void)
{
    return atomic_load(&engine.waits);
}

static inline void engine_go(void)
{
    atomic_store(&engine.go, true);
}

static void engine_start(const engine_script *scripts, const sh_tokenizer *tokenizer)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    engine.scripts = scripts;
    engine.tokenizer = tokenizer;
    engine.client = -1;
    snprintf(engine.path, sizeof(engine.path), "/tmp/shoal-script-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", engine.path);
    engine.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(engine.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(engine.listener, 4), 0);
    assert_int_equal(pthread_create(&engine.thread, NULL, engine_main, NULL), 0);
}

static void engine_stop(void)
{
    atomic_store(&engine.stop, true);
    pthread_join(engine.thread, NULL);
    if (engine.client >= 0) close(engine.client);
    close(engine.listener);
    unlink(engine.path);
    sh_buf_reset(&engine.in);
    sh_buf_reset(&engine.out);
}

#endif
