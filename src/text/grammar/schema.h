/* schema.h - JSON Schema as a grammar: what its parts share.
 *
 * A value often has to satisfy several schemas at once: a $ref with siblings, the members of allOf,
 * a property that two of them describe. So the unit of compilation is not a schema but a goal, a
 * set of schemas. Its keywords are merged into a shape: the types that remain, one set of strings,
 * one set of numbers, and for each property or item the goal of its value. Goals are compiled once
 * each, which also makes recursion work.
 *
 * Threads: as for the builder. */
#ifndef SH_TEXT_GRAMMAR_SCHEMA_H
#define SH_TEXT_GRAMMAR_SCHEMA_H

#include "text/grammar/expr.h"

enum {
    SH_TYPE_NULL = 1,
    SH_TYPE_BOOL = 2,
    SH_TYPE_INTEGER = 4,
    SH_TYPE_FRACTION = 8, /* numbers that are not integers; "number" is both */
    SH_TYPE_STRING = 16,
    SH_TYPE_ARRAY = 32,
    SH_TYPE_OBJECT = 64,
    SH_TYPE_NUMBER = SH_TYPE_INTEGER | SH_TYPE_FRACTION,
    SH_TYPE_ALL = 127
};

/* Which of a schema's alternatives have been chosen already: they are other members of the goal. */
enum { SH_CHOSEN_ANY_OF = 1, SH_CHOSEN_ONE_OF = 2 };

typedef struct {
    const cJSON *schema;
    uintptr_t chosen;
} sh_goal_item;

typedef struct {
    sh_goal_item *items; /* in the order of the schema, each once */
    size_t count;
    bool impossible; /* one of them is `false` */
} sh_goal;

typedef struct {
    sh_goal goal;
    uint64_t hash; /* of the goal */
    sh_expr rule;
} sh_goal_rule;

typedef struct {
    const cJSON **items; /* [cap] hash table */
    size_t count, cap;
} sh_schema_set;

typedef struct {
    sh_grammar_builder *b;
    const cJSON *root;
    sh_json_form form;
    sh_goal_rule *rules; /* goals that have been compiled or are being compiled */
    size_t rule_count, rule_cap;
    sh_schema_set ended; /* that do not lead back to themselves */
    cJSON *objects; /* schemas that all objects satisfy, and all but strings; NULL: not needed */
    cJSON *no_strings;
    int depth;          /* of goals within goals that are compiled */
    int never_depth;    /* and that are asked about */
    sh_expr space, gap; /* after a colon; around members */
    const sh_lang *any_string;
    sh_expr string_rule;     /* for all strings; 0 until used */
    const sh_tag_form *tags; /* how the next object is written; NULL: as JSON */
    const sh_lang *without;  /* what all strings must match as well; NULL: nothing */
} sh_schema;

typedef struct {
    const cJSON *number; /* NULL: no bound */
    bool exclusive;
} sh_bound;

enum { SH_MULTIPLES_MAX = 4, SH_PATTERNS_MAX = 4 };

typedef struct {
    const sh_goal *goal; /* without references and allOf */
    unsigned types;
    bool has_type;         /* some schema names types */
    unsigned hinted;       /* types that the other keywords are about */
    const cJSON *values;   /* an enum, of which the valid values remain; NULL: none */
    const cJSON *value;    /* a const; NULL: none */
    const sh_lang *string; /* NULL: all strings */
    sh_bound min, max;
    const cJSON *multiples[SH_MULTIPLES_MAX];
    size_t multiple_count;
    uint32_t min_items, max_items;
    uint32_t min_properties, max_properties;
} sh_shape;

/* ---- schema.c ---- */

/* Fails with the path of the node in the schema. Returns NEVER. */
sh_expr sh_schema_fail(sh_schema *s, const cJSON *node, sh_status status, const char *what);

/* What a $ref refers to; NULL after an error. */
const cJSON *sh_schema_resolve(sh_schema *s, const cJSON *ref);

void sh_goal_add(sh_schema *s, sh_goal *goal, const cJSON *schema);

/* Replaces references and allOf by what they stand for and checks all keywords. False if no value
 * satisfies the goal, or after an error. */
bool sh_goal_flatten(sh_schema *s, sh_goal *goal);

/* The goal's alternatives, one for each member of its first anyOf or oneOf; 0 if it has none. */
size_t sh_goal_split(sh_schema *s, const sh_goal *goal, sh_goal **out);

/* Begins with the schema of the whole text, as *goal; sh_schema_end frees what was needed. */
void sh_schema_begin(sh_schema *s, sh_grammar_builder *b, const cJSON *schema, sh_json_form form,
                     sh_goal *goal);
void sh_schema_end(sh_schema *s);

/* A rule for the values that satisfy the goal. */
sh_expr sh_schema_compile(sh_schema *s, sh_goal goal);

/* ---- schema_loops.c ---- */

/* Fails if the schema leads back to itself. */
void sh_schema_check_loops(sh_schema *s, const cJSON *schema);

/* ---- schema_shape.c ---- */

void sh_shape_init(sh_schema *s, const sh_goal *flat, sh_shape *shape);

/* Whether a value that stands in the schema satisfies the goal. */
bool sh_goal_allows(sh_schema *s, sh_goal goal, const cJSON *value);

/* The same of a value of the enum `list`, which may be long: it is not looked for there. */
bool sh_goal_allows_of(sh_schema *s, sh_goal goal, const cJSON *value, const cJSON *list);

/* Whether it is certain that no value satisfies the goal. */
bool sh_goal_is_never(sh_schema *s, sh_goal goal);

/* What the value of a property must satisfy. */
sh_goal sh_shape_property(sh_schema *s, const sh_shape *shape, const char *name);
sh_goal sh_shape_item(sh_schema *s, const sh_shape *shape, size_t index);
size_t sh_shape_prefix(const sh_shape *shape); /* items that have a schema of their own */

/* ---- schema_object.c, schema_array.c, schema_number.c, schema_string.c ---- */

sh_expr sh_schema_object(sh_schema *s, const sh_shape *shape);
sh_expr sh_schema_array(sh_schema *s, const sh_shape *shape);
const sh_lang *sh_schema_numbers(sh_schema *s, const sh_shape *shape);

/* NULL if there is no such format, or after an error. */
const sh_lang *sh_schema_format(sh_schema *s, const char *name);

/* A quoted string of the set. */
sh_expr sh_schema_quoted(sh_schema *s, const sh_lang *lang);
sh_expr sh_schema_literal(sh_schema *s, const cJSON *value);

/* The strings that the shape allows, also those of an enum or a const. */
const sh_lang *sh_shape_strings(sh_schema *s, const sh_shape *shape);

/* ---- schema_tags.c ---- */

sh_expr sh_schema_tag_pair(sh_schema *s, const sh_tag_form *tags, sh_expr name, sh_expr value);
sh_expr sh_schema_tag_value(sh_schema *s, const sh_tag_form *tags, const char *name, sh_goal goal);
sh_expr sh_schema_tag_name(sh_schema *s, const sh_tag_form *tags, sh_str name);
sh_expr sh_schema_tag_names(sh_schema *s, const sh_lang *names);

#endif
