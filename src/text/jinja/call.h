/* call.h - calls: arguments, builtins, and the tables of builtins.
 *
 * A builtin is a filter, a test, a method or a global function. It declares the names of its
 * parameters, so that one place binds positional and named arguments and reports errors. The value
 * that a filter or test applies to, or the object of a method, is passed as `self`.
 *
 * Threads: the tables are constant. */
#ifndef SH_TEXT_JINJA_CALL_H
#define SH_TEXT_JINJA_CALL_H

#include "text/jinja/run.h"

typedef struct {
    const sh_jv *pos;
    size_t pos_count;
    sh_jdict *named; /* NULL: none */
} sh_jargs;

enum { SH_JPARAMS_MAX = 6 };

typedef struct {
    sh_jv self;
    sh_jv argv[SH_JPARAMS_MAX]; /* in the order of params; MISSING if not given */
    const sh_jargs *args;       /* all arguments, for builtins with params "*" */
} sh_jcall;

typedef sh_jv (*sh_jbuiltin_fn)(sh_jrun *run, const sh_jcall *call);

struct sh_jbuiltin {
    const char *name;
    sh_jbuiltin_fn fn;  /* NULL: exists in Jinja but is not supported here */
    const char *params; /* names separated by spaces, or "*": the function handles args itself */
    int required;
};

typedef struct {
    const sh_jbuiltin *rows;
    size_t count;
} sh_jtable;

extern const sh_jtable sh_jfilters, sh_jseq_filters, sh_jtests, sh_jglobals;
extern const sh_jtable sh_jstr_methods, sh_jdict_methods, sh_jlist_methods, sh_jtuple_methods;
extern const sh_jtable sh_jloop_methods, sh_jcycler_methods, sh_jrange_methods, sh_jdict_statics;

const sh_jbuiltin *sh_jtable_find(const sh_jtable *table, sh_str name);
const sh_jbuiltin *sh_jfilter_find(sh_str name);
const sh_jbuiltin *sh_jtest_find(sh_str name);

/* Ends the run with the error for a filter or test that is unknown or not supported. */
SH_NORETURN void sh_jbuiltin_missing(sh_jrun *run, const char *what, sh_str name,
                                     const sh_jbuiltin *func);

sh_jv sh_jbuiltin_call(sh_jrun *run, const sh_jbuiltin *func, sh_jv self, const sh_jargs *args);

/* Calls any value; an error if it is not callable. */
sh_jv sh_jv_call(sh_jrun *run, sh_jv callee, const sh_jargs *args);

/* The text that a macro renders (exec.c). */
sh_jv sh_jmacro_call(sh_jrun *run, const sh_jmacro *macro, const sh_jargs *args);

/* The text of a recursive loop over `v` (exec.c). */
sh_jv sh_jloop_call(sh_jrun *run, const sh_jloop *loop, sh_jv v);

/* An argument converted to the wanted type, or the fallback if it was not given. `what` names it in
 * errors. */
int64_t sh_jarg_int(sh_jrun *run, sh_jv arg, int64_t fallback);
bool sh_jarg_bool(sh_jv arg, bool fallback);
const sh_jstr *sh_jarg_str(sh_jrun *run, sh_jv arg, const char *what);
static inline bool sh_jarg_given(sh_jv arg)
{
    return arg.kind != SH_JV_MISSING && arg.kind != SH_JV_NONE;
}

#endif
