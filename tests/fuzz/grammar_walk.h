/* grammar_walk.h - what must hold for every grammar that compiles: from each state that a random
 * text reaches, the mask of single bytes is what the bytes lead to, and the text can go on or end.
 */
#ifndef SH_FUZZ_GRAMMAR_WALK_H
#define SH_FUZZ_GRAMMAR_WALK_H

#include "text/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

enum { WALK_STEPS = 24, BYTE_TOKENS = 255, END_TOKEN = 255 };

static void must(bool ok)
{
    if (!ok) abort();
}

static const sh_token_trie *byte_trie(void)
{
    static sh_token_trie *trie;
    static char bytes[BYTE_TOKENS];
    static sh_token_text tokens[BYTE_TOKENS + 1];
    int32_t end = END_TOKEN;
    if (trie != NULL) return trie;
    for (int i = 0; i < BYTE_TOKENS; i++) {
        bytes[i] = (char)i;
        tokens[i].bytes = (sh_str){&bytes[i], 1};
    }
    tokens[END_TOKEN].special = true;
    trie = sh_token_trie_build(tokens, BYTE_TOKENS + 1, &end, 1);
    return trie;
}

/* The byte after `from`, cyclically, that the state allows. */
static int next_allowed(const sh_token_mask *mask, uint8_t from)
{
    for (int i = 0; i < 256; i++) {
        int id = (from + i) % 256;
        if (id != END_TOKEN && (mask->words[id / 64] >> id % 64 & 1)) return id;
    }
    return -1;
}

static void walk_grammar(const sh_grammar *grammar, const uint8_t *data, size_t size)
{
    sh_matcher *m = sh_matcher_create(grammar, byte_trie());
    sh_match_state at = SH_MATCH_START, next;
    sh_token_mask mask;
    sh_buf forced = {0};
    sh_err err;
    for (size_t i = 0; i < WALK_STEPS; i++) {
        if (sh_matcher_mask(m, at, &mask, &err) != SH_OK) break;
        must(mask.allowed > 0);
        for (int id = 0; id < BYTE_TOKENS; id++) {
            if (sh_matcher_token(m, at, id, &next, &err) != SH_OK) break;
            must((next != SH_MATCH_DEAD) == (mask.words[id / 64] >> id % 64 & 1));
        }
        if (sh_matcher_forced(m, at, &forced, &err) != SH_OK) break;
        must(sh_utf8_valid(forced.ptr, forced.len));
        int byte = next_allowed(&mask, size == 0 ? 0 : data[i % size]);
        if (byte < 0 || sh_matcher_token(m, at, byte, &at, &err) != SH_OK) break;
    }
    sh_buf_reset(&forced);
    sh_matcher_free(m);
}

static void compile_and_walk(sh_grammar_builder *b, sh_expr root, const uint8_t *data, size_t size)
{
    sh_grammar *grammar = NULL;
    sh_err err;
    if (sh_grammar_compile(b, root, &grammar, &err) == SH_OK)
        walk_grammar(grammar, data, size);
    else
        must(err.text[0] != '\0' && err.status != SH_OK);
    sh_grammar_free(grammar);
}

#endif
