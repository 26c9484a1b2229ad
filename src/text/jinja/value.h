/* value.h - the values of the template language, which follow Python's.
 *
 * A value is 16 bytes: a kind and a number or a pointer. What it points to lives in the arena of
 * the run that created it (or in the parsed template, or in the caller's JSON) and is immutable
 * once another value refers to it; only dicts under construction, namespaces, loops, iterators,
 * cyclers and joiners have state. Text is UTF-8; positions in it count characters, as in Python.
 *
 * Threads: values belong to one run; those of a parsed template are read-only. */
#ifndef SH_TEXT_JINJA_VALUE_H
#define SH_TEXT_JINJA_VALUE_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sh_jrun sh_jrun;
typedef struct sh_jnode sh_jnode;
typedef struct sh_jframe sh_jframe;
typedef struct sh_jiter sh_jiter;
typedef struct sh_jloop sh_jloop;
typedef struct sh_jbuiltin sh_jbuiltin;

typedef enum {
    SH_JV_MISSING, /* not a value: an empty slot, an argument that was not given */
    SH_JV_UNDEFINED,
    SH_JV_NONE,
    SH_JV_BOOL,
    SH_JV_INT,
    SH_JV_BIG, /* an integer beyond 64 bits: can be printed and compared, but not computed with */
    SH_JV_FLOAT,
    SH_JV_STR,
    SH_JV_LIST,
    SH_JV_TUPLE,
    SH_JV_DICT,
    SH_JV_KEYS, /* views of a dict */
    SH_JV_VALUES,
    SH_JV_ITEMS,
    SH_JV_RANGE,
    SH_JV_SLICE,
    SH_JV_ITER, /* a generator: can be iterated once */
    SH_JV_NAMESPACE,
    SH_JV_LOOP,
    SH_JV_MACRO,
    SH_JV_FUNC,
    SH_JV_METHOD,
    SH_JV_CYCLER,
    SH_JV_JOINER,
} sh_jv_kind;

/* A buffer with spare capacity after the text, so that `text + more` in a loop copies only the new
 * part. */
typedef struct {
    size_t used;
    size_t cap;
    char data[];
} sh_jtail;

typedef struct {
    const char *ptr;
    size_t len;
    size_t chars; /* equal to len for ASCII */
    sh_jtail *tail;
    bool markup; /* escaped HTML: text that is joined to it gets escaped too */
} sh_jstr;

typedef struct sh_jlist sh_jlist;
typedef struct sh_jdict sh_jdict;
typedef struct sh_jundef sh_jundef;
typedef struct sh_jrange sh_jrange;
typedef struct sh_jslice sh_jslice;
typedef struct sh_jmacro sh_jmacro;
typedef struct sh_jmethod sh_jmethod;
typedef struct sh_jcycler sh_jcycler;
typedef struct sh_jjoiner sh_jjoiner;

typedef struct {
    sh_jv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const sh_jstr *str; /* STR; BIG: its digits */
        sh_jlist *list;     /* LIST, TUPLE */
        sh_jdict *dict;     /* DICT, its views, NAMESPACE */
        const sh_jundef *undef;
        const sh_jrange *range;
        const sh_jslice *slice;
        sh_jiter *iter;
        sh_jloop *loop;
        const sh_jmacro *macro;
        const sh_jbuiltin *func;
        const sh_jmethod *method;
        sh_jcycler *cycler;
        sh_jjoiner *joiner;
        const void *any;
    } u;
} sh_jv;

struct sh_jlist {
    sh_jv *items;
    size_t count;
    size_t cap;
    bool group; /* a pair from groupby: also has .grouper and .list */
};

typedef struct {
    sh_jv key;
    sh_jv value;
} sh_jentry;

/* Keeps insertion order. Small dicts are searched linearly, larger ones through an index. */
struct sh_jdict {
    sh_jentry *entries;
    uint32_t *index; /* open addressing: 0 is free, else entry number + 1 */
    uint32_t count;
    uint32_t cap;
    uint32_t index_cap;
};

/* Why a value is undefined, for the error message when it is used. */
struct sh_jundef {
    const sh_jstr *hint; /* the complete message, or NULL */
    sh_jv obj;           /* the object that lacks it; MISSING for a plain name */
    sh_jv name;
};

struct sh_jrange {
    int64_t start, stop, step;
    int64_t count;
};

/* Item i, or for i == count what would follow the last; false when that does not fit in 64 bits.
 * The product on the way may be too long even where the item fits. */
static inline bool sh_jrange_at(const sh_jrange *range, int64_t i, int64_t *out)
{
    __extension__ __int128 at = range->step;
    at = at * i + range->start;
    *out = (int64_t)at;
    return at >= INT64_MIN && at <= INT64_MAX;
}

static inline int64_t sh_jrange_item(const sh_jrange *range, int64_t i)
{
    int64_t item;
    sh_jrange_at(range, i, &item);
    return item;
}

struct sh_jslice {
    sh_jv start, stop, step; /* NONE if omitted */
};

struct sh_jmacro {
    const sh_jnode *node;
    sh_jframe *frame; /* of the function it was defined in */
};

