/* Filters on sequences. Those that are generators in Jinja are lazy here too, which is visible to a
 * template: an error in an item that is never taken does not happen, and a second loop over the
 * same result finds nothing.
 *
 * A lazy filter starts with the call's arguments as its state. Where Jinja evaluates the arguments
 * when the first item is taken (map, select, unique), next_*() replaces that state by a prepared
 * one at that moment; iter->inner is NULL until then. */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

#include <string.h>

/* Looks up an attribute path such as "function.name" or 0; case_fold lowers text for comparisons.
 */
typedef struct {
    const sh_jlist *parts;
    sh_jv fallback; /* replaces an undefined value at any step; MISSING: none */
    bool case_fold;
} getter;

/* Jinja splits an attribute at dots, and takes parts that are numbers as indices. */
static const sh_jlist *path_parts(sh_jrun *run, sh_jv attribute)
{
    sh_jlist *parts = sh_jlist_new(run, 1);
    if (!sh_jarg_given(attribute)) return parts;
    if (attribute.kind != SH_JV_STR) {
        sh_jlist_add(run, parts, attribute);
        return parts;
    }
    sh_jlist *words = sh_jtext_split(run, attribute.u.str, sh_jv_lit(run, ".").u.str, -1, false);
    for (size_t i = 0; i < words->count; i++) {
        sh_str word = sh_jstr_str(words->items[i].u.str);
        int64_t number;
        bool is_number = word.len > 0 && word.ptr[0] >= '0' && word.ptr[0] <= '9' &&
                         sh_str_to_int(word, &number);
        sh_jlist_add(run, parts, is_number ? sh_jv_int(number) : words->items[i]);
    }
    return parts;
}

static sh_jv get(sh_jrun *run, const getter *g, sh_jv v)
{
    for (size_t i = 0; i < g->parts->count; i++) {
        v = sh_jv_item(run, v, g->parts->items[i]);
        if (v.kind == SH_JV_UNDEFINED && sh_jarg_given(g->fallback)) v = g->fallback;
    }
    if (g->case_fold && v.kind == SH_JV_STR) return sh_jtext_case(run, v.u.str, SH_UNI_LOWER);
    return v;
}

static getter getter_make(sh_jrun *run, sh_jv attribute, sh_jv case_sensitive)
{
    return (getter){.parts = path_parts(run, attribute),
                    .case_fold = !sh_jarg_bool(case_sensitive, false)};
}

static sh_jiter *inner_of(sh_jrun *run, sh_jiter *iter)
{
    if (iter->inner == NULL) iter->inner = sh_jv_iter(run, iter->source);
    return iter->inner;
}

/* A negative size is never reached, so everything is one batch, as in Jinja. */
static bool next_batch(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jcall *call = iter->state;
    int64_t size = sh_jarg_int(run, call->argv[0], 0);
    if (size == 0) sh_jrun_error(run, "batch: the size of a batch must not be 0");
    sh_jlist *list = sh_jlist_new(run, 0);
    sh_jv item;
    while ((int64_t)list->count != size && sh_jiter_next(run, inner_of(run, iter), &item))
        sh_jlist_add(run, list, item);
    if (list->count == 0) return false;
    while (sh_jarg_given(call->argv[1]) && (int64_t)list->count < size)
        sh_jlist_add(run, list, call->argv[1]);
    *out = sh_jv_of_list(list);
    return true;
}

/* A generator with a copy of the filter's arguments: `call` is on the caller's stack and gone by
 * the time the first item is taken. */
static sh_jv lazily(sh_jrun *run, const sh_jcall *call, sh_jiter_fn next)
{
    sh_jcall *copy = sh_jrun_alloc(run, sizeof(*copy));
    sh_jargs *args = sh_jrun_alloc(run, sizeof(*args));
    *copy = *call;
    *args = *call->args;
    copy->args = args;
    return sh_jv_generator(run, call->self, next, copy);
}

static sh_jv do_batch(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_batch);
}

/* The number of items must be known to distribute them, so the whole sequence is read first. The
 * first slices get the items that are left over, the others the fill value. */
