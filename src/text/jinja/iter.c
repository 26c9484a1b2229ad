/* Iterators over every kind of value, and the `loop` object.
 *
 * An iterator holds its position, never a copy of the items: values are immutable, and those that
 * are not (a namespace) cannot be iterated. A generator is an iterator whose `next` computes items
 * from an inner one.
 *
 * The loop object reads ahead by at most one item (loop.last, loop.nextitem) and reads everything
 * only for loop.length of a generator. Reading ahead has side effects if the generator has, just as
 * in Jinja, so it must happen exactly when the template asks and not earlier. */
#include "text/jinja/iter.h"

#include "text/jinja/ops.h"

static bool next_list(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    (void)run;
    const sh_jlist *list = iter->source.u.list;
    if (iter->idx >= list->count) return false;
    *out = list->items[iter->idx++];
    return true;
}

static bool next_char(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jstr *str = iter->source.u.str;
    if (iter->pos >= str->len) return false;
    uint32_t code = 0;
    int len = sh_utf8_decode(str->ptr + iter->pos, str->len - iter->pos, &code);
    SH_ASSERT(len > 0);
    *out = sh_jv_text(run, (sh_str){str->ptr + iter->pos, (size_t)len});
    iter->pos += (size_t)len;
    return true;
}

static sh_jv entry_of(sh_jrun *run, sh_jv_kind kind, const sh_jentry *entry)
{
    if (kind == SH_JV_VALUES) return entry->value;
    return kind == SH_JV_ITEMS ? sh_jv_pair(run, entry->key, entry->value) : entry->key;
}

static bool next_entry(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jdict *dict = iter->source.u.dict;
    if (iter->idx >= dict->count) return false;
    *out = entry_of(run, iter->source.kind, &dict->entries[iter->idx++]);
    return true;
}

static bool next_range(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    (void)run;
    const sh_jrange *range = iter->source.u.range;
    if ((int64_t)iter->idx >= range->count) return false;
    *out = sh_jv_int(sh_jrange_item(range, (int64_t)iter->idx++));
    return true;
}

/* Undefined is iterable and empty. */
static bool next_none(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    (void)run;
    (void)iter;
    (void)out;
    return false;
}

static sh_jiter_fn next_of(sh_jv v)
{
    switch (v.kind) {
    case SH_JV_UNDEFINED: return next_none;
    case SH_JV_STR: return next_char;
    case SH_JV_LIST:
    case SH_JV_TUPLE: return next_list;
    case SH_JV_DICT:
    case SH_JV_KEYS:
    case SH_JV_VALUES:
    case SH_JV_ITEMS: return next_entry;
    case SH_JV_RANGE: return next_range;
    default: return NULL;
    }
}

bool sh_jv_iterable(sh_jv v)
{
    return v.kind == SH_JV_ITER || next_of(v) != NULL;
}

sh_jiter *sh_jv_iter(sh_jrun *run, sh_jv v)
{
    if (v.kind == SH_JV_ITER) return v.u.iter;
    sh_jiter_fn next = next_of(v);
    if (next == NULL) sh_jrun_error(run, "'%s' object is not iterable", sh_jv_type(v));
    sh_jiter *iter = sh_jrun_alloc(run, sizeof(*iter));
    *iter = (sh_jiter){.next = next, .source = v};
    return iter;
}

/* Counts as a nesting level, since generators can be stacked: x|map(...)|map(...)... */
bool sh_jiter_next(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    sh_jrun_enter(run);
    bool more = iter->next(run, iter, out);
    sh_jrun_leave(run);
    return more;
}

sh_jv sh_jv_generator(sh_jrun *run, sh_jv v, sh_jiter_fn next, const void *state)
{
    sh_jiter *iter = sh_jrun_alloc(run, sizeof(*iter));
    *iter = (sh_jiter){.next = next, .source = v, .state = state};
    return (sh_jv){.kind = SH_JV_ITER, .u.iter = iter};
}

sh_jlist *sh_jv_to_list(sh_jrun *run, sh_jv v)
{
    int64_t count = sh_jv_len(v);
    sh_jiter *iter = sh_jv_iter(run, v);
    sh_jlist *list = sh_jlist_new(run, count < 0 ? 0 : (size_t)count);
    sh_jv item;
    while (sh_jiter_next(run, iter, &item)) sh_jlist_add(run, list, item);
    return list;
}

