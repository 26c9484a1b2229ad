/* The merge loop of BPE, made safe for hostile input and fast for ordinary text.
 *
 * The textbook loop scans all pairs for each merge, which is quadratic: a word of a megabyte would
 * take some 10^12 steps. Here symbols form a doubly linked list in one array, and a binary heap
 * holds one 64-bit item for each pair that can be merged: rank in the upper half, position in the
 * lower, so one comparison gives best rank first and leftmost on a tie, which is the order that the
 * reference implementation uses and that decides the result. Items are not removed from the heap
 * when a merge invalidates them; merge_all() drops an item if the symbol's rank no longer matches.
 *
 * Two shortcuts keep ordinary words off that path, and neither changes the result:
 *  - is_whole(): a word that is a token, and whose merges lead to that token, needs one lookup. A
 *    token that its own merges do not reach must not be taken (unless ignore_merges is set).
 *  - cut_find(): with SentencePiece vocabularies the whole text arrives as one word. It may be cut
 *    before a U+2581 that no merge can join to the character before it. */
#include "text/tokenizer/bpe.h"

#include "base/alloc.h"
#include "text/tokenizer/unicode.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEAR_CHARS = 0x180,   /* characters in a direct table; the byte alphabet ends at U+0143 */
    LOWER_BLOCK = 0x2581, /* SentencePiece's space */
    JOINS_LEN = 0x110000 / 8,
};

static const uint32_t none = UINT32_MAX;

/* Whether a token's own text encodes to just that token. */
enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

typedef struct {
    int32_t left; /* -1: free */
    int32_t right;
    uint32_t rank;
    int32_t into;
} pair_slot;

/* A piece of the word, stored at the index of its first character. */
struct sh_bpe_symbol {
    int32_t id;
    uint32_t prev;
    uint32_t next;
    uint32_t rank; /* of merging it with the next; none: not mergeable, or merged away */
    int32_t into;
};

typedef struct sh_bpe_symbol symbol;

struct sh_bpe {
    const sh_vocab *vocab;
    sh_bpe_opts opts;
    pair_slot *pairs;
    size_t mask;
    size_t pair_count;
    uint64_t seed;
    int32_t near[NEAR_CHARS];
    int32_t bytes[256];
    atomic_uchar *whole; /* [vocab->size] */
    uint8_t *joins;      /* one bit per character: can U+2581 merge onto it? NULL: never cut */
};

static void pairs_make(sh_bpe *bpe, size_t count)
{
    size_t slots = 64;
    while (slots < count * 2) slots *= 2;
    bpe->pairs = sh_realloc_array(NULL, slots, sizeof(*bpe->pairs));
    memset(bpe->pairs, 0xff, slots * sizeof(*bpe->pairs));
    bpe->mask = slots - 1;
}

static int32_t find_char(const sh_bpe *bpe, uint32_t code)
{
    char bytes[4];
    size_t len = (size_t)sh_utf8_encode(code, bytes);
    return sh_vocab_find(bpe->vocab, (sh_str){bytes, len});
}

/* Nearly all characters of ordinary text are found in the table, without hashing. */
static void chars_prepare(sh_bpe *bpe)
{
    for (uint32_t code = 0; code < NEAR_CHARS; code++) bpe->near[code] = find_char(bpe, code);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        bpe->bytes[byte] = sh_vocab_find(bpe->vocab, sh_str_of(name));
    }
}

/* Words may be cut before U+2581 if it is a token and every character yields some token: then what
 * precedes the U+2581 in the list of symbols always ends in the character that precedes it in the
 * text, and only a merge at that character could cross the cut. */
static bool may_cut(const sh_bpe *bpe)
{
    const sh_bpe_opts *opts = &bpe->opts;
    bool all = opts->byte_fallback;
    for (int byte = 0; byte < 256; byte++) all = all && bpe->bytes[byte] >= 0;
    if (opts->prefix.len > 0 || opts->suffix.len > 0 || opts->ignore_merges) return false;
    return (all || opts->unk_id >= 0) && find_char(bpe, LOWER_BLOCK) >= 0;
}

