/* The status endpoints: health, model, queue, memory, history, snapshots and their stream.
 *
 * Figures come from three places: the API's own history, the system, and the engine's latest stats,
 * which are passed on as they are (`stats_text`, `ranks_text`) or picked from the parsed copy. All
 * but /model/info must work without an engine: its numbers are then 0 or null, not an error, since
 * these pages are what people look at when something is broken.
 *
 * Some members exist under several names (model, model_id, id), for clients of other servers.
 * Without an API key, /health and its subpaths reveal nothing but the state. */
#include "api/api_internal.h"
#include "api/process_usage.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/version.h"
#include "http/sse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT_DEFAULT = 50, RECENT_MAX = 10000 };
static const double GIB = 1024.0 * 1024 * 1024, MEMORY_SAFE = 0.8;

static void reply(sh_http_request *req, int status, sh_buf *json)
{
    sh_api_reply_json(req, status, json);
    sh_buf_reset(json);
}

static double uptime_s(const sh_api *api)
{
    return (double)(sh_clock_ns() - api->start_ns) * 1e-9;
}

/* Of all models together. */
static int running_count(const sh_api *api)
{
    int count = 0;
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m))
        count += sh_model_running(m);
    return count;
}

static sh_replay_stats replay_sum(const sh_api *api)
{
    sh_replay_stats sum = {0};
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m)) {
        sh_replay_stats one = sh_model_replay_stats(m);
        sum.held += one.held;
        sum.replays += one.replays;
        sum.given_up += one.given_up;
    }
    return sum;
}

static void ranks_write(const sh_api_model *m, sh_json_writer *w)
{
    sh_str ranks = sh_buf_str(&m->ranks_text);
    sh_write_raw(w, "ranks", ranks.len == 0 ? SH_STR("[]") : ranks);
}

static void kv_write(const sh_api_model *m, sh_json_writer *w)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(m->stats, "kv"));
    sh_write_raw(w, "kv", sh_str_of(text == NULL ? "{}" : text));
    cJSON_free(text);
}

/* How evenly the ranks are loaded, as the engine reports it; null while that is not known. */
static void imbalance_write(const sh_api_model *m, sh_json_writer *w)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->stats, "imbalance");
    char *text = item == NULL ? NULL : cJSON_PrintUnformatted(item);
    sh_write_raw(w, "imbalance", sh_str_of(text == NULL ? "null" : text));
    cJSON_free(text);
}

static void memory_members(double total, double unused, sh_json_writer *w)
{
    sh_write_num(w, "active_gb", (total - unused) / GIB);
    sh_write_num(w, "limit_gb", total / GIB);
    sh_write_num(w, "headroom_gb", unused / GIB);
    sh_write_num(w, "pressure_pct", total > 0 ? 100 * (total - unused) / total : 0);
}

/* Memory of the API's host. */
static void memory_write(const char *key, sh_json_writer *w)
{
    sh_process_usage host = sh_process_usage_read();
    sh_write_begin(w, key, '{');
    memory_members((double)host.memory_bytes, (double)host.memory_free_bytes, w);
    sh_write_num(w, "api_resident_gb", (double)host.resident_bytes / GIB);
    sh_write_end(w, '}');
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static void host_write(const cJSON *rank, sh_json_writer *w)
{
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(rank, "memory");
    double total = number_of(memory, "total"), used = total - number_of(memory, "available");
    sh_write_num(w, "cpu_temp_c", number_of(rank, "temperature_c"));
    sh_write_num(w, "sys_power_w", number_of(rank, "power_w"));
    sh_write_num(w, "ram_used_gb", used / GIB);
    sh_write_num(w, "ram_total_gb", total / GIB);
    sh_write_num(w, "ram_pct", 100 * used / total);
}

/* The hosts of the ranks by name, each one once. */
static void hardware_write(const sh_api_model *m, sh_json_writer *w)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(m->stats, "ranks"), *rank;
    cJSON *seen = cJSON_CreateObject();
    sh_write_begin(w, "hardware", '{');
    cJSON_ArrayForEach(rank, ranks)
    {
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rank, "host"));
        if (host == NULL || cJSON_HasObjectItem(seen, host)) continue;
        cJSON_AddNullToObject(seen, host);
        sh_write_begin(w, host, '{');
        host_write(rank, w);
        sh_write_end(w, '}');
    }
    sh_write_end(w, '}');
    cJSON_Delete(seen);
}

static const cJSON *missing_of(const sh_api_model *m)
{
    return cJSON_GetObjectItemCaseSensitive(m->stats, "missing");
}

