/* Text to numbers, by the rules of Python's int() and float(). */
#include "text/jinja/ops.h"

#include "text/jinja/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static sh_str trimmed(const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    size_t first = sh_uni_space_prefix(text);
    if (first == text.len) return (sh_str){text.ptr, 0};
    return sh_str_sub(text, first, text.len - first - sh_uni_space_suffix(text));
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 36;
}

/* Skips "0x", "0o" or "0b" if it fits the base; base 0 is replaced by the one of the prefix. */
static sh_str prefix_cut(sh_str text, int *base)
{
    static const struct {
        char mark;
        int base;
    } marks[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    for (size_t i = 0; i < SH_COUNT_OF(marks); i++) {
        if (text.len < 2 || text.ptr[0] != '0' || (text.ptr[1] | 0x20) != marks[i].mark) continue;
        if (*base != 0 && *base != marks[i].base) continue;
        *base = marks[i].base;
        text = sh_str_sub(text, 2, text.len);
        return text.len > 1 && text.ptr[0] == '_' ? sh_str_sub(text, 1, text.len) : text;
    }
    if (*base == 0) *base = 10;
    return text;
}

/* An overflow is only recorded, so that a wrong digit further on is still reported as such. The
 * value is accumulated with its sign, because -2^63 has no positive counterpart. */
bool sh_jstr_to_int(const sh_jstr *str, int base, int64_t *out, bool *too_big)
{
    sh_str text = trimmed(str);
    bool minus = text.len > 0 && text.ptr[0] == '-';
    if (minus || (text.len > 0 && text.ptr[0] == '+')) text = sh_str_sub(text, 1, text.len);
    text = prefix_cut(text, &base);
    int64_t value = 0;
    bool digit = false;
    *too_big = false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '_' && digit && i + 1 < text.len) {
            digit = false;
            continue;
        }
        int d = digit_value(text.ptr[i]);
        if (d >= base) return false;
        digit = true;
        *too_big |= __builtin_mul_overflow(value, base, &value) ||
                    __builtin_add_overflow(value, minus ? -d : d, &value);
    }
    if (!digit) return false;
    *out = value;
    return true;
}

static bool word_is(sh_str text, const char *word)
{
    if (text.len != strlen(word)) return false;
    for (size_t i = 0; i < text.len; i++)
        if (tolower((unsigned char)text.ptr[i]) != word[i]) return false;
    return true;
}

/* Checks for digits [. digits] [e digits], with single underscores between digits. strtod() alone
 * would also accept hexadecimal and stop at the first wrong character. */
static bool float_shape(sh_str text)
{
    bool digits = false, dot = false, exp = false, last = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (isdigit((unsigned char)c)) {
            digits = last = true;
            continue;
        }
        bool next = i + 1 < text.len && isdigit((unsigned char)text.ptr[i + 1]);
        if (c == '_' && last && next) {
            continue;
        } else if (c == '.' && !dot && !exp) {
            dot = true;
        } else if ((c | 0x20) == 'e' && digits && !exp) {
            exp = true;
            if (i + 1 < text.len && (text.ptr[i + 1] == '+' || text.ptr[i + 1] == '-')) i++;
            if (i + 1 == text.len) return false;
        } else {
            return false;
        }
        last = false;
    }
    return digits && (!exp || last);
}

bool sh_jstr_to_double(sh_jrun *run, const sh_jstr *str, double *out)
{
    sh_str text = trimmed(str);
    bool minus = text.len > 0 && text.ptr[0] == '-';
    if (minus || (text.len > 0 && text.ptr[0] == '+')) text = sh_str_sub(text, 1, text.len);
    double value;
    if (word_is(text, "inf") || word_is(text, "infinity")) {
        value = strtod("inf", NULL);
    } else if (word_is(text, "nan")) {
        value = strtod("nan", NULL);
    } else {
        if (!float_shape(text)) return false;
        char *digits = sh_jrun_alloc(run, text.len + 1);
        size_t len = 0;
        for (size_t i = 0; i < text.len; i++)
            if (text.ptr[i] != '_') digits[len++] = text.ptr[i];
        value = strtod(digits, NULL);
    }
    *out = minus ? -value : value;
    return true;
}
