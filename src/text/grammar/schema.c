/* JSON Schema: keywords, references, goals. */
#include "text/grammar/schema.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/hash.h"
#include "text/grammar/limits.h"

#include <stdlib.h>
#include <string.h>

enum { GOALS_MAX = 20000, GOAL_ITEMS_MAX = 200, INDENT_MAX = 40, TABS_MAX = 10 };

/* ---- errors ---- */

/* Appends the way from `from` to `node`; false if it is not below. */
static bool find_path(const cJSON *from, const cJSON *node, sh_buf *path)
{
    size_t index = 0, len = path->len;
    if (from == node) return true;
    for (const cJSON *child = from->child; child != NULL; child = child->next, index++) {
        sh_buf_add_char(path, '/');
        if (child->string == NULL) sh_buf_addf(path, "%zu", index);
        for (const char *c = child->string; c != NULL && *c != '\0'; c++) {
            if (*c == '~')
                sh_buf_add_text(path, "~0");
            else if (*c == '/')
                sh_buf_add_text(path, "~1");
            else
                sh_buf_add_char(path, *c);
        }
        if (find_path(child, node, path)) return true;
        path->len = len;
    }
    return false;
}

sh_expr sh_schema_fail(sh_schema *s, const cJSON *node, sh_status status, const char *what)
{
    sh_buf path = {0};
    sh_buf_add_text(&path, "");
    find_path(s->root, node, &path);
    path.ptr[path.len] = '\0';
    if (path.len > 200) memcpy(path.ptr + 197, "...", 4);
    sh_expr_fail(s->b, status, "%s: %s", path.len == 0 ? "/" : path.ptr, what);
    sh_buf_reset(&path);
    return SH_EXPR_AT_NEVER;
}

/* ---- keywords ---- */

typedef enum { ENFORCED, ANNOTATION, REFUSED } keyword_kind;

static const struct {
    const char *name;
    keyword_kind kind;
} keywords[] = {
    {"type", ENFORCED},
    {"enum", ENFORCED},
    {"const", ENFORCED},
    {"nullable", ENFORCED},
    {"anyOf", ENFORCED},
    {"oneOf", ENFORCED},
    {"allOf", ENFORCED},
    {"$ref", ENFORCED},
    {"properties", ENFORCED},
    {"patternProperties", ENFORCED},
    {"additionalProperties", ENFORCED},
    {"propertyNames", ENFORCED},
    {"required", ENFORCED},
    {"minProperties", ENFORCED},
    {"maxProperties", ENFORCED},
    {"items", ENFORCED},
    {"prefixItems", ENFORCED},
    {"additionalItems", ENFORCED},
    {"minItems", ENFORCED},
    {"maxItems", ENFORCED},
    {"uniqueItems", ENFORCED}, /* false; true is refused */
    {"minLength", ENFORCED},
    {"maxLength", ENFORCED},
    {"pattern", ENFORCED},
    {"format", ENFORCED},
    {"minimum", ENFORCED},
    {"maximum", ENFORCED},
    {"exclusiveMinimum", ENFORCED},
    {"exclusiveMaximum", ENFORCED},
    {"multipleOf", ENFORCED},
    {"$defs", ANNOTATION}, /* has no meaning of its own */
    {"definitions", ANNOTATION},
    {"$schema", ANNOTATION},
    {"$id", ANNOTATION},
    {"id", ANNOTATION},
    {"$anchor", ANNOTATION},
    {"$comment", ANNOTATION},
    {"$vocabulary", ANNOTATION},
    {"title", ANNOTATION},
    {"description", ANNOTATION},
    {"default", ANNOTATION},
    {"example", ANNOTATION},
    {"examples", ANNOTATION},
    {"deprecated", ANNOTATION},
    {"readOnly", ANNOTATION},
    {"writeOnly", ANNOTATION},
    {"contentEncoding", ANNOTATION},
    {"contentMediaType", ANNOTATION},
    {"discriminator", ANNOTATION}, /* names the property by which the members of oneOf differ */
    {"not", REFUSED},
    {"if", REFUSED},
    {"then", REFUSED},
    {"else", REFUSED},
    {"contains", REFUSED},
    {"minContains", REFUSED},
    {"maxContains", REFUSED},
    {"dependencies", REFUSED},
    {"dependentRequired", REFUSED},
    {"dependentSchemas", REFUSED},
    {"unevaluatedItems", REFUSED},
    {"unevaluatedProperties", REFUSED},
    {"contentSchema", REFUSED},
    {"$dynamicRef", REFUSED},
    {"$recursiveRef", REFUSED},
};

