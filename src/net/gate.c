#include "net/gate.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refusals that are logged as warnings; a flood of strangers must not fill the disk. */
enum { WARNINGS_MAX = 20 };

struct sh_gate {
    int listen_fd[SH_LANES_MAX];
    sh_addr addr[SH_LANES_MAX];
    int listen_count;
    sh_tls *tls;
    int handshake_ms;
    sh_link *pending[SH_GATE_PENDING_MAX]; /* oldest first */
    int pending_count;
    int refused;
    char last[SH_ERR_TEXT_MAX];
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
    for (int i = 0; i < gate->pending_count; i++) sh_link_close(gate->pending[i]);
    free(gate);
}

int sh_gate_addrs(const sh_gate *gate, const sh_addr **out)
{
    *out = gate->addr;
    return gate->listen_count;
}

static void forget(sh_gate *gate, int idx)
{
    gate->pending_count--;
    memmove(&gate->pending[idx], &gate->pending[idx + 1],
            (size_t)(gate->pending_count - idx) * sizeof(gate->pending[0]));
}

static void send_away(sh_gate *gate, int idx, const char *why)
{
    sh_link *link = gate->pending[idx];
    snprintf(gate->last, sizeof(gate->last), "from %s: %.400s", sh_link_name(link), why);
    gate->refused++;
    sh_log(gate->refused <= WARNINGS_MAX ? SH_LOG_WARN : SH_LOG_DEBUG, "refused a connection %s%s",
           gate->last, gate->refused == WARNINGS_MAX ? " (no more of these are shown)" : "");
    sh_link_close(link);
    forget(gate, idx);
}

static sh_status let_in(sh_gate *gate, int listen_fd, sh_err *err)
{
    int fd;
    sh_addr from;
    sh_status status = sh_sock_accept(listen_fd, &fd, &from, err);
    if (status == SH_ERR_LIMIT && gate->pending_count > 0) {
        send_away(gate, 0, "no descriptor is left for newer ones");
        return SH_AGAIN;
    }
    if (status != SH_OK) return status;
    if (gate->pending_count == SH_GATE_PENDING_MAX)
        send_away(gate, 0, "too many handshakes are under way");
    gate->pending[gate->pending_count++] = sh_link_take(fd, &from, gate->tls,
                                                        sh_deadline_in_ms(gate->handshake_ms));
    return SH_OK;
}

sh_status sh_gate_step(sh_gate *gate, sh_link **out, sh_err *err)
{
    for (int i = 0; i < gate->listen_count; i++) {
        sh_status status = SH_OK;
        for (int n = 0; status == SH_OK && n < SH_GATE_PENDING_MAX; n++)
            status = let_in(gate, gate->listen_fd[i], err);
        if (status < 0) return status;
    }
    for (int i = 0; i < gate->pending_count;) {
        sh_err why;
        sh_status status = sh_link_step(gate->pending[i], &why);
        if (status == SH_OK) {
            *out = gate->pending[i];
            forget(gate, i);
            return SH_OK;
        }
        if (status < 0)
            send_away(gate, i, why.text);
        else
            i++;
    }
    return SH_AGAIN;
}

int sh_gate_poll(const sh_gate *gate, struct pollfd *out)
{
    int count = 0;
    for (int i = 0; i < gate->listen_count; i++)
        out[count++] = (struct pollfd){.fd = gate->listen_fd[i], .events = POLLIN};
    for (int i = 0; i < gate->pending_count; i++) out[count++] = sh_link_poll(gate->pending[i]);
    return count;
}

int sh_gate_refused(const sh_gate *gate, const char **last)
{
    *last = gate->last;
    return gate->refused;
}
