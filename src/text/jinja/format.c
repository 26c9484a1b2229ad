/* "text %s" % args and "text {}".format(args).
 *
 * Both mini-languages are parsed into one `spec`, and the put_* functions print by it. Python's
 * rules differ from printf's in enough places (alignment of negative numbers, grouping, %s of any
 * value, widths in characters) that only the digits of floats are left to snprintf().
 *
 * Widths and precisions come from the template, so they are limited before anything is allocated:
 * DIGITS_MAX bounds the buffers on the stack, and holds the largest double with PRECISION_MAX
 * decimals (309 + 1 + 300 digits). */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 1 << 20, PRECISION_MAX = 300, DIGITS_MAX = 1024 };

/* How to print one value, for both mini-languages. */
typedef struct {
    sh_str fill;
    char align; /* < > = ^, or 0: the default of the type */
    char sign;  /* + - or space, or 0 */
    bool alt;
    char group; /* , or _ between thousands, or 0 */
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: none */
} spec;

/* head is the sign and prefix: with '=' the padding goes between it and the digits. */
static void put_aligned(sh_jrun *run, const spec *s, char align, sh_str head, sh_str body)
{
    int64_t chars = (int64_t)(head.len + sh_utf8_count(body));
    size_t pad = s->width > chars ? (size_t)(s->width - chars) : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    sh_jrun_pad(run, s->fill, left);
    sh_jrun_put(run, head);
    if (align == '=') sh_jrun_pad(run, s->fill, pad);
    sh_jrun_put(run, body);
    if (align != '=') sh_jrun_pad(run, s->fill, pad - left);
}

/* Inserts separators into the digits before the point; out must have space for twice as many. */
static size_t group_digits(const char *digits, size_t len, char group, int each, char *out)
{
    size_t whole = 0, used = 0;
    while (whole < len && isxdigit((unsigned char)digits[whole])) whole++;
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && i < whole && (whole - i) % (size_t)each == 0) out[used++] = group;
        out[used++] = digits[i];
    }
    return used;
}

static void put_number(sh_jrun *run, const spec *s, bool minus, const char *prefix,
                       const char *digits)
{
    char head[8], grouped[DIGITS_MAX * 2];
    const char *sign = minus ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    snprintf(head, sizeof(head), "%s%s", sign, prefix);
    sh_str body = sh_str_of(digits);
    if (s->group != '\0') {
        bool binary = s->type != '\0' && strchr("boxX", s->type) != NULL;
        size_t len = group_digits(digits, body.len, s->group, binary ? 4 : 3, grouped);
        body = (sh_str){grouped, len};
    }
    put_aligned(run, s, s->align == '\0' ? '>' : s->align, sh_str_of(head), body);
}

static void precision_check(sh_jrun *run, const spec *s)
{
    if (s->precision > PRECISION_MAX || s->width > WIDTH_MAX)
        sh_jrun_fail(run, SH_ERR_LIMIT,
                     "format: the limit is %d for a width and %d for a precision", WIDTH_MAX,
                     PRECISION_MAX);
}

/* Digits are produced from the end. The absolute value is unsigned, since -INT64_MIN does not fit.
 * */
static void put_int(sh_jrun *run, const spec *s, int64_t value, const char *octal_prefix)
{
    char digits[DIGITS_MAX];
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    int base = s->type == 'b' ? 2 : s->type == 'o' ? 8 : (s->type | 0x20) == 'x' ? 16 : 10;
    int at = DIGITS_MAX - 1, least = s->precision > 0 ? (int)s->precision : 1;
    digits[at] = '\0';
    for (; rest > 0 || DIGITS_MAX - 1 - at < least; rest /= (unsigned)base)
        digits[--at] = (s->type == 'X' ? "0123456789ABCDEF"
                                       : "0123456789abcdef")[rest % (unsigned)base];
    const char *prefix = "";
    if (s->alt && base == 16) prefix = s->type == 'X' ? "0X" : "0x";
    if (s->alt && base == 2) prefix = "0b";
    if (s->alt && base == 8) prefix = octal_prefix;
    put_number(run, s, value < 0, prefix, digits + at);
}

