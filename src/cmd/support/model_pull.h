/* model_pull.h - downloads a model into the user's cache and shows how far it is.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_MODEL_PULL_H
#define SH_CMD_SUPPORT_MODEL_PULL_H

#include "cmd/support/settings.h"
#include "store/pull.h"
#include "store/repo_name.h"

/* *dir is the folder of the model, owned by the caller. Ctrl-C ends it with SH_ERR_CANCELLED; what
 * has arrived is kept. */
SH_MUST_CHECK sh_status sh_model_pull(const sh_settings *s, const sh_repo_name *name, char **dir,
                                      sh_err *err);

/* The token for the hub: the setting, or the file that `hf auth login` writes. Owned by the caller;
 * NULL without one. */
char *sh_model_pull_token(const sh_settings *s);

/* The same without a view and signals: `with` has what to cancel by and where to report; cache,
 * endpoint, token and timeout are those of the settings. From any thread. */
SH_MUST_CHECK sh_status sh_model_pull_with(const sh_settings *s, const sh_repo_name *name,
                                           const sh_pull_opts *with, char **dir, sh_err *err);

#endif
