/* charset.h - sets of Unicode code points, as sorted ranges that neither overlap nor touch.
 *
 * Zero is the empty set. The ranges are on the heap; sh_charset_reset() frees them.
 *
 * Threads: a set has one owner. */
#ifndef SH_TEXT_GRAMMAR_CHARSET_H
#define SH_TEXT_GRAMMAR_CHARSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SH_CHAR_MAX = 0x10ffff };

typedef struct {
    uint32_t lo;
    uint32_t hi;
} sh_char_range;

typedef struct {
    sh_char_range *ranges;
    size_t count;
    size_t cap;
} sh_charset;

void sh_charset_reset(sh_charset *set);
void sh_charset_add(sh_charset *set, uint32_t lo, uint32_t hi);
void sh_charset_add_set(sh_charset *set, const sh_charset *other);
void sh_charset_invert(sh_charset *set); /* within Unicode */
bool sh_charset_has(const sh_charset *set, uint32_t code);

/* Whether all characters from lo to hi are in the set; surrogates do not count. */
bool sh_charset_covers(const sh_charset *set, uint32_t lo, uint32_t hi);

/* One range of bytes for each byte of the encoding of some of the characters. */
typedef struct {
    uint8_t lo[4];
    uint8_t hi[4];
    int len;
} sh_utf8_seq;

/* Splits a range of code points into sequences, largest first, without surrogates. The caller calls
 * it until it returns false; *lo is advanced past what was returned. */
bool sh_utf8_next_seq(uint32_t *lo, uint32_t hi, sh_utf8_seq *out);

#endif
