#include "net/meet.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void sh_meet_tell_all(sh_meeting *meet, const sh_err *err)
{
    sh_notice notice;
    sh_notice_set(&notice, meet->at_fault, err->text);
    for (int r = 0; r < meet->mesh->size; r++) {
        sh_link *link = meet->mesh->peer[r].control;
        sh_err ignored;
        if (link == NULL) continue;
        sh_notice_pack(sh_link_out(link), SH_FRAME_ABORT, &notice);
        if (sh_link_flush(link, &ignored) == SH_OK) sh_link_shut(link);
    }
}

/* Closes a link whose owner hears why. Returns err's status. */
static sh_status refuse(sh_link *link, sh_err *err)
{
    sh_notice notice;
    sh_notice_set(&notice, (int)sh_link_peer(link)->rank, err->text);
    sh_link_refuse(link, &notice);
    sh_link_close(link);
    return err->status;
}

/* Refuses one link; the meeting goes on. */
static sh_status refuse_alone(sh_link *link, sh_err *err)
{
    SH_LOGW("refused a connection from %s: %s", sh_link_name(link), err->text);
    refuse(link, err);
    return SH_OK;
}

static sh_status welcome(const sh_meeting *meet, sh_link *link, const char *shm, sh_err *err)
{
    const sh_hello *theirs = sh_link_peer(link);
    sh_hello mine = meet->hello;
    mine.use = theirs->use;
    mine.socket = theirs->socket;
    mine.epoch = meet->table.epoch;
    snprintf(mine.shm, sizeof(mine.shm), "%s", shm);
    sh_link_welcome(link, &mine);
    return sh_link_flush(link, err);
}

static sh_status check_join(const sh_meeting *meet, const sh_link *link, sh_err *err)
{
    const sh_hello *theirs = sh_link_peer(link);
    sh_status status = sh_hello_compare(&meet->hello, theirs, err);
    if (status != SH_OK) return status;
    const sh_mesh_peer *peer = &meet->mesh->peer[theirs->rank];
    if (theirs->rank == 0 || peer->control != NULL)
        return sh_err_set(err, SH_ERR_GROUP, "rank %" PRIu32 " is there twice: at %s and at %s",
                          theirs->rank, theirs->rank == 0 ? meet->opts->coordinator : peer->name,
                          sh_link_name(link));
    return SH_OK;
}

/* Rank 0: keeps the link of a rank that fits. One that does not fit ends the meeting for all. */
static sh_status admit_join(sh_meeting *meet, sh_link *link, sh_err *err)
{
    uint32_t rank = sh_link_peer(link)->rank;
    if (check_join(meet, link, err) != SH_OK) {
        meet->at_fault = (int)rank;
        return refuse(link, err);
    }
    if (welcome(meet, link, "", err) != SH_OK) {
        sh_link_close(link); /* it will come again */
        return SH_OK;
    }
    sh_mesh_peer *peer = &meet->mesh->peer[rank];
    peer->control = link;
    snprintf(peer->name, sizeof(peer->name), "%s", sh_link_name(link));
    SH_LOGD("rank %" PRIu32 " of %d has joined from %s", rank, meet->mesh->size, peer->name);
    return SH_OK;
}

/* All sockets of a pair stand: they become its port. */
static void pair_complete(sh_meeting *meet, int rank)
{
    sh_meet_pair *pair = &meet->pair[rank];
    int sockets = 2 * meet->opts->lanes;
    if (pair->shm_agreed) {
        for (int i = 1; i < sockets; i++) sh_stream_close(&pair->socket[i]);
        meet->mesh->peer[rank].port = sh_shm_port_create(pair->shm, pair->socket[0]);
    } else {
        sh_shm_close(pair->shm);
        if (meet->opts->plain_data)
            for (int i = 0; i < sockets; i++) sh_stream_end_tls(&pair->socket[i]);
        meet->mesh->peer[rank].port = sh_tcp_port_create(pair->socket, meet->opts->lanes,
                                                         meet->mesh->rank > rank);
    }
    pair->shm = NULL;
    pair->sockets_up = 0;
}

static void pair_add_socket(sh_meeting *meet, int rank, int socket, sh_link *link)
{
    sh_meet_pair *pair = &meet->pair[rank];
    pair->socket[socket] = sh_link_release(link);
    pair->sockets_up |= 1 << socket;
    if (pair->sockets_up == (1 << 2 * meet->opts->lanes) - 1) pair_complete(meet, rank);
}

