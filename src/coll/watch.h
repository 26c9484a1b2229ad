/* watch.h - the thread that detects failures of other ranks.
 *
 * It owns the control connections of a mesh, and its acceptor, from start to stop. It sends
 * heartbeats to every rank several times within the silence that peers tolerate, whatever the
 * computing thread does, and it notices a closed connection, a silent rank and a rank that aborts.
 * The first failure is the group's: it is recorded, sent to all ranks that are still connected, and
 * makes sh_watch_fd readable. Latecomers at the acceptor are refused, since the group has formed.
 *
 * Threads: start and stop belong to the owner; everything else may be called from any thread. */
#ifndef SH_COLL_WATCH_H
#define SH_COLL_WATCH_H

#include "base/status.h"
#include "net/mesh.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_watch sh_watch;

enum { SH_SILENCE_MS_MIN = 100, SH_SILENCE_MS_MAX = 3600000 };

/* The mesh is borrowed until stop. silence_ms: how long this rank may be silent before its peers
 * consider it lost; also assumed for a peer until its first heartbeat. */
SH_MUST_CHECK sh_status sh_watch_start(sh_mesh *mesh, int silence_ms, sh_watch **out, sh_err *err);

/* Notifies all ranks that this one leaves (or why the group failed) and ends the thread. Takes
 * NULL.
 */
void sh_watch_stop(sh_watch *watch);

/* Asks the peers to tolerate a longer silence, as while loading, or the usual one again. */
void sh_watch_set_silence(sh_watch *watch, int silence_ms);

/* The number of operations that this rank has completed, which heartbeats carry; and the last
 * number that a peer reported. */
void sh_watch_set_progress(sh_watch *watch, uint64_t progress);
uint64_t sh_watch_peer_progress(const sh_watch *watch, int rank);

/* When a peer left the group in good order (sh_clock_ns), 0 if it has not. That is no failure by
 * itself: it may have nothing left to do. */
int64_t sh_watch_left_ns(const sh_watch *watch, int rank);

/* Whether the group has failed; cheap enough for a spinning loop. */
bool sh_watch_failed(const sh_watch *watch);

/* The reason: SH_ERR_GROUP and the text that all ranks get. Only after sh_watch_failed. */
void sh_watch_error(sh_watch *watch, sh_err *out);

/* Becomes readable when the group fails, and stays so. */
int sh_watch_fd(const sh_watch *watch);

/* Fails the group; `rank` (-1: none) is at fault. Only the first call counts. */
void sh_watch_fail(sh_watch *watch, int rank, const char *text);

#endif
