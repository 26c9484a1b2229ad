/* blocks.h - the allocator of KV blocks, and the prefix cache.
 *
 * Only rank 0 keeps this book; a block has the same number on every rank. A block is free, or held
 * by one or more sequences, or cached: no sequence holds it, but it still contains the KV of a
 * known run of tokens and is reused by the next sequence with that prefix. When no free block is
 * left, the least recently released cached block is evicted.
 *
 * The identity of a full block is a keyed hash of its tokens and of the identity of the block
 * before it, starting from a root that covers everything else that determines the bits of a KV row:
 * the model, the KV format and the variant of the sequence. A book is good for one shard plan on
 * the same devices. So equal identities mean equal KV.
 *
 * A block whose identity is known but whose KV is still being computed is `promised`: a second
 * sequence with the same prefix can wait for it instead of computing it again.
 *
 * A prompt mostly ends, or leaves what is cached, in the middle of a block. Then the beginning of a
 * block is as good as the whole: the sequence that starts gets a copy of it. For this the book also
 * knows the tokens of each block, and blocks that sequences left half full stay cached.
 *
 * Threads: one owner. */
#ifndef SH_ENGINE_BLOCKS_H
#define SH_ENGINE_BLOCKS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_blocks sh_blocks;

typedef struct {
    int count; /* leading blocks that are ready: in the caller's list, one more reference each */
    sh_key128 key; /* identity of the last of them, or the root */
    bool promised; /* another sequence is computing the block after them */
} sh_prefix;

/* What may be reused of a block that is not wholly wanted. */
typedef enum {
    SH_PARTS_NONE,
    SH_PARTS_ANY,   /* any number of its first tokens: each has KV of its own */
    SH_PARTS_WHOLE, /* all that was computed in it: it holds one state, that after its last token */
} sh_block_parts;

/* Fewer tokens are computed again. All prompts in one chat format begin with the same few, which
 * would make each of them a cache hit. */
enum { SH_PART_MIN = 8 };

typedef struct {
    int32_t block;
    int count; /* of its first tokens; 0: there is none */
} sh_block_part;

/* `root` is the identity before the first block; `secret` keys the hash. */
sh_blocks *sh_blocks_create(int count, sh_key128 secret, sh_key128 root);
void sh_blocks_free(sh_blocks *blocks);

/* Blocks that can be taken now: free ones and cached ones. */
int sh_blocks_available(const sh_blocks *blocks);
int sh_blocks_total(const sh_blocks *blocks);
int sh_blocks_cached(const sh_blocks *blocks);

/* The identity before the first block of a sequence. Sequences of different variants have different
 * KV for the same tokens, and share nothing. */
sh_key128 sh_blocks_root(const sh_blocks *blocks, uint32_t variant);

/* The identity of the full block `tokens` (SH_KV_BLOCK of them) that follows `before`. */
sh_key128 sh_blocks_key(const sh_blocks *blocks, sh_key128 before, const int32_t *tokens);

/* Finds the longest run of ready blocks for the first block_count * SH_KV_BLOCK tokens after `root`
 * and takes a reference to each. */
sh_prefix sh_blocks_match(sh_blocks *blocks, sh_key128 root, const int32_t *tokens, int block_count,
                          int32_t *out);

/* From now on parts are reused, too. */
void sh_blocks_reuse_parts(sh_blocks *blocks, sh_block_parts parts);

/* Finds the block that has most of the `count` tokens after `before`, and no reference to it: who
 * copies it must do so before a block that is taken later is written. */
sh_block_part sh_blocks_match_part(sh_blocks *blocks, sh_key128 before, const int32_t *tokens,
                                   int count);

/* The block, held by one sequence that is about to release it, has the KV of the first `count`
 * tokens after `before`, fewer than it could have. */
void sh_blocks_keep_part(sh_blocks *blocks, int32_t block, sh_key128 before, const int32_t *tokens,
                         int count);

/* An empty block, held once; -1 when none is available. */
int32_t sh_blocks_take(sh_blocks *blocks);

/* Gives a held block, whose tokens follow `before`, its identity `key`. False, without effect, when
 * another block has it already. */
bool sh_blocks_promise(sh_blocks *blocks, int32_t block, sh_key128 before, const int32_t *tokens,
                       sh_key128 key);

/* The KV of a promised block has been computed. Does nothing for a block without an identity. */
void sh_blocks_ready(sh_blocks *blocks, int32_t block);

/* Drops one sequence's reference to `count` blocks, given in order. A block that was promised but
 * never computed loses its identity. */
void sh_blocks_release(sh_blocks *blocks, const int32_t *list, int count);

#endif
