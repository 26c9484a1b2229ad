#include "api/store_service.h"

#include "api/json_writer.h"
#include "base/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LINE_MAX_BYTES = 8192, READ_BYTES = 4096 };

struct sh_store_request {
    sh_store_service *service;
    sh_store_request *next;
    int64_t id;
    sh_store_fn fn;
    void *arg;
};

struct sh_store_service {
    int fd;
    sh_trigger *readable;
    sh_buf in;
    sh_store_request *requests;
    int64_t last_id;
    bool gone; /* the other process */
};

/* Also frees it. */
static void request_unlink(sh_store_request *request)
{
    sh_store_request **at = &request->service->requests;
    while (*at != request) at = &(*at)->next;
    *at = request->next;
    free(request);
}

static void request_end(sh_store_request *request, const cJSON *line)
{
    sh_store_fn fn = request->fn;
    void *arg = request->arg;
    request_unlink(request);
    fn(arg, line);
}

static void gone_take(sh_store_service *service)
{
    SH_LOGE("api: the process that downloads and deletes models has ended");
    service->gone = true;
    sh_trigger_want(service->readable, false, false);
    while (service->requests != NULL) request_end(service->requests, NULL);
}

static void line_take(sh_store_service *service, sh_str text)
{
    cJSON *line = NULL;
    sh_err err;
    int64_t id = 0;
    if (sh_json_parse(text, "store", &line, &err) != SH_OK ||
        sh_json_int(line, "id", "store", 0, INT64_C(1) << 53, &id, &err) != SH_OK) {
        SH_LOGW("api: %s", err.text);
        cJSON_Delete(line);
        return;
    }
    sh_store_request *request = service->requests;
    while (request != NULL && request->id != id) request = request->next;
    /* A line may cross the request to stop. */
    if (request != NULL && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "done")))
        request_end(request, line);
    else if (request != NULL)
        request->fn(request->arg, line);
    cJSON_Delete(line);
}

static void on_readable(void *arg)
{
    sh_store_service *service = arg;
    char bytes[READ_BYTES];
    ssize_t got = recv(service->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) sh_buf_add(&service->in, bytes, (size_t)got);
    char *end;
    while (service->in.len > 0 && (end = memchr(service->in.ptr, '\n', service->in.len)) != NULL) {
        sh_str line = {service->in.ptr, (size_t)(end - service->in.ptr)};
        line_take(service, line);
        sh_buf_drop_front(&service->in, line.len + 1);
    }
    if (got <= 0 || service->in.len > LINE_MAX_BYTES) gone_take(service);
}

sh_store_service *sh_store_service_create(sh_loop *loop, int fd)
{
    sh_store_service *service = sh_alloc(sizeof(*service));
    service->fd = fd;
    service->readable = sh_trigger_fd(loop, fd, on_readable, service);
    sh_trigger_want(service->readable, true, false);
    return service;
}

void sh_store_service_free(sh_store_service *service)
{
    if (service == NULL) return;
    while (service->requests != NULL) request_unlink(service->requests);
    sh_trigger_free(service->readable);
    sh_buf_reset(&service->in);
    free(service);
}

/* The lines are short and few: one that does not fit means that nobody reads. */
static bool line_send(sh_store_service *service, int64_t id, const char *what, const char *model)
{
    sh_buf out = {0};
    sh_json_writer w = sh_json_writer_on(&out);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "id", id);
    sh_write_text(&w, "do", what);
    sh_write_text(&w, "model", model);
    sh_write_end(&w, '}');
    sh_buf_add_char(&out, '\n');
    ssize_t sent = service->gone ? -1 : send(service->fd, out.ptr, out.len, MSG_DONTWAIT);
    bool fine = sent == (ssize_t)out.len;
    sh_buf_reset(&out);
    return fine;
}

sh_store_request *sh_store_service_ask(sh_store_service *service, const char *what,
                                       const char *model, sh_store_fn fn, void *arg)
{
    if (!line_send(service, ++service->last_id, what, model)) return NULL;
    sh_store_request *request = sh_alloc(sizeof(*request));
    *request = (sh_store_request){.service = service,
                                  .next = service->requests,
                                  .id = service->last_id,
                                  .fn = fn,
                                  .arg = arg};
    service->requests = request;
    return request;
}

void sh_store_request_forget(sh_store_request *request)
{
    line_send(request->service, request->id, "stop", NULL);
    request_unlink(request);
}
