/* chat_template.h - a model's chat template and the variables that transformers passes to it.
 *
 * The template comes from chat_template.jinja (more of them may be in the sub-folder
 * additional_chat_templates or chat_templates), else from chat_template.json, else from
 * `chat_template` in tokenizer_config.json (a string, or a list of {name, template}). If there are
 * several, "tool_use" serves requests with tools and "default" all others. The special tokens of
 * tokenizer_config.json are variables (bos_token, eos_token, ...).
 *
 * Threads: read-only once loaded; any number of threads may render at once. */
#ifndef SH_TEXT_CHAT_TEMPLATE_H
#define SH_TEXT_CHAT_TEMPLATE_H

#include "text/jinja/template.h"

typedef struct sh_chat_template sh_chat_template;

/* Loads from a model folder. template_path, if not NULL, replaces the folder's template; dir may
 * then be NULL, which leaves the special tokens undefined. SH_ERR_NOT_FOUND if the folder has no
 * template. */
SH_MUST_CHECK sh_status sh_chat_template_load(const char *dir, const char *template_path,
                                              sh_chat_template **out, sh_err *err);
void sh_chat_template_free(sh_chat_template *chat);

/* Source text of the template for requests with or without tools, for callers searching for
 * markers. Borrowed. */
sh_str sh_chat_template_source(const sh_chat_template *chat, bool with_tools);

/* Appends the prompt to *out. The request is an object whose members become variables of the
 * template: `messages` (at least one), optionally `tools`, `documents`, `add_generation_prompt`
 * (default true) and any others; members of `chat_template_kwargs` take precedence. With
 * `continue_final_message` (true, or the name of a field) the prompt ends where the text of the
 * last message ends. A message's reasoning is available under every name that templates use for it.
 * See sh_template_render() for limits and errors. */
SH_MUST_CHECK sh_status sh_chat_template_render(const sh_chat_template *chat, const cJSON *request,
                                                const sh_template_opts *opts, sh_buf *out,
                                                sh_err *err);

#endif
