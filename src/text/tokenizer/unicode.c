/* Normal forms are utf8proc's, with two changes for speed on untrusted text: ASCII is copied
 * instead of being normalized, and runs of combining marks are sorted in n log n instead of n
 * squared.
 *
 * White space and word characters follow the tokenizers library, those of text/jinja/unicode.c
 * follow Python. They differ, which is why the two files do not share them. */
#include "text/tokenizer/unicode.h"

#include "base/alloc.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { DECOMPOSED_MAX = 32 }; /* no character decomposes into more than 18 */

uint32_t sh_unicode_next(sh_str text, int *len)
{
    uint32_t code = (unsigned char)text.ptr[0];
    *len = 1;
    if (code >= 0x80) *len = sh_utf8_decode(text.ptr, text.len, &code);
    SH_ASSERT(*len > 0);
    return code;
}

uint32_t sh_unicode_last(sh_str text, int *len)
{
    size_t first = text.len - 1;
    while (first > 0 && ((unsigned char)text.ptr[first] & 0xc0) == 0x80) first--;
    return sh_unicode_next(sh_str_sub(text, first, text.len), len);
}

bool sh_unicode_is_space(uint32_t code)
{
    if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* Categories as a set of bits. */
static uint32_t category_bit(uint32_t code)
{
    return 1u << utf8proc_category((utf8proc_int32_t)code);
}

#define BIT(name) (1u << UTF8PROC_CATEGORY_##name)
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))

/* Symbols by category that are still alphabetic: letters in circles and squares. */
static bool is_letter_symbol(uint32_t code)
{
    return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
           (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

bool sh_unicode_is_word(uint32_t code)
{
    const uint32_t word = LETTERS | MARKS | BIT(ND) | BIT(NL) | BIT(PC);
    return (category_bit(code) & word) != 0 || code == 0x200c || code == 0x200d ||
           is_letter_symbol(code);
}

bool sh_unicode_is_punct(uint32_t code)
{
    if (code < 0x80)
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
               (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
    return (category_bit(code) & PUNCTUATION) != 0;
}

bool sh_unicode_is_number(uint32_t code)
{
    return (category_bit(code) & NUMBERS) != 0;
}

bool sh_unicode_is_mark(uint32_t code)
{
    return (category_bit(code) & MARKS) != 0;
}

bool sh_unicode_is_accent(uint32_t code)
{
    return (category_bit(code) & BIT(MN)) != 0;
}

bool sh_unicode_is_other(uint32_t code)
{
    return (category_bit(code) & (BIT(CC) | BIT(CF) | BIT(CO) | BIT(CS))) != 0;
}

size_t sh_unicode_grapheme(sh_str text)
{
    int len, state = 0;
    uint32_t before = sh_unicode_next(text, &len);
    size_t at = (size_t)len;
    while (at < text.len) {
        uint32_t code = sh_unicode_next(sh_str_sub(text, at, text.len), &len);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)code,
                                             &state))
            break;
        before = code;
        at += (size_t)len;
    }
    return at;
}

typedef struct {
    utf8proc_int32_t *codes;
    size_t len;
    size_t cap;
} code_list;

static void codes_reserve(code_list *list, size_t extra)
{
    if (list->cap - list->len >= extra) return;
    list->cap = (list->len + extra) * 2;
    list->codes = sh_realloc_array(list->codes, list->cap, sizeof(*list->codes));
}

static void decompose(sh_str text, int options, code_list *list)
{
    int len, bound = 0;
    for (size_t i = 0; i < text.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(text, i, text.len), &len);
        codes_reserve(list, DECOMPOSED_MAX);
        utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code,
                                                         list->codes + list->len, DECOMPOSED_MAX,
                                                         (utf8proc_option_t)options, &bound);
        SH_ASSERT(count >= 0 && count <= DECOMPOSED_MAX);
        list->len += (size_t)count;
    }
}

static int key_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Stable sort of a run of marks by combining class. utf8proc's own ordering is quadratic, which a
 * hostile text of a million marks could exploit. The position in the key makes qsort() stable. */
static void marks_sort(utf8proc_int32_t *codes, size_t count)
{
    uint64_t *keys = sh_alloc_array(count, sizeof(*keys));
    utf8proc_int32_t *copy = sh_alloc_array(count, sizeof(*copy));
    SH_ASSERT(count <= UINT32_MAX);
    for (size_t i = 0; i < count; i++) {
        uint64_t combining = (uint64_t)utf8proc_get_property(codes[i])->combining_class;
        keys[i] = combining << 32 | i;
        copy[i] = codes[i];
    }
    qsort(keys, count, sizeof(*keys), key_compare);
    for (size_t i = 0; i < count; i++) codes[i] = copy[(uint32_t)keys[i]];
    free(keys);
    free(copy);
}

