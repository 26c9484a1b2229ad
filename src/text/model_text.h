/* model_text.h - the text side of a model's folder: the one place that reads it.
 *
 * Tokenizer, chat template, the ids that end an answer, the sampling that the model's makers
 * recommend, and the dialect in which it writes reasoning and tool calls. The API, `shoal chat`,
 * `generate`, `template` and `tokenize` all open this, so that one request is one prompt and one
 * answer whichever way it came.
 *
 * Threads: constant once opened; every function may be called from any thread. */
#ifndef SH_TEXT_MODEL_TEXT_H
#define SH_TEXT_MODEL_TEXT_H

#include "text/chat_template.h"
#include "text/output/output.h"
#include "text/tokenizer/tokenizer.h"

/* More end ids are refused: with those of a request they must fit into what an engine takes. */
enum { SH_END_IDS_MAX = 32 };

typedef struct sh_model_text sh_model_text;

/* Which parts a caller wants; others are not even read. */
typedef enum {
    SH_MODEL_TEXT_ALL,
    SH_MODEL_TEXT_TOKENS, /* the tokenizer */
    SH_MODEL_TEXT_CHAT,   /* the chat template */
} sh_model_text_parts;

typedef struct {
    sh_model_text_parts parts;
    const char *tokenizer;                      /* a file in place of the folder's; or NULL */
    const char *template;                       /* likewise */
    const char *reasoning_parser, *tool_parser; /* NULL or "auto": by the template and the model */
    int vocab; /* of the model: end ids beyond it are left out; 0: of the tokenizer */
} sh_model_text_opts;

/* From a model's folder; dir may be NULL where opts name the file of the one part that is wanted. A
 * folder that lacks a tokenizer or a template is fine: what needs them says so. */
SH_MUST_CHECK sh_status sh_model_text_open(const char *dir, const sh_model_text_opts *opts,
                                           sh_model_text **out, sh_err *err);
void sh_model_text_close(sh_model_text *text);

/* NULL when the folder has none. */
const sh_tokenizer *sh_model_text_tokenizer(const sh_model_text *text);
bool sh_model_text_has_chat(const sh_model_text *text);

/* config.json's model_type, or "". */
const char *sh_model_text_type(const sh_model_text *text);
const sh_output_dialect *sh_model_text_dialect(const sh_model_text *text);

/* Tokens that end an answer, all of them inside the vocabulary; at most SH_END_IDS_MAX. */
const sh_ids *sh_model_text_end_ids(const sh_model_text *text);
bool sh_model_text_ends(const sh_model_text *text, int32_t id);

/* What generation_config.json recommends; where it says nothing, what changes nothing. */
typedef struct {
    double temperature, top_p, repetition_penalty;
    int top_k;
} sh_sampling_own;
sh_sampling_own sh_model_text_sampling(const sh_model_text *text);

/* The prompt of a chat; see sh_chat_template_render. Without a template: SH_ERR_NOT_FOUND. */
SH_MUST_CHECK sh_status sh_model_text_render(const sh_model_text *text, const cJSON *request,
                                             const sh_template_opts *opts, sh_buf *out,
                                             sh_err *err);

/* Adds the ids of a prompt. A rendered chat brings its special tokens along; a plain text gets
 * those that the tokenizer puts around it. Without a tokenizer: SH_ERR_NOT_FOUND. */
SH_MUST_CHECK sh_status sh_model_text_encode(const sh_model_text *text, sh_str prompt,
                                             bool rendered, sh_ids *out, sh_err *err);

/* Appends the bytes of a token; none for an id that has no token. */
void sh_model_text_piece(const sh_model_text *text, int32_t id, sh_buf *out);

#endif
