/* Evaluates expressions by walking the tree.
 *
 * The order of evaluation is Python's, which matters because a macro may change a namespace. A name
 * or attribute that does not exist is no error by itself: it evaluates to an undefined value that
 * records why (sh_jundef), and the operation that uses this value fails with that reason.
 *
 * run->line is set again after arguments were evaluated, so that an error names the line of the
 * call and not of its last argument. */
#include "text/jinja/eval.h"

#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

sh_jv *sh_jref_slot(sh_jrun *run, sh_jref ref)
{
    sh_jframe *frame = run->frame;
    for (int i = 0; i < ref.hops; i++) frame = frame->up;
    return &frame->slots[ref.slot];
}

static sh_jv eval_name(sh_jrun *run, const sh_jnode *node)
{
    sh_jv v = *sh_jref_slot(run, node->u.name.ref);
    return v.kind == SH_JV_MISSING ? sh_jv_undef_name(run, node->u.name.sym->text) : v;
}

static sh_jlist *eval_items(sh_jrun *run, const sh_jnodes *nodes)
{
    sh_jlist *list = sh_jlist_new(run, nodes->count);
    for (const sh_jnode *item = nodes->head; item != NULL; item = item->next)
        sh_jlist_add(run, list, sh_jeval(run, item));
    return list;
}

static sh_jv eval_dict(sh_jrun *run, const sh_jnodes *nodes)
{
    sh_jdict *dict = sh_jdict_new(run, nodes->count / 2);
    for (const sh_jnode *key = nodes->head; key != NULL; key = key->next->next) {
        sh_jv name = sh_jeval(run, key);
        sh_jdict_set(run, dict, name, sh_jeval(run, key->next));
    }
    return sh_jv_of_dict(dict);
}

static sh_jv eval_or_none(sh_jrun *run, const sh_jnode *node)
{
    return node == NULL ? SH_JV_NULL : sh_jeval(run, node);
}

static sh_jv eval_slice(sh_jrun *run, const sh_jnode *node)
{
    sh_jslice *slice = sh_jrun_alloc(run, sizeof(*slice));
    slice->start = eval_or_none(run, node->u.slice.start);
    slice->stop = eval_or_none(run, node->u.slice.stop);
    slice->step = eval_or_none(run, node->u.slice.step);
    return (sh_jv){.kind = SH_JV_SLICE, .u.slice = slice};
}

/* A name may be passed only once, directly or by **kwargs. */
static void named_set(sh_jrun *run, sh_jdict *named, sh_jv name, sh_jv value)
{
    if (name.kind != SH_JV_STR) sh_jrun_error(run, "keywords must be strings");
    if (sh_jdict_find(run, named, name) != NULL)
        sh_jrun_error(run, "got multiple values for keyword argument '%.*s'", (int)name.u.str->len,
                      name.u.str->ptr);
    sh_jdict_set(run, named, name, value);
}

/* Adds the **kwargs of a call. */
static void others_set(sh_jrun *run, sh_jdict *named, sh_jv others)
{
    if (others.kind != SH_JV_DICT)
        sh_jrun_error(run, "argument after ** must be a mapping, not %s", sh_jv_type(others));
    for (uint32_t i = 0; i < others.u.dict->count; i++)
        named_set(run, named, others.u.dict->entries[i].key, others.u.dict->entries[i].value);
}

/* Evaluates the arguments in Python's order. Most calls have no named ones and need no dict. */
static sh_jargs eval_args(sh_jrun *run, const sh_jsignature *sig, sh_jv caller)
{
    sh_jargs args = {0};
    if (sig->pos.count > 0 || sig->rest != NULL) {
        sh_jlist *pos = eval_items(run, &sig->pos);
        if (sig->rest != NULL) {
            sh_jlist *rest = sh_jv_to_list(run, sh_jeval(run, sig->rest));
            for (size_t i = 0; i < rest->count; i++) sh_jlist_add(run, pos, rest->items[i]);
        }
        args.pos = pos->items;
        args.pos_count = pos->count;
    }
    if (sig->named.count == 0 && sig->others == NULL && caller.kind == SH_JV_MISSING) return args;
    sh_jdict *named = sh_jdict_new(run, sig->named.count + 1);
    for (const sh_jnode *word = sig->named.head; word != NULL; word = word->next)
        named_set(run, named, sh_jv_of_str(word->u.keyword.name),
                  sh_jeval(run, word->u.keyword.value));
    if (caller.kind != SH_JV_MISSING) sh_jdict_set_lit(run, named, "caller", caller);
    if (sig->others != NULL) others_set(run, named, sh_jeval(run, sig->others));
    args.named = named->count == 0 ? NULL : named;
    return args;
}

sh_jv sh_jeval_call(sh_jrun *run, const sh_jnode *node, sh_jv caller)
{
    sh_jv callee = sh_jeval(run, node->u.call.target);
    sh_jargs args = eval_args(run, &node->u.call.args, caller);
    run->line = node->line;
    return sh_jv_call(run, callee, &args);
}

