/* iter.h - going through values: iterators, generators and the `loop` of a for.
 *
 * Filters such as map and select are lazy, as in Python: nothing happens until somebody takes an
 * item, and what was taken once is gone.
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_ITER_H
#define SH_TEXT_JINJA_ITER_H

#include "text/jinja/call.h"

typedef bool (*sh_jiter_fn)(sh_jrun *run, sh_jiter *iter, sh_jv *out);

struct sh_jiter {
    sh_jiter_fn next;
    sh_jv source; /* what next goes through by idx and pos */
    size_t idx;
    size_t pos;
    sh_jiter *inner;  /* of a generator: where its items come from; NULL until it is asked */
    sh_jframe *frame; /* in which a loop's test runs */
    const void *state;
};

/* An iterator over a value; an error for what can not be gone through. */
sh_jiter *sh_jv_iter(sh_jrun *run, sh_jv v);
bool sh_jv_iterable(sh_jv v);

/* False at the end, when *out is not to be used. */
bool sh_jiter_next(sh_jrun *run, sh_jiter *iter, sh_jv *out);

/* A generator whose items `next` makes, from those of `v` as it will. */
sh_jv sh_jv_generator(sh_jrun *run, sh_jv v, sh_jiter_fn next, const void *state);

/* All items as a new list. */
sh_jlist *sh_jv_to_list(sh_jrun *run, sh_jv v);

/* len(), or -1 where Python has none. */
int64_t sh_jv_len(sh_jv v);

/* reversed(): a generator that goes backwards; false for what can not. */
bool sh_jv_reversed(sh_jrun *run, sh_jv v, sh_jv *out);

struct sh_jloop {
    sh_jiter *iter;
    sh_jv source;
    sh_jv before, current, after; /* MISSING where there is none */
    int64_t index0;
    int64_t length; /* -1: not known yet */
    int depth0;
    const sh_jnode *node; /* of a recursive loop, else NULL */
    sh_jframe *frame;     /* that the recursive loop was started in */
    sh_jv changed;        /* arguments of the last loop.changed(), MISSING at first */
};

bool sh_jloop_next(sh_jrun *run, sh_jloop *loop, sh_jv *out);
int64_t sh_jloop_length(sh_jrun *run, sh_jloop *loop);

/* loop.index and so on; false when there is no such attribute. */
bool sh_jloop_attr(sh_jrun *run, sh_jloop *loop, sh_str name, sh_jv *out);

#endif
