/* The API process: one event loop that owns the HTTP server, the connection to the engine and all
 * jobs, one worker thread for long texts and one for grammars.
 *
 * It starts without an engine and keeps serving when the engine is lost: requests to the model then
 * get 503, while status pages and the dashboard go on and say why. The model's text side
 * (tokenizer, template) is loaded each time an engine connects, since it may be another model. Jobs
 * hold a reference to the model they started with.
 *
 * Nothing in the loop may block for long: a stall is a pause in every stream. So bodies above
 * SH_API_INLINE_BYTES go to the worker; the only wait is a short one for an engine that has just
 * accepted the connection (engine_conn.c). */
#include "api/api.h"

#include "api/api_internal.h"
#include "api/localai.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "http/http_client.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    HISTORY = 10000,
    TICK_MS = 5000,
    QUIET_MS = 10000, /* without output, until a stream is kept alive */
    SNAPSHOT_MS = 1000,
    ACCEPT_MS = 2000,         /* at most, from the start to the first accepted connection */
    STREAM_BYTES = 256 << 10, /* unsent bytes from which on a stream is not written to */
    DRAIN_CHECK_MS = 50,
    GRPC_CALLS = 128,      /* open on one connection */
    GRPC_ALL_CALLS = 2048, /* on all */
    BODY_VALUES = 1 << 21, /* JSON values in one body */
    ALL_VALUES = 1 << 22,  /* in all bodies that are parsed at the same time */
    FREE_VALUES = 1 << 12, /* smaller bodies do not count, so that large ones cannot block them */
};

static const sh_response_limits RESPONSES = {
    .count = 1000, .bytes = 32 << 20, .bytes_max = 256 << 20};

/* In a store of their own: chats that nobody asked to keep must not displace stored responses. */
static const sh_response_limits CONVERSATIONS = {
    .count = 1000, .bytes = 16 << 20, .bytes_max = 64 << 20};

const sh_endpoint *sh_api_endpoint_of(const sh_http_request *req)
{
    const sh_endpoint *endpoint = sh_http_route_of(req)->data;
    bool other = endpoint->header != NULL && sh_http_header_of(req, endpoint->header).len > 0;
    return other ? endpoint->with_header : endpoint;
}

const sh_dialect *sh_api_dialect_of(const sh_http_request *req)
{
    return sh_endpoint_dialect(sh_api_endpoint_of(req));
}

static void reply_json(sh_http_request *req, const sh_dialect *dialect, int status,
                       const sh_buf *json)
{
    if (dialect->headers != NULL) dialect->headers(req);
    sh_http_reply(req, status, "application/json", sh_buf_str(json));
}

static void reply_error(sh_http_request *req, const sh_dialect *dialect, const sh_api_error *error)
{
    sh_buf json = {0};
    if (error->retry_after_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof(seconds), "%d", error->retry_after_s);
        sh_http_add_header(req, "Retry-After", seconds);
    }
    dialect->error(error, &json);
    reply_json(req, dialect, dialect->error_status(error), &json);
    sh_buf_reset(&json);
}

void sh_api_reply_json(sh_http_request *req, int status, const sh_buf *json)
{
    reply_json(req, sh_api_dialect_of(req), status, json);
}

void sh_api_reply_error(sh_http_request *req, const sh_api_error *error)
{
    reply_error(req, sh_api_dialect_of(req), error);
}

/* X-Accel-Buffering keeps nginx from buffering the stream. */
void sh_api_stream_start(sh_http_request *req, const char *content_type)
{
    const sh_dialect *dialect = sh_api_dialect_of(req);
    sh_http_add_header(req, "Cache-Control", "no-cache");
    sh_http_add_header(req, "X-Accel-Buffering", "no");
    if (dialect->headers != NULL) dialect->headers(req);
    sh_http_stream_start(req, 200, content_type);
}

/* Bytes alone are not a sufficient limit: a parsed value takes some 80 bytes of memory, but only
 * two bytes in a body that consists of zeros and commas. */
