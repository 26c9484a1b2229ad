/* Arrays of a schema. */
#include "text/grammar/schema.h"

static sh_expr separated(sh_schema *s, sh_expr item)
{
    sh_expr parts[] = {sh_expr_literal(s->b, SH_STR(",")), s->gap, item};
    return sh_expr_seq(s->b, parts, 3);
}

static uint32_t minus(uint32_t x, uint32_t y)
{
    if (x == SH_EXPR_UNLIMITED) return x;
    return x > y ? x - y : 0;
}

/* Items from `first` on, of which all have the goal of the rest, after `first` others. */
static sh_expr rest_items(sh_schema *s, const sh_shape *shape, uint32_t first)
{
    sh_expr item = sh_schema_compile(s, sh_shape_item(s, shape, first));
    uint32_t min = minus(shape->min_items, first), max = minus(shape->max_items, first);
    if (first > 0) return sh_expr_repeat(s->b, separated(s, item), min, max);
    if (max == 0) return SH_EXPR_AT_EMPTY;
    sh_expr more = sh_expr_repeat(s->b, separated(s, item), minus(min, 1), minus(max, 1));
    sh_expr list = sh_expr_seq(s->b, (sh_expr[]){s->gap, item, more}, 3);
    return min == 0 ? sh_expr_optional(s->b, list) : list;
}

/* From the last to the first, since a list that may end after an item makes all later ones
 * optional together. Each is a rule, so that long prefixes are not deep expressions. */
static sh_expr items(sh_schema *s, const sh_shape *shape)
{
    uint32_t prefix = (uint32_t)sh_shape_prefix(shape);
    if (prefix > shape->max_items) prefix = shape->max_items;
    sh_expr tail = rest_items(s, shape, prefix);
    for (uint32_t i = prefix; i-- > 0;) {
        sh_expr item = sh_schema_compile(s, sh_shape_item(s, shape, i));
        sh_expr parts[] = {i == 0 ? s->gap : SH_EXPR_AT_EMPTY, i == 0 ? item : separated(s, item),
                           tail};
        tail = sh_expr_seq(s->b, parts, 3);
        if (i >= shape->min_items) tail = sh_expr_optional(s->b, tail);
        if (i > 0) tail = sh_expr_named(s->b, "items", tail);
    }
    return tail;
}

sh_expr sh_schema_array(sh_schema *s, const sh_shape *shape)
{
    if (shape->min_items > shape->max_items) return SH_EXPR_AT_NEVER;
    sh_expr parts[] = {sh_expr_literal(s->b, SH_STR("[")), items(s, shape), s->gap,
                       sh_expr_literal(s->b, SH_STR("]"))};
    return sh_expr_seq(s->b, parts, 4);
}
