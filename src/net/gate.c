/* Who may stay when there are more knockers than places.
 *
 * A stranger can open connections faster than any handshake is done. What he cannot do without the
 * token is to get past the first message of TLS: it carries a proof of the token, which is checked
 * at once. So a knocker is silent, heard or proved, and the lowest of these leaves first. A rank
 * that connects sends that message without being asked; it is proved as soon as it is looked at,
 * and strangers can no longer push it out. Until then the number of places keeps it: a flood has
 * to turn all of them over between its connection and its first packet. */
#include "net/gate.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/penalty.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOURCE_MAX = 64,   /* places for knockers of one machine that have proved nothing */
    ACCEPTS_MAX = 128, /* in one step, so that those who were let in get their turn */
    WARNINGS_MAX = 5,  /* in WARNINGS_MS; a flood of strangers must not fill the disk */
    WARNINGS_MS = 10000,
};

struct knocker {
    sh_link *link;
    sh_addr from;
    sh_deadline start; /* when its handshake may begin */
};

struct sh_gate {
    int listen_fd[SH_LANES_MAX];
    sh_addr addr[SH_LANES_MAX];
    int listen_count;
    sh_tls *tls;
    int handshake_ms;
    struct knocker pending[SH_GATE_PENDING_MAX]; /* oldest first */
    int pending_count;
    sh_penalty penalty;
    int refused;
    char last[SH_ERR_TEXT_MAX];
    sh_deadline warnings_end;
    int warnings, hidden;
};

static sh_gate *gate_make(sh_tls *tls, int handshake_ms)
{
    sh_gate *gate = sh_alloc(sizeof(*gate));
    gate->tls = tls;
    gate->handshake_ms = handshake_ms;
    return gate;
}

sh_status sh_gate_adopt(int fd, sh_tls *tls, int handshake_ms, sh_gate **out, sh_err *err)
{
    sh_gate *gate = gate_make(tls, handshake_ms);
    gate->listen_fd[gate->listen_count++] = fd;
    if (sh_sock_prepare(fd, err) != SH_OK || sh_sock_local(fd, &gate->addr[0], err) != SH_OK) {
        sh_gate_close(gate);
        return err->status;
    }
    *out = gate;
    return SH_OK;
}

sh_status sh_gate_open(const sh_addr *addrs, int count, sh_tls *tls, int handshake_ms,
                       sh_gate **out, sh_err *err)
{
    SH_ASSERT(count >= 1 && count <= SH_LANES_MAX);
    sh_gate *gate = gate_make(tls, handshake_ms);
    for (int i = 0; i < count; i++) {
        if (sh_sock_listen(&addrs[i], &gate->listen_fd[i], err) != SH_OK) goto fail;
        gate->listen_count++;
        if (sh_sock_local(gate->listen_fd[i], &gate->addr[i], err) != SH_OK) goto fail;
    }
    *out = gate;
    return SH_OK;

fail:
    sh_gate_close(gate);
    return err->status;
}

void sh_gate_close(sh_gate *gate)
{
    if (gate == NULL) return;
    for (int i = 0; i < gate->listen_count; i++) sh_sock_close(gate->listen_fd[i]);
    for (int i = 0; i < gate->pending_count; i++) sh_link_close(gate->pending[i].link);
    free(gate);
}

int sh_gate_addrs(const sh_gate *gate, const sh_addr **out)
{
    *out = gate->addr;
    return gate->listen_count;
}

/* A few lines of a flood, and later how many there were. */
static void warn(sh_gate *gate)
{
    if (sh_deadline_passed(gate->warnings_end)) {
        if (gate->hidden > 0)
            SH_LOGW("%d more connections were refused since the last line here", gate->hidden);
        gate->warnings_end = sh_deadline_in_ms(WARNINGS_MS);
        gate->warnings = gate->hidden = 0;
    }
    bool shown = gate->warnings < WARNINGS_MAX;
    sh_log(shown ? SH_LOG_WARN : SH_LOG_DEBUG, "refused a connection %s", gate->last);
    if (shown)
        gate->warnings++;
    else
        gate->hidden++;
}

static void forget(sh_gate *gate, int idx)
{
    gate->pending_count--;
    memmove(&gate->pending[idx], &gate->pending[idx + 1],
            (size_t)(gate->pending_count - idx) * sizeof(gate->pending[0]));
}