static bool values_take(sh_api *api, sh_str body, size_t *values, sh_api_error *error)
{
    size_t count = sh_json_value_count(body);
    *values = 0;
    if (count > BODY_VALUES)
        return sh_api_fail(error, 400, "too_many_values", NULL,
                           "the body has %zu JSON values; %d are allowed", count, BODY_VALUES);
    if (count <= FREE_VALUES) return true;
    *values = count;
    if (atomic_fetch_add(&api->json_values, count) + count <= ALL_VALUES) return true;
    sh_api_fail(error, 503, "overloaded", NULL,
                "the requests being read have too many JSON values; try again later");
    error->retry_after_s = 1;
    return false;
}

void sh_api_parsed_free(sh_api *api, cJSON *json, size_t values)
{
    cJSON_Delete(json);
    atomic_fetch_sub(&api->json_values, values);
}

bool sh_api_parse(sh_api *api, sh_str body, cJSON **out, size_t *values, sh_api_error *error)
{
    cJSON *json = NULL;
    sh_err err;
    if (!values_take(api, body, values, error)) return false;
    sh_status status = sh_json_parse(body, "the body", &json, &err);
    if (status == SH_OK) status = sh_json_refuse_nul(body, "the body", &err);
    if (status == SH_OK) status = sh_json_refuse_duplicates(json, "the body", &err);
    if (status == SH_OK) {
        *out = json;
        return true;
    }
    cJSON_Delete(json);
    return sh_api_fail(error, 400, "invalid_json", NULL, "%s", err.text);
}

bool sh_api_parse_as(sh_api *api, const sh_job_format *format, sh_str body, cJSON **out,
                     size_t *values, sh_api_error *error)
{
    bool own = format != NULL && format->parse != NULL;
    return own ? format->parse(body, out, error) : sh_api_parse(api, body, out, values, error);
}

void sh_api_refuse_waiting(sh_api_error *error)
{
    sh_api_fail(error, 429, "queue_full", NULL, "too many long requests are waiting to be read");
    error->retry_after_s = 1;
}

bool sh_api_ready(const sh_api *api, sh_api_error *err)
{
    if (!sh_models_several(api)) return sh_model_ready(sh_models_main(api), err);
    return sh_models_listed(api) ||
           sh_api_fail(err, 503, "engine_unavailable", NULL, "the models have not been listed yet");
}

bool sh_api_lacks_model(sh_http_request *req, const sh_api *api)
{
    sh_api_error error;
    const sh_api_model *main = sh_models_main(api);
    if (sh_models_several(api) ? sh_models_listed(api) : main->served != NULL) return false;
    sh_api_ready(api, &error);
    sh_api_reply_error(req, &error);
    return true;
}

