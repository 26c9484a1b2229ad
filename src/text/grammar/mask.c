/* Masks: which tokens a state allows.
 *
 * The walk goes through the trie and keeps the set of threads of every node on the path, so a byte
 * that many tokens share is stepped over once. Most tokens are plain words, and most states in
 * which many tokens are allowed are inside strings or free text. Runs (sh_char_run) make these
 * fast:
 *  - If a run takes every plain token, or all up to a length, their mask is ready, and only the
 *    other tokens are walked.
 *  - A subtree whose characters are all in the run is allowed as a whole.
 *  - In other subtrees (some token has a quote, a backslash) a character of the run leads to a
 * state like the one before, so the set of threads can be kept as it is.
 *  - In a string with a limited length all states that are far enough from the limit have the same
 *    mask.
 */
#include "text/grammar/matcher_internal.h"

#include "base/alloc.h"
#include "text/grammar/limits.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_THREADS_MAX = 8 };

typedef struct {
    sh_matcher *m;
    const sh_trie_tree *tree;
    uint64_t *words; /* NULL: the ids are listed instead, until there are more than `max` */
    int32_t *ids;
    uint32_t max, count;
    /* The last level to which a character of a run led that is not like the one before: the limit
     * on the length of a string, which many nodes reach. */
    sh_walk_level row_end;
    sh_thread row_threads[ROW_THREADS_MAX];
    uint32_t work;
} walk;

static void list_tokens(walk *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end && w->count <= w->max; i++, w->count++)
        if (w->count < w->max) w->ids[w->count] = w->tree->ids[i];
}

static void allow_tokens(walk *w, uint32_t first, uint32_t end)
{
    if (w->words == NULL) {
        list_tokens(w, first, end);
        return;
    }
    for (uint32_t i = first; i < end; i++) {
        uint32_t id = (uint32_t)w->tree->ids[i];
        w->words[id / 64] |= (uint64_t)1 << id % 64;
    }
}

static bool is_origin(sh_thread t, const sh_thread_set *set)
{
    return set->single && t.state == set->origin.state && t.stack == set->origin.stack;
}

/* Whether some thread allows the node and everything below it. */
static bool run_covers(const walk *w, const sh_walk_level *l, const sh_trie_node *node)
{
    const sh_matcher *m = w->m;
    if (node->multibyte && !node->valid) return false;
    for (uint32_t i = 0; i < l->set.count; i++) {
        sh_thread t = m->pool.items[l->set.first + i];
        uint32_t state = is_origin(t, &l->set) ? l->reached : t.state;
        const sh_char_run *run = &m->g->states[state].run;
        if (run->chars >= node->chars && (node->ascii[0] & ~run->ascii[0]) == 0 &&
            (node->ascii[1] & ~run->ascii[1]) == 0 && (!node->multibyte || run->multibyte))
            return true;
    }
    return false;
}

/* Whether the node's byte leads on in the run, and nowhere else. */
static bool is_in_row(const sh_walk_level *l, const sh_trie_node *node)
{
    return node->byte < 0x80 && (l->row[node->byte / 64] >> node->byte % 64 & 1) != 0;
}

static void set_bits(uint64_t bits[4], uint32_t lo, uint32_t hi)
{
    for (uint32_t word = lo / 64; word <= hi / 64; word++) {
        uint32_t first = word == lo / 64 ? lo % 64 : 0, last = word == hi / 64 ? hi % 64 : 63;
        bits[word] |= UINT64_MAX >> (63 - last + first) << first;
    }
}

static void enter(const walk *w, sh_walk_level *l, sh_thread_set set)
{
    const sh_matcher *m = w->m;
    uint64_t others[4] = {0};
    *l = (sh_walk_level){.set = set, .reached = set.origin.state};
    for (uint32_t i = 0; i < set.count; i++) {
        sh_thread t = m->pool.items[set.first + i];
        const sh_auto_state *s = &m->g->states[t.state];
        bool origin = is_origin(t, &set);
        for (uint32_t e = s->edges; e < s[1].edges; e++) {
            set_bits(l->allowed, m->g->edges[e].lo, m->g->edges[e].hi);
            if (!origin) set_bits(others, m->g->edges[e].lo, m->g->edges[e].hi);
        }
    }
    const sh_char_run *run = &m->g->states[set.origin.state].run;
    for (int i = 0; i < 2 && set.single; i++) l->row[i] = run->ascii[i] & ~others[i];
}

