/* How a group forms. Rank 0 is the coordinator:
 *
 *   1. Every other rank connects to rank 0 and says hello (JOIN). Rank 0 compares version, model
 *      and world size with its own, and gives a number to a rank that has none. The connection
 *      stays open as their control connection.
 *   2. When all ranks are there that rank 0 expects (roster.h), it draws a random epoch and sends
 *      everybody the table of addresses (TABLE). From now on a rank that disappears is an error;
 *      before, it may come back.
 *   3. Every rank opens a control connection to all lower ranks. That only the higher rank connects
 *      settles who waits for whom, without any negotiation.
 *   4. On it the two ranks of a pair exchange their OFFERS and choose a transport (transport.h),
 *      for which the higher rank opens the data sockets.
 *   5. A rank whose connections are all open sends READY; when all have, rank 0 sends GO.
 *
 * The epoch is in every hello after step 1. A rank left over from an earlier group has another one
 * and is refused, as is a second process that claims a rank which is already connected.
 *
 * One rank that does not fit fails the first group for all, with an error that names it: a group
 * that waits for a rank which will never match would only time out later with less to say.
 * Connections that fail before they prove the token never get here (see acceptor.c). */
#include "net/join.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/cluster_token.h"
#include "net/interfaces.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void sh_join_abort_all(sh_join *join, const sh_err *err)
{
    sh_notice notice;
    sh_notice_set(&notice, join->at_fault, err->text);
    for (int r = 0; r < join->mesh->size; r++) {
        sh_peer_conn *conn = join->mesh->peer[r].control;
        sh_err ignored;
        if (conn == NULL) continue;
        sh_notice_pack(sh_peer_conn_out(conn), SH_FRAME_ABORT, &notice);
        if (sh_peer_conn_flush(conn, &ignored) == SH_OK) sh_peer_conn_shut(conn);
    }
}

/* Closes a connection after sending its peer the reason. Returns err's status. */
static sh_status refuse(sh_peer_conn *conn, sh_err *err)
{
    sh_notice notice;
    sh_notice_set(&notice, (int)sh_peer_conn_peer(conn)->rank, err->text);
    sh_peer_conn_refuse(conn, SH_FRAME_REFUSE, &notice);
    sh_peer_conn_close(conn);
    return err->status;
}

/* Refuses one connection; the group keeps forming. */
static sh_status refuse_alone(const sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    sh_acceptor_note_refusal(join->mesh->acceptor, conn, err->text);
    refuse(conn, err);
    return SH_OK;
}

/* Answers rank `rank` with our own hello, which the peer compares too. */
static sh_status welcome(const sh_join *join, sh_peer_conn *conn, int rank, sh_err *err)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    sh_hello mine = join->hello;
    mine.use = theirs->use;
    mine.socket = theirs->socket;
    mine.given_rank = (uint32_t)rank;
    mine.epoch = join->table.epoch;
    sh_peer_conn_welcome(conn, &mine);
    return sh_peer_conn_flush(conn, err);
}

static sh_status check_join(const sh_join *join, const sh_peer_conn *conn, int rank, sh_err *err)
{
    if (rank < 0)
        return sh_err_set(err, SH_ERR_GROUP, "a group has at most %d ranks", SH_RANKS_MAX);
    if (sh_peer_conn_peer(conn)->listen.count == 0)
        return sh_err_set(err, SH_ERR_GROUP, "rank %d at %s gave no address for the others", rank,
                          sh_peer_conn_name(conn));
    if (join->opts->roster == NULL && rank >= join->mesh->size)
        return sh_err_set(err, SH_ERR_GROUP, "no ranks can be added to this group of %d",
                          join->mesh->size);
    const sh_mesh_peer *peer = &join->mesh->peer[rank];
    if (rank == 0 || peer->control != NULL)
        return sh_err_set(err, SH_ERR_GROUP, "rank %d was started twice: at %s and at %s", rank,
                          rank == 0 ? join->opts->coordinator : peer->name,
                          sh_peer_conn_name(conn));
    return SH_OK;
}

