/* An engine without a model: answers every request on the Unix socket with tokens at a given rate,
 * so that a load test measures the API only.
 *   fake_engine SOCKET MODEL_DIR [TOKENS_PER_SECOND_PER_STREAM [RUNNING_AT_ONCE]] */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_messages.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUESTS_MAX = 4096 };

typedef struct {
    uint64_t id; /* 0: free */
    int64_t start_ns;
    int sent, max, prompt;
} request;

static request requests[REQUESTS_MAX]; /* in order of arrival */
static int count;
static sh_buf in, out;
static double rate = 100;
static int running_max = 8;

static void done_send(const request *r, sh_finish finish)
{
    sh_event event = {.kind = SH_EVENT_DONE, .id = r->id, .finish = finish};
    event.prompt_tokens = r->prompt;
    event.completion_tokens = r->sent;
    sh_engine_msg_put_event(&out, &event);
}

static void request_remove(int at)
{
    memmove(&requests[at], &requests[at + 1], (size_t)(count - at - 1) * sizeof(request));
    count--;
}

static void cancel(uint64_t id)
{
    for (int i = 0; i < count; i++) {
        if (requests[i].id != id) continue;
        done_send(&requests[i], SH_FINISH_CANCEL);
        request_remove(i);
        return;
    }
}

static void submit(sh_str payload)
{
    sh_submit_message got;
    sh_err err;
    if (sh_engine_msg_get_submit(payload, &got, &err) != SH_OK || count == REQUESTS_MAX) exit(1);
    requests[count++] = (request){
        .id = got.spec.id, .max = got.spec.max_tokens, .prompt = (int)got.spec.prompt_count};
    sh_submit_message_reset(&got);
}

static void frame_handle(const sh_engine_msg_frame *frame, const char *model_dir)
{
    sh_err err;
    uint64_t id;
    sh_engine_info info = {
        .model_dir = model_dir, .vocab = 4096, .context = 1 << 20, .world_size = 1, .ready = true};
    static const char stats[] = "{\"waiting\":0,\"waiting_max\":4096,\"running\":0}";
    sh_event event = {.kind = SH_EVENT_STATS, .stats = SH_STR(stats)};
    switch (frame->type) {
    case SH_ENGINE_MSG_HELLO: sh_engine_msg_put_info(&out, &info); break;
    case SH_ENGINE_MSG_SUBMIT: submit(frame->payload); break;
    case SH_ENGINE_MSG_CANCEL:
        if (sh_engine_msg_get_id(frame->payload, &id, &err) == SH_OK) cancel(id);
        break;
    case SH_ENGINE_MSG_ASK_STATS: sh_engine_msg_put_event(&out, &event); break;
    default: break;
    }
}

/* Sends the tokens that are due to the first running_max requests; true when any request is left.
 */
static bool tokens_send(void)
{
    int64_t now = sh_clock_ns();
    for (int i = 0; i < count && i < running_max;) {
        request *r = &requests[i];
        if (r->start_ns == 0) r->start_ns = now;
        int due = 1 + (int)((double)(now - r->start_ns) * 1e-9 * rate);
        for (; r->sent < due && r->sent < r->max; r->sent++) {
            sh_event event = {.kind = SH_EVENT_TOKEN, .id = r->id, .token = 300 + r->sent % 3000};
            sh_engine_msg_put_event(&out, &event);
        }
        if (r->sent < r->max) {
            i++;
            continue;
        }
        done_send(r, SH_FINISH_LENGTH);
        request_remove(i);
    }
    return count > 0;
}

static bool flush(int fd)
{
    while (out.len > 0) {
        ssize_t put = send(fd, out.ptr, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0) return errno == EAGAIN;
        sh_buf_drop_front(&out, (size_t)put);
    }
    return true;
}

static void serve(int fd, const char *model_dir)
{
    count = 0;
    sh_buf_clear(&in);
    sh_buf_clear(&out);
    for (;;) {
        bool busy = tokens_send();
        if (!flush(fd)) return;
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (out.len > 0 ? POLLOUT : 0))};
        if (poll(&p, 1, busy ? 1 : -1) <= 0 || (p.revents & (POLLIN | POLLHUP)) == 0) continue;
        ssize_t got = recv(fd, sh_buf_reserve(&in, 1 << 16), 1 << 16, 0);
        if (got <= 0) return;
        in.len += (size_t)got;
        sh_engine_msg_frame frame;
        sh_err err;
        while (sh_engine_msg_next(&in, &frame, &err) == SH_OK) {
            frame_handle(&frame, model_dir);
            sh_buf_drop_front(&in, frame.size);
        }
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (argc < 3 || strlen(argv[1]) >= sizeof(addr.sun_path)) return 2;
    if (argc > 3) rate = atof(argv[3]);
    if (argc > 4) running_max = atoi(argv[4]);
    strcpy(addr.sun_path, argv[1]);
    unlink(argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        listen(listener, 8) != 0) {
        perror(argv[1]);
        return 1;
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return 1;
        serve(fd, argv[2]);
        close(fd);
    }
}
