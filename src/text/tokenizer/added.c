/* A trie of the tokens' bytes, walked from every position of the text. Texts are long and tokens
 * few, so the table of first bytes is what matters: at most positions it says "none" at once.
 *
 * Text comes from clients, so the search must not have a bad case: the longest token bounds the
 * walk at one position, and white space consumed by rstrip is remembered (space_end) instead of
 * being scanned again for each token.
 *
 * The trie is built level by level from the sorted tokens: all tokens below a node are neighbours
 * in that order, so a node is a range of them. */
#include "text/tokenizer/added.h"

#include "base/alloc.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t first; /* edge */
    uint32_t count;
    const sh_added_token *token; /* that ends here, or NULL */
} trie_node;

typedef struct {
    unsigned char byte;
    uint32_t node;
} trie_edge;

/* Node 0 is the root. Nodes are ordered by depth, the edges of a node by byte. */
struct sh_added_trie {
    trie_node *nodes;
    trie_edge *edges;
    uint32_t starts[256]; /* the root's child for each first byte; 0: none */
};

/* While a trie is built: the tokens that start with the text of a node. */
typedef struct {
    size_t first;
    size_t end;
    size_t depth;
} trie_range;

void sh_added_add(sh_added *added, const sh_added_token *token)
{
    if (token->content.len == 0) return;
    if (added->count == added->cap) {
        added->cap = added->cap == 0 ? 64 : added->cap * 2;
        added->tokens = sh_realloc_array(added->tokens, added->cap, sizeof(*added->tokens));
    }
    sh_added_token *copy = &added->tokens[added->count++];
    *copy = *token;
    copy->content = sh_arena_str(&added->arena, token->content);
    copy->shown = sh_arena_str(&added->arena, token->shown);
}