/* Rank 0: the number of a rank that wants to join; -1 when there is none left. */
static int number_of(const sh_join *join, const sh_hello *theirs)
{
    if (theirs->rank != SH_RANK_ANY) return (int)theirs->rank;
    return join->opts->roster == NULL ? -1 : sh_roster_assign(join->opts->roster, theirs->node);
}

/* Rank 0: remembers a rank that asks before there is a group, and lets it ask again. */
static sh_status invite(const sh_join *join, sh_peer_conn *conn)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    bool fresh = sh_roster_invite(join->opts->roster, theirs, sh_clock_ns());
    sh_notice notice;
    sh_notice_set(&notice, -1,
                  fresh ? "the server waits for more ranks" : "another rank has this node id");
    sh_peer_conn_refuse(conn, fresh ? SH_FRAME_WAIT : SH_FRAME_TAKEN, &notice);
    sh_peer_conn_close(conn);
    return SH_OK;
}

/* Rank 0: tells a rank that is not expected to come back later. */
static sh_status put_off(const sh_join *join, sh_peer_conn *conn, int rank)
{
    sh_notice notice;
    sh_notice_set(&notice, rank,
                  join->opts->roster->formed ? "the group is forming without it"
                                             : "the group has not formed for the first time");
    sh_peer_conn_refuse(conn, SH_FRAME_WAIT, &notice);
    sh_peer_conn_close(conn);
    return SH_OK;
}

/* Rank 0: whether the others would have to wait while this rank loads, though they have served
 * without it. If they cannot do so now, it is needed, prepared or not. */
static bool must_prepare(const sh_roster *roster, const sh_hello *theirs)
{
    bool survivor = theirs->epoch != 0;
    return theirs->prepared != 0 && roster->formed && !roster->needs_all && !survivor;
}

/* Rank 0: keeps the connection of a rank that matches. One that does not fails the whole group, so
 * that a mistake shows at once; but a group that has served already goes on without it, and so does
 * one that anybody may come to. */
static sh_status admit_join(sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    sh_roster *roster = join->opts->roster;
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    bool survivor = theirs->epoch != 0;
    int rank = -1;
    sh_status status = sh_hello_compare(&join->hello, theirs, err);
    if (status == SH_OK && roster != NULL && survivor) sh_roster_resume(roster, theirs->left);
    if (status == SH_OK && roster != NULL && roster->gathering) return invite(join, conn);
    if (status == SH_OK) rank = number_of(join, theirs);
    if (status == SH_OK) status = check_join(join, conn, rank, err);
    if (status != SH_OK) {
        if (roster != NULL && (roster->formed || roster->gathers))
            return refuse_alone(join, conn, err);
        join->at_fault = (int)theirs->rank;
        return refuse(conn, err);
    }
    if (roster != NULL && !sh_roster_expects(roster, rank) &&
        (!sh_roster_is_open(roster) || must_prepare(roster, theirs)))
        return put_off(join, conn, rank);
    if (welcome(join, conn, rank, err) != SH_OK) {
        sh_peer_conn_close(conn); /* it will connect again */
        return SH_OK;
    }
    if (roster != NULL) {
        sh_roster_know(roster, rank, theirs->node);
        sh_roster_came(roster, rank, survivor);
    }
    sh_mesh_peer *peer = &join->mesh->peer[rank];
    peer->control = conn;
    snprintf(peer->name, sizeof(peer->name), "%s", sh_peer_conn_name(conn));
    SH_LOGD("rank %d has joined from %s", rank, peer->name);
    return SH_OK;
}

/* Whether there is a rank of this number, once the table is known. */
static bool exists(const sh_join *join, int rank)
{
    return join->table.row[rank].addrs.count > 0;
}

static sh_status admit_control(sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    int rank = (int)sh_peer_conn_peer(conn)->rank;
    if (welcome(join, conn, rank, err) != SH_OK) {
        sh_peer_conn_close(conn);
        return SH_OK;
    }
    join->mesh->peer[rank].control = conn;
    snprintf(join->mesh->peer[rank].name, SH_ADDR_TEXT_MAX, "%s", sh_peer_conn_name(conn));
    return SH_OK;
}

