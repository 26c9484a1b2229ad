#include "net/door.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refusals that are logged as warnings; a flood of strangers must not fill the disk. */
enum { WARNINGS_MAX = 20 };

struct sh_door {
    int listen_fd[SH_LANES_MAX];
    sh_addr addr[SH_LANES_MAX];
    int listen_count;
    sh_tls *tls;
    int handshake_ms;
    sh_link *pending[SH_DOOR_PENDING_MAX]; /* oldest first */
    int pending_count;
    int refused;
    char last[SH_ERR_TEXT_MAX];
};

static sh_door *door_make(sh_tls *tls, int handshake_ms)
{
    sh_door *door = sh_alloc(sizeof(*door));
    door->tls = tls;
    door->handshake_ms = handshake_ms;
    return door;
}

sh_status sh_door_adopt(int fd, sh_tls *tls, int handshake_ms, sh_door **out, sh_err *err)
{
    sh_door *door = door_make(tls, handshake_ms);
    door->listen_fd[door->listen_count++] = fd;
    if (sh_sock_prepare(fd, err) != SH_OK || sh_sock_local(fd, &door->addr[0], err) != SH_OK) {
        sh_door_close(door);
        return err->status;
    }
    *out = door;
    return SH_OK;
}

sh_status sh_door_open(const sh_addr *addrs, int count, sh_tls *tls, int handshake_ms,
                       sh_door **out, sh_err *err)
{
    SH_ASSERT(count >= 1 && count <= SH_LANES_MAX);
    sh_door *door = door_make(tls, handshake_ms);
    for (int i = 0; i < count; i++) {
        if (sh_sock_listen(&addrs[i], &door->listen_fd[i], err) != SH_OK) goto fail;
        door->listen_count++;
        if (sh_sock_local(door->listen_fd[i], &door->addr[i], err) != SH_OK) goto fail;
    }
    *out = door;
    return SH_OK;

fail:
    sh_door_close(door);
    return err->status;
}

void sh_door_close(sh_door *door)
{
    if (door == NULL) return;
    for (int i = 0; i < door->listen_count; i++) sh_sock_close(door->listen_fd[i]);
    for (int i = 0; i < door->pending_count; i++) sh_link_close(door->pending[i]);
    free(door);
}

int sh_door_addrs(const sh_door *door, const sh_addr **out)
{
    *out = door->addr;
    return door->listen_count;
}

static void forget(sh_door *door, int idx)
{
    door->pending_count--;
    memmove(&door->pending[idx], &door->pending[idx + 1],
            (size_t)(door->pending_count - idx) * sizeof(door->pending[0]));
}

static void send_away(sh_door *door, int idx, const char *why)
{
    sh_link *link = door->pending[idx];
    snprintf(door->last, sizeof(door->last), "from %s: %.400s", sh_link_name(link), why);
    door->refused++;
    sh_log(door->refused <= WARNINGS_MAX ? SH_LOG_WARN : SH_LOG_DEBUG, "refused a connection %s%s",
           door->last, door->refused == WARNINGS_MAX ? " (no more of these are shown)" : "");
    sh_link_close(link);
    forget(door, idx);
}

static sh_status let_in(sh_door *door, int listen_fd, sh_err *err)
{
    int fd;
    sh_addr from;
    sh_status status = sh_sock_accept(listen_fd, &fd, &from, err);
    if (status == SH_ERR_LIMIT && door->pending_count > 0) {
        send_away(door, 0, "no descriptor is left for newer ones");
        return SH_AGAIN;
    }
    if (status != SH_OK) return status;
    if (door->pending_count == SH_DOOR_PENDING_MAX)
        send_away(door, 0, "too many handshakes are under way");
    door->pending[door->pending_count++] = sh_link_take(fd, &from, door->tls,
                                                        sh_deadline_in_ms(door->handshake_ms));
    return SH_OK;
}

sh_status sh_door_step(sh_door *door, sh_link **out, sh_err *err)
{
    for (int i = 0; i < door->listen_count; i++) {
        sh_status status = SH_OK;
        for (int n = 0; status == SH_OK && n < SH_DOOR_PENDING_MAX; n++)
            status = let_in(door, door->listen_fd[i], err);
        if (status < 0) return status;
    }
    for (int i = 0; i < door->pending_count;) {
        sh_err why;
        sh_status status = sh_link_step(door->pending[i], &why);
        if (status == SH_OK) {
            *out = door->pending[i];
            forget(door, i);
            return SH_OK;
        }
        if (status < 0)
            send_away(door, i, why.text);
        else
            i++;
    }
    return SH_AGAIN;
}

int sh_door_poll(const sh_door *door, struct pollfd *out)
{
    int count = 0;
    for (int i = 0; i < door->listen_count; i++)
        out[count++] = (struct pollfd){.fd = door->listen_fd[i], .events = POLLIN};
    for (int i = 0; i < door->pending_count; i++) out[count++] = sh_link_poll(door->pending[i]);
    return count;
}

int sh_door_refused(const sh_door *door, const char **last)
{
    *last = door->last;
    return door->refused;
}
