/* anthropic.h - the dialect of Anthropic's Messages API.
 *
 * Threads: pure functions over their arguments; handlers run on the loop. */
#ifndef SH_API_ANTHROPIC_H
#define SH_API_ANTHROPIC_H

#include "api/dialect.h"
#include "api/field.h"

extern const sh_dialect sh_anthropic;
extern const sh_job_format sh_anthropic_messages;
extern const sh_job_format sh_anthropic_count; /* only to read the request */

extern const sh_field_table sh_anthropic_messages_fields;
extern const sh_field_table sh_anthropic_count_fields;

bool sh_anthropic_messages_read(sh_job_spec *spec, sh_api_error *err);
bool sh_anthropic_count_read(sh_job_spec *spec, sh_api_error *err);

/* Handlers of GET /v1/models and /v1/models/NAME, for clients that send anthropic-version. */
void sh_anthropic_models(sh_http_request *req, void *arg);
void sh_anthropic_model(sh_http_request *req, void *arg);

#endif
