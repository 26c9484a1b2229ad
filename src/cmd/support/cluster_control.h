/* cluster_control.h - changes of a launched cluster, between its API and its launcher.
 *
 * The API is confined and starts nothing. It asks its supervisor, `shoal serve`, over a socket.
 * That checks the order, lets one through at a time, and passes it on: as a marked line of its
 * output to the launcher (cluster/launch.h), which tells how it has ended through the pipe of
 * --control-fd.
 *
 * Messages of the API are objects of JSON, one each: {"do":"hello"}, to learn the state, and
 * {"do":"change","id":ID,"what":"restart"}, also "add" and "remove" with a "host". The answer to
 * both, and the news of a change that has ended, is the state:
 *
 *   {"why":TEXT or null, "change":{"id","what","host","state","said","at"} or null, "removed":[2]}
 *
 * `why`: changes are not possible. `removed`: ranks that the launcher has taken out of the cluster,
 * of which rank 0 may not know if they had crashed before. The state of a change is "running",
 * "done" or "failed". An order that is refused is answered by {"id":ID,"refused":TEXT,"code":HTTP
 * STATUS} instead.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_CLUSTER_CONTROL_H
#define SH_CMD_SUPPORT_CLUSTER_CONTROL_H

#include "base/status.h"
#include "cmd/support/settings.h"

typedef struct sh_cluster_control sh_cluster_control;

SH_MUST_CHECK sh_status sh_cluster_control_open(const sh_settings *s, sh_cluster_control **out,
                                                sh_err *err);
void sh_cluster_control_close(sh_cluster_control *control); /* NULL is fine */

/* The API's end. */
int sh_cluster_control_fd(const sh_cluster_control *control);

/* Call it many times a second. */
void sh_cluster_control_poll(sh_cluster_control *control);

#endif
