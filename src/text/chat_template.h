/* chat_template.h - a model's chat template with the variables that transformers gives it.
 *
 * The template comes from chat_template.jinja (others beside it in the folder
 * additional_chat_templates or chat_templates), else from chat_template.json, else from
 * `chat_template` of tokenizer_config.json (a string, or a list of {name, template}). Of several,
 * "tool_use" is taken when the request has tools, and "default" otherwise. The special tokens of
 * tokenizer_config.json are variables (bos_token, eos_token, ...).
 *
 * Threads: read-only once loaded; any number of threads may render at once. */
#ifndef SH_TEXT_CHAT_TEMPLATE_H
#define SH_TEXT_CHAT_TEMPLATE_H

#include "text/jinja/template.h"

typedef struct sh_chat_template sh_chat_template;

/* From a model folder; template_path, if not NULL, replaces the folder's template, and dir may
 * then be NULL too: no special tokens. A folder without a template is SH_ERR_NOT_FOUND. */
SH_MUST_CHECK sh_status sh_chat_template_load(const char *dir, const char *template_path,
                                              sh_chat_template **out, sh_err *err);
void sh_chat_template_free(sh_chat_template *chat);

/* The text of the template for requests with or without tools, for callers that search it for
 * markers. Borrowed. */
sh_str sh_chat_template_source(const sh_chat_template *chat, bool with_tools);

/* Adds the prompt to *out. The request is an object, and its members are variables of the template:
 * `messages` (at least one), and if wanted `tools`, `documents`, `add_generation_prompt` (true when
 * absent) and any others; those of `chat_template_kwargs` count more. With `continue_final_message`
 * (true, or the name of a field) the prompt ends where the text of the last message does. A
 * message's reasoning is passed on under each name that templates know it by. See
 * sh_template_render for bounds and errors. */
SH_MUST_CHECK sh_status sh_chat_template_render(const sh_chat_template *chat, const cJSON *request,
                                                const sh_template_opts *opts, sh_buf *out,
                                                sh_err *err);

#endif
