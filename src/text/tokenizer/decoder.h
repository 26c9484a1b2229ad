/* decoder.h - streams the pieces of tokens back to text.
 *
 * A decoder is a list of stages; a state runs one stream of tokens through them. Every stage
 * releases text as soon as no later token can change it and holds back the rest, so decoding all
 * tokens and decoding one by one are the same code and give the same text.
 *
 * Threads: a decoder is immutable; a state has one owner. */
#ifndef SH_TEXT_TOKENIZER_DECODER_H
#define SH_TEXT_TOKENIZER_DECODER_H

#include "base/buf.h"
#include "base/json.h"

typedef struct sh_decoder sh_decoder;
typedef struct sh_decoder_state sh_decoder_state;

/* Reads the value of "decoder"; NULL and null give one that joins pieces with spaces. */
SH_MUST_CHECK sh_status sh_decoder_create(const cJSON *json, const char *where, sh_decoder **out,
                                          sh_err *err);

/* The decoder of byte-level vocabularies. */
sh_decoder *sh_decoder_create_bytes(void);
void sh_decoder_free(sh_decoder *decoder);

/* The decoder must outlive the state. */
sh_decoder_state *sh_decoder_state_create(const sh_decoder *decoder);
void sh_decoder_state_free(sh_decoder_state *state);

/* Adds the next token's piece and appends the text that is now certain, in complete characters. */
void sh_decoder_push(sh_decoder_state *state, sh_str piece, sh_buf *out);

/* Ends the stream: appends what was held back. The state can then be used for another stream. */
void sh_decoder_finish(sh_decoder_state *state, sh_buf *out);

/* Appends the bytes that a piece contributes in the middle of a text; possibly only part of a
 * character. */
void sh_decoder_bytes(const sh_decoder *decoder, sh_str piece, sh_buf *out);

#endif
