#include "api/link.h"

#include "base/alloc.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOT_BITS = 20,    /* of a request's id: the place in the table; the rest is a serial number */
    GREETING_MS = 100, /* the loop waits so long at most for an engine that has just accepted */
    RETRY_MS = 250,
    START_RETRIES = 8, /* so often an engine that is started beside us may not be there yet */
    STATS_MS = 1000,
    SILENT_ASKS = 5, /* an engine that has answered none of the last ones is frozen */
};

typedef struct {
    uint64_t id; /* 0: free */
    sh_link_event_fn fn;
    void *arg;
} slot;

struct sh_link {
    sh_loop *loop;
    char *socket_path;
    sh_link_opts opts;
    sh_engine_client *client; /* NULL while there is no engine */
    sh_trigger *socket;
    sh_trigger *retry;
    sh_trigger *stats;
    slot *slots;
    uint32_t *free_slots; /* a stack of places */
    size_t slot_count, free_count;
    uint64_t serial;
    bool stats_asked; /* and not answered yet */
    char trouble[SH_ERR_TEXT_MAX];
    int retries; /* before the first engine came */
};

static void on_socket(void *arg);

static slot *slot_find(const sh_link *link, uint64_t id)
{
    size_t at = (size_t)(id & ((UINT64_C(1) << SLOT_BITS) - 1));
    return id != 0 && at < link->slot_count && link->slots[at].id == id ? &link->slots[at] : NULL;
}

static void slots_grow(sh_link *link)
{
    size_t count = link->slot_count == 0 ? 64 : link->slot_count * 2;
    link->slots = sh_realloc_array(link->slots, count, sizeof(slot));
    link->free_slots = sh_realloc_array(link->free_slots, count, sizeof(uint32_t));
    for (size_t i = count; i > link->slot_count; i--) {
        link->slots[i - 1] = (slot){0};
        link->free_slots[link->free_count++] = (uint32_t)(i - 1);
    }
    link->slot_count = count;
}

static void slot_release(sh_link *link, slot *s)
{
    *s = (slot){0};
    link->free_slots[link->free_count++] = (uint32_t)(s - link->slots);
}

static void event_deliver(sh_link *link, const sh_event *event)
{
    if (event->kind == SH_EVENT_STATS) {
        link->stats_asked = false;
        link->opts.stats(link->opts.arg, event->stats);
        return;
    }
    slot *s = slot_find(link, event->id);
    if (s == NULL) return; /* forgotten meanwhile */
    sh_link_event_fn fn = s->fn;
    void *arg = s->arg;
    if (event->kind != SH_EVENT_TOKEN) slot_release(link, s);
    fn(arg, event);
}

static void watch_update(sh_link *link)
{
    if (link->client != NULL)
        sh_trigger_want(link->socket, true, sh_engine_client_wants_write(link->client));
}

/* Why there is no engine; true when that is news, which is logged once and not at every attempt. */
static bool trouble_set(sh_link *link, const char *text)
{
    if (strcmp(link->trouble, text) == 0) return false;
    snprintf(link->trouble, sizeof(link->trouble), "%s", text);
    return text[0] != '\0';
}

static void lose(sh_link *link, const sh_err *why)
{
    trouble_set(link, why->text);
    sh_trigger_free(link->socket);
    sh_engine_client_close(link->client);
    link->socket = NULL;
    link->client = NULL;
    link->stats_asked = false;
    sh_trigger_stop(link->stats);
    sh_trigger_start(link->retry, RETRY_MS);
    link->opts.down(link->opts.arg, why);
}

static void on_socket(void *arg)
{
    sh_link *link = arg;
    sh_err err;
    sh_status status = sh_engine_client_progress(link->client, &err);
    sh_event event;
    while (sh_engine_client_next(link->client, &event) == SH_OK) event_deliver(link, &event);
    if (status != SH_OK)
        lose(link, &err);
    else
        watch_update(link);
}

static void stats_ask(sh_link *link)
{
    link->stats_asked = true;
    sh_engine_client_ask_stats(link->client);
    watch_update(link);
}

bool sh_link_refresh(sh_link *link)
{
    if (link->client == NULL) return false;
    if (!link->stats_asked) stats_ask(link);
    return true;
}

