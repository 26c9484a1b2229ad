/* embed_text.h - what a model's folder says about the texts that embeddings are made of.
 *
 * sentence-transformers keeps there the prompts that go before a text ("query: "), by name, and
 * whether texts are lowered first; config.json says whether the first numbers of a vector make a
 * shorter one (a "matryoshka" model).
 *
 * Threads: constant once opened. */
#ifndef SH_TEXT_EMBED_TEXT_H
#define SH_TEXT_EMBED_TEXT_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct sh_embed_text sh_embed_text;

/* None of the files must exist. */
SH_MUST_CHECK sh_status sh_embed_text_open(const char *dir, sh_embed_text **out, sh_err *err);
void sh_embed_text_close(sh_embed_text *text);

/* The prompt of that name; NULL: there is none. */
const char *sh_embed_text_prompt(const sh_embed_text *text, const char *name);

/* All names, "a, b, c", in the caller's buffer. */
const char *sh_embed_text_prompts(const sh_embed_text *text, char *out, size_t cap);

/* Appends the text as it is encoded, after `prompt` ("": none). */
void sh_embed_text_write(const sh_embed_text *text, const char *prompt, sh_str input, sh_buf *out);

/* Whether vectors of this many numbers, fewer than the model's own, can be had; and a list of the
 * allowed ones for errors: "" if there are none, "any" if all. */
bool sh_embed_text_shortens(const sh_embed_text *text, int64_t dimensions);
const char *sh_embed_text_dimensions(const sh_embed_text *text, char *out, size_t cap);

#endif
