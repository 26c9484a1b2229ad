/* model_keeper.h - loads and unloads the models of --models-dir, for `shoal serve`.
 *
 * Each loaded model is a group of its own: processes of this command line with SHOAL_PART=engine
 * and the model's folder, supervised like those of a server with one model. Which models are loaded
 * is decided by cluster/keeper.h. API processes connect to a Unix socket and exchange lines of
 * JSON:
 *
 *   {"do":"want","model":NAME}                  somebody waits for it; answered by a state
 *   {"do":"busy","model":NAME}                  requests to it are running here, ...
 *   {"do":"idle","model":NAME}                  ... and none any more
 *   {"do":"drained","model":NAME}               after its state became "draining": nothing runs,
 * and nothing will be sent to it
 *   {"do":"keep","model":NAME,"seconds":N}      how long it may be idle; below 0: forever
 *   {"do":"fail","model":NAME,"why":...}        no request can use it, although its ranks are well
 *
 *   {"model":NAME,"state":...,"dir":...,"socket":...,"why":...,...}   a state, whenever it changes;
 * "definition" is the file that describes the model, if there is one (store/definition.h)
 *   {"model":NAME,"state":"unlisted"}           its folder is gone
 *   {"listed":true,"default":NAME}              after the states of all models, once
 *
 * Threads: the owner of the children. */
#ifndef SH_CMD_SUPPORT_MODEL_KEEPER_H
#define SH_CMD_SUPPORT_MODEL_KEEPER_H

#include "cluster/children.h"
#include "cmd/command.h"
#include "net/addr.h"

typedef struct sh_model_keeper sh_model_keeper;

/* `folder` is for sockets; the one that API processes connect to is `models.sock`. Everything must
 * outlive the keeper. */
SH_MUST_CHECK sh_status sh_model_keeper_open(const sh_command_args *args, const char *program,
                                             const char *folder, int ranks, sh_children *children,
                                             sh_model_keeper **out, sh_err *err);
void sh_model_keeper_close(sh_model_keeper *keeper); /* after the children have ended */

/* The path of that socket. */
const char *sh_model_keeper_socket(const sh_model_keeper *keeper);

/* To be called many times a second, as a hook of the children; `arg` is the keeper. */
void sh_model_keeper_poll(void *arg);

/* The error where ranks cannot come and go. */
sh_status sh_models_refuse(const char *where, sh_err *err);

/* The memory of this host for models, in bytes. */
SH_MUST_CHECK sh_status sh_models_memory(const sh_settings *settings, double *out, sh_err *err);

/* Where workers find the keeper: where ranks would find rank 0; "" if there are no other hosts.
 * *hosts is how many a hostfile has, else 0. */
SH_MUST_CHECK sh_status sh_models_address(const sh_settings *settings,
                                          char out[SH_ADDR_HOST_MAX + 8], int *hosts, sh_err *err);

/* Reads "90", "90s", "5m", "1h" or "-1". */
SH_MUST_CHECK sh_status sh_duration_parse(const char *text, int64_t *ms, sh_err *err);

#endif
