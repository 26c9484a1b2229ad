/* The form of an output: what all dialects share, and those whose calls are between markers.
 *
 * A marker that is a special token of the tokenizer must come as that token, since text never
 * contains special tokens; any other is spelled out in whatever tokens make it up. Free text must
 * not contain a marker either way, or the parser would read it as one.
 *
 * Models differ in the white space around markers. The parser skips it, so a writing allows what
 * occurs in practice (%s). */
#include "text/output/output_form.h"

#include "base/alloc.h"
#include "text/grammar/expr.h"
#include "text/output/output_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPECIAL_LEN_MAX = 64, /* bytes of a special token within a marker */
    LINES_MAX = 2,        /* line breaks after the reasoning */
    NUMBER_DIGITS_MAX = 3,
    PIECES_MAX = 32,
};

/* ---- markers ---- */

/* The special token that the text starts with, and its length; -1: none. */
static int32_t special_at(const sh_tokenizer *tok, sh_str text, size_t *len)
{
    if (tok == NULL || (text.ptr[0] != '<' && text.ptr[0] != '[')) return -1;
    for (*len = text.len < SPECIAL_LEN_MAX ? text.len : SPECIAL_LEN_MAX; *len > 1; --*len) {
        int32_t id = sh_tokenizer_id(tok, sh_str_sub(text, 0, *len));
        if (id >= 0 && sh_tokenizer_is_special(tok, id)) return id;
    }
    return -1;
}

static sh_expr number(sh_grammar_builder *b)
{
    sh_expr digit = sh_expr_regex(b, SH_STR("[0-9]"));
    return sh_expr_repeat(b, digit, 1, NUMBER_DIGITS_MAX);
}

/* What the text starts with that is not spelled out; false if it is. */
static bool piece_at(output_form *f, sh_str text, sh_expr *piece, size_t *len)
{
    static const sh_str spaces[] = {{" ", 1}, {"\n", 1}};
    *len = 2;
    if (sh_str_starts(text, SH_STR("%s")))
        *piece = sh_expr_optional(f->b, sh_expr_choice(f->b, spaces, SH_COUNT_OF(spaces)));
    else if (sh_str_starts(text, SH_STR("%d")))
        *piece = number(f->b);
    else {
        int32_t id = special_at(f->form->tokenizer, text, len);
        if (id < 0) return false;
        *piece = sh_expr_token(f->b, id);
    }
    return true;
}

sh_expr output_form_marks(output_form *f, const char *text)
{
    sh_str rest = sh_str_of(text == NULL ? "" : text);
    sh_expr pieces[PIECES_MAX], piece;
    size_t count = 0, plain = 0, len;
    while (plain < rest.len) {
        SH_ASSERT(count + 3 < PIECES_MAX);
        if (!piece_at(f, sh_str_sub(rest, plain, rest.len), &piece, &len)) {
            plain++;
            continue;
        }
        pieces[count++] = sh_expr_literal(f->b, sh_str_sub(rest, 0, plain));
        pieces[count++] = piece;
        rest = sh_str_sub(rest, plain + len, rest.len);
        plain = 0;
    }
    pieces[count++] = sh_expr_literal(f->b, rest);
    return sh_expr_seq(f->b, pieces, count);
}

/* ---- arguments ---- */

static const cJSON *function_of(const cJSON *tool)
{
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    return function != NULL ? function : tool;
}

static const char *name_of(const cJSON *tool)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function_of(tool), "name"));
}

/* The types that the parser gives to values between tags, as the grammar wants to know them; see
 * send_value() in tags.c. */
typedef struct {
    const cJSON *function;
    char pattern[256];
} tag_types;

