/* The matcher knows nothing of ending ids: its trie has none. Which of a constraint's ids a state
 * allows is a set of at most SH_STOP_IDS_MAX bits, so that the matcher's number of a mask and this
 * set together name the mask that is drawn with.
 *
 * States are kept as long as their matcher, so a matcher grows with the answers that use it. One
 * that has grown large is left to its present users, and the next request gets a new one. */
#include "engine/constraint.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/thread.h"
#include "engine/engine_client.h"
#include "text/grammar/limits.h"
#include "text/grammar/pack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEPT_MAX = 64,                           /* constraints without a user that are kept */
    KEPT_BYTES = 64 << 20,                   /* their memory */
    USED_BYTES = 512 << 20,                  /* with more in use, no other grammar is taken */
    LARGE_BYTES = SH_MATCHER_MEMORY_MAX / 4, /* of a matcher that gets no new users */
    FORCED_BYTES_PER_TOKEN = 32,             /* more text is not encoded for a draft */
};

struct sh_constraint {
    sh_constraint *next; /* the most recently taken first */
    sh_constraints *all;
    sh_key128 name; /* hash of grammar and ids */
    uint64_t number;
    int users;
    sh_grammar *grammar;
    sh_matcher *matcher;
    int32_t ends[SH_STOP_IDS_MAX]; /* each once */
    int end_count;
};

typedef enum { UNLOADED, LOADING, LOADED, FAILED } load_state;

struct sh_constraints {
    sh_vocabulary_source source;
    int vocab;
    sh_key128 secret;
    sh_constraint *list;
    uint64_t numbers;
    sh_buf text; /* scratch */
    pthread_t thread;
    atomic_int state; /* load_state; what follows is written before it is LOADED or FAILED */
    sh_vocabulary vocabulary;
    sh_err failure;
};

sh_status sh_constraints_open(const sh_vocabulary_source *source, int vocab, sh_constraints **out,
                              sh_err *err)
{
    sh_key128 secret;
    sh_status status = sh_random_bytes(&secret, sizeof(secret), err);
    if (status != SH_OK) return status;
    sh_constraints *all = sh_alloc(sizeof(*all));
    all->source = *source;
    all->vocab = vocab;
    all->secret = secret;
    *out = all;
    return SH_OK;
}

static void constraint_free(sh_constraint *c)
{
    sh_matcher_free(c->matcher);
    sh_grammar_free(c->grammar);
    free(c);
}

void sh_constraints_close(sh_constraints *all)
{
    if (all == NULL) return;
    if (atomic_load(&all->state) != UNLOADED) pthread_join(all->thread, NULL);
    for (sh_constraint *c = all->list, *next; c != NULL; c = next) {
        next = c->next;
        SH_ASSERT(c->users == 0);
        constraint_free(c);
    }
    sh_buf_reset(&all->text);
    free(all);
}

static void *load_thread(void *arg)
{
    sh_constraints *all = arg;
    sh_status status = all->source.load(all->source.ctx, &all->vocabulary, &all->failure);
    atomic_store(&all->state, status == SH_OK ? LOADED : FAILED);
    return NULL;
}

sh_status sh_constraints_ready(sh_constraints *all, sh_err *err)
{
    if (all->source.load == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "this engine has no text for its tokens, so "
                          "answers cannot be bound to a grammar");
    if (atomic_load(&all->state) == UNLOADED) {
        atomic_store(&all->state, LOADING);
        if (sh_thread_start(&all->thread, load_thread, all) != 0) {
            atomic_store(&all->state, UNLOADED);
            return sh_err_set(err, SH_ERR_SYSTEM, "cannot start a thread to load the tokenizer");
        }
    }
    switch (atomic_load(&all->state)) {
    case LOADED: return SH_OK;
    case FAILED: *err = all->failure; return err->status;
    default: return SH_AGAIN;
    }
}

/* ---- the kept ones ---- */

static size_t memory_of(const sh_constraint *c)
{
    return sh_matcher_memory(c->matcher) + sh_grammar_measure(c->grammar).bytes;
}

/* Frees those without a user that are too many or too much; the least recently taken go first.
 * Returns the memory of the others. */
static size_t trim(sh_constraints *all)
{
    int kept = 0;
    size_t kept_bytes = 0, used_bytes = 0;
    for (sh_constraint **at = &all->list; *at != NULL;) {
        sh_constraint *c = *at;
        size_t bytes = memory_of(c);
        bool used = c->users > 0;
        if (!used && (kept == KEPT_MAX || kept_bytes + bytes > KEPT_BYTES)) {
            *at = c->next;
            constraint_free(c);
            continue;
        }
        kept += !used;
        *(used ? &used_bytes : &kept_bytes) += bytes;
        at = &c->next;
    }
    return used_bytes;
}

