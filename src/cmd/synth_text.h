/* synth_text.h - writes the tokenizer and chat template of a synthetic model.
 *
 * Existing files are kept. A vocabulary of fewer than 256 tokens gets neither.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SYNTH_TEXT_H
#define SH_CMD_SYNTH_TEXT_H

#include "base/status.h"

SH_MUST_CHECK sh_status sh_synth_text(const char *dir, sh_err *err);

#endif
