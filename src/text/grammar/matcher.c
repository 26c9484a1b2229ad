/* States and how text leads from one to the next.
 *
 * Stacks and states are kept as long as the matcher, which makes them plain numbers that can be
 * copied and returned to. What is only tried (the mask walk, forced bytes) takes its frames back
 * when done, so memory grows with the text that was matched and not with what might have been. */
#include "text/grammar/matcher_internal.h"

#include "base/alloc.h"
#include "text/grammar/limits.h"

#include <stdlib.h>
#include <string.h>

enum { SEEN_SLOTS = 1 << 14, FORCED_MAX = 4096 };

static uint32_t hash_pair(uint32_t a, uint32_t b)
{
    return (uint32_t)(sh_mix64((uint64_t)a << 32 | b) >> 32);
}

/* ---- stacks ---- */

static void grow_frames(sh_matcher *m)
{
    m->frame_cap *= 2;
    m->frames = sh_realloc_array(m->frames, m->frame_cap, sizeof(*m->frames));
    free(m->frame_heads);
    m->frame_heads = sh_alloc_array(m->frame_cap, sizeof(*m->frame_heads));
    for (uint32_t i = 1; i < m->frame_count; i++) {
        uint32_t at = hash_pair(m->frames[i].back, m->frames[i].parent) & (m->frame_cap - 1);
        m->frames[i].next = m->frame_heads[at];
        m->frame_heads[at] = i;
    }
}

static uint32_t push_frame(sh_matcher *m, uint32_t back, uint32_t parent)
{
    uint32_t at = hash_pair(back, parent) & (m->frame_cap - 1);
    for (uint32_t f = m->frame_heads[at]; f != 0; f = m->frames[f].next)
        if (m->frames[f].back == back && m->frames[f].parent == parent) return f;
    if (m->frame_count == m->frame_cap) {
        grow_frames(m);
        at = hash_pair(back, parent) & (m->frame_cap - 1);
    }
    m->frames[m->frame_count] = (sh_frame){back, parent, m->frames[parent].depth + 1,
                                           m->frame_heads[at]};
    m->frame_heads[at] = m->frame_count;
    return m->frame_count++;
}

/* Newer frames are in front of older ones in every chain, so the last one is always a head. */
void sh_matcher_drop_frames(sh_matcher *m, uint32_t count)
{
    while (m->frame_count > count) {
        const sh_frame *f = &m->frames[--m->frame_count];
        m->frame_heads[hash_pair(f->back, f->parent) & (m->frame_cap - 1)] = f->next;
    }
}

/* ---- sets of threads ---- */

static void reserve_threads(sh_thread_pool *pool)
{
    pool->cap = pool->cap == 0 ? 256 : pool->cap * 2;
    pool->items = sh_realloc_array(pool->items, pool->cap, sizeof(*pool->items));
}

void sh_thread_pool_push(sh_thread_pool *pool, sh_thread thread)
{
    if (pool->count == pool->cap) reserve_threads(pool);
    pool->items[pool->count++] = thread;
}

/* Queues a thread, once in each round. */
static void queue_thread(sh_matcher *m, uint32_t state, uint32_t stack)
{
    uint64_t key = (uint64_t)state << 32 | stack;
    uint32_t at = hash_pair(state, stack) & (SEEN_SLOTS - 1);
    uint32_t probes = 0;
    for (; m->seen[at].round == m->round; at = (at + 1) & (SEEN_SLOTS - 1)) {
        if (m->seen[at].thread == key) return;
        if (++probes == SEEN_SLOTS / 4) {
            m->failed = "the grammar is too ambiguous: this text can be read in too many ways";
            return;
        }
    }
    m->seen[at] = (sh_seen_slot){key, m->round};
    sh_thread_pool_push(&m->todo, (sh_thread){state, stack});
}

static bool fits(const sh_matcher *m, uint32_t state, uint32_t depth)
{
    return depth + m->g->states[state].height <= SH_GRAMMAR_STACK_MAX;
}

