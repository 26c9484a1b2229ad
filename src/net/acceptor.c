/* Which connections to keep when there are more than slots.
 *
 * An attacker can open connections faster than any handshake completes. What it cannot do without
 * the token is get past the first message of TLS, which carries a proof of the token that is
 * checked at once. So a pending connection is silent, heard or proved, and those of the lowest
 * standing are dropped first. A rank sends that first message right after connecting; as soon as it
 * is processed the connection is proved and strangers can no longer evict it. Until then only the
 * number of slots protects it: a flood would have to replace all of them between its connection and
 * its first packet. */
#include "net/acceptor.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/penalty.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOURCE_MAX = 64,   /* slots for unproved connections from one machine */
    ACCEPTS_MAX = 128, /* per step, so that accepted connections get their turn */
    WARNINGS_MAX = 5,  /* per WARNINGS_MS; a flood of strangers must not fill the disk */
    WARNINGS_MS = 10000,
};

struct pending_conn {
    sh_peer_conn *conn;
    sh_addr from;
    sh_deadline start; /* when its handshake may start; see penalty.h */
};

struct sh_acceptor {
    int listen_fd[SH_LANES_MAX];
    sh_addr addr[SH_LANES_MAX];
    int listen_count;
    sh_tls *tls;
    int handshake_ms;
    struct pending_conn pending[SH_ACCEPTOR_PENDING_MAX]; /* oldest first */
    int pending_count;
    sh_penalty penalty;
    int refused;
    char last[SH_ERR_TEXT_MAX];
    sh_deadline warnings_end;
    int warnings, hidden;
};

static sh_acceptor *acceptor_create(sh_tls *tls, int handshake_ms)
{
    sh_acceptor *acceptor = sh_alloc(sizeof(*acceptor));
    acceptor->tls = tls;
    acceptor->handshake_ms = handshake_ms;
    return acceptor;
}

sh_status sh_acceptor_adopt(int fd, sh_tls *tls, int handshake_ms, sh_acceptor **out, sh_err *err)
{
    sh_acceptor *acceptor = acceptor_create(tls, handshake_ms);
    acceptor->listen_fd[acceptor->listen_count++] = fd;
    if (sh_sock_prepare(fd, err) != SH_OK || sh_sock_local(fd, &acceptor->addr[0], err) != SH_OK) {
        sh_acceptor_close(acceptor);
        return err->status;
    }
    *out = acceptor;
    return SH_OK;
}

sh_status sh_acceptor_open(const sh_addr *addrs, int count, sh_tls *tls, int handshake_ms,
                           sh_acceptor **out, sh_err *err)
{
    SH_ASSERT(count >= 1 && count <= SH_LANES_MAX);
    sh_acceptor *acceptor = acceptor_create(tls, handshake_ms);
    for (int i = 0; i < count; i++) {
        if (sh_sock_listen(&addrs[i], &acceptor->listen_fd[i], err) != SH_OK) goto fail;
        acceptor->listen_count++;
        if (sh_sock_local(acceptor->listen_fd[i], &acceptor->addr[i], err) != SH_OK) goto fail;
    }
    *out = acceptor;
    return SH_OK;

fail:
    sh_acceptor_close(acceptor);
    return err->status;
}

void sh_acceptor_close(sh_acceptor *acceptor)
{
    if (acceptor == NULL) return;
    for (int i = 0; i < acceptor->listen_count; i++) sh_sock_close(acceptor->listen_fd[i]);
    for (int i = 0; i < acceptor->pending_count; i++) sh_peer_conn_close(acceptor->pending[i].conn);
    free(acceptor);
}

int sh_acceptor_addrs(const sh_acceptor *acceptor, const sh_addr **out)
{
    *out = acceptor->addr;
    return acceptor->listen_count;
}

/* Logs the first few refusals of a flood, and later how many more there were. */
static void warn(sh_acceptor *acceptor)
{
    if (sh_deadline_passed(acceptor->warnings_end)) {
        if (acceptor->hidden > 0)
            SH_LOGW("refused %d more connections since the last warning", acceptor->hidden);
        acceptor->warnings_end = sh_deadline_in_ms(WARNINGS_MS);
        acceptor->warnings = acceptor->hidden = 0;
    }
    bool shown = acceptor->warnings < WARNINGS_MAX;
    sh_log(shown ? SH_LOG_WARN : SH_LOG_DEBUG, "refused a connection %s", acceptor->last);
    if (shown)
        acceptor->warnings++;
    else
        acceptor->hidden++;
}

void sh_acceptor_note_refusal(sh_acceptor *acceptor, const sh_peer_conn *conn, const char *why)
{
    snprintf(acceptor->last, sizeof(acceptor->last), "from %s: %.400s", sh_peer_conn_name(conn),
             why);
    acceptor->refused++;
    warn(acceptor);
}

/* Keeps the order of age, which choose_victim relies on. */
static void pending_remove(sh_acceptor *acceptor, int idx)
{
    acceptor->pending_count--;
    memmove(&acceptor->pending[idx], &acceptor->pending[idx + 1],
            (size_t)(acceptor->pending_count - idx) * sizeof(acceptor->pending[0]));
}

static void reject(sh_acceptor *acceptor, int idx, const char *why)
{
    sh_peer_conn *conn = acceptor->pending[idx].conn;
    sh_acceptor_note_refusal(acceptor, conn, why);
    sh_peer_conn_close(conn);
    pending_remove(acceptor, idx);
}

/* The connection to drop, among those from one machine or (from == NULL) among all: that of the
 * lowest standing, and of those the oldest. */
