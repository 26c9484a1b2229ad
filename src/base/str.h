/* str.h - borrowed strings, with comparison, number parsing and UTF-8.
 *
 * An sh_str points into memory that it does not own and that need not be zero-terminated. Functions
 * whose names end in _dup return memory owned by the caller.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_STR_H
#define SH_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *ptr;
    size_t len;
} sh_str;

#define SH_STR(literal) ((sh_str){(literal), sizeof(literal) - 1})

sh_str sh_str_of(const char *text); /* NULL gives the empty string */
bool sh_str_eq(sh_str a, sh_str b);
bool sh_str_is(sh_str a, const char *text);
bool sh_str_starts(sh_str text, sh_str prefix);
bool sh_str_ends(sh_str text, sh_str suffix);
sh_str sh_str_sub(sh_str text, size_t first, size_t len); /* clamped to the bounds of text */
sh_str sh_str_trim(sh_str text);                          /* ASCII white space, both ends */
char *sh_str_dup(sh_str text);                            /* zero-terminated, owned */

/* Index of the first occurrence at or after `from`; text.len if there is none. */
size_t sh_str_find(sh_str text, sh_str needle, size_t from);

/* Removes the part before the next `sep`, and the separator, from the front of *rest. False if
 * *rest is empty. */
bool sh_str_cut(sh_str *rest, char sep, sh_str *part);

/* The whole text must be a number; also false on overflow, NaN and infinity. */
bool sh_str_to_int(sh_str text, int64_t *out);
bool sh_str_to_double(sh_str text, double *out);

/* "64K", "1.5G", "16GiB": a size in bytes; units are powers of 1024. */
bool sh_str_to_bytes(sh_str text, double *out);

/* Decodes the UTF-8 character at ptr: returns its length 1..4 and sets *code, or returns 0 if it is
 * invalid (overlong, a surrogate, above U+10FFFF, truncated by len). */
int sh_utf8_decode(const char *ptr, size_t len, uint32_t *code);

/* Writes 1..4 bytes and returns their number. code must be a Unicode scalar value. */
int sh_utf8_encode(uint32_t code, char out[4]);

/* The length in bytes of the longest valid prefix. */
size_t sh_utf8_valid_prefix(const char *ptr, size_t len);
bool sh_utf8_valid(const char *ptr, size_t len);

/* How many characters to insert, remove, replace or swap with their neighbour to turn one into the
 * other; SIZE_MAX for texts of more than a few hundred bytes. */
size_t sh_str_distance(sh_str a, sh_str b);

/* A search for the name that was meant, for "did you mean": set `typed`, try all names, read
 * `name`.
 */
typedef struct {
    sh_str typed;
    const char *name; /* the nearest of those that are near enough, the first if equal; or NULL */
    size_t distance;
} sh_suggestion;

void sh_suggestion_try(sh_suggestion *s, const char *name);

/* FNV-1a, for hash tables within one process; never for keys that an attacker can choose. */
uint64_t sh_hash64(const void *data, size_t len);

#endif