static void follow_call(sh_matcher *m, const sh_rule_call *call, uint32_t stack)
{
    uint32_t depth = m->frames[stack].depth;
    if (call->back == SH_CALL_LAST) {
        if (fits(m, call->start, depth)) queue_thread(m, call->start, stack);
        return;
    }
    if (!fits(m, call->back, depth) || !(call->leaf || fits(m, call->start, depth + 1))) return;
    queue_thread(m, call->start, push_frame(m, call->back, stack));
}

/* Follows the calls and returns of all queued threads; those that have an edge join the set. */
static void close_set(sh_matcher *m, sh_thread_set *set)
{
    const sh_grammar *g = m->g;
    while (m->todo.count > 0 && m->failed == NULL) {
        sh_thread t = m->todo.items[--m->todo.count];
        const sh_auto_state *s = &g->states[t.state];
        if (s->edges < s[1].edges) sh_thread_pool_push(&m->pool, t);
        if (s->accepts && t.stack == 0) set->accepts = true;
        if (s->accepts && t.stack != 0)
            queue_thread(m, m->frames[t.stack].back, m->frames[t.stack].parent);
        for (uint32_t i = s->calls; i < s[1].calls; i++) follow_call(m, &g->calls[i], t.stack);
        if (m->pool.count - set->first > SH_GRAMMAR_PARALLEL_MAX)
            m->failed = "the grammar is too ambiguous: this text can be read in too many ways";
    }
    m->todo.count = 0;
    if (m->failed != NULL) {
        m->pool.count = set->first;
        set->accepts = false;
    }
    set->count = m->pool.count - set->first;
}

static uint32_t next_state(const sh_grammar *g, uint32_t state, uint8_t byte)
{
    const sh_auto_state *s = &g->states[state];
    for (uint32_t i = s->edges; i < s[1].edges && g->edges[i].lo <= byte; i++)
        if (byte <= g->edges[i].hi) return g->edges[i].to;
    return UINT32_MAX;
}

/* Where a thread gets to that can only return, such as after the last byte of a character. */
static sh_thread settle(const sh_matcher *m, sh_thread t)
{
    for (;;) {
        const sh_auto_state *s = &m->g->states[t.state];
        if (s->edges < s[1].edges || s->calls < s[1].calls || t.stack == 0) return t;
        t = (sh_thread){m->frames[t.stack].back, m->frames[t.stack].parent};
    }
}

sh_thread_set sh_matcher_step(sh_matcher *m, const sh_thread *threads, uint32_t count, uint8_t byte)
{
    const sh_grammar *g = m->g;
    sh_thread_set set = {.first = m->pool.count};
    /* Nearly always there is one thread, and nothing to follow. */
    if (count == 1) {
        sh_thread t = threads[0];
        t.state = next_state(g, t.state, byte);
        if (t.state == UINT32_MAX || !fits(m, t.state, m->frames[t.stack].depth)) return set;
        if (sh_auto_is_plain(g, t.state)) {
            sh_thread_pool_push(&m->pool, t);
            set.count = 1;
            set.single = true;
            set.origin = t;
            return set;
        }
    }
    m->round++;
    /* The pool may move while threads of the old set, which are in it, are read: queue them all
     * before the first one is followed. */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = next_state(g, threads[i].state, byte);
        if (to != UINT32_MAX && fits(m, to, m->frames[threads[i].stack].depth))
            queue_thread(m, to, threads[i].stack);
    }
    set.single = m->todo.count == 1;
    if (set.single) set.origin = settle(m, m->todo.items[0]);
    close_set(m, &set);
    return set;
}

sh_thread_set sh_matcher_spread(sh_matcher *m, sh_thread origin)
{
    sh_thread_set set = {.first = m->pool.count, .single = true, .origin = origin};
    m->round++;
    queue_thread(m, origin.state, origin.stack);
    close_set(m, &set);
    return set;
}

/* ---- states ---- */