static void on_stats(void *arg)
{
    sh_link *link = arg;
    if (sh_engine_client_unanswered(link->client) >= SILENT_ASKS) {
        sh_engine_client_give_up(link->client, "it is there, but does not answer");
        on_socket(link);
        return;
    }
    stats_ask(link);
    sh_trigger_start(link->stats, STATS_MS);
}

static void on_retry(void *arg)
{
    sh_link *link = arg;
    sh_err err;
    sh_engine_client *client = NULL;
    sh_status status = sh_engine_client_open(link->socket_path, sh_deadline_in_ms(GREETING_MS),
                                             &client, &err);
    if (status == SH_OK && !sh_engine_client_info(client)->ready)
        status = sh_err_set(&err, SH_ERR_GROUP, "the engine is not ready: its group is forming");
    if (status == SH_ERR_TIMEOUT)
        sh_err_set(&err, SH_ERR_GROUP, "the engine is not ready: it is loading the model");
    if (status != SH_OK) {
        bool starting = status == SH_ERR_PEER && link->retries++ < START_RETRIES;
        sh_engine_client_close(client);
        if (!starting && trouble_set(link, err.text)) SH_LOGI("api: %s", err.text);
        sh_trigger_start(link->retry, RETRY_MS);
        return;
    }
    trouble_set(link, "");
    link->retries = START_RETRIES;
    link->client = client;
    link->socket = sh_trigger_fd(link->loop, sh_engine_client_fd(client), on_socket, link);
    link->opts.up(link->opts.arg, sh_engine_client_info(client));
    on_stats(link);
}

sh_link *sh_link_create(sh_loop *loop, const char *socket_path, const sh_link_opts *opts)
{
    sh_link *link = sh_alloc(sizeof(*link));
    link->loop = loop;
    link->socket_path = sh_strdup(socket_path);
    link->opts = *opts;
    snprintf(link->trouble, sizeof(link->trouble), "the engine has not answered yet");
    link->retry = sh_trigger_timer(loop, on_retry, link);
    link->stats = sh_trigger_timer(loop, on_stats, link);
    sh_trigger_start(link->retry, 0);
    return link;
}

void sh_link_free(sh_link *link)
{
    if (link == NULL) return;
    sh_trigger_free(link->socket);
    sh_trigger_free(link->retry);
    sh_trigger_free(link->stats);
    sh_engine_client_close(link->client);
    free(link->slots);
    free(link->free_slots);
    free(link->socket_path);
    free(link);
}

const sh_engine_info *sh_link_info(const sh_link *link)
{
    return link->client == NULL ? NULL : sh_engine_client_info(link->client);
}

const char *sh_link_trouble(const sh_link *link)
{
    return link->trouble;
}

sh_status sh_link_submit(sh_link *link, const sh_engine_request *request, sh_link_event_fn fn,
                         void *arg, uint64_t *id, sh_err *err)
{
    if (link->client == NULL) return sh_err_set(err, SH_ERR_PEER, "the engine is not there");
    if (link->free_count == 0) {
        if (link->slot_count == (size_t)1 << SLOT_BITS)
            return sh_err_set(err, SH_ERR_LIMIT, "too many requests are open");
        slots_grow(link);
    }
    uint32_t place = link->free_slots[link->free_count - 1];
    sh_engine_request copy = *request;
    copy.id = ++link->serial << SLOT_BITS | place;
    sh_status status = sh_engine_client_submit(link->client, &copy, err);
    if (status != SH_OK) return status;
    link->free_count--;
    link->slots[place] = (slot){copy.id, fn, arg};
    *id = copy.id;
    watch_update(link);
    return SH_OK;
}

void sh_link_cancel(sh_link *link, uint64_t id)
{
    if (link->client == NULL || slot_find(link, id) == NULL) return;
    sh_engine_client_cancel(link->client, id);
    watch_update(link);
}

void sh_link_forget(sh_link *link, uint64_t id)
{
    slot *s = slot_find(link, id);
    if (s == NULL) return;
    sh_link_cancel(link, id);
    slot_release(link, s);
}

int sh_link_open_count(const sh_link *link)
{
    return (int)(link->slot_count - link->free_count);
}
