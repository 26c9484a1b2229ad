/* constraint.h - what binds an answer to a grammar: which tokens may come next.
 *
 * A constraint is a grammar with its matcher, and the ids that end an answer. An ending id is
 * allowed where the grammar's text may end, or where the grammar has that id as its last token; it
 * never counts as text. Requests with the same grammar and ids share a constraint, and it is kept
 * for a while after the last of them: a schema that is used again costs nothing.
 *
 * The text of the tokens comes from outside (sh_vocabulary_source): it is loaded on a thread of its
 * own when the first request with a grammar comes.
 *
 * Threads: the engine's, except for the loading of the vocabulary. */
#ifndef SH_ENGINE_CONSTRAINT_H
#define SH_ENGINE_CONSTRAINT_H

#include "text/grammar/matcher.h"

#include <stdbool.h>
#include <stdint.h>

/* What the tokens of the model stand for. */
typedef struct {
    const sh_token_trie *trie; /* without ending tokens */
    /* Fills out with the first tokens of the usual encoding of a text, at most `max`; returns how
     * many. */
    int (*encode)(void *ctx, sh_str text, int32_t *out, int max);
    void *ctx;
} sh_vocabulary;

typedef struct {
    /* Called once, on another thread. What *out points to belongs to the source and outlives the
     * constraints. NULL: requests with a grammar are refused. */
    sh_status (*load)(void *ctx, sh_vocabulary *out, sh_err *err);
    void *ctx;
} sh_vocabulary_source;

typedef struct sh_constraints sh_constraints; /* the constraints of an engine */
typedef struct sh_constraint sh_constraint;

/* `vocab`: tokens of the model; the vocabulary may have fewer or more. */
SH_MUST_CHECK sh_status sh_constraints_open(const sh_vocabulary_source *source, int vocab,
                                            sh_constraints **out, sh_err *err);
void sh_constraints_close(sh_constraints *all);

/* SH_OK: the vocabulary is there. SH_AGAIN: it is being loaded, beginning with the first call. An
 * error: it cannot be. */
SH_MUST_CHECK sh_status sh_constraints_ready(sh_constraints *all, sh_err *err);

/* The constraint of a packed grammar, once they are ready. Fails if the bytes are no grammar. */
SH_MUST_CHECK sh_status sh_constraints_take(sh_constraints *all, sh_str grammar,
                                            const int32_t *ends, int end_count, sh_constraint **out,
                                            sh_err *err);
void sh_constraint_release(sh_constraint *c);

/* The state after a token of the answer; SH_MATCH_DEAD if it is not allowed there. Fails if the
 * matcher has reached a limit. */
SH_MUST_CHECK sh_status sh_constraint_next(sh_constraint *c, sh_match_state from, int32_t token,
                                           sh_match_state *out, sh_err *err);

/* Masks with equal keys have equal bits. */
typedef struct {
    uint64_t constraint; /* its number, which no other ever gets */
    uint64_t ends;       /* which of its ending ids are allowed */
    uint64_t text;       /* which tokens besides these: the matcher's number */
} sh_mask_key;

typedef struct {
    sh_mask_key key;
    int allowed;           /* tokens */
    const uint64_t *words; /* of the matcher, valid until the next mask */
    uint32_t word_count;
} sh_mask;

/* The tokens that a state allows. Without `may_end` the ending ids are allowed only if nothing else
 * is. Fails if there are none at all, too. */
SH_MUST_CHECK sh_status sh_constraint_mask(sh_constraint *c, sh_match_state state, bool may_end,
                                           sh_mask *out, sh_err *err);

/* Whether the mask of a state is at hand. If not, it takes a while to make, and until then goes by
 * a key that no mask has. */
bool sh_constraint_has_mask(sh_constraint *c, sh_match_state state);
sh_mask_key sh_constraint_future_key(const sh_constraint *c, sh_match_state state, bool may_end);

/* The bits of a mask, for all tokens of the model. */
void sh_constraint_mask_bits(const sh_constraint *c, const sh_mask *mask, uint64_t *out);

/* Those of a mask that allows everything. */
void sh_constraint_all_bits(const sh_constraint *c, uint64_t *out);

/* The token of a state whose mask allows only one; -1 if it allows more. Does not make the mask.
 * Fails as sh_constraint_mask does. */
SH_MUST_CHECK sh_status sh_constraint_only(sh_constraint *c, sh_match_state state, bool may_end,
                                           int32_t *out, sh_err *err);

/* Fills out with tokens for the text that must follow, at most `max`; returns how many. It is a
 * guess: the same text may be drawn in other tokens. */
int sh_constraint_forced(sh_constraint *c, sh_match_state state, int32_t *out, int max);

#endif
