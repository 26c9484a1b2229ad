/* Accepting connections, and the limits over all of them. One timer checks the deadlines of all
 * sessions and calls, often enough for the deadlines of clients. */
#include "grpc/server.h"

#include "base/alloc.h"
#include "base/log.h"
#include "grpc/session.h"
#include "http/http_acceptor.h"
#include "http/ids.h"
#include "http/loop_event.h"
#include "http/peers.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHECK_MS = 50 };

struct sh_grpc_server {
    sh_loop *loop;
    sh_grpc_server_opts opts;
    sh_http_acceptor *acceptor;
    sh_grpc_session *sessions;
    sh_grpc_session *retired;
    int session_count;
    sh_trigger *check;
    sh_trigger *reap; /* frees retired sessions */
    bool draining;
    sh_http_ids ids;
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
    return sh_http_acceptor_port(server->acceptor);
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
    sh_http_ids_next(&server->ids, out);
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

static void on_accept(void *ctx, int fd, const struct sockaddr *addr, const char *peer)
{
    sh_grpc_server_take(ctx, fd, peer, sh_http_peer_of(addr));
}

static sh_status listen_all(sh_grpc_server *server, sh_err *err)
{
    const sh_http_acceptor_events events = {"grpc", on_accept, NULL, server};
    sh_listeners sockets;
    sh_status status = sh_listeners_adopt(server->opts.inherited, &sockets, err);
    if (status != SH_OK) return status;
    return sh_http_acceptor_open(server->loop, &sockets, &events, &server->acceptor, err);
}

sh_status sh_grpc_server_open(sh_loop *loop, const sh_grpc_server_opts *opts, sh_grpc_server **out,
                              sh_err *err)
{
    sh_grpc_server *server = sh_alloc(sizeof(*server));
    server->loop = loop;
    server->opts = *opts;
    server->check = sh_trigger_timer(loop, times_check, server);
    server->reap = sh_trigger_timer(loop, retired_free, server);
    if (sh_http_ids_init(&server->ids, err) == SH_OK && listen_all(server, err) == SH_OK) {
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
    sh_http_acceptor_end(server->acceptor);
    for (sh_grpc_session *session = server->sessions, *next; session != NULL; session = next) {
        next = session->next;
        sh_grpc_session_leave(session, NGHTTP2_NO_ERROR);
    }
}

void sh_grpc_server_close(sh_grpc_server *server)
{
    if (server == NULL) return;
    while (server->sessions != NULL) sh_grpc_session_close(server->sessions);
    sh_http_acceptor_close(server->acceptor);
    retired_free(server);
    sh_trigger_free(server->check);
    sh_trigger_free(server->reap);
    free(server);
}
