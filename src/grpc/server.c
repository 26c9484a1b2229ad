/* Accepting connections, and the limits over all of them. One timer checks the deadlines of all
 * sessions and calls, often enough for the deadlines of clients. */
#include "grpc/server.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "grpc/session.h"
#include "http/listeners.h"
#include "http/loop_event.h"
#include "http/peers.h"

#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_MS = 50, PAUSE_MS = 100 };

struct sh_grpc_server {
    sh_loop *loop;
    sh_grpc_server_opts opts;
    struct evconnlistener *listeners[SH_LISTENERS_MAX];
    int listener_count;
    int port;
    sh_grpc_session *sessions;
    sh_grpc_session *retired;
    int session_count;
    sh_trigger *check;
    sh_trigger *reap;   /* frees retired sessions */
    sh_trigger *resume; /* listens again after running out of descriptors */
    bool draining;
    uint64_t id_base; /* random, so that ids differ between runs */
    uint64_t id_count;
    int call_count;
    size_t body_bytes; /* held by the messages of all calls */
    sh_http_peers peers;
};

const sh_grpc_server_opts *sh_grpc_server_opts_of(const sh_grpc_server *server)
{
    return &server->opts;
}

bool sh_grpc_server_draining(const sh_grpc_server *server)
{
    return server->draining;
}

int sh_grpc_server_port(const sh_grpc_server *server)
{
    return server->port;
}

int sh_grpc_server_connections(const sh_grpc_server *server)
{
    return server->session_count;
}

void sh_grpc_server_set_keys(sh_grpc_server *server, const sh_http_keys *keys)
{
    server->opts.keys = keys;
}

void sh_grpc_server_new_id(sh_grpc_server *server, char out[SH_HTTP_ID_MAX + 1])
{
    /* Multiplying by an odd number is a bijection, so ids of one run do not repeat. */
    uint64_t mixed = server->id_base + server->id_count++ * UINT64_C(0x9E3779B97F4A7C15);
    snprintf(out, SH_HTTP_ID_MAX + 1, "req_%016llx", (unsigned long long)mixed);
}

int64_t sh_grpc_server_token_failed(sh_grpc_server *server, const sh_grpc_session *session)
{
    return sh_http_peers_failed(&server->peers, session->peer_id, session->peer, sh_clock_ns());
}

bool sh_grpc_server_call_take(sh_grpc_server *server)
{
    if (server->call_count >= server->opts.all_calls_max) return false;
    server->call_count++;
    return true;
}

void sh_grpc_server_call_release(sh_grpc_server *server)
{
    server->call_count--;
}

/* The subtraction cannot wrap: body_bytes never exceeds the limit. */
bool sh_grpc_server_body_take(sh_grpc_server *server, size_t more)
{
    if (more > server->opts.bodies_bytes_max - server->body_bytes) return false;
    server->body_bytes += more;
    return true;
}

void sh_grpc_server_body_release(sh_grpc_server *server, size_t bytes)
{
    server->body_bytes -= bytes;
}

static void list_remove(sh_grpc_session **head, sh_grpc_session *session)
{
    if (session->prev != NULL)
        session->prev->next = session->next;
    else
        *head = session->next;
    if (session->next != NULL) session->next->prev = session->prev;
    session->prev = session->next = NULL;
}

static void list_add(sh_grpc_session **head, sh_grpc_session *session)
{
    session->prev = NULL;
    session->next = *head;
    if (*head != NULL) (*head)->prev = session;
    *head = session;
}

void sh_grpc_server_retire(sh_grpc_server *server, sh_grpc_session *session)
{
    list_remove(&server->sessions, session);
    list_add(&server->retired, session);
    server->session_count--;
    sh_trigger_start(server->reap, 0);
}

static void retired_free(void *arg)
{
    sh_grpc_server *server = arg;
    while (server->retired != NULL) {
        sh_grpc_session *session = server->retired;
        list_remove(&server->retired, session);
        sh_grpc_session_free(session);
    }
}

static void times_check(void *arg)
{
    sh_grpc_server *server = arg;
    for (sh_grpc_session *session = server->sessions, *next; session != NULL; session = next) {
        next = session->next;
        sh_grpc_session_check_time(session);
    }
    sh_trigger_start(server->check, CHECK_MS);
}

/* The session that has been without a call for longest; NULL: all are busy. */
static sh_grpc_session *idlest(const sh_grpc_server *server)
{
    sh_grpc_session *best = NULL;
    for (sh_grpc_session *session = server->sessions; session != NULL; session = session->next)
        if (session->call_count == 0 && (best == NULL || session->idle_ns < best->idle_ns))
            best = session;
    return best;
}

