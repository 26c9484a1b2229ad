/* From the fields of a request to a packed grammar.
 *
 * tool_choice decides about calls: with `required` or a named function the answer is calls and
 * nothing else. With `auto` calls are constrained if a tool is strict, or if the content has a
 * form, since then the grammar has to cover all that the model may write. */
#include "api/form.h"

#include "base/alloc.h"
#include "text/grammar/pack.h"
#include "text/output/output_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool any_strict(const cJSON *tools)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools)
    {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict"))) return true;
    }
    return false;
}

bool sh_form_requires_call(const sh_job_spec *spec)
{
    return spec->tool_choice == SH_TOOLS_REQUIRED || spec->tool_choice == SH_TOOLS_NAMED;
}

/* A model whose call syntax is not known cannot call anything. */
static sh_output_call_rule call_rule(const sh_served_model *model, const sh_job_spec *spec)
{
    const sh_output_dialect *dialect = sh_model_text_dialect(sh_served_model_text(model));
    if (spec->tools == NULL || dialect->tools == NULL) return SH_OUTPUT_CALLS_NONE;
    if (sh_form_requires_call(spec)) return SH_OUTPUT_CALLS_MUST;
    bool bound = spec->form.kind != SH_FORM_FREE || any_strict(spec->tools);
    return bound ? SH_OUTPUT_CALLS_MAY : SH_OUTPUT_CALLS_NONE;
}

bool sh_form_is_needed(const sh_served_model *model, const sh_job_spec *spec)
{
    return spec->form.kind != SH_FORM_FREE || call_rule(model, spec) != SH_OUTPUT_CALLS_NONE;
}

bool sh_form_check(const sh_served_model *model, const sh_job_spec *spec, sh_api_error *err)
{
    if (sh_form_requires_call(spec) && call_rule(model, spec) == SH_OUTPUT_CALLS_NONE)
        return sh_api_fail(err, 400, "unsupported_value", "tool_choice",
                           "'tool_choice' cannot force the model '%s' to call a function: its call "
                           "format is not known (set --tool-parser)",
                           sh_served_model_name(model));
    if (spec->ignore_eos && sh_form_is_needed(model, spec))
        return sh_api_fail(err, 400, "invalid_value", "ignore_eos",
                           "'ignore_eos' cannot be combined with a form of the answer ('%s'), "
                           "which says where it ends",
                           spec->form.field != NULL ? spec->form.field : "tools");
    return true;
}

/* ---- cache ---- */

/* Appends everything that makes a difference; a number is its spelling where that is kept. */
static void json_add(sh_buf *out, const cJSON *item)
{
    sh_buf_addf(out, "%d:", item == NULL ? -1 : item->type & 0xff);
    if (item == NULL) return;
    if (item->string != NULL) sh_buf_addf(out, "%zu:%s", strlen(item->string), item->string);
    if (item->valuestring != NULL)
        sh_buf_addf(out, "%zu:%s", strlen(item->valuestring), item->valuestring);
    else if (cJSON_IsNumber(item))
        sh_buf_add(out, &item->valuedouble, sizeof(item->valuedouble));
    for (const cJSON *child = item->child; child != NULL; child = child->next) json_add(out, child);
    sh_buf_add_char(out, '.');
}

static sh_key128 key_of(const sh_served_model *model, const sh_job_spec *spec,
                        const sh_tokens *prompt)
{
    const sh_form *form = &spec->form;
    sh_output_call_rule calls = call_rule(model, spec);
    sh_buf source = {0};
    sh_buf_addf(&source, "%d,%d,%d,%d,%d,%d,%d,", spec->chat, prompt->in_reasoning,
                prompt->may_reason, (int)form->kind, (int)calls, (int)spec->tool_choice,
                spec->parallel_calls);
    json_add(&source, form->text.len > 0 ? NULL : form->json);
    sh_buf_add_str(&source, form->text);
    json_add(&source, calls == SH_OUTPUT_CALLS_NONE ? NULL : spec->tools);
    sh_key128 key = sh_form_cache_key(sh_served_model_forms(model), sh_buf_str(&source));
    sh_buf_reset(&source);
    return key;
}

