/* Calls of any callable value, and the one place that binds arguments to the parameters of
 * builtins. With names declared in the tables, the builtins themselves need not count or match
 * arguments. */
#include "text/jinja/call.h"

#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

#include <string.h>

/* A linear search with a check of the first letter: tables have at most some dozens of rows, and
 * the parser looks up filters and tests only once. */
const sh_jbuiltin *sh_jtable_find(const sh_jtable *table, sh_str name)
{
    if (name.len == 0) return NULL;
    for (size_t i = 0; i < table->count; i++) {
        const char *row = table->rows[i].name;
        if (row[0] == name.ptr[0] && sh_str_is(name, row)) return &table->rows[i];
    }
    return NULL;
}

const sh_jbuiltin *sh_jfilter_find(sh_str name)
{
    const sh_jbuiltin *func = sh_jtable_find(&sh_jfilters, name);
    return func != NULL ? func : sh_jtable_find(&sh_jseq_filters, name);
}

const sh_jbuiltin *sh_jtest_find(sh_str name)
{
    return sh_jtable_find(&sh_jtests, name);
}

void sh_jbuiltin_missing(sh_jrun *run, const char *what, sh_str name, const sh_jbuiltin *func)
{
    int len = (int)(name.len < 100 ? name.len : 100);
    if (func == NULL) sh_jrun_error(run, "No %s named '%.*s'.", what, len, name.ptr);
    sh_jrun_fail(run, SH_ERR_UNSUPPORTED, "the %s '%.*s' is not supported", what, len, name.ptr);
}

static int param_index(const char *params, sh_str name)
{
    sh_str rest = sh_str_of(params), word;
    for (int i = 0; sh_str_cut(&rest, ' ', &word); i++)
        if (sh_str_eq(word, name)) return i;
    return -1;
}

static int param_count(const char *params)
{
    int count = params[0] != '\0';
    for (; *params != '\0'; params++) count += *params == ' ';
    return count;
}

/* Keyword arguments; a parameter that a positional argument has filled is an error, as in Python.
 * */
static void named_bind(sh_jrun *run, const sh_jbuiltin *func, const sh_jdict *named, sh_jv *argv)
{
    for (uint32_t i = 0; i < named->count; i++) {
        const sh_jstr *name = named->entries[i].key.u.str;
        int at = param_index(func->params, sh_jstr_str(name));
        if (at < 0)
            sh_jrun_error(run, "%s() got an unexpected keyword argument '%.*s'", func->name,
                          (int)name->len, name->ptr);
        if (argv[at].kind != SH_JV_MISSING)
            sh_jrun_error(run, "%s() got multiple values for argument '%.*s'", func->name,
                          (int)name->len, name->ptr);
        argv[at] = named->entries[i].value;
    }
}

static void args_bind(sh_jrun *run, const sh_jbuiltin *func, const sh_jargs *args, sh_jv *argv)
{
    int count = param_count(func->params);
    SH_ASSERT(count <= SH_JPARAMS_MAX);
    if (args->pos_count > (size_t)count)
        sh_jrun_error(run, "%s() takes at most %d arguments (%zu given)", func->name, count,
                      args->pos_count);
    for (size_t i = 0; i < args->pos_count; i++) argv[i] = args->pos[i];
    if (args->named != NULL) named_bind(run, func, args->named, argv);
    sh_str rest = sh_str_of(func->params), word;
    for (int i = 0; i < func->required && sh_str_cut(&rest, ' ', &word); i++)
        if (argv[i].kind == SH_JV_MISSING)
            sh_jrun_error(run, "%s() missing required argument: '%.*s'", func->name, (int)word.len,
                          word.ptr);
}

sh_jv sh_jbuiltin_call(sh_jrun *run, const sh_jbuiltin *func, sh_jv self, const sh_jargs *args)
{
    sh_jcall call = {.self = self, .args = args};
    if (func->params[0] != '*') args_bind(run, func, args, call.argv);
    sh_jrun_enter(run);
    sh_jv out = func->fn(run, &call);
    sh_jrun_leave(run);
    /* The result never points into `call`: a builtin copies what it keeps, see filters_seq.c. */
    /* cppcheck-suppress returnDanglingLifetime */
    return out;
}

static sh_jv loop_call(sh_jrun *run, const sh_jloop *loop, const sh_jargs *args)
{
    if (loop->node == NULL)
        sh_jrun_error(run, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->pos_count != 1 || args->named != NULL)
        sh_jrun_error(run, "loop() takes one argument, the items to iterate over");
    return sh_jloop_call(run, loop, args->pos[0]);
}

/* The first call gives an empty text, all others the separator. */
static sh_jv joiner_call(sh_jrun *run, sh_jjoiner *joiner)
{
    if (joiner->used) return joiner->sep;
    joiner->used = true;
    return sh_jv_lit(run, "");
}

sh_jv sh_jv_call(sh_jrun *run, sh_jv callee, const sh_jargs *args)
{
    switch (callee.kind) {
    case SH_JV_UNDEFINED: sh_jrun_undefined(run, callee);
    case SH_JV_MACRO: return sh_jmacro_call(run, callee.u.macro, args);
    case SH_JV_FUNC: return sh_jbuiltin_call(run, callee.u.func, SH_JV_NOTHING, args);
    case SH_JV_METHOD:
        return sh_jbuiltin_call(run, callee.u.method->func, callee.u.method->self, args);
    case SH_JV_LOOP: return loop_call(run, callee.u.loop, args);
    case SH_JV_JOINER: return joiner_call(run, callee.u.joiner);
    default: sh_jrun_error(run, "'%s' object is not callable", sh_jv_type(callee));
    }
}

int64_t sh_jarg_int(sh_jrun *run, sh_jv arg, int64_t fallback)
{
    int64_t value;
    if (arg.kind == SH_JV_MISSING) return fallback;
    if (arg.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, arg);
    if (!sh_jv_as_int(arg, &value))
        sh_jrun_error(run, "'%s' object cannot be interpreted as an integer", sh_jv_type(arg));
    return value;
}

bool sh_jarg_bool(sh_jv arg, bool fallback)
{
    return arg.kind == SH_JV_MISSING ? fallback : sh_jv_truth(arg);
}

const sh_jstr *sh_jarg_str(sh_jrun *run, sh_jv arg, const char *what)
{
    if (arg.kind == SH_JV_STR) return arg.u.str;
    sh_jrun_error(run, "%s must be str, not %s", what, sh_jv_type(arg));
}