/* An integer beyond 64 bits: we have its decimal digits, but cannot convert it to another base. */
static void put_big(sh_jrun *run, const spec *s, const sh_jstr *str)
{
    char digits[DIGITS_MAX];
    bool minus = str->ptr[0] == '-';
    if (str->len >= sizeof(digits) || (s->type != '\0' && strchr("diun", s->type) == NULL))
        sh_jrun_fail(run, SH_ERR_LIMIT, "an integer does not fit in 64 bits");
    snprintf(digits, sizeof(digits), "%.*s", (int)str->len - minus, str->ptr + minus);
    put_number(run, s, minus, "", digits);
}

/* Without a type Python prints like repr(), or like 'g' with a precision, and always with a point
 * or an exponent. The sign is printed by put_number(), so digits are those of the absolute value.
 */
static void put_double(sh_jrun *run, const spec *s, double value)
{
    char digits[DIGITS_MAX];
    char type = s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type;
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    double size = fabs(s->type == '%' ? value * 100 : value);
    if (type == '\0' && s->precision < 0) {
        sh_double_repr(size, digits);
    } else {
        char c_format[8];
        snprintf(c_format, sizeof(c_format), "%%%s.*%c", s->alt ? "#" : "",
                 type == '\0' ? 'g' : type);
        if (type == '\0' && precision == 0) precision = 1;
        snprintf(digits, sizeof(digits), c_format, precision, size);
        bool plain = type == '\0' && strpbrk(digits, ".en") == NULL;
        if (plain) strncat(digits, ".0", sizeof(digits) - strlen(digits) - 1);
    }
    if (s->type == '%') strncat(digits, "%", sizeof(digits) - strlen(digits) - 1);
    put_number(run, s, signbit(value) && !isnan(value), "", digits);
}

/* The precision is the maximum number of characters. */
static void put_text(sh_jrun *run, const spec *s, const sh_jstr *str)
{
    sh_str body = sh_jstr_str(str);
    if (s->precision >= 0 && (size_t)s->precision < str->chars)
        body.len = sh_jstr_offset(str, (size_t)s->precision);
    put_aligned(run, s, s->align == '\0' ? '<' : s->align, (sh_str){0}, body);
}

/* repr() with everything beyond ASCII escaped. */
static const sh_jstr *ascii_of(sh_jrun *run, sh_jv v)
{
    const sh_jstr *str = sh_jv_repr(run, v);
    sh_str text = sh_jstr_str(str);
    size_t mark = sh_jrun_mark(run);
    for (size_t at = 0; at < text.len;) {
        uint32_t code = sh_jtext_char(text, &at);
        if (code < 0x80)
            sh_jrun_put_char(run, code);
        else
            sh_jrun_putf(run,
                         code < 0x100     ? "\\x%02x"
                         : code < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                         code);
    }
    return sh_jrun_take(run, mark);
}

/* The state of one `format % args`. */
typedef struct {
    sh_str text;
    size_t at;
    sh_jv args;
    size_t used;
    bool markup;
} percent;

/* The % operator. Arguments come from a tuple, a dict (by "(key)"), or are a single value. */

/* A value that is not a tuple is the only argument. */
static sh_jv next_arg(sh_jrun *run, percent *p)
{
    bool tuple = p->args.kind == SH_JV_TUPLE;
    size_t count = tuple ? p->args.u.list->count : 1;
    if (p->used >= count) sh_jrun_error(run, "not enough arguments for format string");
    return tuple ? p->args.u.list->items[p->used++] : (p->used++, p->args);
}

static char percent_char(sh_jrun *run, percent *p)
{
    if (p->at >= p->text.len) sh_jrun_error(run, "incomplete format");
    return p->text.ptr[p->at++];
}

