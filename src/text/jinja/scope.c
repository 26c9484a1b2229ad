/* Resolves names to slots before anything runs, by the rules of Jinja's compiler.
 *
 * A scope (the template, a loop's body, a macro, ...) is analyzed as a whole: a name that it
 * assigns anywhere is local to it and starts with the value from outside; a name that it only reads
 * belongs to the enclosing scope, or else is one of the caller's variables. An assignment inside an
 * `if` belongs to the scope around the `if`, and an assignment inside a loop never leaves the loop.
 *
 * Slots belong to functions (the template, macros, recursive loops), since those can be active more
 * than once; the scopes inside a function share its frame.
 *
 * Each scope is visited twice: analyze() collects its names, in the order in which Jinja's compiler
 * meets them, without entering inner scopes; bind() then assigns the slots and handles the inner
 * scopes. The first pass must be complete before the second, because an assignment at the end of a
 * scope decides what a name at its start means. While a scope is open, sym->bound points to the
 * innermost binding of each symbol; scope_close() restores the previous one. */
#include "text/jinja/call.h"
#include "text/jinja/parser.h"

#include <string.h>

typedef struct func func;
struct func {
    int depth;
    int slot_count;
};

typedef struct scope scope;
struct scope {
    scope *outer;
    func *func;
    int island;   /* bindings are visible within one island only: a block starts a new one */
    int branches; /* enclosing ifs */
    bool soft;    /* inside an if, where an unknown filter is an error only when it is used */
    sh_jbinding *bindings;
    sh_jload *loads;
    size_t count, cap;
};

struct sh_jbinding {
    sh_jbinding *shadowed; /* the binding of the name outside */
    sh_jbinding *next;     /* in the same scope */
    sh_jsym *sym;
    scope *owner;
    int slot;
    size_t load;
};

typedef struct binder binder;
typedef void (*visit_fn)(binder *b, sh_jnode *node);

struct binder {
    sh_jparser *parser;
    sh_jrun *run;
    scope *scope;
    int islands;
    const sh_jsym *sought;  /* by reads_name() */
    bool found, overridden; /* whichever came first: a read or an assignment */
};

/* Visiting. kids() knows the children of every node once, so that the passes below name only the
 * nodes that mean something to them. */

/* Visits a node; the depth is checked here, for all later walks of the tree. */
static void each(binder *b, sh_jnode *node, visit_fn fn)
{
    if (node == NULL) return;
    sh_jrun_enter(b->run);
    b->run->line = node->line;
    fn(b, node);
    sh_jrun_leave(b->run);
}

static void all(binder *b, const sh_jnodes *nodes, visit_fn fn)
{
    for (sh_jnode *node = nodes->head; node != NULL; node = node->next) each(b, node, fn);
}

static void kids_of_expr(binder *b, sh_jnode *node, visit_fn fn)
{
    switch (node->type) {
    case SH_JN_TUPLE:
    case SH_JN_LIST:
    case SH_JN_DICT:
    case SH_JN_CONCAT: all(b, &node->u.items, fn); break;
    case SH_JN_ATTR: each(b, node->u.attr.obj, fn); break;
    case SH_JN_ITEM:
        each(b, node->u.item.obj, fn);
        each(b, node->u.item.index, fn);
        break;
    case SH_JN_SLICE:
        each(b, node->u.slice.start, fn);
        each(b, node->u.slice.stop, fn);
        each(b, node->u.slice.step, fn);
        break;
    case SH_JN_CALL:
    case SH_JN_FILTER:
    case SH_JN_TEST:
        each(b, node->u.call.target, fn);
        all(b, &node->u.call.args.pos, fn);
        all(b, &node->u.call.args.named, fn);
        each(b, node->u.call.args.rest, fn);
        each(b, node->u.call.args.others, fn);
        break;
    case SH_JN_KEYWORD: each(b, node->u.keyword.value, fn); break;
    case SH_JN_COMPARE:
        each(b, node->u.compare.first, fn);
        all(b, &node->u.compare.operands, fn);
        break;
    case SH_JN_COND:
        each(b, node->u.cond.test, fn);
        each(b, node->u.cond.yes, fn);
        each(b, node->u.cond.no, fn);
        break;
    case SH_JN_BINARY:
    case SH_JN_NEG:
    case SH_JN_POS:
    case SH_JN_NOT:
    case SH_JN_AND:
    case SH_JN_OR:
    case SH_JN_OPERAND:
        each(b, node->u.binary.left, fn);
        each(b, node->u.binary.right, fn);
        break;
    default: break;
    }
}