/* Attaches what the peer offered, if this rank can see it; "" otherwise. */
static const char *answer_shm(sh_meeting *meet, const sh_hello *theirs)
{
    sh_err err;
    sh_meet_pair *pair = &meet->pair[theirs->rank];
    /* It may be the second try of a dialler whose first one broke off behind this point. */
    sh_shm_close(pair->shm);
    pair->shm = NULL;
    pair->shm_agreed = false;
    if (theirs->shm[0] == '\0' || meet->opts->path == SH_PATH_TCP) return "";
    if (sh_shm_attach(theirs->shm, theirs->shm_key, &pair->shm, &err) != SH_OK) {
        SH_LOGD("rank %" PRIu32 ": %s", theirs->rank, err.text);
        return "";
    }
    pair->shm_agreed = true;
    return theirs->shm;
}

static sh_status admit_control(sh_meeting *meet, sh_link *link, sh_err *err)
{
    int rank = (int)sh_link_peer(link)->rank;
    if (welcome(meet, link, "", err) != SH_OK) {
        sh_link_close(link);
        return SH_OK;
    }
    meet->mesh->peer[rank].control = link;
    snprintf(meet->mesh->peer[rank].name, SH_ADDR_TEXT_MAX, "%s", sh_link_name(link));
    return SH_OK;
}

static sh_status admit_data(sh_meeting *meet, sh_link *link, sh_err *err)
{
    const sh_hello *theirs = sh_link_peer(link);
    int rank = (int)theirs->rank;
    int socket = theirs->socket;
    const char *shm = socket == 0 ? answer_shm(meet, theirs) : "";
    if (welcome(meet, link, shm, err) != SH_OK) {
        sh_link_close(link);
        return SH_OK;
    }
    pair_add_socket(meet, rank, socket, link);
    return SH_OK;
}

/* A second link for the same purpose would mean that somebody plays the same rank. */
static bool is_link_taken(const sh_meeting *meet, const sh_hello *theirs)
{
    const sh_mesh_peer *peer = &meet->mesh->peer[theirs->rank];
    if (theirs->use == SH_USE_CONTROL) return peer->control != NULL;
    return peer->port != NULL || (meet->pair[theirs->rank].sockets_up >> theirs->socket & 1) != 0;
}

static sh_status admit_link(sh_meeting *meet, sh_link *link, sh_err *err)
{
    const sh_hello *theirs = sh_link_peer(link);
    if (!meet->table_known) {
        sh_link_close(link); /* heard of the table before we did; it dials again */
        return SH_OK;
    }
    if (sh_hello_compare(&meet->hello, theirs, err) != SH_OK) return refuse_alone(link, err);
    if (theirs->epoch != meet->table.epoch || (int)theirs->rank <= meet->mesh->rank ||
        is_link_taken(meet, theirs)) {
        sh_err_set(err, SH_ERR_GROUP,
                   "rank %" PRIu32 " of another forming of the group dials rank %d", theirs->rank,
                   meet->mesh->rank);
        return refuse_alone(link, err);
    }
    return theirs->use == SH_USE_CONTROL ? admit_control(meet, link, err)
                                         : admit_data(meet, link, err);
}

static sh_status admit(sh_meeting *meet, sh_link *link, sh_err *err)
{
    const sh_hello *theirs = sh_link_peer(link);
    if (theirs->protocol == SH_WIRE_PROTOCOL && theirs->use != SH_USE_JOIN)
        return admit_link(meet, link, err);
    if (meet->mesh->rank != 0) {
        sh_err_set(err, SH_ERR_GROUP, "rank %d is not the coordinator, rank 0 is",
                   meet->mesh->rank);
        return refuse_alone(link, err);
    }
    if (meet->table_known) {
        sh_err_set(err, SH_ERR_GROUP, "the group has formed already, with a rank %" PRIu32,
                   theirs->rank);
        return refuse_alone(link, err);
    }
    return admit_join(meet, link, err);
}

sh_status sh_meet_step_gate(sh_meeting *meet, sh_err *err)
{
    sh_link *link;
    sh_status status;
    while ((status = sh_gate_step(meet->mesh->gate, &link, err)) == SH_OK) {
        status = admit(meet, link, err);
        if (status != SH_OK) return status;
    }
    return status == SH_AGAIN ? SH_OK : status;
}

