/* tokenizer.h - from text to token ids and back, as the model's own files say.
 *
 * A tokenizer is read from tokenizer.json (BPE, byte-level or SentencePiece style, with every
 * normalizer, pre-tokenizer, post-processor and decoder that such models use) or from a
 * tiktoken file. A part that is not known is an error that names it.
 *
 * Threads: immutable once loaded; all functions may be called from anywhere. */
#ifndef SH_TEXT_TOKENIZER_TOKENIZER_H
#define SH_TEXT_TOKENIZER_TOKENIZER_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/ids.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_tokenizer sh_tokenizer;

/* From a model's folder (tokenizer.json, else tiktoken.model or qwen.tiktoken), or from one such
 * file. A tokenizer_config.json beside it names the tokens of sh_tokenizer_named and, for tiktoken
 * files, the special tokens. The error names the file and the place. */
SH_MUST_CHECK sh_status sh_tokenizer_load(const char *path, sh_tokenizer **out, sh_err *err);

/* From the text of a tokenizer.json; `where` stands for the file in errors. */
SH_MUST_CHECK sh_status sh_tokenizer_parse(sh_str json, const char *where, sh_tokenizer **out,
                                           sh_err *err);
void sh_tokenizer_free(sh_tokenizer *tok);

typedef struct {
    bool add_special;   /* put the ids of the file's post-processor (bos, eos) around the text's */
    bool parse_special; /* special tokens written in the text become those tokens */
} sh_encode_opts;

enum { SH_ENCODE_TEXT_MAX = 64 << 20 };

/* Appends the ids. The text must be valid UTF-8 of at most SH_ENCODE_TEXT_MAX bytes. */
SH_MUST_CHECK sh_status sh_tokenizer_encode(const sh_tokenizer *tok, sh_str text,
                                            sh_encode_opts opts, sh_ids *out, sh_err *err);

/* Appends the text. Ids that are not in the vocabulary are left out. See detokenizer.h for ids
 * that come one by one. */
void sh_tokenizer_decode(const sh_tokenizer *tok, const int32_t *ids, size_t count,
                         bool skip_special, sh_buf *out);

/* Largest id + 1. Ids below may be without a token. */
int32_t sh_tokenizer_size(const sh_tokenizer *tok);

/* A token as the file writes it, borrowed for the tokenizer's life; ptr is NULL when there is no
 * such id. */
sh_str sh_tokenizer_piece(const sh_tokenizer *tok, int32_t id);

/* The id of such a piece, -1 when there is none. */
int32_t sh_tokenizer_id(const sh_tokenizer *tok, sh_str piece);

/* Appends the bytes that the token adds in the middle of a text; alone they need not be UTF-8. */
void sh_tokenizer_bytes(const sh_tokenizer *tok, int32_t id, sh_buf *out);

bool sh_tokenizer_is_special(const sh_tokenizer *tok, int32_t id);

typedef enum {
    SH_TOKEN_BOS,
    SH_TOKEN_EOS,
    SH_TOKEN_PAD,
    SH_TOKEN_UNK,
    SH_TOKEN_NAMES
} sh_token_name;

/* The id that tokenizer_config.json gives that name, -1 when there is none. */
int32_t sh_tokenizer_named(const sh_tokenizer *tok, sh_token_name name);

#endif