static int choose_victim(const sh_acceptor *acceptor, const sh_addr *from)
{
    int found = -1;
    sh_peer_conn_standing lowest = SH_STANDING_PROVED;
    for (int i = 0; i < acceptor->pending_count; i++) {
        if (from != NULL && !sh_addr_same_host(&acceptor->pending[i].from, from)) continue;
        sh_peer_conn_standing standing = sh_peer_conn_standing_of(acceptor->pending[i].conn);
        if (found >= 0 && standing >= lowest) continue;
        found = i;
        lowest = standing;
    }
    return found;
}

static int unproved_count(const sh_acceptor *acceptor, const sh_addr *from)
{
    int count = 0;
    for (int i = 0; i < acceptor->pending_count; i++)
        count += sh_peer_conn_standing_of(acceptor->pending[i].conn) != SH_STANDING_PROVED &&
                 sh_addr_same_host(&acceptor->pending[i].from, from);
    return count;
}

/* Loopback has no limit of its own, only the total: all ranks of this machine connect from there.
 */
static void evict_if_full(sh_acceptor *acceptor, const sh_addr *from)
{
    if (!sh_addr_is_loopback(from) && unproved_count(acceptor, from) >= SOURCE_MAX)
        reject(acceptor, choose_victim(acceptor, from), "too many handshakes from one machine");
    else if (acceptor->pending_count == SH_ACCEPTOR_PENDING_MAX)
        reject(acceptor, choose_victim(acceptor, NULL), "too many handshakes in progress");
}

/* A connection that ends without a byte: a rank measured this address (address_race.h), or somebody
 * looked whether the port is open. */
static void drop_probe(sh_acceptor *acceptor, int idx)
{
    sh_peer_conn *conn = acceptor->pending[idx].conn;
    SH_LOGD("a connection from %s ended without a byte", sh_peer_conn_name(conn));
    sh_peer_conn_close(conn);
    pending_remove(acceptor, idx);
}

/* Advances one handshake. SH_OK: its hello is here. An error: it was rejected and removed. */
static sh_status pending_step(sh_acceptor *acceptor, int idx)
{
    struct pending_conn *k = &acceptor->pending[idx];
    sh_err why;
    if (!sh_deadline_passed(k->start)) return SH_AGAIN;
    sh_status status = sh_peer_conn_step(k->conn, &why);
    if (status >= 0) return status;
    if (status == SH_ERR_AUTH) sh_penalty_add(&acceptor->penalty, &k->from);
    if (status == SH_ERR_PEER && sh_peer_conn_standing_of(k->conn) == SH_STANDING_SILENT)
        drop_probe(acceptor, idx);
    else
        reject(acceptor, idx, why.text);
    return status;
}

/* Running out of descriptors must not stop the rank that is waiting in the backlog: sacrifice a
 * pending connection and let the next step try again. */
static sh_status accept_one(sh_acceptor *acceptor, int listen_fd, sh_err *err)
{
    int fd;
    sh_addr from;
    sh_status status = sh_sock_accept(listen_fd, &fd, &from, err);
    if (status == SH_ERR_LIMIT && acceptor->pending_count > 0) {
        reject(acceptor, choose_victim(acceptor, NULL),
               "out of file descriptors for newer connections");
        return SH_AGAIN;
    }
    if (status != SH_OK) return status;
    evict_if_full(acceptor, &from);
    sh_deadline start = sh_penalty_start(&acceptor->penalty, &from);
    sh_deadline end = start + (int64_t)acceptor->handshake_ms * 1000000;
    acceptor->pending[acceptor->pending_count++] = (struct pending_conn){
        .conn = sh_peer_conn_accept(fd, &from, acceptor->tls, end), .from = from, .start = start};
    /* Step it right away: the first message of a rank has usually arrived by now, so it gets its
     * standing before the next connection needs a slot. */
    pending_step(acceptor, acceptor->pending_count - 1);
    return SH_OK;
}

sh_status sh_acceptor_step(sh_acceptor *acceptor, sh_peer_conn **out, sh_err *err)
{
    for (int i = 0; i < acceptor->listen_count; i++) {
        sh_status status = SH_OK;
        for (int n = 0; status == SH_OK && n < ACCEPTS_MAX; n++)
            status = accept_one(acceptor, acceptor->listen_fd[i], err);
        if (status < 0) return status;
    }
    /* One completed handshake per call; the caller calls again until SH_AGAIN. Rejected ones remove
     * themselves, which moves the next one to index i. */
    for (int i = 0; i < acceptor->pending_count;) {
        sh_status status = pending_step(acceptor, i);
        if (status == SH_OK) {
            *out = acceptor->pending[i].conn;
            pending_remove(acceptor, i);
            return SH_OK;
        }
        if (status == SH_AGAIN) i++;
    }
    return SH_AGAIN;
}

/* A connection that has to wait for its penalty is left out: its bytes would wake us for nothing.
 */
int sh_acceptor_poll(const sh_acceptor *acceptor, struct pollfd *out)
{
    int count = 0;
    for (int i = 0; i < acceptor->listen_count; i++)
        out[count++] = (struct pollfd){.fd = acceptor->listen_fd[i], .events = POLLIN};
    for (int i = 0; i < acceptor->pending_count; i++)
        if (sh_deadline_passed(acceptor->pending[i].start))
            out[count++] = sh_peer_conn_poll(acceptor->pending[i].conn);
    return count;
}

int sh_acceptor_refused(const sh_acceptor *acceptor, const char **last)
{
    *last = acceptor->last;
    return acceptor->refused;
}
