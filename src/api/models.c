/* The keeper and this process agree on when a model is unused by one rule: after "draining" nothing
 * is sent to the engine any more, and "drained" follows when the last request has ended. Requests
 * that come in between wait, as if the model were not loaded. Both ends are settled from a timer
 * and never from inside a call: a request may end deep in a callback of the very connection that is
 * to be closed. */
#include "api/models.h"

#include "api/api_internal.h"
#include "api/localai.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 16384, NAMES_SHOWN = 5, SETTLE_MS = 10 };

struct sh_models {
    sh_api_model *first; /* sorted by name */
    sh_api_model blank;  /* what status pages show before there is any */
    char *standing;      /* the default; NULL: there is none */
    int fd;              /* the keeper's socket, or -1 */
    sh_trigger *readable;
    sh_trigger *settle;
    sh_buf in;
    bool listed;   /* all rows are known */
    bool settling; /* the timer is running */
};

/* ---- to the keeper ---- */

/* The lines are short and few: one that does not fit means that nobody reads. */
static void tell_more(const sh_api_model *m, const char *what, const double *seconds,
                      const char *why)
{
    sh_models *models = m->api->models;
    sh_buf out = {0};
    if (models->fd < 0) return;
    sh_json_writer w = sh_json_writer_on(&out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "do", what);
    sh_write_text(&w, "model", m->name);
    if (seconds != NULL) sh_write_num(&w, "seconds", *seconds);
    if (why != NULL) sh_write_text(&w, "why", why);
    sh_write_end(&w, '}');
    sh_buf_add_char(&out, '\n');
    if (send(models->fd, out.ptr, out.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)out.len)
        SH_LOGE("api: the keeper of the models does not read");
    sh_buf_reset(&out);
}

static void tell(const sh_api_model *m, const char *what)
{
    tell_more(m, what, NULL, NULL);
}

void sh_model_keep(sh_api_model *m, double seconds)
{
    tell_more(m, "keep", &seconds, NULL);
}

/* ---- one row ---- */

/* NAME of ORG/NAME. */
static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

const char *sh_model_name(const sh_api_model *m)
{
    if (m->name != NULL) return m->name;
    return m->served == NULL ? NULL : sh_served_model_name(m->served);
}

const char *sh_model_state_name(const sh_api_model *m)
{
    static const char *const names[] = {
        [SH_MODEL_ABSENT] = "not loaded",  [SH_MODEL_LOADING] = "loading",
        [SH_MODEL_READY] = "loaded",       [SH_MODEL_DRAINING] = "unloading",
        [SH_MODEL_STOPPING] = "unloading", [SH_MODEL_FAILED] = "failed"};
    if (m->state == SH_MODEL_READY && m->served == NULL) return "loading";
    return names[m->state];
}

bool sh_model_is(const sh_api_model *m, const char *name)
{
    sh_api_error ignored;
    if (m->name == NULL)
        return m->served != NULL && sh_served_model_check_name(m->served, name, &ignored);
    return strcmp(name, m->name) == 0 || strcmp(name, m->dir) == 0;
}

bool sh_model_is_allowed(const sh_api_model *m, const char *key_name, sh_api_error *err)
{
    const sh_http_key_info *key = sh_http_keys_named(m->api->keys, key_name);
    if (key == NULL || key->model_count == 0) return true;
    for (size_t i = 0; i < key->model_count; i++)
        if (sh_model_is(m, key->models[i])) return true;
    return sh_api_fail(err, 403, "model_not_allowed", "model",
                       "the key '%s' may not use the model '%s'", key->name, sh_model_name(m));
}

int64_t sh_model_created_s(const sh_api_model *m)
{
    return m->served == NULL ? m->created_s : sh_served_model_created_s(m->served);
}

const sh_engine_info *sh_model_info(const sh_api_model *m)
{
    return m->conn == NULL ? NULL : sh_engine_conn_info(m->conn);
}

int sh_model_running(const sh_api_model *m)
{
    return m->conn == NULL ? 0 : sh_engine_conn_open_count(m->conn);
}

sh_replay_stats sh_model_replay_stats(const sh_api_model *m)
{
    return m->replay == NULL ? (sh_replay_stats){0} : sh_replay_stats_of(m->replay);
}

double sh_model_stat(const sh_api_model *m, const char *path, double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->stats, path);
    return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

/* Stats without "ready", or none yet, count as ready: the engine was ready when it connected. The
 * reason is the most specific one known: the engine's, the connection's, or the model's. */
