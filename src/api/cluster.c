/* /cluster: changes of the server itself, for those who may make them (http/change.h).
 *
 * A restart, and hosts that come or go, are the launcher's work (cluster_link.h): the reply says
 * only that it has been ordered, and GET /cluster how it goes on. To drain is the API's own affair.
 */
#include "api/api_internal.h"
#include "api/cluster_link.h"
#include "base/alloc.h"
#include "base/log.h"
#include "http/change.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sh_api_may_change(const sh_http_request *req, sh_api_error *error)
{
    sh_http_refusal refusal = sh_http_change_admit(req);
    return refusal.status == 0 ||
           sh_api_fail(error, refusal.status,
                       refusal.status == 415 ? "content_type_not_known" : "forbidden", NULL, "%s",
                       refusal.why);
}

/* For the log: who has asked, without the key. */
static void change_log(const sh_http_request *req, const char *what, const char *host)
{
    const char *name = sh_http_key_name(req);
    SH_LOGI("api: %s: %s%s%s, asked for by %.*s%s%s", sh_http_id(req), what,
            host == NULL ? "" : " ", host == NULL ? "" : host, (int)sh_http_peer(req).len,
            sh_http_peer(req).ptr, name[0] == '\0' ? "" : " with the key of ", name);
}

/* ---- what there is ---- */

static void state_write(const sh_api *api, const sh_http_request *req, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_api_error error = {0};
    bool may = sh_api_may_change(req, &error);
    const char *why = sh_cluster_link_why(api->cluster);
    sh_write_begin(&w, NULL, '{');
    sh_write_bool(&w, "allowed", may);
    sh_write_text(&w, "forbidden", may ? NULL : error.message);
    sh_write_bool(&w, "launched", why == NULL);
    sh_write_text(&w, "unavailable", why);
    sh_write_bool(&w, "manage_models", api->store != NULL);
    sh_write_bool(&w, "draining", api->draining);
    sh_write_int(&w, "running", api->job_count);
    sh_write_raw(&w, "change", sh_cluster_link_change(api->cluster));
    sh_write_end(&w, '}');
}

static void state_reply(const sh_api *api, sh_http_request *req, int status)
{
    sh_buf json = {0};
    state_write(api, req, &json);
    sh_api_reply_json(req, status, &json);
    sh_buf_reset(&json);
}

void sh_handle_cluster(sh_http_request *req, void *arg)
{
    state_reply(arg, req, 200);
}

/* ---- orders to the launcher ---- */

enum { ID_MAX = 64 };

typedef struct {
    sh_api *api;
    sh_http_request *req;
} order;

static void on_gone(void *arg)
{
    order *o = arg;
    sh_cluster_link_forget(o->api->cluster, o);
    free(o);
}

static void on_answer(void *arg, int code, const char *why)
{
    order *o = arg;
    sh_api_error error;
    if (code == 202) {
        state_reply(o->api, o->req, 202);
    } else {
        const char *name = code == 409   ? "change_running"
                           : code == 400 ? "invalid_value"
                           : code == 501 ? "not_launched"
                                         : "unavailable";
        sh_api_fail(&error, code, name, code == 400 ? "host" : NULL, "%s", why);
        sh_api_reply_error(o->req, &error);
    }
    free(o);
}

/* The id of the request may be the client's own: it may have any sign in it, and come again. */
static void id_make(const sh_http_request *req, char out[ID_MAX])
{
    char plain[ID_MAX / 2];
    snprintf(plain, sizeof(plain), "%s", sh_http_id(req));
    for (char *c = plain; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') *c = '-';
    snprintf(out, ID_MAX, "%s.%llx", plain, (unsigned long long)sh_clock_unix_us());
}

/* The link may answer at once, so the client is watched first. */
static void order_send(sh_api *api, sh_http_request *req, const char *what, const char *host)
{
    char id[ID_MAX];
    order *o = sh_alloc(sizeof(*o));
    *o = (order){api, req};
    change_log(req, what, host);
    sh_http_watch_client(req, on_gone, NULL, o);
    id_make(req, id);
    sh_cluster_link_ask(api->cluster, id, what, host, on_answer, o);
}

static bool refused(sh_http_request *req, const sh_api_error *error, bool fine)
{
    if (!fine) sh_api_reply_error(req, error);
    return !fine;
}

typedef struct {
    const char *host;
    bool drain;
} change_request;

enum { HOST_MAX = 255 };

static const sh_field host_rows[] = {
    {.name = "host",
     .type = SH_FIELD_STRING,
     .required = true,
     .max = HOST_MAX,
     .meaning = "The host, as `shoal hosts add` takes it: what `ssh` connects to.",
     .offset = offsetof(change_request, host)},
};
const sh_field_table sh_cluster_host_fields = {host_rows, SH_COUNT_OF(host_rows), NULL};

static const sh_field drain_rows[] = {
    {.name = "drain",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Refuse new requests to the model, or take them again.",
     .offset = offsetof(change_request, drain)},
};
const sh_field_table sh_cluster_drain_fields = {drain_rows, SH_COUNT_OF(drain_rows), NULL};

/* Reads a body that may be missing; strings of *out live as long as *json. */
static bool body_read(sh_api *api, sh_http_request *req, const sh_field_table *fields,
                      change_request *out, cJSON **json, sh_api_error *error)
{
    size_t values = 0;
    sh_str body = sh_http_body(req);
    if (!sh_api_parse(api, body.len == 0 ? SH_STR("{}") : body, json, &values, error)) return false;
    bool fine = sh_fields_read(fields, *json, out, error);
    sh_api_parsed_free(api, NULL, values);
    return fine;
}

void sh_handle_restart(sh_http_request *req, void *arg)
{
    sh_api_error error;
    if (refused(req, &error, sh_api_may_change(req, &error))) return;
    order_send(arg, req, "restart", NULL);
}

void sh_handle_host_add(sh_http_request *req, void *arg)
{
    change_request change = {0};
    cJSON *json = NULL;
    sh_api_error error;
    bool fine = sh_api_may_change(req, &error) &&
                body_read(arg, req, &sh_cluster_host_fields, &change, &json, &error);
    if (!refused(req, &error, fine)) order_send(arg, req, "add", change.host);
    cJSON_Delete(json);
}

void sh_handle_host_remove(sh_http_request *req, void *arg)
{
    sh_api_error error;
    sh_str host = sh_http_param(req);
    bool may = sh_api_may_change(req, &error);
    if (may && host.len > HOST_MAX)
        may = sh_api_fail(&error, 400, "invalid_value", "host", "a host has at most %d bytes",
                          HOST_MAX);
    if (refused(req, &error, may)) return;
    order_send(arg, req, "remove", host.ptr);
}

/* ---- drain ---- */

bool sh_api_takes_jobs(const sh_api *api, sh_api_error *error)
{
    if (!api->draining) return true;
    sh_api_fail(
        error, 503, "draining", NULL,
        "the server is being drained: it finishes running answers and takes no new requests");
    error->retry_after_s = 10;
    return false;
}

void sh_handle_drain(sh_http_request *req, void *arg)
{
    sh_api *api = arg;
    change_request change = {0};
    cJSON *json = NULL;
    sh_api_error error;
    bool fine = sh_api_may_change(req, &error) &&
                body_read(api, req, &sh_cluster_drain_fields, &change, &json, &error);
    cJSON_Delete(json);
    if (refused(req, &error, fine)) return;
    api->draining = change.drain;
    change_log(req, change.drain ? "drain" : "take requests again", NULL);
    state_reply(api, req, 200);
}
