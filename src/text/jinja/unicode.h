/* unicode.h - character properties and case mapping as Python's str methods use them.
 *
 * Threads: pure functions. */
#ifndef SH_TEXT_JINJA_UNICODE_H
#define SH_TEXT_JINJA_UNICODE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

bool sh_uni_is_space(uint32_t code);
bool sh_uni_is_line_end(uint32_t code); /* where str.splitlines() splits */
bool sh_uni_is_printable(uint32_t code);
bool sh_uni_is_alpha(uint32_t code);
bool sh_uni_is_decimal(uint32_t code);
bool sh_uni_is_digit(uint32_t code);
bool sh_uni_is_numeric(uint32_t code);
bool sh_uni_is_lower(uint32_t code);
bool sh_uni_is_upper(uint32_t code); /* title case letters are neither */
bool sh_uni_is_title(uint32_t code);
bool sh_uni_is_word(uint32_t code);    /* \w of a regular expression */
bool sh_uni_is_id_part(uint32_t code); /* may be part of a name, but not its first character */
bool sh_uni_is_id_start(uint32_t code);

typedef enum { SH_UNI_LOWER, SH_UNI_UPPER, SH_UNI_TITLE, SH_UNI_FOLD } sh_uni_case;

enum { SH_UNI_CASE_MAX = 4 };

/* Maps `code` to 1..SH_UNI_CASE_MAX characters. */
int sh_uni_map(uint32_t code, sh_uni_case to, uint32_t out[SH_UNI_CASE_MAX]);

/* Length in bytes of the white space at the start or end of a text. */
size_t sh_uni_space_prefix(sh_str text);
size_t sh_uni_space_suffix(sh_str text);

#endif