static bool next_slice(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jcall *call = iter->state;
    int64_t slices = sh_jarg_int(run, call->argv[0], 0);
    if (iter->inner == NULL) {
        iter->source = sh_jv_of_list(sh_jv_to_list(run, iter->source));
        iter->inner = sh_jv_iter(run, iter->source);
    }
    if (slices == 0) sh_jrun_error(run, "integer division or modulo by zero");
    if ((int64_t)iter->idx >= slices) return false;
    size_t count = iter->source.u.list->count, each = count / (size_t)slices;
    bool extra = iter->idx++ < count % (size_t)slices;
    sh_jlist *list = sh_jlist_new(run, each + 1);
    sh_jv item;
    for (size_t i = 0; i < each + extra && sh_jiter_next(run, iter->inner, &item); i++)
        sh_jlist_add(run, list, item);
    if (sh_jarg_given(call->argv[1]) && !extra) sh_jlist_add(run, list, call->argv[1]);
    *out = sh_jv_of_list(list);
    return true;
}

static sh_jv do_slice(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_slice);
}

static sh_jv do_length(sh_jrun *run, const sh_jcall *call)
{
    int64_t count = sh_jv_len(call->self);
    if (count < 0) sh_jrun_error(run, "object of type '%s' has no len()", sh_jv_type(call->self));
    return sh_jv_int(count);
}

static sh_jv do_dictsort(sh_jrun *run, const sh_jcall *call)
{
    bool by_value = false;
    if (call->argv[1].kind != SH_JV_MISSING) {
        sh_str by = sh_jstr_str(sh_jarg_str(run, call->argv[1], "by"));
        by_value = sh_str_is(by, "value");
        if (!by_value && !sh_str_is(by, "key"))
            sh_jrun_error(run, "You can only sort by either \"key\" or \"value\"");
    }
    if (call->self.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, call->self);
    if (call->self.kind != SH_JV_DICT)
        sh_jrun_error(run, "'%s' object has no attribute 'items'", sh_jv_type(call->self));
    const sh_jdict *dict = call->self.u.dict;
    getter g = getter_make(run, SH_JV_NULL, call->argv[0]);
    sh_jentry *entries = sh_jrun_array(run, dict->count, sizeof(*entries));
    for (uint32_t i = 0; i < dict->count; i++) {
        const sh_jentry *e = &dict->entries[i];
        entries[i].key = get(run, &g, by_value ? e->value : e->key);
        entries[i].value = sh_jv_pair(run, e->key, e->value);
    }
    sh_jentries_sort(run, entries, dict->count, sh_jarg_bool(call->argv[2], false));
    sh_jlist *list = sh_jlist_new(run, dict->count);
    for (uint32_t i = 0; i < dict->count; i++) sh_jlist_add(run, list, entries[i].value);
    return sh_jv_of_list(list);
}

static sh_jv do_first(sh_jrun *run, const sh_jcall *call)
{
    sh_jv item;
    if (sh_jiter_next(run, sh_jv_iter(run, call->self), &item)) return item;
    return sh_jv_undef_hint(run, "No first item, sequence was empty.");
}

/* Jinja calls reversed() and takes one item, so a generator is an error. */
static sh_jv do_last(sh_jrun *run, const sh_jcall *call)
{
    sh_jv back, item;
    if (!sh_jv_reversed(run, call->self, &back))
        sh_jrun_error(run, "'%s' object is not reversible", sh_jv_type(call->self));
    if (sh_jiter_next(run, back.u.iter, &item)) return item;
    return sh_jv_undef_hint(run, "No last item, sequence was empty.");
}

/* The items with their sort keys, in their original order. */
static sh_jentry *keyed(sh_jrun *run, const sh_jlist *items, const getter *g)
{
    sh_jentry *entries = sh_jrun_array(run, items->count, sizeof(*entries));
    for (size_t i = 0; i < items->count; i++)
        entries[i] = (sh_jentry){get(run, g, items->items[i]), items->items[i]};
    return entries;
}

