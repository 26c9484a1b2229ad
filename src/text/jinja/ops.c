/* Operators with Python's semantics: floor division and modulo that round towards minus infinity,
 * int and float kept apart, True and False as 1 and 0, and Python's error texts.
 *
 * Python's integers have no limit, ours have 64 bits: an overflow is an error, never a wrong
 * result.
 *
 * Sorting is a merge sort of our own: it has to be stable, as Python's is, and a comparison may end
 * the run by longjmp, which would leak the buffer that glibc's qsort() allocates. */
#include "text/jinja/ops.h"

#include "text/jinja/iter.h"
#include "text/jinja/print.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const symbols[] = {
    [SH_JOP_ADD] = "+",           [SH_JOP_SUB] = "-",       [SH_JOP_MUL] = "*", [SH_JOP_DIV] = "/",
    [SH_JOP_POW] = "** or pow()", [SH_JOP_FLOORDIV] = "//", [SH_JOP_MOD] = "%", [SH_JOP_LT] = "<",
    [SH_JOP_LE] = "<=",           [SH_JOP_GT] = ">",        [SH_JOP_GE] = ">=",
};

static SH_NORETURN void operands_fail(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b)
{
    sh_jrun_error(run, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op],
                  sh_jv_type(a), sh_jv_type(b));
}

static SH_NORETURN void overflow_fail(sh_jrun *run)
{
    sh_jrun_fail(run, SH_ERR_LIMIT, "an integer does not fit in 64 bits");
}

/* C truncates towards zero, Python rounds down: subtract one if there is a remainder and the signs
 * differ. */
static int64_t int_floordiv(sh_jrun *run, int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1) overflow_fail(run);
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

/* The result has the sign of b. */
static int64_t int_mod(int64_t a, int64_t b)
{
    if (b == -1) return 0; /* INT64_MIN % -1 traps on x86 */
    int64_t mod = a % b;
    return mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod;
}

/* By squaring. The base is not squared after the last bit, since that could overflow for nothing.
 * */
static sh_jv int_pow(sh_jrun *run, int64_t base, int64_t exp)
{
    if (exp < 0) {
        if (base == 0) sh_jrun_error(run, "0.0 cannot be raised to a negative power");
        return sh_jv_float(pow((double)base, (double)exp));
    }
    int64_t value = 1;
    for (; exp > 0; exp >>= 1) {
        if ((exp & 1) != 0 && __builtin_mul_overflow(value, base, &value)) overflow_fail(run);
        if (exp > 1 && __builtin_mul_overflow(base, base, &base)) overflow_fail(run);
    }
    return sh_jv_int(value);
}

static sh_jv int_binary(sh_jrun *run, sh_jop op, int64_t a, int64_t b)
{
    int64_t value = 0;
    bool over = false;
    switch (op) {
    case SH_JOP_ADD: over = __builtin_add_overflow(a, b, &value); break;
    case SH_JOP_SUB: over = __builtin_sub_overflow(a, b, &value); break;
    case SH_JOP_MUL: over = __builtin_mul_overflow(a, b, &value); break;
    case SH_JOP_DIV:
        if (b == 0) sh_jrun_error(run, "division by zero");
        return sh_jv_float((double)a / (double)b);
    case SH_JOP_FLOORDIV:
        if (b == 0) sh_jrun_error(run, "integer division or modulo by zero");
        value = int_floordiv(run, a, b);
        break;
    case SH_JOP_MOD:
        if (b == 0) sh_jrun_error(run, "integer modulo by zero");
        value = int_mod(a, b);
        break;
    default: return int_pow(run, a, b);
    }
    if (over) overflow_fail(run);
    return sh_jv_int(value);
}

static double float_mod(double a, double b)
{
    double mod = fmod(a, b);
    if (mod == 0) return copysign(0, b);
    return (b < 0) != (mod < 0) ? mod + b : mod;
}

/* By way of the remainder, as CPython does it: floor(a / b) is wrong where a / b rounds up. */
static double float_floordiv(double a, double b)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysign(0, a / b);
    double floored = floor(div);
    return div - floored > 0.5 ? floored + 1 : floored;
}