bool sh_model_ready(const sh_api_model *m, sh_api_error *err)
{
    const cJSON *ready = cJSON_GetObjectItemCaseSensitive(m->stats, "ready");
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(m->stats, "lost");
    bool linked = m->served != NULL && sh_model_info(m) != NULL;
    if (linked && !cJSON_IsFalse(ready)) return true;
    const char *why = linked && cJSON_IsString(lost) ? lost->valuestring
                      : m->conn != NULL              ? sh_engine_conn_trouble(m->conn)
                                                     : "";
    if (why[0] == '\0') why = m->why;
    if (why[0] == '\0') why = "no model is loaded";
    sh_api_fail(err, 503, "engine_unavailable", NULL, "the model is not available: %s", why);
    err->retry_after_s = 1;
    return false;
}

static sh_served_model_opts served_opts(const sh_api_model *m)
{
    const sh_api_opts *opts = m->api->opts;
    return (sh_served_model_opts){.name = m->name != NULL ? m->name : opts->model_name,
                                  .definition = m->definition,
                                  .defaults_read = opts->defaults_read,
                                  .facts_read = opts->facts_read,
                                  .reasoning_parser = opts->reasoning_parser,
                                  .tool_parser = opts->tool_parser};
}

static void waiter_unlink(sh_model_waiter *w)
{
    *(w->prev == NULL ? &w->model->waiters : &w->prev->next) = w->next;
    if (w->next != NULL) w->next->prev = w->prev;
    w->prev = w->next = NULL;
    w->waits = false;
}

/* Ends all waits. A callback may end other waits, or begin new ones at the end of the list. */
static void waiters_go(sh_api_model *m, const sh_api_error *error)
{
    sh_model_waiter *w;
    while ((w = m->waiters) != NULL) {
        waiter_unlink(w);
        if (error == NULL) sh_model_use(m, w);
        w->go(w->arg, error);
    }
}

static void waiters_fail(sh_api_model *m, const char *why)
{
    sh_api_error error;
    sh_api_fail(&error, 503, "model_failed", "model", "the model '%s' cannot be loaded: %s",
                sh_model_name(m), why);
    error.retry_after_s = 5;
    waiters_go(m, &error);
}

/* An engine is connected and ready. Its model is read again each time, since it may have changed.
 */
static void on_up(void *arg, const sh_engine_info *info)
{
    sh_api_model *m = arg;
    sh_served_model *fresh = NULL;
    sh_err err;
    sh_served_model_opts opts = served_opts(m);
    if (sh_served_model_open(info, &opts, &fresh, &err) != SH_OK) {
        SH_LOGE("api: %s", err.text);
        snprintf(m->why, sizeof(m->why), "%s", err.text);
    } else {
        SH_LOGI("api: serving '%s' on %d rank%s%s", sh_served_model_name(fresh), info->world_size,
                info->world_size == 1 ? "" : "s",
                m->api->server == NULL ? "" : "; see /dashboard and /docs");
    }
    sh_served_model_close(m->served);
    m->served = fresh;
    sh_api_accept(m->api);
    sh_replay_ready(m->replay, info->model_hash);
    if (fresh == NULL) {
        tell_more(m, "fail", NULL, m->why); /* it would take memory, and no request could use it */
        waiters_fail(m, m->why);
    } else if (m->state == SH_MODEL_READY) {
        waiters_go(m, NULL);
    }
    if (m->api->localai != NULL)
        sh_localai_model_up(m->api->localai, fresh == NULL ? m->why : NULL);
    if (fresh != NULL && m->name == NULL) sh_api_serving(m->api);
}

void sh_models_drop(sh_api *api, const char *why)
{
    sh_api_model *m = api->models->first;
    sh_served_model_close(m->served);
    m->served = NULL;
    snprintf(m->why, sizeof(m->why), "%s", why);
}

static void stats_clear(sh_api_model *m)
{
    cJSON_Delete(m->stats);
    m->stats = NULL;
    sh_buf_clear(&m->stats_text);
    sh_buf_clear(&m->ranks_text);
}

static void on_down(void *arg, const sh_err *why)
{
    sh_api_model *m = arg;
    const sh_localai_model *localai = m->api->localai;
    bool expected = m->api->stopping || /* Ctrl-C stops the engine as well */
                    (localai != NULL && sh_localai_model_state(localai) == SH_LOCALAI_LOADING);
    if (!expected && m->name != NULL) SH_LOGW("api: '%s': %s", m->name, why->text);
    if (!expected && m->name == NULL) SH_LOGW("api: %s", why->text);
    stats_clear(m);
    sh_rank_watch_take(m->watch, sh_clock_unix_us(), NULL);
    sh_api_fresh(m->api);
}