sh_bpe *sh_bpe_create(const sh_vocab *vocab, const sh_bpe_opts *opts, size_t merge_count)
{
    sh_bpe *bpe = sh_alloc(sizeof(*bpe));
    bpe->vocab = vocab;
    bpe->opts = *opts;
    bpe->opts.prefix.ptr = sh_str_dup(opts->prefix);
    bpe->opts.suffix.ptr = sh_str_dup(opts->suffix);
    bpe->seed = sh_hash_seed();
    pairs_make(bpe, merge_count);
    chars_prepare(bpe);
    size_t size = (size_t)vocab->size;
    bpe->whole = sh_alloc_array(size, sizeof(*bpe->whole));
    for (size_t i = 0; i < size && opts->ignore_merges; i++) bpe->whole[i] = WHOLE_YES;
    if (may_cut(bpe)) bpe->joins = sh_alloc(JOINS_LEN);
    return bpe;
}

void sh_bpe_free(sh_bpe *bpe)
{
    if (bpe == NULL) return;
    free((char *)bpe->opts.prefix.ptr);
    free((char *)bpe->opts.suffix.ptr);
    free(bpe->pairs);
    free(bpe->whole);
    free(bpe->joins);
    free(bpe);
}

/* The slot of the pair, or the free slot where it belongs. */
static pair_slot *pair_find(const sh_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = sh_hash_mix(key ^ bpe->seed, 0x9e3779b97f4a7c15u);
    for (size_t i = hash & bpe->mask;; i = (i + 1) & bpe->mask) {
        pair_slot *slot = &bpe->pairs[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

static void pairs_grow(sh_bpe *bpe)
{
    pair_slot *old = bpe->pairs;
    size_t slots = bpe->mask + 1;
    pairs_make(bpe, slots);
    for (size_t i = 0; i < slots; i++)
        if (old[i].left >= 0) *pair_find(bpe, old[i].left, old[i].right) = old[i];
    free(old);
}

/* Whether the token represents characters other than those of its own text: unk or a byte. */
static bool is_placeholder(const sh_bpe *bpe, int32_t id)
{
    bool hit = id == bpe->opts.unk_id;
    for (int byte = 0; byte < 256; byte++) hit = hit || id == bpe->bytes[byte];
    return hit;
}

/* Records the characters that some merge joins a U+2581 to. If a placeholder is among them the
 * character in the text is unknown, so cutting is disabled. */
static void joins_note(sh_bpe *bpe, int32_t left_id, int32_t right_id)
{
    int len;
    sh_str left = sh_vocab_piece(bpe->vocab, left_id), right = sh_vocab_piece(bpe->vocab, right_id);
    if (bpe->joins == NULL || left.len == 0 || right.len == 0) return;
    if (sh_unicode_next(right, &len) != LOWER_BLOCK) return;
    uint32_t code = sh_unicode_last(left, &len);
    bpe->joins[code / 8] |= (uint8_t)(1u << code % 8);
    if (!is_placeholder(bpe, left_id)) return;
    free(bpe->joins);
    bpe->joins = NULL;
}

void sh_bpe_add_merge(sh_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t into)
{
    SH_ASSERT(rank != none);
    SH_ASSERT(sh_vocab_piece(bpe->vocab, into).ptr != NULL);
    if ((bpe->pair_count + 1) * 2 > bpe->mask + 1) pairs_grow(bpe);
    pair_slot *slot = pair_find(bpe, left, right);
    if (slot->left < 0) bpe->pair_count++;
    *slot = (pair_slot){.left = left, .right = right, .rank = rank, .into = into};
    joins_note(bpe, left, right);
}

void sh_bpe_scratch_reset(sh_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    sh_buf_reset(&scratch->text);
    *scratch = (sh_bpe_scratch){0};
}

static void symbol_add(sh_bpe_scratch *s, int32_t id)
{
    if (s->count == s->cap) {
        s->cap = s->cap == 0 ? 64 : s->cap * 2;
        s->symbols = sh_realloc_array(s->symbols, s->cap, sizeof(*s->symbols));
    }
    s->symbols[s->count++].id = id;
}

/* The token of a character, with the prefix and suffix that its position in the word requires. */
static int32_t marked_find(const sh_bpe *bpe, sh_str ch, bool first, bool last, sh_buf *text)
{
    sh_buf_clear(text);
    if (!first) sh_buf_add_str(text, bpe->opts.prefix);
    sh_buf_add_str(text, ch);
    if (last) sh_buf_add_str(text, bpe->opts.suffix);
    return sh_vocab_find(bpe->vocab, sh_buf_str(text));
}

/* All bytes or none: a character must not be split between bytes and unk. */
static bool bytes_add(const sh_bpe *bpe, sh_str text, sh_bpe_scratch *s)
{
    for (size_t i = 0; i < text.len; i++)
        if (bpe->bytes[(unsigned char)text.ptr[i]] < 0) return false;
    for (size_t i = 0; i < text.len; i++) symbol_add(s, bpe->bytes[(unsigned char)text.ptr[i]]);
    return true;
}

/* Splits the word into one symbol per character. An unk is added only when the next known character
 * is reached, since a run of unknown characters may become a single unk. */
static void symbols_fill(const sh_bpe *bpe, sh_str word, sh_bpe_scratch *s)
{
    bool marked = bpe->opts.prefix.len + bpe->opts.suffix.len > 0, unk = false;
    int len;
    s->count = 0;
    for (size_t i = 0; i < word.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(word, i, word.len), &len);
        sh_str ch = sh_str_sub(word, i, (size_t)len);
        int32_t id;
        if (marked)
            id = marked_find(bpe, ch, i == 0, i + (size_t)len == word.len, &s->text);
        else
            id = code < NEAR_CHARS ? bpe->near[code] : sh_vocab_find(bpe->vocab, ch);
        if (id >= 0) {
            if (unk) symbol_add(s, bpe->opts.unk_id);
            unk = false;
            symbol_add(s, id);
        } else if (!bpe->opts.byte_fallback ||
                   !bytes_add(bpe, marked ? sh_buf_str(&s->text) : ch, s)) {
            if (unk && !bpe->opts.fuse_unk) symbol_add(s, bpe->opts.unk_id);
            unk = bpe->opts.unk_id >= 0;
        }
    }
    if (unk) symbol_add(s, bpe->opts.unk_id);
}

static void heap_down(uint64_t *heap, size_t len, size_t i)
{
    uint64_t item = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= len) break;
        if (child + 1 < len && heap[child + 1] < heap[child]) child++;
        if (item <= heap[child]) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
}

/* The caller has made sure that there is space. */
static void heap_push(sh_bpe_scratch *s, uint64_t item)
{
    size_t i = s->heap_len++;
    for (; i > 0 && item < s->heap[(i - 1) / 2]; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = item;
}

static uint64_t heap_pop(sh_bpe_scratch *s)
{
    uint64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->heap_len];
    if (s->heap_len > 0) heap_down(s->heap, s->heap_len, 0);
    return top;
}

/* Looks up the pair that starts at a symbol; true if it can be merged. */
static bool pair_set(const sh_bpe *bpe, symbol *symbols, uint32_t at)
{
    symbol *s = &symbols[at];
    s->rank = none;
    if (s->next == none) return false;
    const pair_slot *slot = pair_find(bpe, s->id, symbols[s->next].id);
    if (slot->left < 0) return false;
    s->rank = slot->rank;
    s->into = slot->into;
    return true;
}

/* Orders by rank, then by position. */
static uint64_t heap_item(const symbol *symbols, uint32_t at)
{
    return (uint64_t)symbols[at].rank << 32 | at;
}

static void heap_fill(const sh_bpe *bpe, sh_bpe_scratch *s)
{
    /* Each merge removes one item, adds at most two, and uses up one symbol: 2 * count is enough.
     */
    if (s->heap_cap < s->count * 2) {
        s->heap_cap = s->count * 2;
        s->heap = sh_realloc_array(s->heap, s->heap_cap, sizeof(*s->heap));
    }
    s->heap_len = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        s->symbols[i].prev = i == 0 ? none : i - 1;
        s->symbols[i].next = i + 1 == s->count ? none : i + 1;
    }
    for (uint32_t i = 0; i < s->count; i++)
        if (pair_set(bpe, s->symbols, i)) s->heap[s->heap_len++] = heap_item(s->symbols, i);
    for (size_t i = s->heap_len / 2; i-- > 0;) heap_down(s->heap, s->heap_len, i);
}

