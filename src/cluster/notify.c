/* The protocol is documented in sd_notify(3). It is small and stable, so that a library would be
 * more to carry than these lines. */
#include "cluster/notify.h"

#include "base/buf.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A path, or a name in the abstract namespace, written with a leading '@'. */
static bool address_set(sh_notify *n, const char *name)
{
    size_t len = strlen(name);
    n->to = (struct sockaddr_un){.sun_family = AF_UNIX};
    if ((name[0] != '/' && name[0] != '@') || len >= sizeof(n->to.sun_path)) return false;
    memcpy(n->to.sun_path, name, len);
    if (name[0] == '@') n->to.sun_path[0] = '\0';
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
    return true;
}

/* Half the interval, as sd_watchdog_enabled(3) recommends. WATCHDOG_PID names the process that is
 * watched; a wrapper may have left it in the environment of another one. */
static int64_t watchdog_interval(void)
{
    const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    int64_t usec = 0, process = 0;
    if (interval == NULL) return 0;
    if (!sh_str_to_int(sh_str_of(interval), &usec) || usec <= 0) {
        SH_LOGW("WATCHDOG_USEC is '%s', not a number of microseconds; ignored", interval);
        return 0;
    }
    bool ours = pid == NULL || (sh_str_to_int(sh_str_of(pid), &process) && process == getpid());
    return !ours ? 0 : usec / 2000 > 0 ? usec / 2000 : 1;
}

void sh_notify_open(sh_notify *n)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
    const char *name = getenv("NOTIFY_SOCKET");
    *n = (sh_notify){.fd = -1};
    if (name != NULL && address_set(n, name))
        n->fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    else if (name != NULL)
        SH_LOGW("NOTIFY_SOCKET is '%s', not a path or a name after '@'; nothing is reported", name);
    if (n->fd >= 0) {
        fcntl(n->fd, F_SETFD, FD_CLOEXEC);
        fcntl(n->fd, F_SETFL, O_NONBLOCK);
        n->watchdog_ms = watchdog_interval();
    }
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) unsetenv(names[i]);
}

/* A full socket is tried again at the next call. Without a listener there will not be one later. */
static bool message_send(sh_notify *n, sh_str message)
{
    ssize_t put = sendto(n->fd, message.ptr, message.len, 0, (const struct sockaddr *)&n->to,
                         n->to_len);
    if (put >= 0 || errno == EAGAIN || errno == ENOBUFS || errno == EINTR) return put >= 0;
    SH_LOGW("the service manager cannot be told: %s", strerror(errno));
    sh_notify_close(n);
    return false;
}

void sh_notify_send(sh_notify *n, const sh_notify_state *state)
{
    sh_buf out = {0};
    if (n->fd < 0) return;
    bool watchdog = n->watchdog_ms > 0 && sh_deadline_passed(n->watchdog_at);
    if (state->ready && !n->ready) sh_buf_add_text(&out, "READY=1\n");
    if (state->stopping && !n->stopping) sh_buf_add_text(&out, "STOPPING=1\n");
    if (strcmp(state->text, n->text) != 0) sh_buf_addf(&out, "STATUS=%s\n", state->text);
    if (watchdog) sh_buf_add_text(&out, "WATCHDOG=1\n");
    if (out.len > 0 && message_send(n, sh_buf_str(&out))) {
        n->ready = n->ready || state->ready;
        n->stopping = state->stopping;
        memcpy(n->text, state->text, sizeof(n->text));
        if (watchdog) n->watchdog_at = sh_deadline_in_ms(n->watchdog_ms);
    }
    sh_buf_reset(&out);
}

void sh_notify_close(sh_notify *n)
{
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
}
