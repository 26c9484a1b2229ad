#include "cluster/model_hosts.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "net/acceptor.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDSHAKE_MS = 10000 };

typedef struct {
    bool known;
    uint8_t node[SH_NODE_ID_LEN], machine[SH_HOST_ID_LEN];
    uint32_t rank;
    sh_model_link link;
    bool here; /* it has said who it is */
    char name[SH_ERR_TEXT_MAX];
    double memory;
} worker;

struct sh_model_hosts {
    sh_model_hosts_hooks hooks;
    sh_tls *tls;
    sh_addr addr;
    sh_acceptor *acceptor;
    worker workers[SH_MODEL_HOSTS_MAX]; /* the first stays unused: it would be this host */
};

static sh_status address_check(const sh_addr *addr, const char *token, bool insecure, sh_err *err)
{
    char text[SH_ADDR_TEXT_MAX];
    if (token != NULL || insecure || sh_addr_is_loopback(addr)) return SH_OK;
    sh_addr_format(addr, text);
    return sh_err_set(err, SH_ERR_AUTH,
                      "%s is not loopback: workers on other machines need a cluster token (`shoal "
                      "token` makes one) or --insecure",
                      text);
}

sh_status sh_model_hosts_open(const char *address, const char *token, bool insecure,
                              const sh_model_hosts_hooks *hooks, sh_model_hosts **out, sh_err *err)
{
    sh_model_hosts *h = sh_alloc(sizeof(*h));
    int count;
    h->hooks = *hooks;
    sh_status status = sh_addr_resolve(address, 1, &h->addr, &count, err);
    if (status == SH_OK) status = address_check(&h->addr, token, insecure, err);
    if (status == SH_OK && token != NULL) status = sh_tls_create(token, &h->tls, err);
    if (status == SH_OK)
        status = sh_acceptor_open(&h->addr, 1, h->tls, HANDSHAKE_MS, &h->acceptor, err);
    if (status != SH_OK) {
        sh_model_hosts_close(h);
        return status;
    }
    *out = h;
    return SH_OK;
}

void sh_model_hosts_close(sh_model_hosts *h)
{
    if (h == NULL) return;
    for (int i = 1; i < SH_MODEL_HOSTS_MAX; i++) sh_model_link_close(&h->workers[i].link);
    sh_acceptor_close(h->acceptor);
    sh_tls_free(h->tls);
    free(h);
}

sh_status sh_model_hosts_listen(const sh_model_hosts *h, int *fd, sh_addr *at, sh_err *err)
{
    sh_addr addr = h->addr;
    sh_addr_set_port(&addr, 0);
    sh_status status = sh_sock_listen(&addr, fd, err);
    if (status != SH_OK) return status;
    status = sh_sock_local(*fd, at, err);
    if (status != SH_OK) sh_sock_close(*fd);
    return status;
}

bool sh_model_hosts_here(const sh_model_hosts *h, int host)
{
    return host > 0 && host < SH_MODEL_HOSTS_MAX && h->workers[host].here;
}

int sh_model_hosts_count(const sh_model_hosts *h)
{
    int count = 0;
    for (int i = 1; i < SH_MODEL_HOSTS_MAX; i++) count += h->workers[i].here;
    return count;
}

const char *sh_model_hosts_name(const sh_model_hosts *h, int host)
{
    return h->workers[host].name;
}

double sh_model_hosts_memory(const sh_model_hosts *h, int host)
{
    return h->workers[host].memory;
}

uint32_t sh_model_hosts_rank(const sh_model_hosts *h, int host)
{
    return h->workers[host].rank;
}

void sh_model_hosts_send(sh_model_hosts *h, int host, const sh_model_message *message)
{
    sh_model_link_send(&h->workers[host].link, message);
}

static void worker_lose(sh_model_hosts *h, int host, const char *why)
{
    worker *w = &h->workers[host];
    bool was = w->here;
    SH_LOGW("the worker at %s is gone: %s", sh_peer_conn_name(w->link.conn), why);
    sh_model_link_close(&w->link);
    w->here = false;
    if (was) h->hooks.went(h->hooks.arg, host);
}

/* The place of a worker: the one that it had, else that of one which is gone from the same machine,
 * else a free one; -1: there is none. */
static int place_of(const sh_model_hosts *h, const sh_hello *theirs)
{
    int empty = -1, left = -1;
    for (int i = SH_MODEL_HOSTS_MAX - 1; i > 0; i--) {
        const worker *w = &h->workers[i];
        if (w->known && memcmp(w->node, theirs->node, sizeof(w->node)) == 0) return i;
        if (w->known && w->link.conn == NULL &&
            memcmp(w->machine, theirs->host, sizeof(w->machine)) == 0)
            left = i;
        if (!w->known) empty = i;
    }
    return left >= 0 ? left : empty;
}

static const char *misfit(const sh_hello *theirs, int host)
{
    if (theirs->protocol != SH_PEER_PROTOCOL || strcmp(theirs->version, sh_version()) != 0)
        return "it is another version of Shoal than the server";
    if (theirs->use != SH_USE_MODELS)
        return "this server has several models: start the worker with --models-dir DIR, which may "
               "be "
               "empty";
    return host < 0 ? "there are too many workers" : NULL;
}

static void admit(sh_model_hosts *h, sh_peer_conn *conn)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    int host = place_of(h, theirs);
    const char *why = misfit(theirs, host);
    if (why != NULL) {
        sh_notice notice;
        sh_notice_set(&notice, -1, why);
        sh_acceptor_note_refusal(h->acceptor, conn, why);
        sh_peer_conn_refuse(conn, SH_FRAME_REFUSE, &notice);
        sh_peer_conn_close(conn);
        return;
    }
    worker *w = &h->workers[host];
    if (w->link.conn != NULL) worker_lose(h, host, "it has connected again");
    w->known = true;
    w->rank = theirs->rank;
    memcpy(w->node, theirs->node, sizeof(w->node));
    memcpy(w->machine, theirs->host, sizeof(w->machine));
    sh_hello mine = {.protocol = SH_PEER_PROTOCOL, .use = SH_USE_MODELS};
    snprintf(mine.version, sizeof(mine.version), "%s", sh_version());
    sh_peer_conn_welcome(conn, &mine);
    sh_model_link_open(&w->link, conn);
}

static void message_take(sh_model_hosts *h, int host, const sh_model_message *message)
{
    worker *w = &h->workers[host];
    if (message->kind == SH_MODEL_HOST) {
        snprintf(w->name, sizeof(w->name), "%s", message->text);
        w->memory = message->memory;
        w->here = true;
        SH_LOGI("the worker on %s is here, with %.1f GiB for models", w->name,
                w->memory / (1024.0 * 1024.0 * 1024.0));
        h->hooks.came(h->hooks.arg, host);
    } else if (w->here) {
        h->hooks.said(h->hooks.arg, host, message);
    }
}

void sh_model_hosts_poll(sh_model_hosts *h)
{
    sh_peer_conn *conn;
    sh_model_message message;
    sh_err err;
    while (sh_acceptor_step(h->acceptor, &conn, &err) == SH_OK) admit(h, conn);
    for (int i = 1; i < SH_MODEL_HOSTS_MAX; i++) {
        worker *w = &h->workers[i];
        sh_status status = SH_AGAIN;
        while (w->link.conn != NULL &&
               (status = sh_model_link_step(&w->link, &message, &err)) == SH_OK)
            message_take(h, i, &message);
        if (w->link.conn != NULL && status < 0) worker_lose(h, i, err.text);
    }
}