/* "starting" until the first engine has connected; after that, trouble is "engine_lost". */
static const char *state_name(const sh_api *api)
{
    sh_api_error ignored;
    const sh_api_model *m = sh_models_main(api);
    if (api->stopping) return "stopping";
    if (api->draining) return "draining";
    if (sh_api_ready(api, &ignored))
        return cJSON_GetArraySize(missing_of(m)) > 0 ? "degraded" : "healthy";
    return m->served == NULL ? "starting" : "engine_lost";
}

/* Memory of rank 0's host, from its last report: /health is polled often, and reading /proc is
 * slow. */
static void health_memory_write(const sh_api_model *m, sh_json_writer *w)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(m->stats, "ranks");
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(ranks, 0), "memory");
    double total = number_of(memory, "total"), unused = number_of(memory, "available");
    sh_write_begin(w, "memory", '{');
    memory_members(total, unused, w);
    sh_write_end(w, '}');
    sh_write_bool(w, "memory_safe", !(total - unused > MEMORY_SAFE * total));
}

/* Ranks come and go while a connection to the engine lasts, so the last stats say it best. */
static int64_t world_size(const sh_api_model *m)
{
    const sh_engine_info *info = sh_model_info(m);
    return (int64_t)sh_model_stat(m, "world_size", info == NULL ? 0 : info->world_size);
}

static void missing_write(const sh_api_model *m, sh_json_writer *w)
{
    char *text = cJSON_PrintUnformatted(missing_of(m));
    sh_write_bool(w, "degraded", cJSON_GetArraySize(missing_of(m)) > 0);
    sh_write_raw(w, "missing", sh_str_of(text == NULL ? "[]" : text));
    cJSON_free(text);
}

static void draft_model_write(const sh_api_model *m, sh_json_writer *w)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(m->stats, "draft_model"));
    sh_write_raw(w, "draft_model", sh_str_of(text == NULL ? "null" : text));
    cJSON_free(text);
}

static void health_write(const sh_api *api, sh_json_writer *w)
{
    sh_api_error error = {0};
    const sh_api_model *main = sh_models_main(api);
    bool ready = sh_api_ready(api, &error);
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "status", state_name(api));
    sh_write_text(w, "api", "ready");
    sh_write_bool(w, "ok", ready);
    sh_write_text(w, "detail", ready ? NULL : error.message);
    sh_write_text(w, "version", sh_version());
    sh_write_begin(w, "config", '{');
    sh_write_int(w, "port", sh_http_server_port(api->server));
    sh_write_bool(w, "cors_enabled", api->opts->cors != NULL && api->opts->cors[0] != '\0');
    sh_write_end(w, '}');
    sh_write_int(w, "world_size", world_size(main));
    missing_write(main, w);
    sh_write_int(w, "rank", 0);
    sh_write_text(w, "model", sh_model_name(main));
    sh_write_text(w, "model_type",
                  main->served == NULL ? NULL : sh_served_model_type(main->served));
    sh_write_bool(w, "model_loaded", ready);
    sh_write_int(w, "queue_max", (int64_t)sh_model_stat(main, "waiting_max", 0));
    sh_write_int(w, "queue_size", (int64_t)sh_model_stat(main, "waiting", 0));
    sh_write_int(w, "requests_total", sh_history_total(api->history));
    sh_write_int(w, "requests_running", running_count(api));
    sh_write_int(w, "requests_held", replay_sum(api).held);
    sh_write_num(w, "uptime_s", uptime_s(api));
    health_memory_write(main, w);
    draft_model_write(main, w);
    ranks_write(main, w);
    imbalance_write(main, w);
    sh_write_end(w, '}');
}

/* Hosts, processes and reasons are shown only to clients that may use the server. */
static void health_brief_write(const sh_api *api, sh_json_writer *w)
{
    sh_api_error ignored;
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "status", state_name(api));
    sh_write_bool(w, "ok", sh_api_ready(api, &ignored));
    sh_write_end(w, '}');
}

static void health_reply(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_api_error ignored;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    if (sh_http_is_trusted(req))
        health_write(api, &w);
    else
        health_brief_write(api, &w);
    reply(req, sh_api_ready(api, &ignored) ? 200 : 503, &json);
}

/* 503 when requests cannot be served, so that scripts and load balancers can wait for the server.
 * A client without a key cannot make the engine do work: it gets the latest known state, and the
 * engine reports a lost rank without being asked. */
