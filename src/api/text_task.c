/* A task has two stages: the body is parsed, which tells what model it is for, and then, when that
 * model is loaded, converted. It belongs to the worker while a stage runs there, so a client that
 * disconnects only sets two flags. */
#include "api/text_task.h"

#include "base/alloc.h"

#include <stdlib.h>

static void task_parse(void *arg)
{
    sh_text_task *t = arg;
    t->refused = true;
    if (atomic_load_explicit(&t->gone, memory_order_relaxed)) return;
    t->refused = !sh_api_parse_as(t->api, t->format, t->body, &t->json, &t->values, &t->error);
    const sh_field_table *fields = t->refused || t->fields_of == NULL ? t->fields
                                                                      : t->fields_of(t->json);
    if (!t->refused && fields != NULL && cJSON_IsObject(t->json))
        sh_fields_unknown(fields, t->json, &t->ignored);
}

static void task_convert(void *arg)
{
    sh_text_task *t = arg;
    if (atomic_load_explicit(&t->gone, memory_order_relaxed)) return;
    t->refused = !t->convert(t, t->json, &t->out, &t->error);
}

static void task_end(void *arg)
{
    sh_text_task *t = arg;
    if (t->req != NULL && t->ignored.len > 0)
        sh_http_add_header(t->req, "X-Shoal-Ignored-Fields", t->ignored.ptr);
    if (t->req != NULL && t->refused) sh_api_reply_error(t->req, &t->error);
    if (t->req != NULL && !t->refused) sh_api_reply_json(t->req, 200, &t->out);
    sh_api_parsed_free(t->api, t->json, t->values);
    sh_served_model_close(t->served);
    sh_model_release(&t->turn);
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
    if (t->turn.waits) task_end(t);
}

/* Runs a stage of the task, long bodies on the worker. Without space in its queue the request is
 * refused: the loop must not do the work. */
static void task_stage(sh_text_task *t, sh_text_worker_fn run, sh_text_worker_fn then)
{
    if (t->body.len <= SH_API_INLINE_BYTES) {
        run(t);
        then(t);
        return;
    }
    if (sh_text_worker_submit(t->api->worker, run, then, t) == SH_OK) return;
    t->refused = true;
    sh_api_refuse_waiting(&t->error);
    task_end(t);
}

/* The model can be used, or will not be. */
static void on_turn(void *arg, const sh_api_error *error)
{
    sh_text_task *t = arg;
    if (error == NULL && t->turn.model->served != NULL) {
        t->served = sh_served_model_take(t->turn.model->served);
        task_stage(t, task_convert, task_end);
        return;
    }
    t->refused = true;
    if (error != NULL)
        t->error = *error;
    else
        sh_model_ready(t->turn.model, &t->error);
    task_end(t);
}

/* The name may be of the wrong type or carry Ollama's tag; `convert` reads it again. */
static void on_parsed(void *arg)
{
    sh_text_task *t = arg;
    const char *name = sh_json_text(t->json, "model");
    sh_api_model *model = t->refused || t->req == NULL ? NULL
                                                       : sh_models_find(t->api, name, &t->error);
    t->refused = model == NULL || /* it would be loaded, and others might have to go */
                 !sh_model_is_allowed(model, sh_http_key_name(t->req), &t->error);
    if (t->refused) {
        task_end(t);
        return;
    }
    double limit_s = t->api->request_timeout_s;
    t->turn.go = on_turn;
    t->turn.arg = t;
    t->turn.deadline = limit_s > 0 ? sh_deadline_in_ms((int64_t)(limit_s * 1000))
                                   : SH_DEADLINE_NEVER;
    if (!sh_model_wait(model, &t->turn)) on_turn(t, NULL);
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
    t->body = sh_http_body(req);
    t->convert = convert;
    if (t->body.len > SH_API_INLINE_BYTES) {
        t->body_copy = sh_str_dup(t->body);
        t->body.ptr = t->body_copy;
    }
    sh_http_watch_client(req, on_gone, NULL, t);
    task_stage(t, task_parse, on_parsed);
}
