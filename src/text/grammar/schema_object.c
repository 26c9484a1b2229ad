/* Objects of a schema.
 *
 * Properties come in the order in which the schema has them, then those that it does not name. Each
 * place in that order is a rule: from here, this property or the next place. A rule's last call
 * needs no stack, so a long list of optional properties costs nothing while it is skipped.
 *
 * A name may be repeated among the properties that are not named: parsers keep the last value,
 * which is valid as well. Only a lower limit on their number could not be kept then. */
#include "text/grammar/schema.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 20000 };

typedef struct {
    const char *name;
    bool required;
    sh_expr pair; /* "name": value */
} property;

typedef struct {
    sh_schema *s;
    const sh_shape *shape;
    const sh_tag_form *tags; /* NULL: JSON */
    property *list;
    size_t count, cap;
    const sh_lang *names; /* what propertyNames allow; NULL: all */
    sh_expr other;        /* a pair with another name; NEVER if there may be none */
    uint32_t min;         /* pairs; 0 if the required ones are enough */
    size_t counts;        /* how far the number of pairs so far has to be told apart */
    sh_expr *places;      /* [count + 1][counts + 1]: rules; 0 until made */
} object;

static const cJSON *get(const cJSON *schema, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(schema, name);
}

/* ---- names ---- */

static void add_name(object *o, const char *name, bool required)
{
    for (size_t i = 0; i < o->count && sh_expr_ok(o->s->b); i++) {
        if (strcmp(o->list[i].name, name) != 0) continue;
        o->list[i].required |= required;
        return;
    }
    if (!sh_expr_spend(o->s->b, o->count + 1)) return;
    if (o->count == o->cap) {
        o->cap = o->cap == 0 ? 16 : o->cap * 2;
        o->list = sh_realloc_array(o->list, o->cap, sizeof(*o->list));
    }
    o->list[o->count++] = (property){.name = name, .required = required};
}

static void collect_names(object *o)
{
    const sh_goal *goal = o->shape->goal;
    const cJSON *item;
    for (size_t i = 0; i < goal->count; i++)
        cJSON_ArrayForEach(item, get(goal->items[i].schema, "properties"))
        {
            add_name(o, item->string, false);
        }
    for (size_t i = 0; i < goal->count; i++)
        cJSON_ArrayForEach(item, get(goal->items[i].schema, "required"))
        {
            add_name(o, item->valuestring, true);
        }
}

/* The strings that the schema of propertyNames allows. */
static const sh_lang *names_of(sh_schema *s, const cJSON *schema)
{
    sh_goal goal = {0}, *alternatives;
    sh_shape shape;
    sh_goal_add(s, &goal, schema);
    if (!sh_goal_flatten(s, &goal)) return sh_lang_words(s->b, NULL, 0);
    if (sh_goal_split(s, &goal, &alternatives) > 0) {
        sh_schema_fail(s, schema, SH_ERR_UNSUPPORTED, "alternatives cannot be enforced here");
        return NULL;
    }
    sh_shape_init(s, &goal, &shape);
    return sh_shape_strings(s, &shape);
}

static void merge_names(object *o)
{
    for (size_t i = 0; i < o->shape->goal->count; i++) {
        const cJSON *schema = get(o->shape->goal->items[i].schema, "propertyNames");
        if (schema == NULL) continue;
        const sh_lang *lang = names_of(o->s, schema);
        o->names = o->names == NULL ? lang : sh_lang_intersect(o->s->b, o->names, lang);
    }
}

/* ---- pairs ---- */

static sh_expr make_pair(object *o, sh_expr name, sh_expr value)
{
    sh_schema *s = o->s;
    if (o->tags != NULL) return sh_schema_tag_pair(s, o->tags, name, value);
    sh_expr parts[] = {name, sh_expr_literal(s->b, SH_STR(":")), s->space, value};
    return sh_expr_seq(s->b, parts, 4);
}

/* `name` is NULL for a property that the schema does not name. */
static sh_expr make_value(object *o, const char *name, sh_goal goal)
{
    if (o->tags != NULL) return sh_schema_tag_value(o->s, o->tags, name, goal);
    return sh_schema_compile(o->s, goal);
}

static void make_pairs(object *o)
{
    sh_schema *s = o->s;
    for (size_t i = 0; i < o->count && sh_expr_ok(s->b); i++) {
        property *p = &o->list[i];
        sh_str name = sh_str_of(p->name);
        if (o->names != NULL && !sh_lang_has(o->names, name)) continue; /* NEVER */
        sh_expr value = make_value(o, p->name, sh_shape_property(s, o->shape, p->name));
        sh_expr key = o->tags == NULL ? sh_expr_json_string(s->b, name)
                                      : sh_schema_tag_name(s, o->tags, name);
        p->pair = make_pair(o, key, value);
    }
}

