/* Lookup of v.name and v[key].
 *
 * Jinja tries both ways for both syntaxes, in a different order: {{ d.items }} is the method and
 * {{ d['items'] }} the entry of a dict that has one. A lookup that fails is not an error but an
 * undefined value, so that templates can test for it.
 *
 * Methods that modify a list or a dict are refused, as in the sandbox that transformers renders in.
 * value.h relies on this: values are shared because nothing can change them. */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

#include <string.h>

static const sh_jtable *methods_of(sh_jv v)
{
    switch (v.kind) {
    case SH_JV_STR: return &sh_jstr_methods;
    case SH_JV_LIST: return &sh_jlist_methods;
    case SH_JV_TUPLE: return &sh_jtuple_methods;
    case SH_JV_DICT: return &sh_jdict_methods;
    case SH_JV_LOOP: return &sh_jloop_methods;
    case SH_JV_CYCLER: return &sh_jcycler_methods;
    case SH_JV_RANGE: return &sh_jrange_methods;
    case SH_JV_FUNC: return strcmp(v.u.func->name, "dict") == 0 ? &sh_jdict_statics : NULL;
    default: return NULL;
    }
}

/* A method that exists in Python but is not supported: undefined, with the reason as its error. */
static sh_jv refused(sh_jrun *run, sh_jv v, const sh_jbuiltin *func)
{
    size_t mark = sh_jrun_mark(run);
    if (v.kind == SH_JV_STR)
        sh_jrun_putf(run, "the method '%s' of str is not supported", func->name);
    else
        sh_jrun_putf(run, "access to attribute '%s' of '%s' object is unsafe.", func->name,
                     sh_jv_type(v));
    return sh_jv_undef_text(run, sh_jrun_take(run, mark));
}

static bool method_find(sh_jrun *run, sh_jv v, sh_str name, sh_jv *out)
{
    const sh_jtable *table = methods_of(v);
    const sh_jbuiltin *func = table == NULL ? NULL : sh_jtable_find(table, name);
    if (func == NULL) return false;
    if (func->fn == NULL) {
        *out = refused(run, v, func);
        return true;
    }
    sh_jmethod *method = sh_jrun_alloc(run, sizeof(*method));
    *method = (sh_jmethod){func, v};
    *out = (sh_jv){.kind = SH_JV_METHOD, .u.method = method};
    return true;
}

static bool macro_attr(sh_jrun *run, const sh_jmacro *macro, sh_str name, sh_jv *out)
{
    const sh_jfunc *func = macro->node->u.func;
    if (sh_str_is(name, "name")) {
        *out = sh_jv_of_str(func->name->text);
    } else if (sh_str_is(name, "arguments")) {
        sh_jlist *list = sh_jlist_new(run, func->params.count);
        for (const sh_jnode *p = func->params.head; p != NULL; p = p->next)
            sh_jlist_add(run, list, sh_jv_of_str(p->u.name.sym->text));
        *out = sh_jv_of_tuple(list);
    } else if (sh_str_is(name, "catch_kwargs")) {
        *out = sh_jv_bool(func->kwargs_slot >= 0);
    } else if (sh_str_is(name, "catch_varargs")) {
        *out = sh_jv_bool(func->varargs_slot >= 0);
    } else if (sh_str_is(name, "caller")) {
        *out = sh_jv_bool(func->caller_slot >= 0);
    } else {
        return false;
    }
    return true;
}

static bool range_attr(const sh_jrange *range, sh_str name, sh_jv *out)
{
    bool start = sh_str_is(name, "start"), stop = sh_str_is(name, "stop");
    if (!start && !stop && !sh_str_is(name, "step")) return false;
    *out = sh_jv_int(start ? range->start : stop ? range->stop : range->step);
    return true;
}

