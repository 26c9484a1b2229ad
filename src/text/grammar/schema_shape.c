/* Shapes: the keywords of all schemas of a goal, merged. Also the two questions that are asked
 * about goals without compiling them: whether a value of an enum satisfies one, and whether nothing
 * does. */
#include "text/grammar/schema.h"

#include "text/grammar/limits.h"

#include <math.h>
#include <string.h>

enum { LENGTH_MAX = 16384, ITEMS_MAX = 16384 };

static const cJSON *get(const cJSON *schema, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(schema, name);
}

/* ---- merging ---- */

static unsigned type_bit(sh_schema *s, const cJSON *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", SH_TYPE_NULL},       {"boolean", SH_TYPE_BOOL},
                 {"integer", SH_TYPE_INTEGER}, {"number", SH_TYPE_NUMBER},
                 {"string", SH_TYPE_STRING},   {"array", SH_TYPE_ARRAY},
                 {"object", SH_TYPE_OBJECT}};
    for (size_t i = 0; i < SH_COUNT_OF(types) && cJSON_IsString(name); i++)
        if (strcmp(types[i].name, name->valuestring) == 0) return types[i].bits;
    sh_schema_fail(s, name, SH_ERR_INPUT,
                   "must be null, boolean, integer, number, string, array or object");
    return 0;
}

static void merge_type(sh_schema *s, sh_shape *shape, const cJSON *schema)
{
    const cJSON *type = get(schema, "type"), *item;
    unsigned bits = 0;
    if (type == NULL) return;
    if (cJSON_IsArray(type)) cJSON_ArrayForEach(item, type)
        {
            bits |= type_bit(s, item);
        }
    else
        bits = type_bit(s, type);
    if (cJSON_IsTrue(get(schema, "nullable"))) bits |= SH_TYPE_NULL;
    shape->types &= bits;
    shape->has_type = true;
}

/* A limit on a count. What is above `most` is the same as `most` for an upper limit: it holds for
 * every text that we let through. */
static void merge_count(sh_schema *s, const cJSON *schema, const char *name, bool upper,
                        uint32_t most, uint32_t *limit)
{
    const cJSON *item = get(schema, name);
    if (item == NULL) return;
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 ||
        item->valuedouble != floor(item->valuedouble)) {
        sh_schema_fail(s, item, SH_ERR_INPUT, "must be a whole number, 0 or more");
        return;
    }
    uint32_t value = item->valuedouble > most ? most : (uint32_t)item->valuedouble;
    if (!upper && item->valuedouble > most)
        sh_schema_fail(s, item, SH_ERR_LIMIT, "is larger than 16384");
    if (upper ? value < *limit : value > *limit) *limit = value;
}

static void narrow_string(sh_schema *s, sh_shape *shape, const sh_lang *lang)
{
    if (shape->string == NULL)
        shape->string = lang;
    else
        shape->string = sh_lang_intersect(s->b, shape->string, lang);
    if (shape->string == NULL) shape->string = s->any_string; /* failed; the error is kept */
}

/* Runs what may fail for a reason that does not know the schema, and adds the path. */
static void merge_string_rule(sh_schema *s, sh_shape *shape, const cJSON *keyword, bool pattern)
{
    if (!cJSON_IsString(keyword)) {
        sh_schema_fail(s, keyword, SH_ERR_INPUT, "must be a string");
        return;
    }
    sh_str text = sh_str_of(keyword->valuestring);
    const sh_lang *lang = pattern ? sh_lang_regex(s->b, text, false)
                                  : sh_schema_format(s, keyword->valuestring);
    if (lang != NULL) {
        narrow_string(s, shape, lang);
        return;
    }
    if (sh_expr_ok(s->b)) {
        sh_schema_fail(s, keyword, SH_ERR_UNSUPPORTED, "this format cannot be enforced");
        return;
    }
    sh_err why = s->b->err;
    s->b->err.status = SH_OK;
    sh_schema_fail(s, keyword, why.status, why.text);
}

static const char *const number_formats[] = {"int32", "int64", "float", "double"};

static bool is_number_format(const cJSON *format)
{
    for (size_t i = 0; i < SH_COUNT_OF(number_formats) && cJSON_IsString(format); i++)
        if (strcmp(number_formats[i], format->valuestring) == 0) return true;
    return false;
}

