#include "net/mesh.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "net/meet.h"
#include "net/sock.h"
#include "net/token.h"

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
static sh_status choose_addrs(const sh_meeting *meet, sh_addr *addrs, int *count, sh_err *err)
{
    const sh_mesh_opts *opts = meet->opts;
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
        if (status == SH_ERR_INPUT || opts->rank == 0 || sh_deadline_passed(meet->deadline))
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

static sh_status open_gate(sh_meeting *meet, sh_err *err)
{
    const sh_mesh_opts *opts = meet->opts;
    sh_mesh *mesh = meet->mesh;
    if (opts->listen_fd >= 0)
        return sh_gate_adopt(opts->listen_fd, mesh->tls, opts->handshake_ms, &mesh->gate, err);
    sh_addr addrs[SH_LANES_MAX];
    int count;
    sh_status status = choose_addrs(meet, addrs, &count, err);
    if (status == SH_OK) status = check_safe(opts, addrs, count, err);
    if (status == SH_OK)
        status = sh_gate_open(addrs, count, mesh->tls, opts->handshake_ms, &mesh->gate, err);
    return status;
}

/* "1, 3": the ranks that are missing. */
static void list_missing(const sh_meeting *meet, sh_buf *out)
{
    for (int r = 0; r < meet->mesh->size; r++) {
        const sh_mesh_peer *peer = &meet->mesh->peer[r];
        bool here = peer->control != NULL && (!meet->table_known || peer->port != NULL) &&
                    (!meet->ready_sent || meet->mesh->rank != 0 || meet->pair[r].ready);
        if (r == meet->mesh->rank || here) continue;
        sh_buf_addf(out, "%s%d", out->len > 0 ? ", " : "", r);
    }
}

static void say_waiting(const sh_meeting *meet)
{
    if (meet->mesh->rank != 0 && meet->call_count > 0) {
        SH_LOGI("waiting for rank %d at %s: %s", meet->calls[0].peer, meet->calls[0].dial.address,
                meet->calls[0].dial.last.text);
        return;
    }
    sh_buf who = {0};
    list_missing(meet, &who);
    SH_LOGI("waiting for %s%s", who.len > 0 ? "rank " : "rank 0 to go on",
            who.len > 0 ? who.ptr : "");
    sh_buf_reset(&who);
}

static sh_status came_too_late(const sh_meeting *meet, sh_err *err)
{
    double wait_s = meet->opts->join_ms / 1000.0;
    if (meet->mesh->rank != 0 && meet->call_count > 0) {
        const sh_meet_call *call = &meet->calls[0];
        bool other_token = call->dial.last.status == SH_ERR_AUTH;
        return sh_err_set(err, other_token ? SH_ERR_AUTH : SH_ERR_TIMEOUT,
                          "rank %d did not answer at %s within %g s: %s", call->peer,
                          call->dial.address, wait_s, call->dial.last.text);
    }
    sh_buf who = {0};
    list_missing(meet, &who);
    const char *last = "";
    int refused = sh_gate_refused(meet->mesh->gate, &last);
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

static void meet_sleep(const sh_meeting *meet)
{
    size_t cap = SH_GATE_POLL_MAX + (size_t)meet->mesh->size + (size_t)meet->call_count;
    struct pollfd *fds = sh_alloc_array(cap, sizeof(*fds));
    int count = sh_gate_poll(meet->mesh->gate, fds);
    for (int r = 0; r < meet->mesh->size; r++)
        if (meet->mesh->peer[r].control != NULL)
            fds[count++] = sh_link_poll(meet->mesh->peer[r].control);
    for (int i = 0; i < meet->call_count; i++)
        if (meet->calls[i].dial.link != NULL) fds[count++] = sh_link_poll(meet->calls[i].dial.link);
    poll(fds, (nfds_t)count, STEP_MS); /* whatever it says, the next step looks at everything */
    free(fds);
}

static sh_status meet_loop(sh_meeting *meet, sh_err *err)
{
    sh_deadline note = sh_deadline_in_ms(NOTE_EVERY_MS);
    bool was_dialling = meet->mesh->rank != 0;
    while (!meet->go) {
        sh_status status = sh_meet_step_controls(meet, err);
        if (status == SH_OK) status = sh_meet_step_gate(meet, err);
        if (status == SH_OK) status = sh_meet_step_calls(meet, err);
        if (status == SH_OK) status = sh_meet_advance(meet, err);
        if (status != SH_OK) return status;
        if (was_dialling && meet->mesh->peer[0].control != NULL) {
            /* From here on rank 0 gives up first, and says who was missing. */
            meet->deadline = sh_deadline_in_ms((int64_t)meet->opts->join_ms + 1000);
            was_dialling = false;
        }
        if (!meet->go && sh_deadline_passed(meet->deadline)) return came_too_late(meet, err);
        if (!meet->go && sh_deadline_passed(note)) {
            say_waiting(meet);
            note = sh_deadline_in_ms(NOTE_EVERY_MS);
        }
        if (!meet->go) meet_sleep(meet);
    }
    return SH_OK;
}

static void meet_start(sh_meeting *meet)
{
    const sh_mesh_opts *opts = meet->opts;
    sh_hello *hello = &meet->hello;
    meet->deadline = sh_deadline_in_ms(opts->join_ms);
    meet->at_fault = -1;
    hello->protocol = SH_WIRE_PROTOCOL;
    hello->rank = (uint32_t)opts->rank;
    hello->world = (uint32_t)opts->size;
    hello->lanes = (uint8_t)(opts->mpi == NULL ? opts->lanes : 0);
    hello->plain_data = opts->plain_data;
    hello->use = SH_USE_JOIN;
    snprintf(hello->version, sizeof(hello->version), "%s", sh_version());
    snprintf(hello->group, sizeof(hello->group), "%s", opts->group);
    memcpy(hello->model, opts->model, SH_MODEL_ID_LEN);
    sh_host_id(hello->host);
    meet->calls = sh_alloc_array((size_t)opts->size * (size_t)(2 * opts->lanes + 1),
                                 sizeof(*meet->calls));
}

static void meet_end(sh_meeting *meet)
{
    for (int i = 0; i < meet->call_count; i++) sh_dial_reset(&meet->calls[i].dial);
    for (int r = 0; r < meet->mesh->size; r++) {
        sh_meet_pair *pair = &meet->pair[r];
        for (int i = 0; i < SH_SOCKETS_MAX; i++)
            if (pair->sockets_up >> i & 1) sh_stream_close(&pair->socket[i]);
        sh_shm_close(pair->shm);
    }
    free(meet->calls);
    free(meet);
}

static void count_local(const sh_meeting *meet)
{
    for (int r = 0; r < meet->mesh->size; r++)
        if (memcmp(meet->table.row[r].host, meet->hello.host, SH_HOST_ID_LEN) == 0)
            meet->mesh->local_count++;
}

static sh_status form(const sh_mesh_opts *opts, sh_mesh *mesh, sh_err *err)
{
    sh_meeting *meet = sh_alloc(sizeof(*meet));
    meet->opts = opts;
    meet->mesh = mesh;
    meet_start(meet);
    sh_status status = open_gate(meet, err);
    if (status == SH_OK) {
        if (mesh->rank != 0) sh_meet_call_coordinator(meet);
        status = meet_loop(meet, err);
        if (status != SH_OK) sh_meet_tell_all(meet, err);
    }
    if (status == SH_OK) count_local(meet);
    mesh->epoch = meet->table.epoch;
    meet_end(meet);
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
        sh_link_close(mesh->peer[r].control);
        sh_port_close(mesh->peer[r].port);
    }
    sh_gate_close(mesh->gate);
    sh_tls_free(mesh->tls);
    free(mesh);
}
