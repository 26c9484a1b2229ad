/* vocab.h - a two-way table between pieces of text and token ids.
 *
 * Ids may have gaps. The hash is keyed with a random seed, so that a file cannot choose pieces that
 * all collide.
 *
 * Threads: immutable once filled. */
#ifndef SH_TEXT_TOKENIZER_VOCAB_H
#define SH_TEXT_TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Larger than any real vocabulary (the largest have 262144), and a limit on what a file can make us
 * allocate. */
enum { SH_VOCAB_MAX = 1 << 22 };

typedef struct {
    uint32_t tag; /* upper half of the hash */
    int32_t id;   /* -1: free */
} sh_vocab_slot;

typedef struct {
    sh_arena arena; /* the pieces */
    sh_str *pieces; /* [size]; ptr is NULL if an id is not in use */
    int32_t size;   /* largest id + 1 */
    int32_t cap;
    size_t count; /* ids in use */
    size_t piece_len_max;
    sh_vocab_slot *slots; /* [mask + 1] */
    size_t mask;
    uint64_t seed;
} sh_vocab;

/* Prepares an empty table with capacity for about `count` pieces. */
void sh_vocab_init(sh_vocab *vocab, size_t count);
void sh_vocab_reset(sh_vocab *vocab);

/* Copies the piece. Fails if the id is out of range or in use, or the piece already exists. */
SH_MUST_CHECK sh_status sh_vocab_add(sh_vocab *vocab, sh_str piece, int64_t id, sh_err *err);

/* -1 if there is no such piece. */
int32_t sh_vocab_find(const sh_vocab *vocab, sh_str piece);

/* ptr is NULL if there is no such id. */
sh_str sh_vocab_piece(const sh_vocab *vocab, int32_t id);

/* A random seed for hash tables, which no file can know. */
uint64_t sh_hash_seed(void);

/* Mixes two words into one: the 128-bit product, folded. */
static inline uint64_t sh_hash_mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
