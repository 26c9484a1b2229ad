/* unicode.h - Unicode for the tokenizer: character classes, normal forms, lower case, and the
 * alphabet of byte-level vocabularies.
 *
 * The tables are utf8proc's; this adds only what it lacks. Texts must be valid UTF-8, which
 * sh_tokenizer_encode() checks.
 *
 * Threads: pure functions. */
#ifndef SH_TEXT_TOKENIZER_UNICODE_H
#define SH_TEXT_TOKENIZER_UNICODE_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* The character at the start of a non-empty text; *len receives its length in bytes. */
uint32_t sh_unicode_next(sh_str text, int *len);

/* The character that ends at text.ptr + text.len, likewise. */
uint32_t sh_unicode_last(sh_str text, int *len);

bool sh_unicode_is_space(uint32_t code);  /* White_Space */
bool sh_unicode_is_word(uint32_t code);   /* letters, marks, digits, connectors, joiners */
bool sh_unicode_is_punct(uint32_t code);  /* punctuation, and the ASCII symbols */
bool sh_unicode_is_number(uint32_t code); /* categories Nd, Nl, No */
bool sh_unicode_is_mark(uint32_t code);   /* categories Mn, Mc, Me */
bool sh_unicode_is_accent(uint32_t code); /* category Mn */
bool sh_unicode_is_other(uint32_t code);  /* categories Cc, Cf, Co, Cs */

/* Bytes of the grapheme cluster at the start of a non-empty text. */
size_t sh_unicode_grapheme(sh_str text);

typedef enum { SH_UNICODE_NFC, SH_UNICODE_NFD, SH_UNICODE_NFKC, SH_UNICODE_NFKD } sh_unicode_form;

/* Appends the text in that form. Linear even for long runs of combining marks. */
void sh_unicode_normalize(sh_str text, sh_unicode_form form, sh_buf *out);
void sh_unicode_lower(sh_str text, sh_buf *out);

/* Byte-level vocabularies write each byte as one visible character: printable Latin-1 is itself,
 * the other 68 bytes are mapped to U+0100 and up. */
void sh_bytelevel_encode(sh_str bytes, sh_buf *out);
uint32_t sh_bytelevel_char(uint8_t byte);

/* Appends the bytes; false, with nothing appended, if a character is not in that alphabet. */
bool sh_bytelevel_decode(sh_str piece, sh_buf *out);

#endif