static sh_tag_value tag_value(void *arg, const char *name)
{
    static const struct {
        unsigned type;
        const char *pattern;
    } looks[] = {{OUTPUT_TYPE_NULL, "null"},
                 {OUTPUT_TYPE_BOOLEAN, "true|false"},
                 {OUTPUT_TYPE_NUMBER, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?"},
                 {OUTPUT_TYPE_OBJECT, "\\{[\\s\\S]*"},
                 {OUTPUT_TYPE_ARRAY, "\\[[\\s\\S]*"}};
    tag_types *t = arg;
    unsigned types = name == NULL ? OUTPUT_TYPE_ANY : output_parameter_types(t->function, name);
    if (types == OUTPUT_TYPE_STRING) return (sh_tag_value){.bare = true};
    if (types == OUTPUT_TYPE_ANY || (types & OUTPUT_TYPE_STRING) == 0)
        return (sh_tag_value){.json = true};
    int len = snprintf(t->pattern, sizeof(t->pattern), "\\s*(");
    const char *bar = "";
    for (size_t i = 0; i < SH_COUNT_OF(looks); i++) {
        if ((types & looks[i].type) == 0) continue;
        len += snprintf(t->pattern + len, sizeof(t->pattern) - (size_t)len, "%s%s", bar,
                        looks[i].pattern);
        bar = "|";
    }
    len += snprintf(t->pattern + len, sizeof(t->pattern) - (size_t)len, ")\\s*");
    SH_ASSERT((size_t)len < sizeof(t->pattern));
    return (sh_tag_value){.json = true, .bare = true, .not_bare = {t->pattern, (size_t)len}};
}

static sh_expr tagged_args(output_form *f, const cJSON *function, const cJSON *schema)
{
    const output_tags *tags = f->tools->tags;
    const char *stop = tags->value_end[1] != NULL ? tags->value_end[1] : tags->value_end[0];
    tag_types types = {.function = function};
    sh_tag_form form = {.key = output_form_marks(f, tags->write_key),
                        .middle = output_form_marks(f, tags->write_value),
                        .end = output_form_marks(f, tags->write_end),
                        .between = sh_expr_literal(f->b, SH_STR("")),
                        .stop = sh_str_of(stop),
                        .not_in_names = "<>",
                        .value = tag_value,
                        .arg = &types};
    return sh_expr_tagged_object(f->b, schema, &form);
}

static sh_tag_value python_value(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return (sh_tag_value){.json = true};
}

static sh_expr python_args(output_form *f, const cJSON *schema)
{
    sh_expr empty = sh_expr_literal(f->b, SH_STR(""));
    sh_tag_form form = {.key = empty,
                        .middle = sh_expr_literal(f->b, SH_STR("=")),
                        .end = empty,
                        .between = sh_expr_literal(f->b, SH_STR(", ")),
                        .not_in_names = OUTPUT_NOT_IN_NAMES " ",
                        .python = true,
                        .value = python_value};
    return sh_expr_tagged_object(f->b, schema, &form);
}

/* A function without parameters takes none. The arguments of a tool that need not follow the schema
 * are any object. */
static sh_expr make_args(output_form *f, const cJSON *tool)
{
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    const cJSON *function = function_of(tool);
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    bool strict = f->form->strict ||
                  cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict"));
    cJSON *own = NULL;
    if (!strict || !cJSON_IsObject(schema)) schema = own = cJSON_Parse(strict ? none : "{}");
    sh_expr e = f->tools->tags != NULL ? tagged_args(f, function, schema)
                : f->tools->python
                    ? python_args(f, schema)
                    : sh_expr_json_schema(f->b, schema,
                                          (sh_json_form){.spaces = true, .object = true});
    cJSON_Delete(own);
    return e;
}

static void make_all_args(output_form *f, int *bad_tool)
{
    int count = 0;
    f->args = sh_alloc_array((size_t)cJSON_GetArraySize(f->form->tools), sizeof(*f->args));
    for (const cJSON *tool = f->form->tools->child; tool != NULL; tool = tool->next) {
        bool fine = sh_grammar_builder_ok(f->b);
        f->args[count] = make_args(f, tool);
        if (fine && !sh_grammar_builder_ok(f->b)) *bad_tool = count;
        count++;
    }
}

/* ---- calls ---- */

sh_expr output_form_call(output_form *f, const output_writing *w)
{
    int count = cJSON_GetArraySize(f->form->tools), i = 0;
    sh_expr *forms = sh_alloc_array((size_t)count, sizeof(*forms));
    sh_expr middle = output_form_marks(f, w->middle), tail = output_form_marks(f, w->tail);
    for (const cJSON *tool = f->form->tools->child; tool != NULL; tool = tool->next, i++) {
        sh_expr name = sh_expr_literal(f->b, sh_str_of(name_of(tool)));
        forms[i] = sh_expr_seq(f->b, (sh_expr[]){name, middle, f->args[i], tail}, 4);
    }
    sh_expr any = sh_expr_any_of(f->b, forms, (size_t)count);
    free(forms);
    return sh_expr_seq(f->b, (sh_expr[]){output_form_marks(f, w->lead), any}, 2);
}

sh_expr output_form_list(output_form *f, sh_expr call, const char *between)
{
    if (f->form->one_call) return call;
    sh_expr rule = sh_expr_named(f->b, "call", call);
    sh_expr next[] = {output_form_marks(f, between), rule};
    sh_expr more = sh_expr_repeat(f->b, sh_expr_seq(f->b, next, 2), 0, SH_EXPR_UNLIMITED);
    return sh_expr_seq(f->b, (sh_expr[]){rule, more}, 2);
}

static sh_expr make_calls(output_form *f)
{
    sh_expr forms[OUTPUT_WRITINGS_MAX];
    size_t count = 0;
    for (; count < OUTPUT_WRITINGS_MAX && f->tools->writings[count].lead != NULL; count++) {
        const output_writing *w = &f->tools->writings[count];
        sh_expr list[] = {output_form_marks(f, w->begin),
                          output_form_list(f, output_form_call(f, w), w->between),
                          output_form_marks(f, w->end)};
        forms[count] = sh_expr_seq(f->b, list, 3);
    }
    return sh_expr_any_of(f->b, forms, count);
}

/* ---- text ---- */

/* Text without the markers of calls. Where calls need no markers, what begins like one is one. */
static sh_expr free_text(output_form *f)
{
    const sh_output_tools *t = f->tools;
    sh_str marks[2];
    size_t count = 0;
    if (t->section != NULL) marks[count++] = sh_str_of(t->section);
    if (t->open != NULL) marks[count++] = sh_str_of(t->open);
    const sh_lang *lang = sh_lang_before_first(f->b, marks, count, false);
    if (t->bare != NULL) {
        char pattern[32];
        snprintf(pattern, sizeof(pattern), "\\s*\\%c[\\s\\S]*", t->bare[0]);
        lang = sh_lang_subtract(f->b, lang, sh_lang_regex(f->b, sh_str_of(pattern), true));
    }
    return sh_expr_lang(f->b, lang, false);
}

/* Free text and calls after it; calls without markers are calls only where the text starts. */
static sh_expr text_or_calls(output_form *f)
{
    sh_expr text = free_text(f), calls = make_calls(f);
    if (f->tools->bare != NULL) return sh_expr_any_of(f->b, (sh_expr[]){text, calls}, 2);
    return sh_expr_seq(f->b, (sh_expr[]){text, sh_expr_optional(f->b, calls)}, 2);
}

static sh_expr make_answer(output_form *f)
{
    const sh_output_form *form = f->form;
    switch (form->calls) {
    case SH_OUTPUT_CALLS_MUST: return make_calls(f);
    case SH_OUTPUT_CALLS_NONE: break;
    case SH_OUTPUT_CALLS_MAY:
        if (form->content == NULL) return text_or_calls(f);
        return sh_expr_any_of(f->b, (sh_expr[]){*form->content, make_calls(f)}, 2);
    }
    return form->content != NULL ? *form->content : sh_expr_text(f->b);
}

/* Up to the closing marker and the line breaks after it, which are no part of the answer. The
 * markers of calls end the reasoning in some dialects, so it must not contain them. */
static sh_expr make_reasoning(output_form *f)
{
    const sh_output_reasoning *r = f->form->dialect.reasoning;
    const sh_output_tools *t = f->form->dialect.tools;
    sh_str marks[3];
    size_t count = 0;
    marks[count++] = sh_str_of(r->close);
    if (t != NULL && t->ends_reasoning && t->section != NULL)
        marks[count++] = sh_str_of(t->section);
    if (t != NULL && t->ends_reasoning && t->open != NULL) marks[count++] = sh_str_of(t->open);
    sh_expr lines = sh_expr_repeat(f->b, sh_expr_literal(f->b, SH_STR("\n")), 0, LINES_MAX);
    sh_expr inside[] = {sh_expr_text_without(f->b, marks, count), output_form_marks(f, r->close),
                        lines};
    sh_expr rest = sh_expr_seq(f->b, inside, 3);
    if (f->form->in_reasoning) return rest;
    return sh_expr_optional(f->b,
                            sh_expr_seq(f->b, (sh_expr[]){output_form_marks(f, r->open), rest}, 2));
}

sh_expr sh_output_form_expr(sh_grammar_builder *b, const sh_output_form *form, int *bad_tool)
{
    const sh_output_reasoning *r = form->dialect.reasoning;
    output_form f = {.b = b, .form = form, .tools = form->dialect.tools};
    sh_expr e;
    if (form->calls != SH_OUTPUT_CALLS_NONE) make_all_args(&f, bad_tool);
    if ((r != NULL && r->channels) || (f.tools != NULL && f.tools->channels))
        e = output_harmony_form(&f);
    else if (r != NULL && form->may_reason)
        e = sh_expr_seq(b, (sh_expr[]){make_reasoning(&f), make_answer(&f)}, 2);
    else
        e = make_answer(&f);
    free(f.args);
    return e;
}
