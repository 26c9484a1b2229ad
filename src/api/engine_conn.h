/* engine_conn.h - the API's line to the engine.
 *
 * Connects to the engine's socket, again and again while the engine is away, and hands each event
 * to whoever submitted the spec. When the engine is lost, every open request gets its error
 * event, and the line is built anew; nothing has to be told to the link for that.
 *
 * Threads: the loop's. */
#ifndef SH_API_ENGINE_CONN_H
#define SH_API_ENGINE_CONN_H

#include "base/status.h"
#include "engine/engine_client.h"
#include "http/loop.h"

typedef struct sh_engine_conn sh_engine_conn;

/* The event is borrowed for the call. The one behind DONE or ERROR is never made. */
typedef void (*sh_engine_conn_event_fn)(void *arg, const sh_event *event);

typedef struct {
    void *arg;
    void (*up)(void *arg, const sh_engine_info *info); /* connected to an engine that is ready */
    void (*down)(void *arg, const sh_err *why);
    void (*stats)(void *arg, sh_str json); /* about once a second, and when asked for */
} sh_engine_conn_opts;

sh_engine_conn *sh_engine_conn_create(sh_loop *loop, const char *socket_path,
                                      const sh_engine_conn_opts *opts);
void sh_engine_conn_free(sh_engine_conn *conn); /* open requests get no event any more */

/* NULL while there is no engine that is ready. */
const sh_engine_info *sh_engine_conn_info(const sh_engine_conn *conn);

/* Why there is none, for people; "" when there is one. */
const char *sh_engine_conn_trouble(const sh_engine_conn *conn);

/* spec->id is chosen here and returned in *id. */
SH_MUST_CHECK sh_status sh_engine_conn_submit(sh_engine_conn *conn, const sh_sequence_spec *spec,
                                              sh_engine_conn_event_fn fn, void *arg, uint64_t *id,
                                              sh_err *err);

/* The request goes on to get its last event. */
void sh_engine_conn_cancel(sh_engine_conn *conn, uint64_t id);

/* Cancels, and no event will come. */
void sh_engine_conn_forget(sh_engine_conn *conn, uint64_t id);

int sh_engine_conn_open_count(const sh_engine_conn *conn);

/* Asks for stats now, unless an answer is on its way. False when there is no engine. */
bool sh_engine_conn_refresh(sh_engine_conn *conn);

#endif
