/* model_text.h - everything in a model's folder that concerns text.
 *
 * The tokenizer, the chat template, the ids that end an answer, the sampling settings that the
 * model's makers recommend, and the dialect in which the model writes reasoning and tool calls. The
 * API and the commands chat, generate, template and tokenize all open it here, so that the same
 * request gives the same prompt and the same answer in each of them.
 *
 * Threads: constant once opened; every function may be called from any thread. */
#ifndef SH_TEXT_MODEL_TEXT_H
#define SH_TEXT_MODEL_TEXT_H

#include "text/chat_template.h"
#include "text/output/output.h"
#include "text/tokenizer/tokenizer.h"

/* More end ids are an error: together with those of a request they must fit into an engine request.
 */
enum { SH_END_IDS_MAX = 32 };

typedef struct sh_model_text sh_model_text;

/* The parts to load; files of the others are not even opened. */
typedef enum {
    SH_MODEL_TEXT_ALL,
    SH_MODEL_TEXT_TOKENS, /* the tokenizer */
    SH_MODEL_TEXT_CHAT,   /* the chat template */
} sh_model_text_parts;

typedef struct {
    sh_model_text_parts parts;
    const char *tokenizer;                      /* file that replaces the folder's, or NULL */
    const char *template;                       /* likewise */
    const char *reasoning_parser, *tool_parser; /* NULL or "auto": detected from the folder */
    int vocab; /* the model's vocabulary size, which bounds end ids; 0: take the tokenizer's */
} sh_model_text_opts;

/* Opens a model's folder; dir may be NULL if opts names the file of the only part wanted. With
 * SH_MODEL_TEXT_ALL a folder may lack a tokenizer or a template: the functions that need them
 * return an error. */
SH_MUST_CHECK sh_status sh_model_text_open(const char *dir, const sh_model_text_opts *opts,
                                           sh_model_text **out, sh_err *err);
void sh_model_text_close(sh_model_text *text);

/* NULL if the folder has none. */
const sh_tokenizer *sh_model_text_tokenizer(const sh_model_text *text);
bool sh_model_text_has_chat(const sh_model_text *text);

/* Source of the chat template for requests with or without tools; "" if there is none. */
sh_str sh_model_text_template(const sh_model_text *text, bool with_tools);

/* config.json's model_type, or "". */
const char *sh_model_text_type(const sh_model_text *text);
const sh_output_dialect *sh_model_text_dialect(const sh_model_text *text);

/* The tokens around reasoning; false if it has not one token on either side. */
bool sh_model_text_reasoning_ids(const sh_model_text *text, int32_t *begin, int32_t *end);

/* Tokens that end an answer, all within the vocabulary; at most SH_END_IDS_MAX. */
const sh_ids *sh_model_text_end_ids(const sh_model_text *text);
bool sh_model_text_is_end_id(const sh_model_text *text, int32_t id);

/* What generation_config.json recommends; a missing value is the neutral one. */
typedef struct {
    double temperature, top_p, repetition_penalty;
    int top_k;
} sh_sampling_recommended;
sh_sampling_recommended sh_model_text_sampling(const sh_model_text *text);

/* Renders the prompt of a chat, see sh_chat_template_render(). SH_ERR_NOT_FOUND without a template.
 */
SH_MUST_CHECK sh_status sh_model_text_render(const sh_model_text *text, const cJSON *request,
                                             const sh_template_opts *opts, sh_buf *out,
                                             sh_err *err);

/* Appends the ids of a prompt. A rendered chat already contains its special tokens; a plain text
 * gets those that the tokenizer adds around it. SH_ERR_NOT_FOUND without a tokenizer. */
SH_MUST_CHECK sh_status sh_model_text_encode(const sh_model_text *text, sh_str prompt,
                                             bool rendered, sh_ids *out, sh_err *err);

/* Appends the bytes of a token; nothing for an id without a token. */
void sh_model_text_piece(const sh_model_text *text, int32_t id, sh_buf *out);

#endif
