/* print.h - values as text, as written by Python's str(), repr() and json.dumps().
 *
 * The _put functions append to the run's output; to get a text value, text is put on top of the
 * output and taken off again (see run.h).
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_PRINT_H
#define SH_TEXT_JINJA_PRINT_H

#include "text/jinja/run.h"

void sh_jv_put(sh_jrun *run, sh_jv v);      /* str() */
void sh_jv_put_repr(sh_jrun *run, sh_jv v); /* repr() */
const sh_jstr *sh_jv_str(sh_jrun *run, sh_jv v);
const sh_jstr *sh_jv_repr(sh_jrun *run, sh_jv v);

/* str() that keeps markup as it is. */
const sh_jstr *sh_jv_soft_str(sh_jrun *run, sh_jv v);

/* The shortest text that reads back as the same double, in the form of Python's repr(). */
void sh_double_repr(double f, char out[32]);

/* Text with the five HTML characters escaped, as markup; markup is returned unchanged. */
const sh_jstr *sh_jv_escape(sh_jrun *run, sh_jv v);

typedef struct {
    bool ensure_ascii;
    bool sort_keys;
    bool pretty; /* newlines, and `indent` once per level */
    sh_str indent;
    sh_str item_sep;
    sh_str key_sep;
} sh_json_style;

void sh_jv_put_json(sh_jrun *run, sh_jv v, const sh_json_style *style);

#endif