static bool check_keywords(sh_schema *s, const cJSON *schema)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, schema)
    {
        size_t i = 0;
        while (i < SH_COUNT_OF(keywords) && strcmp(keywords[i].name, item->string) != 0) i++;
        if (i == SH_COUNT_OF(keywords)) {
            if (strncmp(item->string, "x-", 2) == 0) continue;
            sh_schema_fail(s, item, SH_ERR_UNSUPPORTED, "unknown keyword");
        } else if (keywords[i].kind == REFUSED ||
                   (strcmp(item->string, "uniqueItems") == 0 && !cJSON_IsFalse(item)))
            sh_schema_fail(s, item, SH_ERR_UNSUPPORTED, "cannot be enforced");
    }
    return sh_expr_ok(s->b);
}

/* ---- references ---- */

/* Undoes %XX, ~1 and ~0 in one step of a pointer. */
static void decode_step(sh_str step, sh_buf *out)
{
    sh_buf_clear(out);
    sh_buf_add_text(out, "");
    for (size_t i = 0; i < step.len; i++) {
        char c = step.ptr[i];
        size_t at = i + 1;
        uint32_t code;
        if (c == '%' && sh_expr_read_hex(step, &at, 2, &code) && code != 0) {
            c = (char)code;
            i = at - 1;
        }
        sh_buf_add_char(out, c);
    }
    size_t kept = 0;
    for (size_t i = 0; i < out->len; i++) {
        char c = out->ptr[i];
        if (c == '~' && i + 1 < out->len && (out->ptr[i + 1] == '0' || out->ptr[i + 1] == '1'))
            c = out->ptr[++i] == '0' ? '~' : '/';
        out->ptr[kept++] = c;
    }
    out->ptr[out->len = kept] = '\0';
}

static const cJSON *follow_step(const cJSON *at, const char *step)
{
    int64_t index;
    if (!cJSON_IsArray(at)) return cJSON_GetObjectItemCaseSensitive(at, step);
    if (!sh_str_to_int(sh_str_of(step), &index) || index < 0 || index > INT32_MAX) return NULL;
    return cJSON_GetArrayItem(at, (int)index);
}

static const cJSON *follow_pointer(const cJSON *root, sh_str pointer)
{
    sh_buf step = {0};
    sh_str part;
    const cJSON *at = root;
    if (pointer.len > 0 && pointer.ptr[0] != '/') return NULL;
    if (pointer.len > 0) sh_str_cut(&pointer, '/', &part);
    while (at != NULL && sh_str_cut(&pointer, '/', &part)) {
        decode_step(part, &step);
        at = follow_step(at, step.ptr);
    }
    sh_buf_reset(&step);
    return at;
}

static const cJSON *find_anchor(const cJSON *at, const char *name)
{
    const cJSON *anchor = cJSON_GetObjectItemCaseSensitive(at, "$anchor");
    if (cJSON_IsString(anchor) && strcmp(anchor->valuestring, name) == 0) return at;
    for (const cJSON *child = at->child; child != NULL; child = child->next) {
        const cJSON *found = find_anchor(child, name);
        if (found != NULL) return found;
    }
    return NULL;
}

