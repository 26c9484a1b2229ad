/* model_worker.h - runs ranks of models on this host, as the keeper on another one says.
 *
 * The keeper is found where a rank would find rank 0 (--join, --coordinator, --hostfile). A worker
 * whose connection is lost stops its ranks and connects again. A model that is in --models-dir, or
 * in the folder that the keeper's has, is read from there; a rank of any other gets its share over
 * the links.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_MODEL_WORKER_H
#define SH_CMD_SUPPORT_MODEL_WORKER_H

#include "cmd/command.h"

/* Returns the exit code of the process. */
int sh_model_worker_run(const sh_command_args *args);

#endif
