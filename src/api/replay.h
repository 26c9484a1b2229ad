/* replay.h - sequences that outlive the engine that computes them.
 *
 * Jobs submit their sequences here. The replay passes them on to the engine and the events back,
 * and remembers what an answer depends on: the prompt, the ids that were drawn so far, the sampling
 * with its seed. When the engine or one of its ranks is lost, the sequences are held, and submitted
 * again once the engine is ready, with the answer so far appended to the prompt. The job sees no
 * more than a pause: no token comes twice and none is missing. A sequence that is submitted while
 * there is no engine is held in the same way.
 *
 * A request may itself be what brings the ranks down. A sequence that has made no progress between
 * two losses is a suspect. Suspects run apart from the others, half of them at a time, and are
 * cleared by their first progress; one that runs alone when the next loss comes is ended with an
 * error, so that the others can be served.
 *
 * Threads: the loop's. */
#ifndef SH_API_REPLAY_H
#define SH_API_REPLAY_H

#include "api/engine_conn.h"

typedef struct sh_replay sh_replay;
typedef struct sh_replay_sequence sh_replay_sequence;

typedef struct {
    int held;          /* sequences that wait for the engine now */
    uint64_t replays;  /* sequences that were submitted again */
    uint64_t given_up; /* suspects that were ended */
} sh_replay_stats;

/* limit_ms: how long a sequence may be held; 0: not at all, so that a loss is an error at once;
 * SH_REPLAY_NO_LIMIT: as long as its request may take. */
#define SH_REPLAY_NO_LIMIT INT64_MAX
sh_replay *sh_replay_create(sh_loop *loop, sh_engine_conn *conn, int64_t limit_ms);
void sh_replay_free(sh_replay *replay); /* sequences must have ended */

/* Whether sequences are held at all. */
bool sh_replay_holds(const sh_replay *replay);

/* spec is copied. With SH_OK the sequence belongs to the replay until its last event, DONE or
 * ERROR; `fn` gets its tokens and that event. timeout_ms of the spec is a limit over all attempts.
 */
SH_MUST_CHECK sh_status sh_replay_submit(sh_replay *replay, const sh_sequence_spec *spec,
                                         sh_engine_conn_event_fn fn, void *arg,
                                         sh_replay_sequence **out, sh_err *err);

/* The sequence needs no more tokens; its last event still comes. */
void sh_replay_cancel(sh_replay_sequence *sequence);

/* Cancels the sequence, which gets no further events. */
void sh_replay_forget(sh_replay_sequence *sequence);

/* An engine is ready for requests. Called with every sign of that: after a pause it submits what is
 * held. */
void sh_replay_ready(sh_replay *replay, uint64_t model_hash);

/* The API is stopping: what is held ends with the error that it is held for, and so does what is
 * lost from now on. */
void sh_replay_stop(sh_replay *replay);

/* Ends the sequences that were held for too long; to be called about once a second. */
void sh_replay_expire(sh_replay *replay);

sh_replay_stats sh_replay_stats_of(const sh_replay *replay);

#endif