/* Canonical ordering: sorts each run of characters with a combining class other than 0. */
static void marks_order(code_list *list)
{
    for (size_t i = 0; i < list->len;) {
        size_t end = i;
        while (end < list->len && utf8proc_get_property(list->codes[end])->combining_class != 0)
            end++;
        if (end - i > 1) marks_sort(list->codes + i, end - i);
        i = end > i ? end : i + 1;
    }
}

/* Decomposes, sorts the marks and, for NFC and NFKC, composes again. */
static void normalize_part(sh_str text, sh_unicode_form form, code_list *list, sh_buf *out)
{
    bool compose = form == SH_UNICODE_NFC || form == SH_UNICODE_NFKC;
    bool compat = form == SH_UNICODE_NFKC || form == SH_UNICODE_NFKD;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    list->len = 0;
    decompose(text, options, list);
    marks_order(list);
    if (compose) {
        utf8proc_ssize_t len = utf8proc_normalize_utf32(
            list->codes, (utf8proc_ssize_t)list->len,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        SH_ASSERT(len >= 0);
        list->len = (size_t)len;
    }
    for (size_t i = 0; i < list->len; i++) sh_buf_add_utf8(out, (uint32_t)list->codes[i]);
}

static bool is_ascii(char c)
{
    return (unsigned char)c < 0x80;
}

/* No form changes ASCII, and no character composes with a following ASCII character. So only the
 * others are normalized, together with the character before them, which they may compose with. */
void sh_unicode_normalize(sh_str text, sh_unicode_form form, sh_buf *out)
{
    code_list list = {0};
    for (size_t i = 0; i < text.len;) {
        size_t ascii = i;
        while (ascii < text.len && is_ascii(text.ptr[ascii])) ascii++;
        if (ascii > i && ascii < text.len) ascii--;
        sh_buf_add(out, text.ptr + i, ascii - i);
        size_t end = ascii < text.len ? ascii + 1 : ascii;
        while (end < text.len && !is_ascii(text.ptr[end])) end++;
        normalize_part(sh_str_sub(text, ascii, end - ascii), form, &list, out);
        i = end;
    }
    free(list.codes);
}

void sh_unicode_lower(sh_str text, sh_buf *out)
{
    int len;
    for (size_t i = 0; i < text.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(text, i, text.len), &len);
        /* The only character whose lower case is two characters in every language. */
        if (code == 0x130)
            sh_buf_add_text(out, "i\xcc\x87");
        else
            sh_buf_add_utf8(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    }
}

/* GPT-2's table: 33..126, 161..172 and 174..255 are themselves, the others follow from 256 on. */
uint32_t sh_bytelevel_char(uint8_t byte)
{
    if (byte <= 32) return 256u + byte;
    if (byte <= 126) return byte;
    if (byte <= 160) return 162u + byte;
    return byte == 173 ? 323 : byte;
}

/* The inverse; -1 for a character that represents no byte. */
static int byte_of(uint32_t code)
{
    if (code < 256) return sh_bytelevel_char((uint8_t)code) == code ? (int)code : -1;
    if (code <= 288) return (int)code - 256;
    if (code <= 322) return (int)code - 162;
    return code == 323 ? 173 : -1;
}

void sh_bytelevel_encode(sh_str bytes, sh_buf *out)
{
    char *to = sh_buf_reserve(out, bytes.len * 2);
    for (size_t i = 0; i < bytes.len; i++) {
        uint32_t code = sh_bytelevel_char((uint8_t)bytes.ptr[i]);
        if (code < 0x80) {
            *to++ = (char)code;
        } else {
            *to++ = (char)(0xc0 | code >> 6);
            *to++ = (char)(0x80 | (code & 0x3f));
        }
    }
    out->len = (size_t)(to - out->ptr);
    *to = '\0';
}

bool sh_bytelevel_decode(sh_str piece, sh_buf *out)
{
    size_t before = out->len;
    int len;
    for (size_t i = 0; i < piece.len; i += (size_t)len) {
        int byte = byte_of(sh_unicode_next(sh_str_sub(piece, i, piece.len), &len));
        if (byte < 0) {
            out->len = before;
            return false;
        }
        sh_buf_add_char(out, (char)byte);
    }
    return true;
}