static void merge_string(sh_schema *s, sh_shape *shape, const cJSON *schema)
{
    uint32_t min = 0, max = SH_EXPR_UNLIMITED;
    const cJSON *format = get(schema, "format"), *pattern = get(schema, "pattern");
    merge_count(s, schema, "minLength", false, LENGTH_MAX, &min);
    merge_count(s, schema, "maxLength", true, LENGTH_MAX, &max);
    if (min > max)
        shape->types &= ~(unsigned)SH_TYPE_STRING;
    else if (min > 0 || max != SH_EXPR_UNLIMITED)
        narrow_string(s, shape, sh_lang_length(s->b, min, max));
    if (pattern != NULL) merge_string_rule(s, shape, pattern, true);
    /* Number formats say how a program stores the number; every number that JSON has is one. */
    if (format != NULL && !is_number_format(format)) merge_string_rule(s, shape, format, false);
}

static double bound_value(sh_bound bound, double none)
{
    return bound.number == NULL ? none : bound.number->valuedouble;
}

static void merge_bound(sh_schema *s, const cJSON *schema, const char *name, bool exclusive,
                        bool upper, sh_bound *bound)
{
    const cJSON *item = get(schema, name);
    if (item == NULL) return;
    if (!cJSON_IsNumber(item)) {
        sh_schema_fail(s, item, SH_ERR_INPUT, "must be a number");
        return;
    }
    double old = bound_value(*bound, upper ? INFINITY : -INFINITY), new = item->valuedouble;
    bool tighter = upper ? new < old : new > old;
    if (tighter || (new == old &&exclusive)) *bound = (sh_bound){item, exclusive};
}

static void merge_number(sh_schema *s, sh_shape *shape, const cJSON *schema)
{
    const cJSON *multiple = get(schema, "multipleOf");
    /* In old drafts these two are booleans that change the other two. */
    bool open_min = cJSON_IsTrue(get(schema, "exclusiveMinimum"));
    bool open_max = cJSON_IsTrue(get(schema, "exclusiveMaximum"));
    merge_bound(s, schema, "minimum", open_min, false, &shape->min);
    merge_bound(s, schema, "maximum", open_max, true, &shape->max);
    if (!cJSON_IsBool(get(schema, "exclusiveMinimum")))
        merge_bound(s, schema, "exclusiveMinimum", true, false, &shape->min);
    if (!cJSON_IsBool(get(schema, "exclusiveMaximum")))
        merge_bound(s, schema, "exclusiveMaximum", true, true, &shape->max);
    if (multiple == NULL) return;
    if (!cJSON_IsNumber(multiple) || multiple->valuedouble <= 0)
        sh_schema_fail(s, multiple, SH_ERR_INPUT, "must be a number greater than 0");
    else if (shape->multiple_count == SH_MULTIPLES_MAX)
        sh_schema_fail(s, multiple, SH_ERR_LIMIT, "too many of these apply to one value");
    else
        shape->multiples[shape->multiple_count++] = multiple;
}

static void merge_values(sh_schema *s, sh_shape *shape, const cJSON *schema)
{
    const cJSON *list = get(schema, "enum"), *value = get(schema, "const");
    if (list != NULL && (!cJSON_IsArray(list) || list->child == NULL))
        sh_schema_fail(s, list, SH_ERR_INPUT, "must be a list that is not empty");
    else if (list != NULL)
        shape->values = list;
    if (value != NULL) shape->value = value;
}

static void merge_hints(sh_shape *shape, const cJSON *schema)
{
    static const struct {
        const char *name;
        unsigned type;
    } hints[] = {
        {"properties", SH_TYPE_OBJECT},
        {"required", SH_TYPE_OBJECT},
        {"additionalProperties", SH_TYPE_OBJECT},
        {"patternProperties", SH_TYPE_OBJECT},
        {"items", SH_TYPE_ARRAY},
        {"prefixItems", SH_TYPE_ARRAY},
        {"minItems", SH_TYPE_ARRAY},
        {"maxItems", SH_TYPE_ARRAY},
        {"pattern", SH_TYPE_STRING},
        {"minLength", SH_TYPE_STRING},
        {"maxLength", SH_TYPE_STRING},
        {"format", SH_TYPE_STRING},
        {"minimum", SH_TYPE_NUMBER},
        {"maximum", SH_TYPE_NUMBER},
        {"exclusiveMinimum", SH_TYPE_NUMBER},
        {"exclusiveMaximum", SH_TYPE_NUMBER},
        {"multipleOf", SH_TYPE_NUMBER},
    };
    for (size_t i = 0; i < SH_COUNT_OF(hints); i++)
        if (get(schema, hints[i].name) != NULL) shape->hinted |= hints[i].type;
}

