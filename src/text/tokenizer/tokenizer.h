/* tokenizer.h - converts text to token ids and back, as defined by the model's own files.
 *
 * A tokenizer is read from tokenizer.json (BPE, byte-level or SentencePiece style, WordPiece or
 * Unigram, with every normalizer, pre-tokenizer, post-processor and decoder that such models use)
 * or from a tiktoken file. An unknown component is an error that names it.
 *
 * Threads: immutable once loaded; every function may be called from any thread. */
#ifndef SH_TEXT_TOKENIZER_TOKENIZER_H
#define SH_TEXT_TOKENIZER_TOKENIZER_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/ids.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_tokenizer sh_tokenizer;

/* Loads a model's folder (tokenizer.json, else tiktoken.model or qwen.tiktoken), or one such file.
 * A tokenizer_config.json in the same folder provides the tokens of sh_tokenizer_named() and, for
 * tiktoken files, the special tokens. The error names the file and the position. */
SH_MUST_CHECK sh_status sh_tokenizer_load(const char *path, sh_tokenizer **out, sh_err *err);

/* Parses the text of a tokenizer.json; `where` names the file in errors. */
SH_MUST_CHECK sh_status sh_tokenizer_parse(sh_str json, const char *where, sh_tokenizer **out,
                                           sh_err *err);
void sh_tokenizer_free(sh_tokenizer *tok);

typedef struct {
    bool add_special;   /* add the ids of the file's post-processor (bos, eos) around the text */
    bool parse_special; /* special tokens that are written out in the text become those tokens */
} sh_encode_opts;

enum { SH_ENCODE_TEXT_MAX = 64 << 20 };

/* Appends the ids. The text must be valid UTF-8 of at most SH_ENCODE_TEXT_MAX bytes. */
SH_MUST_CHECK sh_status sh_tokenizer_encode(const sh_tokenizer *tok, sh_str text,
                                            sh_encode_opts opts, sh_ids *out, sh_err *err);

/* Appends the ids of two texts with the special tokens that the file puts around and between them;
 * *second_at is where the second one starts, counted from the first new id. */
SH_MUST_CHECK sh_status sh_tokenizer_encode_pair(const sh_tokenizer *tok, sh_str first,
                                                 sh_str second, sh_ids *out, size_t *second_at,
                                                 sh_err *err);

/* How many ids the file adds to a text, or to a pair of texts. */
typedef struct {
    size_t before, between, after;
} sh_added_counts;

sh_added_counts sh_tokenizer_added(const sh_tokenizer *tok, bool pair);

/* Appends the text. Ids that are not in the vocabulary are skipped. See detokenizer.h for
 * streaming.
 */
void sh_tokenizer_decode(const sh_tokenizer *tok, const int32_t *ids, size_t count,
                         bool skip_special, sh_buf *out);

/* Largest id + 1. Not every id below has a token. */
int32_t sh_tokenizer_size(const sh_tokenizer *tok);

/* A token as it is written in the file, valid as long as the tokenizer; ptr is NULL if there is no
 * such id. */
sh_str sh_tokenizer_piece(const sh_tokenizer *tok, int32_t id);

/* The id of such a piece, -1 if there is none. */
int32_t sh_tokenizer_id(const sh_tokenizer *tok, sh_str piece);

/* Appends the bytes that the token contributes in the middle of a text; on their own they may not
 * be valid UTF-8. */
void sh_tokenizer_bytes(const sh_tokenizer *tok, int32_t id, sh_buf *out);

bool sh_tokenizer_is_special(const sh_tokenizer *tok, int32_t id);

typedef enum {
    SH_TOKEN_BOS,
    SH_TOKEN_EOS,
    SH_TOKEN_PAD,
    SH_TOKEN_UNK,
    SH_TOKEN_NAMES
} sh_token_name;

/* The id to which tokenizer_config.json gives that name, -1 if there is none. */
int32_t sh_tokenizer_named(const sh_tokenizer *tok, sh_token_name name);

#endif
