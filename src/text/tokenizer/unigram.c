/* The best cut is found from left to right: for each position of the word the best way to get there
 * is known, and every piece that starts there may be the best way to where it ends.
 *
 * Pieces that start at a position are found in the list of all pieces, sorted by their bytes: those
 * that begin with the bytes so far are neighbours, and each further byte narrows the range. A piece
 * that is complete comes first in its range. */
#include "text/tokenizer/unigram.h"

#include "base/alloc.h"
#include "text/tokenizer/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double UNK_PENALTY = 10; /* an unknown character is this much worse than any piece */

struct sh_unigram {
    const sh_vocab *vocab;
    double *scores;
    int32_t unk_id;
    double unk_score;
    bool byte_fallback;
    int32_t bytes[256]; /* tokens of bytes, <0x00> to <0xFF>; -1: none */
    int32_t *order;     /* ids with a piece, sorted by it */
    size_t order_count;
    size_t starts[257]; /* where the pieces with each first byte begin in `order` */
};

/* The best way to a position of the word. */
struct sh_unigram_node {
    double score;
    size_t from; /* where its last piece starts; SIZE_MAX: there is no way */
    int32_t id;
};

typedef struct sh_unigram_node node;

typedef struct {
    sh_str piece;
    int32_t id;
} sorted_piece;

static int piece_compare(const void *a, const void *b)
{
    sh_str x = ((const sorted_piece *)a)->piece, y = ((const sorted_piece *)b)->piece;
    size_t len = x.len < y.len ? x.len : y.len;
    int differs = memcmp(x.ptr, y.ptr, len);
    return differs != 0 ? differs : (x.len > y.len) - (x.len < y.len);
}

static void pieces_sort(sh_unigram *u)
{
    sorted_piece *list = sh_alloc_array(u->vocab->count + 1, sizeof(*list));
    for (int32_t id = 0; id < u->vocab->size; id++) {
        sh_str piece = sh_vocab_piece(u->vocab, id);
        if (piece.len > 0) list[u->order_count++] = (sorted_piece){piece, id};
    }
    qsort(list, u->order_count, sizeof(*list), piece_compare);
    u->order = sh_alloc_array(u->order_count + 1, sizeof(*u->order));
    for (size_t i = 0; i < u->order_count; i++) {
        u->order[i] = list[i].id;
        u->starts[(unsigned char)list[i].piece.ptr[0] + 1] = i + 1;
    }
    for (int b = 1; b <= 256; b++)
        if (u->starts[b] < u->starts[b - 1]) u->starts[b] = u->starts[b - 1];
    free(list);
}

sh_unigram *sh_unigram_create(const sh_vocab *vocab, const double *scores, int32_t unk_id,
                              bool byte_fallback)
{
    sh_unigram *u = sh_alloc(sizeof(*u));
    double least = INFINITY;
    u->vocab = vocab;
    u->unk_id = unk_id;
    u->byte_fallback = byte_fallback;
    u->scores = sh_alloc_array((size_t)vocab->size + 1, sizeof(*u->scores));
    for (int32_t id = 0; id < vocab->size; id++) {
        u->scores[id] = scores[id];
        if (sh_vocab_piece(vocab, id).ptr != NULL && scores[id] < least) least = scores[id];
    }
    u->unk_score = least - UNK_PENALTY;
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        u->bytes[byte] = sh_vocab_find(vocab, sh_str_of(name));
    }
    pieces_sort(u);
    return u;
}

void sh_unigram_free(sh_unigram *u)
{
    if (u == NULL) return;
    free(u->scores);
    free(u->order);
    free(u);
}

void sh_unigram_scratch_reset(sh_unigram_scratch *scratch)
{
    free(scratch->nodes);
    *scratch = (sh_unigram_scratch){0};
}

/* Byte `at` of a piece; -1 past its end, which sorts before all bytes. */
static int byte_at(const sh_unigram *u, size_t idx, size_t at)
{
    sh_str piece = sh_vocab_piece(u->vocab, u->order[idx]);
    return at < piece.len ? (unsigned char)piece.ptr[at] : -1;
}