/* Merges the symbol with the next one. */
static void join(const sh_bpe *bpe, sh_bpe_scratch *s, uint32_t at)
{
    symbol *symbols = s->symbols, *left = &symbols[at], *right = &symbols[left->next];
    left->id = left->into;
    left->next = right->next;
    right->rank = none;
    right->id = -1;
    if (left->next != none) symbols[left->next].prev = at;
    if (left->prev != none && pair_set(bpe, symbols, left->prev))
        heap_push(s, heap_item(symbols, left->prev));
    if (pair_set(bpe, symbols, at)) heap_push(s, heap_item(symbols, at));
}

static void merge_all(const sh_bpe *bpe, sh_bpe_scratch *s)
{
    if (s->count < 2) return;
    heap_fill(bpe, s);
    while (s->heap_len > 0) {
        uint64_t item = heap_pop(s);
        uint32_t at = (uint32_t)item;
        if (s->symbols[at].rank == (uint32_t)(item >> 32)) join(bpe, s, at); /* else stale */
    }
}

/* Leaves the word's symbols in the scratch; those that were merged away have id -1. */
static void word_merge(const sh_bpe *bpe, sh_str word, sh_bpe_scratch *s)
{
    symbols_fill(bpe, word, s);
    merge_all(bpe, s);
}

