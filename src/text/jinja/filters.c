/* Filters on one value: text, numbers, defaults, JSON. Filters on sequences are in filters_seq.c.
 *
 * The reference is jinja2/filters.py, except for tojson, which transformers replaces by plain
 * json.dumps(): no HTML escapes and no sorted keys. Odd cases are kept as they are there, because a
 * template may depend on them, for example int of a text that is only a float, or round of an int.
 * Filters that we do not support are in the table without a function, so that the error can say so
 * instead of "No filter named". */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static sh_jv do_abs(sh_jrun *run, const sh_jcall *call)
{
    int64_t i;
    if (call->self.kind == SH_JV_FLOAT) return sh_jv_float(fabs(call->self.u.f));
    if (call->self.kind == SH_JV_BIG) {
        sh_str digits = sh_jstr_str(call->self.u.str);
        digits = sh_str_sub(digits, digits.ptr[0] == '-', digits.len);
        return (sh_jv){.kind = SH_JV_BIG, .u.str = sh_jstr_borrow(run, digits)};
    }
    if (!sh_jv_as_int(call->self, &i))
        sh_jrun_error(run, "bad operand type for abs(): '%s'", sh_jv_type(call->self));
    return i < 0 ? sh_jv_negate(run, sh_jv_int(i), true) : sh_jv_int(i);
}

static sh_jv do_attr(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *name = sh_jarg_str(run, call->argv[0], "attribute name");
    sh_jv out;
    if (sh_jv_attr_only(run, call->self, sh_jstr_str(name), &out)) return out;
    return sh_jv_undef_attr(run, call->self, call->argv[0]);
}

static sh_jv do_capitalize(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_capitalize(run, sh_jv_soft_str(run, call->self));
}

static sh_jv do_center(sh_jrun *run, const sh_jcall *call)
{
    int64_t width = sh_jarg_int(run, call->argv[0], 80);
    return sh_jtext_justify(run, sh_jv_soft_str(run, call->self), width, SH_STR(" "),
                            SH_JSIDE_BOTH);
}

/* With `boolean` set, everything that is false is replaced, not just undefined. */
static sh_jv do_default(sh_jrun *run, const sh_jcall *call)
{
    bool replace = call->self.kind == SH_JV_UNDEFINED ||
                   (sh_jarg_bool(call->argv[1], false) && !sh_jv_truth(call->self));
    if (!replace) return call->self;
    return call->argv[0].kind == SH_JV_MISSING ? sh_jv_lit(run, "") : call->argv[0];
}

static sh_jv do_escape(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_str(sh_jv_escape(run, call->self));
}

static sh_jv do_forceescape(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_str(sh_jv_escape(run, sh_jv_of_str(sh_jv_str(run, call->self))));
}

static sh_jv do_safe(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_str(sh_jstr_mark(run, sh_jv_soft_str(run, call->self)));
}

/* The names of units are Jinja's, and so is "1 Byte". */
static sh_jv do_filesizeformat(sh_jrun *run, const sh_jcall *call)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    bool is_binary = sh_jarg_bool(call->argv[0], false);
    double bytes = 0, base = is_binary ? 1024 : 1000, unit = base;
    if (!sh_jv_as_double(call->self, &bytes) &&
        !(call->self.kind == SH_JV_STR && sh_jstr_to_double(run, call->self.u.str, &bytes)))
        sh_jrun_error(run, "could not convert a %s to float", sh_jv_type(call->self));
    if (bytes == 1) return sh_jv_lit(run, "1 Byte");
    size_t mark = sh_jrun_mark(run), i = 0;
    if (bytes < base) {
        sh_jrun_putf(run, "%.0f Bytes", trunc(bytes));
    } else {
        for (unit *= base; i + 1 < SH_COUNT_OF(decimal) && bytes >= unit; i++) unit *= base;
        sh_jrun_putf(run, "%.1f %s", base * bytes / unit, is_binary ? binary[i] : decimal[i]);
    }
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

/* Numbers. A value that cannot be converted gives the default, except for undefined, which is an
 * error. */

