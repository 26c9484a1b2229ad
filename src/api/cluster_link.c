#include "api/cluster_link.h"

#include "api/json_writer.h"
#include "api/rank_watch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PACKET_MAX = 8192, ANSWER_MS = 5000, ID_MAX = 128 };

struct sh_cluster_link {
    int fd; /* 0 or below: none */
    sh_trigger *readable;
    bool known;   /* the state has arrived */
    bool running; /* a change, by that state */
    char *why;
    sh_buf change;    /* JSON */
    uint64_t removed; /* ranks, a bit for each */
    sh_cluster_fn fn; /* of the order that is not answered yet; or NULL */
    void *arg;
    char id[ID_MAX];
    sh_deadline limit;
};

static void answer(sh_cluster_link *link, int code, const char *why)
{
    sh_cluster_fn fn = link->fn;
    link->fn = NULL;
    if (fn != NULL) fn(link->arg, code, why);
}

/* An order is taken when it is the change that the state shows. */
static void state_take(sh_cluster_link *link, const cJSON *packet)
{
    const cJSON *change = cJSON_GetObjectItemCaseSensitive(packet, "change");
    const char *why = sh_json_text(packet, "why"), *id = sh_json_text(change, "id");
    char *text = cJSON_PrintUnformatted(change);
    const char *state = sh_json_text(change, "state");
    link->known = true;
    link->removed = sh_rank_set_read(cJSON_GetObjectItemCaseSensitive(packet, "removed"));
    link->running = state != NULL && strcmp(state, "running") == 0;
    free(link->why);
    link->why = why == NULL ? NULL : sh_strdup(why);
    sh_buf_clear(&link->change);
    if (text != NULL) sh_buf_add_text(&link->change, text);
    cJSON_free(text);
    if (id != NULL && strcmp(id, link->id) == 0) answer(link, 202, "");
}

static void on_readable(void *arg)
{
    sh_cluster_link *link = arg;
    char bytes[PACKET_MAX];
    cJSON *packet = NULL;
    sh_err err;
    ssize_t got = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) return;
    if (sh_json_parse((sh_str){bytes, (size_t)got}, "supervisor", &packet, &err) != SH_OK) {
        SH_LOGW("api: %s", err.text);
        return;
    }
    const char *refused = sh_json_text(packet, "refused"), *id = sh_json_text(packet, "id");
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(packet, "code");
    if (refused == NULL)
        state_take(link, packet);
    else if (id != NULL && strcmp(id, link->id) == 0)
        answer(link, cJSON_IsNumber(code) ? code->valueint : 500, refused);
    cJSON_Delete(packet);
}

sh_cluster_link *sh_cluster_link_create(sh_loop *loop, int fd)
{
    sh_cluster_link *link = sh_alloc(sizeof(*link));
    *link = (sh_cluster_link){.fd = fd};
    if (fd <= 0) return link;
    link->readable = sh_trigger_fd(loop, fd, on_readable, link);
    sh_trigger_want(link->readable, true, false);
    sh_cluster_link_tick(link);
    return link;
}

void sh_cluster_link_free(sh_cluster_link *link)
{
    if (link == NULL) return;
    if (link->readable != NULL) sh_trigger_free(link->readable);
    sh_buf_reset(&link->change);
    free(link->why);
    free(link);
}

void sh_cluster_link_leave(sh_cluster_link *link)
{
    if (link->readable != NULL) sh_trigger_want(link->readable, false, false);
    answer(link, 503, "this process is being replaced; ask again");
}

static bool packet_send(const sh_cluster_link *link, const char *what, const char *host)
{
    sh_buf out = {0};
    sh_json_writer w = sh_json_writer_on(&out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "do", what == NULL ? "hello" : "change");
    if (what != NULL) sh_write_text(&w, "id", link->id);
    if (what != NULL) sh_write_text(&w, "what", what);
    if (host != NULL) sh_write_text(&w, "host", host);
    sh_write_end(&w, '}');
    bool sent = send(link->fd, out.ptr, out.len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)out.len;
    sh_buf_reset(&out);
    return sent;
}

/* The process before this one has the same socket for a moment, and may read what is meant for this
 * one, such as the end of a change. */
void sh_cluster_link_tick(sh_cluster_link *link)
{
    if (link->fd > 0 && (!link->known || link->running)) packet_send(link, NULL, NULL);
    if (link->fn != NULL && sh_deadline_passed(link->limit))
        answer(link, 503, "the supervisor does not answer: see the log");
}

const char *sh_cluster_link_why(const sh_cluster_link *link)
{
    if (link->fd <= 0) return "no launcher runs this server";
    return link->known ? link->why : "the supervisor has not reported yet";
}

sh_str sh_cluster_link_change(const sh_cluster_link *link)
{
    return link->change.len == 0 ? SH_STR("null") : sh_buf_str(&link->change);
}

uint64_t sh_cluster_link_removed(const sh_cluster_link *link)
{
    return link->removed;
}

void sh_cluster_link_ask(sh_cluster_link *link, const char *id, const char *what, const char *host,
                         sh_cluster_fn fn, void *arg)
{
    const char *why = sh_cluster_link_why(link);
    if (why != NULL) {
        fn(arg, link->known || link->fd <= 0 ? 501 : 503, why);
        return;
    }
    if (link->fn != NULL) {
        fn(arg, 409, "another change of the cluster is being asked for");
        return;
    }
    link->fn = fn;
    link->arg = arg;
    link->limit = sh_deadline_in_ms(ANSWER_MS);
    snprintf(link->id, sizeof(link->id), "%s", id);
    if (!packet_send(link, what, host)) answer(link, 503, "the supervisor does not read");
}

void sh_cluster_link_forget(sh_cluster_link *link, const void *arg)
{
    if (link->arg == arg) link->fn = NULL;
}
