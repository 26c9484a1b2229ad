/* watch.h - the thread that keeps an eye on the other ranks.
 *
 * It owns the control links of a mesh, and its acceptor, from start to stop. It sends a beat to
 * every rank several times within the silence that peers bear, whatever the computing thread does;
 * it notices a link that ends, a rank that is silent, a rank that gives up. The first failure is
 * the group's: it is kept, sent to all ranks that still listen, and wakes whoever waits on
 * sh_watch_fd. Latecomers at the acceptor are told that the group has formed.
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
 * give it up, and they before it does. */
SH_MUST_CHECK sh_status sh_watch_start(sh_mesh *mesh, int silence_ms, sh_watch **out, sh_err *err);

/* Says good-bye (or why not) to all and ends the thread. Takes NULL. */
void sh_watch_stop(sh_watch *watch);

/* Asks the peers to bear a longer silence, as while loading, or the usual one again. */
void sh_watch_set_silence(sh_watch *watch, int silence_ms);

/* Operations that this rank has finished; beats carry it. And what a peer said last. */
void sh_watch_set_progress(sh_watch *watch, uint64_t progress);
uint64_t sh_watch_peer_progress(const sh_watch *watch, int rank);

/* Whether the group has failed; cheap enough for a spinning loop. */
bool sh_watch_failed(const sh_watch *watch);

/* Why: SH_ERR_GROUP and the text that every rank gets. Only after sh_watch_failed. */
void sh_watch_error(sh_watch *watch, sh_err *out);

/* Becomes readable when the group fails, and stays so. */
int sh_watch_fd(const sh_watch *watch);

/* Ends the group: `rank` (-1: none) is at fault. The first one to say so is heard. */
void sh_watch_fail(sh_watch *watch, int rank, const char *text);

#endif
