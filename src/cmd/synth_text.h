/* synth_text.h - writes tokenizer and chat template of a synthetic model.
 *
 * Files that are there stay; a vocabulary too small for all bytes gets none.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SYNTH_TEXT_H
#define SH_CMD_SYNTH_TEXT_H

#include "base/status.h"

SH_MUST_CHECK sh_status sh_synth_text(const char *dir, sh_err *err);

#endif
