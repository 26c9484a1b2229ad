/* notify.h - reports the state of this process to the service manager that started it.
 *
 * The protocol is systemd's Type=notify: a datagram of lines NAME=value to the Unix socket in
 * NOTIFY_SOCKET. Without that variable nothing is sent.
 *
 * Threads: one owner. Opening changes the environment, so do it before other threads start. */
#ifndef SH_CLUSTER_NOTIFY_H
#define SH_CLUSTER_NOTIFY_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { SH_NOTIFY_TEXT_MAX = 160 };

typedef struct {
    int fd; /* -1: nobody listens */
    struct sockaddr_un to;
    socklen_t to_len;
    int64_t watchdog_ms; /* how often it expects a sign of life; 0: it does not */
    sh_deadline watchdog_at;
    bool ready, stopping;          /* what it has been told */
    char text[SH_NOTIFY_TEXT_MAX]; /* likewise */
} sh_notify;

typedef struct {
    bool ready, stopping;
    char text[SH_NOTIFY_TEXT_MAX]; /* one line, shown by `systemctl status` */
} sh_notify_state;

/* Takes the variables of the protocol out of the environment: children must not report for this
 * process. */
void sh_notify_open(sh_notify *notify);

/* Sends what is new, and a sign of life when one is due. Call it many times a second. */
void sh_notify_send(sh_notify *notify, const sh_notify_state *state);
void sh_notify_close(sh_notify *notify);

#endif
