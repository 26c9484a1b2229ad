/* template.h - Jinja templates, rendered as Hugging Face transformers renders a chat template.
 *
 * That is Jinja2 in its immutable sandbox with trim_blocks and lstrip_blocks, loop controls, the
 * `generation` tag, raise_exception, strftime_now, and tojson as plain json.dumps. Values,
 * printing and errors are Python's. Not offered, each refused by name: include, import, extends,
 * autoescape, the filters pprint, random, striptags, urlize and wordwrap, lipsum(), and computing
 * with whole numbers beyond 64 bits.
 *
 * Templates and variables are untrusted: steps, depth, output, memory and time are bounded, and
 * nothing outside is touched but the clock.
 *
 * Threads: a parsed template is read-only; any number of threads may render it at once. Both calls
 * need up to 512 KiB of stack. */
#ifndef SH_TEXT_JINJA_TEMPLATE_H
#define SH_TEXT_JINJA_TEMPLATE_H

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

typedef struct sh_template sh_template;

/* Bounds of one rendering; 0 stands for the default. */
typedef struct {
    int64_t steps_max;   /* 50 million; a rendered message takes some hundred */
    int depth_max;       /* 400: calls, loops and expressions inside each other */
    size_t output_max;   /* 32 MiB */
    size_t memory_max;   /* 256 MiB */
    int64_t time_max_ms; /* 5000 */
    int64_t now_us;      /* what strftime_now takes for now, Unix time; 0: the clock's */
    bool *raised;        /* if not NULL: set to whether it failed by raise_exception */
} sh_template_opts;

/* The error has the line. *out is owned by the caller. */
SH_MUST_CHECK sh_status sh_template_parse(sh_str source, sh_template **out, sh_err *err);
void sh_template_free(sh_template *tmpl);

/* Adds the rendered text to *out. The variables are the members of the var_count objects; of two
 * with one name the later counts. opts may be NULL. When it fails *out is as it was, and the error
 * is "line N: what", or the bare message of raise_exception. A bound that is hit is SH_ERR_LIMIT.
 */
SH_MUST_CHECK sh_status sh_template_render(const sh_template *tmpl, const cJSON *const *vars,
                                           size_t var_count, const sh_template_opts *opts,
                                           sh_buf *out, sh_err *err);

#endif
