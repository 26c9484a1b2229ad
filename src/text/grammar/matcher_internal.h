/* matcher_internal.h - what matcher.c and mask.c share.
 *
 * A thread is one way to read the text so far: a state of the automaton and the stack of calls that
 * are still open. A match state is a set of threads. Stacks are linked lists that share their
 * tails, and equal stacks are the same frame, so sets are compared by their numbers alone.
 *
 * Threads of a set all have an edge over some byte; those that only return or call have been
 * followed.
 *
 * Threads (of the process): one owner. */
#ifndef SH_TEXT_GRAMMAR_MATCHER_INTERNAL_H
#define SH_TEXT_GRAMMAR_MATCHER_INTERNAL_H

#include "base/hash.h"
#include "text/grammar/automaton.h"
#include "text/grammar/token_trie.h"

typedef struct {
    uint32_t back;   /* the state after the call */
    uint32_t parent; /* 0: the bottom */
    uint32_t depth;
    uint32_t next; /* in its hash chain */
} sh_frame;

typedef struct {
    uint32_t state;
    uint32_t stack;
} sh_thread;

/* A set of threads in a pool. */
typedef struct {
    uint32_t first, count;
    bool accepts;     /* the text may end here */
    bool single;      /* all threads come from one, by its calls and returns */
    sh_thread origin; /* that one */
} sh_thread_set;

typedef struct {
    sh_thread_set set; /* in `kept` */
    uint32_t next;     /* in its hash chain */
    uint32_t mask;     /* its place in `masks` + 1 */
} sh_state_info;

typedef struct {
    sh_thread *items;
    uint32_t count, cap;
} sh_thread_pool;

typedef struct {
    uint64_t *words;
    uint32_t state, number, allowed;
    int32_t first;
} sh_mask_slot;

typedef struct {
    sh_key128 hash;
    uint32_t number; /* 0: free */
} sh_mask_name;

typedef struct {
    uint64_t thread;
    uint32_t round;
} sh_seen_slot;

/* States whose masks are equal: the same row of states (sh_char_run), with the same stack. */
typedef struct {
    uint32_t last, stack;
    sh_match_state state; /* whose mask it is; 0: free */
} sh_mask_twin;

enum { SH_TWIN_SLOTS = 256 };

/* A node on the path of the mask walk. While the text stays in the origin's run, `reached` is the
 * state that it has come to, and `set` is still that of an earlier one, which has the same edges.
 */
typedef struct {
    sh_thread_set set;
    uint32_t reached;
    bool is_late;        /* `set` has to be made again before it is stepped from */
    uint32_t next, end;  /* the children that are left */
    uint64_t allowed[4]; /* bytes that some thread has an edge for */
    uint64_t row[2];     /* ASCII characters that lead on in the origin's run, and nowhere else */
} sh_walk_level;

struct sh_matcher {
    const sh_grammar *g;
    const sh_token_trie *trie;
    sh_frame *frames; /* [0] is the bottom */
    uint32_t frame_count, frame_cap;
    uint32_t *frame_heads; /* [frame_cap] */
    sh_state_info *states;
    uint32_t state_count, state_cap;
    uint32_t *state_heads; /* [state_cap] */
    sh_thread_pool kept;   /* the sets of all states */
    sh_thread_pool pool;   /* sets of the walk in progress */
    sh_thread_pool todo;   /* threads whose calls and returns are to be followed */
    sh_seen_slot *seen;    /* which threads the set in progress has had */
    uint32_t round;
    const char *failed; /* why the set in progress is useless; NULL: it is not */
    sh_mask_slot *masks;
    uint32_t mask_count, mask_next;
    sh_mask_name *names; /* hash table */
    uint32_t name_count, name_cap;
    sh_walk_level *levels; /* [longest token + 2] */
    sh_mask_twin *twins;   /* hash table without chains: a newer one replaces the older */
};

/* The set after one more byte, on top of the pool. After a failure it is empty and `failed` is
 * set. */
sh_thread_set sh_matcher_step(sh_matcher *m, const sh_thread *threads, uint32_t count,
                              uint8_t byte);

/* The set of everything that one thread leads to without a byte. */
sh_thread_set sh_matcher_spread(sh_matcher *m, sh_thread origin);

void sh_thread_pool_push(sh_thread_pool *pool, sh_thread thread);

/* Puts a copy of a state's set on the empty pool. */
sh_thread_set sh_matcher_load(sh_matcher *m, sh_match_state state);

/* Forgets the frames that were made since there were `count`. */
void sh_matcher_drop_frames(sh_matcher *m, uint32_t count);

sh_status sh_matcher_failure(sh_matcher *m, sh_err *err);

#endif
