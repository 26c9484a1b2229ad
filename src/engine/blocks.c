/* Blocks live in one array and are linked by index. A block with an identity is in a bucket of the
 * hash table; a block without holders is in the ring of idle blocks, least recently released first.
 * Idle blocks without an identity go to the front of the ring, so no cached prefix is evicted while
 * an empty block is left.
 *
 * A block with known content is also among the siblings: those that follow the same block, in a
 * second table, the latest first. Thousands of prompts may follow the root, so only the first few
 * are looked at. */
#include "engine/blocks.h"

#include "base/alloc.h"
#include "kernels/device.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, SIBLINGS_MAX = 64 };

struct block {
    sh_key128 key;
    int32_t holders;
    int32_t bucket_next;
    int32_t idle_prev, idle_next; /* ring through the sentinel at index `count` */
    bool keyed;
    bool ready;
    int filled; /* tokens whose KV is known to be in it: it is among its siblings; 0: it is not */
    int32_t sibling_prev, sibling_next;
    sh_key128 before;
    int32_t tokens[SH_KV_BLOCK];
};

struct sh_blocks {
    int count;
    int idle;
    int cached;
    sh_key128 secret;
    sh_key128 root;
    uint32_t mask;
    int32_t *buckets;
    int32_t *siblings; /* as many */
    sh_block_parts parts;
    struct block *list; /* count + 1: the last is the sentinel of the idle ring */
};

/* Whether it may be of use to another sequence. */
static bool is_known(const struct block *block)
{
    return block->keyed || block->filled > 0;
}

static void idle_insert(sh_blocks *b, int32_t at, int32_t after)
{
    struct block *list = b->list;
    list[at].idle_prev = after;
    list[at].idle_next = list[after].idle_next;
    list[list[after].idle_next].idle_prev = at;
    list[after].idle_next = at;
    b->idle++;
    if (is_known(&list[at])) b->cached++;
}

static void idle_remove(sh_blocks *b, int32_t at)
{
    struct block *list = b->list;
    list[list[at].idle_prev].idle_next = list[at].idle_next;
    list[list[at].idle_next].idle_prev = list[at].idle_prev;
    b->idle--;
    if (is_known(&list[at])) b->cached--;
}

sh_blocks *sh_blocks_create(int count, sh_key128 secret, sh_key128 root)
{
    SH_ASSERT(count > 0);
    sh_blocks *b = sh_alloc(sizeof(*b));
    b->count = count;
    b->secret = secret;
    b->root = root;
    /* A power of two, at most half full: chains stay short without ever resizing. */
    uint32_t buckets = 16;
    while (buckets < (uint32_t)count * 2) buckets *= 2;
    b->mask = buckets - 1;
    b->buckets = sh_alloc_array(buckets, sizeof(*b->buckets));
    b->siblings = sh_alloc_array(buckets, sizeof(*b->siblings));
    for (uint32_t i = 0; i < buckets; i++) b->buckets[i] = b->siblings[i] = NONE;
    b->list = sh_alloc_array((size_t)count + 1, sizeof(*b->list));
    b->list[count].idle_prev = b->list[count].idle_next = count;
    for (int32_t i = count - 1; i >= 0; i--) idle_insert(b, i, count);
    return b;
}

void sh_blocks_free(sh_blocks *b)
{
    if (b == NULL) return;
    free(b->buckets);
    free(b->siblings);
    free(b->list);
    free(b);
}

int sh_blocks_available(const sh_blocks *b)
{
    return b->idle;
}

int sh_blocks_total(const sh_blocks *b)
{
    return b->count;
}

int sh_blocks_cached(const sh_blocks *b)
{
    return b->cached;
}

/* Both hashes cover a struct without padding, so equal values have equal bytes. */
sh_key128 sh_blocks_root(const sh_blocks *b, uint32_t variant)
{
    struct {
        sh_key128 root;
        uint64_t variant;
    } text = {b->root, variant};
    return sh_hash128(b->secret, &text, sizeof(text));
}

sh_key128 sh_blocks_key(const sh_blocks *b, sh_key128 before, const int32_t *tokens)
{
    struct {
        sh_key128 before;
        int32_t tokens[SH_KV_BLOCK];
    } text = {.before = before};
    memcpy(text.tokens, tokens, sizeof(text.tokens));
    return sh_hash128(b->secret, &text, sizeof(text));
}

static int32_t *bucket_of(sh_blocks *b, sh_key128 key)
{
    return &b->buckets[key.lo & b->mask];
}

static int32_t find(sh_blocks *b, sh_key128 key)
{
    int32_t at = *bucket_of(b, key);
    while (at != NONE && !sh_key128_eq(b->list[at].key, key)) at = b->list[at].bucket_next;
    return at;
}

static int32_t *siblings_of(sh_blocks *b, sh_key128 before)
{
    return &b->siblings[before.lo & b->mask];
}

static void sibling_insert(sh_blocks *b, int32_t at, int filled)
{
    int32_t *first = siblings_of(b, b->list[at].before);
    b->list[at].sibling_prev = NONE;
    b->list[at].sibling_next = *first;
    if (*first != NONE) b->list[*first].sibling_prev = at;
    *first = at;
    b->list[at].filled = filled;
}

static void sibling_remove(sh_blocks *b, int32_t at)
{
    struct block *block = &b->list[at];
    if (block->filled == 0) return;
    if (block->sibling_prev == NONE)
        *siblings_of(b, block->before) = block->sibling_next;
    else
        b->list[block->sibling_prev].sibling_next = block->sibling_next;
    if (block->sibling_next != NONE)
        b->list[block->sibling_next].sibling_prev = block->sibling_prev;
    block->filled = 0;
}

