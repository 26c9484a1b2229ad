#include "text/grammar/charset.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { SURROGATE_LO = 0xd800, SURROGATE_HI = 0xdfff };

void sh_charset_reset(sh_charset *set)
{
    free(set->ranges);
    *set = (sh_charset){0};
}

static void insert(sh_charset *set, size_t at, sh_char_range range)
{
    if (set->count == set->cap) {
        set->cap = set->cap == 0 ? 4 : set->cap * 2;
        set->ranges = sh_realloc_array(set->ranges, set->cap, sizeof(*set->ranges));
    }
    memmove(&set->ranges[at + 1], &set->ranges[at], (set->count - at) * sizeof(range));
    set->ranges[at] = range;
    set->count++;
}

/* Swallows the ranges that overlap or touch the new one. */
void sh_charset_add(sh_charset *set, uint32_t lo, uint32_t hi)
{
    size_t first = 0;
    while (first < set->count && set->ranges[first].hi + 1 < lo) first++;
    size_t end = first;
    for (; end < set->count && set->ranges[end].lo <= hi + 1; end++) {
        if (set->ranges[end].lo < lo) lo = set->ranges[end].lo;
        if (set->ranges[end].hi > hi) hi = set->ranges[end].hi;
    }
    if (end == first) {
        insert(set, first, (sh_char_range){lo, hi});
        return;
    }
    set->ranges[first] = (sh_char_range){lo, hi};
    memmove(&set->ranges[first + 1], &set->ranges[end], (set->count - end) * sizeof(*set->ranges));
    set->count -= end - first - 1;
}

void sh_charset_add_set(sh_charset *set, const sh_charset *other)
{
    for (size_t i = 0; i < other->count; i++)
        sh_charset_add(set, other->ranges[i].lo, other->ranges[i].hi);
}

void sh_charset_invert(sh_charset *set)
{
    sh_charset out = {0};
    uint32_t next = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].lo > next) sh_charset_add(&out, next, set->ranges[i].lo - 1);
        next = set->ranges[i].hi + 1;
    }
    if (next <= SH_CHAR_MAX) sh_charset_add(&out, next, SH_CHAR_MAX);
    sh_charset_reset(set);
    *set = out;
}

bool sh_charset_has(const sh_charset *set, uint32_t code)
{
    for (size_t i = 0; i < set->count && set->ranges[i].lo <= code; i++)
        if (code <= set->ranges[i].hi) return true;
    return false;
}

bool sh_charset_covers(const sh_charset *set, uint32_t lo, uint32_t hi)
{
    for (size_t i = 0; i < set->count && lo <= hi; i++) {
        if (set->ranges[i].hi < lo) continue;
        if (set->ranges[i].lo > lo) return false;
        lo = set->ranges[i].hi + 1;
        if (lo >= SURROGATE_LO && lo <= SURROGATE_HI) lo = SURROGATE_HI + 1;
    }
    return lo > hi;
}

/* The last character that has as many bytes as `code`. */
static uint32_t last_of_length(uint32_t code)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, SURROGATE_LO - 1, 0xffff, SH_CHAR_MAX};
    int i = 0;
    while (code > ends[i]) i++;
    return ends[i];
}

bool sh_utf8_next_seq(uint32_t *lo, uint32_t hi, sh_utf8_seq *out)
{
    if (*lo >= SURROGATE_LO && *lo <= SURROGATE_HI) *lo = SURROGATE_HI + 1;
    if (hi > SH_CHAR_MAX) hi = SH_CHAR_MAX;
    if (*lo > hi) return false;
    uint32_t end = last_of_length(*lo);
    if (end > hi) end = hi;
    /* A sequence is a product of byte ranges, so below the first byte that differs all bits must
     * run from 0 to 1: shrink the end until they do. */
    for (int bits = 6; bits <= 18; bits += 6) {
        uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((*lo | low) >= end) break; /* the same upper bits, or exactly one block */
        if ((*lo & low) != 0) {
            end = *lo | low;
            break;
        }
        if ((end & low) != low) {
            uint32_t block = (end & ~low) - 1;
            /* The rest of the last, incomplete block comes with a later call. */
            if (block >= *lo) end = block;
        }
    }
    char first[4], last[4];
    out->len = sh_utf8_encode(*lo, first);
    sh_utf8_encode(end, last);
    for (int i = 0; i < out->len; i++) {
        out->lo[i] = (uint8_t)first[i];
        out->hi[i] = (uint8_t)last[i];
    }
    *lo = end + 1;
    return true;
}