int64_t sh_jv_len(sh_jv v)
{
    switch (v.kind) {
    case SH_JV_UNDEFINED: return 0;
    case SH_JV_STR: return (int64_t)v.u.str->chars;
    case SH_JV_LIST:
    case SH_JV_TUPLE: return (int64_t)v.u.list->count;
    case SH_JV_DICT:
    case SH_JV_KEYS:
    case SH_JV_VALUES:
    case SH_JV_ITEMS: return v.u.dict->count;
    case SH_JV_RANGE: return v.u.range->count;
    default: return -1;
    }
}

/* Reverse iteration, for values whose length is known. */

static bool next_back(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    if (iter->idx == 0) return false;
    size_t at = --iter->idx;
    sh_jv v = iter->source;
    if (sh_jv_is_list(v))
        *out = v.u.list->items[at];
    else if (v.kind == SH_JV_RANGE)
        *out = sh_jv_int(sh_jrange_item(v.u.range, (int64_t)at));
    else
        *out = entry_of(run, v.kind, &v.u.dict->entries[at]);
    return true;
}

static bool next_char_back(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jstr *str = iter->source.u.str;
    size_t end = iter->pos;
    if (end == 0) return false;
    do iter->pos--;
    while ((str->ptr[iter->pos] & 0xc0) == 0x80);
    *out = sh_jstr_part(run, str, (sh_str){str->ptr + iter->pos, end - iter->pos});
    return true;
}

bool sh_jv_reversed(sh_jrun *run, sh_jv v, sh_jv *out)
{
    int64_t count = sh_jv_len(v);
    if (count < 0) return false;
    *out = sh_jv_generator(run, v, v.kind == SH_JV_STR ? next_char_back : next_back, NULL);
    out->u.iter->idx = (size_t)count;
    if (v.kind == SH_JV_STR) out->u.iter->pos = v.u.str->len;
    return true;
}

/* The item that loop.last or loop.nextitem has read ahead comes first. */
bool sh_jloop_next(sh_jrun *run, sh_jloop *loop, sh_jv *out)
{
    sh_jv item = loop->after;
    loop->after = SH_JV_NOTHING;
    if (item.kind == SH_JV_MISSING && !sh_jiter_next(run, loop->iter, &item)) return false;
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    *out = item;
    return true;
}

int64_t sh_jloop_length(sh_jrun *run, sh_jloop *loop)
{
    if (loop->length < 0) loop->length = sh_jv_len(loop->source);
    if (loop->length < 0) {
        /* A generator: its remaining items have to be taken to count them. */
        sh_jv rest = {.kind = SH_JV_ITER, .u.iter = loop->iter};
        sh_jlist *list = sh_jv_to_list(run, rest);
        loop->iter = sh_jv_iter(run, sh_jv_of_list(list));
        loop->length = (int64_t)list->count + loop->index0 + 1 +
                       (loop->after.kind != SH_JV_MISSING);
    }
    return loop->length;
}

/* Reads one item ahead, if that has not happened yet. */
static bool peek_next(sh_jrun *run, sh_jloop *loop)
{
    sh_jv item;
    if (loop->after.kind == SH_JV_MISSING && sh_jiter_next(run, loop->iter, &item))
        loop->after = item;
    return loop->after.kind != SH_JV_MISSING;
}

bool sh_jloop_attr(sh_jrun *run, sh_jloop *loop, sh_str name, sh_jv *out)
{
    static const char *const names[] = {"index",  "index0",   "first",     "last",
                                        "length", "revindex", "revindex0", "depth",
                                        "depth0", "previtem", "nextitem"};
    size_t which = 0;
    while (which < SH_COUNT_OF(names) && !sh_str_is(name, names[which])) which++;
    switch (which) {
    case 0: *out = sh_jv_int(loop->index0 + 1); break;
    case 1: *out = sh_jv_int(loop->index0); break;
    case 2: *out = sh_jv_bool(loop->index0 == 0); break;
    case 3: *out = sh_jv_bool(!peek_next(run, loop)); break;
    case 4: *out = sh_jv_int(sh_jloop_length(run, loop)); break;
    case 5: *out = sh_jv_int(sh_jloop_length(run, loop) - loop->index0); break;
    case 6: *out = sh_jv_int(sh_jloop_length(run, loop) - loop->index0 - 1); break;
    case 7: *out = sh_jv_int(loop->depth0 + 1); break;
    case 8: *out = sh_jv_int(loop->depth0); break;
    case 9:
        *out = loop->index0 == 0 ? sh_jv_undef_hint(run, "there is no previous item")
                                 : loop->before;
        break;
    case 10:
        *out = peek_next(run, loop) ? loop->after : sh_jv_undef_hint(run, "there is no next item");
        break;
    default: return false;
    }
    return true;
}