static sh_jv do_float(sh_jrun *run, const sh_jcall *call)
{
    double value;
    sh_jv v = call->self;
    if (v.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, v);
    if (sh_jv_as_double(v, &value)) return sh_jv_float(value);
    if (v.kind == SH_JV_STR && sh_jstr_to_double(run, v.u.str, &value)) return sh_jv_float(value);
    return call->argv[0].kind == SH_JV_MISSING ? sh_jv_float(0) : call->argv[0];
}

static sh_jv float_to_int(sh_jrun *run, double value)
{
    if (isinf(value)) sh_jrun_error(run, "cannot convert float infinity to integer");
    if (fabs(value) >= 9223372036854775808.0)
        sh_jrun_fail(run, SH_ERR_LIMIT, "an integer does not fit in 64 bits");
    return sh_jv_int((int64_t)value);
}

/* Like Jinja: int(text, base), and if that fails int(float(text)). */
static sh_jv str_to_int(sh_jrun *run, const sh_jstr *str, int base, sh_jv fallback)
{
    int64_t value;
    double number;
    bool too_big;
    if (sh_jstr_to_int(str, base, &value, &too_big)) {
        if (too_big) sh_jrun_fail(run, SH_ERR_LIMIT, "an integer does not fit in 64 bits");
        return sh_jv_int(value);
    }
    if (!sh_jstr_to_double(run, str, &number) || !isfinite(number)) return fallback;
    return float_to_int(run, number);
}

/* An invalid base makes int() fail; base 1, which has no digits but 0, has that effect here. */
static sh_jv do_int(sh_jrun *run, const sh_jcall *call)
{
    int64_t value, base = sh_jarg_int(run, call->argv[1], 10);
    sh_jv v = call->self, fallback = call->argv[0];
    if (fallback.kind == SH_JV_MISSING) fallback = sh_jv_int(0);
    if (v.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, v);
    if (sh_jv_as_int(v, &value)) return sh_jv_int(value);
    if (v.kind == SH_JV_BIG) return v;
    if (v.kind == SH_JV_FLOAT) return isnan(v.u.f) ? fallback : float_to_int(run, v.u.f);
    if (v.kind != SH_JV_STR) return fallback;
    bool valid = base == 0 || (base >= 2 && base <= 36);
    return str_to_int(run, v.u.str, valid ? (int)base : 1, fallback);
}

/* The filter is the % operator, not str.format(). */
static sh_jv do_format(sh_jrun *run, const sh_jcall *call)
{
    const sh_jargs *args = call->args;
    if (args->pos_count > 0 && args->named != NULL)
        sh_jrun_error(run, "can't handle positional and keyword arguments at the same time");
    sh_jlist *list = sh_jlist_new(run, args->pos_count);
    for (size_t i = 0; i < args->pos_count; i++) sh_jlist_add(run, list, args->pos[i]);
    sh_jv values = args->named != NULL ? sh_jv_of_dict(args->named) : sh_jv_of_tuple(list);
    return sh_jstr_percent(run, sh_jv_soft_str(run, call->self), values);
}

static void put_indented(sh_jrun *run, const sh_jlist *lines, sh_str indent, bool first, bool blank)
{
    if (first) sh_jrun_put(run, indent);
    for (size_t i = 0; i < lines->count; i++) {
        const sh_jstr *line = lines->items[i].u.str;
        if (i > 0) {
            SH_JRUN_PUT(run, "\n");
            if (blank || line->len > 0) sh_jrun_put(run, indent);
        }
        sh_jrun_put(run, sh_jstr_str(line));
    }
}

/* Jinja adds a newline to the text before it splits it into lines; for anything but text that
 * addition is what fails, with Python's error for it. */
static sh_jv do_indent(sh_jrun *run, const sh_jcall *call)
{
    sh_jv newline = sh_jv_lit(run, "\n"), width = call->argv[0];
    if (call->self.kind != SH_JV_STR) sh_jv_binary(run, SH_JOP_ADD, call->self, newline);
    const sh_jstr *str = sh_jarg_str(run, call->self, "the text to indent");
    const sh_jstr *whole = sh_jstr_cat(run, str, newline.u.str);
    size_t mark = sh_jrun_mark(run);
    if (width.kind != SH_JV_STR) {
        int64_t count = sh_jarg_int(run, width, 4);
        sh_jrun_pad(run, SH_STR(" "), count < 0 ? 0 : (size_t)count);
        width = sh_jv_of_str(sh_jrun_take(run, mark));
    }
    put_indented(run, sh_jtext_lines(run, whole, false), sh_jstr_str(width.u.str),
                 sh_jarg_bool(call->argv[1], false), sh_jarg_bool(call->argv[2], false));
    return sh_jtext_take(run, mark, str);
}

