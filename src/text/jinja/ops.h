/* ops.h - operators, comparison, subscripts and attributes, with Python's rules and errors.
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_OPS_H
#define SH_TEXT_JINJA_OPS_H

#include "text/jinja/call.h"
#include "text/jinja/node.h"

sh_jv sh_jv_binary(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b);
sh_jv sh_jv_negate(sh_jrun *run, sh_jv v, bool minus); /* -v, or +v */
bool sh_jv_compare(sh_jrun *run, sh_jop op, sh_jv a, sh_jv b);
bool sh_jv_contains(sh_jrun *run, sh_jv seq, sh_jv v);

/* a < b, for sorting. */
bool sh_jv_less(sh_jrun *run, sh_jv a, sh_jv b);

/* Sorts entries by key. Stable, also with `reverse`: equal entries keep their order. */
void sh_jentries_sort(sh_jrun *run, sh_jentry *entries, size_t count, bool reverse);

/* The entries of a dict in the order of its keys. */
const sh_jentry *sh_jdict_sorted(sh_jrun *run, const sh_jdict *dict);

/* v.name and v[key] as Jinja looks them up: first the attribute and then the item, or the other way
 * round. Undefined if there is neither. */
sh_jv sh_jv_attr(sh_jrun *run, sh_jv v, const sh_jstr *name);
sh_jv sh_jv_item(sh_jrun *run, sh_jv v, sh_jv key);

/* The attribute only; false if there is none. */
bool sh_jv_attr_only(sh_jrun *run, sh_jv v, sh_str name, sh_jv *out);

/* text % args and text.format(args) (format.c). */
sh_jv sh_jstr_percent(sh_jrun *run, const sh_jstr *format, sh_jv args);
sh_jv sh_jstr_format(sh_jrun *run, const sh_jstr *format, const sh_jargs *args);

/* int(text) and float(text) of Python: white space around and underscores inside are allowed. */
bool sh_jstr_to_int(const sh_jstr *str, int base, int64_t *out, bool *too_big);
bool sh_jstr_to_double(sh_jrun *run, const sh_jstr *str, double *out);

#endif
