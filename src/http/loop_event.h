/* loop_event.h - access to the libevent base under the loop, for servers that are built on it.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_LOOP_EVENT_H
#define SH_HTTP_LOOP_EVENT_H

#include "http/loop.h"

#include <event2/event.h>

struct event_base *sh_loop_base(const sh_loop *loop);

#endif