static sh_jv do_lower(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_case(run, sh_jv_soft_str(run, call->self), SH_UNI_LOWER);
}

static sh_jv do_upper(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_case(run, sh_jv_soft_str(run, call->self), SH_UNI_UPPER);
}

static sh_jv do_replace(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *from = sh_jv_str(run, call->argv[0]), *to = sh_jv_str(run, call->argv[1]);
    sh_jv count = call->argv[2].kind == SH_JV_NONE ? SH_JV_NOTHING : call->argv[2];
    return sh_jtext_replace(run, sh_jv_str(run, call->self), from, to, sh_jarg_int(run, count, -1));
}

/* round(value, digits) rounds the exact decimal value of the double, as printf does; multiplying by
 * a power of ten first would round 2.675 up, which is slightly less than that. */
static double round_common(double value, int64_t digits)
{
    char text[700];
    if (!isfinite(value) || digits > 300) return value;
    if (digits < -300) return copysign(0, value);
    if (digits >= 0) {
        snprintf(text, sizeof(text), "%.*f", (int)digits, value);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-digits);
    return rint(value / unit) * unit;
}

/* Half to even, on integers, for negative digits. */
static int64_t round_int(sh_jrun *run, int64_t value, int64_t digits)
{
    if (digits >= 0) return value;
    if (digits < -18) return 0;
    int64_t unit = 1;
    for (int64_t i = digits; i < 0; i++) unit *= 10;
    int64_t rest = value % unit, down = value - rest;
    if (rest < 0) rest = -rest;
    bool up = rest > unit / 2 || (rest == unit / 2 && down / unit % 2 != 0);
    if (!up) return down;
    sh_jv out = sh_jv_binary(run, SH_JOP_ADD, sh_jv_int(down), sh_jv_int(value < 0 ? -unit : unit));
    return out.u.i;
}

static sh_jv do_round(sh_jrun *run, const sh_jcall *call)
{
    sh_jv v = call->self;
    int64_t digits = sh_jarg_int(run, call->argv[0], 0), i;
    sh_str method = SH_STR("common");
    if (call->argv[1].kind != SH_JV_MISSING)
        method = sh_jstr_str(sh_jarg_str(run, call->argv[1], "method"));
    double value;
    bool ceil_it = sh_str_is(method, "ceil"), floor_it = sh_str_is(method, "floor");
    if (!ceil_it && !floor_it && !sh_str_is(method, "common"))
        sh_jrun_error(run, "method must be common, ceil or floor");
    if (!sh_jv_as_double(v, &value))
        sh_jrun_error(run, "type %s doesn't define __round__ method", sh_jv_type(v));
    if (ceil_it || floor_it) {
        double unit = pow(10, (double)digits);
        return sh_jv_float((ceil_it ? ceil(value * unit) : floor(value * unit)) / unit);
    }
    if (v.kind == SH_JV_BIG && digits >= 0) return v;
    if (sh_jv_as_int(v, &i)) return sh_jv_int(round_int(run, i, digits));
    return sh_jv_float(round_common(value, digits));
}

static sh_jv do_string(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_str(sh_jv_soft_str(run, call->self));
}

static sh_jv do_title(sh_jrun *run, const sh_jcall *call)
{
    return sh_jtext_title_words(run, sh_jv_soft_str(run, call->self));
}

static void json_style_indent(sh_jrun *run, sh_jv indent, sh_json_style *style)
{
    int64_t count;
    style->pretty = sh_jarg_given(indent);
    if (!style->pretty) return;
    style->item_sep = SH_STR(",");
    if (indent.kind == SH_JV_STR) {
        style->indent = sh_jstr_str(indent.u.str);
        return;
    }
    if (!sh_jv_as_int(indent, &count))
        sh_jrun_error(run, "can't multiply sequence by non-int of type '%s'", sh_jv_type(indent));
    size_t mark = sh_jrun_mark(run);
    sh_jrun_pad(run, SH_STR(" "), count < 0 ? 0 : (size_t)count);
    style->indent = sh_jstr_str(sh_jrun_take(run, mark));
}

