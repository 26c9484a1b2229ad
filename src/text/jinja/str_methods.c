/* Methods of str.
 *
 * Most are thin wrappers around text.h; this file adds Python's argument handling. Positions that
 * the template sees count characters while the functions below work on bytes: part_of() converts on
 * the way in, find() on the way out. Methods of markup escape the text they are given, as in the
 * markupsafe package. */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

#include <string.h>

static const sh_jstr *self_of(const sh_jcall *call)
{
    return call->self.u.str;
}

/* An optional text argument; None counts as not given. */
static const sh_jstr *text_or_null(sh_jrun *run, sh_jv arg, const char *what)
{
    return sh_jarg_given(arg) ? sh_jarg_str(run, arg, what) : NULL;
}

/* Case. The work is done by text.c, which the filters use as well. */

static sh_jv m_capitalize(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_capitalize(run, self_of(call));
}

static sh_jv m_casefold(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_case(run, self_of(call), SH_UNI_FOLD);
}

static sh_jv m_lower(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_case(run, self_of(call), SH_UNI_LOWER);
}

static sh_jv m_upper(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_case(run, self_of(call), SH_UNI_UPPER);
}

static sh_jv m_title(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_title(run, self_of(call));
}

static sh_jv m_swapcase(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_swapcase(run, self_of(call));
}

/* Padding. The fill must be one character, which for markup is checked after escaping. */

static sh_jv justify(sh_jrun *run, const sh_jcall *call, sh_jside sides)
{
    sh_str fill = SH_STR(" ");
    if (call->argv[1].kind != SH_JV_MISSING) {
        const sh_jstr *given = sh_jarg_str(run, call->argv[1], "the fill character");
        if (self_of(call)->markup) given = sh_jv_escape(run, call->argv[1]);
        if (given->chars != 1)
            sh_jrun_error(run, "The fill character must be exactly one character long");
        fill = sh_jstr_str(given);
    }
    return sh_jtext_justify(run, self_of(call), sh_jarg_int(run, call->argv[0], 0), fill, sides);
}

static sh_jv m_center(sh_jrun *run, const sh_jcall *call)
{
    return justify(run, call, SH_JSIDE_BOTH);
}

static sh_jv m_ljust(sh_jrun *run, const sh_jcall *call)
{
    return justify(run, call, SH_JSIDE_RIGHT);
}

static sh_jv m_rjust(sh_jrun *run, const sh_jcall *call)
{
    return justify(run, call, SH_JSIDE_LEFT);
}

/* Searching. All of these accept start and end like slices: negative values count from the end,
 * values beyond the text are clamped. */

/* The part text[start:end] that find, count and startswith work on; false if start is past the end,
 * where not even the empty text is found. */
static bool part_of(sh_jrun *run, const sh_jcall *call, sh_str *part, int64_t *first)
{
    const sh_jstr *str = self_of(call);
    int64_t count = (int64_t)str->chars, bounds[2] = {0, count};
    for (int i = 0; i < 2; i++) {
        if (!sh_jarg_given(call->argv[i + 1])) continue;
        bounds[i] = sh_jarg_int(run, call->argv[i + 1], 0);
        if (bounds[i] < 0) bounds[i] = bounds[i] + count < 0 ? 0 : bounds[i] + count;
    }
    if (bounds[1] > count) bounds[1] = count;
    if (bounds[0] > bounds[1]) return false;
    size_t start = sh_jstr_offset(str, (size_t)bounds[0]);
    size_t end = sh_jstr_offset(str, (size_t)bounds[1]);
    *part = (sh_str){str->ptr + start, end - start};
    *first = bounds[0];
    sh_jrun_charge(run, str->len / 64);
    return true;
}

/* Returns SIZE_MAX if there is no occurrence, since the empty text occurs at the end as well. */
static size_t find_last(sh_jrun *run, sh_str text, sh_str needle)
{
    for (size_t at = text.len; at >= needle.len; at--) {
        sh_jrun_charge(run, needle.len / 64);
        if (needle.len == 0 || memcmp(text.ptr + at - needle.len, needle.ptr, needle.len) == 0)
            return at - needle.len;
    }
    return SIZE_MAX;
}

/* Index in characters of the first or last occurrence of the argument; -1 if there is none. */
static int64_t find(sh_jrun *run, const sh_jcall *call, bool last)
{
    sh_str part, needle = sh_jstr_str(sh_jarg_str(run, call->argv[0], "the text to find"));
    int64_t first;
    if (!part_of(run, call, &part, &first)) return -1;
    size_t at = last ? find_last(run, part, needle) : sh_str_find(part, needle, 0);
    if (at == SIZE_MAX || (!last && needle.len > 0 && at == part.len)) return -1;
    return first + (int64_t)sh_utf8_count(sh_str_sub(part, 0, at));
}

