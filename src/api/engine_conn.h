/* engine_conn.h - the API's connection to the engine.
 *
 * Connects to the engine's socket, retries while there is no engine, and hands each event to the
 * owner of its request. When the engine is lost, every open request gets an error event, and the
 * connection is re-established without any help from the owner.
 *
 * Threads: the loop's. */
#ifndef SH_API_ENGINE_CONN_H
#define SH_API_ENGINE_CONN_H

#include "base/status.h"
#include "engine/engine_client.h"
#include "http/loop.h"

typedef struct sh_engine_conn sh_engine_conn;

/* The event is borrowed for the call. DONE or ERROR is the last one of a request. */
typedef void (*sh_engine_conn_event_fn)(void *arg, const sh_event *event);

typedef struct {
    void *arg;
    void (*up)(void *arg, const sh_engine_info *info); /* connected to an engine that is ready */
    void (*down)(void *arg, const sh_err *why);
    void (*stats)(void *arg, sh_str json); /* about once a second, and after a refresh */
} sh_engine_conn_opts;

sh_engine_conn *sh_engine_conn_create(sh_loop *loop, const char *socket_path,
                                      const sh_engine_conn_opts *opts);
void sh_engine_conn_free(sh_engine_conn *conn); /* open requests get no further events */

/* NULL while no engine is connected and ready. */
const sh_engine_info *sh_engine_conn_info(const sh_engine_conn *conn);

/* Why there is none, as a text for users; "" when there is one. */
const char *sh_engine_conn_trouble(const sh_engine_conn *conn);

/* How far the ranks of an engine that is not ready are with loading: JSON, as the engine sent it;
 * or empty. */
sh_str sh_engine_conn_loading(const sh_engine_conn *conn);

/* spec->id is chosen here and returned in *id. */
SH_MUST_CHECK sh_status sh_engine_conn_submit(sh_engine_conn *conn, const sh_sequence_spec *spec,
                                              sh_engine_conn_event_fn fn, void *arg, uint64_t *id,
                                              sh_err *err);

/* The request still gets its last event. */
void sh_engine_conn_cancel(sh_engine_conn *conn, uint64_t id);

/* The request gets no further events. It is cancelled, unless the engine keeps the answer for a
 * client that may ask for it again. */
void sh_engine_conn_forget(sh_engine_conn *conn, uint64_t id);

int sh_engine_conn_open_count(const sh_engine_conn *conn);

/* These ranks, a bit for each number, are not coming back. */
void sh_engine_conn_dismiss(sh_engine_conn *conn, uint64_t ranks);

/* Requests stats now, unless a request is pending. False when there is no engine. */
bool sh_engine_conn_refresh(sh_engine_conn *conn);

#endif