/* Attributes that are data; methods come after them. */
static bool own_attr(sh_jrun *run, sh_jv v, sh_str name, sh_jv *out)
{
    switch (v.kind) {
    case SH_JV_UNDEFINED: sh_jrun_undefined(run, v);
    case SH_JV_NAMESPACE: {
        sh_jv *found = sh_jdict_find_str(run, v.u.dict, name);
        if (found != NULL) *out = *found;
        return found != NULL;
    }
    case SH_JV_LOOP: return sh_jloop_attr(run, v.u.loop, name, out);
    case SH_JV_MACRO: return macro_attr(run, v.u.macro, name, out);
    case SH_JV_RANGE: return range_attr(v.u.range, name, out);
    case SH_JV_TUPLE:
        if (!v.u.list->group) return false;
        if (!sh_str_is(name, "grouper") && !sh_str_is(name, "list")) return false;
        *out = v.u.list->items[sh_str_is(name, "list")];
        return true;
    case SH_JV_CYCLER:
        if (!sh_str_is(name, "current")) return false;
        *out = v.u.cycler->items->items[v.u.cycler->pos];
        return true;
    default: return false;
    }
}

bool sh_jv_attr_only(sh_jrun *run, sh_jv v, sh_str name, sh_jv *out)
{
    return own_attr(run, v, name, out) || method_find(run, v, name, out);
}

/* Slices. All arithmetic is on character positions; str_span() converts to bytes. */

/* Clamps one end of a slice, as Python does: to -1..count-1 when going down, else to 0..count. */
static int64_t bound(sh_jrun *run, sh_jv v, int64_t count, bool down, int64_t fallback)
{
    int64_t at;
    if (v.kind == SH_JV_NONE) return fallback;
    if (!sh_jv_as_int(v, &at))
        sh_jrun_error(run, "slice indices must be integers or None or have an __index__ method");
    if (at < 0) at += count;
    if (at < 0) return down ? -1 : 0;
    if (at >= count) return down ? count - 1 : count;
    return at;
}

typedef struct {
    int64_t start, stop, step, count;
} span;

static span span_of(sh_jrun *run, const sh_jslice *slice, int64_t count)
{
    int64_t step = 1;
    if (slice->step.kind != SH_JV_NONE && !sh_jv_as_int(slice->step, &step))
        sh_jrun_error(run, "slice indices must be integers or None or have an __index__ method");
    if (step == 0) sh_jrun_error(run, "slice step cannot be zero");
    if (step < -INT64_MAX) step = -INT64_MAX; /* so that it can be negated */
    bool down = step < 0;
    int64_t start = bound(run, slice->start, count, down, down ? count - 1 : 0);
    int64_t stop = bound(run, slice->stop, count, down, down ? -1 : count);
    int64_t away = down ? start - stop : stop - start, each = down ? -step : step;
    return (span){start, stop, step, away <= 0 ? 0 : (away - 1) / each + 1};
}

static sh_jv str_span(sh_jrun *run, const sh_jstr *str, span s)
{
    if (s.step == 1) return sh_jstr_slice(run, str, (size_t)s.start, (size_t)s.count);
    size_t mark = sh_jrun_mark(run);
    bool ascii = str->chars == str->len;
    /* Offsets of all characters: finding each one from the start would be quadratic. */
    size_t *at = ascii ? NULL : sh_jrun_array(run, str->chars + 1, sizeof(*at));
    if (!ascii) {
        size_t n = 0;
        for (size_t i = 0; i < str->len; i++)
            if ((str->ptr[i] & 0xc0) != 0x80) at[n++] = i;
        at[n] = str->len;
    }
    for (int64_t k = 0; k < s.count; k++) {
        size_t i = (size_t)(s.start + k * s.step);
        sh_str c = ascii ? (sh_str){str->ptr + i, 1}
                         : (sh_str){str->ptr + at[i], at[i + 1] - at[i]};
        sh_jrun_put(run, c);
    }
    const sh_jstr *taken = sh_jrun_take(run, mark);
    return sh_jv_of_str(str->markup ? sh_jstr_mark(run, taken) : taken);
}

