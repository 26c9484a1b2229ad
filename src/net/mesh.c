#include "net/mesh.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "net/cluster_token.h"
#include "net/join.h"
#include "net/sock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_MS = 20,          /* the longest sleep while joining: timers are looked at then */
    NOTE_EVERY_MS = 10000, /* how often a rank that waits says so */
};

void sh_mesh_opts_init(sh_mesh_opts *opts)
{
    *opts = (sh_mesh_opts){.size = 1,
                           .coordinator = "127.0.0.1:0",
                           .listen_fd = -1,
                           .group = "shoal",
                           .lanes = 1,
                           .join_ms = 60000,
                           .handshake_ms = 5000};
}

static sh_status check_opts(const sh_mesh_opts *opts, sh_err *err)
{
    if (opts->size < 1 || opts->size > SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "world size %d: must be 1 to %d", opts->size,
                          SH_RANKS_MAX);
    if (opts->rank < 0 || opts->rank >= opts->size)
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

/* Where this rank will listen. A rank other than 0 that was told nothing listens on the address
 * from which it reaches the coordinator, whose name may take a while to be known. */
static sh_status choose_addrs(const sh_join *join, sh_addr *addrs, int *count, sh_err *err)
{
    const sh_mesh_opts *opts = join->opts;
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
    while ((status = sh_addr_resolve(opts->coordinator, SH_LANES_MAX, addrs, count, err)) < 0) {
        if (status == SH_ERR_INPUT || opts->rank == 0 || sh_deadline_passed(join->deadline))
            return sh_err_prefix(err, "coordinator");
        sh_sleep_ms(10 * STEP_MS);
    }
    if (opts->rank == 0) return SH_OK;
    sh_addr to = addrs[0];
    *count = 1;
    return sh_sock_route(&to, &addrs[0], err);
}

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

static sh_status open_gate(sh_join *join, sh_err *err)
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

/* "1, 3": the ranks that are missing. */
static void list_missing(const sh_join *join, sh_buf *out)
{
    for (int r = 0; r < join->mesh->size; r++) {
        const sh_mesh_peer *peer = &join->mesh->peer[r];
        bool here = peer->control != NULL && (!join->table_known || peer->channel != NULL) &&
                    (!join->ready_sent || join->mesh->rank != 0 || join->pair[r].ready);
        if (r == join->mesh->rank || here) continue;
        sh_buf_addf(out, "%s%d", out->len > 0 ? ", " : "", r);
    }
}

static void say_waiting(const sh_join *join)
{
    if (join->mesh->rank != 0 && join->call_count > 0) {
        SH_LOGI("waiting for rank %d at %s: %s", join->calls[0].peer,
                join->calls[0].connector.address, join->calls[0].connector.last.text);
        return;
    }
    sh_buf who = {0};
    list_missing(join, &who);
    SH_LOGI("waiting for %s%s", who.len > 0 ? "rank " : "rank 0 to go on",
            who.len > 0 ? who.ptr : "");
    sh_buf_reset(&who);
}

static sh_status came_too_late(const sh_join *join, sh_err *err)
{
    double wait_s = join->opts->join_ms / 1000.0;
    if (join->mesh->rank != 0 && join->call_count > 0) {
        const sh_join_attempt *call = &join->calls[0];
        bool other_token = call->connector.last.status == SH_ERR_AUTH;
        return sh_err_set(err, other_token ? SH_ERR_AUTH : SH_ERR_TIMEOUT,
                          "rank %d did not answer at %s within %g s: %s", call->peer,
                          call->connector.address, wait_s, call->connector.last.text);
    }
    sh_buf who = {0};
    list_missing(join, &who);
    const char *last = "";
    int refused = sh_acceptor_refused(join->mesh->acceptor, &last);
    if (refused > 0)
        sh_err_set(err, SH_ERR_PEER,
                   "the group did not form within %g s, missing rank %s; %d refused, the last %s",
                   wait_s, who.len > 0 ? who.ptr : "0", refused, last);
    else
        sh_err_set(err, SH_ERR_PEER, "the group did not form within %g s, missing rank %s", wait_s,
                   who.len > 0 ? who.ptr : "0");
    sh_buf_reset(&who);
    return err->status;
}

static void meet_sleep(const sh_join *join)
{
    size_t cap = SH_ACCEPTOR_POLL_MAX + (size_t)join->mesh->size + (size_t)join->call_count;
    struct pollfd *fds = sh_alloc_array(cap, sizeof(*fds));
    int count = sh_acceptor_poll(join->mesh->acceptor, fds);
    for (int r = 0; r < join->mesh->size; r++)
        if (join->mesh->peer[r].control != NULL)
            fds[count++] = sh_peer_conn_poll(join->mesh->peer[r].control);
    for (int i = 0; i < join->call_count; i++)
        if (join->calls[i].connector.conn != NULL)
            fds[count++] = sh_peer_conn_poll(join->calls[i].connector.conn);
    poll(fds, (nfds_t)count, STEP_MS); /* whatever it says, the next step looks at everything */
    free(fds);
}

static sh_status meet_loop(sh_join *join, sh_err *err)
{
    sh_deadline note = sh_deadline_in_ms(NOTE_EVERY_MS);
    bool was_dialling = join->mesh->rank != 0;
    while (!join->go) {
        sh_status status = sh_join_step_controls(join, err);
        if (status == SH_OK) status = sh_join_step_gate(join, err);
        if (status == SH_OK) status = sh_join_step_calls(join, err);
        if (status == SH_OK) status = sh_join_advance(join, err);
        if (status != SH_OK) return status;
        if (was_dialling && join->mesh->peer[0].control != NULL) {
            /* From here on rank 0 gives up first, and says who was missing. */
            join->deadline = sh_deadline_in_ms((int64_t)join->opts->join_ms + 1000);
            was_dialling = false;
        }
        if (!join->go && sh_deadline_passed(join->deadline)) return came_too_late(join, err);
        if (!join->go && sh_deadline_passed(note)) {
            say_waiting(join);
            note = sh_deadline_in_ms(NOTE_EVERY_MS);
        }
        if (!join->go) meet_sleep(join);
    }
    return SH_OK;
}

static void meet_start(sh_join *join)
{
    const sh_mesh_opts *opts = join->opts;
    sh_hello *hello = &join->hello;
    join->deadline = sh_deadline_in_ms(opts->join_ms);
    join->at_fault = -1;
    hello->protocol = SH_PEER_PROTOCOL;
    hello->rank = (uint32_t)opts->rank;
    hello->world = (uint32_t)opts->size;
    hello->lanes = (uint8_t)(opts->mpi == NULL ? opts->lanes : 0);
    hello->plain_data = opts->plain_data;
    hello->use = SH_USE_JOIN;
    snprintf(hello->version, sizeof(hello->version), "%s", sh_version());
    snprintf(hello->group, sizeof(hello->group), "%s", opts->group);
    memcpy(hello->model, opts->model, SH_MODEL_ID_LEN);
    sh_host_id(hello->host);
    join->calls = sh_alloc_array((size_t)opts->size * (size_t)(2 * opts->lanes + 1),
                                 sizeof(*join->calls));
}

static void meet_end(sh_join *join)
{
    for (int i = 0; i < join->call_count; i++) sh_connector_reset(&join->calls[i].connector);
    for (int r = 0; r < join->mesh->size; r++) {
        sh_join_pair *pair = &join->pair[r];
        for (int i = 0; i < SH_SOCKETS_MAX; i++)
            if (pair->sockets_up >> i & 1) sh_stream_close(&pair->socket[i]);
        sh_shm_close(pair->shm);
    }
    free(join->calls);
    free(join);
}

static void count_local(const sh_join *join)
{
    for (int r = 0; r < join->mesh->size; r++)
        if (memcmp(join->table.row[r].host, join->hello.host, SH_HOST_ID_LEN) == 0)
            join->mesh->local_count++;
}

static sh_status form(const sh_mesh_opts *opts, sh_mesh *mesh, sh_err *err)
{
    sh_join *join = sh_alloc(sizeof(*join));
    join->opts = opts;
    join->mesh = mesh;
    meet_start(join);
    sh_status status = open_gate(join, err);
    if (status == SH_OK) {
        if (mesh->rank != 0) sh_join_call_coordinator(join);
        status = meet_loop(join, err);
        if (status != SH_OK) sh_join_tell_all(join, err);
    }
    if (status == SH_OK) count_local(join);
    mesh->epoch = join->table.epoch;
    meet_end(join);
    return status;
}

sh_status sh_mesh_join(const sh_mesh_opts *opts, sh_mesh **out, sh_err *err)
{
    sh_status status = check_opts(opts, err);
    if (status != SH_OK) return status;
    sh_mesh *mesh = sh_alloc(sizeof(*mesh));
    mesh->rank = opts->rank;
    mesh->size = opts->size;
    if (opts->token != NULL) status = sh_tls_create(opts->token, &mesh->tls, err);
    if (status == SH_OK && opts->size > 1) {
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
