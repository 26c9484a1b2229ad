/* Case, strip, replace, justify and split on UTF-8, with Python's results.
 *
 * Strings are valid UTF-8 (value.h), so the start of a character is found by walking back over
 * continuation bytes. Parts of a text share its bytes; a new text is built only where the content
 * changes. */
#include "text/jinja/text.h"

#include <string.h>

sh_jv sh_jtext_take(sh_jrun *run, size_t mark, const sh_jstr *str)
{
    const sh_jstr *taken = sh_jrun_take(run, mark);
    return sh_jv_of_str(str->markup ? sh_jstr_mark(run, taken) : taken);
}

uint32_t sh_jtext_char(sh_str text, size_t *at)
{
    uint32_t code = 0;
    int len = sh_utf8_decode(text.ptr + *at, text.len - *at, &code);
    SH_ASSERT(len > 0);
    *at += (size_t)len;
    return code;
}

/* The character that ends at `end`; *at receives where it starts. */
static uint32_t char_before(sh_str text, size_t end, size_t *at)
{
    size_t start = end - 1;
    while (start > 0 && (text.ptr[start] & 0xc0) == 0x80) start--;
    *at = start;
    size_t next = start;
    return sh_jtext_char(text, &next);
}

static bool is_cased(uint32_t code)
{
    return sh_uni_is_lower(code) || sh_uni_is_upper(code) || sh_uni_is_title(code);
}

/* Characters inside words that the rule for the final sigma ignores. */
static bool is_ignorable(uint32_t code)
{
    return code == '\'' || code == 0xad || code == 0x2019 || code == '.' || code == ':' ||
           (code >= 0x300 && code <= 0x36f);
}

/* At the end of a word a capital sigma has a different lower case letter. */
static bool is_final_sigma(sh_str text, size_t start, size_t end)
{
    bool before = false, after = false;
    while (start > 0 && !before) {
        uint32_t code = char_before(text, start, &start);
        if (is_cased(code))
            before = true;
        else if (!is_ignorable(code))
            break;
    }
    while (end < text.len && !after) {
        uint32_t code = sh_jtext_char(text, &end);
        if (is_cased(code))
            after = true;
        else if (!is_ignorable(code))
            break;
    }
    return before && !after;
}

/* Puts the character at start..end in the given case, which may be several characters. */
static void put_case(sh_jrun *run, sh_str text, size_t start, size_t end, sh_uni_case to)
{
    uint32_t out[SH_UNI_CASE_MAX];
    size_t at = start;
    uint32_t code = sh_jtext_char(text, &at);
    if (code == 0x3a3 && to == SH_UNI_LOWER) {
        sh_jrun_put_char(run, is_final_sigma(text, start, end) ? 0x3c2 : 0x3c3);
        return;
    }
    int count = sh_uni_map(code, to, out);
    for (int i = 0; i < count; i++) sh_jrun_put_char(run, out[i]);
}

sh_jv sh_jtext_case(sh_jrun *run, const sh_jstr *str, sh_uni_case to)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        sh_jtext_char(text, &at);
        put_case(run, text, start, at, to);
    }
    return sh_jtext_take(run, mark, str);
}

/* The first character is title case, not upper case: these differ for digraphs. */
sh_jv sh_jtext_capitalize(sh_jrun *run, const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        sh_jtext_char(text, &at);
        put_case(run, text, start, at, start == 0 ? SH_UNI_TITLE : SH_UNI_LOWER);
    }
    return sh_jtext_take(run, mark, str);
}

/* A word is a run of cased letters, so "they're" becomes "They'Re", as in Python. */
sh_jv sh_jtext_title(sh_jrun *run, const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    bool inside = false;
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        uint32_t code = sh_jtext_char(text, &at);
        put_case(run, text, start, at, inside ? SH_UNI_LOWER : SH_UNI_TITLE);
        inside = is_cased(code);
    }
    return sh_jtext_take(run, mark, str);
}

/* The filter of Jinja, unlike str.title(), leaves apostrophes alone. */
sh_jv sh_jtext_title_words(sh_jrun *run, const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    bool inside = false;
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        uint32_t code = sh_jtext_char(text, &at);
        bool gap = sh_uni_is_space(code) || (code < 0x80 && strchr("-({[<", (int)code) != NULL);
        put_case(run, text, start, at, inside ? SH_UNI_LOWER : SH_UNI_UPPER);
        inside = !gap;
    }
    return sh_jtext_take(run, mark, str);
}