static int text_compare(sh_str a, sh_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int id_compare(const void *a, const void *b)
{
    const sh_added_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int content_compare(const void *a, const void *b)
{
    const sh_added_token *x = *(const sh_added_token *const *)a;
    const sh_added_token *y = *(const sh_added_token *const *)b;
    return text_compare(x->content, y->content);
}

static int shown_compare(const void *a, const void *b)
{
    const sh_added_token *x = *(const sh_added_token *const *)a;
    const sh_added_token *y = *(const sh_added_token *const *)b;
    int order = text_compare(x->shown, y->shown);
    return order != 0 ? order : id_compare(x, y);
}

/* Entries with the same id and content are duplicates and merged; different content is an error. */
static sh_status ids_check(sh_added *added, sh_err *err)
{
    size_t kept = 0;
    qsort(added->tokens, added->count, sizeof(*added->tokens), id_compare);
    for (size_t i = 0; i < added->count; i++) {
        sh_added_token *token = &added->tokens[i];
        sh_added_token *last = kept == 0 ? NULL : &added->tokens[kept - 1];
        if (last == NULL || last->id != token->id)
            added->tokens[kept++] = *token;
        else if (!sh_str_eq(last->content, token->content))
            return sh_err_set(err, SH_ERR_INPUT, "id %d is assigned to both '%s' and '%s'",
                              token->id, last->content.ptr, token->content.ptr);
    }
    added->count = kept;
    return SH_OK;
}

/* The sorted list stays: sh_added_by_content() searches it. */
static sh_status contents_check(sh_added *added, sh_err *err)
{
    added->sorted = sh_alloc_array(added->count, sizeof(*added->sorted));
    for (size_t i = 0; i < added->count; i++) added->sorted[i] = &added->tokens[i];
    qsort(added->sorted, added->count, sizeof(*added->sorted), content_compare);
    for (size_t i = 1; i < added->count; i++) {
        const sh_added_token *a = added->sorted[i - 1], *b = added->sorted[i];
        if (sh_str_eq(a->content, b->content))
            return sh_err_set(err, SH_ERR_INPUT, "'%s' appears twice, with ids %d and %d",
                              a->content.ptr, a->id, b->id);
    }
    return SH_OK;
}

/* Creates the edges of a node: one for each byte that follows its text in the sorted tokens. */
static void node_fill(sh_added_trie *trie, const sh_added_token **tokens, size_t node,
                      trie_range *ranges, uint32_t *nodes, uint32_t *edges)
{
    trie_range range = ranges[node];
    size_t i = range.first, depth = range.depth;
    trie->nodes[node].first = *edges;
    for (; i < range.end && tokens[i]->shown.len == depth; i++) trie->nodes[node].token = tokens[i];
    while (i < range.end) {
        unsigned char byte = (unsigned char)tokens[i]->shown.ptr[depth];
        size_t first = i;
        while (i < range.end && (unsigned char)tokens[i]->shown.ptr[depth] == byte) i++;
        ranges[*nodes] = (trie_range){.first = first, .end = i, .depth = depth + 1};
        trie->edges[(*edges)++] = (trie_edge){.byte = byte, .node = (*nodes)++};
    }
    trie->nodes[node].count = *edges - trie->nodes[node].first;
}

static sh_added_trie *trie_build(const sh_added_token **tokens, size_t count)
{
    if (count == 0) return NULL;
    size_t nodes_max = 1;
    for (size_t i = 0; i < count; i++) nodes_max += tokens[i]->shown.len;
    SH_ASSERT(nodes_max < UINT32_MAX);
    sh_added_trie *trie = sh_alloc(sizeof(*trie));
    trie->nodes = sh_alloc_array(nodes_max, sizeof(*trie->nodes));
    trie->edges = sh_alloc_array(nodes_max, sizeof(*trie->edges));
    trie_range *ranges = sh_alloc_array(nodes_max, sizeof(*ranges));
    uint32_t nodes = 1, edges = 0;
    qsort(tokens, count, sizeof(*tokens), shown_compare);
    ranges[0] = (trie_range){.first = 0, .end = count, .depth = 0};
    for (uint32_t node = 0; node < nodes; node++)
        node_fill(trie, tokens, node, ranges, &nodes, &edges);
    for (uint32_t i = 0; i < trie->nodes[0].count; i++)
        trie->starts[trie->edges[i].byte] = trie->edges[i].node;
    free(ranges);
    return trie;
}

static sh_added_trie *trie_of(const sh_added *added, bool normalized)
{
    const sh_added_token **tokens = sh_alloc_array(added->count, sizeof(*tokens));
    size_t count = 0;
    for (size_t i = 0; i < added->count; i++) {
        const sh_added_token *token = &added->tokens[i];
        if (token->normalized == normalized && token->shown.len > 0) tokens[count++] = token;
    }
    sh_added_trie *trie = trie_build(tokens, count);
    free(tokens);
    return trie;
}

sh_status sh_added_seal(sh_added *added, sh_err *err)
{
    if (added->count == 0) return SH_OK;
    sh_status status = ids_check(added, err);
    if (status == SH_OK) status = contents_check(added, err);
    if (status != SH_OK) return status;
    added->raw = trie_of(added, false);
    added->normalized = trie_of(added, true);
    return SH_OK;
}

static void trie_free(sh_added_trie *trie)
{
    if (trie == NULL) return;
    free(trie->nodes);
    free(trie->edges);
    free(trie);
}

void sh_added_reset(sh_added *added)
{
    trie_free(added->raw);
    trie_free(added->normalized);
    free(added->sorted);
    free(added->tokens);
    sh_arena_reset(&added->arena);
    *added = (sh_added){0};
}

const sh_added_token *sh_added_by_id(const sh_added *added, int32_t id)
{
    sh_added_token key = {.id = id};
    if (added->count == 0) return NULL;
    return bsearch(&key, added->tokens, added->count, sizeof(key), id_compare);
}

const sh_added_token *sh_added_by_content(const sh_added *added, sh_str content)
{
    const sh_added_token token = {.content = content}, *key = &token;
    if (added->count == 0 || content.len == 0) return NULL;
    const sh_added_token **hit = bsearch(&key, added->sorted, added->count, sizeof(key),
                                         content_compare);
    return hit == NULL ? NULL : *hit;
}

static uint32_t node_next(const sh_added_trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t low = trie->nodes[node].first, high = low + trie->nodes[node].count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (trie->edges[mid].byte == byte) return trie->edges[mid].node;
        if (trie->edges[mid].byte < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

/* The longest token that starts at `at`, or NULL; *end receives its end. */
static const sh_added_token *longest_at(const sh_added_trie *trie, sh_str text, size_t at,
                                        size_t *end)
{
    const sh_added_token *best = NULL;
    uint32_t node = trie->starts[(unsigned char)text.ptr[at]];
    for (size_t i = at + 1; node != 0; i++) {
        if (trie->nodes[node].token != NULL) {
            best = trie->nodes[node].token;
            *end = i;
        }
        node = i < text.len ? node_next(trie, node, (unsigned char)text.ptr[i]) : 0;
    }
    return best;
}

static bool word_touches(sh_str text, size_t first, size_t end)
{
    int len;
    if (first > 0 && sh_unicode_is_word(sh_unicode_last(sh_str_sub(text, 0, first), &len)))
        return true;
    return end < text.len &&
           sh_unicode_is_word(sh_unicode_next(sh_str_sub(text, end, text.len), &len));
}

static size_t spaces_before(sh_str text, size_t at, size_t least)
{
    int len;
    while (at > least && sh_unicode_is_space(sh_unicode_last(sh_str_sub(text, 0, at), &len)))
        at -= (size_t)len;
    return at < least ? least : at;
}

static size_t spaces_after(sh_str text, size_t at)
{
    int len;
    while (at < text.len &&
           sh_unicode_is_space(sh_unicode_next(sh_str_sub(text, at, text.len), &len)))
        at += (size_t)len;
    return at;
}

/* Records the token at [at, end). White space that an earlier token consumed is neither consumed
 * nor scanned again, so a hostile text of white space stays linear. Returns false if an earlier
 * token has already consumed all of this one. */
static bool found(sh_added_walk *walk, const sh_added_token *token, size_t at, size_t end)
{
    walk->token = token;
    walk->from = walk->done;
    walk->first = at;
    if (token->lstrip) walk->first = spaces_before(walk->text, at, walk->done);
    walk->done = end;
    if (token->rstrip) {
        if (walk->space_end < end) walk->space_end = spaces_after(walk->text, end);
        walk->done = walk->space_end;
    }
    return walk->first < walk->done;
}

/* A token that was found but does not count is skipped as a whole: the search continues after it,
 * as in the tokenizers library, and not one byte further. */
bool sh_added_next(sh_added_walk *walk)
{
    while (walk->trie != NULL && walk->at < walk->text.len) {
        size_t end = 0, at = walk->at;
        const sh_added_token *token = longest_at(walk->trie, walk->text, at, &end);
        walk->at = token == NULL ? at + 1 : end;
        if (token == NULL || (token->special && walk->skip_special)) continue;
        if (token->single_word && word_touches(walk->text, at, end)) continue;
        if (found(walk, token, at, end)) return true;
    }
    walk->from = walk->done;
    walk->first = walk->text.len;
    return false;
}
