/* The outer loop of joining: choose addresses, listen, run the steps of join.c until GO or the
 * deadline, then keep the connections and free the rest.
 *
 * One loop with poll() and short timeouts serves everything. Joining is not performance critical,
 * but no step may block, because during it any rank may fail, any stranger may connect, and every
 * rank has to notice both.
 *
 * A rank that reports a failure should name the right one. So rank 0, which knows who is missing,
 * has the earlier deadline; the others wait a little longer and repeat what it says. */
#include "net/mesh.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "net/cluster_token.h"
#include "net/interfaces.h"
#include "net/join.h"
#include "net/shm.h"
#include "net/sock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_MS = 20,          /* the longest sleep while joining, so that timers are checked */
    NOTE_FIRST_MS = 2000,  /* a rank that waits so long logs whom it waits for */
    NOTE_EVERY_MS = 10000, /* and then how often */
    CONNECT_MS = 5000,     /* one attempt to connect to a group that has formed */
};

void sh_mesh_opts_init(sh_mesh_opts *opts)
{
    *opts = (sh_mesh_opts){.size = 1,
                           .coordinator = "127.0.0.1:0",
                           .everywhere = -1,
                           .listen_fd = -1,
                           .group = "shoal",
                           .transports = sh_transports,
                           .lanes = 1,
                           .join_ms = 60000,
                           .handshake_ms = 5000};
}

static sh_status check_opts(const sh_mesh_opts *opts, sh_err *err)
{
    SH_ASSERT(opts->library == NULL || opts->wanted != NULL);
    bool added = opts->size == 0 && opts->rank > 0 && opts->rank <= SH_RANK_ANY;
    if (!added && (opts->size < 1 || opts->size > SH_RANKS_MAX))
        return sh_err_set(err, SH_ERR_INPUT, "world size %d: must be 1 to %d", opts->size,
                          SH_RANKS_MAX);
    if (!added && (opts->rank < 0 || opts->rank >= opts->size))
        return sh_err_set(err, SH_ERR_INPUT, "rank %d: must be 0 to %d in a group of %d",
                          opts->rank, opts->size - 1, opts->size);
    if (opts->lanes < 1 || opts->lanes > SH_LANES_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "%d pairs of sockets: must be 1 to %d", opts->lanes,
                          SH_LANES_MAX);
    if (strlen(opts->group) >= SH_GROUP_NAME_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "group name: longer than %d bytes",
                          SH_GROUP_NAME_MAX - 1);
    return SH_OK;
}

/* Both families; where there is no IPv6, IPv4 alone. */
static sh_status all_addrs(int port, sh_addr *addrs, int *count, sh_err *err)
{
    static const char *const hosts[] = {"0.0.0.0", "[::]"};
    sh_interfaces all;
    sh_status status = sh_interfaces_read(&all, err);
    *count = all.has_ipv6 ? 2 : 1;
    for (int i = 0; i < *count && status == SH_OK; i++) {
        char text[SH_ADDR_TEXT_MAX];
        snprintf(text, sizeof(text), "%s:%d", hosts[i], port);
        status = sh_addr_parse(text, &addrs[i], err);
    }
    return status;
}

/* Where this rank will listen. Without --listen, ranks other than 0 use the local address of their
 * route to the coordinator, whose name may take a while to resolve. */
static sh_status choose_addrs(const sh_join *join, sh_addr *addrs, int *count, sh_err *err)
{
    const sh_mesh_opts *opts = join->opts;
    if (opts->everywhere >= 0) return all_addrs(opts->everywhere, addrs, count, err);
    if (opts->listen_count > 0) {
        for (int i = 0; i < opts->listen_count; i++) {
            int one;
            sh_status status = sh_addr_resolve(opts->listen[i], 1, &addrs[i], &one, err);
            if (status != SH_OK) return status;
        }
        *count = opts->listen_count;
        return SH_OK;
    }
    sh_status status;
    const char *first = opts->coordinator;
    while ((status = sh_addr_resolve_list(first, SH_LANES_MAX, addrs, count, err)) < 0) {
        if (status == SH_ERR_INPUT || opts->rank == 0 || sh_deadline_passed(join->deadline))
            return sh_err_prefix(err, "coordinator");
        sh_sleep_ms(10 * STEP_MS);
    }
    if (opts->rank == 0) return SH_OK;
    sh_addr to = addrs[0];
    *count = 1;
    return sh_sock_route(&to, &addrs[0], err);
}

