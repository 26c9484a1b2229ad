/* Values: text, lists, dicts, equality and hashing.
 *
 * All memory comes from the run's arena and nothing is freed before the run ends, so values share
 * text and items freely: a slice or a part of a string points into the original. A list that grows
 * leaves its old array behind in the arena; the memory limit of the run covers that.
 *
 * Everything that takes time in proportion to untrusted input charges steps: hash chains, long
 * comparisons, counting characters. A template that makes keys collide gets slow and then hits the
 * limit. */
#include "text/jinja/value.h"

#include "text/jinja/run.h"

#include <math.h>
#include <string.h>

enum { DICT_LINEAR_MAX = 8, TAIL_CAP_MIN = 64 };

const char *sh_jv_type(sh_jv v)
{
    static const char *const names[] = {
        [SH_JV_MISSING] = "missing",
        [SH_JV_UNDEFINED] = "Undefined",
        [SH_JV_NONE] = "NoneType",
        [SH_JV_BOOL] = "bool",
        [SH_JV_INT] = "int",
        [SH_JV_BIG] = "int",
        [SH_JV_FLOAT] = "float",
        [SH_JV_STR] = "str",
        [SH_JV_LIST] = "list",
        [SH_JV_TUPLE] = "tuple",
        [SH_JV_DICT] = "dict",
        [SH_JV_KEYS] = "dict_keys",
        [SH_JV_VALUES] = "dict_values",
        [SH_JV_ITEMS] = "dict_items",
        [SH_JV_RANGE] = "range",
        [SH_JV_SLICE] = "slice",
        [SH_JV_ITER] = "generator",
        [SH_JV_NAMESPACE] = "Namespace",
        [SH_JV_LOOP] = "LoopContext",
        [SH_JV_MACRO] = "Macro",
        [SH_JV_FUNC] = "function",
        [SH_JV_METHOD] = "builtin_function_or_method",
        [SH_JV_CYCLER] = "Cycler",
        [SH_JV_JOINER] = "Joiner",
    };
    if (v.kind == SH_JV_STR && v.u.str->markup) return "Markup";
    return names[v.kind];
}

bool sh_jv_truth(sh_jv v)
{
    switch (v.kind) {
    case SH_JV_MISSING:
    case SH_JV_UNDEFINED:
    case SH_JV_NONE: return false;
    case SH_JV_BOOL: return v.u.b;
    case SH_JV_INT: return v.u.i != 0;
    case SH_JV_FLOAT: return v.u.f != 0;
    case SH_JV_STR: return v.u.str->len > 0;
    case SH_JV_LIST:
    case SH_JV_TUPLE: return v.u.list->count > 0;
    case SH_JV_DICT:
    case SH_JV_KEYS:
    case SH_JV_VALUES:
    case SH_JV_ITEMS: return v.u.dict->count > 0;
    case SH_JV_RANGE: return v.u.range->count > 0;
    default: return true;
    }
}

bool sh_jv_as_int(sh_jv v, int64_t *out)
{
    if (v.kind != SH_JV_INT && v.kind != SH_JV_BOOL) return false;
    *out = v.kind == SH_JV_BOOL ? v.u.b : v.u.i;
    return true;
}

