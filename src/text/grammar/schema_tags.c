/* Objects whose members are written between tags, as some models write the arguments of calls:
 *     <parameter=city>
 *     Paris
 *     </parameter>
 * Names, order and number of the members follow the schema as they do in JSON; only the way of
 * writing differs. A value that is a string stands there as it is, so it cannot contain the end
 * tag; strings within JSON values must not contain it either. */
#include "text/grammar/schema.h"

#include "text/grammar/limits.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Names that the schema does not have. */
#define OTHER_NAME "[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"

enum { SPLIT_WORK = 1000 }; /* an alternative of alternatives; bounds their number */

static bool contains(sh_str text, sh_str part)
{
    return part.len > 0 && sh_str_find(text, part, 0) < text.len;
}

sh_expr sh_schema_tag_pair(sh_schema *s, const sh_tag_form *tags, sh_expr name, sh_expr value)
{
    sh_expr parts[] = {tags->key, name, tags->middle, value, tags->end};
    return sh_expr_seq(s->b, parts, 5);
}

sh_expr sh_schema_tag_name(sh_schema *s, const sh_tag_form *tags, sh_str name)
{
    bool fits = name.len > 0 && !contains(name, tags->stop);
    for (const char *c = tags->not_in_names; *c != '\0'; c++)
        fits = fits && !contains(name, (sh_str){c, 1});
    if (!fits)
        return sh_expr_fail(s->b, SH_ERR_UNSUPPORTED,
                            "/properties: the model writes names without quotes, so '%.*s' cannot "
                            "be one",
                            (int)name.len, name.ptr);
    return sh_expr_literal(s->b, name);
}

sh_expr sh_schema_tag_names(sh_schema *s, const sh_lang *names)
{
    const sh_lang *plain = sh_lang_regex(s->b, SH_STR(OTHER_NAME), true);
    return sh_expr_lang(s->b, sh_lang_intersect(s->b, names, plain), false);
}

/* ---- values ---- */

typedef sh_expr (*shape_fn)(sh_schema *s, const sh_shape *shape, const void *arg);

/* Calls fn for the shape of each alternative of the goal. */
static sh_expr each_shape(sh_schema *s, sh_goal goal, shape_fn fn, const void *arg)
{
    sh_goal *goals = NULL;
    if (!sh_expr_spend(s->b, SPLIT_WORK) || !sh_goal_flatten(s, &goal)) return SH_EXPR_AT_NEVER;
    if (s->depth >= SH_GRAMMAR_NEST_MAX)
        return sh_expr_fail(s->b, SH_ERR_LIMIT, "the schema is nested too deep");
    size_t count = sh_goal_split(s, &goal, &goals);
    if (count == 0) {
        sh_shape shape;
        sh_shape_init(s, &goal, &shape);
        return sh_expr_ok(s->b) ? fn(s, &shape, arg) : SH_EXPR_AT_NEVER;
    }
    sh_expr *forms = sh_alloc_array(count, sizeof(*forms));
    s->depth++;
    for (size_t i = 0; i < count; i++) forms[i] = each_shape(s, goals[i], fn, arg);
    s->depth--;
    sh_expr e = sh_expr_any_of(s->b, forms, count);
    free(forms);
    return e;
}

static sh_expr bare_strings(sh_schema *s, const sh_shape *shape, const void *arg)
{
    const sh_tag_value *how = arg;
    const sh_lang *lang = sh_lang_intersect(s->b, sh_shape_strings(s, shape), s->without);
    if (how->not_bare.len > 0)
        lang = sh_lang_subtract(s->b, lang, sh_lang_regex(s->b, how->not_bare, true));
    return sh_expr_lang(s->b, lang, false);
}

/* The goal without its strings. */
static sh_expr other_than_strings(sh_schema *s, sh_goal goal)
{
    static const char *const types[] = {"null", "boolean", "number", "array", "object"};
    if (s->no_strings == NULL) {
        cJSON *list = cJSON_CreateStringArray(types, (int)SH_COUNT_OF(types));
        s->no_strings = cJSON_CreateObject();
        if (!cJSON_AddItemToObject(s->no_strings, "type", list))
            return sh_expr_fail(s->b, SH_ERR_MEMORY, "out of memory");
    }
    sh_goal_add(s, &goal, s->no_strings);
    return sh_schema_compile(s, goal);
}

sh_expr sh_schema_tag_value(sh_schema *s, const sh_tag_form *tags, const char *name, sh_goal goal)
{
    sh_tag_value how = tags->value(tags->arg, name);
    sh_expr forms[2];
    size_t count = 0;
    if (how.json)
        forms[count++] = how.bare ? other_than_strings(s, goal) : sh_schema_compile(s, goal);
    if (how.bare) forms[count++] = each_shape(s, goal, bare_strings, &how);
    return sh_expr_any_of(s->b, forms, count);
}

/* ---- the whole ---- */

static sh_expr members(sh_schema *s, const sh_shape *shape, const void *arg)
{
    if ((shape->types & SH_TYPE_OBJECT) == 0) return SH_EXPR_AT_NEVER;
    if (shape->values != NULL || shape->value != NULL)
        return sh_expr_fail(s->b, SH_ERR_UNSUPPORTED,
                            "the model writes arguments one by one, so an enum or a const of "
                            "whole objects cannot be enforced");
    s->tags = arg;
    return sh_schema_object(s, shape);
}

/* An end tag in a name or in a value of the schema would end the value early. */
static bool contains_stop(const cJSON *schema, sh_str stop)
{
    char *text = cJSON_PrintUnformatted(schema);
    bool found = contains(sh_str_of(text == NULL ? "" : text), stop);
    cJSON_free(text);
    return found;
}

sh_expr sh_expr_tagged_object(sh_grammar_builder *b, const cJSON *schema, const sh_tag_form *tags)
{
    sh_schema s;
    sh_goal goal;
    if (contains_stop(schema, tags->stop))
        return sh_expr_fail(b, SH_ERR_UNSUPPORTED,
                            "the schema contains '%.*s', which ends a value of this model's calls",
                            (int)tags->stop.len, tags->stop.ptr);
    sh_json_form form = {.spaces = true, .object = true, .python = tags->python};
    sh_schema_begin(&s, b, schema, form, &goal);
    if (tags->stop.len > 0)
        s.without = s.any_string = sh_lang_before_first(b, &tags->stop, 1, false);
    sh_expr e = sh_expr_named(b, "members", each_shape(&s, goal, members, tags));
    sh_schema_end(&s);
    return e;
}
