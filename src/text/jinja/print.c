/* str() and repr(). Templates print values into prompts, often a whole dict, so the text must be
 * Python's to the character: the choice of quotes, the escapes, the digits of a float.
 *
 * repr() of a double is the shortest decimal that reads back as the same double. C has no function
 * for it; digits_find() tries 15, 16 and 17 digits, which is slower than the algorithms made for
 * this and much shorter. */
#include "text/jinja/print.h"

#include "text/jinja/iter.h"
#include "text/jinja/node.h"
#include "text/jinja/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds one to the last digit of "d.ddde±xx"; false if that would carry out of the first digit. */
static bool mantissa_bump(char *text)
{
    for (char *p = strchr(text, 'e') - 1; p >= text; p--) {
        if (*p == '.') continue;
        if (*p != '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

/* The fewest digits that read back as f, as "d.ddde±xx". For normal numbers it is safe to start
 * with 15: a decimal of up to 15 digits survives the conversion to double and back, so shorter ones
 * show up as trailing zeros. Next to a power of two the nearest decimal of 16 digits may not read
 * back while its successor does, hence the second attempt. */
static void digits_find(double f, char out[32])
{
    for (int digits = fabs(f) < 2.3e-308 ? 1 : 15; digits < 17; digits++) {
        snprintf(out, 32, "%.*e", digits - 1, f);
        if (strtod(out, NULL) == f) return;
        if (digits == 16 && mantissa_bump(out) && strtod(out, NULL) == f) return;
    }
    snprintf(out, 32, "%.16e", f);
}

/* Python switches to an exponent below 1e-4 and from 1e16 on, and always prints a fraction
 * otherwise. */
void sh_double_repr(double f, char out[32])
{
    if (isnan(f) || isinf(f)) {
        snprintf(out, 32, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char sci[32], digits[20];
    digits_find(f, sci);
    char *mark = strchr(sci, 'e');
    int exp10 = atoi(mark + 1), count = 0;
    for (char *p = sci; p < mark; p++)
        if (*p >= '0' && *p <= '9') digits[count++] = *p;
    while (count > 1 && digits[count - 1] == '0') count--;
    const char *sign = sci[0] == '-' ? "-" : "";
    if (exp10 < -4 || exp10 >= 16)
        snprintf(out, 32, "%s%c%s%.*se%+03d", sign, digits[0], count > 1 ? "." : "", count - 1,
                 digits + 1, exp10);
    else if (exp10 < 0)
        snprintf(out, 32, "%s0.%.*s%.*s", sign, -exp10 - 1, "000", count, digits);
    else if (count <= exp10 + 1)
        snprintf(out, 32, "%s%.*s%.*s.0", sign, count, digits, exp10 + 1 - count,
                 "0000000000000000");
    else
        snprintf(out, 32, "%s%.*s.%.*s", sign, exp10 + 1, digits, count - exp10 - 1,
                 digits + exp10 + 1);
}

static void put_float(sh_jrun *run, double f)
{
    char text[32];
    sh_double_repr(f, text);
    sh_jrun_put(run, sh_str_of(text));
}

static void put_code_escape(sh_jrun *run, uint32_t code)
{
    switch (code) {
    case '\t': SH_JRUN_PUT(run, "\\t"); return;
    case '\n': SH_JRUN_PUT(run, "\\n"); return;
    case '\r': SH_JRUN_PUT(run, "\\r"); return;
    }
    if (code < 0x100)
        sh_jrun_putf(run, "\\x%02x", code);
    else if (code < 0x10000)
        sh_jrun_putf(run, "\\u%04x", code);
    else
        sh_jrun_putf(run, "\\U%08x", code);
}

/* Python prefers single quotes, unless the text contains single quotes and no double quotes. */
static void put_str_repr(sh_jrun *run, const sh_jstr *str)
{
    sh_str text = sh_jstr_str(str);
    bool single = memchr(text.ptr, '\'', text.len) != NULL;
    char quote = single && memchr(text.ptr, '"', text.len) == NULL ? '"' : '\'';
    if (str->markup) SH_JRUN_PUT(run, "Markup(");
    sh_jrun_put_char(run, (uint32_t)quote);
    for (size_t i = 0; i < text.len;) {
        uint32_t code = 0;
        int len = sh_utf8_decode(text.ptr + i, text.len - i, &code);
        SH_ASSERT(len > 0);
        if (code == (uint32_t)quote || code == '\\') {
            sh_jrun_put_char(run, '\\');
            sh_jrun_put_char(run, code);
        } else if (sh_uni_is_printable(code)) {
            sh_jrun_put(run, (sh_str){text.ptr + i, (size_t)len});
        } else {
            put_code_escape(run, code);
        }
        i += (size_t)len;
    }
    sh_jrun_put_char(run, (uint32_t)quote);
    if (str->markup) SH_JRUN_PUT(run, ")");
}

static void put_items(sh_jrun *run, const sh_jlist *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) SH_JRUN_PUT(run, ", ");
        sh_jv_put_repr(run, list->items[i]);
    }
}

static void put_dict(sh_jrun *run, const sh_jdict *dict)
{
    SH_JRUN_PUT(run, "{");
    for (uint32_t i = 0; i < dict->count; i++) {
        if (i > 0) SH_JRUN_PUT(run, ", ");
        sh_jv_put_repr(run, dict->entries[i].key);
        SH_JRUN_PUT(run, ": ");
        sh_jv_put_repr(run, dict->entries[i].value);
    }
    SH_JRUN_PUT(run, "}");
}

static void put_view(sh_jrun *run, sh_jv view)
{
    sh_jrun_putf(run, "%s([", sh_jv_type(view));
    for (uint32_t i = 0; i < view.u.dict->count; i++) {
        const sh_jentry *entry = &view.u.dict->entries[i];
        if (i > 0) SH_JRUN_PUT(run, ", ");
        if (view.kind == SH_JV_ITEMS) SH_JRUN_PUT(run, "(");
        if (view.kind != SH_JV_VALUES) sh_jv_put_repr(run, entry->key);
        if (view.kind == SH_JV_ITEMS) SH_JRUN_PUT(run, ", ");
        if (view.kind != SH_JV_KEYS) sh_jv_put_repr(run, entry->value);
        if (view.kind == SH_JV_ITEMS) SH_JRUN_PUT(run, ")");
    }
    SH_JRUN_PUT(run, "])");
}

static void put_range(sh_jrun *run, const sh_jrange *range)
{
    sh_jrun_putf(run, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
    if (range->step != 1) sh_jrun_putf(run, ", %lld", (long long)range->step);
    SH_JRUN_PUT(run, ")");
}

static void put_slice(sh_jrun *run, const sh_jslice *slice)
{
    SH_JRUN_PUT(run, "slice(");
    sh_jv_put_repr(run, slice->start);
    SH_JRUN_PUT(run, ", ");
    sh_jv_put_repr(run, slice->stop);
    SH_JRUN_PUT(run, ", ");
    sh_jv_put_repr(run, slice->step);
    SH_JRUN_PUT(run, ")");
}

/* Python would print an address for most of these; it is left out. */
static void put_object(sh_jrun *run, sh_jv v)
{
    switch (v.kind) {
    case SH_JV_NAMESPACE:
        SH_JRUN_PUT(run, "<Namespace ");
        put_dict(run, v.u.dict);
        SH_JRUN_PUT(run, ">");
        return;
    case SH_JV_MACRO:
        if (v.u.macro->node->type == SH_JN_CALL_BLOCK) {
            SH_JRUN_PUT(run, "<Macro anonymous>");
            return;
        }
        SH_JRUN_PUT(run, "<Macro '");
        sh_jrun_put(run, sh_jstr_str(v.u.macro->node->u.func->name->text));
        SH_JRUN_PUT(run, "'>");
        return;
    case SH_JV_LOOP:
        sh_jrun_putf(run, "<LoopContext %lld/%lld>", (long long)v.u.loop->index0 + 1,
                     (long long)sh_jloop_length(run, v.u.loop));
        return;
    default: sh_jrun_putf(run, "<%s object>", sh_jv_type(v)); return;
    }
}

static void put_repr(sh_jrun *run, sh_jv v)
{
    switch (v.kind) {
    case SH_JV_MISSING: return;
    case SH_JV_UNDEFINED: SH_JRUN_PUT(run, "Undefined"); return;
    case SH_JV_NONE: SH_JRUN_PUT(run, "None"); return;
    case SH_JV_BOOL: sh_jrun_put(run, v.u.b ? SH_STR("True") : SH_STR("False")); return;
    case SH_JV_INT: sh_jrun_putf(run, "%lld", (long long)v.u.i); return;
    case SH_JV_BIG: sh_jrun_put(run, sh_jstr_str(v.u.str)); return;
    case SH_JV_FLOAT: put_float(run, v.u.f); return;
    case SH_JV_STR: put_str_repr(run, v.u.str); return;
    case SH_JV_LIST:
        SH_JRUN_PUT(run, "[");
        put_items(run, v.u.list);
        SH_JRUN_PUT(run, "]");
        return;
    case SH_JV_TUPLE:
        SH_JRUN_PUT(run, "(");
        put_items(run, v.u.list);
        sh_jrun_put(run, v.u.list->count == 1 ? SH_STR(",)") : SH_STR(")"));
        return;
    case SH_JV_DICT: put_dict(run, v.u.dict); return;
    case SH_JV_KEYS:
    case SH_JV_VALUES:
    case SH_JV_ITEMS: put_view(run, v); return;
    case SH_JV_RANGE: put_range(run, v.u.range); return;
    case SH_JV_SLICE: put_slice(run, v.u.slice); return;
    default: put_object(run, v); return;
    }
}

void sh_jv_put_repr(sh_jrun *run, sh_jv v)
{
    sh_jrun_enter(run);
    put_repr(run, v);
    sh_jrun_leave(run);
}

/* str() differs from repr() for text and for undefined, which prints as nothing. */
void sh_jv_put(sh_jrun *run, sh_jv v)
{
    if (v.kind == SH_JV_STR)
        sh_jrun_put(run, sh_jstr_str(v.u.str));
    else if (v.kind != SH_JV_UNDEFINED)
        sh_jv_put_repr(run, v);
}

/* str() for filters: markup must not lose its flag, or it would be escaped twice. */
const sh_jstr *sh_jv_soft_str(sh_jrun *run, sh_jv v)
{
    if (v.kind == SH_JV_STR) return v.u.str;
    size_t mark = sh_jrun_mark(run);
    sh_jv_put(run, v);
    return sh_jrun_take(run, mark);
}

const sh_jstr *sh_jv_str(sh_jrun *run, sh_jv v)
{
    const sh_jstr *str = sh_jv_soft_str(run, v);
    if (!str->markup) return str;
    return sh_jstr_borrow(run, sh_jstr_str(str));
}

const sh_jstr *sh_jv_repr(sh_jrun *run, sh_jv v)
{
    size_t mark = sh_jrun_mark(run);
    sh_jv_put_repr(run, v);
    return sh_jrun_take(run, mark);
}

const sh_jstr *sh_jv_escape(sh_jrun *run, sh_jv v)
{
    const sh_jstr *str = sh_jv_soft_str(run, v);
    if (str->markup) return str;
    size_t mark = sh_jrun_mark(run);
    for (size_t i = 0; i < str->len; i++) {
        switch (str->ptr[i]) {
        case '&': SH_JRUN_PUT(run, "&amp;"); break;
        case '<': SH_JRUN_PUT(run, "&lt;"); break;
        case '>': SH_JRUN_PUT(run, "&gt;"); break;
        case '\'': SH_JRUN_PUT(run, "&#39;"); break;
        case '"': SH_JRUN_PUT(run, "&#34;"); break;
        default: sh_jrun_put(run, (sh_str){str->ptr + i, 1}); break;
        }
    }
    return sh_jstr_mark(run, sh_jrun_take(run, mark));
}