static void check_object(sh_schema *s, const cJSON *schema, const char *name)
{
    const cJSON *item = get(schema, name);
    if (item != NULL && !cJSON_IsObject(item))
        sh_schema_fail(s, item, SH_ERR_INPUT, "must be an object");
}

static void check_required(sh_schema *s, const cJSON *schema)
{
    const cJSON *list = get(schema, "required"), *item;
    if (list == NULL || cJSON_IsBool(list)) return; /* in old drafts it stands in the property */
    bool ok = cJSON_IsArray(list);
    cJSON_ArrayForEach(item, list)
    {
        ok = ok && cJSON_IsString(item);
    }
    if (!ok) sh_schema_fail(s, list, SH_ERR_INPUT, "must be a list of strings");
}

void sh_shape_init(sh_schema *s, const sh_goal *flat, sh_shape *shape)
{
    *shape = (sh_shape){.goal = flat,
                        .types = SH_TYPE_ALL,
                        .max_items = SH_EXPR_UNLIMITED,
                        .max_properties = SH_EXPR_UNLIMITED};
    for (size_t i = 0; i < flat->count && sh_expr_ok(s->b); i++) {
        const cJSON *schema = flat->items[i].schema;
        merge_type(s, shape, schema);
        merge_values(s, shape, schema);
        merge_string(s, shape, schema);
        merge_number(s, shape, schema);
        merge_hints(shape, schema);
        merge_count(s, schema, "minItems", false, ITEMS_MAX, &shape->min_items);
        merge_count(s, schema, "maxItems", true, ITEMS_MAX, &shape->max_items);
        merge_count(s, schema, "minProperties", false, ITEMS_MAX, &shape->min_properties);
        merge_count(s, schema, "maxProperties", true, ITEMS_MAX, &shape->max_properties);
        check_object(s, schema, "properties");
        check_object(s, schema, "patternProperties");
        check_required(s, schema);
    }
}

/* ---- properties and items ---- */

static bool matches_pattern(sh_schema *s, const cJSON *pattern, const char *name)
{
    const sh_lang *lang = sh_lang_regex(s->b, sh_str_of(pattern->string), false);
    return lang != NULL && sh_lang_has(lang, sh_str_of(name));
}

sh_goal sh_shape_property(sh_schema *s, const sh_shape *shape, const char *name)
{
    sh_goal goal = {0};
    for (size_t i = 0; i < shape->goal->count; i++) {
        const cJSON *schema = shape->goal->items[i].schema, *pattern;
        const cJSON *own = get(get(schema, "properties"), name);
        bool described = own != NULL;
        if (own != NULL) sh_goal_add(s, &goal, own);
        cJSON_ArrayForEach(pattern, get(schema, "patternProperties"))
        {
            if (!matches_pattern(s, pattern, name)) continue;
            sh_goal_add(s, &goal, pattern);
            described = true;
        }
        const cJSON *rest = get(schema, "additionalProperties");
        if (!described && rest != NULL) sh_goal_add(s, &goal, rest);
    }
    return goal;
}

/* In old drafts "items" may be the list that is now called "prefixItems". */
static const cJSON *prefix_of(const cJSON *schema)
{
    const cJSON *items = get(schema, "items");
    return cJSON_IsArray(items) ? items : get(schema, "prefixItems");
}

sh_goal sh_shape_item(sh_schema *s, const sh_shape *shape, size_t index)
{
    sh_goal goal = {0};
    for (size_t i = 0; i < shape->goal->count; i++) {
        const cJSON *schema = shape->goal->items[i].schema, *items = get(schema, "items");
        const cJSON *own = cJSON_GetArrayItem(prefix_of(schema), (int)index);
        if (own == NULL) own = cJSON_IsArray(items) ? get(schema, "additionalItems") : items;
        if (own != NULL) sh_goal_add(s, &goal, own);
    }
    return goal;
}

