/* iter.h - iteration: iterators, generators and the `loop` object of a for.
 *
 * Filters such as map and select are lazy, as in Python: an item is computed when it is taken, and
 * each item can be taken once.
 *
 * Threads: a run has one owner. */
#ifndef SH_TEXT_JINJA_ITER_H
#define SH_TEXT_JINJA_ITER_H

#include "text/jinja/call.h"

typedef bool (*sh_jiter_fn)(sh_jrun *run, sh_jiter *iter, sh_jv *out);

struct sh_jiter {
    sh_jiter_fn next;
    sh_jv source; /* what `next` iterates over, by idx and pos */
    size_t idx;
    size_t pos;
    sh_jiter *inner;  /* of a generator: where its items come from; NULL until the first is taken */
    sh_jframe *frame; /* in which a loop's test runs */
    const void *state;
};

/* An iterator over a value; an error if it is not iterable. */
sh_jiter *sh_jv_iter(sh_jrun *run, sh_jv v);
bool sh_jv_iterable(sh_jv v);

/* Returns false at the end, with *out indeterminate. */
bool sh_jiter_next(sh_jrun *run, sh_jiter *iter, sh_jv *out);

/* A generator over `v` whose items are produced by `next`. */
sh_jv sh_jv_generator(sh_jrun *run, sh_jv v, sh_jiter_fn next, const void *state);

/* All items as a new list. */
sh_jlist *sh_jv_to_list(sh_jrun *run, sh_jv v);

/* len(), or -1 if Python defines none for it. */
int64_t sh_jv_len(sh_jv v);

/* reversed(): a generator in reverse order; false if the value cannot be reversed. */
bool sh_jv_reversed(sh_jrun *run, sh_jv v, sh_jv *out);

struct sh_jloop {
    sh_jiter *iter;
    sh_jv source;
    sh_jv before, current, after; /* MISSING if there is none */
    int64_t index0;
    int64_t length; /* -1: not known yet */
    int depth0;
    const sh_jnode *node; /* of a recursive loop, else NULL */
    sh_jframe *frame;     /* in which the recursive loop was started */
    sh_jv changed;        /* arguments of the last loop.changed(), MISSING at first */
};

bool sh_jloop_next(sh_jrun *run, sh_jloop *loop, sh_jv *out);
int64_t sh_jloop_length(sh_jrun *run, sh_jloop *loop);

/* loop.index and so on; false if there is no such attribute. */
bool sh_jloop_attr(sh_jrun *run, sh_jloop *loop, sh_str name, sh_jv *out);

#endif
