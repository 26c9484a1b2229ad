#include "api/model_host.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LINE_MAX_BYTES = 8192, READ_BYTES = 4096 };

struct sh_model_host {
    int fd;
    sh_trigger *readable;
    sh_buf in;
    sh_model_host_fn fn;
    void *arg;
    bool gone;
};

static void line_take(const sh_model_host *host, sh_str text)
{
    cJSON *line = NULL;
    sh_err err;
    if (sh_json_parse(text, "supervisor", &line, &err) != SH_OK) {
        SH_LOGW("localai: %s", err.text);
        return;
    }
    const char *state = sh_json_text(line, "state"), *why = sh_json_text(line, "why");
    if (state != NULL) host->fn(host->arg, state, why == NULL ? "" : why);
    cJSON_Delete(line);
}

static void on_readable(void *arg)
{
    sh_model_host *host = arg;
    char bytes[READ_BYTES];
    ssize_t got = recv(host->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) sh_buf_add(&host->in, bytes, (size_t)got);
    const char *end;
    while (host->in.len > 0 && (end = memchr(host->in.ptr, '\n', host->in.len)) != NULL) {
        sh_str line = {host->in.ptr, (size_t)(end - host->in.ptr)};
        line_take(host, line);
        sh_buf_drop_front(&host->in, line.len + 1);
    }
    if (got > 0 && host->in.len <= LINE_MAX_BYTES) return;
    host->gone = true;
    sh_trigger_want(host->readable, false, false);
    host->fn(host->arg, "gone", "");
}

sh_model_host *sh_model_host_create(sh_loop *loop, int fd, sh_model_host_fn fn, void *arg)
{
    sh_model_host *host = sh_alloc(sizeof(*host));
    *host = (sh_model_host){.fd = fd, .fn = fn, .arg = arg};
    host->readable = sh_trigger_fd(loop, fd, on_readable, host);
    sh_trigger_want(host->readable, true, false);
    return host;
}

void sh_model_host_free(sh_model_host *host)
{
    if (host == NULL) return;
    sh_trigger_free(host->readable);
    sh_buf_reset(&host->in);
    free(host);
}

void sh_model_host_leave(sh_model_host *host)
{
    sh_trigger_want(host->readable, false, false);
}

/* The lines are short and few: one that does not fit means that nobody reads. */
bool sh_model_host_ask(sh_model_host *host, const cJSON *settings)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "do", settings == NULL ? "free" : "load");
    if (settings != NULL) cJSON_AddItemToObject(line, "settings", cJSON_Duplicate(settings, true));
    char *text = cJSON_PrintUnformatted(line);
    SH_ASSERT(text != NULL);
    size_t len = strlen(text);
    text[len] = '\n'; /* in the place of the zero */
    bool sent = !host->gone && len < LINE_MAX_BYTES &&
                send(host->fd, text, len + 1, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len + 1;
    cJSON_free(text);
    cJSON_Delete(line);
    return sent;
}
