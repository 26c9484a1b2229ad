/* watch.h - the thread that detects failures of other ranks.
 *
 * It owns the control connections of a mesh, and its acceptor, from start to stop. It sends
 * heartbeats to every rank several times within the silence that peers tolerate, whatever the
 * computing thread does, and it notices a closed connection, a silent rank and a rank that aborts.
 * The first failure is the group's: it is recorded, sent to all ranks that are still connected, and
 * makes sh_watch_fd readable. Latecomers at the acceptor are refused, since the group has formed;
 * where ranks may be added, those that fit are asked to wait, and remembered.
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

/* How far this rank is with loading, which heartbeats carry; and who is to be told what the others
 * say of themselves: called by the thread of the watch, must not block. */
typedef void (*sh_load_fn)(void *ctx, int rank, const sh_load_state *load);
void sh_watch_set_load(sh_watch *watch, const sh_load_state *load);
void sh_watch_on_load(sh_watch *watch, sh_load_fn fn, void *ctx);

/* When a peer left the group in good order (sh_clock_ns), 0 if it has not. That is no failure by
 * itself: it may have nothing left to do. */
int64_t sh_watch_left_ns(const sh_watch *watch, int rank);

/* A rank that wants to come in. */
typedef struct {
    int number; /* SH_RANK_ANY: it has none */
    uint8_t node[SH_NODE_ID_LEN];
    char name[SH_ADDR_TEXT_MAX];
    int64_t first_ns, last_ns; /* when it asked */
} sh_knock;
enum { SH_KNOCKS_MAX = 16 };

/* Rank 0: those that have asked within the last seconds; returns their count. */
int sh_watch_knocks(sh_watch *watch, sh_knock out[SH_KNOCKS_MAX]);

/* Asks rank 0 to let this rank leave. It either re-forms the group without it, which ends this one,
 * or refuses. */
void sh_watch_ask_to_leave(sh_watch *watch);

enum { SH_STAY_TEXT_MAX = 400 };

/* Whether it has refused; `why` gets the reason unless it is NULL. */
bool sh_watch_must_stay(sh_watch *watch, char why[SH_STAY_TEXT_MAX]);

/* Rank 0: when a peer asked to leave (sh_clock_ns), 0 if it has not. */
int64_t sh_watch_leaving_ns(const sh_watch *watch, int rank);
/* Rank 0: refuses that, with the reason. */
void sh_watch_keep(sh_watch *watch, int rank, const char *text);

/* Rank 0: what takes over a connection on which rank `rank` asks for weights; called by the thread
 * of the watch, must not block. Until it is set such ranks are asked to wait; after this returns,
 * the one set before is not called any more. */
typedef void (*sh_visitor_fn)(void *ctx, int rank, sh_stream stream);
void sh_watch_set_visitor(sh_watch *watch, sh_visitor_fn visitor, void *ctx);

/* Whether the group has failed; cheap enough for a spinning loop. */
bool sh_watch_failed(const sh_watch *watch);

/* The reason: SH_ERR_GROUP and the text that all ranks get. Only after sh_watch_failed. */
void sh_watch_error(sh_watch *watch, sh_err *out);

/* The number of the rank at fault; -1: none in particular, or the group has not failed. */
int sh_watch_at_fault(sh_watch *watch);

/* Becomes readable when the group fails, and stays so. */
int sh_watch_fd(const sh_watch *watch);

/* Fails the group; `rank` (-1: none) is at fault. Only the first call counts. */
void sh_watch_fail(sh_watch *watch, int rank, const char *text);

#endif