void sh_meet_call_coordinator(sh_meeting *meet)
{
    sh_hello hello = meet->hello;
    const sh_addr *addrs;
    int count = sh_gate_addrs(meet->mesh->gate, &addrs);
    hello.use = SH_USE_JOIN;
    hello.listen.count = count;
    for (int i = 0; i < count; i++) sh_addr_format(&addrs[i], hello.listen.text[i]);
    meet->calls[0].peer = 0;
    meet->call_count = 1;
    sh_dial_init(&meet->calls[0].dial, meet->opts->coordinator, meet->mesh->tls, &hello,
                 meet->opts->handshake_ms);
}

/* Where a rank is reached for a data socket. A rank that listens everywhere is found as it was
 * before.
 */
static const char *address_of(const sh_meeting *meet, int rank, int socket)
{
    const sh_addr_list *list = &meet->table.row[rank].addrs;
    const char *text = list->text[socket / 2 % list->count];
    sh_addr addr;
    sh_err ignored;
    if (rank == 0 && sh_addr_parse(text, &addr, &ignored) == SH_OK && sh_addr_is_any(&addr))
        return meet->opts->coordinator;
    return text;
}

static void add_call(sh_meeting *meet, int rank, sh_hello *hello)
{
    sh_meet_call *call = &meet->calls[meet->call_count++];
    call->peer = rank;
    sh_dial_init(&call->dial, address_of(meet, rank, hello->socket), meet->mesh->tls, hello,
                 meet->opts->handshake_ms);
}

static bool is_same_host(const sh_meeting *meet, int rank)
{
    return memcmp(meet->table.row[rank].host, meet->hello.host, SH_HOST_ID_LEN) == 0;
}

static sh_status offer_shm(sh_meeting *meet, int rank, sh_hello *hello, sh_err *err)
{
    if (meet->opts->path == SH_PATH_TCP) return SH_OK;
    if (!is_same_host(meet, rank)) {
        if (meet->opts->path != SH_PATH_SHM) return SH_OK;
        return sh_err_set(err, SH_ERR_GROUP,
                          "shared memory was asked for, but ranks %d and %d are on two machines",
                          rank, meet->mesh->rank);
    }
    if (sh_shm_create(&meet->pair[rank].shm, hello->shm, hello->shm_key, err) == SH_OK)
        return SH_OK;
    if (meet->opts->path == SH_PATH_SHM) return err->status;
    SH_LOGW("ranks %d and %d use sockets: %s", rank, meet->mesh->rank, err->text);
    return SH_OK;
}

/* The table is known: from here on MPI can carry data. */
static void open_mpi_ports(sh_meeting *meet)
{
    for (int rank = 0; rank < meet->mesh->size && meet->opts->mpi != NULL; rank++)
        if (rank != meet->mesh->rank)
            meet->mesh->peer[rank].port = sh_mpi_port_create(meet->opts->mpi, rank,
                                                             meet->table.epoch);
}

/* Every rank dials all lower ones: a control link (rank 0 has one already) and the data sockets. */
static sh_status plan_calls(sh_meeting *meet, sh_err *err)
{
    int sockets = meet->opts->mpi == NULL ? 2 * meet->opts->lanes : 0;
    for (int rank = 0; rank < meet->mesh->rank; rank++) {
        sh_hello hello = meet->hello;
        hello.epoch = meet->table.epoch;
        hello.use = SH_USE_CONTROL;
        if (rank > 0) add_call(meet, rank, &hello);
        hello.use = SH_USE_DATA;
        for (int socket = 0; socket < sockets; socket++) {
            hello.socket = (uint8_t)socket;
            sh_status status = socket == 0 ? offer_shm(meet, rank, &hello, err) : SH_OK;
            if (status != SH_OK) return status;
            add_call(meet, rank, &hello);
            hello.shm[0] = '\0';
        }
    }
    return SH_OK;
}

