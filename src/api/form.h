/* form.h - the grammar that an answer must match: the form of its content that the request
 * prescribes, its tool calls, and the reasoning before them.
 *
 * Compiling may take a good part of a second for a large schema, so it is done off the loop;
 * sh_form_find() is quick and finds grammars that were compiled before.
 *
 * Threads: every function may be called from any thread. */
#ifndef SH_API_FORM_H
#define SH_API_FORM_H

#include "api/served_model.h"
#include "base/buf.h"

/* Whether the answer must be a call. */
bool sh_form_requires_call(const sh_job_spec *spec);

/* Whether anything is prescribed. */
bool sh_form_is_needed(const sh_served_model *model, const sh_job_spec *spec);

/* Refuses what cannot be combined with a form, and calls that the model has no syntax for. */
bool sh_form_check(const sh_served_model *model, const sh_job_spec *spec, sh_api_error *err);

/* Appends the packed grammar of answers to the prompt. */
bool sh_form_find(const sh_served_model *model, const sh_job_spec *spec, const sh_tokens *prompt,
                  sh_buf *out);
bool sh_form_compile(const sh_served_model *model, const sh_job_spec *spec, const sh_tokens *prompt,
                     sh_buf *out, sh_api_error *err);

#endif