/* A reference may repeat the $id of the whole schema. */
const cJSON *sh_schema_resolve(sh_schema *s, const cJSON *ref)
{
    if (!cJSON_IsString(ref)) {
        sh_schema_fail(s, ref, SH_ERR_INPUT, "must be a string");
        return NULL;
    }
    const char *text = ref->valuestring;
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(s->root, "$id");
    if (cJSON_IsString(id)) {
        size_t len = strlen(id->valuestring);
        if (strncmp(text, id->valuestring, len) == 0 && (text[len] == '#' || text[len] == '\0'))
            text += len;
    }
    if (text[0] != '#' && text[0] != '\0') {
        sh_schema_fail(s, ref, SH_ERR_UNSUPPORTED, "refers to another document");
        return NULL;
    }
    if (text[0] == '#') text++;
    const cJSON *found = text[0] == '\0' || text[0] == '/'
                             ? follow_pointer(s->root, sh_str_of(text))
                             : find_anchor(s->root, text);
    if (found == NULL)
        sh_schema_fail(s, ref, SH_ERR_INPUT, "refers to something that is not there");
    return found;
}

/* ---- goals ---- */

/* Goals live in the arena; a longer one is a copy. */
void sh_goal_add(sh_schema *s, sh_goal *goal, const cJSON *schema)
{
    if (cJSON_IsTrue(schema) || !sh_expr_ok(s->b)) return;
    if (cJSON_IsFalse(schema)) {
        goal->impossible = true;
        return;
    }
    if (!cJSON_IsObject(schema)) {
        sh_schema_fail(s, schema, SH_ERR_INPUT, "a schema must be an object or a boolean");
        return;
    }
    for (size_t i = 0; i < goal->count; i++)
        if (goal->items[i].schema == schema) return;
    if (goal->count == GOAL_ITEMS_MAX) {
        sh_schema_fail(s, schema, SH_ERR_LIMIT, "too many schemas apply to one value");
        return;
    }
    sh_expr_spend(s->b, goal->count + 10);
    sh_goal_item *items = sh_arena_array(&s->b->arena, goal->count + 1, sizeof(*items));
    if (goal->count > 0) memcpy(items, goal->items, goal->count * sizeof(*items));
    items[goal->count++] = (sh_goal_item){.schema = schema};
    goal->items = items;
}

static void add_members(sh_schema *s, sh_goal *goal, const cJSON *list)
{
    const cJSON *item;
    if (!cJSON_IsArray(list) || list->child == NULL) {
        sh_schema_fail(s, list, SH_ERR_INPUT, "must be a list of schemas that is not empty");
        return;
    }
    cJSON_ArrayForEach(item, list)
    {
        sh_goal_add(s, goal, item);
    }
}

bool sh_goal_flatten(sh_schema *s, sh_goal *goal)
{
    /* The list grows while it is walked. */
    for (size_t i = 0; i < goal->count && sh_expr_ok(s->b); i++) {
        const cJSON *schema = goal->items[i].schema;
        if (!check_keywords(s, schema)) break;
        sh_schema_check_loops(s, schema);
        const cJSON *ref = cJSON_GetObjectItemCaseSensitive(schema, "$ref");
        const cJSON *all = cJSON_GetObjectItemCaseSensitive(schema, "allOf");
        const cJSON *target = ref == NULL ? NULL : sh_schema_resolve(s, ref);
        if (target != NULL) sh_goal_add(s, goal, target);
        if (all != NULL) add_members(s, goal, all);
    }
    return sh_expr_ok(s->b) && !goal->impossible;
}

/* Members of a oneOf exclude each other if no value can satisfy two of them. */
static void check_exclusive(sh_schema *s, const cJSON *list, const sh_goal *goals, size_t count)
{
    for (size_t i = 0; i < count && sh_expr_ok(s->b); i++) {
        for (size_t k = i + 1; k < count && sh_expr_ok(s->b); k++) {
            sh_goal both = goals[i];
            for (size_t n = 0; n < goals[k].count; n++)
                sh_goal_add(s, &both, goals[k].items[n].schema);
            both.impossible |= goals[k].impossible;
            if (both.impossible || sh_goal_is_never(s, both) || !sh_expr_ok(s->b)) continue;
            sh_schema_fail(
                s, list, SH_ERR_UNSUPPORTED,
                "cannot be enforced, since a value may satisfy two of its schemas; use anyOf");
        }
    }
}

