/* vocab.h - the two-way table between pieces of text and token ids.
 *
 * Ids may have holes. The hash is keyed by a random number of the process, so that no file can
 * choose pieces that all fall into one slot.
 *
 * Threads: immutable once filled. */
#ifndef SH_TEXT_TOKENIZER_VOCAB_H
#define SH_TEXT_TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Beyond all real vocabularies (the largest have 262144), and a bound on what a file may make us
 * allocate. */
enum { SH_VOCAB_MAX = 1 << 22 };

typedef struct {
    uint32_t tag; /* upper half of the hash */
    int32_t id;   /* -1: free */
} sh_vocab_slot;

typedef struct {
    sh_arena arena; /* the pieces */
    sh_str *pieces; /* [size]; ptr is NULL where an id is not in use */
    int32_t size;   /* largest id + 1 */
    int32_t cap;
    size_t count; /* ids in use */
    size_t piece_len_max;
    sh_vocab_slot *slots; /* [mask + 1] */
    size_t mask;
    uint64_t seed;
} sh_vocab;

/* Prepares an empty table with room for about `count` pieces. */
void sh_vocab_init(sh_vocab *vocab, size_t count);
void sh_vocab_reset(sh_vocab *vocab);

/* Copies the piece. Fails when the id is out of range or in use, or the piece is there already. */
SH_MUST_CHECK sh_status sh_vocab_add(sh_vocab *vocab, sh_str piece, int64_t id, sh_err *err);

/* -1 when there is no such piece. */
int32_t sh_vocab_find(const sh_vocab *vocab, sh_str piece);

/* ptr is NULL when there is no such id. */
sh_str sh_vocab_piece(const sh_vocab *vocab, int32_t id);

/* A number that no file can know, for the keys of hash tables. */
uint64_t sh_hash_seed(void);

/* Mixes two words into one: the product of 128 bits, folded. */
static inline uint64_t sh_hash_mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