void sh_handle_health(sh_http_request *req, void *arg)
{
    if (sh_http_is_trusted(req))
        sh_api_when_fresh(arg, req, health_reply);
    else
        health_reply(req, arg);
}

void sh_handle_live(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_http_reply(req, 200, "application/json", SH_STR("{\"status\":\"alive\"}"));
}

void sh_handle_ready(sh_http_request *req, void *arg)
{
    sh_api_error error;
    if (sh_api_takes_jobs(arg, &error) && sh_api_ready(arg, &error))
        sh_http_reply(req, 200, "application/json", SH_STR("{\"status\":\"ready\"}"));
    else {
        if (!sh_http_is_trusted(req))
            snprintf(error.message, sizeof(error.message), "the model is not available");
        sh_api_reply_error(req, &error);
    }
}

/* A browser, which accepts HTML, is sent to the dashboard; programs get JSON. */
void sh_handle_root(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_str accept = sh_http_header_of(req, "accept");
    if (sh_str_find(accept, SH_STR("text/html"), 0) < accept.len) {
        sh_http_add_header(req, "Location", "/dashboard");
        sh_http_reply(req, 302, NULL, SH_STR(""));
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "name", "Shoal");
    sh_write_text(&w, "version", sh_version());
    sh_write_begin(&w, "endpoints", '{');
    sh_write_text(&w, "health", "/health");
    sh_write_text(&w, "model_info", "/model/info");
    sh_write_text(&w, "models", "/v1/models");
    sh_write_text(&w, "chat", "/v1/chat/completions");
    sh_write_text(&w, "completions", "/v1/completions");
    sh_write_text(&w, "responses", "/v1/responses");
    sh_write_text(&w, "messages", "/v1/messages");
    sh_write_text(&w, "ollama", "/api/chat");
    sh_write_text(&w, "metrics", "/metrics");
    sh_write_text(&w, "dashboard", "/dashboard");
    sh_write_text(&w, "docs", "/docs");
    sh_write_text(&w, "openapi", "/openapi.json");
    sh_write_end(&w, '}');
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

void sh_handle_version(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "version", sh_version());
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* For routers in front of several servers, which ask vLLM for it. */
void sh_handle_load(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "server_load", api->job_count);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* What a request gets that leaves its sampling open. */
static void defaults_write(const sh_api *api, const sh_served_model *served, sh_json_writer *w)
{
    if (served == NULL) {
        sh_write_null(w, "defaults"); /* the model's own count, too */
        return;
    }
    sh_api_sampling s = sh_api_sampling_of(api, served);
    sh_write_begin(w, "defaults", '{');
    sh_write_num(w, "temperature", s.temperature);
    sh_write_num(w, "top_p", s.top_p);
    sh_write_int(w, "top_k", s.top_k);
    sh_write_num(w, "min_p", s.min_p);
    sh_write_num(w, "repetition_penalty", s.repetition_penalty);
    if (s.seed < 0)
        sh_write_null(w, "seed");
    else
        sh_write_int(w, "seed", s.seed);
    int64_t answer = sh_api_max_tokens_of(api, served);
    sh_write_int(w, "max_tokens", answer == 0 ? sh_served_model_context(served) : answer);
    sh_write_end(w, '}');
}

static void served_members(const sh_api *api, const sh_served_model *served, sh_json_writer *w)
{
    sh_write_text(w, "model_type", sh_served_model_type(served));
    sh_write_begin(w, "tasks", '[');
    if (sh_served_model_writes(served)) sh_write_text(w, NULL, "generate");
    if (sh_served_model_vector_len(served) > 0)
        sh_write_text(w, NULL, sh_served_model_scores(served) ? "rerank" : "embed");
    sh_write_end(w, ']');
    sh_write_int(w, "embedding_dimensions",
                 sh_served_model_scores(served) ? 0 : sh_served_model_vector_len(served));
    sh_write_int(w, "max_context_length", sh_served_model_context(served));
    int64_t answer = sh_api_max_tokens_of(api, served);
    sh_write_int(w, "max_tokens", answer == 0 ? sh_served_model_context(served) : answer);
    const sh_model_text *text = sh_served_model_text(served);
    const sh_output_dialect *dialect = sh_model_text_dialect(text);
    sh_write_text(w, "tool_parser", sh_output_tools_name(dialect->tools));
    sh_write_text(w, "reasoning_parser", sh_output_reasoning_name(dialect->reasoning));
    sh_write_bool(w, "chat_template", sh_model_text_has_chat(text));
    defaults_write(api, served, w);
    sh_write_raw(w, "weights", sh_served_model_facts(served));
}

static void model_members(const sh_api *api, const sh_api_model *m, sh_json_writer *w)
{
    sh_api_error ignored;
    sh_write_text(w, "id", sh_model_name(m));
    sh_write_text(w, "model", sh_model_name(m));
    sh_write_text(w, "model_id", sh_model_name(m));
    sh_write_text(w, "model_dir", m->served == NULL ? m->dir : sh_served_model_dir(m->served));
    if (m->served != NULL) served_members(api, m->served, w);
    sh_write_bool(w, "loaded", sh_model_ready(m, &ignored));
    sh_write_text(w, "state", sh_model_state_name(m));
    sh_write_text(w, "error", m->state == SH_MODEL_FAILED ? m->why : NULL);
    sh_write_int(w, "num_devices", world_size(m));
    sh_write_text(w, "backend",
                  cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m->stats, "backend")));
}