/* The first piece of [first, end) whose byte `at` is `byte` or larger. */
static size_t range_start(const sh_unigram *u, size_t first, size_t end, size_t at, int byte)
{
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (byte_at(u, middle, at) < byte)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static void way_add(node *to, size_t from, double score, int32_t id)
{
    if (to->from != SIZE_MAX && score <= to->score) return;
    *to = (node){.score = score, .from = from, .id = id};
}

/* Continues with every piece that starts at `at`. Whether one of them is its character alone. */
static bool pieces_try(const sh_unigram *u, sh_str word, size_t at, size_t char_len, node *nodes)
{
    int byte = (unsigned char)word.ptr[at];
    size_t first = u->starts[byte], end = u->starts[byte + 1];
    bool alone = false;
    for (size_t len = 1; first < end; len++) {
        int32_t id = u->order[first];
        if (sh_vocab_piece(u->vocab, id).len == len) {
            way_add(&nodes[at + len], at, nodes[at].score + u->scores[id], id);
            alone = alone || len == char_len;
            first++;
        }
        if (at + len == word.len) break;
        int next = (unsigned char)word.ptr[at + len];
        first = range_start(u, first, end, len, next);
        end = range_start(u, first, end, len, next + 1);
    }
    return alone;
}

static node *nodes_reserve(sh_unigram_scratch *scratch, size_t count)
{
    if (scratch->cap < count) {
        scratch->cap = count * 2;
        free(scratch->nodes);
        scratch->nodes = sh_realloc_array(NULL, scratch->cap, sizeof(*scratch->nodes));
    }
    for (size_t i = 0; i < count; i++) scratch->nodes[i] = (node){.from = SIZE_MAX};
    return scratch->nodes;
}

/* A run of unknown characters: the tokens of its bytes, or one id for all of it. */
static sh_status unknown_add(const sh_unigram *u, sh_str text, sh_ids *out, sh_err *err)
{
    bool bytes = u->byte_fallback;
    for (size_t i = 0; bytes && i < text.len; i++)
        bytes = u->bytes[(unsigned char)text.ptr[i]] >= 0;
    for (size_t i = 0; bytes && i < text.len; i++)
        sh_ids_add(out, u->bytes[(unsigned char)text.ptr[i]]);
    if (bytes) return SH_OK;
    if (u->unk_id < 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "the vocabulary lacks a character of the text, and an id for such");
    sh_ids_add(out, u->unk_id);
    return SH_OK;
}

/* Turns the way to the end around, so that each node names where the next piece ends. */
static void way_turn(node *nodes, size_t len)
{
    size_t to = len, next = SIZE_MAX;
    while (to > 0) {
        size_t from = nodes[to].from;
        nodes[to].from = next;
        next = to;
        to = from;
    }
    nodes[0].from = next;
}

sh_status sh_unigram_encode(const sh_unigram *u, sh_str word, sh_unigram_scratch *scratch,
                            sh_ids *out, sh_err *err)
{
    SH_ASSERT(word.len <= SH_UNIGRAM_WORD_MAX);
    node *nodes = nodes_reserve(scratch, word.len + 1);
    int len;
    for (size_t at = 0; at < word.len; at += (size_t)len) {
        sh_unicode_next(sh_str_sub(word, at, word.len), &len);
        if (!pieces_try(u, word, at, (size_t)len, nodes))
            way_add(&nodes[at + (size_t)len], at, nodes[at].score + u->unk_score, -1);
    }
    way_turn(nodes, word.len);
    sh_status status = SH_OK;
    for (size_t at = 0; at < word.len && status == SH_OK;) {
        size_t end = nodes[at].from, from = at;
        bool unknown = nodes[end].id < 0 || nodes[end].id == u->unk_id;
        while (unknown && end < word.len) { /* a run of them counts as one */
            size_t next = nodes[end].from;
            if (nodes[next].id >= 0 && nodes[next].id != u->unk_id) break;
            end = next;
        }
        if (unknown)
            status = unknown_add(u, sh_str_sub(word, from, end - from), out, err);
        else
            sh_ids_add(out, nodes[end].id);
        at = end;
    }
    return status;
}