static sh_status admit_data(sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    sh_pairing *pairing = &join->pairing[theirs->rank];
    int socket = theirs->socket;
    if (welcome(join, conn, (int)theirs->rank, err) != SH_OK) {
        sh_peer_conn_close(conn);
        return SH_OK;
    }
    sh_pairing_add_socket(pairing, socket, sh_peer_conn_release(conn));
    return SH_OK;
}

/* A second connection for the same purpose means that two processes claim the same rank. */
static bool is_conn_due(const sh_join *join, const sh_hello *theirs)
{
    const sh_mesh_peer *peer = &join->mesh->peer[theirs->rank];
    if (theirs->use == SH_USE_CONTROL) return peer->control == NULL;
    return peer->channel == NULL &&
           sh_pairing_needs_socket(&join->pairing[theirs->rank], theirs->socket);
}

/* A connection of step 3 or 4. A mismatch here refuses only this connection: the peer may be left
 * over from an earlier group, and must not be able to stop this one. */
static sh_status admit_conn(sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    if (!join->table_known) {
        sh_peer_conn_close(conn); /* it got the table before we did; it will connect again */
        return SH_OK;
    }
    if (sh_hello_compare(&join->hello, theirs, err) != SH_OK) return refuse_alone(join, conn, err);
    if (theirs->use == SH_USE_WEIGHTS) {
        sh_err_set(err, SH_ERR_GROUP, "rank %" PRIu32 " asks for weights, but the group is forming",
                   theirs->rank);
        return refuse_alone(join, conn, err);
    }
    if (theirs->epoch != join->table.epoch || (int)theirs->rank <= join->mesh->rank ||
        !exists(join, (int)theirs->rank) || !is_conn_due(join, theirs)) {
        sh_err_set(err, SH_ERR_GROUP,
                   "rank %" PRIu32 " of an earlier group, or a second one, connects to rank %d",
                   theirs->rank, join->mesh->rank);
        return refuse_alone(join, conn, err);
    }
    return theirs->use == SH_USE_CONTROL ? admit_control(join, conn, err)
                                         : admit_data(join, conn, err);
}

/* A hello of another protocol has no valid `use`: it is treated as a JOIN, so that the comparison
 * of versions reports it. */
static sh_status admit(sh_join *join, sh_peer_conn *conn, sh_err *err)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    if (theirs->protocol == SH_PEER_PROTOCOL && theirs->use == SH_USE_MODELS) {
        sh_err_set(err, SH_ERR_GROUP,
                   "this server has one model; start the worker without --models-dir");
        return refuse_alone(join, conn, err);
    }
    if (sh_peer_conn_turn_away(conn, join->mesh->rank)) return SH_OK;
    if (theirs->protocol == SH_PEER_PROTOCOL && theirs->use != SH_USE_JOIN)
        return admit_conn(join, conn, err);
    if (join->table_known && join->opts->roster != NULL &&
        sh_hello_compare(&join->hello, theirs, err) == SH_OK)
        return put_off(join, conn, (int)theirs->rank);
    if (join->table_known) {
        sh_err_set(err, SH_ERR_GROUP, "the group has already formed, with another rank %" PRIu32,
                   theirs->rank);
        return refuse_alone(join, conn, err);
    }
    return admit_join(join, conn, err);
}

sh_status sh_join_step_acceptor(sh_join *join, sh_err *err)
{
    sh_peer_conn *conn;
    sh_status status;
    while ((status = sh_acceptor_step(join->mesh->acceptor, &conn, err)) == SH_OK) {
        status = admit(join, conn, err);
        if (status != SH_OK) return status;
    }
    return status == SH_AGAIN ? SH_OK : status;
}

/* One of several alternatives need not be there twice; a lane may. */
static void list_add_text(sh_addr_list *list, const char *text)
{
    for (int i = 0; list->alternatives && i < list->count; i++)
        if (strcmp(list->text[i], text) == 0) return;
    if (list->count < SH_LANES_MAX)
        snprintf(list->text[list->count++], SH_ADDR_TEXT_MAX, "%s", text);
}

static void list_add(sh_addr_list *list, const sh_addr *addr)
{
    char text[SH_ADDR_TEXT_MAX];
    sh_addr_format(addr, text);
    list_add_text(list, text);
}

/* Where this rank accepts connections. If that is everywhere, all its addresses follow the wildcard
 * ones, which stand for the address that a connection is seen to come from. */
