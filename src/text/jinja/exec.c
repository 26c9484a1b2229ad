/* Executes statements. Output goes straight to run->out; whatever turns text into a value (a macro,
 * a set block) marks the buffer, runs its body, and takes the text off again.
 *
 * Variables live in frames, one for each activation of a function; scope.c has assigned the slots.
 * A scope initializes its slots on entry, again at every turn of a loop, and clears them when it is
 * left: a macro keeps a pointer to the frame, not a copy, and must not see variables of a scope
 * that has ended. Frames are never freed before the run ends, so such pointers stay valid.
 *
 * break and continue are return values that every statement passes up. They skip scope_leave() of
 * the scopes in between, as they do in the Python code that Jinja generates. */
#include "text/jinja/eval.h"
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

/* How a statement ended. */
typedef enum { NORMAL, BREAK, CONTINUE } flow;

static flow exec_all(sh_jrun *run, const sh_jnodes *nodes);

/* Enters a new frame and returns the caller's, which must be restored. */
static sh_jframe *frame_push(sh_jrun *run, int slot_count, sh_jframe *up)
{
    sh_jframe *frame = sh_jrun_alloc(run, sizeof(*frame) + (size_t)slot_count * sizeof(sh_jv));
    frame->up = up;
    sh_jframe *outer = run->frame;
    run->frame = frame;
    return outer;
}

/* The value of a name that no enclosing scope assigns: the template's own variable (in a block),
 * the caller's, or a global function. */
static sh_jv resolve(sh_jrun *run, const sh_jload *load)
{
    if (load->from.hops >= 0) {
        sh_jv own = *sh_jref_slot(run, load->from);
        if (own.kind != SH_JV_MISSING) return own;
    }
    sh_str name = sh_jstr_str(load->name);
    sh_jv *var = sh_jdict_find_str(run, run->vars, name);
    if (var != NULL) return *var;
    const sh_jbuiltin *func = sh_jtable_find(&sh_jglobals, name);
    return func == NULL ? SH_JV_NOTHING : (sh_jv){.kind = SH_JV_FUNC, .u.func = func};
}

/* Initializes the slots of a scope, in the order in which scope.c met the names. */
static void scope_enter(sh_jrun *run, const sh_jscope *scope)
{
    for (size_t i = 0; i < scope->count; i++) {
        const sh_jload *load = &scope->loads[i];
        sh_jv *slot = &run->frame->slots[load->slot];
        switch (load->kind) {
        case SH_JLOAD_PARAM: break;
        case SH_JLOAD_RESOLVE: *slot = resolve(run, load); break;
        case SH_JLOAD_ALIAS: *slot = *sh_jref_slot(run, load->from); break;
        case SH_JLOAD_EMPTY: *slot = SH_JV_NOTHING; break;
        }
    }
}

/* A macro that outlives the scope it was defined in sees that scope's variables as undefined. */
static void scope_leave(sh_jrun *run, const sh_jscope *scope)
{
    for (size_t i = 0; i < scope->count; i++)
        run->frame->slots[scope->loads[i].slot] = SH_JV_NOTHING;
}

/* Assignment to names, tuples and attributes of namespaces. A namespace is the only value that a
 * template can modify, and thus its only way to carry state out of a loop. */

static void assign(sh_jrun *run, const sh_jnode *target, sh_jv v);

/* Takes at most one item more than there are targets, so that an endless or huge source is not
 * read. */
static void unpack(sh_jrun *run, const sh_jnodes *targets, sh_jv v)
{
    if (!sh_jv_iterable(v))
        sh_jrun_error(run, "cannot unpack non-iterable %s object", sh_jv_type(v));
    sh_jiter *iter = sh_jv_iter(run, v);
    sh_jlist *items = sh_jlist_new(run, targets->count);
    sh_jv item;
    while (items->count <= targets->count && sh_jiter_next(run, iter, &item))
        sh_jlist_add(run, items, item);
    if (items->count > targets->count)
        sh_jrun_error(run, "too many values to unpack (expected %u)", targets->count);
    if (items->count < targets->count)
        sh_jrun_error(run, "not enough values to unpack (expected %u, got %zu)", targets->count,
                      items->count);
    size_t i = 0;
    for (const sh_jnode *target = targets->head; target != NULL; target = target->next)
        assign(run, target, items->items[i++]);
}