/* If a "(key)" follows, sets *value to the argument of that name and returns true. */
static bool percent_key(sh_jrun *run, percent *p, sh_jv *value)
{
    if (p->at >= p->text.len || p->text.ptr[p->at] != '(') return false;
    if (p->args.kind != SH_JV_DICT) sh_jrun_error(run, "format requires a mapping");
    size_t start = ++p->at;
    for (int nest = 1; nest > 0;) {
        if (p->at >= p->text.len) sh_jrun_error(run, "incomplete format key");
        char c = p->text.ptr[p->at++];
        nest += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    sh_str key = sh_str_sub(p->text, start, p->at - 1 - start);
    sh_jv *found = sh_jdict_find_str(run, p->args.u.dict, key);
    if (found == NULL) sh_jrun_error(run, "'%.*s'", (int)key.len, key.ptr);
    *value = *found;
    return true;
}

/* A number, or `*` for the next argument; 0 if there is neither. Digits that exceed the limit
 * anyway are dropped, so the value cannot overflow. */
static int64_t percent_number(sh_jrun *run, percent *p)
{
    int64_t number = 0;
    if (p->at < p->text.len && p->text.ptr[p->at] == '*') {
        p->at++;
        sh_jv arg = next_arg(run, p);
        if (!sh_jv_as_int(arg, &number)) sh_jrun_error(run, "* wants int");
        return number;
    }
    while (p->at < p->text.len && isdigit((unsigned char)p->text.ptr[p->at])) {
        if (number < WIDTH_MAX * 2) number = number * 10 + (p->text.ptr[p->at] - '0');
        p->at++;
    }
    return number;
}

/* "-" wins over "0", and "+" over a space, whatever their order. */
static void percent_flags(percent *p, spec *s)
{
    for (; p->at < p->text.len; p->at++) {
        switch (p->text.ptr[p->at]) {
        case '-': s->align = '<'; break;
        case '+': s->sign = '+'; break;
        case ' ':
            if (s->sign == '\0') s->sign = ' ';
            break;
        case '#': s->alt = true; break;
        case '0':
            if (s->align == '\0') s->align = '=';
            break;
        default: return;
        }
    }
}

static void percent_put_number(sh_jrun *run, const spec *s, sh_jv v)
{
    int64_t i;
    double f;
    bool decimal = strchr("diu", s->type) != NULL;
    if (strchr("eEfFgG", s->type) != NULL) {
        if (v.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, v);
        if (!sh_jv_as_double(v, &f))
            sh_jrun_error(run, "must be real number, not %s", sh_jv_type(v));
        put_double(run, s, f);
        return;
    }
    if (v.kind == SH_JV_BIG) {
        put_big(run, s, v.u.str);
        return;
    }
    if (decimal && v.kind == SH_JV_FLOAT && fabs(v.u.f) < 9.2e18) v = sh_jv_int((int64_t)v.u.f);
    if (!sh_jv_as_int(v, &i))
        sh_jrun_error(run, "%%%c format: %s is required, not %s", s->type,
                      decimal ? "a real number" : "an integer", sh_jv_type(v));
    put_int(run, s, i, "0o");
}

static void percent_put_char(sh_jrun *run, const spec *s, sh_jv v)
{
    int64_t code;
    char text[4];
    if (v.kind == SH_JV_STR && v.u.str->chars == 1) {
        put_text(run, s, v.u.str);
    } else if (sh_jv_as_int(v, &code)) {
        if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            sh_jrun_error(run, "%%c arg not in range(0x110000)");
        int len = sh_utf8_encode((uint32_t)code, text);
        put_text(run, s, sh_jstr_new(run, (sh_str){text, (size_t)len}));
    } else {
        sh_jrun_error(run, "%%c requires int or char");
    }
}

/* Text and characters align to the right, as numbers do, and '0' is not a fill for them. */
static void percent_put(sh_jrun *run, const percent *p, spec *s, sh_jv v)
{
    switch (s->type) {
    case 's':
    case 'r':
    case 'a': {
        const sh_jstr *str = s->type == 's'   ? sh_jv_soft_str(run, v)
                             : s->type == 'r' ? sh_jv_repr(run, v)
                                              : ascii_of(run, v);
        if (p->markup) str = sh_jv_escape(run, sh_jv_of_str(str));
        if (s->align == '\0' || s->align == '=') s->align = '>';
        put_text(run, s, str);
        return;
    }
    case 'c':
        if (s->align != '<') s->align = '>';
        percent_put_char(run, s, v);
        return;
    default: break;
    }
    if (s->align == '=') s->fill = SH_STR("0");
    percent_put_number(run, s, v);
}

/* One "%..." field, after its percent sign. */
static void percent_field(sh_jrun *run, percent *p)
{
    spec s = {.fill = SH_STR(" "), .precision = -1};
    sh_jv value;
    bool keyed = percent_key(run, p, &value);
    percent_flags(p, &s);
    s.width = percent_number(run, p);
    if (s.width < 0) {
        s.align = '<';
        s.width = s.width < -WIDTH_MAX ? WIDTH_MAX + 1 : -s.width;
    }
    if (p->at < p->text.len && p->text.ptr[p->at] == '.') {
        p->at++;
        s.precision = percent_number(run, p);
        if (s.precision < 0) s.precision = 0;
    }
    if (p->at < p->text.len && strchr("hlL", p->text.ptr[p->at]) != NULL) p->at++;
    s.type = percent_char(run, p);
    if (s.type == '%') {
        SH_JRUN_PUT(run, "%");
        return;
    }
    precision_check(run, &s);
    if (s.type == '\0' || strchr("sradiuoxXeEfFgGc", s.type) == NULL)
        sh_jrun_error(run, "unsupported format character '%c' (0x%x) at index %zu", s.type,
                      (unsigned)s.type, sh_utf8_count(sh_str_sub(p->text, 0, p->at - 1)));
    if (!keyed) value = next_arg(run, p);
    percent_put(run, p, &s, value);
}

sh_jv sh_jstr_percent(sh_jrun *run, const sh_jstr *format, sh_jv args)
{
    percent p = {.text = sh_jstr_str(format), .args = args, .markup = format->markup};
    size_t mark = sh_jrun_mark(run);
    while (p.at < p.text.len) {
        size_t stop = sh_str_find(p.text, SH_STR("%"), p.at);
        sh_jrun_put(run, sh_str_sub(p.text, p.at, stop - p.at));
        p.at = stop + 1;
        if (stop < p.text.len) percent_field(run, &p);
    }
    /* Python does not complain about unused arguments that could be a mapping. */
    bool mapping = args.kind == SH_JV_DICT || args.kind == SH_JV_LIST ||
                   args.kind == SH_JV_UNDEFINED || args.kind == SH_JV_RANGE;
    size_t count = args.kind == SH_JV_TUPLE ? args.u.list->count : 1;
    if (!mapping && p.used < count)
        sh_jrun_error(run, "not all arguments converted during string formatting");
    return sh_jtext_take(run, mark, format);
}

/* Parses "[[fill]align][sign][#][0][width][group][.precision][type]". The fill may be any
 * character, also one that is an alignment, so the second character is checked first. */
static spec spec_parse(sh_jrun *run, sh_str text)
{
    spec s = {.fill = SH_STR(" "), .precision = -1};
    size_t at = 0, first = 0;
    if (text.len > 0) sh_jtext_char(text, &first);
    if (first < text.len && text.ptr[first] != '\0' && strchr("<>=^", text.ptr[first]) != NULL) {
        s.fill = sh_str_sub(text, 0, first);
        s.align = text.ptr[first];
        at = first + 1;
    } else if (text.len > 0 && text.ptr[0] != '\0' && strchr("<>=^", text.ptr[0]) != NULL) {
        s.align = text.ptr[at++];
    }
    if (at < text.len && strchr("+- ", text.ptr[at]) != NULL) s.sign = text.ptr[at++];
    if (at < text.len && text.ptr[at] == '#') s.alt = text.ptr[at++];
    if (at < text.len && text.ptr[at] == '0') {
        if (s.align == '\0') {
            s.fill = SH_STR("0");
            s.align = '=';
        }
        at++;
    }
    percent p = {.text = text, .at = at};
    if (at < text.len && text.ptr[at] != '*') s.width = percent_number(run, &p);
    if (p.at < text.len && strchr(",_", text.ptr[p.at]) != NULL) s.group = text.ptr[p.at++];
    if (p.at + 1 < text.len && text.ptr[p.at] == '.' &&
        isdigit((unsigned char)text.ptr[p.at + 1])) {
        p.at++;
        s.precision = percent_number(run, &p);
    }
    if (p.at < text.len) s.type = text.ptr[p.at++];
    if (p.at < text.len) sh_jrun_error(run, "Invalid format specifier");
    precision_check(run, &s);
    return s;
}

static SH_NORETURN void code_fail(sh_jrun *run, const spec *s, sh_jv v)
{
    sh_jrun_error(run, "Unknown format code '%c' for object of type '%s'", s->type, sh_jv_type(v));
}

/* An int may be printed as a float, but a float not as an int. */
static void put_formatted_number(sh_jrun *run, spec *s, sh_jv v)
{
    int64_t i;
    double f = 0;
    bool whole = sh_jv_as_int(v, &i);
    sh_jv_as_double(v, &f);
    if (v.kind == SH_JV_BIG)
        put_big(run, s, v.u.str);
    else if (whole && (s->type == '\0' || strchr("bdnoxX", s->type) != NULL)) {
        if (s->precision >= 0)
            sh_jrun_error(run, "Precision not allowed in integer format specifier");
        put_int(run, s, i, "0o");
    } else if (whole && s->type == 'c') {
        if (s->align == '\0') s->align = '<';
        percent_put_char(run, s, v);
    } else if (s->type == '\0' || strchr("eEfFgGn%", s->type) != NULL) {
        put_double(run, s, f);
    } else {
        code_fail(run, s, v);
    }
}

static void put_formatted(sh_jrun *run, sh_jv v, sh_str text)
{
    double number;
    if (text.len == 0) {
        sh_jv_put(run, v);
        return;
    }
    spec s = spec_parse(run, text);
    if (sh_jv_as_double(v, &number)) {
        put_formatted_number(run, &s, v);
    } else if (v.kind == SH_JV_STR) {
        if (s.type != '\0' && s.type != 's') code_fail(run, &s, v);
        if (s.align == '=') {
            if (s.fill.ptr[0] != '0')
                sh_jrun_error(run, "'=' alignment not allowed in string format specifier");
            s.align = '<';
        }
        put_text(run, &s, v.u.str);
    } else {
        sh_jrun_error(run, "unsupported format string passed to %s.__format__", sh_jv_type(v));
    }
}

/* The state of one text.format(args). */
typedef struct {
    const sh_jargs *args;
    size_t next;   /* number of the next {} */
    bool numbered; /* {0} was seen */
    bool markup;
} fields;

static bool all_digits(sh_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isdigit((unsigned char)text.ptr[i])) return false;
    return text.len > 0;
}