bool sh_jv_as_double(sh_jv v, double *out)
{
    int64_t i;
    if (v.kind == SH_JV_FLOAT)
        *out = v.u.f;
    else if (v.kind == SH_JV_BIG)
        return sh_str_to_double(sh_jstr_str(v.u.str), out);
    else if (sh_jv_as_int(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

size_t sh_utf8_count(sh_str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += (text.ptr[i] & 0xc0) != 0x80;
    return count;
}

/* Text. The number of characters is counted once, when a string is made; if it equals the number of
 * bytes the text is ASCII, and positions need no conversion. */

const sh_jstr *sh_jstr_borrow(sh_jrun *run, sh_str text)
{
    sh_jstr *str = sh_jrun_alloc(run, sizeof(*str));
    *str = (sh_jstr){.ptr = text.ptr, .len = text.len, .chars = sh_utf8_count(text)};
    sh_jrun_charge(run, text.len / 64);
    return str;
}

const sh_jstr *sh_jstr_new(sh_jrun *run, sh_str text)
{
    char *copy = sh_jrun_alloc(run, text.len);
    if (text.len > 0) memcpy(copy, text.ptr, text.len);
    return sh_jstr_borrow(run, (sh_str){copy, text.len});
}

sh_jv sh_jv_text(sh_jrun *run, sh_str text)
{
    return sh_jv_of_str(sh_jstr_new(run, text));
}

sh_jv sh_jv_lit(sh_jrun *run, const char *text)
{
    return sh_jv_of_str(sh_jstr_borrow(run, sh_str_of(text)));
}

/* A new buffer that starts with the text of a and has capacity to double. */
static sh_jtail *tail_make(sh_jrun *run, const sh_jstr *a, size_t more)
{
    size_t cap = (a->len + more) * 2;
    if (cap < TAIL_CAP_MIN) cap = TAIL_CAP_MIN;
    sh_jtail *tail = sh_jrun_alloc(run, sizeof(*tail) + cap);
    tail->cap = cap;
    tail->used = a->len;
    if (a->len > 0) memcpy(tail->data, a->ptr, a->len);
    return tail;
}

/* Appends in place if a is the last text in its tail, so that building a text in a loop is linear.
 * a itself stays valid: its bytes do not move and its length is its own. If something else was
 * appended to a before, or the tail is full, a is copied to a new tail. */
const sh_jstr *sh_jstr_cat(sh_jrun *run, const sh_jstr *a, const sh_jstr *b)
{
    if (a->len == 0 && !a->markup) return b;
    if (b->len == 0) return a;
    sh_jtail *tail = a->tail;
    const char *ptr = a->ptr;
    if (tail == NULL || a->ptr + a->len != tail->data + tail->used ||
        tail->cap - tail->used < b->len) {
        tail = tail_make(run, a, b->len);
        ptr = tail->data;
    }
    memcpy(tail->data + tail->used, b->ptr, b->len);
    tail->used += b->len;
    sh_jrun_charge(run, b->len / 64);
    sh_jstr *str = sh_jrun_alloc(run, sizeof(*str));
    *str = (sh_jstr){ptr, a->len + b->len, a->chars + b->chars, tail, a->markup};
    return str;
}

const sh_jstr *sh_jstr_mark(sh_jrun *run, const sh_jstr *str)
{
    if (str->markup) return str;
    sh_jstr *mark = sh_jrun_alloc(run, sizeof(*mark));
    *mark = *str;
    mark->markup = true;
    return mark;
}

/* Linear for text that is not ASCII; callers that step through a text must not use it for each
 * character. */
size_t sh_jstr_offset(const sh_jstr *str, size_t idx)
{
    if (idx >= str->chars) return str->len;
    if (str->chars == str->len) return idx;
    size_t at = 0;
    for (; idx > 0; idx--) do
            at++;
        while ((str->ptr[at] & 0xc0) == 0x80);
    return at;
}

sh_jv sh_jstr_part(sh_jrun *run, const sh_jstr *str, sh_str text)
{
    sh_jstr *part = sh_jrun_alloc(run, sizeof(*part));
    bool ascii = str->chars == str->len;
    size_t chars = ascii ? text.len : sh_utf8_count(text);
    *part = (sh_jstr){.ptr = text.ptr, .len = text.len, .chars = chars, .markup = str->markup};
    sh_jrun_charge(run, text.len / 64);
    return sh_jv_of_str(part);
}

sh_jv sh_jstr_slice(sh_jrun *run, const sh_jstr *str, size_t first, size_t count)
{
    if (first > str->chars) first = str->chars;
    if (count > str->chars - first) count = str->chars - first;
    size_t start = sh_jstr_offset(str, first), end = start;
    if (str->chars == str->len) {
        end = start + count;
    } else {
        for (; count > 0; count--) do
                end++;
            while (end < str->len && (str->ptr[end] & 0xc0) == 0x80);
    }
    sh_jrun_charge(run, end / 64);
    return sh_jstr_part(run, str, (sh_str){str->ptr + start, end - start});
}

sh_jlist *sh_jlist_new(sh_jrun *run, size_t cap)
{
    sh_jlist *list = sh_jrun_alloc(run, sizeof(*list));
    list->items = sh_jrun_array(run, cap, sizeof(sh_jv));
    list->cap = cap;
    return list;
}

void sh_jlist_add(sh_jrun *run, sh_jlist *list, sh_jv v)
{
    if (list->count == list->cap) {
        size_t cap = list->cap < 4 ? 4 : list->cap * 2;
        sh_jv *items = sh_jrun_array(run, cap, sizeof(sh_jv));
        if (list->count > 0) memcpy(items, list->items, list->count * sizeof(sh_jv));
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = v;
}

sh_jv sh_jv_pair(sh_jrun *run, sh_jv a, sh_jv b)
{
    sh_jlist *list = sh_jlist_new(run, 2);
    sh_jlist_add(run, list, a);
    sh_jlist_add(run, list, b);
    return sh_jv_of_tuple(list);
}

static bool lists_eq(sh_jrun *run, const sh_jlist *a, const sh_jlist *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!sh_jv_eq(run, a->items[i], b->items[i])) return false;
    return true;
}

/* The order of the entries does not matter. */
static bool dicts_eq(sh_jrun *run, const sh_jdict *a, const sh_jdict *b)
{
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++) {
        sh_jv *other = sh_jdict_find(run, b, a->entries[i].key);
        if (other == NULL || !sh_jv_eq(run, a->entries[i].value, *other)) return false;
    }
    return true;
}

/* Ranges are equal if they yield the same numbers, however they were written. */
static bool ranges_eq(const sh_jrange *a, const sh_jrange *b)
{
    if (a->count != b->count) return false;
    return a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step));
}

