/* Open addressing with linear probing, at most half full. A slot holds part of the hash, so that a
 * probe compares text only if that part matches. */
#include "text/tokenizer/vocab.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Without a source of randomness the clock must do: the seed only protects against collisions. */
uint64_t sh_hash_seed(void)
{
    uint64_t seed;
    sh_err err;
    if (sh_random_bytes(&seed, sizeof(seed), &err) != SH_OK) seed = (uint64_t)sh_clock_ns();
    return seed;
}

static uint64_t word_at(const char *ptr)
{
    uint64_t word;
    memcpy(&word, ptr, sizeof(word));
    return word;
}

/* The last, partial word of a text; never reads past its end. */
static uint64_t word_part(const char *ptr, size_t len)
{
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) word |= (uint64_t)(unsigned char)ptr[i] << (8 * i);
    return word;
}

/* Eight bytes per step. The seed enters at both ends, so that collisions cannot be found without
 * it. */
static uint64_t hash_text(uint64_t seed, sh_str text)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = seed ^ text.len;
    const char *ptr = text.ptr;
    size_t len = text.len;
    for (; len >= 8; ptr += 8, len -= 8) hash = sh_hash_mix(hash ^ word_at(ptr), odd);
    return sh_hash_mix(sh_hash_mix(hash ^ word_part(ptr, len), odd) ^ seed, odd);
}

static size_t slots_for(size_t count)
{
    size_t slots = 64;
    while (slots < count * 2) slots *= 2;
    return slots;
}

static void slots_make(sh_vocab *vocab, size_t slots)
{
    vocab->slots = sh_realloc_array(NULL, slots, sizeof(*vocab->slots));
    vocab->mask = slots - 1;
    memset(vocab->slots, 0xff, slots * sizeof(*vocab->slots));
}

void sh_vocab_init(sh_vocab *vocab, size_t count)
{
    *vocab = (sh_vocab){.seed = sh_hash_seed()};
    if (count > SH_VOCAB_MAX) count = SH_VOCAB_MAX;
    vocab->cap = (int32_t)count + 64;
    vocab->pieces = sh_alloc_array((size_t)vocab->cap, sizeof(*vocab->pieces));
    slots_make(vocab, slots_for((size_t)vocab->cap));
}

void sh_vocab_reset(sh_vocab *vocab)
{
    sh_arena_reset(&vocab->arena);
    free(vocab->pieces);
    free(vocab->slots);
    *vocab = (sh_vocab){0};
}

sh_str sh_vocab_piece(const sh_vocab *vocab, int32_t id)
{
    return id < 0 || id >= vocab->size ? (sh_str){NULL, 0} : vocab->pieces[id];
}

/* The slot of the piece, or the free slot where it belongs. */
static sh_vocab_slot *slot_of(const sh_vocab *vocab, sh_str piece, uint32_t *tag)
{
    uint64_t hash = hash_text(vocab->seed, piece);
    *tag = (uint32_t)(hash >> 32);
    for (size_t i = hash & vocab->mask;; i = (i + 1) & vocab->mask) {
        sh_vocab_slot *slot = &vocab->slots[i];
        if (slot->id < 0) return slot;
        if (slot->tag == *tag && sh_str_eq(vocab->pieces[slot->id], piece)) return slot;
    }
}

/* A word longer than any piece needs no hash: it may be megabytes long. */
int32_t sh_vocab_find(const sh_vocab *vocab, sh_str piece)
{
    uint32_t tag;
    if (piece.len > vocab->piece_len_max) return -1;
    return slot_of(vocab, piece, &tag)->id;
}

static void grow(sh_vocab *vocab)
{
    free(vocab->slots);
    slots_make(vocab, slots_for(vocab->count * 2));
    for (int32_t id = 0; id < vocab->size; id++) {
        uint32_t tag;
        if (vocab->pieces[id].ptr == NULL) continue;
        sh_vocab_slot *slot = slot_of(vocab, vocab->pieces[id], &tag);
        *slot = (sh_vocab_slot){.tag = tag, .id = id};
    }
}

/* New entries must be zero, since a NULL piece marks an id that is not in use. */
static void pieces_reserve(sh_vocab *vocab, int32_t id)
{
    if (id < vocab->cap) return;
    int32_t cap = id + id / 2 + 64;
    vocab->pieces = sh_realloc_array(vocab->pieces, (size_t)cap, sizeof(*vocab->pieces));
    memset(vocab->pieces + vocab->cap, 0, (size_t)(cap - vocab->cap) * sizeof(*vocab->pieces));
    vocab->cap = cap;
}

sh_status sh_vocab_add(sh_vocab *vocab, sh_str piece, int64_t id, sh_err *err)
{
    uint32_t tag;
    if (id < 0 || id >= SH_VOCAB_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "'%.*s' has id %lld, but ids must be 0 to %d",
                          (int)piece.len, piece.ptr, (long long)id, SH_VOCAB_MAX - 1);
    sh_str other = sh_vocab_piece(vocab, (int32_t)id);
    if (other.ptr != NULL)
        return sh_err_set(err, SH_ERR_INPUT, "id %lld is assigned to both '%.*s' and '%.*s'",
                          (long long)id, (int)other.len, other.ptr, (int)piece.len, piece.ptr);
    if ((vocab->count + 1) * 2 > vocab->mask + 1) grow(vocab);
    sh_vocab_slot *slot = slot_of(vocab, piece, &tag);
    if (slot->id >= 0)
        return sh_err_set(err, SH_ERR_INPUT, "'%.*s' appears twice, with ids %d and %lld",
                          (int)piece.len, piece.ptr, slot->id, (long long)id);
    pieces_reserve(vocab, (int32_t)id);
    *slot = (sh_vocab_slot){.tag = tag, .id = (int32_t)id};
    vocab->pieces[id] = sh_arena_str(&vocab->arena, piece);
    if (id >= vocab->size) vocab->size = (int32_t)id + 1;
    if (piece.len > vocab->piece_len_max) vocab->piece_len_max = piece.len;
    vocab->count++;
    return SH_OK;
}
