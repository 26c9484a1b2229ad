/* POST /api/pull and DELETE /api/delete: changes of the models on disk, made by another process
 * (store_service.h). They do not change what is served. */
#include "api/api_internal.h"
#include "api/ollama.h"
#include "api/store_service.h"
#include "base/alloc.h"
#include "http/change.h"

#include <stdlib.h>

/* One request, until its last report or until the client has left. */
typedef struct {
    sh_http_request *req;
    sh_store_request *asked;
    bool stream;
    bool quiet; /* a successful end has no body */
} transfer;

static void on_gone(void *arg)
{
    transfer *t = arg;
    sh_store_request_forget(t->asked);
    free(t);
}

static void line_send(const transfer *t, sh_buf *line)
{
    if (t->stream) {
        sh_buf_add_text(line, sh_framing_ndjson.after);
        sh_http_stream_write(t->req, sh_buf_str(line));
    }
    sh_buf_reset(line);
}

static void status_send(const transfer *t, const char *status, const cJSON *report)
{
    sh_buf line = {0};
    sh_json_writer w = sh_json_writer_on(&line);
    const cJSON *total = cJSON_GetObjectItemCaseSensitive(report, "total");
    const cJSON *completed = cJSON_GetObjectItemCaseSensitive(report, "completed");
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "status", status);
    if (cJSON_IsNumber(total)) sh_write_int(&w, "total", (int64_t)total->valuedouble);
    if (cJSON_IsNumber(completed)) sh_write_int(&w, "completed", (int64_t)completed->valuedouble);
    sh_write_end(&w, '}');
    line_send(t, &line);
}

/* The last line says whether it worked; without a stream that is the reply. */
static void transfer_end(transfer *t, const sh_api_error *error)
{
    if (!t->stream && error != NULL) {
        sh_api_reply_error(t->req, error);
    } else if (!t->stream) {
        sh_http_reply(t->req, 200, "application/json",
                      t->quiet ? SH_STR("") : SH_STR("{\"status\":\"success\"}"));
    } else {
        sh_buf line = {0};
        if (error != NULL) {
            sh_ollama.error(error, &line);
            line_send(t, &line);
        } else {
            status_send(t, "success", NULL);
        }
        sh_http_stream_end(t->req);
    }
    free(t);
}

static void on_report(void *arg, const cJSON *report)
{
    transfer *t = arg;
    const cJSON *why = cJSON_GetObjectItemCaseSensitive(report, "error");
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(report, "code");
    sh_api_error error;
    if (report == NULL)
        sh_api_fail(&error, 503, "unavailable", NULL, "the download was interrupted");
    else if (cJSON_IsString(why))
        sh_api_fail(&error, cJSON_IsNumber(code) ? code->valueint : 500, "store_failed", "model",
                    "%s", why->valuestring);
    else if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(report, "done"))) {
        status_send(t, "downloading", report);
        return;
    }
    transfer_end(t, report == NULL || cJSON_IsString(why) ? &error : NULL);
}

static bool ask(sh_api *api, transfer *t, const char *what, const char *model, sh_api_error *error)
{
    if (api->store == NULL)
        return sh_api_fail(error, 403, "forbidden", NULL,
                           "this server does not let clients download or delete models; start it "
                           "with --manage-models");
    sh_http_refusal refusal = sh_http_change_admit_key(t->req);
    if (refusal.status != 0)
        return sh_api_fail(error, refusal.status, "forbidden", NULL, "%s", refusal.why);
    t->asked = sh_store_service_ask(api->store, what, model, on_report, t);
    return t->asked != NULL ||
           sh_api_fail(error, 503, "unavailable", NULL,
                       "models cannot be downloaded or deleted at the moment: see the log");
}

static void transfer_start(sh_api *api, sh_http_request *req, const char *what, bool quiet)
{
    char model[SH_OLLAMA_NAME_MAX];
    bool stream;
    sh_api_error error;
    transfer *t = sh_alloc(sizeof(*t));
    *t = (transfer){.req = req, .quiet = quiet};
    if (!sh_ollama_model_read(api, req, model, &stream, &error) ||
        !ask(api, t, what, model, &error)) {
        sh_api_reply_error(req, &error);
        free(t);
        return;
    }
    t->stream = stream && !quiet;
    sh_http_watch_client(req, on_gone, NULL, t);
    if (!t->stream) return;
    sh_api_stream_start(req, sh_framing_ndjson.content_type);
    status_send(t, "pulling manifest", NULL);
}

void sh_ollama_pull(sh_http_request *req, void *arg)
{
    transfer_start(arg, req, "pull", false);
}

void sh_ollama_delete(sh_http_request *req, void *arg)
{
    transfer_start(arg, req, "delete", true);
}