static sh_jv eval_builtin(sh_jrun *run, const sh_jnode *node, sh_jv value, const char *what)
{
    const sh_jbuiltin *func = node->u.call.func;
    if (func == NULL || func->fn == NULL)
        sh_jbuiltin_missing(run, what, sh_jstr_str(node->u.call.name), func);
    sh_jargs args = eval_args(run, &node->u.call.args, SH_JV_NOTHING);
    run->line = node->line;
    return sh_jbuiltin_call(run, func, value, &args);
}

/* In a block the innermost filter of the chain has no target: its input is the block's text. */
sh_jv sh_jeval_filter(sh_jrun *run, const sh_jnode *node, sh_jv value)
{
    sh_jrun_enter(run);
    if (node->u.call.target != NULL) value = sh_jeval_filter(run, node->u.call.target, value);
    value = eval_builtin(run, node, value, "filter");
    sh_jrun_leave(run);
    return value;
}

static sh_jv eval_compare(sh_jrun *run, const sh_jnode *node)
{
    sh_jv left = sh_jeval(run, node->u.compare.first);
    for (const sh_jnode *op = node->u.compare.operands.head; op != NULL; op = op->next) {
        sh_jv right = sh_jeval(run, op->u.binary.right);
        if (!sh_jv_compare(run, op->u.binary.op, left, right)) return sh_jv_bool(false);
        left = right;
    }
    return sh_jv_bool(true);
}

/* All operands are evaluated before any of them is converted to text, as in Python. */
static sh_jv eval_concat(sh_jrun *run, const sh_jnodes *nodes)
{
    sh_jlist *items = eval_items(run, nodes);
    size_t mark = sh_jrun_mark(run);
    for (size_t i = 0; i < items->count; i++) sh_jv_put(run, items->items[i]);
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

/* Without an else the value is undefined, with a message of its own. */
static sh_jv eval_cond(sh_jrun *run, const sh_jnode *node)
{
    if (sh_jv_truth(sh_jeval(run, node->u.cond.test))) return sh_jeval(run, node->u.cond.yes);
    if (node->u.cond.no != NULL) return sh_jeval(run, node->u.cond.no);
    size_t mark = sh_jrun_mark(run);
    sh_jrun_putf(run,
                 "the inline if-expression on line %d evaluated to false and no else section was "
                 "defined.",
                 node->line);
    return sh_jv_undef_text(run, sh_jrun_take(run, mark));
}

static sh_jv eval_binary(sh_jrun *run, const sh_jnode *node)
{
    sh_jv left = sh_jeval(run, node->u.binary.left);
    sh_jv right = sh_jeval(run, node->u.binary.right);
    return sh_jv_binary(run, node->u.binary.op, left, right);
}

static sh_jv eval_item(sh_jrun *run, const sh_jnode *node)
{
    sh_jv obj = sh_jeval(run, node->u.item.obj);
    return sh_jv_item(run, obj, sh_jeval(run, node->u.item.index));
}

static sh_jv eval_test(sh_jrun *run, const sh_jnode *node)
{
    sh_jv value = sh_jeval(run, node->u.call.target);
    return eval_builtin(run, node, value, "test");
}

static sh_jv eval(sh_jrun *run, const sh_jnode *node)
{
    sh_jv v;
    switch (node->type) {
    case SH_JN_NAME: return eval_name(run, node);
    case SH_JN_TUPLE: return sh_jv_of_tuple(eval_items(run, &node->u.items));
    case SH_JN_LIST: return sh_jv_of_list(eval_items(run, &node->u.items));
    case SH_JN_DICT: return eval_dict(run, &node->u.items);
    case SH_JN_ATTR: return sh_jv_attr(run, sh_jeval(run, node->u.attr.obj), node->u.attr.name);
    case SH_JN_ITEM: return eval_item(run, node);
    case SH_JN_SLICE: return eval_slice(run, node);
    case SH_JN_CALL: return sh_jeval_call(run, node, SH_JV_NOTHING);
    case SH_JN_FILTER:
        v = sh_jeval(run, node->u.call.target);
        return eval_builtin(run, node, v, "filter");
    case SH_JN_TEST: return eval_test(run, node);
    case SH_JN_BINARY: return eval_binary(run, node);
    case SH_JN_NEG:
    case SH_JN_POS:
        return sh_jv_negate(run, sh_jeval(run, node->u.binary.left), node->type == SH_JN_NEG);
    case SH_JN_NOT: return sh_jv_bool(!sh_jv_truth(sh_jeval(run, node->u.binary.left)));
    case SH_JN_AND:
        v = sh_jeval(run, node->u.binary.left);
        return sh_jv_truth(v) ? sh_jeval(run, node->u.binary.right) : v;
    case SH_JN_OR:
        v = sh_jeval(run, node->u.binary.left);
        return sh_jv_truth(v) ? v : sh_jeval(run, node->u.binary.right);
    case SH_JN_COMPARE: return eval_compare(run, node);
    case SH_JN_CONCAT: return eval_concat(run, &node->u.items);
    default: SH_ASSERT(node->type == SH_JN_COND); return eval_cond(run, node);
    }
}

sh_jv sh_jeval(sh_jrun *run, const sh_jnode *node)
{
    /* A constant cannot nest: skip the accounting. */
    if (node->type == SH_JN_CONST) return node->u.value;
    sh_jrun_enter(run);
    sh_jv v = eval(run, node);
    sh_jrun_leave(run);
    return v;
}