static void namespace_set(sh_jrun *run, const sh_jnode *target, sh_jv v)
{
    sh_jv ns = *sh_jref_slot(run, target->u.name.ref);
    const sh_jstr *attr = target->u.name.attr;
    if (ns.kind != SH_JV_NAMESPACE)
        sh_jrun_error(run, "cannot assign attribute on non-namespace object");
    if (attr->ptr[0] == '_')
        sh_jrun_error(run, "namespace attributes can not start with an underscore: '%.*s'",
                      (int)attr->len, attr->ptr);
    sh_jdict_set(run, ns.u.dict, sh_jv_of_str(attr), v);
}

static void assign(sh_jrun *run, const sh_jnode *target, sh_jv v)
{
    switch (target->type) {
    case SH_JN_TUPLE: unpack(run, &target->u.items, v); break;
    case SH_JN_NSREF: namespace_set(run, target, v); break;
    default: *sh_jref_slot(run, target->u.name.ref) = v; break;
    }
}

/* Jinja checks that the targets are namespaces before it evaluates the value. */
static void namespaces_check(sh_jrun *run, const sh_jnode *target)
{
    if (target->type == SH_JN_TUPLE) {
        for (const sh_jnode *t = target->u.items.head; t != NULL; t = t->next)
            namespaces_check(run, t);
    } else if (target->type == SH_JN_NSREF &&
               sh_jref_slot(run, target->u.name.ref)->kind != SH_JV_NAMESPACE) {
        sh_jrun_error(run, "cannot assign attribute on non-namespace object");
    }
}

/* A tuple is evaluated completely before any target changes, so `a, b = b, a` swaps. */
static void exec_set(sh_jrun *run, const sh_jnode *node)
{
    namespaces_check(run, node->u.set.target);
    sh_jv v = sh_jeval(run, node->u.set.value);
    run->line = node->line;
    assign(run, node->u.set.target, v);
}

/* Set and filter blocks: the text of the body, passed through the filter. */
static flow exec_capture(sh_jrun *run, const sh_jnode *node)
{
    size_t mark = sh_jrun_mark(run);
    scope_enter(run, &node->u.capture.scope);
    flow ended = exec_all(run, &node->u.capture.body);
    sh_jv v = sh_jv_of_str(sh_jrun_take(run, mark));
    if (ended != NORMAL) return ended;
    run->line = node->line;
    if (node->u.capture.filter != NULL) v = sh_jeval_filter(run, node->u.capture.filter, v);
    if (node->type == SH_JN_SET_BLOCK)
        assign(run, node->u.capture.target, v);
    else
        sh_jv_put(run, v);
    scope_leave(run, &node->u.capture.scope);
    return NORMAL;
}

/* A value does not see the targets before it, since all values belong to the outer scope. */
static flow exec_with(sh_jrun *run, const sh_jnode *node)
{
    scope_enter(run, &node->u.with.scope);
    const sh_jnode *value = node->u.with.values.head;
    for (const sh_jnode *t = node->u.with.targets.head; t != NULL; t = t->next) {
        assign(run, t, sh_jeval(run, value));
        value = value->next;
    }
    flow ended = exec_all(run, &node->u.with.body);
    if (ended == NORMAL) scope_leave(run, &node->u.with.scope);
    return ended;
}

/* Loops. `for x in xs if test` is a loop over a generator that applies the test, so that
 * loop.length, loop.last and so on count only the items that pass. */

/* The next item that passes the loop's test. Items are tested when the loop takes them, which may
 * happen in a macro that was passed the loop object: hence the switch to the loop's frame. */