static void kids(binder *b, sh_jnode *node, visit_fn fn)
{
    switch (node->type) {
    case SH_JN_PRINT:
    case SH_JN_IF: all(b, &node->u.items, fn); break;
    case SH_JN_BRANCH:
        each(b, node->u.branch.test, fn);
        all(b, &node->u.branch.body, fn);
        break;
    case SH_JN_FOR:
        each(b, node->u.loop->target, fn);
        each(b, node->u.loop->iter, fn);
        all(b, &node->u.loop->body, fn);
        all(b, &node->u.loop->otherwise, fn);
        each(b, node->u.loop->test, fn);
        break;
    case SH_JN_SET:
        each(b, node->u.set.target, fn);
        each(b, node->u.set.value, fn);
        break;
    case SH_JN_SET_BLOCK:
    case SH_JN_FILTER_BLOCK:
        each(b, node->u.capture.target, fn);
        all(b, &node->u.capture.body, fn);
        each(b, node->u.capture.filter, fn);
        break;
    case SH_JN_MACRO:
    case SH_JN_CALL_BLOCK:
        each(b, node->u.func->call, fn);
        all(b, &node->u.func->params, fn);
        all(b, &node->u.func->defaults, fn);
        all(b, &node->u.func->body, fn);
        break;
    case SH_JN_WITH:
    case SH_JN_SCOPE:
        all(b, &node->u.with.targets, fn);
        all(b, &node->u.with.values, fn);
        all(b, &node->u.with.body, fn);
        break;
    default: kids_of_expr(b, node, fn); break;
    }
}

static void seek(binder *b, sh_jnode *node)
{
    if (b->found || b->overridden) return;
    if (node->type == SH_JN_NAME && node->u.name.sym == b->sought) {
        b->found = node->u.name.use == SH_JNAME_LOAD;
        b->overridden = !b->found;
    }
    kids(b, node, seek);
}

/* Whether the nodes read a name before anything in them assigns it. */
static bool reads_name(binder *b, const sh_jnodes *nodes, const sh_jsym *sym)
{
    b->sought = sym;
    b->found = b->overridden = false;
    all(b, nodes, seek);
    return b->found;
}

/* Bindings. A name gets a slot in a scope the first time that scope needs one of its own. */

/* The binding of a name that is visible here. A block starts a new island: it sees no local
 * variables of the scopes around it. */
static sh_jbinding *find(const binder *b, const sh_jsym *sym)
{
    sh_jbinding *bound = sym->bound;
    return bound != NULL && bound->owner->island == b->scope->island ? bound : NULL;
}

static sh_jref ref_to(const binder *b, const sh_jbinding *bound)
{
    return (sh_jref){b->scope->func->depth - bound->owner->func->depth, bound->slot};
}

/* A block sees the template's top-level variables with the values they have when it is reached. */
static sh_jref template_ref(const binder *b, const sh_jsym *sym)
{
    for (sh_jbinding *bound = sym->bound; bound != NULL; bound = bound->shadowed)
        if (bound->owner->outer == NULL && bound->owner->island == 0) return ref_to(b, bound);
    return (sh_jref){-1, -1};
}