bool sh_form_find(const sh_served_model *model, const sh_job_spec *spec, const sh_tokens *prompt,
                  sh_buf *out)
{
    sh_key128 key = key_of(model, spec, prompt);
    return sh_form_cache_get(sh_served_model_forms(model), key, out);
}

/* ---- compilation ---- */

static sh_expr choice_expr(sh_grammar_builder *b, const cJSON *list)
{
    size_t count = 0;
    sh_str *choices = sh_alloc_array((size_t)cJSON_GetArraySize(list), sizeof(*choices));
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        choices[count++] = sh_str_of(item->valuestring);
    sh_expr e = sh_expr_choice(b, choices, count);
    free(choices);
    return e;
}

static sh_expr content_expr(sh_grammar_builder *b, const sh_form *form)
{
    sh_json_form json = {.spaces = true};
    switch (form->kind) {
    case SH_FORM_JSON_OBJECT: return sh_expr_json_object(b, json);
    case SH_FORM_JSON_SCHEMA: return sh_expr_json_schema(b, form->json, json);
    case SH_FORM_REGEX: return sh_expr_regex(b, form->text);
    case SH_FORM_CHOICE: return choice_expr(b, form->json);
    case SH_FORM_GRAMMAR: return sh_expr_gbnf(b, form->text);
    case SH_FORM_FREE: break;
    }
    return sh_expr_text(b);
}

static sh_expr answer_expr(const sh_served_model *model, const sh_job_spec *spec,
                           const sh_tokens *prompt, sh_grammar_builder *b, int *bad_tool)
{
    const sh_model_text *text = sh_served_model_text(model);
    sh_expr content = content_expr(b, &spec->form);
    if (!spec->chat || !sh_grammar_builder_ok(b)) return content;
    sh_output_form form = {
        .dialect = *sh_model_text_dialect(text),
        .tokenizer = sh_model_text_tokenizer(text),
        .in_reasoning = prompt->in_reasoning,
        .may_reason = prompt->may_reason,
        .calls = call_rule(model, spec),
        .tools = spec->tools,
        .strict = sh_form_requires_call(spec),
        .one_call = !spec->parallel_calls || spec->tool_choice == SH_TOOLS_NAMED,
        .content = spec->form.kind == SH_FORM_FREE ? NULL : &content,
    };
    return sh_output_form_expr(b, &form, bad_tool);
}

/* Says which field is to blame. */
static bool fail(const sh_job_spec *spec, int bad_tool, const sh_err *why, sh_api_error *err)
{
    char field[96];
    const char *code = why->status == SH_ERR_UNSUPPORTED ? "unsupported_value" : "invalid_value";
    if (why->status != SH_ERR_INPUT && why->status != SH_ERR_UNSUPPORTED &&
        why->status != SH_ERR_LIMIT) {
        *err = sh_api_error_of(why, false);
        return false;
    }
    if (bad_tool >= 0)
        snprintf(field, sizeof(field), "tools[%d].%s", bad_tool,
                 spec->parameters_field == NULL ? "function.parameters" : spec->parameters_field);
    else
        snprintf(field, sizeof(field), "%s",
                 spec->form.kind != SH_FORM_FREE ? spec->form.field : "tools");
    return sh_api_fail(err, 400, code, field, "'%s': %s", field, why->text);
}

bool sh_form_compile(const sh_served_model *model, const sh_job_spec *spec, const sh_tokens *prompt,
                     sh_buf *out, sh_api_error *err)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_grammar *grammar = NULL;
    int bad_tool = -1;
    sh_err why;
    sh_expr answer = answer_expr(model, spec, prompt, b, &bad_tool);
    sh_status status = sh_grammar_compile(b, answer, &grammar, &why);
    sh_grammar_builder_free(b);
    if (status != SH_OK) return fail(spec, bad_tool, &why, err);
    sh_grammar_pack(grammar, out);
    sh_grammar_free(grammar);
    if (out->len > SH_GRAMMAR_PACKED_MAX) {
        sh_err_set(&why, SH_ERR_LIMIT, "the grammar takes %zu bytes; %d are allowed", out->len,
                   SH_GRAMMAR_PACKED_MAX);
        return fail(spec, -1, &why, err);
    }
    sh_form_cache_put(sh_served_model_forms(model), key_of(model, spec, prompt), sh_buf_str(out));
    return true;
}