static void content_set(struct block *block, sh_key128 before, const int32_t *tokens, int count)
{
    block->before = before;
    memcpy(block->tokens, tokens, (size_t)count * sizeof(*tokens));
}

/* The block loses its identity: it can no longer be found. */
static void key_remove(sh_blocks *b, int32_t at)
{
    struct block *block = &b->list[at];
    int32_t *link = bucket_of(b, block->key);
    while (*link != at) link = &b->list[*link].bucket_next;
    *link = block->bucket_next;
    block->keyed = block->ready = false;
}

/* How many of the first `count` tokens after `before` can be taken from a block. */
static int usable(const sh_blocks *b, const struct block *block, sh_key128 before,
                  const int32_t *tokens, int count)
{
    int most = block->filled < count ? block->filled : count, same = 0;
    if (!sh_key128_eq(block->before, before)) return 0;
    while (same < most && block->tokens[same] == tokens[same]) same++;
    return b->parts == SH_PARTS_WHOLE && same < block->filled ? 0 : same;
}

/* It was useful: it becomes the latest of its siblings, and of those that may be evicted. */
static void refresh(sh_blocks *b, int32_t at)
{
    int filled = b->list[at].filled;
    if (b->list[at].holders == 0) {
        idle_remove(b, at);
        idle_insert(b, at, b->list[b->count].idle_prev);
    }
    sibling_remove(b, at);
    sibling_insert(b, at, filled);
}

void sh_blocks_reuse_parts(sh_blocks *b, sh_block_parts parts)
{
    b->parts = parts;
}

sh_block_part sh_blocks_match_part(sh_blocks *b, sh_key128 before, const int32_t *tokens, int count)
{
    sh_block_part best = {.block = NONE};
    int left = b->parts == SH_PARTS_NONE || count < SH_PART_MIN ? 0 : SIBLINGS_MAX;
    for (int32_t at = *siblings_of(b, before); at != NONE && left > 0 && best.count < count;
         at = b->list[at].sibling_next, left--) {
        int same = usable(b, &b->list[at], before, tokens, count);
        if (same >= SH_PART_MIN && same > best.count) best = (sh_block_part){at, same};
    }
    if (best.count > 0) refresh(b, best.block);
    return best;
}

/* A part that has nothing that the new one has not. With states each one is of use of its own. */
static bool is_outdone(const sh_blocks *b, const struct block *block, sh_key128 before,
                       const int32_t *tokens, int count)
{
    return b->parts == SH_PARTS_ANY && block->holders == 0 && !block->keyed &&
           usable(b, block, before, tokens, count) == block->filled;
}

void sh_blocks_keep_part(sh_blocks *b, int32_t at, sh_key128 before, const int32_t *tokens,
                         int count)
{
    struct block *block = &b->list[at];
    if (b->parts == SH_PARTS_NONE || count < SH_PART_MIN) return;
    SH_ASSERT(block->holders == 1 && !block->ready && count < SH_KV_BLOCK);
    sh_block_part other = sh_blocks_match_part(b, before, tokens, count);
    if (other.count == count) return; /* it would be there twice */
    if (other.count > 0 && is_outdone(b, &b->list[other.block], before, tokens, count)) {
        idle_remove(b, other.block);
        sibling_remove(b, other.block);
        idle_insert(b, other.block, b->count);
    }
    if (block->keyed) key_remove(b, at);
    content_set(block, before, tokens, count);
    sibling_insert(b, at, count);
}

sh_prefix sh_blocks_match(sh_blocks *b, sh_key128 root, const int32_t *tokens, int block_count,
                          int32_t *out)
{
    sh_prefix prefix = {.key = root};
    for (; prefix.count < block_count; prefix.count++) {
        sh_key128 key = sh_blocks_key(b, prefix.key, tokens + prefix.count * SH_KV_BLOCK);
        int32_t at = find(b, key);
        if (at == NONE || !b->list[at].ready) {
            prefix.promised = at != NONE;
            break;
        }
        if (b->list[at].holders++ == 0) idle_remove(b, at); /* it can no longer be evicted */
        out[prefix.count] = at;
        prefix.key = key;
    }
    return prefix;
}

int32_t sh_blocks_take(sh_blocks *b)
{
    if (b->idle == 0) return NONE;
    int32_t at = b->list[b->count].idle_next;
    idle_remove(b, at);
    if (b->list[at].keyed) key_remove(b, at); /* none is empty: evict the oldest cached one */
    sibling_remove(b, at);
    b->list[at].holders = 1;
    return at;
}

bool sh_blocks_promise(sh_blocks *b, int32_t at, sh_key128 before, const int32_t *tokens,
                       sh_key128 key)
{
    struct block *block = &b->list[at];
    SH_ASSERT(block->holders > 0 && !block->keyed);
    if (find(b, key) != NONE) return false;
    int32_t *bucket = bucket_of(b, key);
    content_set(block, before, tokens, SH_KV_BLOCK);
    block->key = key;
    block->keyed = true;
    block->ready = false;
    block->bucket_next = *bucket;
    *bucket = at;
    return true;
}

void sh_blocks_ready(sh_blocks *b, int32_t at)
{
    struct block *block = &b->list[at];
    if (!block->keyed || block->ready) return;
    block->ready = true;
    sibling_insert(b, at, SH_KV_BLOCK);
}

/* Last block first: the ring evicts in the order of release, and a cached block is of no use once
 * one of the blocks before it is gone. */
void sh_blocks_release(sh_blocks *b, const int32_t *list, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        struct block *block = &b->list[list[i]];
        SH_ASSERT(block->holders > 0);
        if (--block->holders > 0) continue;
        if (block->keyed && !block->ready) key_remove(b, list[i]);
        int32_t sentinel = b->count;
        idle_insert(b, list[i], is_known(block) ? b->list[sentinel].idle_prev : sentinel);
    }
}
