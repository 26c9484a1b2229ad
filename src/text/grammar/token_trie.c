#include "text/grammar/token_trie.h"

#include "base/alloc.h"
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

void sh_token_mark(int32_t id, char out[SH_TOKEN_MARK_LEN])
{
    out[0] = (char)SH_TOKEN_MARK_BYTE;
    for (int i = 1; i < SH_TOKEN_MARK_LEN; i++) out[i] = (char)(id >> (6 * (4 - i)) & 63);
}

/* ---- which characters are below a node ---- */

/* How much of a character has been read: the states of a UTF-8 decoder. A node's set has a bit for
 * each state from which everything below it is valid. Tokens may end within a character. */
enum { AT_START, NEED_1, NEED_2, NEED_3, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4, DECODER_STATES };

static int decode_byte(int state, uint8_t c)
{
    static const struct {
        uint8_t lo, hi;
        int next;
    } rest[DECODER_STATES] = {
        [NEED_1] = {0x80, 0xbf, AT_START}, [NEED_2] = {0x80, 0xbf, NEED_1},
        [NEED_3] = {0x80, 0xbf, NEED_2},   [AFTER_E0] = {0xa0, 0xbf, NEED_1},
        [AFTER_ED] = {0x80, 0x9f, NEED_1}, [AFTER_F0] = {0x90, 0xbf, NEED_2},
        [AFTER_F4] = {0x80, 0x8f, NEED_2},
    };
    if (state != AT_START)
        return c >= rest[state].lo && c <= rest[state].hi ? rest[state].next : -1;
    if (c < 0x80) return AT_START;
    if (c < 0xc2 || c > 0xf4) return -1;
    if (c < 0xe0) return NEED_1;
    if (c < 0xf0) return c == 0xe0 ? AFTER_E0 : c == 0xed ? AFTER_ED : NEED_2;
    return c == 0xf0 ? AFTER_F0 : c == 0xf4 ? AFTER_F4 : NEED_3;
}

/* Children come after their parents, so a pass backwards sees them first. */
static void describe_subtrees(sh_trie_tree *t)
{
    uint16_t *good = sh_alloc_array(t->count + 1, sizeof(*good));
    for (uint32_t n = t->count; n-- > 0;) {
        sh_trie_node *node = &t->nodes[n];
        good[n] = (1 << DECODER_STATES) - 1;
        for (uint32_t c = node->children; c < node[1].children; c++) {
            const sh_trie_node *child = &t->nodes[c];
            for (int s = 0; s < DECODER_STATES; s++) {
                int next = decode_byte(s, child->byte);
                if (next < 0 || (good[c] >> next & 1) == 0) good[n] &= (uint16_t) ~(1u << s);
            }
            if (child->chars > node->chars) node->chars = child->chars;
            node->multibyte |= child->multibyte;
            for (int i = 0; i < 2; i++) node->ascii[i] |= child->ascii[i];
        }
        if (n == 0) break; /* the root has no byte */
        int after = decode_byte(AT_START, node->byte);
        node->valid = after >= 0 && (good[n] >> after & 1) != 0;
        node->multibyte |= node->byte > 0x7f;
        node->chars = (uint16_t)(node->chars + ((node->byte & 0xc0) != 0x80));
        if (node->byte < 0x80) node->ascii[node->byte / 64] |= (uint64_t)1 << node->byte % 64;
    }
    free(good);
}

/* ---- building ---- */

typedef struct {
    sh_str text;
    int32_t id;
} entry;

static int order_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    size_t len = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = memcmp(x->text.ptr, y->text.ptr, len);
    if (order != 0) return order;
    if (x->text.len != y->text.len) return x->text.len < y->text.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static size_t shared_prefix(sh_str a, sh_str b)
{
    size_t i = 0;
    while (i < a.len && i < b.len && a.ptr[i] == b.ptr[i]) i++;
    return i;
}

/* A node while the trie is built: tokens with the same first bytes are a range of the sorted list.
 */
typedef struct {
    uint32_t first, end;
} entry_range;