static sh_jv m_find(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_int(find(run, call, false));
}

static sh_jv m_rfind(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_int(find(run, call, true));
}

static sh_jv index_of(sh_jrun *run, const sh_jcall *call, bool last)
{
    int64_t at = find(run, call, last);
    if (at < 0) sh_jrun_error(run, "substring not found");
    return sh_jv_int(at);
}

static sh_jv m_index(sh_jrun *run, const sh_jcall *call)
{
    return index_of(run, call, false);
}

static sh_jv m_rindex(sh_jrun *run, const sh_jcall *call)
{
    return index_of(run, call, true);
}

/* Occurrences do not overlap; the empty text occurs once more than there are characters. */
static sh_jv m_count(sh_jrun *run, const sh_jcall *call)
{
    sh_str part, needle = sh_jstr_str(sh_jarg_str(run, call->argv[0], "the text to count"));
    int64_t first, count = 0;
    if (!part_of(run, call, &part, &first)) return sh_jv_int(0);
    if (needle.len == 0) return sh_jv_int((int64_t)sh_utf8_count(part) + 1);
    for (size_t at = 0; (at = sh_str_find(part, needle, at)) < part.len; at += needle.len) count++;
    return sh_jv_int(count);
}

/* startswith and endswith, which also accept a tuple of alternatives. */
static sh_jv affix(sh_jrun *run, const sh_jcall *call, const char *name,
                   bool (*test)(sh_str, sh_str))
{
    sh_jv arg = call->argv[0];
    sh_str part;
    int64_t first;
    if (arg.kind != SH_JV_STR && arg.kind != SH_JV_TUPLE)
        sh_jrun_error(run, "%s first arg must be str or a tuple of str, not %s", name,
                      sh_jv_type(arg));
    if (!part_of(run, call, &part, &first)) return sh_jv_bool(false);
    if (arg.kind == SH_JV_STR) return sh_jv_bool(test(part, sh_jstr_str(arg.u.str)));
    for (size_t i = 0; i < arg.u.list->count; i++) {
        if (arg.u.list->items[i].kind != SH_JV_STR)
            sh_jrun_error(run, "tuple for %s must only contain str, not %s", name,
                          sh_jv_type(arg.u.list->items[i]));
        if (test(part, sh_jstr_str(arg.u.list->items[i].u.str))) return sh_jv_bool(true);
    }
    return sh_jv_bool(false);
}

static sh_jv m_startswith(sh_jrun *run, const sh_jcall *call)
{
    return affix(run, call, "startswith", sh_str_starts);
}

static sh_jv m_endswith(sh_jrun *run, const sh_jcall *call)
{
    return affix(run, call, "endswith", sh_str_ends);
}

static sh_jv m_removeprefix(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(self_of(call));
    sh_str prefix = sh_jstr_str(sh_jarg_str(run, call->argv[0], "removeprefix() argument"));
    if (!sh_str_starts(text, prefix)) return call->self;
    return sh_jstr_part(run, self_of(call), sh_str_sub(text, prefix.len, text.len));
}

static sh_jv m_removesuffix(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(self_of(call));
    sh_str suffix = sh_jstr_str(sh_jarg_str(run, call->argv[0], "removesuffix() argument"));
    if (!sh_str_ends(text, suffix)) return call->self;
    return sh_jstr_part(run, self_of(call), sh_str_sub(text, 0, text.len - suffix.len));
}

static sh_jv m_expandtabs(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(self_of(call));
    int64_t size = sh_jarg_int(run, call->argv[0], 8);
    size_t mark = sh_jrun_mark(run), column = 0, tab = size < 0 ? 0 : (size_t)size;
    for (size_t at = 0; at < text.len;) {
        size_t start = at;
        uint32_t code = sh_jtext_char(text, &at);
        if (code == '\t') {
            size_t pad = tab == 0 ? 0 : tab - column % tab;
            sh_jrun_pad(run, SH_STR(" "), pad);
            column += pad;
            continue;
        }
        sh_jrun_put(run, sh_str_sub(text, start, at - start));
        column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
    return sh_jtext_take(run, mark, self_of(call));
}

static sh_jv m_format(sh_jrun *run, const sh_jcall *call)
{
    return sh_jstr_format(run, self_of(call), call->args);
}

static sh_jv m_format_map(sh_jrun *run, const sh_jcall *call)
{
    if (call->argv[0].kind != SH_JV_DICT)
        sh_jrun_error(run, "format_map() takes a mapping, not %s", sh_jv_type(call->argv[0]));
    sh_jargs args = {.named = call->argv[0].u.dict};
    return sh_jstr_format(run, self_of(call), &args);
}

/* Predicates. For the empty text they are all false, except isprintable and isascii. */

/* Whether the text is not empty and every character passes. */
static sh_jv every(sh_jrun *run, const sh_jcall *call, bool (*test)(uint32_t))
{
    sh_str text = sh_jstr_str(self_of(call));
    sh_jrun_charge(run, text.len / 16);
    bool all = text.len > 0;
    for (size_t at = 0; all && at < text.len;) all = test(sh_jtext_char(text, &at));
    return sh_jv_bool(all);
}

static bool is_alnum(uint32_t code)
{
    return sh_uni_is_alpha(code) || sh_uni_is_numeric(code);
}

static sh_jv m_isalnum(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, is_alnum);
}

