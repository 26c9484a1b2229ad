#include "cmd/support/keeper_clients.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 8192,
    OUT_MAX_BYTES = 16 << 20, /* unsent: such a client does not read */
};

typedef struct {
    int fd; /* -1: free */
    sh_buf in, out;
} client;

struct sh_keeper_clients {
    sh_keeper_clients_hooks hooks;
    char *path;
    int listener;
    client list[SH_KEEPER_CLIENTS_MAX];
};

static sh_status socket_listen(const char *path, int *out, sh_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return sh_err_set(err, SH_ERR_INPUT, "%s: the path is longer than %zu bytes", path,
                          sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    int fd = sh_sock_make(AF_UNIX, SOCK_STREAM);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(fd, SH_KEEPER_CLIENTS_MAX) < 0) {
        sh_err_sys(err, "%s", path);
        if (fd >= 0) close(fd);
        return err->status;
    }
    *out = fd;
    return SH_OK;
}

sh_status sh_keeper_clients_open(const char *path, const sh_keeper_clients_hooks *hooks,
                                 sh_keeper_clients **out, sh_err *err)
{
    int fd = -1;
    sh_status status = socket_listen(path, &fd, err);
    if (status != SH_OK) return status;
    sh_keeper_clients *c = sh_alloc(sizeof(*c));
    c->hooks = *hooks;
    c->path = sh_strdup(path);
    c->listener = fd;
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) c->list[i].fd = -1;
    *out = c;
    return SH_OK;
}

static void client_drop(sh_keeper_clients *c, int number)
{
    client *one = &c->list[number];
    close(one->fd);
    one->fd = -1;
    sh_buf_reset(&one->in);
    sh_buf_reset(&one->out);
    c->hooks.went(c->hooks.arg, number);
}

void sh_keeper_clients_close(sh_keeper_clients *c)
{
    if (c == NULL) return;
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++)
        if (c->list[i].fd >= 0) client_drop(c, i);
    close(c->listener);
    unlink(c->path);
    free(c->path);
    free(c);
}

static void clients_accept(sh_keeper_clients *c)
{
    int fd = sh_sock_accept_local(c->listener);
    if (fd < 0) return;
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) {
        if (c->list[i].fd >= 0) continue;
        c->list[i].fd = fd;
        c->hooks.came(c->hooks.arg, i, &c->list[i].out);
        return;
    }
    SH_LOGW("more than %d clients of the models: one is refused", SH_KEEPER_CLIENTS_MAX);
    close(fd);
}

static void client_read(sh_keeper_clients *c, int number)
{
    client *one = &c->list[number];
    char bytes[4096], *end;
    ssize_t got;
    bool fine = true;
    while ((got = recv(one->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        sh_buf_add(&one->in, bytes, (size_t)got);
    bool over = got == 0 || (errno != EAGAIN && errno != EINTR);
    while (fine && one->in.len > 0 && (end = memchr(one->in.ptr, '\n', one->in.len)) != NULL) {
        sh_str line = {one->in.ptr, (size_t)(end - one->in.ptr)};
        fine = c->hooks.line(c->hooks.arg, number, line, &one->out);
        sh_buf_drop_front(&one->in, line.len + 1);
    }
    if (over || !fine || one->in.len > LINE_MAX_BYTES || one->out.len > OUT_MAX_BYTES)
        client_drop(c, number);
}

void sh_keeper_clients_poll(sh_keeper_clients *c)
{
    clients_accept(c);
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++)
        if (c->list[i].fd >= 0) client_read(c, i);
}

void sh_keeper_clients_flush(sh_keeper_clients *c)
{
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) {
        client *one = &c->list[i];
        if (one->fd < 0 || one->out.len == 0) continue;
        ssize_t sent = send(one->fd, one->out.ptr, one->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) sh_buf_drop_front(&one->out, (size_t)sent);
    }
}

void sh_keeper_clients_tell(sh_keeper_clients *c, sh_str line)
{
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++)
        if (c->list[i].fd >= 0) sh_buf_add_str(&c->list[i].out, line);
}

bool sh_keeper_clients_here(const sh_keeper_clients *c, int number)
{
    return c->list[number].fd >= 0;
}