sh_jv sh_jtext_swapcase(sh_jrun *run, const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        uint32_t code = sh_jtext_char(text, &at);
        if (sh_uni_is_upper(code))
            put_case(run, text, start, at, SH_UNI_LOWER);
        else if (sh_uni_is_lower(code))
            put_case(run, text, start, at, SH_UNI_UPPER);
        else
            sh_jrun_put(run, sh_str_sub(text, start, at - start));
    }
    return sh_jtext_take(run, mark, str);
}

bool sh_jtext_is_case(sh_jrun *run, const sh_jstr *str, bool upper)
{
    sh_str text = sh_jstr_str(str);
    sh_jrun_charge(run, text.len / 16);
    bool any = false;
    for (size_t at = 0; at < text.len;) {
        uint32_t code = sh_jtext_char(text, &at);
        bool is_upper = sh_uni_is_upper(code), is_lower = sh_uni_is_lower(code);
        if (sh_uni_is_title(code) || (upper ? is_lower : is_upper)) return false;
        any |= is_upper || is_lower;
    }
    return any;
}

/* `chars` is a set of characters. Searching for the bytes of one character is safe in UTF-8. */
static bool is_stripped(sh_str text, size_t start, size_t end, const sh_jstr *chars)
{
    size_t at = start;
    if (chars == NULL) return sh_uni_is_space(sh_jtext_char(text, &at));
    sh_str c = sh_str_sub(text, start, end - start);
    return sh_str_find(sh_jstr_str(chars), c, 0) < chars->len;
}

sh_jv sh_jtext_strip(sh_jrun *run, const sh_jstr *str, const sh_jstr *chars, sh_jside sides)
{
    sh_str text = sh_jstr_str(str);
    size_t first = 0, last = text.len, cost = chars == NULL ? 1 : 1 + chars->len / 64;
    while ((sides & SH_JSIDE_LEFT) != 0 && first < last) {
        size_t end = first;
        sh_jtext_char(text, &end);
        if (!is_stripped(text, first, end, chars)) break;
        first = end;
        sh_jrun_charge(run, cost);
    }
    while ((sides & SH_JSIDE_RIGHT) != 0 && last > first) {
        size_t start;
        char_before(text, last, &start);
        if (!is_stripped(text, start, last, chars)) break;
        last = start;
        sh_jrun_charge(run, cost);
    }
    if (first == 0 && last == text.len) return sh_jv_of_str(str);
    return sh_jstr_part(run, str, sh_str_sub(text, first, last - first));
}

/* The empty text occurs before each character and at the end. */
static sh_jv replace_empty(sh_jrun *run, const sh_jstr *str, const sh_jstr *to, int64_t count)
{
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    for (size_t at = 0; at <= text.len;) {
        if (count != 0) sh_jrun_put(run, sh_jstr_str(to));
        if (count > 0) count--;
        if (at == text.len) break;
        size_t start = at;
        sh_jtext_char(text, &at);
        sh_jrun_put(run, sh_str_sub(text, start, at - start));
    }
    return sh_jtext_take(run, mark, str);
}

sh_jv sh_jtext_replace(sh_jrun *run, const sh_jstr *str, const sh_jstr *from, const sh_jstr *to,
                       int64_t count)
{
    sh_str text = sh_jstr_str(str);
    if (from->len == 0) return replace_empty(run, str, to, count);
    sh_jrun_charge(run, text.len / 16);
    size_t at = sh_str_find(text, sh_jstr_str(from), 0), start = 0;
    if (at == text.len || count == 0) return sh_jv_of_str(str);
    size_t mark = sh_jrun_mark(run);
    for (; at < text.len && count != 0; at = sh_str_find(text, sh_jstr_str(from), start)) {
        sh_jrun_put(run, sh_str_sub(text, start, at - start));
        sh_jrun_put(run, sh_jstr_str(to));
        sh_jrun_charge(run, 1);
        start = at + from->len;
        if (count > 0) count--;
    }
    sh_jrun_put(run, sh_str_sub(text, start, text.len));
    return sh_jtext_take(run, mark, str);
}

sh_jv sh_jtext_justify(sh_jrun *run, const sh_jstr *str, int64_t width, sh_str fill,
                       sh_jside fill_sides)
{
    if (width <= (int64_t)str->chars) return sh_jv_of_str(str);
    size_t pad = (size_t)width - str->chars;
    /* An odd column goes to the left if the width is odd too: CPython's rule for center(). */
    size_t left = fill_sides == SH_JSIDE_LEFT    ? pad
                  : fill_sides == SH_JSIDE_RIGHT ? 0
                                                 : pad / 2 + (pad & (size_t)width & 1);
    size_t mark = sh_jrun_mark(run);
    sh_jrun_pad(run, fill, left);
    sh_jrun_put(run, sh_jstr_str(str));
    sh_jrun_pad(run, fill, pad - left);
    return sh_jtext_take(run, mark, str);
}