/* Numbers of different kinds can be equal, so they are compared before the kinds are. */
static bool numbers_eq(sh_jv a, sh_jv b)
{
    int64_t i, j;
    double x, y;
    if (sh_jv_as_int(a, &i) && sh_jv_as_int(b, &j)) return i == j;
    if (a.kind == SH_JV_BIG && b.kind == SH_JV_BIG)
        return sh_str_eq(sh_jstr_str(a.u.str), sh_jstr_str(b.u.str));
    return sh_jv_as_double(a, &x) && sh_jv_as_double(b, &y) && x == y;
}

static bool kind_is_number(sh_jv_kind kind)
{
    return kind == SH_JV_BOOL || kind == SH_JV_INT || kind == SH_JV_BIG || kind == SH_JV_FLOAT;
}

static bool same_kind_eq(sh_jrun *run, sh_jv a, sh_jv b)
{
    switch (a.kind) {
    case SH_JV_MISSING:
    case SH_JV_UNDEFINED:
    case SH_JV_NONE: return true;
    case SH_JV_STR:
        sh_jrun_charge(run, a.u.str->len / 64);
        return sh_str_eq(sh_jstr_str(a.u.str), sh_jstr_str(b.u.str));
    case SH_JV_LIST:
    case SH_JV_TUPLE: return a.u.list == b.u.list || lists_eq(run, a.u.list, b.u.list);
    case SH_JV_DICT:
    case SH_JV_KEYS:
    case SH_JV_ITEMS: return a.u.dict == b.u.dict || dicts_eq(run, a.u.dict, b.u.dict);
    case SH_JV_RANGE: return ranges_eq(a.u.range, b.u.range);
    case SH_JV_METHOD: return a.u.method->func == b.u.method->func;
    default: return a.u.any == b.u.any;
    }
}

