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

static bool has_bit(const sh_mask *mask, int32_t id)
{
    uint32_t word = (uint32_t)id / 64;
    return word < mask->word_count && (mask->words[word] >> (uint32_t)id % 64 & 1) != 0;
}

/* Whether the grammar's text is complete after an id that it names. */
static sh_status completes(sh_constraint *c, sh_match_state state, int32_t id, bool *out,
                           sh_err *err)
{
    sh_match_state after;
    sh_status status = sh_matcher_token(c->matcher, state, id, &after, err);
    if (status == SH_OK) *out = after != SH_MATCH_DEAD && sh_matcher_accepts(c->matcher, after);
    return status;
}

sh_status sh_constraint_mask(sh_constraint *c, sh_match_state state, bool may_end, sh_mask *out,
                             sh_err *err)
{
    sh_token_mask text;
    sh_status status = sh_matcher_mask(c->matcher, state, &text, err);
    if (status != SH_OK) return status;
    *out = (sh_mask){.words = text.words, .word_count = text.word_count};
    int rest = (int)text.allowed;
    uint64_t ends = 0;
    for (int i = 0; i < c->end_count; i++) {
        bool named = has_bit(out, c->ends[i]), allowed = sh_matcher_accepts(c->matcher, state);
        rest -= named;
        if (named && !allowed) status = completes(c, state, c->ends[i], &allowed, err);
        if (status != SH_OK) return status;
        if (allowed) ends |= (uint64_t)1 << i;
    }
    if (!may_end && rest > 0) ends = 0;
    out->key = (sh_mask_key){.constraint = c->number, .ends = ends, .text = text.number};
    out->allowed = rest + __builtin_popcountll(ends);
    if (out->allowed > 0) return SH_OK;
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "no token of this model can go on with the text that the grammar asks for");
}

/* A vocabulary may have tokens that the model has no row for. */
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
    if (c->all->vocab % 64 != 0) out[words - 1] &= UINT64_MAX >> (64 - c->all->vocab % 64);
}

static bool is_end(const sh_constraint *c, int32_t id)
{
    for (int i = 0; i < c->end_count; i++)
        if (c->ends[i] == id) return true;
    return false;
}

int32_t sh_constraint_only(const sh_constraint *c, const sh_mask *mask)
{
    SH_ASSERT(mask->allowed == 1);
    if (mask->key.ends != 0) return c->ends[__builtin_ctzll(mask->key.ends)];
    for (uint32_t i = 0; i < mask->word_count; i++)
        for (uint64_t bits = mask->words[i]; bits != 0; bits &= bits - 1) {
            int32_t id = (int32_t)(i * 64) + __builtin_ctzll(bits);
            if (!is_end(c, id)) return id;
        }
    return -1;
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