static void part_add(sh_jrun *run, sh_jlist *list, const sh_jstr *str, size_t start, size_t end)
{
    sh_jlist_add(run, list, sh_jstr_part(run, str, (sh_str){str->ptr + start, end - start}));
}

static void list_reverse(sh_jlist *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        sh_jv item = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

/* If the number of splits ran out, the last piece is all the rest, with its trailing space. */
static void split_space(sh_jrun *run, const sh_jstr *str, int64_t max, sh_jlist *out)
{
    sh_str text = sh_jstr_str(str);
    size_t at = sh_uni_space_prefix(text);
    while (at < text.len) {
        size_t start = at, end = text.len;
        for (size_t next = at; max != 0 && next < text.len && end == text.len;) {
            at = next;
            if (sh_uni_is_space(sh_jtext_char(text, &next))) end = at;
        }
        part_add(run, out, str, start, end);
        at = end + sh_uni_space_prefix(sh_str_sub(text, end, text.len));
        max -= max > 0;
    }
}

static void rsplit_space(sh_jrun *run, const sh_jstr *str, int64_t max, sh_jlist *out)
{
    sh_str text = sh_jstr_str(str);
    size_t end = text.len - sh_uni_space_suffix(text);
    while (end > 0) {
        size_t start = 0;
        for (size_t at = end, before; max != 0 && at > 0 && start == 0; at = before)
            if (sh_uni_is_space(char_before(text, at, &before))) start = at;
        part_add(run, out, str, start, end);
        sh_str rest = sh_str_sub(text, 0, start);
        end = rest.len - sh_uni_space_suffix(rest);
        max -= max > 0;
    }
    list_reverse(out);
}

static void split_at(sh_jrun *run, const sh_jstr *str, sh_str sep, int64_t max, sh_jlist *out)
{
    sh_str text = sh_jstr_str(str);
    size_t start = 0;
    for (size_t at; max != 0 && (at = sh_str_find(text, sep, start)) < text.len; max -= max > 0) {
        part_add(run, out, str, start, at);
        start = at + sep.len;
    }
    part_add(run, out, str, start, text.len);
}

/* Compares bytes from the end. That is safe in UTF-8: a separator cannot match inside a character.
 * */
static void rsplit_at(sh_jrun *run, const sh_jstr *str, sh_str sep, int64_t max, sh_jlist *out)
{
    sh_str text = sh_jstr_str(str);
    size_t end = text.len;
    for (size_t at = text.len; max != 0 && at >= sep.len;) {
        sh_jrun_charge(run, sep.len / 64);
        if (memcmp(text.ptr + at - sep.len, sep.ptr, sep.len) != 0) {
            at--;
            continue;
        }
        part_add(run, out, str, at, end);
        end = at -= sep.len;
        max -= max > 0;
    }
    part_add(run, out, str, 0, end);
    list_reverse(out);
}

sh_jlist *sh_jtext_split(sh_jrun *run, const sh_jstr *str, const sh_jstr *sep, int64_t max,
                         bool from_right)
{
    sh_jlist *out = sh_jlist_new(run, 0);
    sh_jrun_charge(run, str->len / 16);
    if (sep == NULL) {
        (from_right ? rsplit_space : split_space)(run, str, max, out);
    } else {
        if (sep->len == 0) sh_jrun_error(run, "empty separator");
        (from_right ? rsplit_at : split_at)(run, str, sh_jstr_str(sep), max, out);
    }
    return out;
}

/* "\r\n" is one line end, and a line end at the very end does not start another line. */
sh_jlist *sh_jtext_lines(sh_jrun *run, const sh_jstr *str, bool keep_ends)
{
    sh_jlist *out = sh_jlist_new(run, 0);
    sh_str text = sh_jstr_str(str);
    size_t start = 0;
    sh_jrun_charge(run, text.len / 16);
    for (size_t at = 0; at < text.len;) {
        size_t end = at;
        uint32_t code = sh_jtext_char(text, &at);
        if (!sh_uni_is_line_end(code)) continue;
        if (code == '\r' && at < text.len && text.ptr[at] == '\n') at++;
        part_add(run, out, str, start, keep_ends ? at : end);
        start = at;
    }
    if (start < text.len) part_add(run, out, str, start, text.len);
    return out;
}