bool sh_jv_eq(sh_jrun *run, sh_jv a, sh_jv b)
{
    sh_jrun_charge(run, 1);
    if (kind_is_number(a.kind)) return numbers_eq(a, b);
    if (a.kind != b.kind) return false;
    sh_jrun_enter(run);
    bool eq = same_kind_eq(run, a, b);
    sh_jrun_leave(run);
    return eq;
}

/* A tuple is hashable if all of its items are. */
bool sh_jv_hashable(sh_jrun *run, sh_jv v)
{
    if (v.kind == SH_JV_TUPLE) {
        bool all = true;
        sh_jrun_enter(run);
        for (size_t i = 0; all && i < v.u.list->count; i++)
            all = sh_jv_hashable(run, v.u.list->items[i]);
        sh_jrun_leave(run);
        return all;
    }
    return v.kind != SH_JV_LIST && v.kind != SH_JV_DICT && v.kind != SH_JV_SLICE &&
           v.kind != SH_JV_KEYS && v.kind != SH_JV_ITEMS;
}

/* The value must be hashable: sh_jv_hashable() has also bounded the depth of this recursion. */
static uint64_t hash_of(sh_jv v)
{
    int64_t i;
    double f;
    switch (v.kind) {
    case SH_JV_STR: return sh_hash64(v.u.str->ptr, v.u.str->len);
    case SH_JV_BIG:
    case SH_JV_FLOAT:
        /* 1, 1.0 and True are equal and thus the same key, so they need the same hash. */
        if (!sh_jv_as_double(v, &f)) return 0;
        if (f == floor(f) && fabs(f) < 9e18) return (uint64_t)(int64_t)f;
        return sh_hash64(&f, sizeof(f));
    case SH_JV_TUPLE: {
        uint64_t hash = v.u.list->count;
        for (size_t k = 0; k < v.u.list->count; k++)
            hash = hash * 1000003 ^ hash_of(v.u.list->items[k]);
        return hash;
    }
    default: break;
    }
    if (sh_jv_as_int(v, &i)) return (uint64_t)i;
    return v.kind;
}

/* Dicts: entries in insertion order, and from nine entries on an index of their positions. Entries
 * are never removed, so probing needs no tombstones. */

/* Integers hash to themselves, so multiply to spread runs of them. */
static uint32_t slot_first(const sh_jdict *dict, uint64_t hash)
{
    return (uint32_t)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (dict->index_cap - 1);
}

static void index_put(sh_jrun *run, sh_jdict *dict, uint32_t entry)
{
    uint32_t at = slot_first(dict, hash_of(dict->entries[entry].key));
    for (; dict->index[at] != 0; at = (at + 1) & (dict->index_cap - 1)) sh_jrun_charge(run, 1);
    dict->index[at] = entry + 1;
}

/* Sized for the capacity, not the count: at most half full, so probing always meets a free slot. */
static void index_build(sh_jrun *run, sh_jdict *dict)
{
    dict->index_cap = 4;
    while (dict->index_cap < dict->cap * 2) dict->index_cap *= 2;
    dict->index = sh_jrun_array(run, dict->index_cap, sizeof(uint32_t));
    for (uint32_t i = 0; i < dict->count; i++) index_put(run, dict, i);
}

sh_jdict *sh_jdict_new(sh_jrun *run, size_t cap)
{
    sh_jdict *dict = sh_jrun_alloc(run, sizeof(*dict));
    if (cap > UINT32_MAX / 4)
        sh_jrun_fail(run, SH_ERR_LIMIT, "a dict of %zu entries is too large", cap);
    dict->entries = sh_jrun_array(run, cap, sizeof(sh_jentry));
    dict->cap = (uint32_t)cap;
    if (cap > DICT_LINEAR_MAX) index_build(run, dict);
    return dict;
}