/* Groups by the folded key, but shows the group under the key of its first item as it is. */
static sh_jv do_groupby(sh_jrun *run, const sh_jcall *call)
{
    sh_jlist *items = sh_jv_to_list(run, call->self), *groups = sh_jlist_new(run, 0);
    getter g = getter_make(run, call->argv[0], call->argv[2]), plain = g;
    g.fallback = plain.fallback = call->argv[1];
    plain.case_fold = false;
    sh_jentry *entries = keyed(run, items, &g);
    sh_jentries_sort(run, entries, items->count, false);
    sh_jlist *members = NULL;
    for (size_t i = 0; i < items->count; i++) {
        if (i == 0 || !sh_jv_eq(run, entries[i - 1].key, entries[i].key)) {
            members = sh_jlist_new(run, 1);
            sh_jv pair = sh_jv_pair(run, get(run, &plain, entries[i].value),
                                    sh_jv_of_list(members));
            pair.u.list->group = true;
            sh_jlist_add(run, groups, pair);
        }
        sh_jlist_add(run, members, entries[i].value);
    }
    return sh_jv_of_list(groups);
}

static sh_jv do_join(sh_jrun *run, const sh_jcall *call)
{
    getter g = {.parts = path_parts(run, call->argv[1])};
    const sh_jstr *sep = call->argv[0].kind == SH_JV_MISSING ? NULL : sh_jv_str(run, call->argv[0]);
    sh_jiter *iter = sh_jv_iter(run, call->self);
    size_t mark = sh_jrun_mark(run);
    sh_jv item;
    for (bool first = true; sh_jiter_next(run, iter, &item); first = false) {
        if (!first && sep != NULL) sh_jrun_put(run, sh_jstr_str(sep));
        sh_jv_put(run, get(run, &g, item));
    }
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

static sh_jv do_list(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_of_list(sh_jv_to_list(run, call->self));
}

/* Unlike the method, the filter `items` accepts undefined, which gives no pairs. */
static bool next_pair(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    if (iter->source.kind == SH_JV_DICT) iter->source.kind = SH_JV_ITEMS;
    if (iter->source.kind != SH_JV_UNDEFINED && iter->source.kind != SH_JV_ITEMS)
        sh_jrun_error(run, "Can only get item pairs from a mapping.");
    return sh_jiter_next(run, inner_of(run, iter), out);
}

static sh_jv do_items(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_pair);
}

/* map, select and their relatives. They take the name of another filter or test with its arguments,
 * so their own arguments are open-ended and parsed by hand. */

static sh_jv named_arg(sh_jrun *run, const sh_jargs *args, const char *name)
{
    sh_jv *v = args->named == NULL ? NULL : sh_jdict_find_str(run, args->named, sh_str_of(name));
    return v == NULL ? SH_JV_NOTHING : *v;
}

/* What map and select do with an item: look up an attribute, then apply a filter or test. */
typedef struct {
    getter get;
    const sh_jbuiltin *func; /* NULL: none */
    sh_jargs args;
    bool want; /* select: the result of the test for items to keep */
} step;

static const sh_jbuiltin *func_named(sh_jrun *run, sh_jv name, const char *what)
{
    sh_str text = sh_jstr_str(sh_jarg_str(run, name, what));
    const sh_jbuiltin *func = strcmp(what, "filter") == 0 ? sh_jfilter_find(text)
                                                          : sh_jtest_find(text);
    if (func == NULL || func->fn == NULL) sh_jbuiltin_missing(run, what, text, func);
    return func;
}

/* Either attribute=... with an optional default, or the name of a filter and its arguments. */
static step *map_step(sh_jrun *run, const sh_jargs *args)
{
    step *s = sh_jrun_alloc(run, sizeof(*s));
    sh_jv attribute = named_arg(run, args, "attribute");
    s->get.parts = sh_jlist_new(run, 0);
    if (args->pos_count == 0 && attribute.kind != SH_JV_MISSING) {
        s->get.parts = path_parts(run, attribute);
        s->get.fallback = named_arg(run, args, "default");
        for (uint32_t i = 0; i < args->named->count; i++) {
            sh_str name = sh_jstr_str(args->named->entries[i].key.u.str);
            if (!sh_str_is(name, "attribute") && !sh_str_is(name, "default"))
                sh_jrun_error(run, "Unexpected keyword argument '%.*s'", (int)name.len, name.ptr);
        }
        return s;
    }
    if (args->pos_count == 0) sh_jrun_error(run, "map requires a filter argument");
    s->func = func_named(run, args->pos[0], "filter");
    s->args = (sh_jargs){args->pos + 1, args->pos_count - 1, args->named};
    return s;
}

