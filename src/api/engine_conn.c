/* Request ids carry their table index: the low SLOT_BITS are the index, the rest is a serial number
 * that is never reused. An event for a request that was forgotten meanwhile finds another id in the
 * slot and is dropped, so a slot can be reused before the engine has confirmed a cancel.
 *
 * Stats are requested every second, which is also the heartbeat: a running engine answers at once
 * (at least with an empty event), so one that has left UNANSWERED_MAX requests unanswered is frozen
 * and treated as lost. */
#include "api/engine_conn.h"

#include "base/alloc.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOT_BITS = 20,
    GREETING_MS = 100, /* how long the loop waits, blocked, for an engine that has accepted */
    RETRY_MS = 150,
    START_RETRIES = 20, /* attempts that fail silently: the engine may just be starting */
    STATS_MS = 1000,
    UNANSWERED_MAX = 5, /* stats requests */
};

typedef struct {
    uint64_t id; /* 0: free */
    sh_engine_conn_event_fn fn;
    void *arg;
    bool kept; /* by the engine */
} slot;

struct sh_engine_conn {
    sh_loop *loop;
    char *socket_path;
    sh_engine_conn_opts opts;
    sh_engine_client *client; /* NULL while there is no engine */
    sh_trigger *socket;
    sh_trigger *retry;
    sh_trigger *stats;
    slot *slots;
    uint32_t *free_slots; /* a stack of indices */
    size_t slot_count, free_count;
    uint64_t serial;
    bool stats_asked; /* and not answered yet */
    char trouble[SH_ERR_TEXT_MAX];
    sh_buf loading; /* JSON */
    int retries;    /* before the first connection */
};

static void on_socket(void *arg);

static slot *slot_find(const sh_engine_conn *conn, uint64_t id)
{
    size_t at = (size_t)(id & ((UINT64_C(1) << SLOT_BITS) - 1));
    return id != 0 && at < conn->slot_count && conn->slots[at].id == id ? &conn->slots[at] : NULL;
}

/* Pushes the new indices in reverse, so that low ones are used first. */
static void slots_grow(sh_engine_conn *conn)
{
    size_t count = conn->slot_count == 0 ? 64 : conn->slot_count * 2;
    conn->slots = sh_realloc_array(conn->slots, count, sizeof(slot));
    conn->free_slots = sh_realloc_array(conn->free_slots, count, sizeof(uint32_t));
    for (size_t i = count; i > conn->slot_count; i--) {
        conn->slots[i - 1] = (slot){0};
        conn->free_slots[conn->free_count++] = (uint32_t)(i - 1);
    }
    conn->slot_count = count;
}

static void slot_release(sh_engine_conn *conn, slot *s)
{
    *s = (slot){0};
    conn->free_slots[conn->free_count++] = (uint32_t)(s - conn->slots);
}

/* The slot is free before the callback runs, since that may submit another request. */
static void event_deliver(sh_engine_conn *conn, const sh_event *event)
{
    if (event->kind == SH_EVENT_STATS) {
        conn->stats_asked = false;
        conn->opts.stats(conn->opts.arg, event->stats);
        return;
    }
    slot *s = slot_find(conn, event->id);
    if (s == NULL) return; /* forgotten meanwhile */
    sh_engine_conn_event_fn fn = s->fn;
    void *arg = s->arg;
    bool last = event->kind == SH_EVENT_DONE || event->kind == SH_EVENT_ERROR;
    if (last) slot_release(conn, s);
    fn(arg, event);
}

static void watch_update(sh_engine_conn *conn)
{
    if (conn->client != NULL)
        sh_trigger_want(conn->socket, true, sh_engine_client_wants_write(conn->client));
}

/* Sets why there is no engine. True when the reason is new: it is logged once, not at every
 * attempt. How far the engine is with loading comes after a semicolon, and is not a new reason. */
static bool trouble_set(sh_engine_conn *conn, const char *text)
{
    size_t len = strcspn(text, ";");
    if (len == strcspn(conn->trouble, ";") && strncmp(conn->trouble, text, len) == 0) {
        snprintf(conn->trouble, sizeof(conn->trouble), "%s", text);
        return false;
    }
    snprintf(conn->trouble, sizeof(conn->trouble), "%s", text);
    return text[0] != '\0';
}

sh_str sh_engine_conn_loading(const sh_engine_conn *conn)
{
    return sh_buf_str(&conn->loading);
}

/* To be called after all events were taken: by then the client has made an error event for every
 * open request, so no slot is in use. */
static void disconnect(sh_engine_conn *conn, const sh_err *why)
{
    trouble_set(conn, why->text);
    sh_trigger_free(conn->socket);
    sh_engine_client_close(conn->client);
    conn->socket = NULL;
    conn->client = NULL;
    conn->stats_asked = false;
    sh_trigger_stop(conn->stats);
    sh_trigger_start(conn->retry, RETRY_MS);
    conn->opts.down(conn->opts.arg, why);
}

static void on_socket(void *arg)
{
    sh_engine_conn *conn = arg;
    sh_err err;
    sh_status status = sh_engine_client_progress(conn->client, &err);
    sh_event event;
    while (sh_engine_client_next(conn->client, &event) == SH_OK) event_deliver(conn, &event);
    if (status != SH_OK)
        disconnect(conn, &err);
    else
        watch_update(conn);
}

static void stats_ask(sh_engine_conn *conn)
{
    conn->stats_asked = true;
    sh_engine_client_ask_stats(conn->client);
    watch_update(conn);
}

