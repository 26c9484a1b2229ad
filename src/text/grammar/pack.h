/* pack.h - a compiled grammar as bytes, to pass it from one process to another.
 *
 * The engine gets grammars this way and does not trust them: whatever unpacks can be run by a
 * matcher, safely and within its limits. What it matches is the sender's business.
 *
 * Threads: pure functions. */
#ifndef SH_TEXT_GRAMMAR_PACK_H
#define SH_TEXT_GRAMMAR_PACK_H

#include "base/buf.h"
#include "text/grammar/grammar.h"

void sh_grammar_pack(const sh_grammar *grammar, sh_buf *out);

/* *out is owned by the caller. SH_ERR_INPUT if the bytes are no grammar, with what is wrong. */
SH_MUST_CHECK sh_status sh_grammar_unpack(sh_str bytes, sh_grammar **out, sh_err *err);

#endif
