/* served.h - the model that is served, as the API names it.
 *
 * Its text side is text/model_text.h; here are its name, its limits and the errors that a client is
 * told. Turns requests into token ids.
 *
 * Threads: constant after open; every function may be called from any thread. Counted references,
 * since a model may be replaced while answers still use it; take and close from the loop. */
#ifndef SH_API_SERVED_H
#define SH_API_SERVED_H

#include "api/error.h"
#include "api/request.h"
#include "engine/client.h"
#include "text/model_text.h"

typedef struct sh_served sh_served;

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
} sh_served_opts;

/* The model of the engine that says this. */
SH_MUST_CHECK sh_status sh_served_open(const sh_engine_info *info, const sh_served_opts *opts,
                                       sh_served **out, sh_err *err);
sh_served *sh_served_take(sh_served *served);
void sh_served_close(sh_served *served);

const char *sh_served_name(const sh_served *served);
const char *sh_served_dir(const sh_served *served);
int sh_served_context(const sh_served *served);
int64_t sh_served_created_s(const sh_served *served);

/* Its name, its folder, "default" and NULL all mean it. */
bool sh_served_is_named(const sh_served *served, const char *name);

const sh_model_text *sh_served_text(const sh_served *served);
const char *sh_served_type(const sh_served *served); /* config.json's model_type, or "" */
const sh_tokenizer *sh_served_tokenizer(const sh_served *served);       /* never NULL */
void sh_served_piece(const sh_served *served, int32_t id, sh_buf *out); /* the bytes of a token */

/* The prompt of a chat as the template writes it. */
bool sh_served_render(const sh_served *served, const sh_request *request, sh_buf *out,
                      sh_api_error *err);

/* The prompts of a request as ids: one for a chat, rendered by the template. */
bool sh_served_prepare(const sh_served *served, sh_request *request, sh_tokens **out, size_t *count,
                       sh_api_error *err);

#endif