/* Python raises an error or returns a complex number where C returns inf or NaN. */
static double float_pow(sh_jrun *run, double a, double b)
{
    if (a == 0 && b < 0) sh_jrun_error(run, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        sh_jrun_error(run, "complex numbers are not supported");
    double value = pow(a, b);
    if (isinf(value) && isfinite(a) && isfinite(b))
        sh_jrun_error(run, "(34, 'Numerical result out of range')");
    return value;
}

static sh_jv float_binary(sh_jrun *run, sh_jop op, double a, double b)
{
    switch (op) {
    case SH_JOP_ADD: return sh_jv_float(a + b);
    case SH_JOP_SUB: return sh_jv_float(a - b);
    case SH_JOP_MUL: return sh_jv_float(a * b);
    case SH_JOP_DIV:
        if (b == 0) sh_jrun_error(run, "float division by zero");
        return sh_jv_float(a / b);
    case SH_JOP_FLOORDIV:
        if (b == 0) sh_jrun_error(run, "float floor division by zero");
        return sh_jv_float(float_floordiv(a, b));
    case SH_JOP_MOD:
        if (b == 0) sh_jrun_error(run, "float modulo");
        return sh_jv_float(float_mod(a, b));
    default: return sh_jv_float(float_pow(run, a, b));
    }
}

/* If one side is markup the other one is escaped, and the result is markup. */
static sh_jv str_add(sh_jrun *run, sh_jv a, sh_jv b)
{
    const sh_jstr *left = a.u.str, *right = b.u.str;
    if (left->markup != right->markup) {
        left = sh_jv_escape(run, a);
        right = sh_jv_escape(run, b);
    }
    return sh_jv_of_str(sh_jstr_cat(run, left, right));
}

static sh_jv list_add(sh_jrun *run, sh_jv a, sh_jv b)
{
    const sh_jlist *left = a.u.list, *right = b.u.list;
    sh_jlist *list = sh_jlist_new(run, left->count + right->count);
    list->count = list->cap;
    if (left->count > 0) memcpy(list->items, left->items, left->count * sizeof(sh_jv));
    if (right->count > 0)
        memcpy(list->items + left->count, right->items, right->count * sizeof(sh_jv));
    return (sh_jv){.kind = a.kind, .u.list = list};
}

/* Only text and lists of the same kind can be added; the error for str and list differs from the
 * general one. */
static sh_jv add(sh_jrun *run, sh_jv a, sh_jv b)
{
    if (a.kind == SH_JV_STR && b.kind == SH_JV_STR) return str_add(run, a, b);
    if (sh_jv_is_list(a) && a.kind == b.kind) return list_add(run, a, b);
    if ((a.kind == SH_JV_STR && !a.u.str->markup) || sh_jv_is_list(a))
        sh_jrun_error(run, "can only concatenate %s (not \"%s\") to %s", sh_jv_type(a),
                      sh_jv_type(b), sh_jv_type(a));
    operands_fail(run, SH_JOP_ADD, a, b);
}

/* The size is computed with an overflow check and then hits the limits of the run. */
static sh_jv repeat(sh_jrun *run, sh_jv v, int64_t times)
{
    size_t count = times < 0 ? 0 : (size_t)times;
    if (v.kind == SH_JV_STR) {
        size_t mark = sh_jrun_mark(run);
        sh_jrun_pad(run, sh_jstr_str(v.u.str), v.u.str->len == 0 ? 0 : count);
        const sh_jstr *str = sh_jrun_take(run, mark);
        return sh_jv_of_str(v.u.str->markup ? sh_jstr_mark(run, str) : str);
    }
    size_t each = v.u.list->count, total;
    if (each == 0) count = 0;
    if (__builtin_mul_overflow(each, count, &total)) total = SIZE_MAX;
    sh_jlist *list = sh_jlist_new(run, total);
    for (size_t i = 0; i < count; i++)
        memcpy(list->items + i * each, v.u.list->items, each * sizeof(sh_jv));
    list->count = total;
    return (sh_jv){.kind = v.kind, .u.list = list};
}

static bool is_sequence(sh_jv v)
{
    return v.kind == SH_JV_STR || sh_jv_is_list(v);
}

static sh_jv multiply(sh_jrun *run, sh_jv a, sh_jv b)
{
    int64_t times;
    if (is_sequence(a) && sh_jv_as_int(b, &times)) return repeat(run, a, times);
    if (is_sequence(b) && sh_jv_as_int(a, &times)) return repeat(run, b, times);
    if (is_sequence(a) || is_sequence(b))
        sh_jrun_error(run, "can't multiply sequence by non-int of type '%s'",
                      sh_jv_type(is_sequence(a) ? b : a));
    operands_fail(run, SH_JOP_MUL, a, b);
}

/* The order of the checks matters: '%s' % x accepts an undefined x, all other operators fail on it.
 * */
sh_jv sh_jv_binary(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b)
{
    int64_t i, j;
    double x, y;
    if (a.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, a);
    if (op == SH_JOP_MOD && a.kind == SH_JV_STR) return sh_jstr_percent(run, a.u.str, b);
    if (b.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, b);
    if (sh_jv_as_int(a, &i) && sh_jv_as_int(b, &j)) return int_binary(run, op, i, j);
    if (a.kind == SH_JV_BIG || b.kind == SH_JV_BIG) overflow_fail(run);
    if (sh_jv_as_double(a, &x) && sh_jv_as_double(b, &y)) return float_binary(run, op, x, y);
    if (op == SH_JOP_ADD) return add(run, a, b);
    if (op == SH_JOP_MUL) return multiply(run, a, b);
    operands_fail(run, op, a, b);
}

sh_jv sh_jv_negate(sh_jrun *run, sh_jv v, bool minus)
{
    int64_t i;
    if (v.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, v);
    if (v.kind == SH_JV_FLOAT) return sh_jv_float(minus ? -v.u.f : v.u.f);
    if (v.kind == SH_JV_BIG) overflow_fail(run);
    if (!sh_jv_as_int(v, &i))
        sh_jrun_error(run, "bad operand type for unary %c: '%s'", minus ? '-' : '+', sh_jv_type(v));
    if (minus && i == INT64_MIN) overflow_fail(run);
    return sh_jv_int(minus ? -i : i);
}

/* Comparison and membership. Order is defined between numbers, between texts and between lists of
 * the same kind; everything else is an error, as in Python 3. */

static bool order_holds(sh_jop op, int order)
{
    switch (op) {
    case SH_JOP_LT: return order < 0;
    case SH_JOP_LE: return order <= 0;
    case SH_JOP_GT: return order > 0;
    default: return order >= 0;
    }
}

/* Bytewise: UTF-8 sorts like code points, which is Python's order. */
static int str_order(sh_str a, sh_str b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len == 0 ? 0 : memcmp(a.ptr, b.ptr, len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* The first pair of items that differ decides. */
static bool list_compare(sh_jrun *run, sh_jop op, const sh_jlist *a, const sh_jlist *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!sh_jv_eq(run, a->items[i], b->items[i]))
            return sh_jv_compare(run, op, a->items[i], b->items[i]);
    return order_holds(op, (a->count > b->count) - (a->count < b->count));
}

static bool number_compare(sh_jop op, double x, double y)
{
    switch (op) { /* order_holds() would be wrong for NaN, which has no order */
    case SH_JOP_LT: return x < y;
    case SH_JOP_LE: return x <= y;
    case SH_JOP_GT: return x > y;
    default: return x >= y;
    }
}

static bool order_compare(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b)
{
    int64_t i, j;
    double x, y;
    if (a.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, a);
    if (b.kind == SH_JV_UNDEFINED) sh_jrun_undefined(run, b);
    if (sh_jv_as_int(a, &i) && sh_jv_as_int(b, &j)) return order_holds(op, (i > j) - (i < j));
    if (sh_jv_as_double(a, &x) && sh_jv_as_double(b, &y)) return number_compare(op, x, y);
    if (a.kind == SH_JV_STR && b.kind == SH_JV_STR) {
        sh_jrun_charge(run, a.u.str->len / 64);
        return order_holds(op, str_order(sh_jstr_str(a.u.str), sh_jstr_str(b.u.str)));
    }
    if (sh_jv_is_list(a) && a.kind == b.kind) {
        sh_jrun_enter(run);
        bool holds = list_compare(run, op, a.u.list, b.u.list);
        sh_jrun_leave(run);
        return holds;
    }
    sh_jrun_error(run, "'%s' not supported between instances of '%s' and '%s'", symbols[op],
                  sh_jv_type(a), sh_jv_type(b));
}

bool sh_jv_compare(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b)
{
    switch (op) {
    case SH_JOP_EQ: return sh_jv_eq(run, a, b);
    case SH_JOP_NE: return !sh_jv_eq(run, a, b);
    case SH_JOP_IN: return sh_jv_contains(run, b, a);
    case SH_JOP_NOT_IN: return !sh_jv_contains(run, b, a);
    default: return order_compare(run, op, a, b);
    }
}

bool sh_jv_less(sh_jrun *run, sh_jv a, sh_jv b)
{
    sh_jrun_charge(run, 1);
    return order_compare(run, SH_JOP_LT, a, b);
}

static bool range_contains(const sh_jrange *range, int64_t i)
{
    if (range->count == 0) return false;
    int64_t last = sh_jrange_item(range, range->count - 1);
    bool up = range->step > 0;
    if (i < (up ? range->start : last) || i > (up ? last : range->start)) return false;
    /* Unsigned, since the distance may not fit in an int64_t. */
    uint64_t step = up ? (uint64_t)range->step : -(uint64_t)range->step;
    uint64_t away = up ? (uint64_t)i - (uint64_t)range->start
                       : (uint64_t)range->start - (uint64_t)i;
    return away % step == 0;
}

static bool str_contains(sh_jrun *run, const sh_jstr *str, sh_jv v)
{
    if (v.kind != SH_JV_STR)
        sh_jrun_error(run, "'in <string>' requires string as left operand, not %s", sh_jv_type(v));
    sh_jrun_charge(run, str->len / 16);
    return v.u.str->len == 0 || sh_str_find(sh_jstr_str(str), sh_jstr_str(v.u.str), 0) < str->len;
}

bool sh_jv_contains(sh_jrun *run, sh_jv seq, sh_jv v)
{
    int64_t i;
    switch (seq.kind) {
    case SH_JV_STR: return str_contains(run, seq.u.str, v);
    case SH_JV_DICT:
    case SH_JV_KEYS:
        if (!sh_jv_hashable(run, v)) sh_jrun_error(run, "unhashable type: '%s'", sh_jv_type(v));
        return sh_jdict_find(run, seq.u.dict, v) != NULL;
    case SH_JV_RANGE:
        if (sh_jv_as_int(v, &i)) return range_contains(seq.u.range, i);
        break;
    default: break;
    }
    if (!sh_jv_iterable(seq))
        sh_jrun_error(run, "argument of type '%s' is not iterable", sh_jv_type(seq));
    sh_jiter *iter = sh_jv_iter(run, seq);
    sh_jv item;
    while (sh_jiter_next(run, iter, &item))
        if (sh_jv_eq(run, item, v)) return true;
    return false;
}

/* Takes from the right half only if that is strictly smaller (or greater, in reverse): stable. */
static void merge(sh_jrun *run, sh_jentry *from, sh_jentry *to, size_t mid, size_t count,
                  bool reverse)
{
    size_t a = 0, b = mid;
    for (size_t i = 0; i < count; i++) {
        bool right = a == mid;
        if (!right && b < count)
            right = reverse ? sh_jv_less(run, from[a].key, from[b].key)
                            : sh_jv_less(run, from[b].key, from[a].key);
        to[i] = right ? from[b++] : from[a++];
    }
}

static void merge_sort(sh_jrun *run, sh_jentry *entries, sh_jentry *spare, size_t count,
                       bool reverse)
{
    if (count < 2) return;
    size_t mid = count / 2;
    merge_sort(run, entries, spare, mid, reverse);
    merge_sort(run, entries + mid, spare + mid, count - mid, reverse);
    merge(run, entries, spare, mid, count, reverse);
    memcpy(entries, spare, count * sizeof(*entries));
}

void sh_jentries_sort(sh_jrun *run, sh_jentry *entries, size_t count, bool reverse)
{
    merge_sort(run, entries, sh_jrun_array(run, count, sizeof(*entries)), count, reverse);
}

const sh_jentry *sh_jdict_sorted(sh_jrun *run, const sh_jdict *dict)
{
    sh_jentry *entries = sh_jrun_array(run, dict->count, sizeof(*entries));
    if (dict->count > 0) memcpy(entries, dict->entries, dict->count * sizeof(*entries));
    sh_jentries_sort(run, entries, dict->count, false);
    return entries;
}
