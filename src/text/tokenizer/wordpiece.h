/* wordpiece.h - WordPiece: a word is cut into the longest pieces that the vocabulary has, from left
 * to right; a word that cannot be cut that way is unknown as a whole.
 *
 * Threads: constant; any thread may encode. */
#ifndef SH_TEXT_TOKENIZER_WORDPIECE_H
#define SH_TEXT_TOKENIZER_WORDPIECE_H

#include "base/buf.h"
#include "text/ids.h"
#include "text/tokenizer/vocab.h"

typedef struct {
    const sh_vocab *vocab;
    int32_t unk_id;
    char *prefix;     /* of pieces that do not start a word; owned */
    size_t chars_max; /* longer words are unknown */
} sh_wordpiece;

/* Appends the ids of a word; `text` is scratch. */
void sh_wordpiece_encode(const sh_wordpiece *model, sh_str word, sh_buf *text, sh_ids *out);

#endif
