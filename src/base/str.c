/* Strings with a length, so that parts of requests and files can be passed around without copies.
 * Parsing is strict where libc is lenient: no white space, no trailing characters, no locale in
 * UTF-8. Input that is almost a number is an error, not a guess. */
#include "base/str.h"

#include "base/alloc.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_TEXT_MAX = 64,
    DISTANCE_LEN_MAX = 512,
    SUGGESTION_TYPO_LEN = 5,   /* one more typo is allowed for each so many characters */
    SUGGESTION_PREFIX_MIN = 3, /* so many characters that a name begins with count as one typo */
};

sh_str sh_str_of(const char *text)
{
    return text == NULL ? (sh_str){"", 0} : (sh_str){text, strlen(text)};
}

/* memcmp must not be called with NULL, which an empty string may have. */
bool sh_str_eq(sh_str a, sh_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool sh_str_is(sh_str a, const char *text)
{
    return sh_str_eq(a, sh_str_of(text));
}

bool sh_str_starts(sh_str text, sh_str prefix)
{
    return text.len >= prefix.len && sh_str_eq((sh_str){text.ptr, prefix.len}, prefix);
}

bool sh_str_ends(sh_str text, sh_str suffix)
{
    return text.len >= suffix.len &&
           sh_str_eq((sh_str){text.ptr + (text.len - suffix.len), suffix.len}, suffix);
}

sh_str sh_str_sub(sh_str text, size_t first, size_t len)
{
    if (first > text.len) first = text.len;
    if (len > text.len - first) len = text.len - first;
    return (sh_str){text.ptr + first, len};
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

sh_str sh_str_trim(sh_str text)
{
    while (text.len > 0 && is_space(text.ptr[0])) text.ptr++, text.len--;
    while (text.len > 0 && is_space(text.ptr[text.len - 1])) text.len--;
    return text;
}

char *sh_str_dup(sh_str text)
{
    return sh_strndup(text.ptr, text.len);
}

size_t sh_str_find(sh_str text, sh_str needle, size_t from)
{
    if (from > text.len) return text.len;
    if (needle.len == 0) return from;
    if (needle.len > text.len - from) return text.len;
    const char *hit = memmem(text.ptr + from, text.len - from, needle.ptr, needle.len);
    return hit == NULL ? text.len : (size_t)(hit - text.ptr);
}

/* "a,,b" has an empty part in the middle; a separator at the end adds no empty part. */
bool sh_str_cut(sh_str *rest, char sep, sh_str *part)
{
    if (rest->len == 0) return false;
    const char *hit = memchr(rest->ptr, sep, rest->len);
    size_t len = hit == NULL ? rest->len : (size_t)(hit - rest->ptr);
    *part = (sh_str){rest->ptr, len};
    size_t used = hit == NULL ? len : len + 1;
    *rest = (sh_str){rest->ptr + used, rest->len - used};
    return true;
}

/* strtoll and strtod need a terminating zero and skip leading white space: copy the text and reject
 * white space. A zero byte inside the text would hide the rest: reject that too. */
static bool number_text(sh_str text, char out[NUMBER_TEXT_MAX])
{
    if (text.len == 0 || text.len >= NUMBER_TEXT_MAX || is_space(text.ptr[0])) return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return strlen(out) == text.len;
}

bool sh_str_to_int(sh_str text, int64_t *out)
{
    char copy[NUMBER_TEXT_MAX], *end;
    if (!number_text(text, copy)) return false;
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (errno != 0 || end != copy + text.len) return false;
    *out = value;
    return true;
}

bool sh_str_to_double(sh_str text, double *out)
{
    char copy[NUMBER_TEXT_MAX], *end;
    if (!number_text(text, copy)) return false;
    errno = 0;
    double value = strtod(copy, &end); /* an underflow is fine: it gives zero or a subnormal */
    if (end != copy + text.len || !isfinite(value)) return false;
    *out = value;
    return true;
}

/* Units are binary whether written as K, KB or KiB: memory sizes are what they are used for. */
bool sh_str_to_bytes(sh_str text, double *out)
{
    if (sh_str_ends(text, SH_STR("iB")))
        text.len -= 2;
    else if (text.len > 1 && text.ptr[text.len - 1] == 'B')
        text.len--;
    static const char units[] = "KMGT";
    double factor = 1;
    if (text.len > 0) {
        const char *unit = strchr(units, toupper((unsigned char)text.ptr[text.len - 1]));
        if (unit != NULL && *unit != '\0') {
            for (const char *u = units; u <= unit; u++) factor *= 1024;
            text.len--;
        }
    }
    if (!sh_str_to_double(text, out)) return false;
    *out *= factor;
    return true;
}

int sh_utf8_decode(const char *ptr, size_t len, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)ptr;
    if (len == 0) return 0;
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    /* 0x80-0xbf are continuation bytes, 0xc0 and 0xc1 can only start overlong encodings. */
    int count = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len < (size_t)count) return 0;
    uint32_t value = p[0] & (0x7fu >> count);
    for (int i = 1; i < count; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < least[count] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
    *code = value;
    return count;
}

int sh_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = count - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(lead[count] | code);
    return count;
}

size_t sh_utf8_valid_prefix(const char *ptr, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint32_t code;
        int count = sh_utf8_decode(ptr + i, len - i, &code);
        if (count == 0) break;
        i += (size_t)count;
    }
    return i;
}

bool sh_utf8_valid(const char *ptr, size_t len)
{
    return sh_utf8_valid_prefix(ptr, len) == len;
}

/* Optimal string alignment. Three rows of the matrix are enough: a swap looks two rows back. */
size_t sh_str_distance(sh_str a, sh_str b)
{
    size_t rows[3][DISTANCE_LEN_MAX];
    if (a.len >= DISTANCE_LEN_MAX || b.len >= DISTANCE_LEN_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= b.len; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t cost = above[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]);
            if (above[j] + 1 < cost) cost = above[j] + 1;
            if (row[j - 1] + 1 < cost) cost = row[j - 1] + 1;
            if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1] &&
                second[j - 2] + 1 < cost)
                cost = second[j - 2] + 1;
            row[j] = cost;
        }
    }
    return rows[a.len % 3][b.len];
}

void sh_suggestion_try(sh_suggestion *s, const char *name)
{
    sh_str whole = sh_str_of(name);
    size_t allowed = 1 + s->typed.len / SUGGESTION_TYPO_LEN;
    size_t distance = sh_str_distance(s->typed, whole);
    if (distance > 1 && s->typed.len >= SUGGESTION_PREFIX_MIN && sh_str_starts(whole, s->typed))
        distance = 1;
    if (distance > allowed || (s->name != NULL && distance >= s->distance)) return;
    s->name = name;
    s->distance = distance;
}

uint64_t sh_hash64(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}
