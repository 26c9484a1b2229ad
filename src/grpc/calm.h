/* calm.h - how many frames without content a peer may send.
 *
 * Frames that ask for nothing (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, empty DATA) and streams
 * that are opened and reset at once cost the server more than the client. Each takes from a budget
 * that grows with time and with what the server itself sends, since every answer that a client
 * reads is a reason for it to send some. Who has used it up is asked to calm down, and
 * disconnected.
 *
 * Threads: one owner. */
#ifndef SH_GRPC_CALM_H
#define SH_GRPC_CALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SH_CALM_MOST = 1000, SH_CALM_PER_S = 100, SH_CALM_PER_SENT = 4 };

typedef struct {
    int64_t left;
    int64_t filled_ns; /* when time was last added to it */
} sh_calm;

void sh_calm_init(sh_calm *calm, int64_t now_ns);

/* Counts a frame by its type and length; false when the budget is used up. */
bool sh_calm_received(sh_calm *calm, uint8_t type, size_t len, int64_t now_ns);

/* The server has sent a frame of an answer. */
void sh_calm_sent(sh_calm *calm);

#endif
