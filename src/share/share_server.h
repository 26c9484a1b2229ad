/* share_server.h - rank 0's part of sharing out a model: it sends the other ranks what they ask
 * for.
 *
 * Every connection has a thread of its own, which reads the files and waits for the peer; nothing
 * else of rank 0 does. Only files of the model's folder that are part of its outline can be read,
 * and only by ranks of the group: connections are handed over after their handshake.
 *
 * Threads: one owner, except for sh_share_server_take. */
#ifndef SH_SHARE_SHARE_SERVER_H
#define SH_SHARE_SHARE_SERVER_H

#include "base/buf.h"
#include "base/status.h"
#include "net/stream.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_share_server sh_share_server;

/* Nothing is read before somebody asks. */
SH_MUST_CHECK sh_status sh_share_server_create(const char *model_dir, sh_share_server **out,
                                               sh_err *err);
void sh_share_server_free(sh_share_server *server);

/* Serves a connection of rank `rank` and owns it from here on; for any thread. */
void sh_share_server_take(void *server, int rank, sh_stream stream);

/* Ends all connections: the group has. */
void sh_share_server_end_visits(sh_share_server *server);

/* Whether a rank that is to come in waits for its plan; the owner makes it from what that rank
 * said, appended to `said`, and answers before it asks for the next. A rank that waits too long is
 * turned away by itself. */
bool sh_share_server_plan_asked(sh_share_server *server, sh_buf *said);
/* `why` has the reason, if there is no plan; NULL: `plan` is it. */
void sh_share_server_plan_answer(sh_share_server *server, sh_str plan, const sh_err *why);

/* Bytes of weights that were sent so far, or are being sent. */
uint64_t sh_share_server_sent(const sh_share_server *server);

#endif
