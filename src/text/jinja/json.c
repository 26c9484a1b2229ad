/* Python's json.dumps(), with the options that the `tojson` filter passes to it. NaN and Infinity
 * are printed as Python does, although they are not JSON. */
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

#include <math.h>

static void put_escape(sh_jrun *run, uint32_t code)
{
    switch (code) {
    case '"': SH_JRUN_PUT(run, "\\\""); return;
    case '\\': SH_JRUN_PUT(run, "\\\\"); return;
    case '\b': SH_JRUN_PUT(run, "\\b"); return;
    case '\f': SH_JRUN_PUT(run, "\\f"); return;
    case '\n': SH_JRUN_PUT(run, "\\n"); return;
    case '\r': SH_JRUN_PUT(run, "\\r"); return;
    case '\t': SH_JRUN_PUT(run, "\\t"); return;
    }
    if (code < 0x10000)
        sh_jrun_putf(run, "\\u%04x", code);
    else
        sh_jrun_putf(run, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                     0xdc00 + ((code - 0x10000) & 0x3ff));
}

static bool is_plain(unsigned char c, bool ensure_ascii)
{
    if (c == '"' || c == '\\' || c < 0x20) return false;
    return c < 0x80 || !ensure_ascii;
}

/* Runs of bytes that need no escape are copied in one piece. */
static void put_string(sh_jrun *run, sh_str text, const sh_json_style *style)
{
    SH_JRUN_PUT(run, "\"");
    for (size_t i = 0; i < text.len;) {
        size_t start = i;
        while (i < text.len && is_plain((unsigned char)text.ptr[i], style->ensure_ascii)) i++;
        if (i > start) sh_jrun_put(run, (sh_str){text.ptr + start, i - start});
        if (i == text.len) break;
        uint32_t code = 0;
        int len = sh_utf8_decode(text.ptr + i, text.len - i, &code);
        SH_ASSERT(len > 0);
        put_escape(run, code);
        i += (size_t)len;
    }
    SH_JRUN_PUT(run, "\"");
}

static void put_number(sh_jrun *run, double f)
{
    if (isnan(f))
        SH_JRUN_PUT(run, "NaN");
    else if (isinf(f))
        sh_jrun_put(run, f > 0 ? SH_STR("Infinity") : SH_STR("-Infinity"));
    else
        sh_jv_put_repr(run, sh_jv_float(f));
}

static void put_line(sh_jrun *run, const sh_json_style *style, size_t level)
{
    if (!style->pretty) return;
    SH_JRUN_PUT(run, "\n");
    sh_jrun_pad(run, style->indent, level);
}

static void put_value(sh_jrun *run, sh_jv v, const sh_json_style *style, size_t level);

static void put_list(sh_jrun *run, const sh_jlist *list, const sh_json_style *style, size_t level)
{
    SH_JRUN_PUT(run, "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) sh_jrun_put(run, style->item_sep);
        put_line(run, style, level + 1);
        put_value(run, list->items[i], style, level + 1);
    }
    if (list->count > 0) put_line(run, style, level);
    SH_JRUN_PUT(run, "]");
}

/* Python turns these kinds of keys into strings and rejects all others. */
static void put_key(sh_jrun *run, sh_jv key, const sh_json_style *style)
{
    switch (key.kind) {
    case SH_JV_STR: put_string(run, sh_jstr_str(key.u.str), style); return;
    case SH_JV_NONE:
    case SH_JV_BOOL:
    case SH_JV_INT:
    case SH_JV_BIG:
    case SH_JV_FLOAT:
        SH_JRUN_PUT(run, "\"");
        put_value(run, key, style, 0);
        SH_JRUN_PUT(run, "\"");
        return;
    default:
        sh_jrun_error(run, "keys must be str, int, float, bool or None, not %s", sh_jv_type(key));
    }
}

static void put_dict(sh_jrun *run, const sh_jdict *dict, const sh_json_style *style, size_t level)
{
    const sh_jentry *entries = dict->entries;
    if (style->sort_keys) entries = sh_jdict_sorted(run, dict);
    SH_JRUN_PUT(run, "{");
    for (uint32_t i = 0; i < dict->count; i++) {
        if (i > 0) sh_jrun_put(run, style->item_sep);
        put_line(run, style, level + 1);
        put_key(run, entries[i].key, style);
        sh_jrun_put(run, style->key_sep);
        put_value(run, entries[i].value, style, level + 1);
    }
    if (dict->count > 0) put_line(run, style, level);
    SH_JRUN_PUT(run, "}");
}

static void put_value(sh_jrun *run, sh_jv v, const sh_json_style *style, size_t level)
{
    sh_jrun_enter(run);
    switch (v.kind) {
    case SH_JV_NONE: SH_JRUN_PUT(run, "null"); break;
    case SH_JV_BOOL: sh_jrun_put(run, v.u.b ? SH_STR("true") : SH_STR("false")); break;
    case SH_JV_INT:
    case SH_JV_BIG: sh_jv_put_repr(run, v); break;
    case SH_JV_FLOAT: put_number(run, v.u.f); break;
    case SH_JV_STR: put_string(run, sh_jstr_str(v.u.str), style); break;
    case SH_JV_LIST:
    case SH_JV_TUPLE: put_list(run, v.u.list, style, level); break;
    case SH_JV_DICT: put_dict(run, v.u.dict, style, level); break;
    default: sh_jrun_error(run, "Object of type %s is not JSON serializable", sh_jv_type(v));
    }
    sh_jrun_leave(run);
}

void sh_jv_put_json(sh_jrun *run, sh_jv v, const sh_json_style *style)
{
    put_value(run, v, style, 0);
}
