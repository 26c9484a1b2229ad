/* The tests that can follow `is`. Each takes the value as `self` and returns a bool.
 *
 * The tests of types only look at the kind, so they are safe for undefined values. `true` and
 * `boolean` are about the type as well: 1 is not true. */
#include "text/jinja/iter.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

static bool remainder_is(sh_jrun *run, sh_jv v, sh_jv by, int64_t rest)
{
    return sh_jv_eq(run, sh_jv_binary(run, SH_JOP_MOD, v, by), sh_jv_int(rest));
}

static sh_jv is_odd(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(remainder_is(run, call->self, sh_jv_int(2), 1));
}

static sh_jv is_even(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(remainder_is(run, call->self, sh_jv_int(2), 0));
}

static sh_jv is_divisibleby(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(remainder_is(run, call->self, call->argv[0], 0));
}

static sh_jv is_defined(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind != SH_JV_UNDEFINED);
}

static sh_jv is_undefined(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_UNDEFINED);
}

/* True also for filters that exist in Jinja but are not supported here. */
static sh_jv is_filter(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_STR &&
                      sh_jfilter_find(sh_jstr_str(call->self.u.str)) != NULL);
}

static sh_jv is_test(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_STR &&
                      sh_jtest_find(sh_jstr_str(call->self.u.str)) != NULL);
}

static sh_jv is_none(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_NONE);
}

static sh_jv is_boolean(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_BOOL);
}

static sh_jv is_true(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_BOOL && call->self.u.b);
}

static sh_jv is_false(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_BOOL && !call->self.u.b);
}

/* Jinja excludes booleans here, although Python counts them as integers; `number` includes them. */
static sh_jv is_integer(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_INT || call->self.kind == SH_JV_BIG);
}

static sh_jv is_float(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_FLOAT);
}

static sh_jv is_number(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    double value;
    return sh_jv_bool(sh_jv_as_double(call->self, &value));
}

static sh_jv is_lower(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jtext_is_case(run, sh_jv_str(run, call->self), false));
}

static sh_jv is_upper(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jtext_is_case(run, sh_jv_str(run, call->self), true));
}

static sh_jv is_string(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_STR);
}

static sh_jv is_mapping(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_DICT);
}

/* Has a length and items; this includes undefined, as in Jinja. */
static sh_jv is_sequence(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    sh_jv_kind kind = call->self.kind;
    return sh_jv_bool(kind == SH_JV_STR || kind == SH_JV_DICT || kind == SH_JV_RANGE ||
                      kind == SH_JV_UNDEFINED || sh_jv_is_list(call->self));
}

/* The loop object is iterable in Jinja; here the test says so, but a loop over it is an error. */
static sh_jv is_iterable(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(sh_jv_iterable(call->self) || call->self.kind == SH_JV_LOOP);
}

/* Jinja's Undefined has a __call__, which raises the error for its use. */
static sh_jv is_callable(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    switch (call->self.kind) {
    case SH_JV_UNDEFINED:
    case SH_JV_MACRO:
    case SH_JV_FUNC:
    case SH_JV_METHOD:
    case SH_JV_LOOP:
    case SH_JV_JOINER: return sh_jv_bool(true);
    default: return sh_jv_bool(false);
    }
}

/* Numbers and texts have no identity here: equal ones are the same object. */
static sh_jv is_sameas(sh_jrun *run, const sh_jcall *call)
{
    sh_jv a = call->self, b = call->argv[0];
    if (a.kind != b.kind) return sh_jv_bool(false);
    if (a.kind <= SH_JV_STR && a.kind != SH_JV_UNDEFINED) return sh_jv_bool(sh_jv_eq(run, a, b));
    return sh_jv_bool(a.u.any == b.u.any);
}

static sh_jv is_escaped(sh_jrun *run, const sh_jcall *call)
{
    (void)run;
    return sh_jv_bool(call->self.kind == SH_JV_STR && call->self.u.str->markup);
}

static sh_jv is_in(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_contains(run, call->argv[0], call->self));
}

static sh_jv is_eq(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_EQ, call->self, call->argv[0]));
}

static sh_jv is_ne(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_NE, call->self, call->argv[0]));
}

static sh_jv is_gt(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_GT, call->self, call->argv[0]));
}

static sh_jv is_ge(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_GE, call->self, call->argv[0]));
}

static sh_jv is_lt(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_LT, call->self, call->argv[0]));
}

static sh_jv is_le(sh_jrun *run, const sh_jcall *call)
{
    return sh_jv_bool(sh_jv_compare(run, SH_JOP_LE, call->self, call->argv[0]));
}

static const sh_jbuiltin tests[] = {
    {"odd", is_odd, "", 0},
    {"even", is_even, "", 0},
    {"divisibleby", is_divisibleby, "num", 1},
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"filter", is_filter, "", 0},
    {"test", is_test, "", 0},
    {"none", is_none, "", 0},
    {"boolean", is_boolean, "", 0},
    {"false", is_false, "", 0},
    {"true", is_true, "", 0},
    {"integer", is_integer, "", 0},
    {"float", is_float, "", 0},
    {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"number", is_number, "", 0},
    {"sequence", is_sequence, "", 0},
    {"iterable", is_iterable, "", 0},
    {"callable", is_callable, "", 0},
    {"sameas", is_sameas, "other", 1},
    {"escaped", is_escaped, "", 0},
    {"in", is_in, "seq", 1},
    {"==", is_eq, "other", 1},
    {"eq", is_eq, "other", 1},
    {"equalto", is_eq, "other", 1},
    {"!=", is_ne, "other", 1},
    {"ne", is_ne, "other", 1},
    {">", is_gt, "other", 1},
    {"gt", is_gt, "other", 1},
    {"greaterthan", is_gt, "other", 1},
    {">=", is_ge, "other", 1},
    {"ge", is_ge, "other", 1},
    {"<", is_lt, "other", 1},
    {"lt", is_lt, "other", 1},
    {"lessthan", is_lt, "other", 1},
    {"<=", is_le, "other", 1},
    {"le", is_le, "other", 1},
};

const sh_jtable sh_jtests = {tests, SH_COUNT_OF(tests)};