static sh_jv step_apply(sh_jrun *run, const step *s, sh_jv item)
{
    item = get(run, &s->get, item);
    return s->func == NULL ? item : sh_jbuiltin_call(run, s->func, item, &s->args);
}

/* For an empty sequence Jinja does not even check the arguments. */
static bool source_empty(const sh_jiter *iter)
{
    return iter->inner == NULL && !sh_jv_truth(iter->source);
}

static bool next_mapped(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    if (source_empty(iter)) return false;
    if (iter->inner == NULL) iter->state = map_step(run, ((const sh_jcall *)iter->state)->args);
    if (!sh_jiter_next(run, inner_of(run, iter), out)) return false;
    *out = step_apply(run, iter->state, *out);
    return true;
}

static sh_jv do_map(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_mapped);
}

/* Without a test, the truth of the item decides. */
static step *select_step(sh_jrun *run, const sh_jargs *args, bool want, bool by_attr)
{
    step *s = sh_jrun_alloc(run, sizeof(*s));
    size_t used = by_attr;
    if (args->pos_count < used) sh_jrun_error(run, "Missing parameter for attribute name");
    s->get.parts = by_attr ? path_parts(run, args->pos[0]) : sh_jlist_new(run, 0);
    s->want = want;
    if (args->pos_count == used) return s;
    s->func = func_named(run, args->pos[used], "test");
    s->args = (sh_jargs){args->pos + used + 1, args->pos_count - used - 1, args->named};
    return s;
}

static bool next_selected(sh_jrun *run, sh_jiter *iter, bool want, bool by_attr, sh_jv *out)
{
    if (source_empty(iter)) return false;
    if (iter->inner == NULL)
        iter->state = select_step(run, ((const sh_jcall *)iter->state)->args, want, by_attr);
    const step *s = iter->state;
    while (sh_jiter_next(run, inner_of(run, iter), out))
        if (sh_jv_truth(step_apply(run, s, *out)) == s->want) return true;
    return false;
}

static bool next_select(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    return next_selected(run, iter, true, false, out);
}

static bool next_reject(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    return next_selected(run, iter, false, false, out);
}

static bool next_selectattr(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    return next_selected(run, iter, true, true, out);
}

static bool next_rejectattr(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    return next_selected(run, iter, false, true, out);
}

static sh_jv do_select(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_select);
}

static sh_jv do_reject(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_reject);
}

static sh_jv do_selectattr(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_selectattr);
}

static sh_jv do_rejectattr(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_rejectattr);
}

/* min and max: of several equal items the first. */
static sh_jv best(sh_jrun *run, const sh_jcall *call, sh_jop better)
{
    getter g = getter_make(run, call->argv[1], call->argv[0]);
    sh_jiter *iter = sh_jv_iter(run, call->self);
    sh_jv item, best_item, best_key;
    if (!sh_jiter_next(run, iter, &best_item))
        return sh_jv_undef_hint(run, "No aggregated item, sequence was empty.");
    best_key = get(run, &g, best_item);
    while (sh_jiter_next(run, iter, &item)) {
        sh_jv key = get(run, &g, item);
        if (!sh_jv_compare(run, better, key, best_key)) continue;
        best_item = item;
        best_key = key;
    }
    return best_item;
}

static sh_jv do_min(sh_jrun *run, const sh_jcall *call)
{
    return best(run, call, SH_JOP_LT);
}

static sh_jv do_max(sh_jrun *run, const sh_jcall *call)
{
    return best(run, call, SH_JOP_GT);
}

/* Text gives text, a generator a list, everything else an iterator. */
static sh_jv do_reverse(sh_jrun *run, const sh_jcall *call)
{
    sh_jv v = call->self, out, item;
    bool generator = v.kind == SH_JV_ITER;
    if (generator) v = sh_jv_of_list(sh_jv_to_list(run, v));
    if (!sh_jv_reversed(run, v, &out)) sh_jrun_error(run, "argument must be iterable");
    if (generator) return sh_jv_of_list(sh_jv_to_list(run, out));
    if (v.kind != SH_JV_STR) return out;
    size_t mark = sh_jrun_mark(run);
    while (sh_jiter_next(run, out.u.iter, &item)) sh_jv_put(run, item);
    return sh_jtext_take(run, mark, v.u.str);
}

