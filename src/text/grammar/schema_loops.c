/* Schemas that lead back to themselves by $ref, allOf, anyOf or oneOf alone: such a schema says
 * nothing, and validators do not end on it. One that does so by way of a property or an item is
 * fine. */
#include "text/grammar/schema.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "text/grammar/limits.h"

#include <stdlib.h>

/* The schemas on the way from the first one. */
typedef struct way {
    const struct way *before;
    const cJSON *schema;
    int depth;
} way;

static size_t slot_of(const sh_schema_set *set, const cJSON *schema)
{
    size_t at = (size_t)sh_mix64((uint64_t)(uintptr_t)schema) & (set->cap - 1);
    while (set->items[at] != NULL && set->items[at] != schema) at = (at + 1) & (set->cap - 1);
    return at;
}

static bool has(const sh_schema_set *set, const cJSON *schema)
{
    return set->cap > 0 && set->items[slot_of(set, schema)] != NULL;
}

static void add(sh_schema_set *set, const cJSON *schema)
{
    if (set->count * 2 >= set->cap) {
        sh_schema_set larger = {.count = set->count, .cap = set->cap == 0 ? 64 : set->cap * 2};
        larger.items = sh_alloc_array(larger.cap, sizeof(*larger.items));
        for (size_t i = 0; i < set->cap; i++)
            if (set->items[i] != NULL)
                larger.items[slot_of(&larger, set->items[i])] = set->items[i];
        free(set->items);
        *set = larger;
    }
    set->items[slot_of(set, schema)] = schema;
    set->count++;
}

static void go(sh_schema *s, const cJSON *schema, const cJSON *by, const way *before)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    way here = {before, schema, before == NULL ? 0 : before->depth + 1};
    if (!cJSON_IsObject(schema) || has(&s->ended, schema) || !sh_expr_spend(s->b, 10)) return;
    for (const way *w = before; w != NULL; w = w->before)
        if (w->schema == schema) {
            sh_schema_fail(s, by, SH_ERR_INPUT,
                           "leads back to itself without a property or an item in between");
            return;
        }
    if (here.depth >= SH_GRAMMAR_NEST_MAX) {
        sh_schema_fail(s, by, SH_ERR_LIMIT, "too many references and alternatives in a row");
        return;
    }
    const cJSON *ref = cJSON_GetObjectItemCaseSensitive(schema, "$ref"), *item;
    const cJSON *target = ref == NULL ? NULL : sh_schema_resolve(s, ref);
    if (target != NULL) go(s, target, ref, &here);
    for (size_t i = 0; i < SH_COUNT_OF(lists) && sh_expr_ok(s->b); i++)
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(schema, lists[i]))
        {
            go(s, item, item, &here);
        }
    if (sh_expr_ok(s->b)) add(&s->ended, schema);
}

void sh_schema_check_loops(sh_schema *s, const cJSON *schema)
{
    go(s, schema, schema, NULL);
}