static sh_thread_set step(walk *w, sh_walk_level *l, uint8_t byte)
{
    sh_matcher *m = w->m;
    if (l->is_late) {
        m->pool.count = l->set.first + l->set.count;
        l->set = sh_matcher_spread(m, (sh_thread){l->reached, l->set.origin.stack});
        l->is_late = false;
    }
    m->pool.count = l->set.first + l->set.count;
    w->work += l->set.count;
    if (w->work > SH_MATCHER_WORK_MAX)
        m->failed = "the grammar is too ambiguous: it takes too long to find what may come next";
    return sh_matcher_step(m, &m->pool.items[l->set.first], l->set.count, byte);
}

/* Enters the next level by the node's byte. */
static void descend(walk *w, sh_walk_level *l, const sh_trie_node *node)
{
    sh_matcher *m = w->m;
    const sh_char_run *run = &m->g->states[l->reached].run;
    bool in_row = is_in_row(l, node);
    if (in_row && run->alike > 0) {
        l[1] = *l;
        l[1].reached = run->next;
        l[1].is_late = l->is_late || run->next != l->reached;
        return;
    }
    const sh_walk_level *end = &w->row_end;
    if (in_row && end->set.count > 0 && end->set.origin.state == run->next &&
        end->set.origin.stack == l->set.origin.stack) {
        l[1] = *end;
        l[1].set.first = m->pool.count = l->set.first + l->set.count;
        for (uint32_t i = 0; i < end->set.count; i++)
            sh_thread_pool_push(&m->pool, w->row_threads[i]);
        return;
    }
    sh_thread_set set = step(w, l, node->byte);
    enter(w, &l[1], set);
    if (!in_row || set.count > ROW_THREADS_MAX || !set.single) return;
    w->row_end = l[1];
    for (uint32_t i = 0; i < set.count; i++) w->row_threads[i] = m->pool.items[set.first + i];
}

/* Looks at one child of a level. True if the walk goes on below it, at the next level. */
static bool visit(walk *w, sh_walk_level *l, const sh_trie_node *node)
{
    if ((l->allowed[node->byte / 64] >> node->byte % 64 & 1) == 0) return false;
    if (run_covers(w, l, node)) {
        allow_tokens(w, node->ids, node->ids_end);
        return false;
    }
    descend(w, l, node);
    if (l[1].set.count > 0 || l[1].set.accepts) allow_tokens(w, node->ids, node->own_end);
    l[1].next = node->children;
    l[1].end = node[1].children;
    return l[1].set.count > 0 && l[1].next < l[1].end;
}

static void walk_trie(walk *w, sh_thread_set start)
{
    sh_matcher *m = w->m;
    const sh_trie_node *nodes = w->tree->nodes;
    sh_walk_level *l = m->levels;
    enter(w, l, start);
    l->next = nodes[0].children;
    l->end = nodes[1].children;
    while (m->failed == NULL && w->count <= w->max) {
        if (l->next < l->end)
            l += visit(w, l, &nodes[l->next++]);
        else if (l > m->levels)
            l--;
        else
            break;
    }
}

/* How many characters a plain token may have to be allowed; 0: it depends on the characters. */
static uint32_t plain_limit(const sh_matcher *m, const sh_thread_set *set)
{
    const uint64_t *plain = m->trie->plain.ascii;
    for (uint32_t i = 0; i < set->count; i++) {
        sh_thread t = m->pool.items[set->first + i];
        const sh_char_run *run = &m->g->states[t.state].run;
        if (!run->multibyte || (plain[0] & ~run->ascii[0]) != 0 || (plain[1] & ~run->ascii[1]) != 0)
            continue;
        if (run->chars >= m->trie->tree.nodes[0].chars) return UINT32_MAX;
        if (is_origin(t, set) && run->closed) return run->chars;
    }
    return 0;
}

/* Walks from a state and leaves the matcher as it was. */
static void walk_from(walk *w, sh_match_state state)
{
    sh_matcher *m = w->m;
    uint32_t frames = m->frame_count;
    sh_thread_set set = sh_matcher_load(m, state);
    uint32_t plain = w->words == NULL ? 0 : plain_limit(m, &set);
    w->tree = plain > 0 ? &m->trie->other : &m->trie->tree;
    if (plain > 0) sh_plain_tokens_mask(m->trie, plain, w->words);
    walk_trie(w, set);
    m->pool.count = 0;
    sh_matcher_drop_frames(m, frames);
}

static void compute(sh_matcher *m, sh_match_state state, uint64_t *words)
{
    const sh_token_trie *trie = m->trie;
    walk w = {.m = m, .words = words};
    walk_from(&w, state);
    for (size_t i = 0; i < trie->end_count && m->states[state].set.accepts; i++)
        words[trie->ends[i] / 64] |= (uint64_t)1 << trie->ends[i] % 64;
}

