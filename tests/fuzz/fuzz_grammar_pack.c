/* A packed grammar from another process: what unpacks packs to the same bytes, and a matcher can
 * run it. It may match anything, but it stays within its memory and its limits. */
#include "text/grammar/matcher.h"
#include "text/grammar/pack.h"

#include <string.h>

static const char *const texts[] = {"a",    "b", "ab", "{",    "{\"",   "\"",
                                    "\":",  ",", "1",  "12",   " ",     "\xc3\xa4",
                                    "\xc3", "]", "}",  "true", "abcabc"};
enum { TEXTS = SH_COUNT_OF(texts), VOCAB = TEXTS + 2 };

static const sh_token_trie *trie_of_texts(void)
{
    static sh_token_trie *trie;
    sh_token_text tokens[VOCAB];
    if (trie != NULL) return trie;
    for (int i = 0; i < VOCAB; i++)
        tokens[i] = (sh_token_text){sh_str_of(i < (int)TEXTS ? texts[i] : ""), i >= (int)TEXTS};
    trie = sh_token_trie_build(tokens, VOCAB, NULL, 0);
    return trie;
}

/* Follows one of the allowed tokens, chosen by the bytes. */
static void run(const sh_grammar *g, sh_str bytes)
{
    sh_matcher *m = sh_matcher_create(g, trie_of_texts());
    sh_match_state state = SH_MATCH_START;
    sh_token_mask mask;
    sh_err err;
    sh_buf forced = {0};
    for (size_t step = 0; step < 12; step++) {
        if (sh_matcher_mask(m, state, &mask, &err) != SH_OK || mask.allowed == 0) break;
        if (sh_matcher_forced(m, state, &forced, &err) != SH_OK) break;
        int32_t id = (int32_t)((uint8_t)bytes.ptr[bytes.len - 1 - step % bytes.len] % VOCAB);
        while ((mask.words[id / 64] >> id % 64 & 1) == 0) id = (id + 1) % VOCAB;
        /* A grammar that promises more characters than it has leads nowhere here. */
        if (sh_matcher_token(m, state, id, &state, &err) != SH_OK || state == SH_MATCH_DEAD) break;
    }
    sh_buf_reset(&forced);
    sh_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    sh_str bytes = {(const char *)data, len};
    sh_grammar *g;
    sh_err err;
    sh_buf again = {0};
    if (sh_grammar_unpack(bytes, &g, &err) != SH_OK) return 0;
    sh_grammar_pack(g, &again);
    SH_ASSERT(again.len == len && memcmp(again.ptr, data, len) == 0);
    run(g, bytes);
    sh_buf_reset(&again);
    sh_grammar_free(g);
    return 0;
}