static sh_jv m_isalpha(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, sh_uni_is_alpha);
}

static sh_jv m_isascii(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(self_of(call)->chars == self_of(call)->len);
}

static sh_jv m_isdecimal(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, sh_uni_is_decimal);
}

static sh_jv m_isdigit(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, sh_uni_is_digit);
}

static sh_jv m_isidentifier(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(self_of(call));
    sh_jrun_charge(run, text.len / 16);
    size_t at = 0;
    bool all = text.len > 0 && sh_uni_is_id_start(sh_jtext_char(text, &at));
    while (all && at < text.len) all = sh_uni_is_id_part(sh_jtext_char(text, &at));
    return sh_jv_bool(all);
}

static sh_jv m_islower(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jtext_is_case(run, self_of(call), false));
}

static sh_jv m_isupper(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jtext_is_case(run, self_of(call), true));
}

static sh_jv m_isnumeric(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, sh_uni_is_numeric);
}

static sh_jv m_isprintable(sh_jrun *run, const sh_jcall *call)
{
    return self_of(call)->len == 0 ? sh_jv_bool(true) : every(run, call, sh_uni_is_printable);
}

static sh_jv m_isspace(sh_jrun *run, const sh_jcall *call)
{
    return every(run, call, sh_uni_is_space);
}

/* Every word starts with an upper or title case letter, and no such letter follows a cased one. */
static sh_jv m_istitle(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(self_of(call));
    sh_jrun_charge(run, text.len / 16);
    bool inside = false, any = false;
    for (size_t at = 0; at < text.len;) {
        uint32_t code = sh_jtext_char(text, &at);
        bool upper = sh_uni_is_upper(code) || sh_uni_is_title(code), lower = sh_uni_is_lower(code);
        if ((upper && inside) || (lower && !inside)) return sh_jv_bool(false);
        inside = upper || lower;
        any |= inside;
    }
    return sh_jv_bool(any);
}

/* Unlike the filter `join`, the method accepts only strings as items. */
static sh_jv m_join(sh_jrun *run, const sh_jcall *call)
{
    if (!sh_jv_iterable(call->argv[0])) sh_jrun_error(run, "can only join an iterable");
    const sh_jstr *sep = self_of(call);
    sh_jiter *iter = sh_jv_iter(run, call->argv[0]);
    size_t mark = sh_jrun_mark(run), count = 0;
    for (sh_jv item; sh_jiter_next(run, iter, &item); count++) {
        if (sep->markup) item = sh_jv_of_str(sh_jv_escape(run, item));
        if (item.kind != SH_JV_STR)
            sh_jrun_error(run, "sequence item %zu: expected str instance, %s found", count,
                          sh_jv_type(item));
        if (count > 0) sh_jrun_put(run, sh_jstr_str(sep));
        sh_jrun_put(run, sh_jstr_str(item.u.str));
    }
    return sh_jtext_take(run, mark, sep);
}

static sh_jv strip(sh_jrun *run, const sh_jcall *call, sh_jside sides)
{
    return sh_jtext_strip(run, self_of(call), text_or_null(run, call->argv[0], "strip arg"), sides);
}

static sh_jv m_strip(sh_jrun *run, const sh_jcall *call)
{
    return strip(run, call, SH_JSIDE_BOTH);
}

static sh_jv m_lstrip(sh_jrun *run, const sh_jcall *call)
{
    return strip(run, call, SH_JSIDE_LEFT);
}

static sh_jv m_rstrip(sh_jrun *run, const sh_jcall *call)
{
    return strip(run, call, SH_JSIDE_RIGHT);
}

/* If the separator is missing, all of the text is the first part, or the last one for rpartition.
 * */
