/* model_find.h - resolves --model to a folder, downloading it if need be.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_MODEL_FIND_H
#define SH_CMD_SUPPORT_MODEL_FIND_H

#include "base/status.h"
#include "cmd/support/settings.h"
#include "store/find.h"

/* The folders in which models are looked for. */
sh_store_places sh_model_places(const sh_settings *s);

/* The folder of s->model, owned by the caller. */
SH_MUST_CHECK sh_status sh_model_find(const sh_settings *s, char **out, sh_err *err);

/* The same; a model that is not here, or not all of it, is downloaded first, unless --offline. */
SH_MUST_CHECK sh_status sh_model_obtain(const sh_settings *s, char **out, sh_err *err);

/* Whether s->model is a folder on this machine with a model in it. */
bool sh_model_is_here(const sh_settings *s);

#endif