typedef struct {
    const cJSON *schemas[SH_PATTERNS_MAX]; /* their names are the patterns */
    const cJSON *owners[SH_PATTERNS_MAX];  /* the schemas that they stand in */
    const sh_lang *langs[SH_PATTERNS_MAX];
    size_t count;
} patterns;

static void collect_patterns(object *o, patterns *p)
{
    sh_schema *s = o->s;
    for (size_t i = 0; i < o->shape->goal->count; i++) {
        const cJSON *owner = o->shape->goal->items[i].schema, *item;
        cJSON_ArrayForEach(item, get(owner, "patternProperties"))
        {
            if (p->count == SH_PATTERNS_MAX) {
                sh_schema_fail(s, item, SH_ERR_LIMIT, "too many patterns apply to one object");
                return;
            }
            p->langs[p->count] = sh_lang_regex(s->b, sh_str_of(item->string), false);
            p->owners[p->count] = owner;
            p->schemas[p->count++] = item;
        }
    }
}

/* What a value must satisfy whose name matches exactly these patterns. */
static sh_goal other_goal(object *o, const patterns *p, unsigned matched)
{
    sh_goal goal = {0};
    for (size_t i = 0; i < o->shape->goal->count; i++) {
        const cJSON *owner = o->shape->goal->items[i].schema;
        bool described = false;
        for (size_t k = 0; k < p->count; k++) {
            if (p->owners[k] != owner || (matched >> k & 1) == 0) continue;
            sh_goal_add(o->s, &goal, p->schemas[k]);
            described = true;
        }
        const cJSON *rest = get(owner, "additionalProperties");
        if (!described && rest != NULL) sh_goal_add(o->s, &goal, rest);
    }
    return goal;
}

/* A pair whose name the schema does not have, for each combination of patterns that it matches. */
static void make_other(object *o)
{
    sh_schema *s = o->s;
    patterns p = {0};
    sh_expr forms[1 << SH_PATTERNS_MAX];
    size_t count = 0;
    sh_str *words = sh_alloc_array(o->count, sizeof(*words));
    for (size_t i = 0; i < o->count; i++) words[i] = sh_str_of(o->list[i].name);
    const sh_lang *free_names = o->names != NULL ? o->names : s->any_string;
    if (o->count > 0)
        free_names = sh_lang_subtract(s->b, free_names, sh_lang_words(s->b, words, o->count));
    free(words);
    collect_patterns(o, &p);
    for (unsigned matched = 0; matched < 1u << p.count && sh_expr_ok(s->b); matched++) {
        sh_goal goal = other_goal(o, &p, matched);
        const sh_lang *names = free_names;
        for (size_t k = 0; k < p.count; k++)
            names = (matched >> k & 1) != 0 ? sh_lang_intersect(s->b, names, p.langs[k])
                                            : sh_lang_subtract(s->b, names, p.langs[k]);
        if (goal.impossible || names == NULL || sh_lang_is_empty(names)) continue;
        sh_expr value = make_value(o, NULL, goal);
        sh_expr key = o->tags == NULL ? sh_schema_quoted(s, names) : sh_schema_tag_names(s, names);
        forms[count++] = make_pair(o, key, value);
    }
    o->other = sh_expr_any_of(s->b, forms, count);
    if (count > 0) o->other = sh_expr_named(s->b, "property", o->other);
}

/* ---- order ---- */

static sh_expr with_comma(object *o, size_t pairs, sh_expr pair)
{
    sh_schema *s = o->s;
    if (o->tags != NULL && pairs == 0) return pair;
    if (o->tags != NULL) return sh_expr_seq(s->b, (sh_expr[]){o->tags->between, pair}, 2);
    sh_expr comma = pairs == 0 ? SH_EXPR_AT_EMPTY : sh_expr_literal(s->b, SH_STR(","));
    return sh_expr_seq(s->b, (sh_expr[]){comma, s->gap, pair}, 3);
}

static uint32_t left(uint32_t limit, size_t used)
{
    if (limit == SH_EXPR_UNLIMITED) return limit;
    return limit > used ? limit - (uint32_t)used : 0;
}