static sh_status call_answered(sh_meeting *meet, sh_meet_call *call, sh_err *err)
{
    sh_link *link = sh_dial_take(&call->dial);
    const sh_hello *theirs = sh_link_peer(link);
    sh_meet_pair *pair = &meet->pair[call->peer];
    if ((int)theirs->rank != call->peer) {
        sh_err_set(err, SH_ERR_GROUP, "answered as rank %" PRIu32, theirs->rank);
        sh_link_close(link);
        return err->status;
    }
    if (call->dial.hello.use != SH_USE_DATA) {
        meet->mesh->peer[call->peer].control = link;
        snprintf(meet->mesh->peer[call->peer].name, SH_ADDR_TEXT_MAX, "%s", sh_link_name(link));
        return SH_OK;
    }
    if (call->dial.hello.shm[0] != '\0') {
        pair->shm_agreed = strcmp(theirs->shm, call->dial.hello.shm) == 0;
        sh_shm_unlink(pair->shm);
        if (!pair->shm_agreed && meet->opts->path == SH_PATH_SHM) {
            sh_link_close(link);
            return sh_err_set(err, SH_ERR_GROUP,
                              "shared memory was asked for, but rank %d can not see it",
                              call->peer);
        }
    }
    pair_add_socket(meet, call->peer, call->dial.hello.socket, link);
    return SH_OK;
}

sh_status sh_meet_step_calls(sh_meeting *meet, sh_err *err)
{
    for (int i = 0; i < meet->call_count; i++) {
        sh_meet_call *call = &meet->calls[i];
        sh_status status = sh_dial_step(&call->dial, err);
        if (status == SH_AGAIN) continue;
        if (status == SH_OK) status = call_answered(meet, call, err);
        if (status < 0) {
            meet->at_fault = call->peer;
            return sh_err_prefix(err, "rank %d at %s", call->peer, call->dial.address);
        }
        meet->calls[i--] = meet->calls[--meet->call_count];
    }
    return SH_OK;
}

/* Rank 0 puts the address that it sees in place of "any". */
static void fill_row(sh_meeting *meet, int rank)
{
    sh_table_row *row = &meet->table.row[rank];
    const sh_hello *hello = sh_link_peer(meet->mesh->peer[rank].control);
    memcpy(row->host, hello->host, SH_HOST_ID_LEN);
    row->addrs = hello->listen;
    for (int i = 0; i < row->addrs.count; i++) {
        sh_addr addr;
        sh_addr seen;
        sh_err ignored;
        if (sh_addr_parse(row->addrs.text[i], &addr, &ignored) != SH_OK || !sh_addr_is_any(&addr) ||
            sh_addr_parse(meet->mesh->peer[rank].name, &seen, &ignored) != SH_OK)
            continue;
        sh_addr_set_port(&seen, sh_addr_port(&addr));
        sh_addr_format(&seen, row->addrs.text[i]);
    }
}

static sh_status send_table(sh_meeting *meet, sh_err *err)
{
    sh_table *table = &meet->table;
    const sh_addr *addrs;
    table->row[0].addrs.count = sh_gate_addrs(meet->mesh->gate, &addrs);
    for (int i = 0; i < table->row[0].addrs.count; i++)
        sh_addr_format(&addrs[i], table->row[0].addrs.text[i]);
    memcpy(table->row[0].host, meet->hello.host, SH_HOST_ID_LEN);
    table->count = (uint32_t)meet->mesh->size;
    do sh_random(&table->epoch, sizeof(table->epoch));
    while (table->epoch == 0);
    for (int r = 1; r < meet->mesh->size; r++) fill_row(meet, r);
    for (int r = 1; r < meet->mesh->size; r++) {
        sh_table_pack(sh_link_out(meet->mesh->peer[r].control), table);
        sh_status status = sh_link_flush(meet->mesh->peer[r].control, err);
        if (status < 0) return sh_err_prefix(err, "rank %d at %s", r, meet->mesh->peer[r].name);
    }
    open_mpi_ports(meet);
    meet->table_known = true;
    return SH_OK;
}

static sh_status take_table(sh_meeting *meet, const uint8_t *payload, size_t len, sh_err *err)
{
    if (meet->mesh->rank == 0 || meet->table_known)
        return sh_err_set(err, SH_ERR_GROUP, "a table of addresses came unasked");
    sh_status status = sh_table_unpack(payload, len, &meet->table, err);
    if (status != SH_OK) return status;
    bool good = meet->table.count == (uint32_t)meet->mesh->size && meet->table.epoch != 0;
    for (uint32_t i = 0; i < meet->table.count; i++)
        good = good && meet->table.row[i].addrs.count > 0;
    if (!good)
        return sh_err_set(err, SH_ERR_GROUP, "a table of addresses came that is not complete");
    open_mpi_ports(meet);
    meet->table_known = true;
    return plan_calls(meet, err);
}

static sh_status take_abort(sh_meeting *meet, const uint8_t *payload, size_t len, sh_err *err)
{
    sh_notice notice;
    sh_status status = sh_notice_unpack(payload, len, &notice, err);
    if (status != SH_OK) return status;
    meet->at_fault = notice.rank;
    return sh_err_set(err, SH_ERR_GROUP, "%s", notice.text);
}