static void list_own(const sh_join *join, sh_addr_list *list)
{
    const sh_addr *addrs;
    sh_interfaces all = {.count = 0};
    sh_err err;
    int count = sh_acceptor_addrs(join->mesh->acceptor, &addrs);
    *list = (sh_addr_list){.alternatives = join->opts->everywhere >= 0};
    for (int i = 0; i < count; i++) list_add(list, &addrs[i]);
    if (!list->alternatives) return;
    if (sh_interfaces_read(&all, &err) != SH_OK) SH_LOGW("%s", err.text);
    for (int i = 0; i < all.addr_count; i++)
        for (int k = 0; k < count; k++) {
            if (all.addr[i].sa.any.sa_family != addrs[k].sa.any.sa_family) continue;
            sh_addr_set_port(&all.addr[i], sh_addr_port(&addrs[k]));
            list_add(list, &all.addr[i]);
        }
}

void sh_join_connect_coordinator(sh_join *join)
{
    sh_hello hello = join->hello;
    hello.use = SH_USE_JOIN;
    hello.to = 0;
    hello.epoch = join->opts->last_epoch;
    hello.left = join->opts->last_left;
    hello.prepared = join->opts->prepared;
    list_own(join, &hello.listen);
    join->attempts[0].peer = 0;
    join->attempt_count = 1;
    sh_connector_init(&join->attempts[0].connector, join->opts->coordinator, join->mesh->tls,
                      &hello, join->opts->handshake_ms);
}

static bool is_any(const char *text)
{
    sh_addr addr;
    sh_err ignored;
    return sh_addr_parse(text, &addr, &ignored) == SH_OK && sh_addr_is_any(&addr);
}

static bool is_own(const sh_interfaces *own, const char *text)
{
    sh_addr addr;
    sh_err ignored;
    return sh_addr_parse(text, &addr, &ignored) == SH_OK && sh_interfaces_have(own, &addr);
}

/* All addresses of a rank. Of one on another machine, those that this machine has too lead back
 * here: every machine with containers has the address of their bridge. */
static void list_alternatives(const sh_join *join, int rank, char out[SH_CONNECTOR_ADDRESS_MAX])
{
    const sh_rank_table_row *row = &join->table.row[rank];
    bool same_host = memcmp(row->host, join->hello.host, SH_HOST_ID_LEN) == 0;
    sh_interfaces own = {.count = 0};
    sh_err err;
    size_t len = 0;
    if (!same_host && sh_interfaces_read(&own, &err) != SH_OK) SH_LOGW("%s", err.text);
    for (int i = 0; i < row->addrs.count; i++)
        if (same_host || !is_own(&own, row->addrs.text[i]))
            len += (size_t)snprintf(out + len, SH_CONNECTOR_ADDRESS_MAX - len, "%s%s",
                                    len > 0 ? "," : "", row->addrs.text[i]);
    if (len == 0) snprintf(out, SH_CONNECTOR_ADDRESS_MAX, "%s", row->addrs.text[0]);
}

/* The address to use for a connection to a rank. If it has alternatives, the control connection
 * finds the best, and data sockets follow it. If rank 0 listens on the wildcard address, use the
 * one that it was reached at before; for other ranks, rank 0 has filled it in (see fill_row). */
static void address_of(const sh_join *join, int rank, int socket,
                       char out[SH_CONNECTOR_ADDRESS_MAX])
{
    const sh_addr_list *list = &join->table.row[rank].addrs;
    const char *text = list->text[socket / 2 % list->count];
    bool connected = join->mesh->peer[rank].control != NULL;
    if (list->alternatives && !connected) {
        list_alternatives(join, rank, out);
        return;
    }
    if (list->alternatives)
        text = join->mesh->peer[rank].name;
    else if (rank == 0 && is_any(text))
        text = join->opts->coordinator;
    snprintf(out, SH_CONNECTOR_ADDRESS_MAX, "%s", text);
}

