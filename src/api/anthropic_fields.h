/* anthropic_fields.h - the struct that the fields of Anthropic's requests are read into, before
 * they are interpreted. Private to anthropic_*.c. Pointers are borrowed from the request's JSON.
 *
 * Threads: one owner each. */
#ifndef SH_API_ANTHROPIC_FIELDS_H
#define SH_API_ANTHROPIC_FIELDS_H

#include "api/job_spec.h"

typedef struct {
    sh_job_spec spec; /* most fields go straight here */
    const cJSON *messages, *system, *stop_sequences, *tools;
    const char *tool_choice, *tool_name;
    bool one_call;
    const char *thinking, *effort;
    int64_t thinking_budget;
    const cJSON *output_format, *output_config_format;
} anthropic_fields;

#endif
