/* charsmap.h - SentencePiece's table of replacements of characters, as it is stored: a compact trie
 * of what is replaced, and the replacements one after the other.
 *
 * Threads: constant once opened. */
#ifndef SH_TEXT_TOKENIZER_CHARSMAP_H
#define SH_TEXT_TOKENIZER_CHARSMAP_H

#include "base/buf.h"
#include "base/status.h"

typedef struct sh_charsmap sh_charsmap;

/* The bytes are copied. Lengths and UTF-8 are checked here, not the trie: a damaged one replaces
 * wrongly, but is never read outside its bounds. */
SH_MUST_CHECK sh_status sh_charsmap_open(sh_str bytes, sh_charsmap **out, sh_err *err);
void sh_charsmap_close(sh_charsmap *map);

/* Appends the text, valid UTF-8, with all replacements. */
void sh_charsmap_apply(const sh_charsmap *map, sh_str text, sh_buf *out);

#endif