/* Gives the name a new slot in the current scope. */
static sh_jbinding *define(binder *b, sh_jsym *sym, sh_jload_kind kind)
{
    scope *s = b->scope;
    sh_jload load = {.kind = kind, .slot = s->func->slot_count++, .name = sym->text};
    sh_jbinding *outer = find(b, sym);
    load.from = outer != NULL   ? ref_to(b, outer)
                : s->island > 0 ? template_ref(b, sym)
                                : (sh_jref){-1, -1};
    if (s->count == s->cap) {
        s->cap = s->cap == 0 ? 8 : s->cap * 2;
        sh_jload *loads = sh_jrun_array(b->run, s->cap, sizeof(*loads));
        if (s->count > 0) memcpy(loads, s->loads, s->count * sizeof(*loads));
        s->loads = loads;
    }
    sh_jbinding *bound = sh_jrun_alloc(b->run, sizeof(*bound));
    *bound = (sh_jbinding){sym->bound, s->bindings, sym, s, load.slot, s->count};
    s->loads[s->count++] = load;
    s->bindings = sym->bound = bound;
    return bound;
}

static void name_load(binder *b, sh_jsym *sym)
{
    if (find(b, sym) == NULL) define(b, sym, SH_JLOAD_RESOLVE);
}

/* In an if the assignment may not happen, so the name must start with the caller's variable;
 * otherwise it starts empty. */
static void name_store(binder *b, sh_jsym *sym)
{
    sh_jbinding *bound = find(b, sym);
    if (bound != NULL && bound->owner == b->scope) return;
    if (bound != NULL)
        define(b, sym, SH_JLOAD_ALIAS);
    else
        define(b, sym, b->scope->branches > 0 ? SH_JLOAD_RESOLVE : SH_JLOAD_EMPTY);
}

/* Makes the name a parameter of the scope. It may be declared already: a target can name it twice.
 * */
static int name_declare(binder *b, sh_jsym *sym)
{
    sh_jbinding *bound = find(b, sym);
    if (bound == NULL || bound->owner != b->scope) return define(b, sym, SH_JLOAD_PARAM)->slot;
    b->scope->loads[bound->load].kind = SH_JLOAD_PARAM;
    return bound->slot;
}

/* First pass over a scope: collects its names in order, without entering inner scopes. The order of
 * the cases is that of Jinja: the value of a set is read before its target is assigned. */
static void analyze(binder *b, sh_jnode *node)
{
    switch (node->type) {
    case SH_JN_NAME:
        if (node->u.name.use == SH_JNAME_LOAD)
            name_load(b, node->u.name.sym);
        else if (node->u.name.use == SH_JNAME_STORE)
            name_store(b, node->u.name.sym);
        else
            name_declare(b, node->u.name.sym);
        break;
    case SH_JN_NSREF: name_load(b, node->u.name.sym); break;
    case SH_JN_BRANCH:
        each(b, node->u.branch.test, analyze);
        b->scope->branches++;
        all(b, &node->u.branch.body, analyze);
        b->scope->branches--;
        break;
    case SH_JN_MACRO: name_store(b, node->u.func->name); break;
    case SH_JN_SET:
        each(b, node->u.set.value, analyze);
        each(b, node->u.set.target, analyze);
        break;
    case SH_JN_FOR: each(b, node->u.loop->iter, analyze); break;
    case SH_JN_CALL_BLOCK: each(b, node->u.func->call, analyze); break;
    case SH_JN_FILTER_BLOCK: each(b, node->u.capture.filter, analyze); break;
    case SH_JN_SET_BLOCK: each(b, node->u.capture.target, analyze); break;
    case SH_JN_WITH: all(b, &node->u.with.values, analyze); break;
    case SH_JN_SCOPE:
    case SH_JN_BLOCK: break;
    default: kids(b, node, analyze); break;
    }
}

static void analyze_as_param(binder *b, sh_jnode *node)
{
    if (node->type == SH_JN_NAME)
        name_declare(b, node->u.name.sym);
    else
        kids(b, node, analyze_as_param);
}

