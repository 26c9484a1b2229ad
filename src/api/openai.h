/* openai.h - the OpenAI dialect: chat completions and completions.
 *
 * Reads requests into the internal form and writes answers in OpenAI's format: whole, or as the
 * chunks of a stream.
 *
 * Threads: pure functions over their arguments. */
#ifndef SH_API_OPENAI_H
#define SH_API_OPENAI_H

#include "api/dialect.h"
#include "api/field.h"

extern const sh_field_table sh_openai_chat_fields;
extern const sh_field_table sh_openai_completion_fields;

bool sh_openai_chat_read(sh_job_spec *spec, sh_api_error *err);
bool sh_openai_completion_read(sh_job_spec *spec, sh_api_error *err);

extern const sh_dialect sh_openai_chat;
extern const sh_dialect sh_openai_completion;

#endif