static size_t split_by(sh_schema *s, const sh_goal *goal, size_t at, uintptr_t flag,
                       const cJSON *list, sh_goal **out)
{
    size_t count = 0;
    const cJSON *item;
    if (!cJSON_IsArray(list) || list->child == NULL) {
        sh_schema_fail(s, list, SH_ERR_INPUT, "must be a list of schemas that is not empty");
        return 0;
    }
    sh_goal *goals = sh_arena_array(&s->b->arena, (size_t)cJSON_GetArraySize(list), sizeof(*goals));
    cJSON_ArrayForEach(item, list)
    {
        sh_goal *g = &goals[count++];
        g->count = goal->count;
        g->items = sh_arena_array(&s->b->arena, goal->count, sizeof(*g->items));
        memcpy(g->items, goal->items, goal->count * sizeof(*g->items));
        g->items[at].chosen |= flag;
        sh_goal_add(s, g, item);
        if (!sh_expr_spend(s->b, goal->count + 10)) return 0;
    }
    if (flag == SH_CHOSEN_ONE_OF) check_exclusive(s, list, goals, count);
    *out = goals;
    return count;
}

size_t sh_goal_split(sh_schema *s, const sh_goal *goal, sh_goal **out)
{
    static const struct {
        const char *name;
        uintptr_t flag;
    } kinds[] = {{"anyOf", SH_CHOSEN_ANY_OF}, {"oneOf", SH_CHOSEN_ONE_OF}};
    for (size_t i = 0; i < goal->count; i++) {
        for (size_t k = 0; k < SH_COUNT_OF(kinds); k++) {
            const cJSON *list = cJSON_GetObjectItemCaseSensitive(goal->items[i].schema,
                                                                 kinds[k].name);
            if (list != NULL && (goal->items[i].chosen & kinds[k].flag) == 0)
                return split_by(s, goal, i, kinds[k].flag, list, out);
        }
    }
    return 0;
}

/* ---- values ---- */

typedef enum { CONSTANT_TRUE, CONSTANT_FALSE, CONSTANT_NULL } constant;

static sh_str constant_name(const sh_schema *s, constant which)
{
    static const sh_str names[][2] = {
        {{"true", 4}, {"True", 4}}, {{"false", 5}, {"False", 5}}, {{"null", 4}, {"None", 4}}};
    return names[which][s->form.python];
}

static constant constant_of(const cJSON *value)
{
    return cJSON_IsNull(value)   ? CONSTANT_NULL
           : cJSON_IsTrue(value) ? CONSTANT_TRUE
                                 : CONSTANT_FALSE;
}

/* Spells the constants within the value as the form has them. */
static void constants_spell(const sh_schema *s, cJSON *value)
{
    for (cJSON *item = value->child; item != NULL; item = item->next) constants_spell(s, item);
    if (!cJSON_IsBool(value) && !cJSON_IsNull(value)) return;
    sh_str name = constant_name(s, constant_of(value));
    value->valuestring = cJSON_malloc(name.len + 1);
    if (value->valuestring == NULL) return;
    memcpy(value->valuestring, name.ptr, name.len + 1);
    value->type = (value->type & ~0xff) | cJSON_Raw;
}

/* cJSON writes a number from its double; one that does not fit keeps its spelling. */
sh_expr sh_schema_literal(sh_schema *s, const cJSON *value)
{
    if (cJSON_IsNumber(value) && value->valuestring != NULL)
        return sh_expr_literal(s->b, sh_str_of(value->valuestring));
    cJSON *own = s->form.python ? cJSON_Duplicate(value, true) : NULL;
    if (own != NULL) constants_spell(s, own);
    char *text = cJSON_PrintUnformatted(own != NULL ? own : value);
    sh_expr e = text == NULL ? sh_expr_fail(s->b, SH_ERR_MEMORY, "out of memory")
                             : sh_expr_literal(s->b, sh_str_of(text));
    cJSON_free(text);
    cJSON_Delete(own);
    return e;
}