static void scope_open(binder *b, scope *s, func *f)
{
    *s = (scope){.outer = b->scope, .func = f, .island = b->scope == NULL ? 0 : b->scope->island};
    b->scope = s;
}

/* Restores the bindings of the outer scope and hands over the initializations of this one. */
static void scope_close(binder *b, sh_jscope *out)
{
    scope *s = b->scope;
    for (sh_jbinding *bound = s->bindings; bound != NULL; bound = bound->next)
        bound->sym->bound = bound->shadowed;
    *out = (sh_jscope){s->loads, s->count};
    b->scope = s->outer;
}

static void bind(binder *b, sh_jnode *node);

/* Scopes. Each of these opens the scope, analyzes all of it, and only then binds it. */

static void bind_loop(binder *b, sh_jfor *loop)
{
    func own = {.depth = b->scope->func->depth + 1};
    func *f = loop->recursive ? &own : b->scope->func;
    scope s;
    each(b, loop->iter, bind);
    sh_jsym *name = sh_jparser_sym(b->parser, SH_STR("loop"));
    bool wants_loop = loop->recursive || reads_name(b, &loop->body, name);

    /* Three scopes, which do not see each other's names: the body, the test, the else. */
    scope_open(b, &s, f);
    loop->loop_slot = wants_loop ? name_declare(b, name) : -1;
    each(b, loop->target, analyze_as_param);
    all(b, &loop->body, analyze);
    each(b, loop->target, bind);
    all(b, &loop->body, bind);
    scope_close(b, &loop->body_scope);

    scope_open(b, &s, f);
    each(b, loop->test_target, analyze_as_param);
    each(b, loop->test, analyze);
    each(b, loop->test_target, bind);
    each(b, loop->test, bind);
    scope_close(b, &loop->test_scope);

    scope_open(b, &s, f);
    all(b, &loop->otherwise, analyze);
    all(b, &loop->otherwise, bind);
    scope_close(b, &loop->else_scope);
    loop->slot_count = own.slot_count;
}

/* The slot of caller, kwargs or varargs if the body reads it and no parameter has that name. */
static int special_slot(binder *b, sh_jfunc *f, const char *name, bool *is_param)
{
    sh_jsym *sym = sh_jparser_sym(b->parser, sh_str_of(name));
    bool asked = reads_name(b, &f->body, sym);
    *is_param = false;
    for (const sh_jnode *param = f->params.head; param != NULL; param = param->next)
        *is_param |= param->u.name.sym == sym;
    return asked && !*is_param ? name_declare(b, sym) : -1;
}

static void caller_check(binder *b, const sh_jfunc *f, const sh_jnode *node)
{
    uint32_t without = f->params.count - f->defaults.count;
    const sh_jnode *param = f->params.head;
    for (uint32_t i = 0; i < without; i++, param = param->next)
        if (sh_str_is(sh_jstr_str(param->u.name.sym->text), "caller"))
            sh_jparser_fail(b->parser, node->line,
                            "When defining macros or call blocks the special \"caller\" argument "
                            "must be omitted or be given a default.");
}

/* A macro or call block: parameters and body are one scope in a function of its own. The specials
 * are declared before the body is analyzed, or their names would resolve to the caller's variables.
 * */
static void bind_func(binder *b, sh_jnode *node)
{
    sh_jfunc *f = node->u.func;
    func own = {.depth = b->scope->func->depth + 1};
    scope s;
    bool unused;
    scope_open(b, &s, &own);
    f->caller_slot = special_slot(b, f, "caller", &f->takes_caller);
    f->kwargs_slot = special_slot(b, f, "kwargs", &unused);
    f->varargs_slot = special_slot(b, f, "varargs", &unused);
    sh_jsym *caller = sh_jparser_sym(b->parser, SH_STR("caller"));
    if (f->takes_caller && reads_name(b, &f->body, caller)) caller_check(b, f, node);
    all(b, &f->params, analyze);
    all(b, &f->defaults, analyze);
    all(b, &f->body, analyze);
    all(b, &f->params, bind);
    all(b, &f->defaults, bind);
    all(b, &f->body, bind);
    scope_close(b, &f->scope);
    f->slot_count = own.slot_count;
}