static sh_constraint *take_kept(sh_constraints *all, sh_key128 name)
{
    for (sh_constraint **at = &all->list; *at != NULL; at = &(*at)->next) {
        sh_constraint *c = *at;
        if (!sh_key128_eq(c->name, name) || sh_matcher_memory(c->matcher) > LARGE_BYTES) continue;
        *at = c->next;
        return c;
    }
    return NULL;
}

static int order_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static int sort_ids(int32_t *ids, int count)
{
    int used = 0;
    qsort(ids, (size_t)count, sizeof(*ids), order_ids);
    for (int i = 0; i < count; i++)
        if (used == 0 || ids[used - 1] != ids[i]) ids[used++] = ids[i];
    return used;
}

static sh_status make(sh_constraints *all, sh_str grammar, sh_constraint **out, sh_err *err)
{
    sh_grammar *unpacked;
    if (trim(all) > USED_BYTES)
        return sh_err_set(err, SH_ERR_MEMORY, "the grammars of open requests take more than %d MiB",
                          USED_BYTES >> 20);
    sh_status status = sh_grammar_unpack(grammar, &unpacked, err);
    if (status != SH_OK) return status;
    sh_constraint *c = sh_alloc(sizeof(*c));
    c->all = all;
    c->number = ++all->numbers;
    c->grammar = unpacked;
    c->matcher = sh_matcher_create(unpacked, all->vocabulary.trie);
    *out = c;
    return SH_OK;
}

sh_status sh_constraints_take(sh_constraints *all, sh_str grammar, const int32_t *ends,
                              int end_count, sh_constraint **out, sh_err *err)
{
    int32_t ids[SH_STOP_IDS_MAX];
    SH_ASSERT(end_count <= SH_STOP_IDS_MAX);
    if (end_count > 0) memcpy(ids, ends, (size_t)end_count * sizeof(*ids));
    end_count = sort_ids(ids, end_count);
    sh_key128 name = sh_hash128(sh_hash128(all->secret, grammar.ptr, grammar.len), ids,
                                (size_t)end_count * sizeof(*ids));
    sh_constraint *c = take_kept(all, name);
    if (c == NULL) {
        sh_status status = make(all, grammar, &c, err);
        if (status != SH_OK) return status;
        c->name = name;
        c->end_count = end_count;
        memcpy(c->ends, ids, (size_t)end_count * sizeof(*ids));
    }
    c->next = all->list;
    all->list = c;
    c->users++;
    *out = c;
    return SH_OK;
}

void sh_constraint_release(sh_constraint *c)
{
    if (c == NULL) return;
    if (--c->users == 0) trim(c->all);
}

/* ---- states and masks ---- */

sh_status sh_constraint_next(sh_constraint *c, sh_match_state from, int32_t token,
                             sh_match_state *out, sh_err *err)
{
    return sh_matcher_token(c->matcher, from, token, out, err);
}

/* Which of the ending ids a state allows. `named`: those that the grammar has as tokens there. */
static sh_status ends_allowed(sh_constraint *c, sh_match_state state, uint64_t named, uint64_t *out,
                              sh_err *err)
{
    bool complete = sh_matcher_accepts(c->matcher, state);
    *out = 0;
    for (int i = 0; i < c->end_count; i++) {
        sh_match_state after = SH_MATCH_DEAD;
        if (!complete && named >> i & 1) {
            sh_status status = sh_matcher_token(c->matcher, state, c->ends[i], &after, err);
            if (status != SH_OK) return status;
        }
        if (complete || (after != SH_MATCH_DEAD && sh_matcher_accepts(c->matcher, after)))
            *out |= (uint64_t)1 << i;
    }
    return SH_OK;
}

/* The same, of a state that allows `rest` other tokens. */
static sh_status ends_choose(sh_constraint *c, sh_match_state state, bool may_end, uint64_t named,
                             int rest, uint64_t *out, sh_err *err)
{
    sh_status status = ends_allowed(c, state, named, out, err);
    if (status != SH_OK) return status;
    if (rest == 0 && *out == 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "no token of this model can go on with the text that the grammar asks "
                          "for");
    if (!may_end && rest > 0) *out = 0;
    return SH_OK;
}

static uint64_t ends_in(const sh_constraint *c, const sh_token_mask *mask)
{
    uint64_t in = 0;
    for (int i = 0; i < c->end_count; i++) {
        uint32_t id = (uint32_t)c->ends[i], word = id / 64;
        if (word < mask->word_count && mask->words[word] >> id % 64 & 1) in |= (uint64_t)1 << i;
    }
    return in;
}