struct sh_jmethod {
    const sh_jbuiltin *func;
    sh_jv self;
};

struct sh_jcycler {
    const sh_jlist *items;
    size_t pos;
};

struct sh_jjoiner {
    sh_jv sep;
    bool used;
};

#define SH_JV_NULL ((sh_jv){.kind = SH_JV_NONE})
#define SH_JV_NOTHING ((sh_jv){.kind = SH_JV_MISSING})

static inline sh_jv sh_jv_bool(bool b)
{
    return (sh_jv){.kind = SH_JV_BOOL, .u.b = b};
}

static inline sh_jv sh_jv_int(int64_t i)
{
    return (sh_jv){.kind = SH_JV_INT, .u.i = i};
}

static inline sh_jv sh_jv_float(double f)
{
    return (sh_jv){.kind = SH_JV_FLOAT, .u.f = f};
}

static inline sh_jv sh_jv_of_str(const sh_jstr *str)
{
    return (sh_jv){.kind = SH_JV_STR, .u.str = str};
}

static inline sh_jv sh_jv_of_list(sh_jlist *list)
{
    return (sh_jv){.kind = SH_JV_LIST, .u.list = list};
}

static inline sh_jv sh_jv_of_tuple(sh_jlist *list)
{
    return (sh_jv){.kind = SH_JV_TUPLE, .u.list = list};
}

static inline sh_jv sh_jv_of_dict(sh_jdict *dict)
{
    return (sh_jv){.kind = SH_JV_DICT, .u.dict = dict};
}

static inline bool sh_jv_is_list(sh_jv v)
{
    return v.kind == SH_JV_LIST || v.kind == SH_JV_TUPLE;
}

static inline sh_str sh_jstr_str(const sh_jstr *str)
{
    return (sh_str){str->ptr, str->len};
}

/* Python's name of the type, for errors. */
const char *sh_jv_type(sh_jv v);

/* Python's truth value: None, False, 0, and everything empty are false. */
bool sh_jv_truth(sh_jv v);

/* An int or a bool as an integer; false for anything else. */
bool sh_jv_as_int(sh_jv v, int64_t *out);

/* An int, bool or float as a double; false for anything else. */
bool sh_jv_as_double(sh_jv v, double *out);

/* `==`. */
bool sh_jv_eq(sh_jrun *run, sh_jv a, sh_jv b);

/* Text. _new copies, _borrow points at memory that outlives the run. Both must be valid UTF-8. */
const sh_jstr *sh_jstr_new(sh_jrun *run, sh_str text);
const sh_jstr *sh_jstr_borrow(sh_jrun *run, sh_str text);
const sh_jstr *sh_jstr_cat(sh_jrun *run, const sh_jstr *a, const sh_jstr *b);
const sh_jstr *sh_jstr_mark(sh_jrun *run, const sh_jstr *str); /* the same text as markup */
sh_jv sh_jv_text(sh_jrun *run, sh_str text);                   /* _new as a value */
sh_jv sh_jv_lit(sh_jrun *run, const char *text);               /* borrowed */

/* Byte offset of character `idx`; the end of the text if it has fewer characters. */
size_t sh_jstr_offset(const sh_jstr *str, size_t idx);

/* Characters first..first+count as a value that shares the bytes; clamped to the text. */
sh_jv sh_jstr_slice(sh_jrun *run, const sh_jstr *str, size_t first, size_t count);

/* The bytes `text`, which are part of str, as a value of the same sort (text or markup). */
sh_jv sh_jstr_part(sh_jrun *run, const sh_jstr *str, sh_str text);

size_t sh_utf8_count(sh_str text); /* characters of valid UTF-8 */

sh_jlist *sh_jlist_new(sh_jrun *run, size_t cap);
void sh_jlist_add(sh_jrun *run, sh_jlist *list, sh_jv v);
sh_jv sh_jv_pair(sh_jrun *run, sh_jv a, sh_jv b); /* a tuple of two */

sh_jdict *sh_jdict_new(sh_jrun *run, size_t cap);
void sh_jdict_set(sh_jrun *run, sh_jdict *dict, sh_jv key, sh_jv value);
void sh_jdict_set_lit(sh_jrun *run, sh_jdict *dict, const char *key, sh_jv value);

/* NULL if there is none. The key must be hashable. */
sh_jv *sh_jdict_find(sh_jrun *run, const sh_jdict *dict, sh_jv key);
sh_jv *sh_jdict_find_str(sh_jrun *run, const sh_jdict *dict, sh_str key);

/* Whether the value can be a key; lists, dicts and anything that contains them cannot. */
bool sh_jv_hashable(sh_jrun *run, sh_jv v);

sh_jv sh_jv_undef_name(sh_jrun *run, const sh_jstr *name);
sh_jv sh_jv_undef_attr(sh_jrun *run, sh_jv obj, sh_jv name);
sh_jv sh_jv_undef_text(sh_jrun *run, const sh_jstr *hint);
sh_jv sh_jv_undef_hint(sh_jrun *run, const char *hint); /* a literal */

#endif