static sh_jv partition(sh_jrun *run, const sh_jcall *call, bool last)
{
    const sh_jstr *str = self_of(call);
    sh_str text = sh_jstr_str(str), sep = sh_jstr_str(sh_jarg_str(run, call->argv[0], "separator"));
    if (sep.len == 0) sh_jrun_error(run, "empty separator");
    size_t at = last ? find_last(run, text, sep) : sh_str_find(text, sep, 0);
    bool found = last ? at != SIZE_MAX : at < text.len;
    sh_jv empty = sh_jstr_part(run, str, sh_str_sub(text, 0, 0));
    sh_jlist *list = sh_jlist_new(run, 3);
    if (!found) {
        for (int i = 0; i < 3; i++)
            sh_jlist_add(run, list, i == (last ? 2 : 0) ? call->self : empty);
    } else {
        sh_jlist_add(run, list, sh_jstr_part(run, str, sh_str_sub(text, 0, at)));
        sh_jlist_add(run, list, sh_jstr_part(run, str, sh_str_sub(text, at, sep.len)));
        sh_jlist_add(run, list, sh_jstr_part(run, str, sh_str_sub(text, at + sep.len, text.len)));
    }
    return sh_jv_of_tuple(list);
}

static sh_jv m_partition(sh_jrun *run, const sh_jcall *call)
{
    return partition(run, call, false);
}

static sh_jv m_rpartition(sh_jrun *run, const sh_jcall *call)
{
    return partition(run, call, true);
}

static sh_jv m_replace(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *from = sh_jarg_str(run, call->argv[0], "replace() argument 1");
    const sh_jstr *to = sh_jarg_str(run, call->argv[1], "replace() argument 2");
    if (self_of(call)->markup) to = sh_jv_escape(run, call->argv[1]);
    return sh_jtext_replace(run, self_of(call), from, to, sh_jarg_int(run, call->argv[2], -1));
}

static sh_jv split(sh_jrun *run, const sh_jcall *call, bool from_right)
{
    const sh_jstr *sep = text_or_null(run, call->argv[0], "the separator");
    int64_t max = sh_jarg_int(run, call->argv[1], -1);
    return sh_jv_of_list(sh_jtext_split(run, self_of(call), sep, max, from_right));
}

static sh_jv m_split(sh_jrun *run, const sh_jcall *call)
{
    return split(run, call, false);
}

static sh_jv m_rsplit(sh_jrun *run, const sh_jcall *call)
{
    return split(run, call, true);
}

static sh_jv m_splitlines(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_list(sh_jtext_lines(run, self_of(call), sh_jarg_bool(call->argv[0], false)));
}

/* Zeros go between the sign and the digits. */
static sh_jv m_zfill(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *str = self_of(call);
    int64_t width = sh_jarg_int(run, call->argv[0], 0);
    if (width <= (int64_t)str->chars) return call->self;
    size_t mark = sh_jrun_mark(run);
    bool sign = str->len > 0 && (str->ptr[0] == '-' || str->ptr[0] == '+');
    sh_jrun_put(run, sh_str_sub(sh_jstr_str(str), 0, sign));
    sh_jrun_pad(run, SH_STR("0"), (size_t)width - str->chars);
    sh_jrun_put(run, sh_str_sub(sh_jstr_str(str), sign, str->len));
    return sh_jtext_take(run, mark, str);
}

static const sh_jbuiltin methods[] = {
    {"capitalize", m_capitalize, "", 0},
    {"casefold", m_casefold, "", 0},
    {"center", m_center, "width fillchar", 1},
    {"count", m_count, "sub start end", 1},
    {"endswith", m_endswith, "suffix start end", 1},
    {"expandtabs", m_expandtabs, "tabsize", 0},
    {"find", m_find, "sub start end", 1},
    {"format", m_format, "*", 0},
    {"format_map", m_format_map, "mapping", 1},
    {"index", m_index, "sub start end", 1},
    {"isalnum", m_isalnum, "", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"isidentifier", m_isidentifier, "", 0},
    {"islower", m_islower, "", 0},
    {"isnumeric", m_isnumeric, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"isspace", m_isspace, "", 0},
    {"istitle", m_istitle, "", 0},
    {"isupper", m_isupper, "", 0},
    {"join", m_join, "iterable", 1},
    {"ljust", m_ljust, "width fillchar", 1},
    {"lower", m_lower, "", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"partition", m_partition, "sep", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"replace", m_replace, "old new count", 2},
    {"rfind", m_rfind, "sub start end", 1},
    {"rindex", m_rindex, "sub start end", 1},
    {"rjust", m_rjust, "width fillchar", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"rsplit", m_rsplit, "sep maxsplit", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"startswith", m_startswith, "prefix start end", 1},
    {"strip", m_strip, "chars", 0},
    {"swapcase", m_swapcase, "", 0},
    {"title", m_title, "", 0},
    {"upper", m_upper, "", 0},
    {"zfill", m_zfill, "width", 1},
    {"encode", NULL, "", 0},
    {"maketrans", NULL, "", 0},
    {"translate", NULL, "", 0},
};

const sh_jtable sh_jstr_methods = {methods, SH_COUNT_OF(methods)};