static sh_jv do_tojson(sh_jrun *run, const sh_jcall *call)
{
    sh_json_style style = {.item_sep = SH_STR(", "), .key_sep = SH_STR(": ")};
    style.ensure_ascii = sh_jarg_bool(call->argv[0], false);
    json_style_indent(run, call->argv[1], &style);
    if (sh_jarg_given(call->argv[2])) {
        sh_jlist *pair = sh_jv_to_list(run, call->argv[2]);
        if (pair->count != 2)
            sh_jrun_error(run, "separators must be two strings, not %zu values", pair->count);
        style.item_sep = sh_jstr_str(sh_jarg_str(run, pair->items[0], "a separator"));
        style.key_sep = sh_jstr_str(sh_jarg_str(run, pair->items[1], "a separator"));
    }
    style.sort_keys = sh_jarg_bool(call->argv[3], false);
    size_t mark = sh_jrun_mark(run);
    sh_jv_put_json(run, call->self, &style);
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

static sh_jv do_trim(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *chars = NULL;
    if (sh_jarg_given(call->argv[0])) chars = sh_jarg_str(run, call->argv[0], "strip arg");
    return sh_jtext_strip(run, sh_jv_soft_str(run, call->self), chars, SH_JSIDE_BOTH);
}

/* Text that exceeds the length by no more than the leeway is left alone; otherwise it is cut, at a
 * word unless killwords is set. */
static sh_jv do_truncate(sh_jrun *run, const sh_jcall *call)
{
    int64_t count = sh_jv_len(call->self);
    int64_t length = sh_jarg_int(run, call->argv[0], 255);
    sh_jv end = call->argv[2].kind == SH_JV_MISSING ? sh_jv_lit(run, "...") : call->argv[2];
    int64_t end_len = (int64_t)sh_jarg_str(run, end, "end")->chars;
    int64_t leeway = sh_jarg_given(call->argv[3]) ? sh_jarg_int(run, call->argv[3], 0) : 5;
    if (length < end_len)
        sh_jrun_error(run, "expected length >= %lld, got %lld", (long long)end_len,
                      (long long)length);
    if (leeway < 0) sh_jrun_error(run, "expected leeway >= 0, got %lld", (long long)leeway);
    if (count < 0) sh_jrun_error(run, "object of type '%s' has no len()", sh_jv_type(call->self));
    if (count - leeway <= length) return call->self;
    const sh_jstr *str = sh_jarg_str(run, call->self, "the text to truncate");
    sh_jv cut = sh_jstr_slice(run, str, 0, (size_t)(length - end_len));
    if (!sh_jarg_bool(call->argv[1], false))
        cut = sh_jtext_split(run, cut.u.str, sh_jv_lit(run, " ").u.str, 1, true)->items[0];
    return sh_jv_binary(run, SH_JOP_ADD, cut, end);
}

static void put_quoted(sh_jrun *run, sh_jv v, bool query)
{
    const sh_jstr *str = sh_jv_soft_str(run, v);
    for (size_t i = 0; i < str->len; i++) {
        unsigned char c = (unsigned char)str->ptr[i];
        if (isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query))
            sh_jrun_put_char(run, c);
        else if (c == ' ' && query)
            SH_JRUN_PUT(run, "+");
        else
            sh_jrun_putf(run, "%%%02X", c);
    }
}