/* Without a token anybody who reaches the port could join: allowed on loopback only, or on request.
 */
static sh_status check_safe(const sh_mesh_opts *opts, const sh_addr *addrs, int count, sh_err *err)
{
    if (opts->token != NULL || opts->insecure) return SH_OK;
    for (int i = 0; i < count; i++) {
        if (sh_addr_is_loopback(&addrs[i])) continue;
        char text[SH_ADDR_TEXT_MAX];
        sh_addr_format(&addrs[i], text);
        return sh_err_set(err, SH_ERR_AUTH,
                          "%s is not loopback: ranks on several machines need a cluster token "
                          "(`shoal token` makes one) or --insecure",
                          text);
    }
    return SH_OK;
}

static sh_status open_acceptor(sh_join *join, sh_err *err)
{
    const sh_mesh_opts *opts = join->opts;
    sh_mesh *mesh = join->mesh;
    if (opts->listen_fd >= 0)
        return sh_acceptor_adopt(opts->listen_fd, mesh->tls, opts->handshake_ms, &mesh->acceptor,
                                 err);
    sh_addr addrs[SH_LANES_MAX];
    int count;
    sh_status status = choose_addrs(join, addrs, &count, err);
    if (status == SH_OK) status = check_safe(opts, addrs, count, err);
    if (status == SH_OK)
        status = sh_acceptor_open(addrs, count, mesh->tls, opts->handshake_ms, &mesh->acceptor,
                                  err);
    return status;
}

/* Whether there is a rank of this number that the others need. Until the table is known, that is up
 * to the roster of rank 0. */
static bool is_needed(const sh_join *join, int rank)
{
    if (join->table_known) return join->table.row[rank].addrs.count > 0;
    return join->opts->roster == NULL || sh_roster_expects(join->opts->roster, rank);
}

/* "1, 3": the ranks that we are waiting for. What counts as missing depends on the step: first no
 * control connection, then no channel, then, for rank 0, no READY. */
static void list_missing(const sh_join *join, sh_buf *out)
{
    for (int r = 0; r < join->mesh->size; r++) {
        const sh_mesh_peer *peer = &join->mesh->peer[r];
        bool here = peer->control != NULL && (!join->table_known || peer->channel != NULL) &&
                    (!join->ready_sent || join->mesh->rank != 0 || join->ready[r]);
        if (r == join->mesh->rank || here || !is_needed(join, r)) continue;
        sh_buf_addf(out, "%s%d", out->len > 0 ? ", " : "", r);
    }
}

/* Ranks other than 0 first wait for an answer to their own connections; why the last attempt failed
 * is what the user needs to know then. */
static void log_waiting(const sh_join *join)
{
    if (join->mesh->rank != 0 && join->attempt_count > 0) {
        SH_LOGI("waiting for rank %d at %s: %s", join->attempts[0].peer,
                join->attempts[0].connector.address, join->attempts[0].connector.last.text);
        return;
    }
    const sh_roster *roster = join->opts->roster;
    if (roster != NULL && roster->gathering) {
        SH_LOGI("waiting for ranks: %d here, besides this one",
                sh_roster_guests(roster, sh_clock_ns()));
        return;
    }
    sh_buf who = {0};
    list_missing(join, &who);
    if (who.len == 0)
        SH_LOGI("waiting for rank 0 to continue");
    else if (join->mesh->rank == 0 && !join->table_known)
        SH_LOGI("waiting for rank %s to connect to %s", who.ptr, join->opts->coordinator);
    else
        SH_LOGI("waiting for rank %s", who.ptr);
    sh_buf_reset(&who);
}

static sh_status timed_out(const sh_join *join, sh_err *err)
{
    double wait_s = join->opts->join_ms / 1000.0;
    if (join->mesh->rank != 0 && join->attempt_count > 0) {
        const sh_join_attempt *attempt = &join->attempts[0];
        bool other_token = attempt->connector.last.status == SH_ERR_AUTH;
        return sh_err_set(err, other_token ? SH_ERR_AUTH : SH_ERR_TIMEOUT,
                          "rank %d did not answer at %s within %g s: %s", attempt->peer,
                          attempt->connector.address, wait_s, attempt->connector.last.text);
    }
    sh_buf who = {0};
    list_missing(join, &who);
    const char *last = "";
    int refused = sh_acceptor_refused(join->mesh->acceptor, &last);
    if (refused > 0)
        sh_err_set(err, SH_ERR_PEER,
                   "the group did not form within %g s, missing rank %s; refused %d connections, "
                   "the last one %s",
                   wait_s, who.len > 0 ? who.ptr : "0", refused, last);
    else
        sh_err_set(err, SH_ERR_PEER, "the group did not form within %g s, missing rank %s", wait_s,
                   who.len > 0 ? who.ptr : "0");
    sh_buf_reset(&who);
    return err->status;
}