void sh_engine_conn_dismiss(sh_engine_conn *conn, uint64_t ranks)
{
    if (conn->client == NULL) return;
    sh_engine_client_dismiss(conn->client, ranks);
    watch_update(conn);
}

bool sh_engine_conn_refresh(sh_engine_conn *conn)
{
    if (conn->client == NULL) return false;
    if (!conn->stats_asked) stats_ask(conn);
    return true;
}

static void on_stats(void *arg)
{
    sh_engine_conn *conn = arg;
    if (sh_engine_client_unanswered(conn->client) >= UNANSWERED_MAX) {
        sh_engine_client_give_up(conn->client, "it is connected but does not answer");
        on_socket(conn);
        return;
    }
    stats_ask(conn);
    sh_trigger_start(conn->stats, STATS_MS);
}

/* One attempt to connect. An engine that does not answer in time is starting: its process listens
 * before it can serve. What it waits for is in its own log lines. */
static void on_retry(void *arg)
{
    sh_engine_conn *conn = arg;
    sh_err err;
    sh_engine_client *client = NULL;
    sh_buf_clear(&conn->loading);
    sh_status status = sh_engine_client_open(conn->socket_path, sh_deadline_in_ms(GREETING_MS),
                                             &conn->loading, &client, &err);
    if (status == SH_OK && !sh_engine_client_info(client)->ready)
        status = sh_err_set(&err, SH_ERR_GROUP,
                            "the engine is not ready: its group is being formed");
    if (status == SH_ERR_TIMEOUT)
        sh_err_set(&err, SH_ERR_GROUP,
                   "the engine is not ready: its ranks are joining or loading the model");
    if (status != SH_OK) {
        bool starting = status == SH_ERR_PEER && conn->retries++ < START_RETRIES;
        sh_engine_client_close(client);
        if (!starting && trouble_set(conn, err.text)) SH_LOGI("api: %s", err.text);
        sh_trigger_start(conn->retry, RETRY_MS);
        return;
    }
    trouble_set(conn, "");
    conn->retries = START_RETRIES;
    conn->client = client;
    conn->socket = sh_trigger_fd(conn->loop, sh_engine_client_fd(client), on_socket, conn);
    conn->opts.up(conn->opts.arg, sh_engine_client_info(client));
    on_stats(conn);
}

sh_engine_conn *sh_engine_conn_create(sh_loop *loop, const char *socket_path,
                                      const sh_engine_conn_opts *opts)
{
    sh_engine_conn *conn = sh_alloc(sizeof(*conn));
    conn->loop = loop;
    conn->socket_path = sh_strdup(socket_path);
    conn->opts = *opts;
    snprintf(conn->trouble, sizeof(conn->trouble), "the engine has not answered yet");
    conn->retry = sh_trigger_timer(loop, on_retry, conn);
    conn->stats = sh_trigger_timer(loop, on_stats, conn);
    sh_trigger_start(conn->retry, 0);
    return conn;
}

void sh_engine_conn_free(sh_engine_conn *conn)
{
    if (conn == NULL) return;
    sh_trigger_free(conn->socket);
    sh_trigger_free(conn->retry);
    sh_trigger_free(conn->stats);
    sh_engine_client_close(conn->client);
    sh_buf_reset(&conn->loading);
    free(conn->slots);
    free(conn->free_slots);
    free(conn->socket_path);
    free(conn);
}

const sh_engine_info *sh_engine_conn_info(const sh_engine_conn *conn)
{
    return conn->client == NULL ? NULL : sh_engine_client_info(conn->client);
}

const char *sh_engine_conn_trouble(const sh_engine_conn *conn)
{
    return conn->trouble;
}

sh_status sh_engine_conn_submit(sh_engine_conn *conn, const sh_sequence_spec *spec,
                                sh_engine_conn_event_fn fn, void *arg, uint64_t *id, sh_err *err)
{
    if (conn->client == NULL) return sh_err_set(err, SH_ERR_PEER, "no engine is connected");
    if (conn->free_count == 0) {
        if (conn->slot_count == (size_t)1 << SLOT_BITS)
            return sh_err_set(err, SH_ERR_LIMIT, "too many requests are open");
        slots_grow(conn);
    }
    /* The slot is taken only after the client has accepted the request. */
    uint32_t place = conn->free_slots[conn->free_count - 1];
    sh_sequence_spec copy = *spec;
    copy.id = ++conn->serial << SLOT_BITS | place;
    sh_status status = sh_engine_client_submit(conn->client, &copy, err);
    if (status != SH_OK) return status;
    conn->free_count--;
    conn->slots[place] = (slot){copy.id, fn, arg, spec->retry_key != NULL};
    *id = copy.id;
    watch_update(conn);
    return SH_OK;
}

void sh_engine_conn_cancel(sh_engine_conn *conn, uint64_t id)
{
    if (conn->client == NULL || slot_find(conn, id) == NULL) return;
    sh_engine_client_cancel(conn->client, id);
    watch_update(conn);
}

void sh_engine_conn_forget(sh_engine_conn *conn, uint64_t id)
{
    slot *s = slot_find(conn, id);
    if (s == NULL) return;
    if (s->kept && conn->client != NULL)
        sh_engine_client_detach(conn->client, id);
    else
        sh_engine_conn_cancel(conn, id);
    slot_release(conn, s);
    watch_update(conn);
}

int sh_engine_conn_open_count(const sh_engine_conn *conn)
{
    return (int)(conn->slot_count - conn->free_count);
}