void sh_join_addresses(const sh_join *join, int rank, sh_addr_list *out)
{
    out->count = join->table.row[rank].addrs.count;
    for (int i = 0; i < out->count; i++) {
        char address[SH_CONNECTOR_ADDRESS_MAX];
        address_of(join, rank, 2 * i, address); /* a single one: the control connection is there */
        snprintf(out->text[i], sizeof(out->text[i]), "%.*s", SH_ADDR_TEXT_MAX - 1, address);
    }
}

static void add_attempt(sh_join *join, int rank, sh_hello *hello)
{
    sh_join_attempt *attempt = &join->attempts[join->attempt_count++];
    char address[SH_CONNECTOR_ADDRESS_MAX];
    address_of(join, rank, hello->socket, address);
    attempt->peer = rank;
    hello->to = (uint32_t)rank;
    sh_connector_init(&attempt->connector, address, join->mesh->tls, hello,
                      join->opts->handshake_ms);
}

/* Every rank opens a control connection to all lower ones; rank 0 already has one. */
static void connect_controls(sh_join *join)
{
    sh_hello hello = join->hello;
    hello.epoch = join->table.epoch;
    hello.use = SH_USE_CONTROL;
    for (int rank = 1; rank < join->mesh->rank; rank++)
        if (exists(join, rank)) add_attempt(join, rank, &hello);
}

static void connect_sockets(sh_join *join, int rank)
{
    sh_hello hello = join->hello;
    hello.epoch = join->table.epoch;
    hello.use = SH_USE_DATA;
    for (int socket = 0; socket < join->pairing[rank].sockets; socket++) {
        hello.socket = (uint8_t)socket;
        add_attempt(join, rank, &hello);
    }
}

/* The epoch and the hosts are known: the pairs can make their offers. */
static void start_pairings(sh_join *join)
{
    size_t conns = (size_t)join->mesh->size * (size_t)(2 * join->opts->lanes + 1);
    join->attempts = sh_realloc_array(join->attempts, conns, sizeof(*join->attempts));
    for (int rank = 0; rank < join->mesh->size; rank++) {
        if (!exists(join, rank)) continue;
        const sh_rank_table_row *row = &join->table.row[rank];
        sh_pair pair = {.rank = join->mesh->rank,
                        .peer = rank,
                        .same_host = memcmp(row->host, join->hello.host, SH_HOST_ID_LEN) == 0,
                        .epoch = join->table.epoch,
                        .lanes = join->opts->lanes,
                        .plain_data = join->opts->plain_data,
                        .library = join->opts->library};
        sh_pairing_init(&join->pairing[rank], join->opts, &pair);
    }
    join->table_known = true;
}

/* An outgoing connection was welcomed. */
static sh_status attempt_done(sh_join *join, sh_join_attempt *attempt, sh_err *err)
{
    sh_peer_conn *conn = sh_connector_take(&attempt->connector);
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    uint32_t asked = attempt->connector.hello.rank;
    bool renamed = asked != SH_RANK_ANY && theirs->given_rank != asked;
    if ((int)theirs->rank != attempt->peer || renamed || theirs->given_rank == 0) {
        sh_err_set(err, SH_ERR_GROUP, "rank %" PRIu32 " answered, to rank %" PRIu32, theirs->rank,
                   theirs->given_rank);
        sh_peer_conn_close(conn);
        return err->status;
    }
    if (attempt->connector.hello.use == SH_USE_JOIN) {
        join->hello.rank = theirs->given_rank;
        join->mesh->rank = (int)theirs->given_rank;
    }
    if (attempt->connector.hello.use != SH_USE_DATA) {
        join->mesh->peer[attempt->peer].control = conn;
        snprintf(join->mesh->peer[attempt->peer].name, SH_ADDR_TEXT_MAX, "%s",
                 sh_peer_conn_name(conn));
        return SH_OK;
    }
    sh_pairing_add_socket(&join->pairing[attempt->peer], attempt->connector.hello.socket,
                          sh_peer_conn_release(conn));
    return SH_OK;
}

sh_status sh_join_step_attempts(sh_join *join, sh_err *err)
{
    for (int i = 0; i < join->attempt_count; i++) {
        sh_join_attempt *attempt = &join->attempts[i];
        sh_status status = sh_connector_step(&attempt->connector, err);
        if (status == SH_AGAIN) continue;
        if (status == SH_OK) status = attempt_done(join, attempt, err);
        if (status < 0) {
            join->at_fault = attempt->peer;
            return sh_err_prefix(err, "rank %d at %s", attempt->peer, attempt->connector.address);
        }
        join->attempts[i--] = join->attempts[--join->attempt_count]; /* the order does not matter */
    }
    return SH_OK;
}