static sh_status take_frame(sh_meeting *meet, int rank, sh_frame_head head, const uint8_t *payload,
                            sh_err *err)
{
    switch (head.type) {
    case SH_FRAME_TABLE:
        if (rank == 0) return take_table(meet, payload, head.len, err);
        break;
    case SH_FRAME_READY: meet->pair[rank].ready = true; return SH_OK;
    case SH_FRAME_GO:
        if (rank != 0) break;
        meet->go = true;
        return SH_OK;
    case SH_FRAME_BEAT: return SH_OK; /* the peer has heard `go` before we did */
    case SH_FRAME_ABORT: return take_abort(meet, payload, head.len, err);
    default: break;
    }
    meet->at_fault = rank;
    return sh_err_set(err, SH_ERR_GROUP, "rank %d sent a frame of type %d while the group formed",
                      rank, head.type);
}

/* Before the table is out a rank may come and go; afterwards it is missed. */
static sh_status lost_control(sh_meeting *meet, int rank, sh_err *err)
{
    sh_mesh_peer *peer = &meet->mesh->peer[rank];
    if (meet->table_known) {
        meet->at_fault = rank;
        err->status = SH_ERR_GROUP;
        return sh_err_prefix(err, "rank %d at %s was lost while the group formed", rank,
                             peer->name);
    }
    SH_LOGW("rank %d at %s has left before the group formed: %s", rank, peer->name, err->text);
    sh_link_close(peer->control);
    peer->control = NULL;
    if (meet->mesh->rank != 0) sh_meet_call_coordinator(meet);
    return SH_OK;
}

static sh_status read_control(sh_meeting *meet, int rank, sh_err *err)
{
    for (;;) {
        sh_link *link = meet->mesh->peer[rank].control;
        sh_frame_head head;
        const uint8_t *payload;
        sh_status status = link == NULL || meet->go ? SH_AGAIN : sh_link_flush(link, err);
        if (status >= 0 && link != NULL && !meet->go)
            status = sh_link_recv(link, &head, &payload, err);
        if (status == SH_AGAIN) return SH_OK;
        status = status < 0 ? lost_control(meet, rank, err)
                            : take_frame(meet, rank, head, payload, err);
        if (status != SH_OK) return status;
    }
}

sh_status sh_meet_step_controls(sh_meeting *meet, sh_err *err)
{
    for (int rank = 0; rank < meet->mesh->size; rank++) {
        sh_status status = read_control(meet, rank, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static bool all_peers(const sh_meeting *meet, bool (*has)(const sh_meeting *meet, int rank))
{
    for (int r = 0; r < meet->mesh->size; r++)
        if (r != meet->mesh->rank && !has(meet, r)) return false;
    return true;
}

static bool has_control(const sh_meeting *meet, int rank)
{
    return meet->mesh->peer[rank].control != NULL;
}

static bool has_links(const sh_meeting *meet, int rank)
{
    return meet->mesh->peer[rank].control != NULL && meet->mesh->peer[rank].port != NULL;
}

static bool is_ready(const sh_meeting *meet, int rank)
{
    return meet->pair[rank].ready;
}

static sh_status send_frame(sh_meeting *meet, int rank, sh_frame_type type, sh_err *err)
{
    sh_mesh_peer *peer = &meet->mesh->peer[rank];
    sh_frame_pack(sh_link_out(peer->control), type);
    sh_status status = sh_link_flush(peer->control, err);
    return status < 0 ? lost_control(meet, rank, err) : SH_OK;
}

sh_status sh_meet_advance(sh_meeting *meet, sh_err *err)
{
    bool leads = meet->mesh->rank == 0;
    sh_status status = SH_OK;
    if (leads && !meet->table_known && all_peers(meet, has_control)) status = send_table(meet, err);
    if (status == SH_OK && meet->table_known && !meet->ready_sent && all_peers(meet, has_links)) {
        if (!leads) status = send_frame(meet, 0, SH_FRAME_READY, err);
        meet->ready_sent = true;
    }
    if (status == SH_OK && leads && meet->ready_sent && all_peers(meet, is_ready)) {
        for (int r = 1; r < meet->mesh->size && status == SH_OK; r++)
            status = send_frame(meet, r, SH_FRAME_GO, err);
        meet->go = true;
    }
    return status;
}