/* The sort keys are lists with one item for each of the attributes "a,b". */
static sh_jv do_sort(sh_jrun *run, const sh_jcall *call)
{
    sh_jlist *items = sh_jv_to_list(run, call->self), *words = sh_jlist_new(run, 1);
    if (call->argv[2].kind == SH_JV_STR)
        words = sh_jtext_split(run, call->argv[2].u.str, sh_jv_lit(run, ",").u.str, -1, false);
    else
        sh_jlist_add(run, words, call->argv[2]);
    sh_jentry *entries = sh_jrun_array(run, items->count, sizeof(*entries));
    for (size_t i = 0; i < items->count; i++)
        entries[i] = (sh_jentry){sh_jv_of_list(sh_jlist_new(run, words->count)), items->items[i]};
    for (size_t k = 0; k < words->count; k++) {
        getter g = getter_make(run, words->items[k], call->argv[1]);
        for (size_t i = 0; i < items->count; i++)
            sh_jlist_add(run, entries[i].key.u.list, get(run, &g, items->items[i]));
    }
    sh_jentries_sort(run, entries, items->count, sh_jarg_bool(call->argv[0], false));
    for (size_t i = 0; i < items->count; i++) items->items[i] = entries[i].value;
    return sh_jv_of_list(items);
}

static sh_jv do_sum(sh_jrun *run, const sh_jcall *call)
{
    getter g = {.parts = path_parts(run, call->argv[0])};
    sh_jv sum = call->argv[1].kind == SH_JV_MISSING ? sh_jv_int(0) : call->argv[1], item;
    if (sum.kind == SH_JV_STR)
        sh_jrun_error(run, "sum() can't sum strings [use ''.join(seq) instead]");
    sh_jiter *iter = sh_jv_iter(run, call->self);
    while (sh_jiter_next(run, iter, &item))
        sum = sh_jv_binary(run, SH_JOP_ADD, sum, get(run, &g, item));
    return sum;
}

typedef struct {
    getter get;
    sh_jdict *seen;
} unique_state;

/* The dict is used as a set: an item is new if setting its key makes the dict grow. */
static bool next_unique(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    if (iter->inner == NULL) {
        const sh_jcall *call = iter->state;
        unique_state *made = sh_jrun_alloc(run, sizeof(*made));
        made->get = getter_make(run, call->argv[1], call->argv[0]);
        made->seen = sh_jdict_new(run, 0);
        iter->state = made;
    }
    const unique_state *state = iter->state;
    while (sh_jiter_next(run, inner_of(run, iter), out)) {
        sh_jv key = get(run, &state->get, *out);
        uint32_t count = state->seen->count;
        sh_jdict_set(run, state->seen, key, SH_JV_NULL);
        if (state->seen->count > count) return true;
    }
    return false;
}

static sh_jv do_unique(sh_jrun *run, const sh_jcall *call)
{
    return lazily(run, call, next_unique);
}

static const sh_jbuiltin filters[] = {
    {"batch", do_batch, "linecount fill_with", 1},
    {"count", do_length, "", 0},
    {"dictsort", do_dictsort, "case_sensitive by reverse", 0},
    {"first", do_first, "", 0},
    {"groupby", do_groupby, "attribute default case_sensitive", 1},
    {"items", do_items, "", 0},
    {"join", do_join, "d attribute", 0},
    {"last", do_last, "", 0},
    {"length", do_length, "", 0},
    {"list", do_list, "", 0},
    {"map", do_map, "*", 0},
    {"max", do_max, "case_sensitive attribute", 0},
    {"min", do_min, "case_sensitive attribute", 0},
    {"reject", do_reject, "*", 0},
    {"rejectattr", do_rejectattr, "*", 0},
    {"reverse", do_reverse, "", 0},
    {"select", do_select, "*", 0},
    {"selectattr", do_selectattr, "*", 0},
    {"slice", do_slice, "slices fill_with", 1},
    {"sort", do_sort, "reverse case_sensitive attribute", 0},
    {"sum", do_sum, "attribute start", 0},
    {"unique", do_unique, "case_sensitive attribute", 0},
};

const sh_jtable sh_jseq_filters = {filters, SH_COUNT_OF(filters)};
