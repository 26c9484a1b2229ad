/* link.h - the API's line to the engine.
 *
 * Connects to the engine's socket, again and again while the engine is away, and hands each event
 * to whoever submitted the request. When the engine is lost, every open request gets its error
 * event, and the line is built anew; nothing has to be told to the link for that.
 *
 * Threads: the loop's. */
#ifndef SH_API_LINK_H
#define SH_API_LINK_H

#include "base/status.h"
#include "engine/client.h"
#include "http/loop.h"

typedef struct sh_link sh_link;

/* The event is borrowed for the call. The one behind DONE or ERROR is never made. */
typedef void (*sh_link_event_fn)(void *arg, const sh_event *event);

typedef struct {
    void *arg;
    void (*up)(void *arg, const sh_engine_info *info); /* connected to an engine that is ready */
    void (*down)(void *arg, const sh_err *why);
    void (*stats)(void *arg, sh_str json); /* about once a second, and when asked for */
} sh_link_opts;

sh_link *sh_link_create(sh_loop *loop, const char *socket_path, const sh_link_opts *opts);
void sh_link_free(sh_link *link); /* open requests get no event any more */

/* NULL while there is no engine that is ready. */
const sh_engine_info *sh_link_info(const sh_link *link);

/* Why there is none, for people; "" when there is one. */
const char *sh_link_trouble(const sh_link *link);

/* request->id is chosen here and returned in *id. */
SH_MUST_CHECK sh_status sh_link_submit(sh_link *link, const sh_engine_request *request,
                                       sh_link_event_fn fn, void *arg, uint64_t *id, sh_err *err);

/* The request goes on to get its last event. */
void sh_link_cancel(sh_link *link, uint64_t id);

/* Cancels, and no event will come. */
void sh_link_forget(sh_link *link, uint64_t id);

int sh_link_open_count(const sh_link *link);

/* Asks for stats now, unless an answer is on its way. False when there is no engine. */
bool sh_link_refresh(sh_link *link);

#endif
