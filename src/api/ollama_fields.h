/* ollama_fields.h - the struct that the fields of Ollama's requests are read into, before they are
 * interpreted. Private to ollama_*.c. Pointers are borrowed from the request's JSON.
 *
 * Threads: one owner each. */
#ifndef SH_API_OLLAMA_FIELDS_H
#define SH_API_OLLAMA_FIELDS_H

#include "api/job_spec.h"

typedef struct {
    sh_job_spec spec; /* most fields go straight here */
    const cJSON *messages, *tools, *format, *think, *stop, *keep_alive, *context;
    const char *prompt, *system, *suffix;
    int64_t num_predict, repeat_last_n;
    bool raw;
} ollama_fields;

#endif
