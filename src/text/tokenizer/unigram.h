/* unigram.h - SentencePiece's unigram model: every piece has a score, and a word is cut where the
 * sum of the scores is largest.
 *
 * Threads: constant once created; any thread may encode with a scratch of its own. */
#ifndef SH_TEXT_TOKENIZER_UNIGRAM_H
#define SH_TEXT_TOKENIZER_UNIGRAM_H

#include "text/ids.h"
#include "text/tokenizer/vocab.h"

typedef struct sh_unigram sh_unigram;

/* scores [vocab->size], copied; ids without a piece have no score. unk_id -1: nothing may be
 * unknown. The vocabulary must outlive the object. */
sh_unigram *sh_unigram_create(const sh_vocab *vocab, const double *scores, int32_t unk_id,
                              bool byte_fallback);
void sh_unigram_free(sh_unigram *model);

/* Zero is a valid scratch. */
typedef struct {
    struct sh_unigram_node *nodes;
    size_t cap;
} sh_unigram_scratch;

void sh_unigram_scratch_reset(sh_unigram_scratch *scratch);

enum { SH_UNIGRAM_WORD_MAX = 16 << 20 };

/* Appends the ids of a word of at most SH_UNIGRAM_WORD_MAX bytes. Fails if a character is unknown
 * and there is no id for that. */
SH_MUST_CHECK sh_status sh_unigram_encode(const sh_unigram *model, sh_str word,
                                          sh_unigram_scratch *scratch, sh_ids *out, sh_err *err);

#endif