static int order_threads(const void *a, const void *b)
{
    const sh_thread *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static void grow_states(sh_matcher *m)
{
    m->state_cap *= 2;
    m->states = sh_realloc_array(m->states, m->state_cap, sizeof(*m->states));
    free(m->state_heads);
    m->state_heads = sh_alloc_array(m->state_cap, sizeof(*m->state_heads));
    for (uint32_t i = 1; i < m->state_count; i++) {
        const sh_thread *threads = &m->kept.items[m->states[i].set.first];
        size_t len = m->states[i].set.count * sizeof(*threads);
        uint32_t at = (uint32_t)sh_hash64(threads, len) & (m->state_cap - 1);
        m->states[i].next = m->state_heads[at];
        m->state_heads[at] = i;
    }
}

/* The number of the set on top of the pool, which is taken off. */
static sh_match_state intern(sh_matcher *m, sh_thread_set set)
{
    sh_thread *threads = &m->pool.items[set.first];
    size_t len = set.count * sizeof(*threads);
    if (set.count == 0 && !set.accepts) return SH_MATCH_DEAD;
    if (set.count > 1) qsort(threads, set.count, sizeof(*threads), order_threads);
    m->pool.count = set.first;
    uint32_t hash = (uint32_t)sh_hash64(threads, len);
    for (uint32_t i = m->state_heads[hash & (m->state_cap - 1)]; i != 0; i = m->states[i].next) {
        const sh_thread_set *other = &m->states[i].set;
        if (other->count == set.count && other->accepts == set.accepts &&
            memcmp(&m->kept.items[other->first], threads, len) == 0)
            return i;
    }
    if (m->state_count == m->state_cap) grow_states(m);
    uint32_t *head = &m->state_heads[hash & (m->state_cap - 1)];
    sh_thread_set kept = set;
    kept.first = m->kept.count;
    for (uint32_t i = 0; i < set.count; i++) sh_thread_pool_push(&m->kept, threads[i]);
    m->states[m->state_count] = (sh_state_info){.set = kept, .next = *head};
    *head = m->state_count;
    return m->state_count++;
}

static void intern_start(sh_matcher *m)
{
    sh_match_state start = intern(m, sh_matcher_spread(m, (sh_thread){0, 0}));
    /* Only a grammar with too many ways to begin has no start; then every call fails. */
    if (start == SH_MATCH_DEAD) m->states[m->state_count++] = (sh_state_info){0};
}

sh_matcher *sh_matcher_create(const sh_grammar *grammar, const sh_token_trie *trie)
{
    sh_matcher *m = sh_alloc(sizeof(*m));
    m->g = grammar;
    m->trie = trie;
    m->frame_cap = m->state_cap = 64;
    m->frames = sh_alloc_array(m->frame_cap, sizeof(*m->frames));
    m->frame_heads = sh_alloc_array(m->frame_cap, sizeof(*m->frame_heads));
    m->states = sh_alloc_array(m->state_cap, sizeof(*m->states));
    m->state_heads = sh_alloc_array(m->state_cap, sizeof(*m->state_heads));
    m->seen = sh_alloc_array(SEEN_SLOTS, sizeof(*m->seen));
    m->masks = sh_alloc_array(SH_MATCHER_MASKS_MAX, sizeof(*m->masks));
    m->twins = sh_alloc_array(SH_TWIN_SLOTS, sizeof(*m->twins));
    if (trie != NULL) m->levels = sh_alloc_array(trie->tree.depth + 2, sizeof(*m->levels));
    m->frame_count = m->state_count = 1; /* the bottom; SH_MATCH_DEAD */
    reserve_threads(&m->pool);
    reserve_threads(&m->kept);
    intern_start(m);
    return m;
}

void sh_matcher_free(sh_matcher *m)
{
    if (m == NULL) return;
    for (uint32_t i = 0; i < m->mask_count; i++) free(m->masks[i].words);
    free(m->frames);
    free(m->frame_heads);
    free(m->states);
    free(m->state_heads);
    free(m->kept.items);
    free(m->pool.items);
    free(m->todo.items);
    free(m->seen);
    free(m->masks);
    free(m->names);
    free(m->twins);
    free(m->levels);
    free(m);
}

sh_status sh_matcher_failure(sh_matcher *m, sh_err *err)
{
    const char *why = m->failed;
    m->pool.count = 0;
    /* A grammar that cannot begin stays failed. */
    if (m->states[SH_MATCH_START].set.count > 0) m->failed = NULL;
    return sh_err_set(err, SH_ERR_LIMIT, "%s", why);
}

static size_t state_memory(const sh_matcher *m)
{
    return m->frame_cap * (sizeof(*m->frames) + sizeof(*m->frame_heads)) +
           m->state_cap * (sizeof(*m->states) + sizeof(*m->state_heads)) +
           (m->kept.cap + m->pool.cap + m->todo.cap) * sizeof(sh_thread) +
           m->name_cap * sizeof(*m->names);
}

size_t sh_matcher_memory(const sh_matcher *m)
{
    size_t words = (m->trie == NULL ? 0 : m->trie->size + 63) / 64;
    return sizeof(*m) + state_memory(m) + SEEN_SLOTS * sizeof(*m->seen) +
           m->mask_count * words * sizeof(uint64_t);
}

sh_thread_set sh_matcher_load(sh_matcher *m, sh_match_state state)
{
    SH_ASSERT(state < m->state_count && m->pool.count == 0);
    sh_thread_set set = m->states[state].set;
    for (uint32_t i = 0; i < set.count; i++)
        sh_thread_pool_push(&m->pool, m->kept.items[set.first + i]);
    set.first = 0;
    return set;
}

sh_status sh_matcher_bytes(sh_matcher *m, sh_match_state from, sh_str bytes, sh_match_state *out,
                           sh_err *err)
{
    uint32_t frames = m->frame_count;
    if (bytes.len == 0) {
        *out = from;
        return SH_OK;
    }
    if (state_memory(m) > SH_MATCHER_MEMORY_MAX)
        m->failed = "this text and its grammar need too much memory";
    sh_thread_set set = sh_matcher_load(m, from);
    for (size_t i = 0; i < bytes.len && m->failed == NULL; i++)
        set = sh_matcher_step(m, &m->pool.items[set.first], set.count, (uint8_t)bytes.ptr[i]);
    if (m->failed != NULL) return sh_matcher_failure(m, err);
    *out = intern(m, set);
    m->pool.count = 0;
    if (*out == SH_MATCH_DEAD) sh_matcher_drop_frames(m, frames);
    return SH_OK;
}

sh_status sh_matcher_token(sh_matcher *m, sh_match_state from, int32_t id, sh_match_state *out,
                           sh_err *err)
{
    *out = SH_MATCH_DEAD;
    if (id < 0 || (uint32_t)id >= m->trie->size || m->trie->tokens[id].len == 0) return SH_OK;
    return sh_matcher_bytes(m, from, m->trie->tokens[id], out, err);
}

bool sh_matcher_accepts(const sh_matcher *m, sh_match_state state)
{
    SH_ASSERT(state < m->state_count);
    return m->states[state].set.accepts;
}

/* The only byte that some thread has an edge for, -1 if there are more. */
static int only_byte(const sh_matcher *m, sh_thread_set set)
{
    int only = -1;
    for (uint32_t i = 0; i < set.count; i++) {
        const sh_auto_state *s = &m->g->states[m->pool.items[set.first + i].state];
        for (uint32_t e = s->edges; e < s[1].edges; e++) {
            sh_byte_edge edge = m->g->edges[e];
            if (edge.lo != edge.hi || (only >= 0 && only != edge.lo)) return -1;
            only = edge.lo;
        }
    }
    return only;
}

sh_status sh_matcher_forced(sh_matcher *m, sh_match_state state, sh_buf *out, sh_err *err)
{
    sh_thread_set set = sh_matcher_load(m, state);
    uint32_t frames = m->frame_count;
    size_t first = out->len;
    while (!set.accepts && set.count > 0 && m->failed == NULL && out->len - first < FORCED_MAX) {
        int byte = only_byte(m, set);
        if (byte < 0 || byte == SH_TOKEN_MARK_BYTE) break;
        sh_buf_add_char(out, (char)byte);
        set = sh_matcher_step(m, &m->pool.items[set.first], set.count, (uint8_t)byte);
    }
    m->pool.count = 0;
    sh_matcher_drop_frames(m, frames);
    if (m->failed != NULL) return sh_matcher_failure(m, err);
    if (out->len > first)
        out->len = first + sh_utf8_valid_prefix(out->ptr + first, out->len - first);
    return SH_OK;
}