sh_status sh_constraint_mask(sh_constraint *c, sh_match_state state, bool may_end, sh_mask *out,
                             sh_err *err)
{
    sh_token_mask text;
    sh_status status = sh_matcher_mask(c->matcher, state, &text, err);
    if (status != SH_OK) return status;
    uint64_t named = ends_in(c, &text), ends = 0;
    int rest = (int)text.allowed - __builtin_popcountll(named);
    status = ends_choose(c, state, may_end, named, rest, &ends, err);
    if (status != SH_OK) return status;
    *out = (sh_mask){.key = {.constraint = c->number, .ends = ends, .text = text.number},
                     .allowed = rest + __builtin_popcountll(ends),
                     .words = text.words,
                     .word_count = text.word_count};
    return SH_OK;
}

bool sh_constraint_has_mask(sh_constraint *c, sh_match_state state)
{
    return sh_matcher_has_mask(c->matcher, state);
}

sh_mask_key sh_constraint_future_key(const sh_constraint *c, sh_match_state state, bool may_end)
{
    const uint64_t future = (uint64_t)1 << 63; /* the matcher's numbers are smaller */
    return (sh_mask_key){.constraint = c->number, .ends = may_end, .text = future | state};
}

/* A vocabulary may have tokens that the model has no row for. */
static void drop_tail(const sh_constraint *c, uint64_t *out)
{
    int tail = c->all->vocab % 64;
    if (tail != 0) out[c->all->vocab / 64] &= UINT64_MAX >> (64 - tail);
}

void sh_constraint_mask_bits(const sh_constraint *c, const sh_mask *mask, uint64_t *out)
{
    size_t words = ((size_t)c->all->vocab + 63) / 64;
    size_t copied = mask->word_count < words ? mask->word_count : words;
    memcpy(out, mask->words, copied * sizeof(*out));
    memset(out + copied, 0, (words - copied) * sizeof(*out));
    for (int i = 0; i < c->end_count; i++) {
        uint64_t bit = (uint64_t)1 << c->ends[i] % 64;
        if (mask->key.ends >> i & 1)
            out[c->ends[i] / 64] |= bit;
        else
            out[c->ends[i] / 64] &= ~bit;
    }
    drop_tail(c, out);
}

void sh_constraint_all_bits(const sh_constraint *c, uint64_t *out)
{
    memset(out, 0xff, ((size_t)c->all->vocab + 63) / 64 * sizeof(*out));
    drop_tail(c, out);
}

static int find_end(const sh_constraint *c, int32_t id)
{
    for (int i = 0; i < c->end_count; i++)
        if (c->ends[i] == id) return i;
    return -1;
}

sh_status sh_constraint_only(sh_constraint *c, sh_match_state state, bool may_end, int32_t *out,
                             sh_err *err)
{
    int32_t ids[SH_STOP_IDS_MAX + 1]; /* with more, two of them are no ending ids */
    uint32_t most = (uint32_t)c->end_count + 1, count, rest = 0;
    uint64_t named = 0, ends;
    *out = -1;
    sh_status status = sh_matcher_few(c->matcher, state, ids, most, &count, err);
    if (status != SH_OK || count > most) return status;
    for (uint32_t i = 0; i < count; i++) {
        int end = find_end(c, ids[i]);
        if (end >= 0)
            named |= (uint64_t)1 << end;
        else
            ids[rest++] = ids[i];
    }
    status = ends_choose(c, state, may_end, named, (int)rest, &ends, err);
    if (status != SH_OK || rest + (uint32_t)__builtin_popcountll(ends) != 1) return status;
    *out = rest == 1 ? ids[0] : c->ends[__builtin_ctzll(ends)];
    return SH_OK;
}

int sh_constraint_forced(sh_constraint *c, sh_match_state state, int32_t *out, int max)
{
    sh_buf *text = &c->all->text;
    const sh_vocabulary *v = &c->all->vocabulary;
    sh_err ignored; /* then there is no guess */
    sh_buf_clear(text);
    if (v->encode == NULL || sh_matcher_forced(c->matcher, state, text, &ignored) != SH_OK)
        return 0;
    size_t most = (size_t)max * FORCED_BYTES_PER_TOKEN;
    if (text->len > most) text->len = sh_utf8_valid_prefix(text->ptr, most);
    return text->len == 0 ? 0 : v->encode(v->ctx, sh_buf_str(text), out, max);
}
