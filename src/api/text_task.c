/* The task belongs to the worker from submit until task_end(), so a client that disconnects only
 * sets two flags. */
#include "api/text_task.h"

#include "base/alloc.h"

#include <stdlib.h>

static void task_run(void *arg)
{
    sh_text_task *t = arg;
    cJSON *body = NULL;
    size_t values = 0;
    if (atomic_load_explicit(&t->gone, memory_order_relaxed)) return;
    t->refused = !sh_api_parse_as(t->api, t->format, t->body, &body, &values, &t->error);
    const sh_field_table *fields = t->refused || t->fields_of == NULL ? t->fields
                                                                      : t->fields_of(body);
    if (!t->refused && fields != NULL && cJSON_IsObject(body))
        sh_fields_unknown(fields, body, &t->ignored);
    if (!t->refused) t->refused = !t->convert(t, body, &t->out, &t->error);
    sh_api_parsed_free(t->api, body, values);
}

static void task_end(void *arg)
{
    sh_text_task *t = arg;
    if (t->req != NULL && t->ignored.len > 0)
        sh_http_add_header(t->req, "X-Shoal-Ignored-Fields", t->ignored.ptr);
    if (t->req != NULL && t->refused) sh_api_reply_error(t->req, &t->error);
    if (t->req != NULL && !t->refused) sh_api_reply_json(t->req, 200, &t->out);
    sh_served_model_close(t->served);
    sh_buf_reset(&t->out);
    sh_buf_reset(&t->ignored);
    free(t->body_copy);
    free(t);
}

static void on_gone(void *arg)
{
    sh_text_task *t = arg;
    t->req = NULL; /* task_end() frees the task */
    atomic_store_explicit(&t->gone, true, memory_order_relaxed);
}

/* Without space in the worker's queue the request is refused: the loop must not do the work. */
static void task_start(sh_api *api, sh_text_task *t)
{
    if (t->body.len <= SH_API_INLINE_BYTES) {
        task_run(t);
        task_end(t);
        return;
    }
    t->body_copy = sh_str_dup(t->body);
    t->body.ptr = t->body_copy;
    sh_http_watch_client(t->req, on_gone, NULL, t);
    if (sh_text_worker_submit(api->worker, task_run, task_end, t) == SH_OK) return;
    t->refused = true;
    sh_api_refuse_waiting(&t->error);
    task_end(t);
}

void sh_text_task_start(sh_http_request *req, sh_api *api, sh_text_fields fields_of,
                        sh_text_convert convert)
{
    if (sh_api_lacks_model(req, api)) return;
    const sh_endpoint *endpoint = sh_api_endpoint_of(req);
    sh_text_task *t = sh_alloc(sizeof(*t));
    t->api = api;
    t->format = endpoint->format;
    t->fields = endpoint->fields;
    t->fields_of = fields_of;
    t->req = req;
    t->served = sh_served_model_take(api->served);
    t->body = sh_http_body(req);
    t->convert = convert;
    task_start(api, t);
}