static void send_away(sh_gate *gate, int idx, const char *why)
{
    sh_link *link = gate->pending[idx].link;
    snprintf(gate->last, sizeof(gate->last), "from %s: %.400s", sh_link_name(link), why);
    gate->refused++;
    warn(gate);
    sh_link_close(link);
    forget(gate, idx);
}

/* Who has to leave, among those of one machine or (from == NULL) among all: the lowest in standing,
 * and of these the oldest. */
static int choose_to_leave(const sh_gate *gate, const sh_addr *from)
{
    int found = -1;
    sh_link_standing lowest = SH_STANDING_PROVED;
    for (int i = 0; i < gate->pending_count; i++) {
        if (from != NULL && !sh_addr_same_host(&gate->pending[i].from, from)) continue;
        sh_link_standing standing = sh_link_standing_of(gate->pending[i].link);
        if (found >= 0 && standing >= lowest) continue;
        found = i;
        lowest = standing;
    }
    return found;
}

static int unproved_of(const sh_gate *gate, const sh_addr *from)
{
    int count = 0;
    for (int i = 0; i < gate->pending_count; i++)
        count += sh_link_standing_of(gate->pending[i].link) != SH_STANDING_PROVED &&
                 sh_addr_same_host(&gate->pending[i].from, from);
    return count;
}

/* Other users of this machine share its loopback with our ranks: they are bounded by all places. */
static void make_room(sh_gate *gate, const sh_addr *from)
{
    if (!sh_addr_is_loopback(from) && unproved_of(gate, from) >= SOURCE_MAX)
        send_away(gate, choose_to_leave(gate, from), "too many handshakes from one machine");
    else if (gate->pending_count == SH_GATE_PENDING_MAX)
        send_away(gate, choose_to_leave(gate, NULL), "too many handshakes are under way");
}

/* One step of a knocker. SH_OK: it has said hello. An error: it was sent away. */
static sh_status knocker_step(sh_gate *gate, int idx)
{
    struct knocker *k = &gate->pending[idx];
    sh_err why;
    if (!sh_deadline_passed(k->start)) return SH_AGAIN;
    sh_status status = sh_link_step(k->link, &why);
    if (status >= 0) return status;
    if (status == SH_ERR_AUTH) sh_penalty_add(&gate->penalty, &k->from);
    send_away(gate, idx, why.text);
    return status;
}

static sh_status let_in(sh_gate *gate, int listen_fd, sh_err *err)
{
    int fd;
    sh_addr from;
    sh_status status = sh_sock_accept(listen_fd, &fd, &from, err);
    if (status == SH_ERR_LIMIT && gate->pending_count > 0) {
        send_away(gate, choose_to_leave(gate, NULL), "no descriptor is left for newer ones");
        return SH_AGAIN;
    }
    if (status != SH_OK) return status;
    make_room(gate, &from);
    sh_deadline start = sh_penalty_start(&gate->penalty, &from);
    sh_deadline end = start + (int64_t)gate->handshake_ms * 1000000;
    gate->pending[gate->pending_count++] = (struct knocker){
        .link = sh_link_take(fd, &from, gate->tls, end), .from = from, .start = start};
    /* At once: the first message of a rank is usually here by now, and then it has its standing
     * before the next connection asks for a place. */
    knocker_step(gate, gate->pending_count - 1);
    return SH_OK;
}

sh_status sh_gate_step(sh_gate *gate, sh_link **out, sh_err *err)
{
    for (int i = 0; i < gate->listen_count; i++) {
        sh_status status = SH_OK;
        for (int n = 0; status == SH_OK && n < ACCEPTS_MAX; n++)
            status = let_in(gate, gate->listen_fd[i], err);
        if (status < 0) return status;
    }
    for (int i = 0; i < gate->pending_count;) {
        sh_status status = knocker_step(gate, i);
        if (status == SH_OK) {
            *out = gate->pending[i].link;
            forget(gate, i);
            return SH_OK;
        }
        if (status == SH_AGAIN) i++;
    }
    return SH_AGAIN;
}

int sh_gate_poll(const sh_gate *gate, struct pollfd *out)
{
    int count = 0;
    for (int i = 0; i < gate->listen_count; i++)
        out[count++] = (struct pollfd){.fd = gate->listen_fd[i], .events = POLLIN};
    for (int i = 0; i < gate->pending_count; i++)
        if (sh_deadline_passed(gate->pending[i].start))
            out[count++] = sh_link_poll(gate->pending[i].link);
    return count;
}

int sh_gate_refused(const sh_gate *gate, const char **last)
{
    *last = gate->last;
    return gate->refused;
}