/* A rank that was removed while the group went on without it, or waited for it, could not say that
 * it left. */
static void removed_dismiss(sh_api_model *m)
{
    uint64_t away = sh_rank_set_read(cJSON_GetObjectItemCaseSensitive(m->stats, "missing")) |
                    sh_rank_set_read(cJSON_GetObjectItemCaseSensitive(m->stats, "lost_ranks"));
    uint64_t ranks = sh_cluster_link_removed(m->api->cluster) & away;
    if (ranks != 0) sh_engine_conn_dismiss(m->conn, ranks);
}

/* The stats are kept parsed and as text: most endpoints pass the text on as it is. */
static void on_stats(void *arg, sh_str text)
{
    sh_api_model *m = arg;
    cJSON *stats = NULL;
    sh_err err;
    if (sh_json_parse(text, "engine stats", &stats, &err) != SH_OK) {
        SH_LOGW("api: %s", err.text);
        return;
    }
    cJSON_Delete(m->stats);
    m->stats = stats;
    m->api->request_timeout_s = sh_model_stat(m, "request_timeout_s", m->api->request_timeout_s);
    sh_buf_clear(&m->stats_text);
    sh_buf_add_str(&m->stats_text, text);
    char *ranks = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(stats, "ranks"));
    sh_buf_clear(&m->ranks_text);
    if (ranks != NULL) sh_buf_add_text(&m->ranks_text, ranks);
    cJSON_free(ranks);
    sh_rank_watch_take(m->watch, sh_clock_unix_us(), stats);
    removed_dismiss(m);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(stats, "ready")))
        sh_replay_ready(m->replay, sh_model_info(m)->model_hash);
    sh_api_fresh(m->api);
}

void sh_models_sample(sh_api *api)
{
    int64_t now_us = sh_clock_unix_us();
    for (sh_api_model *m = api->models->first; m != NULL; m = m->next) {
        if (m->timeline == NULL && m->stats == NULL) continue;
        if (m->timeline == NULL) m->timeline = sh_timeline_create();
        sh_timeline_take(m->timeline, now_us, m->stats);
    }
}

static int64_t replay_limit_ms(const sh_api_opts *opts)
{
    return opts->replay_s < 0 ? SH_REPLAY_NO_LIMIT : (int64_t)(opts->replay_s * 1000);
}

static void engine_open(sh_api_model *m)
{
    sh_engine_conn_opts link = {.arg = m, .up = on_up, .down = on_down, .stats = on_stats};
    sh_api *api = m->api;
    free(m->linked);
    m->linked = sh_strdup(m->socket);
    m->watch = sh_rank_watch_create();
    m->conn = sh_engine_conn_create(api->loop, m->socket, &link);
    m->replay = sh_replay_create(api->loop, m->conn, replay_limit_ms(api->opts));
}

static void engine_close(sh_api_model *m)
{
    sh_replay_free(m->replay);
    sh_engine_conn_free(m->conn);
    sh_served_model_close(m->served);
    sh_rank_watch_free(m->watch);
    m->watch = NULL;
    m->replay = NULL;
    m->conn = NULL;
    m->served = NULL;
    stats_clear(m);
}

/* ---- requests ---- */

bool sh_model_wait(sh_api_model *m, sh_model_waiter *w)
{
    w->model = m;
    if (m->api->models->fd < 0 || (m->state == SH_MODEL_READY && m->served != NULL)) {
        sh_model_use(m, w);
        return false;
    }
    bool first = m->waiters == NULL;
    sh_model_waiter **at = &m->waiters;
    w->prev = w->next = NULL;
    for (; *at != NULL; at = &(*at)->next) w->prev = *at;
    *at = w;
    w->waits = true;
    if (first) tell(m, "want");
    return true;
}

/* Many short requests are told of together. */
static void settle_later(const sh_api_model *m)
{
    sh_models *models = m->api->models;
    if (models->settling) return;
    models->settling = true;
    sh_trigger_start(models->settle, SETTLE_MS);
}

void sh_model_use(sh_api_model *m, sh_model_waiter *w)
{
    w->uses = m->used = true;
    if (m->active++ == 0) settle_later(m);
    m->used_us = sh_clock_unix_us();
}

