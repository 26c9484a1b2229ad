/* responses.h - OpenAI's Responses API: another kind of request in OpenAI's dialect.
 *
 * Threads: pure functions over their arguments and the store; handlers run on the loop. */
#ifndef SH_API_RESPONSES_H
#define SH_API_RESPONSES_H

#include "api/dialect.h"
#include "api/field.h"

extern const sh_job_format sh_responses;
extern const sh_field_table sh_responses_fields;

bool sh_responses_read(sh_job_spec *spec, sh_api_error *err);

/* Handlers of /v1/responses/{id}: GET, DELETE; GET .../input_items; POST .../cancel. */
void sh_responses_get(sh_http_request *req, void *arg);
void sh_responses_delete(sh_http_request *req, void *arg);
void sh_responses_input_items(sh_http_request *req, void *arg);
void sh_responses_cancel(sh_http_request *req, void *arg);

#endif