static void bind_block(binder *b, sh_jfunc *f)
{
    func own = {.depth = b->scope->func->depth + 1};
    scope s;
    scope_open(b, &s, &own);
    s.island = ++b->islands;
    all(b, &f->body, analyze);
    all(b, &f->body, bind);
    scope_close(b, &f->scope);
    f->slot_count = own.slot_count;
}

/* The target is bound outside, the filter inside of the block's scope, as in Jinja. */
static void bind_capture(binder *b, sh_jnode *node)
{
    scope s;
    each(b, node->u.capture.target, bind);
    scope_open(b, &s, b->scope->func);
    all(b, &node->u.capture.body, analyze);
    each(b, node->u.capture.filter, analyze);
    all(b, &node->u.capture.body, bind);
    each(b, node->u.capture.filter, bind);
    scope_close(b, &node->u.capture.scope);
}

/* Values are bound outside: `with a = a` reads the outer a. */
static void bind_with(binder *b, sh_jnode *node)
{
    scope s;
    all(b, &node->u.with.values, bind);
    scope_open(b, &s, b->scope->func);
    all(b, &node->u.with.targets, analyze);
    all(b, &node->u.with.body, analyze);
    all(b, &node->u.with.targets, bind);
    all(b, &node->u.with.body, bind);
    scope_close(b, &node->u.with.scope);
}

static sh_jref bound_ref(binder *b, const sh_jsym *sym)
{
    sh_jbinding *bound = find(b, sym);
    SH_ASSERT(bound != NULL);
    return ref_to(b, bound);
}

/* An unknown filter or test is an error at once, but not inside an if: Jinja compiles it there and
 * fails only when it is used, so that a template can test for a filter first. */
static void bind_builtin(binder *b, sh_jnode *node)
{
    const sh_jbuiltin *builtin = node->u.call.func;
    if ((builtin == NULL || builtin->fn == NULL) && !b->scope->soft)
        sh_jbuiltin_missing(b->run, node->type == SH_JN_FILTER ? "filter" : "test",
                            sh_jstr_str(node->u.call.name), builtin);
    kids(b, node, bind);
}

/* Second pass: sets the slot of each name and processes inner scopes. */
static void bind(binder *b, sh_jnode *node)
{
    bool soft = b->scope->soft;
    switch (node->type) {
    case SH_JN_NAME:
    case SH_JN_NSREF: node->u.name.ref = bound_ref(b, node->u.name.sym); break;
    case SH_JN_FILTER:
    case SH_JN_TEST: bind_builtin(b, node); break;
    case SH_JN_IF:
    case SH_JN_COND:
        b->scope->soft = true;
        kids(b, node, bind);
        b->scope->soft = soft;
        break;
    case SH_JN_FOR: bind_loop(b, node->u.loop); break;
    case SH_JN_MACRO:
        node->u.func->ref = bound_ref(b, node->u.func->name);
        bind_func(b, node);
        break;
    case SH_JN_CALL_BLOCK:
        each(b, node->u.func->call, bind);
        bind_func(b, node);
        break;
    case SH_JN_SET_BLOCK:
    case SH_JN_FILTER_BLOCK: bind_capture(b, node); break;
    case SH_JN_WITH:
    case SH_JN_SCOPE: bind_with(b, node); break;
    case SH_JN_BLOCK: bind_block(b, node->u.func); break;
    default: kids(b, node, bind); break;
    }
}

void sh_jtree_bind(sh_jparser *p, sh_jtree *tree)
{
    binder b = {.parser = p, .run = p->run};
    func own = {0};
    scope s;
    scope_open(&b, &s, &own);
    all(&b, &tree->body, analyze);
    all(&b, &tree->body, bind);
    scope_close(&b, &tree->scope);
    tree->slot_count = own.slot_count;
}