/* A rank that listens on the wildcard address does not know which of its addresses others can
 * reach; rank 0 replaces it by the address that the connection came from. Where it listens on the
 * wildcard addresses of both families, one of them does not fit and is left out. */
static void fill_row(sh_join *join, int rank)
{
    sh_rank_table_row *row = &join->table.row[rank];
    const sh_hello *hello = sh_peer_conn_peer(join->mesh->peer[rank].control);
    memcpy(row->host, hello->host, SH_HOST_ID_LEN);
    row->addrs.alternatives = hello->listen.alternatives;
    for (int i = 0; i < hello->listen.count; i++) {
        const char *text = hello->listen.text[i];
        sh_addr addr, seen;
        sh_err ignored;
        if (is_any(text) && sh_addr_parse(text, &addr, &ignored) == SH_OK &&
            sh_addr_parse(join->mesh->peer[rank].name, &seen, &ignored) == SH_OK) {
            bool fits = addr.sa.any.sa_family == seen.sa.any.sa_family;
            sh_addr_set_port(&seen, sh_addr_port(&addr));
            if (fits || !hello->listen.alternatives) list_add(&row->addrs, &seen);
        } else {
            list_add_text(&row->addrs, text);
        }
    }
}

/* Rank 0: the epoch is random and not a counter, because rank 0 does not remember earlier groups.
 */
static sh_status send_table(sh_join *join, sh_err *err)
{
    sh_rank_table *table = &join->table;
    list_own(join, &table->row[0].addrs);
    memcpy(table->row[0].host, join->hello.host, SH_HOST_ID_LEN);
    while (join->mesh->size > 1 && join->mesh->peer[join->mesh->size - 1].control == NULL)
        join->mesh->size--;
    table->count = (uint32_t)join->mesh->size;
    table->left = join->opts->roster == NULL ? 0 : sh_roster_left(join->opts->roster);
    do sh_random(&table->epoch, sizeof(table->epoch));
    while (table->epoch == 0);
    for (int r = 1; r < join->mesh->size; r++) {
        if (join->mesh->peer[r].control == NULL) continue;
        fill_row(join, r);
        if (join->opts->roster != NULL) sh_roster_try(join->opts->roster, r);
    }
    for (int r = 1; r < join->mesh->size; r++) {
        if (!exists(join, r)) continue;
        sh_rank_table_pack(sh_peer_conn_out(join->mesh->peer[r].control), table);
        sh_status status = sh_peer_conn_flush(join->mesh->peer[r].control, err);
        if (status < 0) return sh_err_prefix(err, "rank %d at %s", r, join->mesh->peer[r].name);
    }
    start_pairings(join);
    return SH_OK;
}

static sh_status take_table(sh_join *join, const uint8_t *payload, size_t len, sh_err *err)
{
    if (join->mesh->rank == 0 || join->table_known)
        return sh_err_set(err, SH_ERR_GROUP, "received an unexpected address table");
    sh_status status = sh_rank_table_unpack(payload, len, &join->table, err);
    if (status != SH_OK) return status;
    bool good = join->table.epoch != 0 && (uint32_t)join->mesh->rank < join->table.count &&
                exists(join, 0) && exists(join, join->mesh->rank);
    if (!good) return sh_err_set(err, SH_ERR_GROUP, "received an incomplete address table");
    join->mesh->size = (int)join->table.count;
    start_pairings(join);
    connect_controls(join);
    return SH_OK;
}

/* Until the table has been sent a rank may disconnect and join again; afterwards the group fails.
 */
static sh_status lost_control(sh_join *join, int rank, sh_err *err)
{
    sh_mesh_peer *peer = &join->mesh->peer[rank];
    if (join->table_known) {
        join->at_fault = rank;
        err->status = SH_ERR_GROUP;
        return sh_err_prefix(err, "rank %d at %s was lost while the group was forming", rank,
                             peer->name);
    }
    SH_LOGW("rank %d at %s left before the group had formed: %s", rank, peer->name, err->text);
    sh_peer_conn_close(peer->control);
    peer->control = NULL;
    if (join->mesh->rank != 0) sh_join_connect_coordinator(join);
    return SH_OK;
}