/* An enum or a const: each value that all schemas of the goal allow. */
static sh_expr compile_values(sh_schema *s, const sh_shape *shape)
{
    const cJSON *first = shape->value != NULL ? shape->value : shape->values->child;
    sh_expr *forms = sh_alloc_array((size_t)cJSON_GetArraySize(shape->values) + 1, sizeof(*forms));
    size_t count = 0;
    for (const cJSON *v = first; v != NULL; v = shape->value != NULL ? NULL : v->next)
        if (sh_goal_allows_of(s, *shape->goal, v, shape->values))
            forms[count++] = sh_schema_literal(s, v);
    sh_expr e = sh_expr_any_of(s->b, forms, count);
    free(forms);
    return e;
}

static sh_expr compile_shape(sh_schema *s, const sh_goal *goal)
{
    sh_shape shape;
    sh_expr forms[8];
    size_t count = 0;
    sh_shape_init(s, goal, &shape);
    if (!sh_expr_ok(s->b)) return SH_EXPR_AT_NEVER;
    if (shape.values != NULL || shape.value != NULL) return compile_values(s, &shape);
    unsigned types = shape.types;
    /* Without a type all others would be allowed as well, which nobody who writes "properties" or
     * "minLength" wants. */
    if (!shape.has_type && (types & shape.hinted) != 0) types &= shape.hinted;
    sh_grammar_builder *b = s->b;
    if (types & SH_TYPE_OBJECT) forms[count++] = sh_schema_object(s, &shape);
    if (types & SH_TYPE_ARRAY) forms[count++] = sh_schema_array(s, &shape);
    if (types & SH_TYPE_STRING)
        forms[count++] = sh_schema_quoted(s, shape.string != NULL ? shape.string : s->any_string);
    if (types & SH_TYPE_NUMBER)
        forms[count++] = sh_expr_lang(b, sh_schema_numbers(s, &shape), false);
    if (types & SH_TYPE_BOOL) {
        forms[count++] = sh_expr_literal(b, constant_name(s, CONSTANT_TRUE));
        forms[count++] = sh_expr_literal(b, constant_name(s, CONSTANT_FALSE));
    }
    if (types & SH_TYPE_NULL) forms[count++] = sh_expr_literal(b, constant_name(s, CONSTANT_NULL));
    return sh_expr_any_of(b, forms, count);
}

static sh_expr compile_body(sh_schema *s, sh_goal *goal)
{
    sh_goal *goals = NULL;
    if (!sh_goal_flatten(s, goal)) return SH_EXPR_AT_NEVER;
    size_t count = sh_goal_split(s, goal, &goals);
    if (count == 0) return compile_shape(s, goal);
    sh_expr *forms = sh_alloc_array(count, sizeof(*forms));
    for (size_t i = 0; i < count; i++) forms[i] = sh_schema_compile(s, goals[i]);
    sh_expr e = sh_expr_any_of(s->b, forms, count);
    free(forms);
    return e;
}

static uint64_t goal_hash(const sh_goal *goal)
{
    uint64_t hash = goal->count;
    for (size_t i = 0; i < goal->count; i++)
        hash = sh_mix64(hash ^ (uint64_t)(uintptr_t)goal->items[i].schema ^
                        (uint64_t)goal->items[i].chosen << 62);
    return hash;
}

static bool same_goal(const sh_goal *a, const sh_goal *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->items[i].schema != b->items[i].schema || a->items[i].chosen != b->items[i].chosen)
            return false;
    return true;
}

/* The rule of a goal; *known tells whether it was there before. */
static sh_expr goal_rule(sh_schema *s, const sh_goal *goal, bool *known)
{
    uint64_t hash = goal_hash(goal);
    sh_expr_spend(s->b, s->rule_count);
    for (size_t i = 0; i < s->rule_count; i++) {
        *known = s->rules[i].hash == hash && same_goal(&s->rules[i].goal, goal);
        if (*known) return s->rules[i].rule;
    }
    if (s->rule_count == s->rule_cap) {
        s->rule_cap = s->rule_cap == 0 ? 32 : s->rule_cap * 2;
        s->rules = sh_realloc_array(s->rules, s->rule_cap, sizeof(*s->rules));
    }
    sh_expr rule = sh_expr_rule(s->b, SH_STR("a schema"));
    s->rules[s->rule_count++] = (sh_goal_rule){*goal, hash, rule};
    *known = false;
    return rule;
}