void sh_model_release(sh_model_waiter *w)
{
    if (w->waits) waiter_unlink(w);
    if (!w->uses) return;
    w->uses = false;
    w->model->used_us = sh_clock_unix_us();
    if (--w->model->active == 0) settle_later(w->model);
}

/* Brings a row in line with its state and its requests. */
static void settle(sh_api_model *m)
{
    bool kept = m->name != NULL, stale = m->conn != NULL && m->state != SH_MODEL_READY;
    if (m->conn != NULL && strcmp(m->linked, m->socket) != 0) stale = true;
    if (stale && m->active == 0) engine_close(m);
    if (m->state == SH_MODEL_READY && m->conn == NULL) engine_open(m);
    if (kept && m->used && !m->told_busy) tell(m, "busy");
    m->told_busy = m->told_busy || m->used;
    if (kept && m->told_busy && m->active == 0) tell(m, "idle");
    m->told_busy = m->told_busy && m->active > 0;
    m->used = false;
    if (m->state == SH_MODEL_DRAINING && m->active == 0 && !m->drained) {
        m->drained = true;
        tell(m, "drained");
    }
}

static void row_free(sh_api_model *m)
{
    engine_close(m);
    sh_buf_reset(&m->stats_text);
    sh_buf_reset(&m->ranks_text);
    sh_timeline_free(m->timeline);
    free(m->name);
    free(m->dir);
    free(m->definition);
    free(m->socket);
    free(m->linked);
    free(m);
}

static void on_settle(void *arg)
{
    sh_api *api = arg;
    api->models->settling = false;
    for (sh_api_model **at = &api->models->first; *at != NULL;) {
        sh_api_model *m = *at;
        settle(m);
        if (m->unlisted && m->active == 0 && m->waiters == NULL) {
            *at = m->next;
            row_free(m);
        } else {
            at = &m->next;
        }
    }
}

/* ---- from the keeper ---- */

static sh_api_model *row_of(const sh_models *models, const char *name)
{
    sh_api_model *m = models->first;
    while (m != NULL && strcmp(m->name, name) != 0) m = m->next;
    return m;
}

static sh_api_model *row_add(sh_api *api, const char *name)
{
    sh_api_model **at = &api->models->first, *m = sh_alloc(sizeof(*m));
    while (*at != NULL && strcmp((*at)->name, name) < 0) at = &(*at)->next;
    *m = (sh_api_model){.api = api,
                        .next = *at,
                        .name = sh_strdup(name),
                        .dir = sh_strdup(""),
                        .created_s = sh_clock_unix_us() / 1000000};
    *at = m;
    return m;
}

static sh_model_state state_of(const char *text)
{
    static const struct {
        const char *name;
        sh_model_state state;
    } names[] = {{"queued", SH_MODEL_LOADING},    {"loading", SH_MODEL_LOADING},
                 {"ready", SH_MODEL_READY},       {"draining", SH_MODEL_DRAINING},
                 {"stopping", SH_MODEL_STOPPING}, {"failed", SH_MODEL_FAILED}};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (strcmp(text, names[i].name) == 0) return names[i].state;
    return SH_MODEL_ABSENT;
}

static void text_set(char **to, const char *text)
{
    free(*to);
    *to = sh_strdup(text == NULL ? "" : text);
}

/* A model that stops without having been drained has failed: what it was asked for fails, too. */
static void state_enter(sh_api_model *m, sh_model_state state)
{
    bool drained = m->drained;
    m->state = state;
    m->drained = state == SH_MODEL_DRAINING && drained;
    if (state == SH_MODEL_STOPPING && !drained && m->replay != NULL) sh_replay_stop(m->replay);
    if (state == SH_MODEL_FAILED) waiters_fail(m, m->why);
    if (state == SH_MODEL_ABSENT && m->waiters != NULL && !m->unlisted) tell(m, "want");
    sh_trigger_start(m->api->models->settle, 0);
}

static void state_take(sh_api *api, const char *name, const char *state, const cJSON *line)
{
    sh_api_model *m = row_of(api->models, name);
    double bytes = 0, keep_s = 0;
    sh_err err;
    if (m == NULL) m = row_add(api, name);
    m->unlisted = strcmp(state, "unlisted") == 0;
    const char *why = sh_json_text(line, "why"), *dir = sh_json_text(line, "dir");
    const char *definition = sh_json_text(line, "definition");
    if (dir != NULL) text_set(&m->dir, dir);
    free(m->definition);
    m->definition = definition == NULL ? NULL : sh_strdup(definition);
    text_set(&m->socket, sh_json_text(line, "socket"));
    snprintf(m->why, sizeof(m->why), "%s", why == NULL ? "" : why);
    m->pinned = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "pinned"));
    if (sh_json_double(line, "bytes", name, 0, 1e18, &bytes, &err) == SH_OK)
        m->bytes = (int64_t)bytes;
    if (sh_json_double(line, "keep_s", name, -1, 1e12, &keep_s, &err) == SH_OK)
        m->keep_s = (int64_t)keep_s;
    state_enter(m, state_of(state));
    if (m->unlisted) waiters_fail(m, "its folder is gone");
}