/* Sends what was packed for a rank; what does not fit now goes with the next read_control. */
static sh_status flush_control(sh_join *join, int rank, sh_err *err)
{
    sh_status status = sh_peer_conn_flush(join->mesh->peer[rank].control, err);
    return status < 0 ? lost_control(join, rank, err) : SH_OK;
}

static sh_status send_frame(sh_join *join, int rank, sh_frame_type type, sh_err *err)
{
    sh_frame_pack(sh_peer_conn_out(join->mesh->peer[rank].control), type);
    return flush_control(join, rank, err);
}

static sh_status send_offers(sh_join *join, int rank, sh_err *err)
{
    sh_offers_pack(sh_peer_conn_out(join->mesh->peer[rank].control), &join->pairing[rank].mine);
    return flush_control(join, rank, err);
}

/* The lower rank of a pair answers, even if there is nothing to agree on: its peer then comes to
 * the same conclusion by itself. */
static sh_status take_offers(sh_join *join, int rank, const uint8_t *payload, size_t len,
                             sh_err *err)
{
    sh_pairing *pairing = &join->pairing[rank];
    sh_offers theirs;
    sh_status status = sh_offers_unpack(payload, len, &theirs, err);
    if (status == SH_OK && (int)theirs.rank != rank)
        status = sh_err_set(err, SH_ERR_GROUP, "sent the offers of rank %" PRIu32, theirs.rank);
    if (status != SH_OK) {
        join->at_fault = rank;
        return sh_err_prefix(err, "rank %d at %s", rank, join->mesh->peer[rank].name);
    }
    status = sh_pairing_agree(pairing, &theirs, err);
    if (!sh_pairing_leads(pairing)) {
        sh_err ignored; /* what matters is why they do not agree */
        sh_status sent = send_offers(join, rank, status == SH_OK ? err : &ignored);
        return status == SH_OK ? sent : status;
    }
    if (status == SH_OK) connect_sockets(join, rank);
    return status;
}

/* Whether a list of offers from this rank is due: the first of a pair from the higher rank, and the
 * answer to ours from the lower. */
static bool are_offers_due(const sh_join *join, int rank)
{
    const sh_pairing *pairing = &join->pairing[rank];
    return join->table_known && pairing->chosen == NULL &&
           pairing->offered == sh_pairing_leads(pairing);
}

static sh_status take_abort(sh_join *join, const uint8_t *payload, size_t len, sh_err *err)
{
    sh_notice notice;
    sh_status status = sh_notice_unpack(payload, len, &notice, err);
    if (status != SH_OK) return status;
    join->at_fault = notice.rank;
    return sh_err_set(err, SH_ERR_GROUP, "%s", notice.text);
}

static sh_status take_frame(sh_join *join, int rank, sh_frame_head head, const uint8_t *payload,
                            sh_err *err)
{
    switch (head.type) {
    case SH_FRAME_TABLE:
        if (rank == 0) return take_table(join, payload, head.len, err);
        break;
    case SH_FRAME_OFFERS:
        if (are_offers_due(join, rank)) return take_offers(join, rank, payload, head.len, err);
        break;
    case SH_FRAME_READY: join->ready[rank] = true; return SH_OK;
    case SH_FRAME_GO:
        if (rank != 0) break;
        join->go = true;
        return SH_OK;
    case SH_FRAME_HEARTBEAT: return SH_OK; /* the peer got GO before we did */
    case SH_FRAME_ABORT: return take_abort(join, payload, head.len, err);
    default: break;
    }
    join->at_fault = rank;
    return sh_err_set(err, SH_ERR_GROUP,
                      "rank %d sent an unexpected frame of type %d while the group was forming",
                      rank, head.type);
}