sh_expr sh_schema_compile(sh_schema *s, sh_goal goal)
{
    bool known;
    if (goal.impossible || !sh_expr_ok(s->b)) return SH_EXPR_AT_NEVER;
    sh_expr rule = goal_rule(s, &goal, &known);
    if (known) return rule;
    if (s->rule_count > GOALS_MAX || s->depth >= SH_GRAMMAR_NEST_MAX)
        return sh_expr_fail(s->b, SH_ERR_LIMIT, "the schema is too large or nested too deep");
    s->depth++;
    sh_expr_define(s->b, rule, compile_body(s, &goal));
    s->depth--;
    return rule;
}

/* ---- the whole ---- */

static sh_expr repeated_char(sh_grammar_builder *b, uint32_t c, uint32_t max)
{
    sh_char_range range = {c, c};
    sh_expr one = sh_expr_class(b, &(sh_charset){.ranges = &range, .count = 1});
    return sh_expr_repeat(b, one, 0, max);
}

static void make_spaces(sh_schema *s)
{
    sh_grammar_builder *b = s->b;
    s->space = s->gap = SH_EXPR_AT_EMPTY;
    if (!s->form.spaces) return;
    sh_expr indents[] = {repeated_char(b, ' ', INDENT_MAX), repeated_char(b, '\t', TABS_MAX)};
    sh_expr line[] = {sh_expr_literal(b, SH_STR("\n")), sh_expr_any_of(b, indents, 2)};
    sh_expr forms[] = {sh_expr_literal(b, SH_STR(" ")), sh_expr_seq(b, line, 2)};
    s->space = sh_expr_optional(b, forms[0]);
    s->gap = sh_expr_named(b, "space", sh_expr_optional(b, sh_expr_any_of(b, forms, 2)));
}

void sh_schema_begin(sh_schema *s, sh_grammar_builder *b, const cJSON *schema, sh_json_form form,
                     sh_goal *goal)
{
    *s = (sh_schema){.b = b, .root = schema, .form = form, .any_string = sh_lang_any(b)};
    *goal = (sh_goal){0};
    make_spaces(s);
    sh_goal_add(s, goal, schema);
    if (!form.object) return;
    s->objects = cJSON_CreateObject();
    if (cJSON_AddStringToObject(s->objects, "type", "object") == NULL)
        sh_expr_fail(b, SH_ERR_MEMORY, "out of memory");
    sh_goal_add(s, goal, s->objects);
}

void sh_schema_end(sh_schema *s)
{
    free(s->rules);
    free(s->ended.items);
    cJSON_Delete(s->objects);
    cJSON_Delete(s->no_strings);
}

sh_expr sh_expr_json_schema(sh_grammar_builder *b, const cJSON *schema, sh_json_form form)
{
    sh_schema s;
    sh_goal goal;
    sh_schema_begin(&s, b, schema, form, &goal);
    sh_expr e = sh_schema_compile(&s, goal);
    sh_schema_end(&s);
    return e;
}

sh_expr sh_expr_json_object(sh_grammar_builder *b, sh_json_form form)
{
    cJSON *anything = cJSON_CreateObject();
    form.object = true;
    sh_expr e = sh_expr_json_schema(b, anything, form);
    cJSON_Delete(anything);
    return e;
}

sh_expr sh_expr_json_string(sh_grammar_builder *b, sh_str value)
{
    char *text = sh_str_dup(value);
    cJSON *item = cJSON_CreateString(text);
    sh_schema s = {.b = b};
    sh_expr e = sh_schema_literal(&s, item);
    cJSON_Delete(item);
    free(text);
    return e;
}