static void line_take(sh_api *api, sh_str text)
{
    cJSON *line = NULL;
    sh_err err;
    if (sh_json_parse(text, "the keeper of the models", &line, &err) != SH_OK) {
        SH_LOGW("api: %s", err.text);
        return;
    }
    const char *name = sh_json_text(line, "model"), *state = sh_json_text(line, "state");
    if (name != NULL && state != NULL) {
        state_take(api, name, state, line);
    } else if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "listed"))) {
        const char *standing = sh_json_text(line, "default");
        if (standing != NULL) text_set(&api->models->standing, standing);
        api->models->listed = true;
        sh_api_accept(api);
        sh_api_serving(api);
    }
    cJSON_Delete(line);
}

/* The keeper is the parent of this process, which ends with it. */
static void keeper_gone(sh_api *api)
{
    sh_models *models = api->models;
    sh_api_error error;
    SH_LOGE("api: the keeper of the models is gone");
    sh_trigger_want(models->readable, false, false);
    sh_api_fail(&error, 503, "engine_unavailable", NULL, "the server is ending");
    for (sh_api_model *m = models->first; m != NULL; m = m->next) waiters_go(m, &error);
}

static void on_readable(void *arg)
{
    sh_api *api = arg;
    sh_models *models = api->models;
    char bytes[4096], *end;
    ssize_t got = recv(models->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) sh_buf_add(&models->in, bytes, (size_t)got);
    while (models->in.len > 0 && (end = memchr(models->in.ptr, '\n', models->in.len)) != NULL) {
        sh_str line = {models->in.ptr, (size_t)(end - models->in.ptr)};
        line_take(api, line);
        sh_buf_drop_front(&models->in, line.len + 1);
    }
    if (got <= 0 || models->in.len > LINE_MAX_BYTES) keeper_gone(api);
}

/* ---- the table ---- */

static bool is_default(const char *name)
{
    return name == NULL || strcmp(name, "default") == 0 || strcmp(name, "default_model") == 0;
}

/* "a, b, c and 4 others" */
static void names_write(const sh_models *models, sh_buf *out)
{
    int count = 0;
    for (const sh_api_model *m = models->first; m != NULL; m = m->next) count += !m->unlisted;
    int shown = 0;
    for (const sh_api_model *m = models->first; m != NULL && shown < NAMES_SHOWN; m = m->next) {
        if (m->unlisted) continue;
        sh_buf_addf(out, "%s'%s'", shown++ == 0 ? "" : ", ", m->name);
    }
    if (count > shown) sh_buf_addf(out, " and %d others", count - shown);
    if (count == 0) sh_buf_add_text(out, "none");
}

static sh_api_model *row_refuse(const sh_models *models, const char *name, sh_api_error *err)
{
    sh_buf names = {0};
    names_write(models, &names);
    if (is_default(name))
        sh_api_fail(err, 400, "missing_field", "model",
                    "the field 'model' must name one of the models of this server: %s", names.ptr);
    else
        sh_api_fail(err, 404, "model_not_found", "model",
                    "the model '%s' is not served here; there are: %s", name, names.ptr);
    sh_buf_reset(&names);
    return NULL;
}

sh_api_model *sh_models_find(const sh_api *api, const char *name, sh_api_error *err)
{
    const sh_models *models = api->models;
    sh_api_model *first = models->first, *by_part = NULL;
    int parts = 0;
    if (models->fd < 0) /* one model, which knows all of its names */
        return first->served == NULL || sh_served_model_check_name(first->served, name, err) ? first
                                                                                             : NULL;
    if (is_default(name) && models->standing != NULL) name = models->standing;
    if (is_default(name) && first != NULL && first->next == NULL) return first;
    for (sh_api_model *m = first; m != NULL && !is_default(name); m = m->next) {
        if (m->unlisted) continue;
        if (sh_model_is(m, name)) return m;
        if (strcmp(last_part(m->name), name) != 0) continue;
        by_part = m;
        parts++;
    }
    return parts == 1 ? by_part : row_refuse(models, name, err);
}

