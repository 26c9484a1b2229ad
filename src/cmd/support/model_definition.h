/* model_definition.h - a YAML file in the place of a model (store/definition.h).
 *
 * `--model file.yaml` names the model and has settings for it. They count as those of a settings
 * file: flags and variables win.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_MODEL_DEFINITION_H
#define SH_CMD_SUPPORT_MODEL_DEFINITION_H

#include "base/option.h"
#include "cmd/support/settings.h"

/* If s->model is such a file: sets what it says, and s->model to the model that it names, which
 * *owned keeps. One of several models (--models-dir) is left alone: its settings are not those of
 * the others. */
SH_MUST_CHECK sh_status sh_model_definition_apply(sh_options *opts, sh_settings *s, char **owned,
                                                  sh_err *err);

#endif