static void dict_grow(sh_jrun *run, sh_jdict *dict)
{
    uint32_t cap = dict->cap < 4 ? 4 : dict->cap * 2;
    if (cap > UINT32_MAX / 4)
        sh_jrun_fail(run, SH_ERR_LIMIT, "a dict of %u entries is too large", cap);
    sh_jentry *entries = sh_jrun_array(run, cap, sizeof(sh_jentry));
    if (dict->count > 0) memcpy(entries, dict->entries, dict->count * sizeof(sh_jentry));
    dict->entries = entries;
    dict->cap = cap;
    if (cap > DICT_LINEAR_MAX) index_build(run, dict);
}

sh_jv *sh_jdict_find(sh_jrun *run, const sh_jdict *dict, sh_jv key)
{
    if (key.kind == SH_JV_STR) return sh_jdict_find_str(run, dict, sh_jstr_str(key.u.str));
    if (dict->index == NULL) {
        for (uint32_t i = 0; i < dict->count; i++)
            if (sh_jv_eq(run, dict->entries[i].key, key)) return &dict->entries[i].value;
        return NULL;
    }
    uint32_t at = slot_first(dict, hash_of(key));
    for (; dict->index[at] != 0; at = (at + 1) & (dict->index_cap - 1)) {
        sh_jentry *entry = &dict->entries[dict->index[at] - 1];
        if (sh_jv_eq(run, entry->key, key)) return &entry->value;
    }
    return NULL;
}

static bool entry_is(const sh_jentry *entry, sh_str key)
{
    return entry->key.kind == SH_JV_STR && sh_str_eq(sh_jstr_str(entry->key.u.str), key);
}

/* For callers whose key is not a value; the hash must be that of hash_of(). */
sh_jv *sh_jdict_find_str(sh_jrun *run, const sh_jdict *dict, sh_str key)
{
    if (dict->index == NULL) {
        for (uint32_t i = 0; i < dict->count; i++)
            if (entry_is(&dict->entries[i], key)) return &dict->entries[i].value;
        return NULL;
    }
    sh_jrun_charge(run, key.len / 16);
    uint32_t at = slot_first(dict, sh_hash64(key.ptr, key.len));
    for (; dict->index[at] != 0; at = (at + 1) & (dict->index_cap - 1)) {
        sh_jentry *entry = &dict->entries[dict->index[at] - 1];
        if (entry_is(entry, key)) return &entry->value;
        sh_jrun_charge(run, 1);
    }
    return NULL;
}

void sh_jdict_set(sh_jrun *run, sh_jdict *dict, sh_jv key, sh_jv value)
{
    if (!sh_jv_hashable(run, key)) sh_jrun_error(run, "unhashable type: '%s'", sh_jv_type(key));
    sh_jv *old = sh_jdict_find(run, dict, key);
    if (old != NULL) {
        *old = value;
        return;
    }
    if (dict->count == dict->cap) dict_grow(run, dict);
    dict->entries[dict->count] = (sh_jentry){key, value};
    if (dict->index != NULL) index_put(run, dict, dict->count);
    dict->count++;
}

void sh_jdict_set_lit(sh_jrun *run, sh_jdict *dict, const char *key, sh_jv value)
{
    sh_jdict_set(run, dict, sh_jv_lit(run, key), value);
}

static sh_jv undef(sh_jrun *run, sh_jundef init)
{
    sh_jundef *u = sh_jrun_alloc(run, sizeof(*u));
    *u = init;
    return (sh_jv){.kind = SH_JV_UNDEFINED, .u.undef = u};
}

sh_jv sh_jv_undef_name(sh_jrun *run, const sh_jstr *name)
{
    return undef(run, (sh_jundef){.name = sh_jv_of_str(name)});
}

sh_jv sh_jv_undef_attr(sh_jrun *run, sh_jv obj, sh_jv name)
{
    return undef(run, (sh_jundef){.obj = obj, .name = name});
}

sh_jv sh_jv_undef_text(sh_jrun *run, const sh_jstr *hint)
{
    return undef(run, (sh_jundef){.hint = hint});
}

sh_jv sh_jv_undef_hint(sh_jrun *run, const char *hint)
{
    return sh_jv_undef_text(run, sh_jstr_borrow(run, sh_str_of(hint)));
}
