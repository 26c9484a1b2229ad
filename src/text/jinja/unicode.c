/* utf8proc supplies categories and simple case mappings. Python's white space, line ends and digits
 * are not Unicode categories and are listed here. */
#include "text/jinja/unicode.h"

#include <utf8proc.h>

/* str.isspace(): White_Space and the four information separators U+001C to U+001F. */
bool sh_uni_is_space(uint32_t code)
{
    if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool sh_uni_is_line_end(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

/* What repr() does not escape: everything but control, format, private, unassigned and separator
 * characters. Of the spaces only the ASCII one is printable. */
bool sh_uni_is_printable(uint32_t code)
{
    if (code < 0x7f) return code >= 0x20;
    switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

bool sh_uni_is_alpha(uint32_t code)
{
    switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
    }
}

bool sh_uni_is_decimal(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_ND;
}

/* Decimal digits, and those that are superscript, subscript or in a circle. */
bool sh_uni_is_digit(uint32_t code)
{
    return sh_uni_is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 ||
           code == 0x2070 || (code >= 0x2074 && code <= 0x2079) ||
           (code >= 0x2080 && code <= 0x2089) || (code >= 0x2460 && code <= 0x2468);
}

bool sh_uni_is_numeric(uint32_t code)
{
    utf8proc_category_t cat = category(code);
    return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL ||
           cat == UTF8PROC_CATEGORY_NO;
}

/* The ordinal indicators are lower case letters by property, though not by category. */
bool sh_uni_is_lower(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LL || code == 0xaa || code == 0xba;
}

bool sh_uni_is_upper(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LU;
}

bool sh_uni_is_title(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LT;
}

bool sh_uni_is_word(uint32_t code)
{
    return code == '_' || sh_uni_is_alpha(code) || sh_uni_is_numeric(code);
}

bool sh_uni_is_id_start(uint32_t code)
{
    return code == '_' || sh_uni_is_alpha(code) || category(code) == UTF8PROC_CATEGORY_NL;
}

bool sh_uni_is_id_part(uint32_t code)
{
    switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return sh_uni_is_id_start(code);
    }
}

static int fold(uint32_t code, uint32_t out[SH_UNI_CASE_MAX])
{
    utf8proc_int32_t seq[SH_UNI_CASE_MAX];
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, seq, SH_UNI_CASE_MAX,
                                                     UTF8PROC_CASEFOLD, NULL);
    if (count < 1 || count > SH_UNI_CASE_MAX) {
        out[0] = code;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < count; i++) out[i] = (uint32_t)seq[i];
    return (int)count;
}

static uint32_t simple(uint32_t code, sh_uni_case to)
{
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    if (to == SH_UNI_LOWER) return (uint32_t)utf8proc_tolower(c);
    return (uint32_t)(to == SH_UNI_TITLE ? utf8proc_totitle(c) : utf8proc_toupper(c));
}

/* Full case mapping, which may give several characters. */
int sh_uni_map(uint32_t code, sh_uni_case to, uint32_t out[SH_UNI_CASE_MAX])
{
    if (code < 0x80 || to == SH_UNI_LOWER) {
        out[0] = simple(code, to == SH_UNI_FOLD ? SH_UNI_LOWER : to);
        if (code != 0x130) return 1;
        out[0] = 'i'; /* dotted capital I: the only letter whose lower case has two characters */
        out[1] = 0x307;
        return 2;
    }
    /* utf8proc has no full upper case mapping, but full case folding: a letter that folds into
     * several (a ligature, sharp s) becomes the capitals of those. */
    int count = fold(code, out);
    if (to == SH_UNI_FOLD) return count;
    bool own = sh_uni_is_upper(code) ||
               (to == SH_UNI_TITLE && code != 0xdf && simple(code, to) != code) ||
               (to == SH_UNI_TITLE && sh_uni_is_title(code));
    if (count == 1 || own) {
        out[0] = simple(code, to);
        return 1;
    }
    for (int i = 0; i < count; i++)
        if (i == 0 || to == SH_UNI_UPPER) out[i] = simple(out[i], to);
    return count;
}

size_t sh_uni_space_prefix(sh_str text)
{
    size_t at = 0;
    while (at < text.len) {
        uint32_t code = 0;
        int len = sh_utf8_decode(text.ptr + at, text.len - at, &code);
        if (len == 0 || !sh_uni_is_space(code)) break;
        at += (size_t)len;
    }
    return at;
}

size_t sh_uni_space_suffix(sh_str text)
{
    size_t end = text.len;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && (text.ptr[at] & 0xc0) == 0x80) at--;
        uint32_t code = 0;
        if (sh_utf8_decode(text.ptr + at, end - at, &code) == 0 || !sh_uni_is_space(code)) break;
        end = at;
    }
    return text.len - end;
}