/* A full server closes a connection that nobody uses; if there is none, the new one is closed. */
static bool room_make(const sh_grpc_server *server)
{
    if (server->session_count < server->opts.connections_max) return true;
    sh_grpc_session *idle = idlest(server);
    if (idle != NULL) sh_grpc_session_close(idle);
    return idle != NULL;
}

void sh_grpc_server_take(sh_grpc_server *server, int fd, const char *peer, uint64_t peer_id)
{
    int on = 1;
    struct bufferevent *bev = NULL;
    if (room_make(server))
        bev = bufferevent_socket_new(sh_loop_base(server->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) {
        SH_LOGW("grpc: %d connections are open and busy, refusing one of %s", server->session_count,
                peer);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    list_add(&server->sessions, sh_grpc_session_create(server, server->loop, bev, peer, peer_id));
    server->session_count++;
    sh_grpc_session_output_due(server->sessions);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *addr,
                      int addr_len, void *arg)
{
    (void)listener;
    char peer[SH_HTTP_PEER_MAX] = "";
    getnameinfo(addr, (socklen_t)addr_len, peer, sizeof(peer), NULL, 0, NI_NUMERICHOST);
    sh_grpc_server_take(arg, fd, peer, sh_http_peer_of(addr));
}

static void listeners_set(sh_grpc_server *server, bool on)
{
    for (int i = 0; i < server->listener_count; i++) {
        if (on)
            evconnlistener_enable(server->listeners[i]);
        else
            evconnlistener_disable(server->listeners[i]);
    }
}

/* Most likely the process is out of descriptors: accepting would fail again at once and the loop
 * would spin, so pause. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    (void)listener;
    sh_grpc_server *server = arg;
    SH_LOGW("grpc: accept: %s", strerror(errno));
    listeners_set(server, false);
    sh_trigger_start(server->resume, PAUSE_MS);
}

static void on_resume(void *arg)
{
    sh_grpc_server *server = arg;
    if (!server->draining) listeners_set(server, true);
}

static sh_status listen_all(sh_grpc_server *server, sh_err *err)
{
    sh_listeners sockets;
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC;
    sh_status status = sh_listeners_adopt(server->opts.inherited, &sockets, err);
    if (status != SH_OK) return status;
    for (int i = 0; i < sockets.count; i++) {
        struct evconnlistener *listener = evconnlistener_new(sh_loop_base(server->loop), on_accept,
                                                             server, flags, 0, sockets.fds[i]);
        if (listener == NULL) return sh_err_set(err, SH_ERR_SYSTEM, "cannot watch a socket");
        evconnlistener_set_error_cb(listener, on_accept_error);
        server->listeners[server->listener_count++] = listener;
    }
    server->port = sockets.port;
    return SH_OK;
}

sh_status sh_grpc_server_open(sh_loop *loop, const sh_grpc_server_opts *opts, sh_grpc_server **out,
                              sh_err *err)
{
    sh_grpc_server *server = sh_alloc(sizeof(*server));
    server->loop = loop;
    server->opts = *opts;
    server->check = sh_trigger_timer(loop, times_check, server);
    server->reap = sh_trigger_timer(loop, retired_free, server);
    server->resume = sh_trigger_timer(loop, on_resume, server);
    if (sh_random_bytes(&server->id_base, sizeof(server->id_base), err) == SH_OK &&
        listen_all(server, err) == SH_OK) {
        sh_trigger_start(server->check, CHECK_MS);
        *out = server;
        return SH_OK;
    }
    sh_grpc_server_close(server);
    return err->status;
}

void sh_grpc_server_drain(sh_grpc_server *server)
{
    server->draining = true;
    listeners_set(server, false);
    for (sh_grpc_session *session = server->sessions, *next; session != NULL; session = next) {
        next = session->next;
        sh_grpc_session_leave(session, NGHTTP2_NO_ERROR);
    }
}

void sh_grpc_server_close(sh_grpc_server *server)
{
    if (server == NULL) return;
    while (server->sessions != NULL) sh_grpc_session_close(server->sessions);
    retired_free(server);
    for (int i = 0; i < server->listener_count; i++) evconnlistener_free(server->listeners[i]);
    sh_trigger_free(server->check);
    sh_trigger_free(server->reap);
    sh_trigger_free(server->resume);
    free(server);
}
