/* Packets keep their borders, so that an API that takes over from another never sees half a message
 * of it. What the API says is not trusted: it is what parses the requests of strangers. */
#include "cmd/support/cluster_control.h"

#include "api/json_writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/change.h"
#include "cluster/launch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PACKET_MAX = 4096,
    LIMIT_MS = 45 * 60 * 1000, /* the commands give up earlier */
};

struct sh_cluster_control {
    const char *why; /* changes are not possible; or NULL */
    int launcher;    /* what it tells can be read here; or -1 */
    int ends[2];     /* of the socket: ours, the API's */
    sh_buf in;       /* from the launcher, up to the next line break */
    sh_deadline limit;
    char id[SH_CHANGE_ID_MAX + 1]; /* the last change; "": none */
    char what[16], host[SH_CHANGE_HOST_MAX + 1];
    const char *state;
    char said[SH_ERR_TEXT_MAX];
    int64_t at_us;
    uint64_t removed; /* ranks, a bit for each */
};

static const char *reason_against(const sh_settings *s)
{
    if (s->control_fd <= 0)
        return "no launcher runs this server: hosts are added by starting `shoal worker --join` on "
               "them, and `shoal serve` is restarted where it was started";
    if (s->models_dir != NULL)
        return "the hosts of a cluster with --models-dir are those of its hostfile: change that, "
               "then `shoal restart` where it was launched";
    return NULL;
}

sh_status sh_cluster_control_open(const sh_settings *s, sh_cluster_control **out, sh_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) return sh_err_sys(err, "socketpair");
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    if (s->control_fd > 0) fcntl((int)s->control_fd, F_SETFD, FD_CLOEXEC);
    sh_cluster_control *c = sh_alloc(sizeof(*c));
    *c = (sh_cluster_control){.why = reason_against(s),
                              .launcher = s->control_fd > 0 ? (int)s->control_fd : -1,
                              .ends = {ends[0], ends[1]}};
    *out = c;
    return SH_OK;
}

void sh_cluster_control_close(sh_cluster_control *c)
{
    if (c == NULL) return;
    close(c->ends[0]);
    close(c->ends[1]);
    sh_buf_reset(&c->in);
    free(c);
}

int sh_cluster_control_fd(const sh_cluster_control *c)
{
    return c->ends[1];
}

/* An API that does not read asks again when it does. */
static void packet_send(const sh_cluster_control *c, sh_buf *json)
{
    ssize_t sent = send(c->ends[0], json->ptr, json->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent;
    sh_buf_reset(json);
}

static void state_send(const sh_cluster_control *c)
{
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "why", c->why);
    if (c->id[0] == '\0') {
        sh_write_null(&w, "change");
    } else {
        sh_write_begin(&w, "change", '{');
        sh_write_text(&w, "id", c->id);
        sh_write_text(&w, "what", c->what);
        sh_write_text(&w, "host", c->host[0] == '\0' ? NULL : c->host);
        sh_write_text(&w, "state", c->state);
        sh_write_text(&w, "said", c->said[0] == '\0' ? NULL : c->said);
        sh_write_int(&w, "at", c->at_us / 1000000);
        sh_write_end(&w, '}');
    }
    sh_write_begin(&w, "removed", '[');
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if ((c->removed >> i & 1) != 0) sh_write_int(&w, NULL, i);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    packet_send(c, &json);
}

static void refuse(const sh_cluster_control *c, const char *id, int code, const char *why)
{
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "id", id);
    sh_write_text(&w, "refused", why);
    sh_write_int(&w, "code", code);
    sh_write_end(&w, '}');
    packet_send(c, &json);
}

static void state_set(sh_cluster_control *c, const char *state, sh_str said)
{
    c->state = state;
    c->at_us = sh_clock_unix_us();
    snprintf(c->said, sizeof(c->said), "%.*s", (int)said.len, said.ptr);
    state_send(c);
}

static bool is_running(const sh_cluster_control *c)
{
    return c->id[0] != '\0' && strcmp(c->state, "running") == 0;
}

