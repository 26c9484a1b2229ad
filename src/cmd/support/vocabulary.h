/* vocabulary.h - the text of a model's tokens, from its folder, for requests with a grammar.
 *
 * Threads: sh_vocabulary_load on any; what it made is immutable. */
#ifndef SH_CMD_SUPPORT_VOCABULARY_H
#define SH_CMD_SUPPORT_VOCABULARY_H

#include "engine/constraint.h"
#include "text/tokenizer/tokenizer.h"

typedef struct {
    const char *model_dir; /* borrowed; the rest is filled by loading */
    sh_tokenizer *tokenizer;
    sh_token_trie *trie;
} sh_vocabulary_files;

/* An sh_vocabulary_source's `load`; ctx is an sh_vocabulary_files. */
SH_MUST_CHECK sh_status sh_vocabulary_load(void *ctx, sh_vocabulary *out, sh_err *err);
void sh_vocabulary_files_reset(sh_vocabulary_files *files);

#endif
