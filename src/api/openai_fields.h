/* openai_fields.h - the struct that the fields of OpenAI's requests are read into, before they are
 * interpreted. Private to openai_*.c. Pointers are borrowed from the request's JSON.
 *
 * Threads: one owner each. */
#ifndef SH_API_OPENAI_FIELDS_H
#define SH_API_OPENAI_FIELDS_H

#include "api/error.h"
#include "api/job_spec.h"

typedef struct {
    sh_job_spec spec; /* most fields go straight here */
    const cJSON *continue_final, *generation_prompt;
    const cJSON *messages, *tools, *tool_choice, *template_kwargs, *enable_thinking;
    const char *reasoning_effort;
    const cJSON *prompt, *suffix;
    const cJSON *stop, *stop_token_ids, *logit_bias;
    const cJSON *response_format, *json_schema, *grammar;
    const cJSON *guided_json, *guided_regex, *guided_choice, *guided_grammar, *guided_json_object;
    const cJSON *form_json, *form_regex, *form_choice, *form_grammar, *form_json_object;
    int64_t max_completion_tokens;
    int64_t logprobs_count;  /* completions: -1 for none */
    int64_t prompt_logprobs; /* -1: none */
    int64_t answer_max;      /* max_tokens of a completion; -1: not given */
} openai_fields;

/* Reads the fields that prescribe the form of the answer; at most one of them may be given. */
bool openai_form_read(const openai_fields *fields, sh_job_spec *out, sh_api_error *err);

#endif
