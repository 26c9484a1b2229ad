/* served_model.h - the model being served, as the API sees it: its name, its limits and its text
 * side (text/model_text.h). Turns requests into token ids, with errors meant for clients.
 *
 * Threads: constant after open; every function may be called from any thread, except take and
 * close, which belong to the loop. References are counted, since a model may be replaced while
 * answers still use it. */
#ifndef SH_API_SERVED_MODEL_H
#define SH_API_SERVED_MODEL_H

#include "api/error.h"
#include "api/form_cache.h"
#include "api/job_spec.h"
#include "engine/engine_client.h"
#include "text/model_text.h"

typedef struct sh_served_model sh_served_model;

/* A prompt as it is sent to the engine; it lives in the request's arena. */
typedef struct {
    const int32_t *ids;
    size_t count;
    bool in_reasoning; /* the prompt ends inside the reasoning */
    bool may_reason;   /* reasoning is to be expected */
    size_t begun;      /* the last so many are the beginning of the answer, see prompt_end */
    size_t second;     /* of a pair: where the second text starts */
} sh_tokens;

typedef struct {
    const char *name;                           /* NULL: the name of the model's folder */
    const char *definition;                     /* the file that describes it, or NULL */
    sh_defaults_reader defaults_read;           /* of that file */
    const char *reasoning_parser, *tool_parser; /* NULL or "auto": detected */
    sh_facts_reader facts_read;                 /* of its weights; or NULL */
} sh_served_model_opts;

/* Opens the model of the engine that sent this info. */
SH_MUST_CHECK sh_status sh_served_model_open(const sh_engine_info *info,
                                             const sh_served_model_opts *opts,
                                             sh_served_model **out, sh_err *err);
sh_served_model *sh_served_model_take(sh_served_model *model);
void sh_served_model_close(sh_served_model *model);

const sh_model_defaults *sh_served_model_defaults(const sh_served_model *model);

/* What facts_read has found out, as JSON; "null": nothing. */
sh_str sh_served_model_facts(const sh_served_model *model);

const char *sh_served_model_name(const sh_served_model *model);
const char *sh_served_model_dir(const sh_served_model *model);
int sh_served_model_context(const sh_served_model *model);
int64_t sh_served_model_created_s(const sh_served_model *model);

/* Its name, its folder (path or name), "default", "default_model" and NULL all mean this model. */
bool sh_served_model_check_name(const sh_served_model *model, const char *name, sh_api_error *err);

const sh_model_text *sh_served_model_text(const sh_served_model *model);
/* model_type of config.json, or "" */
const char *sh_served_model_type(const sh_served_model *model);
const sh_tokenizer *sh_served_model_tokenizer(const sh_served_model *model); /* never NULL */
/* Appends the bytes of a token. */
void sh_served_model_piece(const sh_served_model *model, int32_t id, sh_buf *out);

/* Whether the model can do what is asked of it: write text, make vectors, score pairs. */
bool sh_served_model_check_task(const sh_served_model *model, const sh_job_spec *spec,
                                sh_api_error *err);
int sh_served_model_vector_len(const sh_served_model *model); /* 0: it makes none */
bool sh_served_model_writes(const sh_served_model *model);
bool sh_served_model_scores(const sh_served_model *model);
bool sh_served_model_normalizes(const sh_served_model *model);

/* Grammars that were compiled for its answers. */
sh_form_cache *sh_served_model_forms(const sh_served_model *model);

/* Renders the prompt of a chat with the model's template. */
bool sh_served_model_render(const sh_served_model *model, const sh_job_spec *spec, sh_buf *out,
                            sh_api_error *err);

/* Encodes the prompts of a request: one for a chat, rendered by the template. */
bool sh_served_model_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens **out,
                             size_t *count, sh_api_error *err);

#endif