/* The line goes to the launcher in one write, so that no other output can come in between. */
static void order_pass(sh_cluster_control *c, const sh_change_order *order)
{
    sh_buf line = {0};
    snprintf(c->id, sizeof(c->id), "%.*s", (int)order->id.len, order->id.ptr);
    snprintf(c->what, sizeof(c->what), "%.*s", (int)order->what.len, order->what.ptr);
    snprintf(c->host, sizeof(c->host), "%.*s", (int)order->host.len, order->host.ptr);
    c->limit = sh_deadline_in_ms(LIMIT_MS);
    sh_buf_addf(&line, "%cchange %s %s%s%s\n", SH_LAUNCH_MARK, c->id, c->what,
                c->host[0] == '\0' ? "" : " ", c->host);
    bool put = write(STDOUT_FILENO, line.ptr, line.len) == (ssize_t)line.len;
    sh_buf_reset(&line);
    state_set(c, put ? "running" : "failed",
              put ? SH_STR("") : SH_STR("the launcher does not read"));
}

static void order_take(sh_cluster_control *c, const cJSON *packet)
{
    const char *id = sh_json_text(packet, "id"), *what = sh_json_text(packet, "what");
    const char *host = sh_json_text(packet, "host");
    sh_change_order order;
    sh_buf line = {0};
    sh_err err;
    if (id == NULL || what == NULL) return;
    sh_buf_addf(&line, "%s %s%s%s", id, what, host == NULL ? "" : " ", host == NULL ? "" : host);
    if (c->why != NULL)
        refuse(c, id, 501, c->why);
    else if (sh_change_parse(sh_buf_str(&line), &order, &err) != SH_OK)
        refuse(c, id, 400, err.text);
    else if (is_running(c))
        refuse(c, id, 409, "another change of the cluster is running; try again when it has ended");
    else
        order_pass(c, &order);
    sh_buf_reset(&line);
}

static void packet_take(sh_cluster_control *c, sh_str text)
{
    cJSON *packet = NULL;
    sh_err err;
    if (sh_json_parse(text, "the API", &packet, &err) != SH_OK) {
        SH_LOGW("%s", err.text);
        return;
    }
    const char *what = sh_json_text(packet, "do");
    if (what != NULL && strcmp(what, "hello") == 0) state_send(c);
    if (what != NULL && strcmp(what, "change") == 0) order_take(c, packet);
    cJSON_Delete(packet);
}

/* "removed 2 5": all of them, each time. */
static void removed_take(sh_cluster_control *c, sh_str numbers)
{
    sh_str word;
    int64_t number;
    c->removed = 0;
    while (sh_str_cut(&numbers, ' ', &word))
        if (sh_str_to_int(word, &number) && number > 0 && number < SH_RANKS_MAX)
            c->removed |= UINT64_C(1) << number;
    state_send(c);
}

/* "ID done TEXT". A server that was restarted meanwhile does not know the change, but tells how it
 * has ended. */
static void told_take(sh_cluster_control *c, sh_str line)
{
    sh_str rest = line, id, how;
    if (!sh_str_cut(&rest, ' ', &id)) return;
    if (sh_str_is(id, SH_LAUNCH_REMOVED)) {
        removed_take(c, rest);
        return;
    }
    if (!sh_str_cut(&rest, ' ', &how)) return;
    if (!sh_str_is(id, c->id)) {
        snprintf(c->id, sizeof(c->id), "%.*s", (int)id.len, id.ptr);
        c->what[0] = c->host[0] = '\0';
    }
    state_set(c, sh_str_is(how, "done") ? "done" : "failed", rest);
}

static void launcher_read(sh_cluster_control *c)
{
    char bytes[PACKET_MAX];
    ssize_t got = c->launcher < 0 ? 0 : read(c->launcher, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] != '\n') {
            if (c->in.len < PACKET_MAX) sh_buf_add_char(&c->in, bytes[i]);
            continue;
        }
        told_take(c, sh_buf_str(&c->in));
        sh_buf_clear(&c->in);
    }
}

void sh_cluster_control_poll(sh_cluster_control *c)
{
    char bytes[PACKET_MAX];
    ssize_t got = recv(c->ends[0], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) packet_take(c, (sh_str){bytes, (size_t)got});
    launcher_read(c);
    if (is_running(c) && sh_deadline_passed(c->limit))
        state_set(c, "failed", SH_STR("the launcher has not answered"));
}