static bool next_passing(sh_jrun *run, sh_jiter *iter, sh_jv *out)
{
    const sh_jfor *loop = iter->state;
    sh_jframe *frame = run->frame;
    bool passes = false;
    run->frame = iter->frame;
    while (!passes && sh_jiter_next(run, iter->inner, out)) {
        assign(run, loop->test_target, *out);
        passes = sh_jv_truth(sh_jeval(run, loop->test));
    }
    /* Jinja rebuilds the item from the names it was unpacked to. */
    if (passes) *out = sh_jeval(run, loop->test_target);
    run->frame = frame;
    return passes;
}

/* The scope of the test is entered once for the whole loop, not for each item. */
static sh_jv passing(sh_jrun *run, const sh_jfor *loop, sh_jv source)
{
    if (loop->test == NULL) return source;
    sh_jv v = sh_jv_generator(run, source, next_passing, loop);
    v.u.iter->inner = sh_jv_iter(run, source);
    v.u.iter->frame = run->frame;
    scope_enter(run, &loop->test_scope);
    return v;
}

/* The loop object and the target are parameters of the scope: they are set before it is entered. */
static flow loop_body(sh_jrun *run, const sh_jfor *loop, sh_jv item, sh_jv self)
{
    if (loop->loop_slot >= 0) run->frame->slots[loop->loop_slot] = self;
    assign(run, loop->target, item);
    scope_enter(run, &loop->body_scope);
    sh_jrun_charge(run, 1);
    return exec_all(run, &loop->body);
}

/* Iterates over source; `state` is the loop object, with node, frame and depth0 set. */
static flow loop_run(sh_jrun *run, const sh_jnode *node, sh_jv source, sh_jloop *state)
{
    const sh_jfor *loop = node->u.loop;
    state->source = passing(run, loop, source);
    state->iter = sh_jv_iter(run, state->source);
    state->index0 = state->length = -1;
    sh_jv item, self = {.kind = SH_JV_LOOP, .u.loop = state};
    bool completed = false; /* Jinja's else also runs if break or continue ended every turn */
    flow ended = NORMAL;
    while (ended != BREAK && sh_jloop_next(run, state, &item)) {
        run->line = node->line;
        ended = loop_body(run, loop, item, self);
        completed |= ended == NORMAL;
    }
    scope_leave(run, &loop->body_scope);
    if (completed || loop->otherwise.count == 0) return NORMAL;
    scope_enter(run, &loop->else_scope);
    ended = exec_all(run, &loop->otherwise);
    if (ended == NORMAL) scope_leave(run, &loop->else_scope);
    return ended;
}

/* A recursive loop is a function: each call has its own frame. */
static void loop_call(sh_jrun *run, const sh_jnode *node, sh_jframe *up, sh_jv source, int depth0)
{
    sh_jloop *state = sh_jrun_alloc(run, sizeof(*state));
    *state = (sh_jloop){.node = node, .frame = up, .depth0 = depth0};
    sh_jframe *outer = frame_push(run, node->u.loop->slot_count, up);
    loop_run(run, node, source, state);
    run->frame = outer;
}

