/* token_trie.h - the byte strings of a vocabulary, sorted, for the mask walk.
 *
 * Nodes are level by level, so that the children of a node are neighbours in memory: the walk looks
 * at all of them, and most of its time is waiting for memory. The tokens of a subtree are
 * neighbours in `ids`. Special tokens are in the trie under a mark that no text has (0xff and the
 * id), which is also what a grammar has for them.
 *
 * Most states that allow many tokens are inside strings or free text, where every plain token is
 * allowed, as far as the length of the text is not limited. Plain tokens have no character that may
 * end a text or begin an escape: no quote, backslash, `<` or control character. They are known as
 * ready masks, and all other tokens are in a second, small tree, which is then the only one to be
 * walked.
 *
 * Threads: immutable once created. */
#ifndef SH_TEXT_GRAMMAR_TOKEN_TRIE_H
#define SH_TEXT_GRAMMAR_TOKEN_TRIE_H

#include "text/grammar/matcher.h"

enum { SH_TOKEN_MARK_LEN = 5, SH_TOKEN_MARK_BYTE = 0xff, SH_TOKEN_LEN_MAX = 4096 };

/* The bytes that stand for a special token. */
void sh_token_mark(int32_t id, char out[SH_TOKEN_MARK_LEN]);

/* What `ascii`, `chars`, `multibyte` and `valid` say covers the node's own byte and all below. */
typedef struct {
    uint32_t children; /* sorted by byte; up to the next node's */
    uint32_t ids;      /* the tokens that end here, then those below */
    uint32_t own_end, ids_end;
    uint64_t ascii[2]; /* the ASCII bytes */
    uint16_t chars;    /* the most characters, also begun ones */
    uint8_t byte;
    bool multibyte; /* there are bytes above 0x7f */
    bool valid;     /* these are valid UTF-8 if they begin with a character, or the start of it */
} sh_trie_node;

typedef struct {
    sh_trie_node *nodes; /* [count + 1]; 0 is the root */
    uint32_t count;
    int32_t *ids;
    uint32_t depth; /* bytes of the longest token */
} sh_trie_tree;

enum { SH_PLAIN_CHARS = 16 };

/* The plain tokens: all bytes are in `ascii` or are characters beyond it, the last maybe cut. */
typedef struct {
    uint64_t ascii[2];
    uint64_t *upto[SH_PLAIN_CHARS + 1]; /* masks of those with at most so many characters */
    uint64_t *all;
    struct sh_long_token {
        int32_t id;
        uint32_t chars;
    } * longer; /* than SH_PLAIN_CHARS, by length */
    size_t longer_count;
} sh_plain_tokens;

struct sh_token_trie {
    sh_trie_tree tree;
    sh_trie_tree other; /* without plain tokens */
    sh_plain_tokens plain;
    sh_str *tokens; /* [size], as they are in the trie; empty: not in it */
    char *bytes;    /* the memory of the tokens */
    uint32_t size;
    int32_t *ends;
    size_t end_count;
};

/* Sets the bits of the plain tokens of at most so many characters, and no others. */
void sh_plain_tokens_mask(const sh_token_trie *trie, uint32_t chars, uint64_t *words);

#endif