static sh_jv list_span(sh_jrun *run, sh_jv v, span s)
{
    sh_jlist *list = sh_jlist_new(run, (size_t)s.count);
    for (int64_t k = 0; k < s.count; k++)
        sh_jlist_add(run, list, v.u.list->items[s.start + k * s.step]);
    return (sh_jv){.kind = v.kind, .u.list = list};
}

static sh_jv range_span(sh_jrun *run, const sh_jrange *range, span s)
{
    sh_jrange *part = sh_jrun_alloc(run, sizeof(*part));
    int64_t start, stop, step;
    if (__builtin_mul_overflow(range->step, s.step, &step) ||
        !sh_jrange_at(range, s.start, &start) || !sh_jrange_at(range, s.stop, &stop))
        sh_jrun_fail(run, SH_ERR_LIMIT, "an integer does not fit in 64 bits");
    *part = (sh_jrange){start, stop, step, s.count};
    return (sh_jv){.kind = SH_JV_RANGE, .u.range = part};
}

/* Jinja leaves slices to Python, so slicing a value without slices is an error, not undefined. */
static sh_jv slice_item(sh_jrun *run, sh_jv v, const sh_jslice *slice)
{
    if (v.kind == SH_JV_DICT) sh_jrun_error(run, "unhashable type: 'slice'");
    if (v.kind != SH_JV_STR && v.kind != SH_JV_RANGE && !sh_jv_is_list(v))
        sh_jrun_error(run, "'%s' object is not subscriptable", sh_jv_type(v));
    span s = span_of(run, slice, sh_jv_len(v));
    if (v.kind == SH_JV_STR) return str_span(run, v.u.str, s);
    return v.kind == SH_JV_RANGE ? range_span(run, v.u.range, s) : list_span(run, v, s);
}

/* Negative indices count from the end. */
static bool index_item(sh_jrun *run, sh_jv v, int64_t at, sh_jv *out)
{
    if (v.kind != SH_JV_STR && v.kind != SH_JV_RANGE && !sh_jv_is_list(v)) return false;
    int64_t count = sh_jv_len(v);
    if (at < 0) at += count;
    if (at < 0 || at >= count) return false;
    if (v.kind == SH_JV_STR)
        *out = sh_jstr_slice(run, v.u.str, (size_t)at, 1);
    else if (v.kind == SH_JV_RANGE)
        *out = sh_jv_int(sh_jrange_item(v.u.range, at));
    else
        *out = v.u.list->items[at];
    return true;
}

/* v[key] only; false if there is no such item or v has no items at all. */
static bool item_only(sh_jrun *run, sh_jv v, sh_jv key, sh_jv *out)
{
    int64_t at;
    if (v.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, v);
    if (key.kind == SH_JV_SLICE) {
        *out = slice_item(run, v, key.u.slice);
        return true;
    }
    if (v.kind == SH_JV_DICT) {
        sh_jv *found = sh_jv_hashable(run, key) ? sh_jdict_find(run, v.u.dict, key) : NULL;
        if (found != NULL) *out = *found;
        return found != NULL;
    }
    return sh_jv_as_int(key, &at) && index_item(run, v, at, out);
}

sh_jv sh_jv_attr(sh_jrun *run, sh_jv v, const sh_jstr *name)
{
    sh_jv out, key = sh_jv_of_str(name);
    if (sh_jv_attr_only(run, v, sh_jstr_str(name), &out)) return out;
    if (item_only(run, v, key, &out)) return out;
    return sh_jv_undef_attr(run, v, key);
}

sh_jv sh_jv_item(sh_jrun *run, sh_jv v, sh_jv key)
{
    sh_jv out;
    if (item_only(run, v, key, &out)) return out;
    if (key.kind == SH_JV_STR && sh_jv_attr_only(run, v, sh_jstr_str(key.u.str), &out)) return out;
    return sh_jv_undef_attr(run, v, key);
}