sh_jv sh_jloop_call(sh_jrun *run, const sh_jloop *loop, sh_jv v)
{
    size_t mark = sh_jrun_mark(run);
    sh_jrun_enter(run);
    loop_call(run, loop->node, loop->frame, v, loop->depth0 + 1);
    sh_jrun_leave(run);
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

/* The source is evaluated outside of the loop's scope, so it may use the name of the target. */
static flow exec_for(sh_jrun *run, const sh_jnode *node)
{
    sh_jv source = sh_jeval(run, node->u.loop->iter);
    run->line = node->line;
    if (node->u.loop->recursive) {
        loop_call(run, node, run->frame, source, 0);
        return NORMAL;
    }
    sh_jloop *state = sh_jrun_alloc(run, sizeof(*state));
    return loop_run(run, node, source, state);
}

static flow exec_if(sh_jrun *run, const sh_jnode *node)
{
    for (const sh_jnode *branch = node->u.items.head; branch != NULL; branch = branch->next) {
        run->line = branch->line;
        if (branch->u.branch.test == NULL || sh_jv_truth(sh_jeval(run, branch->u.branch.test)))
            return exec_all(run, &branch->u.branch.body);
    }
    return NORMAL;
}

/* A macro is its node and the frame it was defined in: a closure. */
static sh_jv macro_make(sh_jrun *run, const sh_jnode *node)
{
    sh_jmacro *macro = sh_jrun_alloc(run, sizeof(*macro));
    *macro = (sh_jmacro){node, run->frame};
    return (sh_jv){.kind = SH_JV_MACRO, .u.macro = macro};
}

/* Named arguments that no parameter took, as a new dict. */
static sh_jdict *named_rest(sh_jrun *run, const sh_jargs *args, const sh_jdict *taken)
{
    sh_jdict *rest = sh_jdict_new(run, 0);
    for (uint32_t i = 0; args->named != NULL && i < args->named->count; i++) {
        const sh_jentry *entry = &args->named->entries[i];
        if (sh_jdict_find(run, taken, entry->key) == NULL)
            sh_jdict_set(run, rest, entry->key, entry->value);
    }
    return rest;
}

/* Sets `caller`, `kwargs` and `varargs`; arguments that then remain are an error. */
static void specials_bind(sh_jrun *run, const sh_jfunc *f, const sh_jargs *args, sh_jdict *taken)
{
    sh_jv *slots = run->frame->slots;
    const sh_jstr *name = f->name->text;
    if (f->caller_slot >= 0) {
        sh_jv *caller = args->named == NULL ? NULL
                                            : sh_jdict_find_str(run, args->named, SH_STR("caller"));
        sh_jdict_set_lit(run, taken, "caller", SH_JV_NULL);
        slots[f->caller_slot] = caller != NULL ? *caller
                                               : sh_jv_undef_hint(run, "No caller defined");
    }
    sh_jdict *rest = named_rest(run, args, taken);
    if (f->kwargs_slot >= 0) {
        slots[f->kwargs_slot] = sh_jv_of_dict(rest);
    } else if (rest->count > 0) {
        const sh_jstr *word = rest->entries[0].key.u.str;
        if (sh_jdict_find_str(run, rest, SH_STR("caller")) != NULL)
            sh_jrun_error(run,
                          "macro '%.*s' was invoked with two values for the special caller "
                          "argument. This is most likely a bug.",
                          (int)name->len, name->ptr);
        sh_jrun_error(run, "macro '%.*s' takes no keyword argument '%.*s'", (int)name->len,
                      name->ptr, (int)word->len, word->ptr);
    }
    if (f->varargs_slot >= 0) {
        sh_jlist *more = sh_jlist_new(run, 0);
        for (size_t i = f->params.count; i < args->pos_count; i++)
            sh_jlist_add(run, more, args->pos[i]);
        slots[f->varargs_slot] = sh_jv_of_tuple(more);
    } else if (args->pos_count > f->params.count) {
        sh_jrun_error(run, "macro '%.*s' takes not more than %u argument(s)", (int)name->len,
                      name->ptr, f->params.count);
    }
}

/* Fills the slots of parameters that were passed; the others stay MISSING, as the frame is zeroed.
 */
static void params_bind(sh_jrun *run, const sh_jfunc *f, const sh_jargs *args, sh_jdict *taken)
{
    size_t i = 0;
    for (const sh_jnode *param = f->params.head; param != NULL; param = param->next, i++) {
        sh_jv *slot = &run->frame->slots[param->u.name.ref.slot];
        if (i < args->pos_count) {
            *slot = args->pos[i];
            continue;
        }
        sh_jv name = sh_jv_of_str(param->u.name.sym->text);
        sh_jv *given = args->named == NULL ? NULL : sh_jdict_find(run, args->named, name);
        if (given == NULL) continue;
        *slot = *given;
        sh_jdict_set(run, taken, name, SH_JV_NULL);
    }
}

/* Defaults are evaluated inside the macro, in order, so that one can use an earlier parameter. */
static void defaults_bind(sh_jrun *run, const sh_jfunc *f)
{
    uint32_t without = f->params.count - f->defaults.count, i = 0;
    const sh_jnode *def = f->defaults.head;
    for (const sh_jnode *param = f->params.head; param != NULL; param = param->next, i++) {
        sh_jv *slot = &run->frame->slots[param->u.name.ref.slot];
        const sh_jnode *value = i < without ? NULL : def;
        if (i >= without) def = def->next;
        if (slot->kind != SH_JV_MISSING) continue;
        if (value != NULL) {
            *slot = sh_jeval(run, value);
            continue;
        }
        size_t mark = sh_jrun_mark(run);
        SH_JRUN_PUT(run, "parameter '");
        sh_jrun_put(run, sh_jstr_str(param->u.name.sym->text));
        SH_JRUN_PUT(run, "' was not provided");
        *slot = sh_jv_undef_text(run, sh_jrun_take(run, mark));
    }
}

/* Runs the body of a macro, call block or block in its own frame. */
static void func_run(sh_jrun *run, const sh_jnode *node, sh_jframe *up, const sh_jargs *args)
{
    const sh_jfunc *f = node->u.func;
    sh_jrun_enter(run);
    sh_jframe *outer = frame_push(run, f->slot_count, up);
    if (node->type != SH_JN_BLOCK) {
        sh_jdict *taken = sh_jdict_new(run, 0);
        params_bind(run, f, args, taken);
        specials_bind(run, f, args, taken);
    }
    scope_enter(run, &f->scope);
    if (node->type != SH_JN_BLOCK) defaults_bind(run, f);
    exec_all(run, &f->body);
    run->frame = outer;
    sh_jrun_leave(run);
}

sh_jv sh_jmacro_call(sh_jrun *run, const sh_jmacro *macro, const sh_jargs *args)
{
    size_t mark = sh_jrun_mark(run);
    int line = run->line;
    func_run(run, macro->node, macro->frame, args);
    run->line = line;
    return sh_jv_of_str(sh_jrun_take(run, mark));
}

/* `generation` is a call block without a call: its body runs in place. */
static void exec_call_block(sh_jrun *run, const sh_jnode *node)
{
    static const sh_jargs none = {0};
    if (node->u.func->call == NULL) {
        func_run(run, node, run->frame, &none);
        return;
    }
    sh_jv_put(run, sh_jeval_call(run, node->u.func->call, macro_make(run, node)));
}

static void exec_print(sh_jrun *run, const sh_jnode *node)
{
    for (const sh_jnode *item = node->u.items.head; item != NULL; item = item->next)
        sh_jv_put(run, sh_jeval(run, item));
}

static flow exec(sh_jrun *run, const sh_jnode *node)
{
    switch (node->type) {
    case SH_JN_DATA: sh_jv_put(run, node->u.value); return NORMAL;
    case SH_JN_PRINT: exec_print(run, node); return NORMAL;
    case SH_JN_IF: return exec_if(run, node);
    case SH_JN_FOR: return exec_for(run, node);
    case SH_JN_SET: exec_set(run, node); return NORMAL;
    case SH_JN_SET_BLOCK:
    case SH_JN_FILTER_BLOCK: return exec_capture(run, node);
    case SH_JN_MACRO: *sh_jref_slot(run, node->u.func->ref) = macro_make(run, node); return NORMAL;
    case SH_JN_CALL_BLOCK: exec_call_block(run, node); return NORMAL;
    case SH_JN_WITH:
    case SH_JN_SCOPE: return exec_with(run, node);
    case SH_JN_BLOCK: func_run(run, node, run->frame, NULL); return NORMAL;
    case SH_JN_BREAK: return BREAK;
    default: SH_ASSERT(node->type == SH_JN_CONTINUE); return CONTINUE;
    }
}

static flow exec_all(sh_jrun *run, const sh_jnodes *nodes)
{
    flow ended = NORMAL;
    sh_jrun_enter(run);
    for (const sh_jnode *node = nodes->head; node != NULL && ended == NORMAL; node = node->next) {
        run->line = node->line;
        sh_jrun_charge(run, 1);
        ended = exec(run, node);
    }
    sh_jrun_leave(run);
    return ended;
}

void sh_jtree_run(sh_jrun *run, const sh_jtree *tree)
{
    frame_push(run, tree->slot_count, NULL);
    scope_enter(run, &tree->scope);
    exec_all(run, &tree->body);
}
