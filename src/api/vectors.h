/* vectors.h - what the dialects share of requests for embeddings.
 *
 * Such a request is a job without answers: each input is a prompt, and each choice of the answer
 * has a vector when it is done. A format that has `part` gets each choice as soon as its vector is
 * there, and writes into the choice's content; `whole` then puts these together. Without `part` the
 * vectors are kept until `whole`.
 *
 * Threads: pure functions over their arguments. */
#ifndef SH_API_VECTORS_H
#define SH_API_VECTORS_H

#include "api/answer.h"
#include "api/error.h"
#include "api/json_writer.h"

enum { SH_INPUTS_MAX = 2048 };

/* Makes a pooled spec of the inputs: texts or token ids, or with a query documents, which are texts
 * or objects with a `text`. `list` is one input where `single`. Errors name `field`, and the index.
 * encoding, dimensions, prompt name and truncation are fields of the spec. */
bool sh_inputs_read(const cJSON *list, const char *field, bool single, sh_job_spec *out,
                    sh_api_error *err);

/* Appends the choice's vector as JSON: a list of numbers, or base64 of little-endian floats if the
 * spec says so; shortened to the dimensions of the spec. */
void sh_vector_write(const sh_answer *answer, const sh_choice *choice, sh_buf *out);

/* Writes what `part` wrote for each choice, as a list. */
void sh_vectors_write(const sh_answer *answer, const char *name, sh_json_writer *w);

#endif
