/* template.h - Jinja templates, rendered as Hugging Face transformers renders chat templates.
 *
 * That is Jinja2 in its immutable sandbox with trim_blocks and lstrip_blocks, loop controls, the
 * `generation` tag, raise_exception, strftime_now, and tojson as plain json.dumps. Values, printing
 * and errors are those of Python. Not supported, each with an error that names it: include, import,
 * extends, autoescape, the filters pprint, random, striptags, urlize and wordwrap, lipsum(), and
 * arithmetic on integers beyond 64 bits.
 *
 * Templates and variables are untrusted: steps, depth, output, memory and time are limited, and a
 * template has no access to anything outside but the clock.
 *
 * Threads: a parsed template is read-only; any number of threads may render it at once. Both calls
 * need up to 512 KiB of stack. */
#ifndef SH_TEXT_JINJA_TEMPLATE_H
#define SH_TEXT_JINJA_TEMPLATE_H

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

typedef struct sh_template sh_template;

/* Limits of one rendering; 0 selects the default given here. */
typedef struct {
    int64_t steps_max;   /* 50 million; rendering a message takes a few hundred */
    int depth_max;       /* 400 nested calls, loops and expressions */
    size_t output_max;   /* 32 MiB */
    size_t memory_max;   /* 256 MiB */
    int64_t time_max_ms; /* 5000 */
    int64_t now_us;      /* Unix time for strftime_now; 0: read the clock */
    bool *raised;        /* if not NULL: set to whether the template called raise_exception */
} sh_template_opts;

/* The error names the line. The caller owns *out. */
SH_MUST_CHECK sh_status sh_template_parse(sh_str source, sh_template **out, sh_err *err);
void sh_template_free(sh_template *tmpl);

/* Appends the rendered text to *out. The variables are the members of the var_count objects; the
 * last of several with the same name wins. opts may be NULL. On failure *out is unchanged, and the
 * error is "line N: what", or the bare message of raise_exception. SH_ERR_LIMIT if a limit was
 * exceeded. */
SH_MUST_CHECK sh_status sh_template_render(const sh_template *tmpl, const cJSON *const *vars,
                                           size_t var_count, const sh_template_opts *opts,
                                           sh_buf *out, sh_err *err);

#endif
