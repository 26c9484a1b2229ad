/* draft_model.h - resolves --draft-model to a folder, and checks that it can draft for the model.
 *
 * Threads: the main thread of rank 0. */
#ifndef SH_CMD_SUPPORT_DRAFT_MODEL_H
#define SH_CMD_SUPPORT_DRAFT_MODEL_H

#include "base/status.h"
#include "cmd/support/settings.h"

/* The folder of the draft model, owned by the caller; NULL if none was asked for. It is downloaded
 * if need be. Both models must have the same tokens; the error says which differ. */
SH_MUST_CHECK sh_status sh_draft_model_obtain(const sh_settings *s, char **out, sh_err *err);

#endif
