/* draft_model.h - resolves --draft-model to a folder, and checks that it can draft for the model.
 *
 * Threads: the main thread of rank 0. */
#ifndef SH_CMD_SUPPORT_DRAFT_MODEL_H
#define SH_CMD_SUPPORT_DRAFT_MODEL_H

#include "base/status.h"
#include "cmd/support/settings.h"

/* Whether --draft-model asks for the model's own multi-token-prediction layer. */
bool sh_draft_model_is_mtp(const sh_settings *s);

/* The folder of the draft model (or SH_DRAFT_MODEL_MTP of engine/engine.h), owned by the caller;
 * NULL if none was asked for. It is downloaded if need be. Both models must have the same tokens;
 * the error says which differ. */
SH_MUST_CHECK sh_status sh_draft_model_obtain(const sh_settings *s, char **out, sh_err *err);

#endif
