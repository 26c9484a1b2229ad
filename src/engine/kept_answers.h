/* kept_answers.h - answers that a client may ask for again.
 *
 * A request with a retry key does not end with the connection that it came from. Its sequence runs
 * under an owner of its own (SH_KEPT_OWNER), and everything it gives is recorded; the client that
 * asked last gets the events passed on. When a request with the same key comes again, because the
 * API process died or the network did, it gets what was recorded and then what follows: the whole
 * answer, computed once.
 *
 * Without a client the sequence goes on for SH_KEPT_MS, and a complete answer is kept for as long.
 * When the group is lost, the record stays, and the sequence continues when it is asked for.
 *
 * Threads: the engine's. */
#ifndef SH_ENGINE_KEPT_ANSWERS_H
#define SH_ENGINE_KEPT_ANSWERS_H

#include "engine/engine_messages.h"
#include "engine/scheduler.h"

#define SH_KEPT_OWNER UINT64_MAX
enum { SH_KEPT_MS = 60000, SH_KEPT_MAX = 1024 };

typedef struct sh_kept_answers sh_kept_answers;

/* Events go to `emit`, with the owner and the id of the client. */
sh_kept_answers *sh_kept_create(sh_emit_fn emit, void *ctx);
void sh_kept_free(sh_kept_answers *kept);

/* A request with a key. Takes ownership of it with SH_OK; *run is then what the scheduler has to
 * run (under SH_KEPT_OWNER), or NULL when the answer is under way or complete already, and *cancel
 * the id of a sequence that it replaces, or 0. SH_ERR_CONFLICT: the key was used for another
 * request. */
SH_MUST_CHECK sh_status sh_kept_enter(sh_kept_answers *kept, uint64_t owner,
                                      sh_submit_message *submit, const sh_sequence_spec **run,
                                      uint64_t *cancel, sh_err *err);

/* An event of a sequence of SH_KEPT_OWNER. */
void sh_kept_event(sh_kept_answers *kept, const sh_event *event);

/* The id under SH_KEPT_OWNER of a client's request, 0 if it has no key. */
uint64_t sh_kept_find(const sh_kept_answers *kept, uint64_t owner, uint64_t id);

/* The client of a request, or of all requests of an owner, is gone. */
void sh_kept_detach(sh_kept_answers *kept, uint64_t owner, uint64_t id);
void sh_kept_forget(sh_kept_answers *kept, uint64_t owner);

/* Forgets what nobody asked for in time. Returns the id of a sequence that is to be cancelled, 0
 * when there is none; to be called until then. */
uint64_t sh_kept_expire(sh_kept_answers *kept);

#endif