/* Whether the token is the complete encoding of its own text. Threads may compute it at the same
 * time, but all arrive at the same answer, so relaxed order is enough. */
static bool is_whole(const sh_bpe *bpe, int32_t id, sh_str word, sh_bpe_scratch *s)
{
    unsigned char state = atomic_load_explicit(&bpe->whole[id], memory_order_relaxed);
    if (state == WHOLE_UNKNOWN) {
        word_merge(bpe, word, s);
        bool whole = s->count > 0 && s->symbols[0].id == id &&
                     (s->count == 1 || s->symbols[0].next == none);
        state = whole ? WHOLE_YES : WHOLE_NO;
        atomic_store_explicit(&bpe->whole[id], state, memory_order_relaxed);
    }
    return state == WHOLE_YES;
}

static void word_encode(const sh_bpe *bpe, sh_str word, sh_bpe_scratch *s, sh_ids *out)
{
    int32_t id = sh_vocab_find(bpe->vocab, word);
    if (id >= 0 && is_whole(bpe, id, word, s)) {
        sh_ids_add(out, id);
        return;
    }
    word_merge(bpe, word, s);
    for (size_t i = 0; i < s->count; i++)
        if (s->symbols[i].id >= 0) sh_ids_add(out, s->symbols[i].id);
}

/* Where the text may be cut: before a U+2581 that no merge joins to the character before it. Most
 * of the resulting parts are tokens. */
static size_t cut_find(const sh_bpe *bpe, sh_str word)
{
    static const sh_str block = {"\xe2\x96\x81", 3};
    int len;
    for (size_t at = sh_str_find(word, block, 1); at < word.len;
         at = sh_str_find(word, block, at + 1)) {
        uint32_t before = sh_unicode_last(sh_str_sub(word, 0, at), &len);
        if ((bpe->joins[before / 8] >> before % 8 & 1) == 0) return at;
    }
    return word.len;
}

void sh_bpe_encode(const sh_bpe *bpe, sh_str word, sh_bpe_scratch *scratch, sh_ids *out)
{
    SH_ASSERT(word.len <= SH_BPE_WORD_MAX);
    while (word.len > 0) {
        size_t len = bpe->joins == NULL ? word.len : cut_find(bpe, word);
        word_encode(bpe, sh_str_sub(word, 0, len), scratch, out);
        word = sh_str_sub(word, len, word.len);
    }
}