/* Stops reading at GO: frames after it belong to the owner of the formed group. */
static sh_status read_control(sh_join *join, int rank, sh_err *err)
{
    for (;;) {
        sh_peer_conn *conn = join->mesh->peer[rank].control;
        sh_frame_head head;
        const uint8_t *payload;
        sh_status status = conn == NULL || join->go ? SH_AGAIN : sh_peer_conn_flush(conn, err);
        if (status >= 0 && conn != NULL && !join->go)
            status = sh_peer_conn_recv(conn, &head, &payload, err);
        if (status == SH_AGAIN) return SH_OK;
        status = status < 0 ? lost_control(join, rank, err)
                            : take_frame(join, rank, head, payload, err);
        if (status != SH_OK) return status;
    }
}

sh_status sh_join_step_controls(sh_join *join, sh_err *err)
{
    for (int rank = 0; rank < join->mesh->size; rank++) {
        sh_status status = read_control(join, rank, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static bool all_peers(const sh_join *join, bool (*has)(const sh_join *join, int rank))
{
    for (int r = 0; r < join->mesh->size; r++)
        if (r != join->mesh->rank && exists(join, r) && !has(join, r)) return false;
    return true;
}

/* Rank 0: whether all have come that this group needs. */
static bool all_came(sh_join *join)
{
    sh_roster *roster = join->opts->roster;
    if (roster != NULL && roster->gathering) {
        if (!sh_roster_settle(roster, sh_clock_ns())) return false;
        join->deadline = sh_deadline_in_ms(join->opts->join_ms); /* counts from now on */
    }
    if (join->without_at == SH_DEADLINE_NEVER && roster != NULL) /* it may just have resumed */
        join->without_at = sh_roster_without_at(roster);
    bool late = sh_deadline_passed(join->without_at);
    for (int r = 1; r < join->mesh->size; r++)
        if (join->mesh->peer[r].control == NULL &&
            (roster == NULL || sh_roster_waits_for(roster, r, late)))
            return false;
    return true;
}

static bool has_conns(const sh_join *join, int rank)
{
    return join->mesh->peer[rank].control != NULL && join->mesh->peer[rank].channel != NULL;
}

static bool is_ready(const sh_join *join, int rank)
{
    return join->ready[rank];
}

/* Takes a pair one step towards its channel. */
static sh_status advance_pair(sh_join *join, int rank, sh_err *err)
{
    sh_pairing *pairing = &join->pairing[rank];
    sh_mesh_peer *peer = &join->mesh->peer[rank];
    if (peer->control == NULL || peer->channel != NULL) return SH_OK;
    if (sh_pairing_leads(pairing) && !pairing->offered) {
        sh_pairing_offer(pairing);
        return send_offers(join, rank, err);
    }
    sh_status status = sh_pairing_connect(pairing, &peer->channel, err);
    if (status >= 0) return SH_OK;
    join->at_fault = rank;
    return sh_err_prefix(err, "%s to rank %d at %s", pairing->chosen->title, rank, peer->name);
}

static sh_status advance_pairs(sh_join *join, sh_err *err)
{
    sh_status status = SH_OK;
    for (int rank = 0; rank < join->mesh->size && status == SH_OK; rank++)
        if (rank != join->mesh->rank) status = advance_pair(join, rank, err);
    return status;
}

/* READY goes to rank 0 only when all connections of this rank are open, and GO to everybody only
 * when all ranks are READY. So no rank starts an operation that a peer cannot receive yet. */
sh_status sh_join_advance(sh_join *join, sh_err *err)
{
    bool is_coordinator = join->mesh->rank == 0;
    sh_status status = SH_OK;
    if (is_coordinator && !join->table_known && all_came(join)) status = send_table(join, err);
    if (status == SH_OK && join->table_known) status = advance_pairs(join, err);
    if (status == SH_OK && join->table_known && !join->ready_sent && all_peers(join, has_conns)) {
        if (!is_coordinator) status = send_frame(join, 0, SH_FRAME_READY, err);
        join->ready_sent = true;
    }
    if (status == SH_OK && is_coordinator && join->ready_sent && all_peers(join, is_ready)) {
        for (int r = 1; r < join->mesh->size && status == SH_OK; r++)
            if (exists(join, r)) status = send_frame(join, r, SH_FRAME_GO, err);
        join->go = true;
    }
    return status;
}
