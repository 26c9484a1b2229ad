/* Methods of everything but str, and the global functions.
 *
 * Names, parameters and errors are Python's. Methods that modify their object are listed without a
 * function: they are refused by name instead of looking like a missing attribute. Only cyclers, and
 * a loop's changed(), have state; a namespace is modified by `set` alone (exec.c). */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000, TIME_FORMAT_MAX = 256, TIME_TEXT_MAX = 2048 };

static sh_jv m_count(sh_jrun *run, const sh_jcall *call)
{
    sh_jiter *iter = sh_jv_iter(run, call->self);
    int64_t count = 0;
    for (sh_jv item; sh_jiter_next(run, iter, &item);) count += sh_jv_eq(run, item, call->argv[0]);
    return sh_jv_int(count);
}

/* The index is that in the whole sequence, also if the search is limited to a part. */
static sh_jv m_index(sh_jrun *run, const sh_jcall *call)
{
    int64_t count = sh_jv_len(call->self), first = sh_jarg_int(run, call->argv[1], 0);
    int64_t last = sh_jarg_int(run, call->argv[2], count), at = 0;
    if (first < 0) first += count;
    if (last < 0) last += count;
    sh_jiter *iter = sh_jv_iter(run, call->self);
    for (sh_jv item; sh_jiter_next(run, iter, &item); at++)
        if (at >= first && at < last && sh_jv_eq(run, item, call->argv[0])) return sh_jv_int(at);
    const sh_jstr *text = sh_jv_repr(run, call->argv[0]);
    sh_jrun_error(run, "%.*s is not in %s", (int)text->len, text->ptr, sh_jv_type(call->self));
}

static sh_jv m_list_copy(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_list(sh_jv_to_list(run, call->self));
}

static void dict_update(sh_jrun *run, sh_jdict *to, const sh_jdict *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        sh_jdict_set(run, to, from->entries[i].key, from->entries[i].value);
}

static sh_jv m_dict_copy(sh_jrun *run, const sh_jcall *call)
{
    sh_jdict *dict = sh_jdict_new(run, call->self.u.dict->count);
    dict_update(run, dict, call->self.u.dict);
    return sh_jv_of_dict(dict);
}

static sh_jv m_get(sh_jrun *run, const sh_jcall *call)
{
    if (!sh_jv_hashable(run, call->argv[0]))
        sh_jrun_error(run, "unhashable type: '%s'", sh_jv_type(call->argv[0]));
    sh_jv *found = sh_jdict_find(run, call->self.u.dict, call->argv[0]);
    if (found != NULL) return *found;
    return call->argv[1].kind == SH_JV_MISSING ? SH_JV_NULL : call->argv[1];
}

static sh_jv view(const sh_jcall *call, sh_jv_kind kind)
{
    return (sh_jv){.kind = kind, .u.dict = call->self.u.dict};
}

static sh_jv m_items(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return view(call, SH_JV_ITEMS);
}

static sh_jv m_keys(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return view(call, SH_JV_KEYS);
}

static sh_jv m_values(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return view(call, SH_JV_VALUES);
}

static sh_jv m_fromkeys(sh_jrun *run, const sh_jcall *call)
{
    sh_jv value = call->argv[1].kind == SH_JV_MISSING ? SH_JV_NULL : call->argv[1];
    sh_jiter *iter = sh_jv_iter(run, call->argv[0]);
    sh_jdict *dict = sh_jdict_new(run, 0);
    for (sh_jv key; sh_jiter_next(run, iter, &key);) sh_jdict_set(run, dict, key, value);
    return sh_jv_of_dict(dict);
}

/* The item for the current turn of the loop, so nothing has to be remembered. */
static sh_jv m_cycle(sh_jrun *run, const sh_jcall *call)
{
    if (call->args->pos_count == 0) sh_jrun_error(run, "no items for cycling given");
    return call->args->pos[(size_t)call->self.u.loop->index0 % call->args->pos_count];
}

/* Compares with the arguments of the previous call in the same loop. */
static sh_jv m_changed(sh_jrun *run, const sh_jcall *call)
{
    sh_jloop *loop = call->self.u.loop;
    sh_jlist *list = sh_jlist_new(run, call->args->pos_count);
    for (size_t i = 0; i < call->args->pos_count; i++) sh_jlist_add(run, list, call->args->pos[i]);
    sh_jv now = sh_jv_of_tuple(list);
    bool changed = !sh_jv_eq(run, now, loop->changed);
    loop->changed = now;
    return sh_jv_bool(changed);
}

static sh_jv m_next(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    sh_jcycler *cycler = call->self.u.cycler;
    sh_jv item = cycler->items->items[cycler->pos];
    cycler->pos = (cycler->pos + 1) % cycler->items->count;
    return item;
}

static sh_jv m_reset(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    call->self.u.cycler->pos = 0;
    return SH_JV_NULL;
}

static sh_jlist *pos_list(sh_jrun *run, const sh_jargs *args)
{
    sh_jlist *list = sh_jlist_new(run, args->pos_count);
    for (size_t i = 0; i < args->pos_count; i++) sh_jlist_add(run, list, args->pos[i]);
    return list;
}