const sh_api_model *sh_models_next(const sh_api_model *m)
{
    m = m->next;
    while (m != NULL && m->unlisted) m = m->next;
    return m;
}

const sh_api_model *sh_models_first(const sh_api *api)
{
    const sh_api_model *m = api->models->first;
    return m != NULL && m->unlisted ? sh_models_next(m) : m;
}

/* The default if it is loaded, else the one that was used last. */
const sh_api_model *sh_models_main(const sh_api *api)
{
    const sh_models *models = api->models;
    const sh_api_model *best = NULL;
    for (const sh_api_model *m = models->first; m != NULL; m = m->next) {
        if (m->name != NULL && models->standing != NULL && m->conn != NULL &&
            strcmp(m->name, models->standing) == 0)
            return m;
        if (best == NULL || (m->conn != NULL) > (best->conn != NULL) ||
            ((m->conn != NULL) == (best->conn != NULL) && m->used_us > best->used_us))
            best = m;
    }
    return best == NULL ? &models->blank : best;
}

bool sh_models_several(const sh_api *api)
{
    return api->models->fd >= 0;
}

bool sh_models_listed(const sh_api *api)
{
    return api->models->listed;
}

bool sh_models_refresh(const sh_api *api)
{
    bool any = false;
    for (sh_api_model *m = api->models->first; m != NULL; m = m->next)
        if (m->conn != NULL && sh_engine_conn_refresh(m->conn)) any = true;
    return any;
}

static bool expire_one(sh_api_model *m)
{
    for (sh_model_waiter *w = m->waiters; w != NULL; w = w->next) {
        sh_api_error error;
        if (!sh_deadline_passed(w->deadline)) continue;
        sh_api_fail(&error, 504, "timeout", NULL,
                    "timed out waiting for the model '%s' to be loaded%s%s", sh_model_name(m),
                    m->why[0] == '\0' ? "" : ": ", m->why);
        waiter_unlink(w);
        w->go(w->arg, &error);
        return true;
    }
    return false;
}

void sh_models_expire(sh_api *api)
{
    for (sh_api_model *m = api->models->first; m != NULL; m = m->next) {
        if (m->replay != NULL) sh_replay_expire(m->replay);
        while (expire_one(m)) continue;
    }
}

void sh_models_stop(sh_api *api)
{
    sh_api_error error;
    sh_api_fail(&error, 503, "engine_unavailable", NULL, "the server is stopping");
    for (sh_api_model *m = api->models->first; m != NULL; m = m->next) {
        waiters_go(m, &error);
        if (m->replay != NULL) sh_replay_stop(m->replay);
    }
}

static sh_status keeper_connect(const char *path, int *out, sh_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return sh_err_set(err, SH_ERR_INPUT, "%s: the path is longer than %zu bytes", path,
                          sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        sh_err_sys(err, "connect to the keeper of the models at %s", path);
        if (fd >= 0) close(fd);
        return err->status;
    }
    *out = fd;
    return SH_OK;
}

sh_status sh_models_open(sh_api *api, sh_err *err)
{
    const sh_api_opts *opts = api->opts;
    sh_models *models = api->models = sh_alloc(sizeof(*models));
    models->fd = -1;
    models->blank.api = api;
    models->settle = sh_trigger_timer(api->loop, on_settle, api);
    if (opts->keeper_path == NULL) {
        sh_api_model *m = models->first = sh_alloc(sizeof(*m));
        *m = (sh_api_model){.api = api,
                            .state = SH_MODEL_READY,
                            .socket = sh_strdup(opts->socket_path),
                            .keep_s = -1};
        snprintf(m->why, sizeof(m->why), "no engine has connected yet");
        engine_open(m);
        return SH_OK;
    }
    sh_status status = keeper_connect(opts->keeper_path, &models->fd, err);
    if (status != SH_OK) return status;
    models->readable = sh_trigger_fd(api->loop, models->fd, on_readable, api);
    sh_trigger_want(models->readable, true, false);
    return SH_OK;
}

void sh_models_close(sh_api *api)
{
    sh_models *models = api->models;
    if (models == NULL) return;
    sh_trigger_free(models->settle);
    sh_trigger_free(models->readable);
    while (models->first != NULL) {
        sh_api_model *m = models->first;
        models->first = m->next;
        row_free(m);
    }
    if (models->fd >= 0) close(models->fd);
    sh_buf_reset(&models->in);
    free(models->standing);
    free(models);
}
