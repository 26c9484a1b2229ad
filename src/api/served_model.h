/* served_model.h - the model that is model, as the API names it.
 *
 * Its text side is text/model_text.h; here are its name, its limits and the errors that a client is
 * told. Turns requests into token ids.
 *
 * Threads: constant after open; every function may be called from any thread. Counted references,
 * since a model may be replaced while answers still use it; take and close from the loop. */
#ifndef SH_API_SERVED_MODEL_H
#define SH_API_SERVED_MODEL_H

#include "api/error.h"
#include "api/job_spec.h"
#include "engine/engine_client.h"
#include "text/model_text.h"

typedef struct sh_served_model sh_served_model;

/* A prompt as the engine gets it; in the request's arena. */
typedef struct {
    const int32_t *ids;
    size_t count;
    bool in_reasoning; /* the prompt ends inside the reasoning */
    sh_str lead;       /* the beginning of the answer, which the prompt has already; or empty */
} sh_tokens;

typedef struct {
    const char *name;                           /* NULL: that of the model's folder */
    const char *reasoning_parser, *tool_parser; /* NULL or "auto": by the template and the model */
} sh_served_model_opts;

/* The model of the engine that says this. */
SH_MUST_CHECK sh_status sh_served_model_open(const sh_engine_info *info,
                                             const sh_served_model_opts *opts,
                                             sh_served_model **out, sh_err *err);
sh_served_model *sh_served_model_take(sh_served_model *model);
void sh_served_model_close(sh_served_model *model);

const char *sh_served_model_name(const sh_served_model *model);
const char *sh_served_model_dir(const sh_served_model *model);
int sh_served_model_context(const sh_served_model *model);
int64_t sh_served_model_created_s(const sh_served_model *model);

/* Its name, its folder, "default" and NULL all mean it. */
bool sh_served_model_is_named(const sh_served_model *model, const char *name);

const sh_model_text *sh_served_model_text(const sh_served_model *model);
const char *
sh_served_model_type(const sh_served_model *model); /* config.json's model_type, or "" */
const sh_tokenizer *sh_served_model_tokenizer(const sh_served_model *model); /* never NULL */
void sh_served_model_piece(const sh_served_model *model, int32_t id,
                           sh_buf *out); /* the bytes of a token */

/* The prompt of a chat as the template writes it. */
bool sh_served_model_render(const sh_served_model *model, const sh_job_spec *spec, sh_buf *out,
                            sh_api_error *err);

/* The prompts of a request as ids: one for a chat, rendered by the template. */
bool sh_served_model_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens **out,
                             size_t *count, sh_api_error *err);

#endif