void sh_handle_model_info(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    if (sh_api_lacks_model(req, api)) return;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    model_members(api, sh_models_main(api), &w);
    sh_write_begin(&w, "models", '[');
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m)) {
        sh_write_begin(&w, NULL, '{');
        model_members(api, m, &w);
        sh_write_end(&w, '}');
    }
    sh_write_end(&w, ']');
    memory_write("memory", &w);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* Long, and seldom asked for: so it is not in the info. */
void sh_handle_template(sh_http_request *req, void *arg)
{
    sh_str name = sh_http_query(req, "model");
    sh_api_error error;
    if (sh_api_lacks_model(req, arg)) return;
    const sh_api_model *m = sh_models_find(arg, name.len == 0 ? NULL : name.ptr, &error);
    bool fine = m != NULL && sh_model_is_allowed(m, sh_http_key_name(req), &error);
    if (fine && (m->served == NULL || !sh_model_text_has_chat(sh_served_model_text(m->served))))
        fine = sh_api_fail(&error, 404, "not_found", "model", "%s",
                           m->served == NULL ? "the model is not loaded"
                                             : "the model has no chat template");
    if (!fine) {
        sh_api_reply_error(req, &error);
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_str(&w, "template", sh_model_text_template(sh_served_model_text(m->served), false));
    sh_write_str(&w, "tools_template",
                 sh_model_text_template(sh_served_model_text(m->served), true));
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* What the dashboard and `shoal status` show of each model. */
static void models_write(const sh_api *api, sh_json_writer *w)
{
    sh_write_begin(w, "models", '[');
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m)) {
        sh_write_begin(w, NULL, '{');
        sh_write_text(w, "name", sh_model_name(m));
        sh_write_text(w, "state", sh_model_state_name(m));
        sh_write_text(w, "error", m->state == SH_MODEL_FAILED ? m->why : NULL);
        sh_write_bool(w, "pinned", m->pinned);
        sh_write_bool(w, "kept", m->pinned || m->keep_s < 0);
        sh_write_int(w, "memory", m->bytes);
        sh_write_int(w, "running", m->active);
        sh_write_num(w, "used_at", m->used_us == 0 ? NAN : (double)m->used_us * 1e-6);
        sh_timeline_write_now(m->timeline, "now", w);
        sh_write_end(w, '}');
    }
    sh_write_end(w, ']');
}

static void queue_reply(sh_http_request *req, void *arg)
{
    const sh_api_model *main = sh_models_main(arg);
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "size", (int64_t)sh_model_stat(main, "waiting", 0));
    sh_write_int(&w, "max", (int64_t)sh_model_stat(main, "waiting_max", 0));
    sh_write_int(&w, "running", (int64_t)sh_model_stat(main, "running", 0));
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

void sh_handle_queue(sh_http_request *req, void *arg)
{
    sh_api_when_fresh(arg, req, queue_reply);
}

