/* matcher.h - runs a grammar over the tokens of a vocabulary.
 *
 * A state says all that matters of the text so far. States are numbers that stay valid as long as
 * the matcher, and equal states have equal numbers: going back to an earlier one (a rejected draft)
 * costs nothing, and several answers can share a matcher.
 *
 * A mask has a bit for each token that may come next: token id is bit id % 64 of word id / 64. It
 * is found by walking the token trie, and cached by state. Masks with equal bits have the same
 * number, so that each has to be sent to other processes once.
 *
 * Ending tokens are allowed where the text may end. Special tokens are allowed only where the
 * grammar names them (sh_expr_token).
 *
 * Threads: a token trie is immutable once created. A matcher has one owner; matchers share grammars
 * and tries. The grammar and the trie must outlive the matcher. */
#ifndef SH_TEXT_GRAMMAR_MATCHER_H
#define SH_TEXT_GRAMMAR_MATCHER_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_token_trie sh_token_trie;
typedef struct sh_matcher sh_matcher;

/* ---- vocabulary ---- */

/* The tokens of a tokenizer, once for each; ids of `ends` end an answer. */
sh_token_trie *sh_token_trie_create(const sh_tokenizer *tok, const int32_t *ends, size_t end_count);

typedef struct {
    sh_str bytes; /* empty: the id has no token */
    bool special;
} sh_token_text;

/* The same from a list: tokens[id]. */
sh_token_trie *sh_token_trie_build(const sh_token_text *tokens, size_t count, const int32_t *ends,
                                   size_t end_count);
void sh_token_trie_free(sh_token_trie *trie);

/* ---- states ---- */

typedef uint32_t sh_match_state;

enum { SH_MATCH_DEAD = 0, SH_MATCH_START = 1 }; /* nothing matches; nothing has been read */

sh_matcher *sh_matcher_create(const sh_grammar *grammar, const sh_token_trie *trie);
void sh_matcher_free(sh_matcher *m);

/* The state after the bytes or the token; SH_MATCH_DEAD if the grammar does not allow them. An
 * ending token leads to SH_MATCH_DEAD, since nothing may follow. Fails if the matcher has outgrown
 * its limits: a grammar that is too ambiguous, or a text with too many different states. */
SH_MUST_CHECK sh_status sh_matcher_bytes(sh_matcher *m, sh_match_state from, sh_str bytes,
                                         sh_match_state *out, sh_err *err);
SH_MUST_CHECK sh_status sh_matcher_token(sh_matcher *m, sh_match_state from, int32_t id,
                                         sh_match_state *out, sh_err *err);

/* Whether the text may end here. */
bool sh_matcher_accepts(const sh_matcher *m, sh_match_state state);

/* Appends the bytes that must come next, whatever follows them; nothing if there is a choice, the
 * text may end here or the next is a special token. Always whole characters. */
SH_MUST_CHECK sh_status sh_matcher_forced(sh_matcher *m, sh_match_state state, sh_buf *out,
                                          sh_err *err);

/* ---- masks ---- */

typedef struct {
    uint32_t number;  /* equal for equal bits, as long as the matcher lives */
    uint32_t allowed; /* bits that are set; 0 only if the vocabulary cannot go on */
    int32_t first;    /* the first allowed token, -1 if there is none */
    uint32_t word_count;
    const uint64_t *words; /* valid until the next call of sh_matcher_mask */
} sh_token_mask;

SH_MUST_CHECK sh_status sh_matcher_mask(sh_matcher *m, sh_match_state state, sh_token_mask *out,
                                        sh_err *err);

/* Whether sh_matcher_mask has the mask of the state, or has to make it. */
bool sh_matcher_has_mask(sh_matcher *m, sh_match_state state);

/* The tokens that a mask would have, without ending ones, if they are few: *count of them in ids
 * [max]. *count is more than max if there are more, which is found without looking at all of them.
 */
SH_MUST_CHECK sh_status sh_matcher_few(sh_matcher *m, sh_match_state state, int32_t *ids,
                                       uint32_t max, uint32_t *count, sh_err *err);

/* Memory in use, so that an owner who keeps matchers for later requests can drop a large one. */
size_t sh_matcher_memory(const sh_matcher *m);

#endif