/* Unsigned arithmetic for the count, since stop - start may not fit in an int64_t. */
static sh_jv g_range(sh_jrun *run, const sh_jcall *call)
{
    bool single = call->argv[1].kind == SH_JV_MISSING;
    sh_jrange *range = sh_jrun_alloc(run, sizeof(*range));
    range->start = single ? 0 : sh_jarg_int(run, call->argv[0], 0);
    range->stop = sh_jarg_int(run, call->argv[single ? 0 : 1], 0);
    range->step = sh_jarg_int(run, call->argv[2], 1);
    if (range->step == 0) sh_jrun_error(run, "range() arg 3 must not be zero");
    bool up = range->step > 0;
    if (up ? range->start < range->stop : range->start > range->stop) {
        uint64_t start = (uint64_t)range->start, stop = (uint64_t)range->stop;
        uint64_t away = up ? stop - start : start - stop;
        uint64_t step = up ? (uint64_t)range->step : -(uint64_t)range->step;
        uint64_t count = (away - 1) / step + 1;
        if (count > RANGE_MAX)
            sh_jrun_error(run,
                          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          RANGE_MAX);
        range->count = (int64_t)count;
    }
    return (sh_jv){.kind = SH_JV_RANGE, .u.range = range};
}

/* One (key, value) of dict([...]). */
static void pair_set(sh_jrun *run, sh_jdict *dict, sh_jv item, size_t at)
{
    if (!sh_jv_iterable(item))
        sh_jrun_error(run, "cannot convert dictionary update sequence element #%zu to a sequence",
                      at);
    sh_jlist *pair = sh_jv_to_list(run, item);
    if (pair->count != 2)
        sh_jrun_error(run, "dictionary update sequence element #%zu has length %zu; 2 is required",
                      at, pair->count);
    sh_jdict_set(run, dict, pair->items[0], pair->items[1]);
}

/* dict(mapping), dict(pairs) and dict(a=1), also combined. */
static sh_jdict *dict_make(sh_jrun *run, const sh_jargs *args)
{
    sh_jdict *dict = sh_jdict_new(run, 0);
    if (args->pos_count > 1)
        sh_jrun_error(run, "dict expected at most 1 argument, got %zu", args->pos_count);
    if (args->pos_count == 1 && args->pos[0].kind == SH_JV_DICT) {
        dict_update(run, dict, args->pos[0].u.dict);
    } else if (args->pos_count == 1) {
        sh_jiter *iter = sh_jv_iter(run, args->pos[0]);
        size_t at = 0;
        for (sh_jv item; sh_jiter_next(run, iter, &item);) pair_set(run, dict, item, at++);
    }
    if (args->named != NULL) dict_update(run, dict, args->named);
    return dict;
}

static sh_jv g_dict(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_dict(dict_make(run, call->args));
}

static sh_jv g_namespace(sh_jrun *run, const sh_jcall *call)
{
    sh_jdict *dict = dict_make(run, call->args);
    for (uint32_t i = 0; i < dict->count; i++) {
        sh_jv key = dict->entries[i].key;
        if (key.kind == SH_JV_STR && key.u.str->len > 0 && key.u.str->ptr[0] == '_')
            sh_jrun_error(run, "namespace attributes can not start with an underscore: '%.*s'",
                          (int)key.u.str->len, key.u.str->ptr);
    }
    return (sh_jv){.kind = SH_JV_NAMESPACE, .u.dict = dict};
}

static sh_jv g_cycler(sh_jrun *run, const sh_jcall *call)
{
    if (call->args->pos_count == 0) sh_jrun_error(run, "at least one item has to be provided");
    sh_jcycler *cycler = sh_jrun_alloc(run, sizeof(*cycler));
    cycler->items = pos_list(run, call->args);
    return (sh_jv){.kind = SH_JV_CYCLER, .u.cycler = cycler};
}

static sh_jv g_joiner(sh_jrun *run, const sh_jcall *call)
{
    sh_jjoiner *joiner = sh_jrun_alloc(run, sizeof(*joiner));
    joiner->sep = call->argv[0].kind == SH_JV_MISSING ? sh_jv_lit(run, ", ") : call->argv[0];
    return (sh_jv){.kind = SH_JV_JOINER, .u.joiner = joiner};
}

static sh_jv g_lipsum(sh_jrun *run, const sh_jcall *call)
{
    (void)call;
    sh_jrun_fail(run, SH_ERR_UNSUPPORTED, "lipsum() is not supported");
}

/* The message goes to the client as it is, without a line number: it is how template authors report
 * what is wrong with a request. */
static sh_jv g_raise_exception(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *text = sh_jv_str(run, call->argv[0]);
    run->raised = true;
    sh_jrun_error(run, "%.*s", (int)(text->len < 1 << 20 ? text->len : 1 << 20), text->ptr);
}

/* Differences of Python's datetime to C: it knows %f, and prints nothing for the zone of a time
 * without one. */
