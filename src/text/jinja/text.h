/* text.h - the operations behind Python's str methods, shared by methods and filters.
 *
 * The result is markup if the text is.
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_TEXT_H
#define SH_TEXT_JINJA_TEXT_H

#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

typedef enum { SH_JSIDE_LEFT = 1, SH_JSIDE_RIGHT = 2, SH_JSIDE_BOTH = 3 } sh_jside;

sh_jv sh_jtext_case(sh_jrun *run, const sh_jstr *str, sh_uni_case to);
sh_jv sh_jtext_capitalize(sh_jrun *run, const sh_jstr *str);
sh_jv sh_jtext_title(sh_jrun *run, const sh_jstr *str);

/* As the filter `title`: words start after "-", white space and opening brackets. */
sh_jv sh_jtext_title_words(sh_jrun *run, const sh_jstr *str);
sh_jv sh_jtext_swapcase(sh_jrun *run, const sh_jstr *str);

/* Removes the characters of `chars` from the given sides; NULL: white space. */
sh_jv sh_jtext_strip(sh_jrun *run, const sh_jstr *str, const sh_jstr *chars, sh_jside sides);

/* At most count replacements; negative: all. */
sh_jv sh_jtext_replace(sh_jrun *run, const sh_jstr *str, const sh_jstr *from, const sh_jstr *to,
                       int64_t count);

/* Pads to `width` characters on the given sides. */
sh_jv sh_jtext_justify(sh_jrun *run, const sh_jstr *str, int64_t width, sh_str fill,
                       sh_jside fill_sides);

/* Splits at most `max` times (negative: no limit), optionally from the right. sep NULL splits at
 * runs of white space. */
sh_jlist *sh_jtext_split(sh_jrun *run, const sh_jstr *str, const sh_jstr *sep, int64_t max,
                         bool from_right);
sh_jlist *sh_jtext_lines(sh_jrun *run, const sh_jstr *str, bool keep_ends);

/* islower() and isupper(): at least one letter of that case and none of the other. */
bool sh_jtext_is_case(sh_jrun *run, const sh_jstr *str, bool upper);

/* Takes the text put since the mark, as markup if str is. */
sh_jv sh_jtext_take(sh_jrun *run, size_t mark, const sh_jstr *str);

/* Decodes the character at *at and advances past it. */
uint32_t sh_jtext_char(sh_str text, size_t *at);

#endif
