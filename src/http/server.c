/* Accepting connections, and the limits over all of them.
 *
 * The server is meant to stay reachable for its users while strangers misbehave. A full server does
 * not turn newcomers away: it first closes a connection that only waits (evict_one), so that idle
 * or slow connections cannot block it. One address may hold only part of all connections. Only if
 * every connection is busy are the listeners switched off; new ones then wait in the kernel's
 * backlog.
 *
 * One timer checks the deadlines of all connections four times a second, so a connection needs no
 * timer of its own that would have to be moved with every state.
 *
 * Closed connections are freed from the loop and not where they are closed, since callers further
 * up the stack may still hold them. */
#include "http/server.h"

#include "base/alloc.h"
#include "base/log.h"
#include "http/conn.h"
#include "http/http_acceptor.h"
#include "http/ids.h"
#include "http/loop_event.h"
#include "http/peers.h"

#include <arpa/inet.h>
#include <event2/bufferevent_ssl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CHECK_MS = 250,
    PEER_LEAST = 16,     /* connections that any address may have */
    PEER_LOG_MS = 10000, /* between two warnings about addresses with too many connections */
    MACHINE_NAME_MAX = 256,
};

struct sh_http_server {
    sh_loop *loop;
    sh_http_server_opts opts;
    sh_http_acceptor *acceptor;
    sh_http_conn *conns;
    sh_http_conn *retired;
    int conn_count;
    sh_trigger *check; /* checks the deadlines of all connections */
    sh_trigger *reap;  /* frees retired connections */
    bool draining;
    sh_http_ids ids;
    size_t body_bytes; /* held by the bodies of all requests */
    char machine[MACHINE_NAME_MAX];
    sh_http_peers peers;
    sh_deadline peer_log_next; /* no warning about a full address before this */
};

const sh_http_server_opts *sh_http_server_opts_of(const sh_http_server *server)
{
    return &server->opts;
}

bool sh_http_server_draining(const sh_http_server *server)
{
    return server->draining;
}

int sh_http_server_port(const sh_http_server *server)
{
    return sh_http_acceptor_port(server->acceptor);
}

int sh_http_server_connections(const sh_http_server *server)
{
    return server->conn_count;
}

void sh_http_server_set_keys(sh_http_server *server, const sh_http_keys *keys)
{
    server->opts.keys = keys;
}

void sh_http_server_new_id(sh_http_server *server, char out[SH_HTTP_ID_MAX + 1])
{
    sh_http_ids_next(&server->ids, out);
}

const char *sh_http_server_machine(const sh_http_server *server)
{
    return server->machine;
}

int64_t sh_http_server_key_failed(sh_http_server *server, const sh_http_conn *conn)
{
    return sh_http_peers_failed(&server->peers, conn->peer_id, conn->peer, sh_clock_ns());
}

/* The subtraction cannot wrap: body_bytes never exceeds the limit. */
bool sh_http_server_body_take(sh_http_server *server, size_t more)
{
    if (more > server->opts.bodies_bytes_max - server->body_bytes) return false;
    server->body_bytes += more;
    return true;
}

void sh_http_server_body_release(sh_http_server *server, size_t bytes)
{
    server->body_bytes -= bytes;
}

static void list_remove(sh_http_conn **head, sh_http_conn *conn)
{
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        *head = conn->next;
    if (conn->next != NULL) conn->next->prev = conn->prev;
    conn->prev = conn->next = NULL;
}

static void list_add(sh_http_conn **head, sh_http_conn *conn)
{
    conn->prev = NULL;
    conn->next = *head;
    if (*head != NULL) (*head)->prev = conn;
    *head = conn;
}

void sh_http_server_retire(sh_http_server *server, sh_http_conn *conn)
{
    list_remove(&server->conns, conn);
    list_add(&server->retired, conn);
    server->conn_count--;
    sh_trigger_start(server->reap, 0);
}

static bool is_full(const sh_http_server *server)
{
    return server->conn_count >= server->opts.connections_max;
}

static void retired_free(sh_http_server *server)
{
    while (server->retired != NULL) {
        sh_http_conn *conn = server->retired;
        list_remove(&server->retired, conn);
        sh_http_conn_free(conn);
    }
}

static void on_reap(void *arg)
{
    sh_http_server *server = arg;
    retired_free(server);
    if (!is_full(server)) sh_http_acceptor_set(server->acceptor, true);
}

/* Closes a connection that is waiting for its client, if there is one: see sh_http_conn_worth.
 * `peer`: only those of this address; NULL: any. */
static bool evict_one(sh_http_server *server, const uint64_t *peer)
{
    sh_http_conn *best = NULL;
    for (sh_http_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        int worth = sh_http_conn_worth(conn),
            best_worth = best == NULL ? INT_MAX : sh_http_conn_worth(best);
        if (worth < 0 || worth > best_worth || (peer != NULL && conn->peer_id != *peer)) continue;
        if (worth < best_worth || sh_http_conn_since_ns(conn) < sh_http_conn_since_ns(best))
            best = conn;
    }
    if (best == NULL) return false;
    sh_http_conn_close(best);
    return true;
}

static void times_check(void *arg)
{
    sh_http_server *server = arg;
    for (sh_http_conn *conn = server->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        sh_http_conn_check_time(conn);
    }
    /* All were busy when the listeners were switched off; one may be idle by now. */
    if (!sh_http_acceptor_is_on(server->acceptor) && !server->draining && is_full(server))
        evict_one(server, NULL);
    sh_trigger_start(server->check, CHECK_MS);
}