static void format_adapt(sh_str format, long micros, char out[TIME_FORMAT_MAX * 6 + 1])
{
    size_t len = 0;
    for (size_t i = 0; i < format.len; i++) {
        char next = i + 1 < format.len ? format.ptr[i + 1] : '\0';
        if (format.ptr[i] != '%' || next == '\0') {
            out[len++] = format.ptr[i];
            continue;
        }
        i++;
        if (next == 'z' || next == 'Z') continue;
        if (next == 'f') {
            for (long unit = 100000; unit > 0; unit /= 10)
                out[len++] = (char)('0' + micros / unit % 10);
            continue;
        }
        out[len++] = '%';
        out[len++] = next;
    }
    out[len] = '\0';
}

static sh_jv g_strftime_now(sh_jrun *run, const sh_jcall *call)
{
    const sh_jstr *format = sh_jarg_str(run, call->argv[0], "strftime() argument 1");
    char adapted[TIME_FORMAT_MAX * 6 + 1], text[TIME_TEXT_MAX];
    if (format->len > TIME_FORMAT_MAX)
        sh_jrun_fail(run, SH_ERR_LIMIT, "strftime_now: the format is longer than %d bytes",
                     TIME_FORMAT_MAX);
    format_adapt(sh_jstr_str(format), (long)(run->now_us % 1000000), adapted);
    time_t seconds = (time_t)(run->now_us / 1000000);
    struct tm now;
    if (localtime_r(&seconds, &now) == NULL) sh_jrun_error(run, "strftime_now: no local time");
    size_t len = adapted[0] == '\0' ? 0 : strftime(text, sizeof(text), adapted, &now);
    if (len == 0 && adapted[0] != '\0')
        sh_jrun_error(run, "strftime_now: the format produces no text or too much");
    if (!sh_utf8_valid(text, len)) sh_jrun_error(run, "strftime_now: not valid UTF-8");
    return sh_jv_text(run, (sh_str){text, len});
}

static const sh_jbuiltin globals[] = {
    {"range", g_range, "start stop step", 1},
    {"dict", g_dict, "*", 0},
    {"namespace", g_namespace, "*", 0},
    {"cycler", g_cycler, "*", 0},
    {"joiner", g_joiner, "sep", 0},
    {"lipsum", g_lipsum, "*", 0},
    {"raise_exception", g_raise_exception, "message", 1},
    {"strftime_now", g_strftime_now, "format", 1},
};

/* Methods without a function would modify their object, which the sandbox does not allow. */
static const sh_jbuiltin list_methods[] = {
    {"copy", m_list_copy, "", 0},
    {"count", m_count, "value", 1},
    {"index", m_index, "value start stop", 1},
    {"append", NULL, "", 0},
    {"clear", NULL, "", 0},
    {"extend", NULL, "", 0},
    {"insert", NULL, "", 0},
    {"pop", NULL, "", 0},
    {"remove", NULL, "", 0},
    {"reverse", NULL, "", 0},
    {"sort", NULL, "", 0},
};

static const sh_jbuiltin tuple_methods[] = {
    {"count", m_count, "value", 1},
    {"index", m_index, "value start stop", 1},
};

static const sh_jbuiltin dict_methods[] = {
    {"get", m_get, "key default", 1}, {"items", m_items, "", 0},
    {"keys", m_keys, "", 0},          {"values", m_values, "", 0},
    {"copy", m_dict_copy, "", 0},     {"fromkeys", m_fromkeys, "iterable value", 1},
    {"clear", NULL, "", 0},           {"pop", NULL, "", 0},
    {"popitem", NULL, "", 0},         {"setdefault", NULL, "", 0},
    {"update", NULL, "", 0},
};

static const sh_jbuiltin dict_statics[] = {{"fromkeys", m_fromkeys, "iterable value", 1}};

static const sh_jbuiltin loop_methods[] = {
    {"cycle", m_cycle, "*", 0},
    {"changed", m_changed, "*", 0},
};

static const sh_jbuiltin cycler_methods[] = {
    {"next", m_next, "", 0},
    {"reset", m_reset, "", 0},
};

static const sh_jbuiltin range_methods[] = {
    {"count", m_count, "value", 1},
    {"index", m_index, "value start stop", 1},
};

const sh_jtable sh_jglobals = {globals, SH_COUNT_OF(globals)};
const sh_jtable sh_jlist_methods = {list_methods, SH_COUNT_OF(list_methods)};
const sh_jtable sh_jtuple_methods = {tuple_methods, SH_COUNT_OF(tuple_methods)};
const sh_jtable sh_jdict_methods = {dict_methods, SH_COUNT_OF(dict_methods)};
const sh_jtable sh_jdict_statics = {dict_statics, SH_COUNT_OF(dict_statics)};
const sh_jtable sh_jloop_methods = {loop_methods, SH_COUNT_OF(loop_methods)};
const sh_jtable sh_jcycler_methods = {cycler_methods, SH_COUNT_OF(cycler_methods)};
const sh_jtable sh_jrange_methods = {range_methods, SH_COUNT_OF(range_methods)};
