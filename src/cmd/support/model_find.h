/* model_find.h - resolves --model to a folder.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_MODEL_FIND_H
#define SH_CMD_SUPPORT_MODEL_FIND_H

#include "base/status.h"
#include "cmd/support/settings.h"

/* The folder of s->model, owned by the caller. */
SH_MUST_CHECK sh_status sh_model_find(const sh_settings *s, char **out, sh_err *err);

#endif