void sh_api_reply_model(sh_http_request *req, const sh_api *api, sh_model_writer *write)
{
    sh_api_error error;
    if (sh_api_lacks_model(req, api)) return;
    const sh_api_model *m = sh_models_find(api, sh_http_param(req).ptr, &error);
    if (m == NULL) {
        sh_api_reply_error(req, &error);
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    write(m, &w);
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

/* Requests that the HTTP server refuses by itself get an error like any other. Many have no route:
 * the path is unknown, or has not even arrived. */
static void on_refused(void *arg, sh_http_request *req, int status, const char *message)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {{401, "invalid_api_key"},    {403, "forbidden"},         {404, "not_found"},
                 {405, "method_not_allowed"}, {408, "request_timeout"},   {413, "body_too_large"},
                 {415, "encoding_not_known"}, {431, "headers_too_large"}, {501, "method_not_known"},
                 {503, "overloaded"}};
    const sh_api *api = arg;
    const sh_http_route *route = sh_http_route_of(req);
    const sh_dialect *dialect = route != NULL
                                    ? sh_api_dialect_of(req)
                                    : sh_endpoints_dialect(api->endpoints, sh_http_path(req));
    sh_api_error error;
    const char *code = "bad_request";
    for (size_t i = 0; i < SH_COUNT_OF(codes); i++)
        if (codes[i].status == status) code = codes[i].code;
    if (status == 501 && sh_http_method_of(req) != SH_HTTP_OTHER) code = "encoding_not_known";
    sh_api_fail(&error, status, code, NULL, "%s", message);
    reply_error(req, dialect, &error);
}

/* One line of JSON per request; it has no headers and no text of prompts or answers. */
static void access_write(FILE *log, const sh_http_record *record)
{
    sh_buf line = {0};
    sh_json_writer w = sh_json_writer_on(&line);
    sh_write_begin(&w, NULL, '{');
    sh_write_fixed(&w, "time", (double)sh_clock_unix_us() * 1e-6, 3);
    sh_write_text(&w, "id", record->id);
    sh_write_str(&w, "peer", record->peer);
    sh_write_str(&w, "method", record->method);
    sh_write_str(&w, "path", record->path);
    sh_write_int(&w, "status", record->status);
    sh_write_int(&w, "bytes_in", (int64_t)record->bytes_in);
    sh_write_int(&w, "bytes_out", (int64_t)record->bytes_out);
    sh_write_fixed(&w, "seconds", record->seconds, 6);
    sh_write_end(&w, '}');
    fprintf(log, "%s\n", line.ptr);
    sh_buf_reset(&line);
}

/* Called for every request that has ended. Requests that the server refused by itself, before a
 * handler saw them, are counted here; the others are counted by their job. */
static void on_done(void *arg, const sh_http_record *record)
{
    sh_api *api = arg;
    const char *method = record->route == NULL ? "other"
                                               : sh_http_method_name(record->route->method);
    const sh_endpoint *endpoint = record->route == NULL ? NULL : record->route->data;
    sh_metrics_http(api->metrics, method, record->route == NULL ? "none" : record->route->path,
                    record->status, record->seconds);
    if (record->refused && endpoint != NULL && endpoint->handle == sh_handle_generate) {
        sh_history_count_refused(api->history, record->status);
        sh_metrics_count_refused(api->metrics);
    }
    if (api->access_log != NULL) access_write(api->access_log, record);
}

static sh_served_model_opts served_opts(const sh_api_opts *opts)
{
    return (sh_served_model_opts){.name = opts->model_name,
                                  .reasoning_parser = opts->reasoning_parser,
                                  .tool_parser = opts->tool_parser};
}

/* Loads the model's text side once at startup, only to report its errors now instead of after the
 * engine has loaded the weights. A folder without any model is left to the ranks to report. */
static sh_status model_check(const sh_api_opts *opts, sh_err *err)
{
    if (opts->model_dir == NULL) return SH_OK;
    char *config = sh_path_join(opts->model_dir, "config.json");
    bool there = sh_file_exists(config);
    free(config);
    if (!there) return SH_OK;
    sh_engine_info info = {.model_dir = opts->model_dir};
    sh_served_model_opts served = served_opts(opts);
    sh_served_model *trial = NULL;
    sh_status status = sh_served_model_open(&info, &served, &trial, err);
    if (status == SH_OK) sh_served_model_close(trial);
    return status;
}

static void on_accept_due(void *arg)
{
    const sh_api *api = arg;
    if (api->server != NULL) sh_http_server_accept(api->server, true);
}

void sh_api_accept(sh_api *api)
{
    on_accept_due(api);
}

void sh_api_serving(sh_api *api)
{
    if (api->grpc == NULL && api->opts->serving != NULL) api->opts->serving(api->opts->arg);
}

/* Opens a log, or reopens it after rotation; the old file is closed only when the new one is open.
 */
static sh_status log_open(const char *path, FILE **out, sh_err *err)
{
    if (path == NULL || path[0] == '\0') return SH_OK;
    int fd = strcmp(path, "-") == 0 ? -1 : sh_file_open_log(path);
    FILE *file = strcmp(path, "-") == 0 ? stderr : fd < 0 ? NULL : fdopen(fd, "a");
    if (file == NULL) return sh_err_sys(err, "%s", path);
    setvbuf(file, NULL, _IOLBF, 0);
    if (*out != NULL && *out != stderr) fclose(*out);
    *out = file;
    return SH_OK;
}

static void log_close(FILE *file)
{
    if (file != NULL && file != stderr) fclose(file);
}

static sh_status keys_load(const sh_api_opts *opts, sh_http_keys **out, sh_err *err)
{
    sh_http_keys *keys = sh_http_keys_create();
    sh_status status = SH_OK;
    if (opts->api_keys != NULL) status = sh_http_keys_add_text(keys, opts->api_keys, err);
    if (status == SH_OK && opts->api_key_file != NULL)
        status = sh_http_keys_add_file(keys, opts->api_key_file, err);
    if (status == SH_OK && opts->grpc_token != NULL)
        status = sh_http_keys_add_key(keys, sh_str_of(opts->grpc_token), &(sh_http_key_info){0},
                                      err);
    if (status != SH_OK) {
        sh_http_keys_free(keys);
        return status;
    }
    *out = keys;
    return SH_OK;
}

/* SIGHUP: reloads certificate and keys and reopens the logs. What fails to load stays as it was. */
static void on_reload(void *arg)
{
    sh_api *api = arg;
    sh_err err;
    sh_http_keys *keys = NULL;
    if (api->tls != NULL && sh_http_tls_reload(api->tls, &err) != SH_OK)
        SH_LOGE("api: keeping the old certificate: %s", err.text);
    if (keys_load(api->opts, &keys, &err) != SH_OK) {
        SH_LOGE("api: keeping the old API keys: %s", err.text);
    } else {
        if (api->server != NULL) sh_http_server_set_keys(api->server, keys);
        if (api->grpc != NULL) sh_grpc_server_set_keys(api->grpc, keys);
        sh_http_keys_free(api->keys);
        api->keys = keys;
    }
    if (log_open(api->opts->access_log, &api->access_log, &err) != SH_OK ||
        log_open(api->opts->request_log, &api->request_log, &err) != SH_OK)
        SH_LOGE("api: %s", err.text);
    SH_LOGI("api: reload finished");
}

static void on_job_tick(void *arg)
{
    sh_api *api = arg;
    sh_jobs_keep_alive(api, QUIET_MS);
    sh_trigger_start(api->job_tick, TICK_MS);
}

static void on_snapshot_tick(void *arg)
{
    sh_api *api = arg;
    sh_models_sample(api);
    sh_cluster_link_tick(api->cluster);
    sh_subscribers_push(api);
    sh_models_expire(api);
    sh_trigger_start(api->snapshot_tick, SNAPSHOT_MS);
}

static int connections_open(const sh_api *api)
{
    return api->server != NULL ? sh_http_server_connections(api->server)
                               : sh_grpc_server_connections(api->grpc);
}

/* Lets running answers finish; no others are begun. */
static void server_drain(const sh_api *api)
{
    if (api->server != NULL) sh_http_server_drain(api->server);
    if (api->grpc != NULL) sh_grpc_server_drain(api->grpc);
}

/* Polls until nothing is running or the grace period is over. */
static void on_drain_check(void *arg)
{
    sh_api *api = arg;
    bool late = sh_deadline_passed(api->stop_deadline);
    bool idle = api->job_count == 0 && connections_open(api) == 0;
    if (idle || late)
        sh_loop_stop(api->loop);
    else
        sh_trigger_start(api->drain_check, DRAIN_CHECK_MS);
}

/* The first signal lets running answers finish, the second stops at once. */
static void on_stop(void *arg)
{
    sh_api *api = arg;
    if (api->stopping && api->stop_deadline != SH_DEADLINE_NEVER) {
        sh_loop_stop(api->loop);
        return;
    }
    api->stopping = true;
    api->stop_deadline = sh_deadline_in_ms((int64_t)(api->opts->grace_s * 1000));
    SH_LOGI("api: shutting down, %d requests active", api->job_count);
    sh_subscribers_end(api);
    sh_models_stop(api);
    server_drain(api);
    if (api->server != NULL) sh_http_server_refuse(api->server);
    on_drain_check(api);
}

/* SIGUSR2: another process has taken over the listening sockets. This one ends when the answers
 * that it has begun are complete, however long that takes and whatever becomes of the engine. */
static void on_renew(void *arg)
{
    sh_api *api = arg;
    bool lent = api->opts->listen_fds != NULL || api->opts->grpc_fds != NULL;
    if (api->stopping || !lent) return;
    api->stopping = true;
    api->stop_deadline = SH_DEADLINE_NEVER;
    SH_LOGI("api: a new process takes over, %d requests active here", api->job_count);
    /* Before the streams end: a page that asks for a new one must not do so over this connection.
     */
    server_drain(api);
    sh_subscribers_end(api);
    if (api->localai != NULL) sh_localai_model_leave(api->localai);
    sh_cluster_link_leave(api->cluster);
    on_drain_check(api);
}

static sh_http_route *routes_make(const sh_endpoint_table *table)
{
    sh_http_route *routes = sh_alloc_array(table->count, sizeof(*routes));
    for (size_t i = 0; i < table->count; i++) {
        const sh_endpoint *endpoint = &table->rows[i];
        routes[i] = (sh_http_route){.method = endpoint->method,
                                    .path = endpoint->path,
                                    .open = endpoint->open,
                                    .handle = endpoint->header != NULL ? sh_handle_by_header
                                                                       : endpoint->handle,
                                    .data = endpoint};
    }
    return routes;
}

/* Whether the Host header is checked, against DNS rebinding. On loopback every other name is
 * suspicious: it comes from a web page that made the browser connect here. A server that others can
 * reach does not know its own names unless --allowed-hosts gives them. */
static bool host_checked(const sh_api_opts *opts)
{
    if (opts->cors != NULL && strcmp(opts->cors, "*") == 0) return false;
    return opts->allowed_hosts != NULL ? strcmp(opts->allowed_hosts, "*") != 0
                                       : sh_http_is_loopback(opts->host);
}

static sh_status grpc_open(sh_api *api, sh_err *err)
{
    const sh_api_opts *opts = api->opts;
    sh_grpc_server_opts server = {
        .inherited = opts->grpc_fds,
        .connections_max = (int)opts->connections_max,
        .calls_max = GRPC_CALLS,
        .all_calls_max = GRPC_ALL_CALLS,
        .header_bytes_max = (size_t)opts->header_bytes_max,
        .bodies_bytes_max = (size_t)opts->bodies_bytes_max,
        .stream_bytes_max = STREAM_BYTES,
        .idle_ms = (int64_t)(opts->idle_s * 1000),
        .receive_ms = (int64_t)(opts->receive_s * 1000),
        .send_ms = (int64_t)(opts->send_s * 1000),
        .keys = api->keys,
        .routes = api->routes,
        .route_count = api->endpoints->count,
        .arg = api,
        .done = on_done,
    };
    return sh_grpc_server_open(api->loop, &server, &api->grpc, err);
}

static sh_status server_open(sh_api *api, sh_err *err)
{
    const sh_api_opts *opts = api->opts;
    if (opts->grpc_fds != NULL) return grpc_open(api, err);
    sh_http_server_opts server = {
        .host = opts->host,
        .port = opts->port,
        .inherited = opts->listen_fds,
        .connections_max = (int)opts->connections_max,
        .peer_connections_max = (int)opts->peer_connections_max,
        .header_bytes_max = (size_t)opts->header_bytes_max,
        .body_bytes_max = (size_t)opts->body_bytes_max,
        .bodies_bytes_max = (size_t)opts->bodies_bytes_max,
        .stream_bytes_max = STREAM_BYTES,
        .idle_ms = (int64_t)(opts->idle_s * 1000),
        .receive_ms = (int64_t)(opts->receive_s * 1000),
        .send_ms = (int64_t)(opts->send_s * 1000),
        .cors = opts->cors,
        .check_host = host_checked(opts),
        .allowed_hosts = opts->allowed_hosts,
        .keys = api->keys,
        .tls = api->tls,
        .routes = api->routes,
        .route_count = api->endpoints->count,
        .arg = api,
        .refused = on_refused,
        .done = on_done,
    };
    return sh_http_server_open(api->loop, &server, &api->server, err);
}

/* Everything that can be wrong with the settings is found here, before the server listens. */
static sh_status files_open(sh_api *api, sh_err *err)
{
    const sh_api_opts *opts = api->opts;
    sh_job_spec spec = {0}; /* only to check the stop strings early */
    sh_api_error error;
    bool stops = sh_job_spec_read_stops(&spec, opts->defaults.stops, "--stop", &error);
    sh_job_spec_reset(&spec);
    if (!stops) return sh_err_set(err, SH_ERR_INPUT, "%s", error.message);
    if ((opts->tls_cert == NULL) != (opts->tls_key == NULL))
        return sh_err_set(err, SH_ERR_INPUT, "--tls-cert and --tls-key go together");
    sh_output_dialect dialect = {0}; /* only to check the parser names early */
    sh_status named = sh_output_dialect_choose(&dialect, opts->reasoning_parser, opts->tool_parser,
                                               err);
    if (named != SH_OK) return named;
    sh_status status = log_open(opts->access_log, &api->access_log, err);
    if (status == SH_OK) status = log_open(opts->request_log, &api->request_log, err);
    if (status == SH_OK) status = keys_load(opts, &api->keys, err);
    if (status == SH_OK && opts->tls_cert != NULL)
        status = sh_http_tls_open(opts->tls_cert, opts->tls_key, &api->tls, err);
    return status;
}

static sh_status api_open(sh_api *api, sh_api_opts *opts, sh_err *err)
{
    static const struct {
        int number;
        sh_trigger_fn fn;
    } signals[] = {{SIGINT, on_stop}, {SIGTERM, on_stop}, {SIGHUP, on_reload}, {SIGUSR2, on_renew}};

    api->start_ns = sh_clock_ns();
    api->responses = sh_response_store_create(RESPONSES);
    api->conversations = sh_response_store_create(CONVERSATIONS);
    api->history = sh_history_create(HISTORY);
    api->metrics = sh_metrics_create();
    api->quotas = sh_quotas_create();
    api->routes = routes_make(api->endpoints);
    if (api->opts->grpc_fds == NULL) sh_openapi_write(api->endpoints, &api->openapi);
    api->request_timeout_s = api->opts->timeout_s;
    sh_status status = files_open(api, err);
    if (status == SH_OK) status = sh_loop_create(&api->loop, err);
    if (status == SH_OK) status = sh_text_worker_start(api->loop, &api->worker, err);
    if (status == SH_OK) status = sh_text_worker_start(api->loop, &api->form_worker, err);
    if (status == SH_OK) status = server_open(api, err);
    if (status == SH_OK) status = sh_models_open(api, err);
    if (status != SH_OK) return status;
    api->cluster = sh_cluster_link_create(api->loop, api->opts->control_fd);
    if (api->opts->store_fd > 0)
        api->store = sh_store_service_create(api->loop, api->opts->store_fd);
    if (opts->grpc_fds != NULL) api->localai = sh_localai_model_create(api, opts, opts->model_fd);
    api->job_tick = sh_trigger_timer(api->loop, on_job_tick, api);
    api->accept_due = sh_trigger_timer(api->loop, on_accept_due, api);
    api->snapshot_tick = sh_trigger_timer(api->loop, on_snapshot_tick, api);
    api->drain_check = sh_trigger_timer(api->loop, on_drain_check, api);
    api->fresh_limit = sh_trigger_timer(api->loop, sh_api_fresh, api);
    /* Connecting to an engine takes a moment. Without this, a process that takes over from another
     * would refuse requests meanwhile. */
    if (api->opts->listen_fds != NULL) {
        sh_http_server_accept(api->server, false);
        sh_trigger_start(api->accept_due, ACCEPT_MS);
    }
    on_job_tick(api);
    on_snapshot_tick(api);
    for (size_t i = 0; i < SH_COUNT_OF(signals); i++)
        api->signals[i] = sh_trigger_signal(api->loop, signals[i].number, signals[i].fn, api);
    return SH_OK;
}

/* The order matters: the server first, so that no request comes in; then the workers, whose jobs
 * end on the loop; then the jobs, which use the connection to the engine. */
static void api_close(sh_api *api)
{
    sh_http_server_close(api->server);
    sh_grpc_server_close(api->grpc);
    sh_text_worker_stop(api->worker);
    sh_text_worker_stop(api->form_worker);
    sh_jobs_end(api);
    sh_models_close(api);
    sh_store_service_free(api->store);
    sh_cluster_link_free(api->cluster);
    sh_localai_model_free(api->localai);
    sh_trigger_free(api->job_tick);
    sh_trigger_free(api->accept_due);
    sh_trigger_free(api->snapshot_tick);
    sh_trigger_free(api->drain_check);
    sh_trigger_free(api->fresh_limit);
    for (size_t i = 0; i < SH_COUNT_OF(api->signals); i++) sh_trigger_free(api->signals[i]);
    sh_loop_free(api->loop);
    sh_http_tls_close(api->tls);
    sh_http_keys_free(api->keys);
    sh_response_store_free(api->responses);
    sh_response_store_free(api->conversations);
    sh_history_free(api->history);
    sh_metrics_free(api->metrics);
    sh_quotas_free(api->quotas);
    sh_buf_reset(&api->openapi);
    log_close(api->access_log);
    log_close(api->request_log);
    free(api->routes);
}

sh_status sh_api_run(const sh_api_opts *opts, sh_err *err)
{
    bool grpc = opts->grpc_fds != NULL;
    return sh_api_run_endpoints(opts, grpc ? &sh_localai_endpoints : &sh_endpoints, err);
}

static void listening_log(const sh_api *api)
{
    const sh_api_opts *opts = api->opts;
    bool grpc = api->grpc != NULL;
    int port = grpc ? sh_grpc_server_port(api->grpc) : sh_http_server_port(api->server);
    char *url = sh_http_url(api->tls != NULL, opts->host, port, "");
    SH_LOGI("%s: listening on %s", grpc ? "localai" : "api", grpc ? strstr(url, "//") + 2 : url);
    free(url);
    if (sh_http_is_loopback(opts->host) || sh_http_keys_count(api->keys) > 0) return;
    SH_LOGW("api: anyone who can reach %s can use this server: set %s", opts->host,
            grpc ? "LOCALAI_GRPC_AUTH_TOKEN, here and for LocalAI" : "--api-key or --api-key-file");
}

sh_status sh_api_run_endpoints(const sh_api_opts *opts, const sh_endpoint_table *endpoints,
                               sh_err *err)
{
    sh_api_opts own = *opts; /* its defaults for requests may change */
    sh_api api = {.opts = &own, .endpoints = endpoints};
    sh_status status = model_check(opts, err);
    if (status == SH_OK) status = api_open(&api, &own, err);
    if (status == SH_OK) {
        listening_log(&api);
        /* A backend serves as soon as LocalAI can call LoadModel. */
        if (api.grpc != NULL && own.serving != NULL) own.serving(own.arg);
        sh_loop_run(api.loop);
    }
    api_close(&api);
    return status;
}