size_t sh_shape_prefix(const sh_shape *shape)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->goal->count; i++) {
        size_t len = (size_t)cJSON_GetArraySize(prefix_of(shape->goal->items[i].schema));
        if (len > most) most = len;
    }
    return most;
}

/* ---- does a value satisfy a goal? ---- */

static unsigned type_of(const cJSON *value)
{
    if (cJSON_IsNull(value)) return SH_TYPE_NULL;
    if (cJSON_IsBool(value)) return SH_TYPE_BOOL;
    if (cJSON_IsString(value)) return SH_TYPE_STRING;
    if (cJSON_IsArray(value)) return SH_TYPE_ARRAY;
    if (cJSON_IsObject(value)) return SH_TYPE_OBJECT;
    return value->valuedouble == floor(value->valuedouble) ? SH_TYPE_INTEGER : SH_TYPE_FRACTION;
}

static bool same_value(const cJSON *a, const cJSON *b)
{
    return cJSON_Compare(a, b, true);
}

/* `of`: a list that is known to have the value. */
static bool in_values(sh_schema *s, const cJSON *schema, const cJSON *value, const cJSON *of)
{
    const cJSON *list = get(schema, "enum"), *only = get(schema, "const"), *item;
    bool found = list == NULL || list == of;
    for (item = found ? NULL : list->child; item != NULL && !found; item = item->next)
        found = sh_expr_spend(s->b, 1) && same_value(item, value);
    return found && (only == NULL || same_value(only, value));
}

static bool number_fits(const sh_shape *shape, double x)
{
    double min = bound_value(shape->min, -INFINITY), max = bound_value(shape->max, INFINITY);
    bool above = shape->min.exclusive ? x > min : x >= min;
    bool below = shape->max.exclusive ? x < max : x <= max;
    for (size_t i = 0; i < shape->multiple_count; i++) {
        double ratio = x / shape->multiples[i]->valuedouble;
        if (fabs(ratio - round(ratio)) > 1e-9 * fmax(1, fabs(ratio))) return false;
    }
    return above && below;
}

static bool array_fits(sh_schema *s, const sh_shape *shape, const cJSON *value)
{
    size_t count = (size_t)cJSON_GetArraySize(value), index = 0;
    const cJSON *item;
    if (count < shape->min_items || count > shape->max_items) return false;
    cJSON_ArrayForEach(item, value)
    {
        if (!sh_goal_allows(s, sh_shape_item(s, shape, index++), item)) return false;
    }
    return true;
}

static bool object_fits(sh_schema *s, const sh_shape *shape, const cJSON *value)
{
    size_t count = (size_t)cJSON_GetArraySize(value);
    const cJSON *item;
    if (count < shape->min_properties || count > shape->max_properties) return false;
    for (size_t i = 0; i < shape->goal->count; i++) {
        const cJSON *schema = shape->goal->items[i].schema, *names = get(schema, "propertyNames");
        cJSON_ArrayForEach(item, get(schema, "required"))
        {
            if (get(value, item->valuestring) == NULL) return false;
        }
        cJSON_ArrayForEach(item, value)
        {
            sh_goal goal = {0};
            if (names == NULL) continue;
            sh_goal_add(s, &goal, names);
            cJSON *name = cJSON_CreateString(item->string);
            bool fits = sh_goal_allows(s, goal, name);
            cJSON_Delete(name);
            if (!fits) return false;
        }
    }
    cJSON_ArrayForEach(item, value)
    {
        if (!sh_goal_allows(s, sh_shape_property(s, shape, item->string), item)) return false;
    }
    return true;
}

static bool shape_allows(sh_schema *s, const sh_goal *flat, const cJSON *value, const cJSON *of)
{
    sh_shape shape;
    unsigned type = type_of(value);
    sh_shape_init(s, flat, &shape);
    if (!sh_expr_ok(s->b) || (shape.types & type) == 0) return false;
    for (size_t i = 0; i < flat->count; i++)
        if (!in_values(s, flat->items[i].schema, value, of)) return false;
    switch (type) {
    case SH_TYPE_STRING:
        return shape.string == NULL || sh_lang_has(shape.string, sh_str_of(value->valuestring));
    case SH_TYPE_INTEGER:
    case SH_TYPE_FRACTION: return number_fits(&shape, value->valuedouble);
    case SH_TYPE_ARRAY: return array_fits(s, &shape, value);
    case SH_TYPE_OBJECT: return object_fits(s, &shape, value);
    default: return true;
    }
}

