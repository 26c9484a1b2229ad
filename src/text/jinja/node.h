/* node.h - the parsed template: a syntax tree in which every name is resolved to a slot.
 *
 * The parser (parser.c, expr.c) builds the tree, scope.c resolves names to slots, eval.c and exec.c
 * walk it. It is immutable from then on, so several threads can render it at once. All of it lives
 * in the arena of the parsed template.
 *
 * Threads: read-only once parsed. */
#ifndef SH_TEXT_JINJA_NODE_H
#define SH_TEXT_JINJA_NODE_H

#include "text/jinja/run.h"

typedef enum {
    /* expressions */
    SH_JN_CONST,
    SH_JN_NAME,
    SH_JN_NSREF, /* ns.attr as the target of a set */
    SH_JN_TUPLE,
    SH_JN_LIST,
    SH_JN_DICT,
    SH_JN_ATTR,
    SH_JN_ITEM,
    SH_JN_SLICE,
    SH_JN_CALL,
    SH_JN_FILTER,
    SH_JN_TEST,
    SH_JN_KEYWORD, /* name=value in a call */
    SH_JN_BINARY,
    SH_JN_NEG,
    SH_JN_POS,
    SH_JN_NOT,
    SH_JN_AND,
    SH_JN_OR,
    SH_JN_COMPARE,
    SH_JN_OPERAND, /* one `op value` of a comparison */
    SH_JN_CONCAT,
    SH_JN_COND,
    /* statements */
    SH_JN_DATA,
    SH_JN_PRINT,
    SH_JN_IF,
    SH_JN_BRANCH, /* one test and body of an if */
    SH_JN_FOR,
    SH_JN_SET,
    SH_JN_SET_BLOCK,
    SH_JN_MACRO,
    SH_JN_CALL_BLOCK,
    SH_JN_FILTER_BLOCK,
    SH_JN_WITH,
    SH_JN_SCOPE,
    SH_JN_BLOCK,
    SH_JN_BREAK,
    SH_JN_CONTINUE,
} sh_jnode_type;

typedef enum {
    SH_JOP_ADD,
    SH_JOP_SUB,
    SH_JOP_MUL,
    SH_JOP_DIV,
    SH_JOP_FLOORDIV,
    SH_JOP_MOD,
    SH_JOP_POW,
    SH_JOP_EQ,
    SH_JOP_NE,
    SH_JOP_LT,
    SH_JOP_LE,
    SH_JOP_GT,
    SH_JOP_GE,
    SH_JOP_IN,
    SH_JOP_NOT_IN,
} sh_jop;

typedef struct {
    sh_jnode *head;
    sh_jnode *tail;
    uint32_t count;
} sh_jnodes;

typedef struct sh_jbinding sh_jbinding;

/* A name in the template; there is one symbol for each spelling. */
typedef struct sh_jsym sh_jsym;
struct sh_jsym {
    const sh_jstr *text;
    sh_jbinding *bound; /* innermost binding while scope.c runs; NULL afterwards */
    sh_jsym *next;
};

/* A slot: the number of functions outwards, and the index in that function's frame. */
typedef struct {
    int hops;
    int slot;
} sh_jref;

typedef enum { SH_JNAME_LOAD, SH_JNAME_STORE, SH_JNAME_PARAM } sh_jname_use;

/* How a slot is initialized when its scope is entered. */
typedef enum {
    SH_JLOAD_PARAM,   /* not at all: the code that enters the scope fills it */
    SH_JLOAD_RESOLVE, /* with the caller's variable or the global of that name */
    SH_JLOAD_ALIAS,   /* with the value that the name has outside the scope */
    SH_JLOAD_EMPTY,
} sh_jload_kind;

typedef struct {
    sh_jload_kind kind;
    int slot;
    sh_jref from; /* ALIAS; for RESOLVE in a block, the template's own variable (hops >= 0) */
    const sh_jstr *name;
} sh_jload;

typedef struct {
    sh_jload *loads;
    size_t count;
} sh_jscope;

typedef struct {
    sh_jnodes pos;
    sh_jnodes named;  /* KEYWORD */
    sh_jnode *rest;   /* *args */
    sh_jnode *others; /* **kwargs */
} sh_jsignature;

typedef struct {
    sh_jnode *target;
    sh_jnode *test_target; /* a second copy of target, for the scope of the test */
    sh_jnode *iter;
    sh_jnode *test;
    sh_jnodes body;
    sh_jnodes otherwise;
    bool recursive;
    int slot_count; /* a recursive loop is a function with its own frame */
    int loop_slot;  /* -1 if the body does not use `loop` */
    sh_jscope body_scope, else_scope, test_scope;
} sh_jfor;

/* A macro, the body of a call block, or a block: Jinja compiles each to a Python function. */
typedef struct {
    sh_jsym *name;
    sh_jref ref;      /* where a macro is stored */
    sh_jnodes params; /* NAME */
    sh_jnodes defaults;
    sh_jnodes body;
    sh_jnode *call; /* of a call block; NULL for `generation` */
    sh_jscope scope;
    int slot_count;
    int caller_slot, kwargs_slot, varargs_slot; /* -1 if not used */
    bool takes_caller;                          /* `caller` is one of the params */
} sh_jfunc;

struct sh_jnode {
    sh_jnode_type type;
    int line;
    sh_jnode *next;
    union {
        sh_jv value; /* CONST, DATA */
        struct {
            sh_jsym *sym;
            sh_jref ref;
            sh_jname_use use;
            const sh_jstr *attr; /* NSREF */
        } name;
        sh_jnodes items; /* TUPLE, LIST, CONCAT; DICT: key, value, key, value; PRINT; IF: BRANCH */
        struct {
            sh_jnode *obj;
            const sh_jstr *name;
        } attr;
        struct {
            sh_jnode *obj;
            sh_jnode *index;
        } item;
        struct {
            sh_jnode *start, *stop, *step;
        } slice;
        struct {
            sh_jnode *target; /* CALL: what is called; FILTER, TEST: the value, NULL in blocks */
            const sh_jstr *name;
            const sh_jbuiltin *func;
            sh_jsignature args;
        } call;
        struct {
            const sh_jstr *name;
            sh_jnode *value;
        } keyword;
        struct {
            sh_jop op;
            sh_jnode *left; /* the only operand of NEG, POS, NOT; unused by OPERAND */
            sh_jnode *right;
        } binary;
        struct {
            sh_jnode *first;
            sh_jnodes operands;
        } compare;
        struct {
            sh_jnode *test, *yes, *no;
        } cond;
        struct {
            sh_jnode *test; /* NULL for else */
            sh_jnodes body;
        } branch;
        sh_jfor *loop;
        sh_jfunc *func; /* MACRO, CALL_BLOCK, BLOCK */
        struct {
            sh_jnode *target;
            sh_jnode *value; /* SET */
        } set;
        struct {
            sh_jnode *target; /* SET_BLOCK */
            sh_jnode *filter; /* NULL: none */
            sh_jnodes body;
            sh_jscope scope;
        } capture; /* SET_BLOCK, FILTER_BLOCK */
        struct {
            sh_jnodes targets;
            sh_jnodes values;
            sh_jnodes body;
            sh_jscope scope;
        } with; /* WITH, SCOPE */
    } u;
};

typedef struct {
    sh_jnodes body;
    sh_jscope scope;
    int slot_count;
} sh_jtree;

#endif
