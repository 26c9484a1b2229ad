/* tokenizer_internal.h - the components of a tokenizer, for the files that build and use one.
 *
 * Threads: see tokenizer.h. */
#ifndef SH_TEXT_TOKENIZER_TOKENIZER_INTERNAL_H
#define SH_TEXT_TOKENIZER_TOKENIZER_INTERNAL_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/postprocessor.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/vocab.h"
#include "text/tokenizer/wordpiece.h"

struct sh_tokenizer {
    sh_vocab vocab; /* of the model; added tokens may have ids beyond it */
    /* One of these cuts words into tokens. */
    sh_bpe *bpe;
    sh_unigram *unigram;
    sh_wordpiece *wordpiece;
    sh_added added;
    sh_normalizer *normalizer;
    sh_pretokenizer *pre;
    sh_postprocessor post;
    sh_decoder *decoder;
    int32_t named[SH_TOKEN_NAMES];
};

enum { SH_TOKENIZER_FILE_MAX = 256 << 20 };

/* Adds an added token, normalizing its content if its flag says so. Fails if the vocabulary has
 * another id for the content, or other content for the id. */
SH_MUST_CHECK sh_status sh_tokenizer_add_token(sh_tokenizer *tok, sh_added_token token,
                                               sh_err *err);

/* Fills an empty tokenizer from the lines of a tiktoken file and the tokenizer_config.json of the
 * same folder (NULL: there is none). */
SH_MUST_CHECK sh_status sh_tiktoken_read(sh_str text, const cJSON *config, const char *where,
                                         sh_tokenizer *tok, sh_err *err);

/* Fills an empty tokenizer from a tokenizer.json. */
SH_MUST_CHECK sh_status sh_tokenizer_read(const cJSON *json, const char *where, sh_tokenizer *tok,
                                          sh_err *err);

/* The piece that the id decodes to; ptr is NULL if there is no such id, or if it is a special token
 * and those are to be skipped. */
sh_str sh_tokenizer_shown(const sh_tokenizer *tok, int32_t id, bool skip_special);

#endif