/* Adds a child for each byte that follows at `depth`. */
static void add_children(sh_trie_tree *t, entry_range *ranges, uint32_t node, const entry *entries,
                         uint32_t depth)
{
    sh_trie_node *n = &t->nodes[node];
    uint32_t at = ranges[node].first, end = ranges[node].end;
    *n = (sh_trie_node){.children = t->count, .ids = at, .ids_end = end, .byte = n->byte};
    while (at < end && entries[at].text.len == depth) at++;
    n->own_end = at;
    while (at < end) {
        char byte = entries[at].text.ptr[depth];
        ranges[t->count].first = at;
        while (at < end && entries[at].text.ptr[depth] == byte) at++;
        ranges[t->count].end = at;
        t->nodes[t->count++].byte = (uint8_t)byte;
    }
}

static void add_nodes(sh_trie_tree *t, const entry *entries, size_t count, size_t node_count)
{
    entry_range *ranges = sh_alloc_array(node_count + 1, sizeof(*ranges));
    ranges[0].end = (uint32_t)count;
    t->count = 1;
    for (uint32_t n = 0, level_end = 1; n < t->count; n++) {
        if (n == level_end) {
            level_end = t->count;
            t->depth++;
        }
        add_children(t, ranges, n, entries, t->depth);
    }
    t->nodes[t->count].children = t->count;
    for (size_t i = 0; i < count; i++) t->ids[i] = entries[i].id;
    free(ranges);
}

static void tree_build(sh_trie_tree *t, const entry *entries, size_t count)
{
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        sh_str before = i == 0 ? (sh_str){0} : entries[i - 1].text;
        nodes += entries[i].text.len - shared_prefix(before, entries[i].text);
    }
    t->nodes = sh_alloc_array(nodes + 1, sizeof(*t->nodes));
    t->ids = sh_alloc_array(count, sizeof(*t->ids));
    add_nodes(t, entries, count, nodes);
    describe_subtrees(t);
}

/* ---- plain tokens ---- */

static void plain_chars(uint64_t ascii[2])
{
    for (int c = 0x20; c < 0x7f; c++)
        if (strchr("\"\\'`<", c) == NULL) ascii[c / 64] |= (uint64_t)1 << c % 64;
}

/* The characters of a plain token, also a begun one; 0 for another. */
static uint32_t plain_count(const sh_plain_tokens *p, sh_str text)
{
    uint32_t chars = 0;
    int state = AT_START;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.ptr[i];
        if (c < 0x80 && (p->ascii[c / 64] >> c % 64 & 1) == 0) return 0;
        chars += state == AT_START;
        state = decode_byte(state, c);
        if (state < 0) return 0;
    }
    return chars;
}

static int order_long(const void *a, const void *b)
{
    const struct sh_long_token *x = a, *y = b;
    return x->chars < y->chars ? -1 : x->chars > y->chars;
}

static void set_bit(uint64_t *words, int32_t id)
{
    words[id / 64] |= (uint64_t)1 << id % 64;
}

/* Divides the tokens into plain ones and others, of which it returns the number. */
static size_t plain_take(sh_plain_tokens *p, const entry *entries, size_t count, size_t size,
                         entry *others)
{
    size_t words = (size + 63) / 64, rest = 0;
    plain_chars(p->ascii);
    p->all = sh_alloc_array(words, sizeof(*p->all));
    p->longer = sh_alloc_array(count, sizeof(*p->longer));
    for (int k = 0; k <= SH_PLAIN_CHARS; k++)
        p->upto[k] = sh_alloc_array(words, sizeof(*p->upto[k]));
    for (size_t i = 0; i < count; i++) {
        uint32_t chars = plain_count(p, entries[i].text);
        if (chars == 0) {
            others[rest++] = entries[i];
            continue;
        }
        set_bit(p->all, entries[i].id);
        for (uint32_t k = chars; k <= SH_PLAIN_CHARS; k++) set_bit(p->upto[k], entries[i].id);
        if (chars > SH_PLAIN_CHARS)
            p->longer[p->longer_count++] = (struct sh_long_token){entries[i].id, chars};
    }
    qsort(p->longer, p->longer_count, sizeof(*p->longer), order_long);
    return rest;
}

void sh_plain_tokens_mask(const sh_token_trie *t, uint32_t chars, uint64_t *words)
{
    const sh_plain_tokens *p = &t->plain;
    const uint64_t *from = chars > SH_PLAIN_CHARS ? p->all : p->upto[chars];
    memcpy(words, from, (t->size + 63) / 64 * sizeof(*words));
    if (chars <= SH_PLAIN_CHARS) return;
    for (size_t i = p->longer_count; i > 0 && p->longer[i - 1].chars > chars; i--) {
        int32_t id = p->longer[i - 1].id;
        words[id / 64] &= ~((uint64_t)1 << id % 64);
    }
}

