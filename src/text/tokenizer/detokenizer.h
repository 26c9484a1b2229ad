/* detokenizer.h - token ids that come one by one, as text that is never taken back.
 *
 * Each push gives the text that is now certain: whole characters, and nothing that a later token
 * would change (a space at the start, bytes that are half a character). All pieces joined are what
 * sh_tokenizer_decode makes of the whole. To go on behind a prompt, so that the first word keeps
 * its space, push the prompt's last tokens first and leave out what they give.
 *
 * Threads: a detokenizer has one owner; the tokenizer must outlive it. */
#ifndef SH_TEXT_TOKENIZER_DETOKENIZER_H
#define SH_TEXT_TOKENIZER_DETOKENIZER_H

#include "text/tokenizer/tokenizer.h"

typedef struct sh_detokenizer sh_detokenizer;

sh_detokenizer *sh_detokenizer_create(const sh_tokenizer *tok, bool skip_special);
void sh_detokenizer_free(sh_detokenizer *detok);

/* The text is borrowed until the next call; it may be empty. */
sh_str sh_detokenizer_push(sh_detokenizer *detok, int32_t id);

/* The rest, at the end of the stream. The next push starts another stream. */
sh_str sh_detokenizer_finish(sh_detokenizer *detok);

#endif
