/* bpe.h - byte pair encoding: a word becomes characters, and the pair of neighbours with the best
 * rank is joined until no pair is left that may be.
 *
 * A heap gives the next pair, so a word of n characters takes n log n steps, be it a megabyte of
 * one letter. Ordinary words are mostly tokens themselves: whether a token's own text encodes to
 * that token is worked out when it is first met and kept in one byte a token, which is all the
 * cache there is.
 *
 * Threads: after the last sh_bpe_add_merge, encode from anywhere with a scratch for each thread. */
#ifndef SH_TEXT_TOKENIZER_BPE_H
#define SH_TEXT_TOKENIZER_BPE_H

#include "base/buf.h"
#include "text/ids.h"
#include "text/tokenizer/vocab.h"

typedef struct {
    int32_t unk_id;     /* stands for characters that are not in the vocabulary; -1: none */
    bool fuse_unk;      /* neighbouring unknown characters give one unk */
    bool byte_fallback; /* unknown characters become their bytes' tokens, <0x00> to <0xFF> */
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    sh_str prefix;      /* in front of every character but the word's first */
    sh_str suffix;      /* behind the word's last character */
} sh_bpe_opts;

typedef struct sh_bpe sh_bpe;

/* The vocabulary is borrowed for the life of the object and must not change; prefix and suffix
 * are copied. */
sh_bpe *sh_bpe_create(const sh_vocab *vocab, const sh_bpe_opts *opts, size_t merge_count);
void sh_bpe_free(sh_bpe *bpe);

/* Neighbours left and right may become `into`, the lowest rank first. The same pair again
 * replaces the former. The ids must be in the vocabulary. */
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
