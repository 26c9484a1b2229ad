/* Retrying is the normal case here: ranks start in any order, and machines boot slowly. The
 * question is which errors end it. Only those that we know ourselves (an invalid address) or that a
 * peer sent after proving the token; a reset or a TLS alert can be forged by anybody on the
 * network, and giving up on it would let a stranger stop a cluster from forming. */
#include "net/connector.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum {
    PAUSE_FIRST_MS = 20,
    PAUSE_MAX_MS = 1000,
    WAIT_MS = 250,    /* after a rank that is there has asked to wait */
    CONNECT_MS = 250, /* most connections are open within a few milliseconds */
    LONG_TRY = 8,     /* one attempt in this many gets the time of a whole handshake to connect */
};

void sh_connector_init(sh_connector *connector, const char *address, sh_tls *tls,
                       const sh_hello *hello, int handshake_ms)
{
    memset(connector, 0, sizeof(*connector));
    snprintf(connector->address, sizeof(connector->address), "%s", address);
    connector->tls = tls;
    connector->hello = *hello;
    connector->handshake_ms = handshake_ms;
    connector->pause_ms = PAUSE_FIRST_MS;
    sh_err_set(&connector->last, SH_ERR_PEER, "not tried yet");
}

void sh_connector_reset(sh_connector *connector)
{
    sh_peer_conn_close(connector->conn);
    connector->conn = NULL;
    sh_address_race_reset(&connector->race);
}

static bool is_list(const sh_connector *connector)
{
    return strchr(connector->address, ',') != NULL;
}

/* Names are resolved again in each round, since a booting machine may not be in DNS yet. SH_AGAIN:
 * the addresses of a list are being measured. */
static sh_status find_addrs(sh_connector *connector, sh_err *err)
{
    if (connector->race.count == 0) {
        sh_status status = sh_addr_resolve_list(connector->address, SH_LANES_MAX, connector->addr,
                                                &connector->addr_count, err);
        if (status != SH_OK) return status;
        if (is_list(connector) && connector->addr_count > 1)
            sh_address_race_start(&connector->race, connector->addr, connector->addr_count);
    }
    if (connector->race.count > 0 && sh_address_race_step(&connector->race) != SH_OK)
        return SH_AGAIN;
    for (int i = 0; i < connector->race.count; i++) connector->addr[i] = connector->race.addr[i];
    sh_address_race_reset(&connector->race);
    connector->addr_next = 0;
    return SH_OK;
}

static sh_status start_try(sh_connector *connector, sh_err *err)
{
    sh_status status = connector->addr_next < connector->addr_count && connector->race.count == 0
                           ? SH_OK
                           : find_addrs(connector, err);
    if (status != SH_OK) return status;
    connector->connect_end = sh_deadline_in_ms(
        ++connector->tries % LONG_TRY == 0 ? connector->handshake_ms : CONNECT_MS);
    return sh_peer_conn_connect(&connector->addr[connector->addr_next++], connector->tls,
                                &connector->hello, sh_deadline_in_ms(connector->handshake_ms),
                                &connector->conn, err);
}

static void plan_next_try(sh_connector *connector, const sh_err *err)
{
    sh_connector_reset(connector);
    connector->last = *err;
    if (connector->addr_next < connector->addr_count) return; /* try the next address at once */
    if (err->status == SH_ERR_TIMEOUT) return;                /* the timeout was pause enough */
    connector->next_try = sh_deadline_in_ms(connector->pause_ms);
    connector->pause_ms = connector->pause_ms * 2 < PAUSE_MAX_MS ? connector->pause_ms * 2
                                                                 : PAUSE_MAX_MS;
}

/* Errors that another attempt cannot cure: a wrong token, a refusal by the group, a bad address, a
 * node id that another rank has, a share that has to be loaded first. */
static bool is_final(sh_status status)
{
    return status == SH_ERR_AUTH || status == SH_ERR_GROUP || status == SH_ERR_INPUT ||
           status == SH_ERR_CONFLICT || status == SH_ERR_CANCELLED;
}

/* In a flood the peer's listen queue is full and its kernel silently drops our SYN; ours would send
 * it again only after one second, then two, then four. A new attempt gets through sooner. */
static sh_status step_link(sh_connector *connector, sh_err *err)
{
    sh_status status = sh_peer_conn_step(connector->conn, err);
    if (status != SH_AGAIN || sh_peer_conn_is_connected(connector->conn) ||
        !sh_deadline_passed(connector->connect_end))
        return status;
    return sh_err_set(err, SH_ERR_TIMEOUT, "timed out waiting for a connection");
}

/* Anybody who can inject a packet can send an alert: until the peer has proved the token, an
 * authentication error is worth one warning and another attempt. */
static void warn_unproved(sh_connector *connector, const sh_err *err)
{
    if (err->status != SH_ERR_AUTH || connector->warned) return;
    connector->warned = true;
    SH_LOGW("%s: %s, or another program answers there; retrying until the join timeout",
            connector->address, err->text);
}

sh_status sh_connector_step(sh_connector *connector, sh_err *err)
{
    if (connector->conn == NULL && !sh_deadline_passed(connector->next_try)) return SH_AGAIN;
    bool starts = connector->conn == NULL;
    sh_status status = starts ? start_try(connector, err) : SH_OK;
    bool trusted = status != SH_OK; /* our own error, such as an invalid address */
    bool reached = false;
    if (status == SH_OK) {
        status = step_link(connector, err);
        trusted = reached = sh_peer_conn_is_authenticated(connector->conn);
    }
    if (status >= 0) return status;
    plan_next_try(connector, err);
    /* Another rank is there. One of many addresses may well lead to another machine, such as that
     * of a bridge for containers, which all machines have. */
    if (reached && status == SH_ERR_NOT_FOUND && !is_list(connector))
        return err->status = SH_ERR_GROUP;
    if (trusted && status == SH_ERR_PEER) { /* it answers there: stay with that address */
        connector->addr_next--;
        connector->next_try = sh_deadline_in_ms(WAIT_MS);
    }
    if (trusted && is_final(status)) return status;
    warn_unproved(connector, err);
    return SH_AGAIN;
}

sh_peer_conn *sh_connector_take(sh_connector *connector)
{
    sh_peer_conn *conn = connector->conn;
    connector->conn = NULL;
    return conn;
}