sh_status sh_matcher_few(sh_matcher *m, sh_match_state state, int32_t *ids, uint32_t max,
                         uint32_t *count, sh_err *err)
{
    walk w = {.m = m, .ids = ids, .max = max};
    SH_ASSERT(state < m->state_count);
    walk_from(&w, state);
    if (m->failed != NULL) return sh_matcher_failure(m, err);
    *count = w.count;
    return SH_OK;
}

/* The state whose mask stands for this one's: itself, or another in the same row, if no token
 * reaches the end of the row from either. */
static sh_match_state find_twin(sh_matcher *m, sh_match_state state)
{
    const sh_thread_set *set = &m->states[state].set;
    const sh_char_run *run = &m->g->states[set->origin.state].run;
    if (!set->single || run->alike == UINT32_MAX || run->alike <= m->trie->tree.nodes[0].chars)
        return state;
    uint32_t stack = set->origin.stack;
    uint64_t hash = sh_mix64((uint64_t)run->last << 32 | stack);
    sh_mask_twin *twin = &m->twins[hash % SH_TWIN_SLOTS];
    if (twin->state == 0 || twin->last != run->last || twin->stack != stack)
        *twin = (sh_mask_twin){run->last, stack, state};
    return twin->state;
}

/* ---- cache ---- */

static void grow_names(sh_matcher *m)
{
    uint32_t cap = m->name_cap == 0 ? 64 : m->name_cap * 2;
    sh_mask_name *names = sh_alloc_array(cap, sizeof(*names));
    for (uint32_t i = 0; i < m->name_cap; i++) {
        if (m->names[i].number == 0) continue;
        uint32_t at = (uint32_t)m->names[i].hash.lo & (cap - 1);
        while (names[at].number != 0) at = (at + 1) & (cap - 1);
        names[at] = m->names[i];
    }
    free(m->names);
    m->names = names;
    m->name_cap = cap;
}

/* Only the hash is kept: 128 bits do not collide by accident, and a client who made them collide
 * would spoil its own answer. */
static uint32_t name_mask(sh_matcher *m, const uint64_t *words, size_t count)
{
    sh_key128 hash = sh_hash128((sh_key128){0}, words, count * sizeof(*words));
    if (m->name_count * 2 >= m->name_cap) grow_names(m);
    uint32_t at = (uint32_t)hash.lo & (m->name_cap - 1);
    for (; m->names[at].number != 0; at = (at + 1) & (m->name_cap - 1))
        if (sh_key128_eq(m->names[at].hash, hash)) return m->names[at].number;
    m->names[at] = (sh_mask_name){hash, ++m->name_count};
    return m->name_count;
}

/* A slot for the state's mask; the oldest is given up when all are in use. */
static sh_mask_slot *take_slot(sh_matcher *m, sh_match_state state, size_t words)
{
    uint32_t at = m->mask_next;
    sh_mask_slot *slot = &m->masks[at];
    m->mask_next = (at + 1) % SH_MATCHER_MASKS_MAX;
    if (at == m->mask_count) {
        slot->words = sh_alloc_array(words, sizeof(*slot->words));
        m->mask_count++;
    } else {
        m->states[slot->state].mask = 0;
        memset(slot->words, 0, words * sizeof(*slot->words));
    }
    slot->state = state;
    m->states[state].mask = at + 1;
    return slot;
}

static void count_bits(sh_mask_slot *slot, size_t words)
{
    slot->allowed = 0;
    slot->first = -1;
    for (size_t i = 0; i < words; i++) {
        if (slot->first < 0 && slot->words[i] != 0)
            slot->first = (int32_t)(i * 64) + __builtin_ctzll(slot->words[i]);
        slot->allowed += (uint32_t)__builtin_popcountll(slot->words[i]);
    }
}

bool sh_matcher_has_mask(sh_matcher *m, sh_match_state state)
{
    SH_ASSERT(state < m->state_count);
    return m->states[find_twin(m, state)].mask != 0;
}

sh_status sh_matcher_mask(sh_matcher *m, sh_match_state state, sh_token_mask *out, sh_err *err)
{
    size_t words = (m->trie->size + 63) / 64;
    SH_ASSERT(state < m->state_count);
    state = find_twin(m, state);
    sh_mask_slot *slot = &m->masks[m->states[state].mask == 0 ? 0 : m->states[state].mask - 1];
    if (m->states[state].mask == 0) {
        slot = take_slot(m, state, words);
        if (m->failed == NULL) compute(m, state, slot->words);
        if (m->failed != NULL) {
            m->states[state].mask = 0;
            return sh_matcher_failure(m, err);
        }
        count_bits(slot, words);
        slot->number = name_mask(m, slot->words, words);
    }
    *out = (sh_token_mask){.number = slot->number,
                           .allowed = slot->allowed,
                           .first = slot->first,
                           .word_count = (uint32_t)words,
                           .words = slot->words};
    return SH_OK;
}