/* All named properties are behind; any number of others may follow. */
static sh_expr last_place(object *o, size_t pairs)
{
    sh_grammar_builder *b = o->s->b;
    uint32_t min = left(o->min, pairs);
    uint32_t max = left(o->shape->max_properties, pairs);
    if (o->other == SH_EXPR_AT_NEVER || max == 0)
        return min == 0 ? SH_EXPR_AT_EMPTY : SH_EXPR_AT_NEVER;
    sh_expr more = with_comma(o, 1, o->other);
    if (pairs > 0) return sh_expr_repeat(b, more, min, max);
    sh_expr first = with_comma(o, 0, o->other);
    uint32_t more_min = min > 0 ? min - 1 : 0;
    uint32_t more_max = max == SH_EXPR_UNLIMITED ? max : max - 1;
    sh_expr list = sh_expr_seq(b, (sh_expr[]){first, sh_expr_repeat(b, more, more_min, more_max)},
                               2);
    return min == 0 ? sh_expr_optional(b, list) : list;
}

static sh_expr *place_at(object *o, size_t index, size_t pairs)
{
    return &o->places[index * (o->counts + 1) + (pairs < o->counts ? pairs : o->counts)];
}

/* Places are made from the last to the first, so those that follow are there already. */
static sh_expr make_place(object *o, size_t index, size_t pairs)
{
    const property *p = &o->list[index];
    sh_expr forms[2];
    size_t count = 0;
    if (left(o->shape->max_properties, pairs) > 0 && p->pair != SH_EXPR_AT_NEVER) {
        sh_expr parts[] = {with_comma(o, pairs, p->pair), *place_at(o, index + 1, pairs + 1)};
        forms[count++] = sh_expr_seq(o->s->b, parts, 2);
    }
    if (!p->required) forms[count++] = *place_at(o, index + 1, pairs);
    return sh_expr_named(o->s->b, "properties", sh_expr_any_of(o->s->b, forms, count));
}

/* How many pairs came before matters for the comma (none or some), and for limits. */
static sh_expr make_places(object *o)
{
    const sh_shape *shape = o->shape;
    size_t required = 0, width;
    for (size_t i = 0; i < o->count; i++) required += o->list[i].required;
    o->counts = 1;
    if (shape->max_properties != SH_EXPR_UNLIMITED)
        o->counts = shape->max_properties;
    else if (shape->min_properties > required)
        o->counts = shape->min_properties;
    if (o->counts > o->count + 1) o->counts = o->count + 1;
    if (o->counts == 0) o->counts = 1;
    width = o->counts + 1;
    if ((o->count + 1) * width > PLACES_MAX)
        return sh_expr_fail(o->s->b, SH_ERR_LIMIT, "an object has too many properties to count");
    o->places = sh_alloc_array((o->count + 1) * width, sizeof(*o->places));
    for (size_t pairs = 0; pairs < width; pairs++)
        *place_at(o, o->count, pairs) = last_place(o, pairs);
    for (size_t i = o->count; i-- > 0 && sh_expr_ok(o->s->b);)
        for (size_t pairs = 0; pairs < width; pairs++)
            *place_at(o, i, pairs) = make_place(o, i, pairs);
    return o->places[0];
}

/* A name that is written twice counts once, so a lower limit holds only where no name can be. */
static bool set_min(object *o)
{
    uint32_t required = 0;
    for (size_t i = 0; i < o->count; i++) required += o->list[i].required;
    if (o->shape->min_properties > required) o->min = o->shape->min_properties;
    if (o->min <= 1 || o->other == SH_EXPR_AT_NEVER) return true;
    for (size_t i = 0; i < o->shape->goal->count; i++) {
        const cJSON *keyword = get(o->shape->goal->items[i].schema, "minProperties");
        if (keyword != NULL)
            sh_schema_fail(o->s, keyword, SH_ERR_UNSUPPORTED,
                           "cannot be enforced where additional properties are allowed");
    }
    return false;
}

sh_expr sh_schema_object(sh_schema *s, const sh_shape *shape)
{
    object o = {.s = s, .shape = shape, .tags = s->tags};
    sh_expr members = SH_EXPR_AT_NEVER;
    s->tags = NULL; /* objects within this one are JSON */
    if (shape->min_properties > shape->max_properties) return SH_EXPR_AT_NEVER;
    collect_names(&o);
    merge_names(&o);
    make_pairs(&o);
    make_other(&o);
    if (sh_expr_ok(s->b) && set_min(&o)) members = make_places(&o);
    free(o.list);
    free(o.places);
    if (o.tags != NULL) return members;
    sh_expr parts[] = {sh_expr_literal(s->b, SH_STR("{")), members, s->gap,
                       sh_expr_literal(s->b, SH_STR("}"))};
    return sh_expr_seq(s->b, parts, 4);
}
