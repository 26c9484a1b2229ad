/* detokenizer.h - decodes token ids one by one into text that is never revised.
 *
 * Each push returns the text that is now certain: complete characters, and nothing that a later
 * token could change (a space at the start, part of a character). All texts concatenated equal the
 * result of sh_tokenizer_decode(). To continue a prompt, so that the first word keeps its space,
 * push the last tokens of the prompt first and discard their text.
 *
 * Threads: a detokenizer has one owner; the tokenizer must outlive it. */
#ifndef SH_TEXT_TOKENIZER_DETOKENIZER_H
#define SH_TEXT_TOKENIZER_DETOKENIZER_H

#include "text/tokenizer/tokenizer.h"

typedef struct sh_detokenizer sh_detokenizer;

sh_detokenizer *sh_detokenizer_create(const sh_tokenizer *tok, bool skip_special);
void sh_detokenizer_free(sh_detokenizer *detok);

/* The text is valid until the next call; it may be empty. */
sh_str sh_detokenizer_push(sh_detokenizer *detok, int32_t id);

/* Ends the stream and returns the remaining text. The next push starts another stream. */
sh_str sh_detokenizer_finish(sh_detokenizer *detok);

#endif