bool sh_goal_allows_of(sh_schema *s, sh_goal goal, const cJSON *value, const cJSON *list)
{
    sh_goal *goals = NULL;
    if (!sh_expr_spend(s->b, 100) || !sh_goal_flatten(s, &goal)) return false;
    size_t count = sh_goal_split(s, &goal, &goals);
    if (count == 0) return shape_allows(s, &goal, value, list);
    for (size_t i = 0; i < count; i++)
        if (sh_goal_allows_of(s, goals[i], value, list)) return true;
    return false;
}

bool sh_goal_allows(sh_schema *s, sh_goal goal, const cJSON *value)
{
    return sh_goal_allows_of(s, goal, value, NULL);
}

/* ---- does nothing satisfy a goal? ---- */

static bool values_are_never(sh_schema *s, const sh_shape *shape)
{
    if (shape->value != NULL) return !sh_goal_allows(s, *shape->goal, shape->value);
    const cJSON *item;
    cJSON_ArrayForEach(item, shape->values)
    {
        if (sh_goal_allows_of(s, *shape->goal, item, shape->values)) return false;
    }
    return true;
}

static bool object_is_never(sh_schema *s, const sh_shape *shape)
{
    if (shape->min_properties > shape->max_properties) return true;
    for (size_t i = 0; i < shape->goal->count; i++) {
        const cJSON *item;
        cJSON_ArrayForEach(item, get(shape->goal->items[i].schema, "required"))
        {
            if (sh_goal_is_never(s, sh_shape_property(s, shape, item->valuestring))) return true;
        }
    }
    return false;
}

static bool array_is_never(sh_schema *s, const sh_shape *shape)
{
    size_t prefix = sh_shape_prefix(shape) + 1; /* and one of the rest */
    if (shape->min_items > shape->max_items) return true;
    for (size_t i = 0; i < prefix && i < shape->min_items; i++)
        if (sh_goal_is_never(s, sh_shape_item(s, shape, i))) return true;
    return false;
}

static bool numbers_are_never(sh_schema *s, const sh_shape *shape)
{
    const sh_lang *lang = sh_schema_numbers(s, shape);
    return lang != NULL && sh_lang_is_empty(lang);
}

static bool shape_is_never(sh_schema *s, const sh_goal *flat)
{
    sh_shape shape;
    sh_shape_init(s, flat, &shape);
    if (!sh_expr_ok(s->b)) return true;
    if (shape.value != NULL || shape.values != NULL) return values_are_never(s, &shape);
    unsigned types = shape.types;
    if ((types & (SH_TYPE_NULL | SH_TYPE_BOOL)) != 0) return false;
    if ((types & SH_TYPE_STRING) != 0 && (shape.string == NULL || !sh_lang_is_empty(shape.string)))
        return false;
    if ((types & SH_TYPE_NUMBER) != 0 && !numbers_are_never(s, &shape)) return false;
    if ((types & SH_TYPE_ARRAY) != 0 && !array_is_never(s, &shape)) return false;
    return (types & SH_TYPE_OBJECT) == 0 || object_is_never(s, &shape);
}

/* Nested deeper than any discriminator, the answer is no, which is the safe one. */
bool sh_goal_is_never(sh_schema *s, sh_goal goal)
{
    enum { NEVER_DEPTH_MAX = 24 };
    sh_goal *goals = NULL;
    if (goal.impossible || !sh_expr_spend(s->b, 100)) return true;
    if (s->never_depth >= NEVER_DEPTH_MAX) return false;
    s->never_depth++;
    bool never = true;
    if (sh_goal_flatten(s, &goal)) {
        size_t count = sh_goal_split(s, &goal, &goals);
        if (count == 0) never = shape_is_never(s, &goal);
        for (size_t i = 0; i < count && never; i++) never = sh_goal_is_never(s, goals[i]);
    }
    s->never_depth--;
    return never;
}
