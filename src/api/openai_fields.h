/* openai_fields.h - the struct that the fields of OpenAI's requests are read into, before they are
 * interpreted. Private to openai_*.c. Pointers are borrowed from the request's JSON.
 *
 * Threads: one owner each. */
#ifndef SH_API_OPENAI_FIELDS_H
#define SH_API_OPENAI_FIELDS_H

#include "api/job_spec.h"

typedef struct {
    sh_job_spec spec; /* most fields go straight here */
    const cJSON *messages, *tools, *tool_choice, *template_kwargs, *enable_thinking;
    const char *reasoning_effort;
    const cJSON *prompt;
    const cJSON *stop, *stop_token_ids, *logit_bias;
    int64_t max_completion_tokens;
    int64_t logprobs_count; /* completions: -1 for none */
} openai_fields;

#endif