/* Fields are numbered either by the template ("{0}") or automatically ("{}"), never both. */
static sh_jv field_first(sh_jrun *run, fields *f, sh_str name)
{
    int64_t number = (int64_t)f->next;
    bool digits = all_digits(name);
    if (name.len == 0 || digits) {
        if (digits ? f->next > 0 : f->numbered)
            sh_jrun_error(run, "cannot switch between manual and automatic field numbering");
        if (digits && !sh_str_to_int(name, &number)) number = INT64_MAX;
        f->numbered |= digits;
        f->next += !digits;
        if ((uint64_t)number >= f->args->pos_count)
            sh_jrun_error(run, "Replacement index %lld out of range for positional args tuple",
                          (long long)number);
        return f->args->pos[number];
    }
    sh_jv *found = f->args->named == NULL ? NULL : sh_jdict_find_str(run, f->args->named, name);
    if (found == NULL) sh_jrun_error(run, "'%.*s'", (int)name.len, name.ptr);
    return *found;
}

/* name(.attr | [index])* */
static sh_jv field_value(sh_jrun *run, fields *f, sh_str path)
{
    size_t at = 0;
    while (at < path.len && path.ptr[at] != '.' && path.ptr[at] != '[') at++;
    sh_jv v = field_first(run, f, sh_str_sub(path, 0, at));
    while (at < path.len) {
        bool attr = path.ptr[at++] == '.';
        size_t start = at;
        while (at < path.len &&
               (attr ? path.ptr[at] != '.' && path.ptr[at] != '[' : path.ptr[at] != ']'))
            at++;
        sh_str part = sh_str_sub(path, start, at - start);
        int64_t number;
        if (part.len == 0) sh_jrun_error(run, "Empty attribute in format string");
        if (!attr && at++ >= path.len) sh_jrun_error(run, "Missing ']' in format string");
        if (attr)
            v = sh_jv_attr(run, v, sh_jstr_new(run, part));
        else if (all_digits(part) && sh_str_to_int(part, &number))
            v = sh_jv_item(run, v, sh_jv_int(number));
        else
            v = sh_jv_item(run, v, sh_jv_text(run, part));
        if (!attr && at < path.len && path.ptr[at] != '.' && path.ptr[at] != '[')
            sh_jrun_error(run, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return v;
}

static void put_fields(sh_jrun *run, fields *f, sh_str text, int depth);

static sh_jv convert(sh_jrun *run, sh_jv v, sh_str mark)
{
    if (sh_str_is(mark, "s")) return sh_jv_of_str(sh_jv_str(run, v));
    if (sh_str_is(mark, "r")) return sh_jv_of_str(sh_jv_repr(run, v));
    if (sh_str_is(mark, "a")) return sh_jv_of_str(ascii_of(run, v));
    sh_jrun_error(run, "Unknown conversion specifier '%.*s'", (int)mark.len, mark.ptr);
}

/* The text between braces: "path!conversion:spec". The spec may contain fields, whose own specs may
 * not, as in Python. */
static void put_field(sh_jrun *run, fields *f, sh_str field, int depth)
{
    size_t colon = 0, bang;
    for (int nest = 0; colon < field.len && (nest > 0 || field.ptr[colon] != ':'); colon++)
        nest += field.ptr[colon] == '[' ? 1 : field.ptr[colon] == ']' ? -1 : 0;
    sh_str head = sh_str_sub(field, 0, colon);
    bang = sh_str_find(head, SH_STR("!"), 0);
    sh_jv v = field_value(run, f, sh_str_sub(head, 0, bang));
    if (bang < head.len) v = convert(run, v, sh_str_sub(head, bang + 1, head.len));
    size_t mark = sh_jrun_mark(run);
    put_fields(run, f, sh_str_sub(field, colon + 1, field.len), depth - 1);
    const sh_jstr *spec_text = sh_jrun_take(run, mark);
    put_formatted(run, v, sh_jstr_str(spec_text));
    if (!f->markup || (v.kind == SH_JV_STR && v.u.str->markup)) return;
    const sh_jstr *plain = sh_jrun_take(run, mark);
    sh_jrun_put(run, sh_jstr_str(sh_jv_escape(run, sh_jv_of_str(plain))));
}

/* Text with {fields}; doubled braces are literal. */
static void put_fields(sh_jrun *run, fields *f, sh_str text, int depth)
{
    if (depth < 0) sh_jrun_error(run, "Max string recursion exceeded");
    for (size_t at = 0; at < text.len;) {
        char c = text.ptr[at];
        if (c != '{' && c != '}') {
            size_t start = at;
            while (at < text.len && text.ptr[at] != '{' && text.ptr[at] != '}') at++;
            sh_jrun_put(run, sh_str_sub(text, start, at - start));
            continue;
        }
        at++;
        if (at < text.len && text.ptr[at] == c) {
            sh_jrun_put_char(run, (uint32_t)c);
            at++;
            continue;
        }
        if (c == '}') sh_jrun_error(run, "Single '}' encountered in format string");
        if (at == text.len) sh_jrun_error(run, "Single '{' encountered in format string");
        size_t start = at;
        for (int nest = 1; nest > 0; at++) {
            if (at == text.len) sh_jrun_error(run, "expected '}' before end of string");
            nest += text.ptr[at] == '{' ? 1 : text.ptr[at] == '}' ? -1 : 0;
        }
        put_field(run, f, sh_str_sub(text, start, at - 1 - start), depth);
    }
}

sh_jv sh_jstr_format(sh_jrun *run, const sh_jstr *format, const sh_jargs *args)
{
    fields f = {.args = args, .markup = format->markup};
    size_t mark = sh_jrun_mark(run);
    put_fields(run, &f, sh_jstr_str(format), 2);
    return sh_jtext_take(run, mark, format);
}
