/* openai.h - the OpenAI dialect: chat completions, completions, embeddings and the list of models;
 * and reranking, which OpenAI does not have, in the form that others agree on.
 *
 * Reads requests into the internal form and writes answers in OpenAI's format: whole, or as the
 * chunks of a stream.
 *
 * Threads: pure functions over their arguments; handlers run on the loop. */
#ifndef SH_API_OPENAI_H
#define SH_API_OPENAI_H

#include "api/dialect.h"
#include "api/field.h"

extern const sh_dialect sh_openai;
extern const sh_job_format sh_openai_chat;
extern const sh_job_format sh_openai_completion;
extern const sh_job_format sh_openai_embeddings;
extern const sh_job_format sh_openai_rerank;

extern const sh_field_table sh_openai_chat_fields;
extern const sh_field_table sh_openai_completion_fields;
extern const char sh_openai_chat_rules[], sh_openai_completion_rules[];
extern const sh_field_table sh_openai_embeddings_fields;
extern const sh_field_table sh_openai_rerank_fields;

bool sh_openai_chat_read(sh_job_spec *spec, sh_api_error *err);
bool sh_openai_completion_read(sh_job_spec *spec, sh_api_error *err);
bool sh_openai_embeddings_read(sh_job_spec *spec, sh_api_error *err);
bool sh_openai_rerank_read(sh_job_spec *spec, sh_api_error *err);

/* Writes the pending log-probabilities as items of a list: token, logprob, bytes, top_logprobs. */
void sh_openai_logprobs_write(const sh_answer *answer, const sh_choice *choice, sh_json_writer *w);

/* Handlers of GET /v1/models and /v1/models/NAME. */
void sh_openai_models(sh_http_request *req, void *arg);
void sh_openai_model(sh_http_request *req, void *arg);

#endif