static void join_sleep(const sh_join *join)
{
    size_t cap = SH_ACCEPTOR_POLL_MAX + (size_t)join->mesh->size + (size_t)join->attempt_count;
    struct pollfd *fds = sh_alloc_array(cap, sizeof(*fds));
    int count = sh_acceptor_poll(join->mesh->acceptor, fds);
    for (int r = 0; r < join->mesh->size; r++)
        if (join->mesh->peer[r].control != NULL)
            fds[count++] = sh_peer_conn_poll(join->mesh->peer[r].control);
    for (int i = 0; i < join->attempt_count; i++)
        if (join->attempts[i].connector.conn != NULL)
            fds[count++] = sh_peer_conn_poll(join->attempts[i].connector.conn);
    poll(fds, (nfds_t)count,
         STEP_MS); /* the result does not matter, every step checks everything */
    free(fds);
}

static sh_status join_loop(sh_join *join, sh_err *err)
{
    sh_deadline note = sh_deadline_in_ms(NOTE_FIRST_MS);
    bool connecting = join->mesh->rank != 0;
    while (!join->go) {
        sh_status status = sh_join_step_controls(join, err);
        if (status == SH_OK) status = sh_join_step_acceptor(join, err);
        if (status == SH_OK) status = sh_join_step_attempts(join, err);
        if (status == SH_OK) status = sh_join_advance(join, err);
        if (status != SH_OK) return status;
        if (connecting && join->mesh->peer[0].control != NULL) {
            /* From here on rank 0 gives up first, and its notice says who was missing. */
            join->deadline = sh_deadline_in_ms((int64_t)join->opts->join_ms + 1000);
            connecting = false;
        }
        bool gathering = join->opts->roster != NULL && join->opts->roster->gathering;
        if (!join->go && !gathering && sh_deadline_passed(join->deadline))
            return timed_out(join, err);
        if (!join->go && sh_deadline_passed(note)) {
            log_waiting(join);
            note = sh_deadline_in_ms(NOTE_EVERY_MS);
        }
        if (!join->go) join_sleep(join);
    }
    return SH_OK;
}

static void hello_set(const sh_mesh_opts *opts, sh_hello *hello)
{
    hello->protocol = SH_PEER_PROTOCOL;
    hello->rank = (uint32_t)opts->rank;
    hello->world = (uint32_t)opts->size;
    hello->lanes = (uint8_t)opts->lanes;
    hello->plain_data = opts->plain_data;
    hello->use = SH_USE_JOIN;
    snprintf(hello->version, sizeof(hello->version), "%s", sh_version());
    snprintf(hello->group, sizeof(hello->group), "%s", opts->group);
    memcpy(hello->model, opts->model, SH_MODEL_ID_LEN);
    memcpy(hello->node, opts->node, SH_NODE_ID_LEN);
    hello->life = opts->life;
    sh_host_id(hello->host);
}

static void join_start(sh_join *join)
{
    const sh_mesh_opts *opts = join->opts;
    join->deadline = sh_deadline_in_ms(opts->join_ms);
    join->without_at = SH_DEADLINE_NEVER;
    join->at_fault = -1;
    hello_set(opts, &join->hello);
    join->attempts = sh_alloc_array(1, sizeof(*join->attempts));
    if (opts->roster != NULL) sh_roster_begin(opts->roster);
}

/* Frees what was not handed over to the mesh: after a failure that may be anything. */
static void join_end(sh_join *join)
{
    for (int i = 0; i < join->attempt_count; i++) sh_connector_reset(&join->attempts[i].connector);
    for (int r = 0; r < SH_RANKS_MAX; r++) sh_pairing_reset(&join->pairing[r]);
    free(join->attempts);
    free(join);
}

static void count_local(const sh_join *join)
{
    for (int r = 0; r < join->mesh->size; r++)
        if (join->pairing[r].pair.same_host) join->mesh->local_count++;
}