/* A text is quoted as a path, pairs of keys and values as a query string. */
static sh_jv do_urlencode(sh_jrun *run, const sh_jcall *call)
{
    sh_jv v = call->self;
    size_t mark = sh_jrun_mark(run);
    if (v.kind == SH_JV_STR || !sh_jv_iterable(v)) {
        put_quoted(run, v, false);
        return sh_jv_of_str(sh_jrun_take(run, mark));
    }
    if (v.kind == SH_JV_DICT) v.kind = SH_JV_ITEMS;
    sh_jlist *items = sh_jv_to_list(run, v);
    for (size_t i = 0; i < items->count; i++) {
        sh_jlist *pair = sh_jv_to_list(run, items->items[i]);
        if (pair->count != 2)
            sh_jrun_error(run, "%s values to unpack (expected 2)",
                          pair->count < 2 ? "not enough" : "too many");
        if (i > 0) SH_JRUN_PUT(run, "&");
        put_quoted(run, pair->items[0], true);
        SH_JRUN_PUT(run, "=");
        put_quoted(run, pair->items[1], true);
    }
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

/* Counts matches of \w+. */
static sh_jv do_wordcount(sh_jrun *run, const sh_jcall *call)
{
    sh_str text = sh_jstr_str(sh_jv_soft_str(run, call->self));
    int64_t count = 0;
    bool inside = false;
    sh_jrun_charge(run, text.len / 16);
    for (size_t at = 0; at < text.len;) {
        bool word = sh_uni_is_word(sh_jtext_char(text, &at));
        count += word && !inside;
        inside = word;
    }
    return sh_jv_int(count);
}

/* A name with one of these could break out of the attribute. */
static void attr_name_check(sh_jrun *run, sh_jv key)
{
    sh_str name = sh_jstr_str(sh_jarg_str(run, key, "an attribute name"));
    for (size_t i = 0; i < name.len; i++)
        if (isspace((unsigned char)name.ptr[i]) || name.ptr[i] == '/' || name.ptr[i] == '>' ||
            name.ptr[i] == '=')
            sh_jrun_error(run, "Invalid character in attribute name: '%.*s'", (int)name.len,
                          name.ptr);
}

/* The leading space can be turned off with autospace; entries that are none or undefined are
 * skipped. */
static sh_jv do_xmlattr(sh_jrun *run, const sh_jcall *call)
{
    if (call->self.kind != SH_JV_DICT)
        sh_jrun_error(run, "'%s' object has no attribute 'items'", sh_jv_type(call->self));
    const sh_jdict *dict = call->self.u.dict;
    size_t mark = sh_jrun_mark(run), start = mark;
    for (uint32_t i = 0; i < dict->count; i++) {
        sh_jv value = dict->entries[i].value;
        if (value.kind == SH_JV_NONE || value.kind == SH_JV_UNDEFINED) continue;
        attr_name_check(run, dict->entries[i].key);
        if (sh_jrun_mark(run) > start || sh_jarg_bool(call->argv[0], true)) SH_JRUN_PUT(run, " ");
        sh_jrun_put(run, sh_jstr_str(sh_jv_escape(run, dict->entries[i].key)));
        SH_JRUN_PUT(run, "=\"");
        sh_jrun_put(run, sh_jstr_str(sh_jv_escape(run, value)));
        SH_JRUN_PUT(run, "\"");
    }
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

static const sh_jbuiltin filters[] = {
    {"abs", do_abs, "", 0},
    {"attr", do_attr, "name", 1},
    {"capitalize", do_capitalize, "", 0},
    {"center", do_center, "width", 0},
    {"d", do_default, "default_value boolean", 0},
    {"default", do_default, "default_value boolean", 0},
    {"e", do_escape, "", 0},
    {"escape", do_escape, "", 0},
    {"filesizeformat", do_filesizeformat, "binary", 0},
    {"float", do_float, "default", 0},
    {"forceescape", do_forceescape, "", 0},
    {"format", do_format, "*", 0},
    {"indent", do_indent, "width first blank", 0},
    {"int", do_int, "default base", 0},
    {"lower", do_lower, "", 0},
    {"replace", do_replace, "old new count", 2},
    {"round", do_round, "precision method", 0},
    {"safe", do_safe, "", 0},
    {"string", do_string, "", 0},
    {"title", do_title, "", 0},
    {"tojson", do_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", do_trim, "chars", 0},
    {"truncate", do_truncate, "length killwords end leeway", 0},
    {"upper", do_upper, "", 0},
    {"urlencode", do_urlencode, "", 0},
    {"wordcount", do_wordcount, "", 0},
    {"xmlattr", do_xmlattr, "autospace", 0},
    {"pprint", NULL, "", 0},
    {"random", NULL, "", 0},
    {"striptags", NULL, "", 0},
    {"urlize", NULL, "", 0},
    {"wordwrap", NULL, "", 0},
};

const sh_jtable sh_jfilters = {filters, SH_COUNT_OF(filters)};