static bool addr_is_loopback(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
}

/* By default loopback has no limit: proxies and tunnels on this machine carry the connections of
 * many clients. */
static int peer_connections_max(const sh_http_server *server, const struct sockaddr *addr)
{
    int quarter = server->opts.connections_max / 4;
    if (server->opts.peer_connections_max > 0) return server->opts.peer_connections_max;
    if (addr_is_loopback(addr)) return INT_MAX;
    return quarter < PEER_LEAST ? PEER_LEAST : quarter;
}

/* True if the address has reached its limit and none of its connections can be closed. */
static bool peer_is_full(sh_http_server *server, const struct sockaddr *addr, const char *address)
{
    uint64_t peer = sh_http_peer_of(addr);
    int count = 0, most = peer_connections_max(server, addr);
    for (const sh_http_conn *conn = server->conns; conn != NULL; conn = conn->next)
        count += conn->peer_id == peer;
    if (count < most || evict_one(server, &peer)) return false;
    if (sh_deadline_passed(server->peer_log_next))
        SH_LOGW("http: %s has %d connections, refusing more from there (--peer-connections)",
                address, count);
    server->peer_log_next = sh_deadline_in_ms(PEER_LOG_MS);
    return true;
}

static struct bufferevent *bufferevent_for(sh_http_server *server, evutil_socket_t fd)
{
    struct event_base *base = sh_loop_base(server->loop);
    if (server->opts.tls == NULL) return bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = sh_http_tls_session(server->opts.tls);
    if (ssl == NULL) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) SSL_free(ssl);
    /* Many clients close without TLS's close_notify; treat that as end of input, not as an error.
     */
    if (bev != NULL) bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

/* The limit per address is checked before the total: one address must not make others be evicted. A
 * server that cannot evict anybody still takes this connection, since it has been accepted already,
 * and then stops listening. */
static void on_accept(void *ctx, int fd, const struct sockaddr *addr, const char *peer)
{
    sh_http_server *server = ctx;
    int on = 1;
    if (peer_is_full(server, addr, peer)) {
        close(fd);
        return;
    }
    if (is_full(server) && !evict_one(server, NULL)) {
        SH_LOGW("http: %d connections are open, accepting no more for now", server->conn_count);
        sh_http_acceptor_set(server->acceptor, false);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct bufferevent *bev = bufferevent_for(server, fd);
    if (bev == NULL) {
        close(fd);
        return;
    }
    list_add(&server->conns, sh_http_conn_create(server, bev, peer, sh_http_peer_of(addr)));
    server->conn_count++;
}

static void on_starved(void *ctx)
{
    evict_one(ctx, NULL);
}

/* Listens on sockets of its own, or on those that it was lent. */
static sh_status listen_all(sh_http_server *server, sh_err *err)
{
    const sh_http_server_opts *opts = &server->opts;
    const sh_http_acceptor_events events = {"http", on_accept, on_starved, server};
    sh_listeners sockets;
    sh_status status = opts->inherited != NULL
                           ? sh_listeners_adopt(opts->inherited, &sockets, err)
                           : sh_listeners_open(opts->host, opts->port, &sockets, err);
    if (status != SH_OK) return status;
    return sh_http_acceptor_open(server->loop, &sockets, &events, &server->acceptor, err);
}

sh_status sh_http_server_open(sh_loop *loop, const sh_http_server_opts *opts, sh_http_server **out,
                              sh_err *err)
{
    sh_http_server *server = sh_alloc(sizeof(*server));
    server->loop = loop;
    server->opts = *opts;
    gethostname(server->machine, sizeof(server->machine) - 1);
    server->check = sh_trigger_timer(loop, times_check, server);
    server->reap = sh_trigger_timer(loop, on_reap, server);
    if (sh_http_ids_init(&server->ids, err) == SH_OK && listen_all(server, err) == SH_OK) {
        sh_trigger_start(server->check, CHECK_MS);
        *out = server;
        return SH_OK;
    }
    sh_http_server_close(server);
    return err->status;
}

void sh_http_server_accept(sh_http_server *server, bool on)
{
    sh_http_acceptor_set(server->acceptor, on);
}

void sh_http_server_refuse(sh_http_server *server)
{
    sh_http_acceptor_refuse(server->acceptor);
}

/* Idle connections are closed now; all others after the answer that they are waiting for. */
void sh_http_server_drain(sh_http_server *server)
{
    server->draining = true;
    sh_http_acceptor_end(server->acceptor);
    for (sh_http_conn *conn = server->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        if (conn->state == CONN_HEAD && conn->req.start_ns == 0 &&
            evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0)
            sh_http_conn_close(conn);
        else
            conn->req.head.keep_alive = false;
    }
}

void sh_http_server_close(sh_http_server *server)
{
    if (server == NULL) return;
    while (server->conns != NULL) sh_http_conn_close(server->conns);
    sh_http_acceptor_close(server->acceptor);
    retired_free(server);
    sh_trigger_free(server->check);
    sh_trigger_free(server->reap);
    free(server);
}

bool sh_http_is_loopback(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *infos = NULL;
    if (getaddrinfo(host, NULL, &hints, &infos) != 0) return false;
    bool loopback = infos != NULL;
    for (struct addrinfo *info = infos; info != NULL; info = info->ai_next)
        loopback = loopback && addr_is_loopback(info->ai_addr);
    freeaddrinfo(infos);
    return loopback;
}