/* ---- all together ---- */

static sh_token_trie *build(const entry *entries, size_t count, size_t size, const int32_t *ends,
                            size_t end_count)
{
    sh_token_trie *t = sh_alloc(sizeof(*t));
    entry *others = sh_alloc_array(count, sizeof(*others));
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += entries[i].text.len;
    t->size = (uint32_t)size;
    t->tokens = sh_alloc_array(size, sizeof(*t->tokens));
    t->bytes = sh_alloc(bytes);
    tree_build(&t->tree, entries, count);
    tree_build(&t->other, others, plain_take(&t->plain, entries, count, size, others));
    free(others);
    char *at = t->bytes;
    for (size_t i = 0; i < count; i++) {
        memcpy(at, entries[i].text.ptr, entries[i].text.len);
        t->tokens[entries[i].id] = (sh_str){at, entries[i].text.len};
        at += entries[i].text.len;
    }
    t->ends = sh_alloc_array(end_count, sizeof(*t->ends));
    for (size_t i = 0; i < end_count; i++)
        if (ends[i] >= 0 && (size_t)ends[i] < size) t->ends[t->end_count++] = ends[i];
    return t;
}

/* Bytes that no text has would be taken for the mark of a special token. */
static bool is_usable(sh_str text)
{
    return text.len > 0 && text.len <= SH_TOKEN_LEN_MAX &&
           memchr(text.ptr, SH_TOKEN_MARK_BYTE, text.len) == NULL;
}

sh_token_trie *sh_token_trie_build(const sh_token_text *tokens, size_t count, const int32_t *ends,
                                   size_t end_count)
{
    entry *entries = sh_alloc_array(count, sizeof(*entries));
    char *marks = sh_alloc_array(count, SH_TOKEN_MARK_LEN);
    size_t used = 0;
    for (size_t id = 0; id < count; id++) {
        sh_str text = tokens[id].bytes;
        if (tokens[id].special) {
            char *mark = marks + id * SH_TOKEN_MARK_LEN;
            sh_token_mark((int32_t)id, mark);
            text = (sh_str){mark, SH_TOKEN_MARK_LEN};
        } else if (!is_usable(text))
            continue;
        entries[used++] = (entry){text, (int32_t)id};
    }
    qsort(entries, used, sizeof(*entries), order_entries);
    sh_token_trie *t = build(entries, used, count, ends, end_count);
    free(entries);
    free(marks);
    return t;
}

sh_token_trie *sh_token_trie_create(const sh_tokenizer *tok, const int32_t *ends, size_t end_count)
{
    size_t count = (size_t)sh_tokenizer_size(tok);
    sh_token_text *tokens = sh_alloc_array(count, sizeof(*tokens));
    size_t *firsts = sh_alloc_array(count + 1, sizeof(*firsts));
    sh_buf bytes = {0};
    for (size_t id = 0; id < count; id++) {
        firsts[id] = bytes.len;
        tokens[id].special = sh_tokenizer_is_special(tok, (int32_t)id);
        if (!tokens[id].special) sh_tokenizer_bytes(tok, (int32_t)id, &bytes);
    }
    firsts[count] = bytes.len;
    for (size_t id = 0; id < count; id++)
        tokens[id].bytes = (sh_str){bytes.ptr + firsts[id], firsts[id + 1] - firsts[id]};
    sh_token_trie *t = sh_token_trie_build(tokens, count, ends, end_count);
    free(tokens);
    free(firsts);
    sh_buf_reset(&bytes);
    return t;
}

static void tree_reset(sh_trie_tree *t)
{
    free(t->nodes);
    free(t->ids);
}

void sh_token_trie_free(sh_token_trie *t)
{
    if (t == NULL) return;
    tree_reset(&t->tree);
    tree_reset(&t->other);
    for (int k = 0; k <= SH_PLAIN_CHARS; k++) free(t->plain.upto[k]);
    free(t->plain.all);
    free(t->plain.longer);
    free(t->tokens);
    free(t->bytes);
    free(t->ends);
    free(t);
}
