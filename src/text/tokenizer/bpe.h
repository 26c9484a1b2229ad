/* bpe.h - byte pair encoding: a word is split into characters, and the adjacent pair with the best
 * rank is merged until no mergeable pair is left.
 *
 * A heap yields the next pair, so a word of n characters takes O(n log n), even a megabyte of one
 * letter. Most ordinary words are tokens themselves: whether a token's own text encodes to exactly
 * that token is computed on first use and kept in one byte per token, which is the only cache.
 *
 * Threads: after the last sh_bpe_add_merge(), any thread may encode with a scratch of its own. */
#ifndef SH_TEXT_TOKENIZER_BPE_H
#define SH_TEXT_TOKENIZER_BPE_H

#include "base/buf.h"
#include "text/ids.h"
#include "text/tokenizer/vocab.h"

typedef struct {
    int32_t unk_id;     /* replaces characters that are not in the vocabulary; -1: none */
    bool fuse_unk;      /* a run of unknown characters gives one unk */
    bool byte_fallback; /* unknown characters become the tokens of their bytes, <0x00> to <0xFF> */
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    sh_str prefix;      /* added before every character but the word's first */
    sh_str suffix;      /* added after the word's last character */
} sh_bpe_opts;

typedef struct sh_bpe sh_bpe;

/* The vocabulary must outlive the object and not change; prefix and suffix are copied. */
sh_bpe *sh_bpe_create(const sh_vocab *vocab, const sh_bpe_opts *opts, size_t merge_count);
void sh_bpe_free(sh_bpe *bpe);

/* Adjacent left and right may be merged to `into`, lowest rank first. Adding the same pair again
 * replaces it. The ids must be in the vocabulary. */
void sh_bpe_add_merge(sh_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t into);

/* Zero is a valid scratch. */
typedef struct {
    struct sh_bpe_symbol *symbols;
    size_t count;
    size_t cap;
    uint64_t *heap;
    size_t heap_len;
    size_t heap_cap;
    sh_buf text;
} sh_bpe_scratch;

void sh_bpe_scratch_reset(sh_bpe_scratch *scratch);

enum { SH_BPE_WORD_MAX = 1 << 30 };

/* Appends the ids of a word: valid UTF-8 of at most SH_BPE_WORD_MAX bytes. */
void sh_bpe_encode(const sh_bpe *bpe, sh_str word, sh_bpe_scratch *scratch, sh_ids *out);

#endif