static sh_status form(const sh_mesh_opts *opts, sh_mesh *mesh, sh_err *err)
{
    sh_join *join = sh_alloc(sizeof(*join));
    join->opts = opts;
    join->mesh = mesh;
    join_start(join);
    sh_status status = open_acceptor(join, err);
    if (status == SH_OK) {
        if (mesh->rank != 0) sh_join_connect_coordinator(join);
        status = join_loop(join, err);
        if (status != SH_OK) sh_join_abort_all(join, err);
    }
    if (status == SH_OK) count_local(join);
    if (status == SH_OK) sh_join_addresses(join, 0, &mesh->coordinator);
    if (status == SH_OK && mesh->rank == 0 && opts->wanted != NULL && opts->wanted->clear_text)
        SH_LOGI("data between ranks travels unencrypted, over %s", opts->wanted->title);
    mesh->epoch = join->table.epoch;
    mesh->left = join->table.left;
    mesh->hello = join->hello;
    join_end(join);
    return status;
}

sh_status sh_mesh_join(const sh_mesh_opts *opts, sh_mesh **out, sh_err *err)
{
    sh_status status = check_opts(opts, err);
    if (status != SH_OK) return status;
    sh_mesh *mesh = sh_alloc(sizeof(*mesh));
    mesh->rank = opts->rank;
    mesh->size = opts->size > 0 ? opts->size : 1;
    mesh->grows = opts->roster != NULL;
    if (mesh->grows) mesh->size = SH_RANKS_MAX; /* until it is known who is there */
    if (opts->token != NULL) status = sh_tls_create(opts->token, &mesh->tls, err);
    if (status == SH_OK && (opts->size != 1 || mesh->grows)) {
        status = form(opts, mesh, err);
    } else if (status == SH_OK) {
        mesh->epoch = 1;
        mesh->local_count = 1;
    }
    if (status != SH_OK) {
        sh_mesh_close(mesh);
        return status;
    }
    *out = mesh;
    return SH_OK;
}

void sh_mesh_close(sh_mesh *mesh)
{
    if (mesh == NULL) return;
    for (int r = 0; r < mesh->size; r++) {
        sh_peer_conn_close(mesh->peer[r].control);
        sh_channel_close(mesh->peer[r].channel);
    }
    sh_acceptor_close(mesh->acceptor);
    sh_tls_free(mesh->tls);
    free(mesh);
}

static void connect_sleep(const sh_connector *connector, int stop_fd)
{
    struct pollfd fds[2] = {{.fd = stop_fd, .events = POLLIN}, {.fd = -1}};
    if (connector->conn != NULL) fds[1] = sh_peer_conn_poll(connector->conn);
    poll(fds, 2, STEP_MS);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Opens a connection for weights with this hello, and waits for its welcome. */
static sh_status weights_connect(const char *address, sh_tls *tls, sh_hello *hello, int stop_fd,
                                 sh_deadline deadline, sh_stream *out, sh_err *err)
{
    sh_connector connector;
    sh_status status;
    hello->use = SH_USE_WEIGHTS;
    sh_connector_init(&connector, address, tls, hello, CONNECT_MS);
    while ((status = sh_connector_step(&connector, err)) == SH_AGAIN) {
        if (is_readable(stop_fd))
            status = sh_err_set(err, SH_ERR_GROUP, "the group has ended");
        else if (sh_deadline_passed(deadline))
            status = sh_err_set(err, SH_ERR_TIMEOUT, "rank 0 did not answer at %s: %s", address,
                                connector.last.text);
        if (status != SH_AGAIN) break;
        connect_sleep(&connector, stop_fd);
    }
    if (status == SH_OK) *out = sh_peer_conn_release(sh_connector_take(&connector));
    if (status == SH_OK && hello->plain_data) sh_stream_end_tls(out);
    sh_connector_reset(&connector);
    return status;
}

sh_status sh_mesh_connect(const sh_mesh *mesh, int index, int stop_fd, sh_deadline deadline,
                          sh_stream *out, sh_err *err)
{
    sh_hello hello = mesh->hello;
    int lanes = mesh->coordinator.count < hello.lanes ? mesh->coordinator.count : hello.lanes;
    hello.epoch = mesh->epoch;
    return weights_connect(mesh->coordinator.text[index % lanes], mesh->tls, &hello, stop_fd,
                           deadline, out, err);
}

sh_status sh_mesh_visit(const sh_mesh_opts *opts, sh_tls *tls, sh_deadline deadline, sh_stream *out,
                        sh_err *err)
{
    sh_hello hello = {.epoch = 0};
    hello_set(opts, &hello);
    return weights_connect(opts->coordinator, tls, &hello, -1, deadline, out, err);
}