static void memory_reply(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    const sh_api_model *main = sh_models_main(api);
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_bool(&w, "ok", true);
    memory_write("system", &w);
    sh_write_begin(&w, "limits", '{');
    sh_write_int(&w, "hard_max_tokens", api->opts->max_tokens_hard);
    sh_write_end(&w, '}');
    kv_write(main, &w);
    draft_model_write(main, &w);
    ranks_write(main, &w);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

void sh_handle_memory(sh_http_request *req, void *arg)
{
    sh_api_when_fresh(arg, req, memory_reply);
}

void sh_handle_recent(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    int64_t count = RECENT_DEFAULT;
    sh_str given = sh_http_query(req, "n");
    if (given.len > 0 && (!sh_str_to_int(given, &count) || count < 1 || count > RECENT_MAX)) {
        sh_api_error error;
        sh_api_fail(&error, 400, "invalid_value", "n", "'n' must be a whole number from 1 to %d",
                    RECENT_MAX);
        sh_api_reply_error(req, &error);
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_history_write_recent(api->history, (int)count, &w);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

void sh_handle_stats(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_history_write_stats(api->history, &w);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* What the engine has sent is input: only a list of objects is passed on. */
static void loading_write(const sh_api_model *m, sh_json_writer *w)
{
    cJSON *list = NULL;
    sh_err err;
    sh_str text = m->conn == NULL ? SH_STR("") : sh_engine_conn_loading(m->conn);
    bool fine = text.len > 0 && sh_json_parse(text, "engine", &list, &err) == SH_OK &&
                cJSON_IsArray(list);
    for (const cJSON *row = fine ? list->child : NULL; row != NULL; row = row->next)
        fine = fine && cJSON_IsObject(row);
    sh_write_raw(w, "loading", fine ? text : SH_STR("[]"));
    cJSON_Delete(list);
}

void sh_status_snapshot(sh_api *api, sh_buf *out)
{
    const sh_api_model *main = sh_models_main(api);
    sh_json_writer w = sh_json_writer_on(out);
    sh_api_error error = {0};
    bool ready = sh_api_ready(api, &error);
    sh_write_begin(&w, NULL, '{');
    sh_write_num(&w, "uptime_s", uptime_s(api));
    sh_write_fixed(&w, "time", (double)sh_clock_unix_us() * 1e-6, 3);
    sh_write_text(&w, "status", state_name(api));
    sh_write_text(&w, "detail", ready ? NULL : error.message);
    sh_write_text(&w, "model", sh_model_name(main));
    sh_history_write_snapshot(api->history, sh_clock_unix_us(), &w);
    sh_write_int(&w, "queue_size", (int64_t)sh_model_stat(main, "waiting", 0));
    sh_write_int(&w, "queue_max", (int64_t)sh_model_stat(main, "waiting_max", 0));
    sh_write_int(&w, "connections", sh_http_server_connections(api->server));
    sh_write_int(&w, "requests_running", running_count(api));
    sh_write_int(&w, "requests_held", replay_sum(api).held);
    sh_write_raw(&w, "change", sh_cluster_link_change(api->cluster));
    models_write(api, &w);
    sh_rank_watch_write(main->watch, "absent", &w);
    loading_write(main, &w);
    hardware_write(main, &w);
    memory_write("memory_monitor", &w);
    sh_str engine = sh_buf_str(&main->stats_text);
    sh_write_raw(&w, "engine", engine.len == 0 ? SH_STR("null") : engine);
    sh_write_end(&w, '}');
}

static void snapshot_reply(sh_http_request *req, void *arg)
{
    sh_buf json = {0};
    sh_status_snapshot(arg, &json);
    reply(req, 200, &json);
}

void sh_handle_snapshot(sh_http_request *req, void *arg)
{
    sh_api_when_fresh(arg, req, snapshot_reply);
}

/* Shows how many keys there are, never the keys. */
void sh_handle_settings(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    const sh_api_opts *o = api->opts;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "host", o->host);
    sh_write_int(&w, "port", sh_http_server_port(api->server));
    sh_write_bool(&w, "tls", o->tls_cert != NULL);
    sh_write_int(&w, "api_keys", (int64_t)sh_http_keys_count(api->keys));
    sh_write_text(&w, "cors", o->cors);
    sh_write_text(&w, "allowed_hosts", o->allowed_hosts);
    sh_write_text(&w, "access_log", o->access_log);
    sh_write_text(&w, "request_log", o->request_log);
    sh_write_bool(&w, "log_prompts", o->log_prompts);
    sh_write_int(&w, "max_tokens", o->max_tokens);
    sh_write_int(&w, "max_tokens_hard", o->max_tokens_hard);
    defaults_write(api, sh_models_main(api)->served, &w);
    sh_write_num(&w, "timeout_s",
                 sh_model_stat(sh_models_main(api), "request_timeout_s", NAN)); /* the engine's */
    sh_write_num(&w, "grace_s", o->grace_s);
    sh_write_int(&w, "connections_max", o->connections_max);
    sh_write_int(&w, "peer_connections_max", o->peer_connections_max);
    sh_write_int(&w, "header_bytes_max", o->header_bytes_max);
    sh_write_int(&w, "body_bytes_max", o->body_bytes_max);
    sh_write_int(&w, "bodies_bytes_max", o->bodies_bytes_max);
    sh_write_num(&w, "idle_s", o->idle_s);
    sh_write_num(&w, "receive_s", o->receive_s);
    sh_write_num(&w, "send_s", o->send_s);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

void sh_handle_metrics_history(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_api_error error;
    sh_str given = sh_http_query(req, "model");
    char *name = sh_str_dup(given);
    const sh_api_model *m = given.len == 0 ? sh_models_main(api)
                                           : sh_models_find(api, name, &error);
    free(name);
    if (m == NULL) {
        sh_api_reply_error(req, &error);
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "model", sh_model_name(m));
    sh_timeline_write(m->timeline, &w);
    sh_write_end(&w, '}');
    reply(req, 200, &json);
}

/* One open GET /metrics/stream. */
struct sh_subscriber {
    sh_api *api;
    sh_http_request *req;
    sh_subscriber *prev, *next;
};

static void subscriber_free(sh_subscriber *s)
{
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        s->api->subscribers = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
    free(s);
}

static void on_gone(void *arg)
{
    subscriber_free(arg);
}

/* The same event goes to all subscribers, so it is made once. */
static void snapshot_event(sh_api *api, sh_buf *out)
{
    sh_buf json = {0};
    sh_status_snapshot(api, &json);
    sh_sse_event(out, NULL, sh_buf_str(&json));
    sh_buf_reset(&json);
}

void sh_handle_stream(sh_http_request *req, void *arg)
{
    sh_api *api = arg;
    sh_buf first = {0};
    sh_api_stream_start(req, SH_SSE_TYPE);
    /* HEAD gets the headers only; as a subscriber it would stay open for nothing. A client that is
     * still connected to a process that ends has to ask the next one. */
    if (sh_http_method_of(req) == SH_HTTP_HEAD || api->stopping) {
        sh_http_stream_end(req);
        return;
    }
    sh_subscriber *s = sh_alloc(sizeof(*s));
    *s = (sh_subscriber){.api = api, .req = req, .next = api->subscribers};
    if (s->next != NULL) s->next->prev = s;
    api->subscribers = s;
    sh_http_watch_client(req, on_gone, NULL, s);
    snapshot_event(api, &first);
    sh_http_stream_write(req, sh_buf_str(&first));
    sh_buf_reset(&first);
}

/* A client that reads too slowly misses snapshots, and gets the newest one when it has caught up.
 */
void sh_subscribers_push(sh_api *api)
{
    sh_buf event = {0};
    if (api->subscribers == NULL) return;
    snapshot_event(api, &event);
    for (sh_subscriber *s = api->subscribers; s != NULL; s = s->next)
        if (!sh_http_stream_blocked(s->req)) sh_http_stream_write(s->req, sh_buf_str(&event));
    sh_buf_reset(&event);
}

void sh_subscribers_end(sh_api *api)
{
    while (api->subscribers != NULL) {
        sh_http_request *req = api->subscribers->req;
        subscriber_free(api->subscribers);
        sh_http_stream_end(req);
    }
}

/* Models that are not loaded have none. Owned by the caller. */
static sh_metrics_engine *engines_list(const sh_api *api, int *count)
{
    sh_metrics_engine *list = NULL;
    sh_api_error ignored;
    *count = 0;
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m)) {
        const char *name = sh_model_name(m);
        if (m->conn == NULL) continue;
        list = sh_realloc_array(list, (size_t)*count + 1, sizeof(*list));
        list[(*count)++] = (sh_metrics_engine){.model = name == NULL ? "" : name,
                                               .up = sh_model_ready(m, &ignored),
                                               .stats = m->stats};
    }
    return list;
}

static void metrics_reply(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_buf text = {0};
    int count;
    sh_metrics_engine *engines = engines_list(api, &count);
    sh_metrics_now now = {
        .connections = sh_http_server_connections(api->server),
        .running = running_count(api),
        .replay = replay_sum(api),
        .uptime_s = uptime_s(api),
        .engines = engines,
        .engine_count = count,
    };
    sh_metrics_write(api->metrics, &now, &text);
    sh_quotas_write(api->quotas, &text);
    sh_http_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", sh_buf_str(&text));
    sh_buf_reset(&text);
    free(engines);
}

void sh_handle_metrics(sh_http_request *req, void *arg)
{
    sh_api_when_fresh(arg, req, metrics_reply);
}
