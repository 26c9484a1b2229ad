/* ollama.h - the dialect of Ollama: chats, completions, and its list of models.
 *
 * Threads: pure functions over their arguments; handlers run on the loop. */
#ifndef SH_API_OLLAMA_H
#define SH_API_OLLAMA_H

#include "api/api_internal.h"
#include "api/dialect.h"
#include "api/field.h"

#include <time.h>

extern const sh_dialect sh_ollama;
extern const sh_job_format sh_ollama_chat;
extern const sh_job_format sh_ollama_generate;
extern const sh_job_format sh_ollama_embed;
extern const sh_job_format sh_ollama_embedding;

extern const sh_field_table sh_ollama_chat_fields;
extern const sh_field_table sh_ollama_generate_fields;
extern const sh_field_table sh_ollama_embed_fields;
extern const sh_field_table sh_ollama_embedding_fields;
extern const sh_field_table sh_ollama_model_fields;

bool sh_ollama_chat_read(sh_job_spec *spec, sh_api_error *err);
bool sh_ollama_generate_read(sh_job_spec *spec, sh_api_error *err);

/* A request about a model, which it names in `model` or, as older clients do, in `name`. */
typedef struct {
    const char *model, *name;
    bool stream;
} sh_ollama_model_request;

/* Reads such a request; the name without its tag. */
enum { SH_OLLAMA_NAME_MAX = 513 };
bool sh_ollama_model_read(sh_api *api, sh_http_request *req, char name[SH_OLLAMA_NAME_MAX],
                          bool *stream, sh_api_error *err);

/* Ollama's names may have a tag. There is one of each model here, so ":latest" is left out. */
sh_str sh_ollama_untagged(const char *name);

/* "2026-01-31T12:00:00Z" */
enum { SH_OLLAMA_TIME_MAX = 32 };
void sh_ollama_time(time_t time, char out[SH_OLLAMA_TIME_MAX]);

/* Handlers. */
void sh_ollama_tags(sh_http_request *req, void *arg);
void sh_ollama_ps(sh_http_request *req, void *arg);
void sh_ollama_show(sh_http_request *req, void *arg);
void sh_ollama_version(sh_http_request *req, void *arg);
void sh_ollama_pull(sh_http_request *req, void *arg);
void sh_ollama_delete(sh_http_request *req, void *arg);

/* How long the model is to stay loaded; NULL: not given. */
bool sh_ollama_keep_read(const cJSON *keep_alive, sh_job_spec *out, sh_api_error *err);

#endif
