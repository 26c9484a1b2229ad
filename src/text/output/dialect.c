/* The dialects, as tables.
 *
 * Nothing in a model's folder names its dialect, but its chat template has to reproduce earlier
 * reasoning and calls, so it contains the markers: the first row with a marker in the template
 * wins. The order of the rows therefore matters. A row whose markers include those of another row
 * must come before it: glm and qwen3_coder also use <tool_call>, so they come before hermes.
 *
 * A new dialect is a row if its calls fit one of the bodies of call.c, tags.c or python.c; only a
 * different way to write name and id needs a function here. The row also says how its calls are
 * written, for form.c, which makes a grammar of it. */
#include "text/output/output.h"

#include "text/output/output_internal.h"

#include <string.h>

static const sh_output_reasoning reasonings[] = {
    {.name = "harmony", .detect = {"<|channel|>"}, .channels = true},
    {.name = "longcat",
     .open = "<longcat_think>",
     .close = "</longcat_think>",
     .detect = {"<longcat_think>"}},
    {.name = "gemma", .open = "<|channel>thought", .close = "<channel|>", .detect = {"<|channel>"}},
    {.name = "mistral", .open = "[THINK]", .close = "[/THINK]", .detect = {"[THINK]"}},
    {.name = "think", .open = "<think>", .close = "</think>", .detect = {"<think>", "</think>"}},
};

static const output_tags glm_tags = {
    .name_end = '<',
    .key = "<arg_key>",
    .key_end = "</arg_key>",
    .value = "<arg_value>",
    .value_end = {"</arg_value>"},
    .write_key = "<arg_key>",
    .write_value = "</arg_key>%s<arg_value>",
    .write_end = "</arg_value>%s",
};

static const output_tags longcat_tags = {
    .name_end = '<',
    .key = "<longcat_arg_key>",
    .key_end = "</longcat_arg_key>",
    .value = "<longcat_arg_value>",
    .value_end = {"</longcat_arg_value>"},
    .write_key = "<longcat_arg_key>",
    .write_value = "</longcat_arg_key>%s<longcat_arg_value>",
    .write_end = "</longcat_arg_value>%s",
};

static const output_tags qwen_tags = {
    .name_end = '>',
    .key = "<parameter=",
    .key_end = ">",
    .value_end = {"\n</parameter>", "</parameter>"},
    .write_key = "<parameter=",
    .write_value = ">\n",
    .write_end = "\n</parameter>\n",
};

/* Splits at `mark` and trims both sides; false if the mark is not in the text. */
static bool cut_at(sh_str text, sh_str mark, sh_str *part, sh_str *rest)
{
    size_t at = sh_str_find(text, mark, 0);
    if (at == text.len) return false;
    *part = sh_str_trim(sh_str_sub(text, 0, at));
    *rest = sh_str_trim(sh_str_sub(text, at + mark.len, text.len));
    return true;
}

/* "function<sep>NAME\n```json\n" or, since V3.1, "NAME<sep>". */
static bool deepseek_head(sh_str head, sh_str *name, sh_str *id)
{
    sh_str fence = SH_STR("```json"), rest;

    (void)id;
    if (!cut_at(head, SH_STR("<｜tool▁sep｜>"), name, &rest)) return false;
    if (rest.len == 0) return true;
    if (!sh_str_is(*name, "function") || !sh_str_ends(rest, fence)) return false;
    *name = sh_str_trim(sh_str_sub(rest, 0, rest.len - fence.len));
    return true;
}

/* "functions.NAME:INDEX<mark>"; the template expects this whole word back as the call's id. */
static bool kimi_head(sh_str head, sh_str *name, sh_str *id)
{
    sh_str functions = SH_STR("functions."), rest;

    if (!cut_at(head, SH_STR("<|tool_call_argument_begin|>"), id, &rest)) return false;
    *name = *id;
    if (sh_str_starts(*name, functions)) *name = sh_str_sub(*name, functions.len, name->len);
    size_t end = name->len;
    while (end > 0 && name->ptr[end - 1] >= '0' && name->ptr[end - 1] <= '9') end--;
    if (end > 0 && name->ptr[end - 1] == ':') name->len = end - 1;
    return rest.len == 0;
}

/* "NAME", "NAME[ARGS]" or "NAME[CALL_ID]ID[ARGS]". */
static bool mistral_head(sh_str head, sh_str *name, sh_str *id)
{
    sh_str rest = {0};

    *name = sh_str_trim(head);
    if (cut_at(*name, SH_STR("[ARGS]"), name, &rest) && rest.len > 0) return false;
    (void)cut_at(*name, SH_STR("[CALL_ID]"), name, id);
    return true;
}

static const sh_output_tools tool_forms[] = {
    {.name = "harmony",
     .close = {"<|call|>", "<|end|>", "<|return|>"},
     .detect = {"<|channel|>"},
     .writings = {{.lead = "<|channel|>commentary to=functions.",
                   .middle = " <|constrain|>json<|message|>",
                   .between = "<|end|><|start|>assistant"}},
     .channels = true},
    {.name = "kimi_k2",
     .section = "<|tool_calls_section_begin|>",
     .open = "<|tool_call_begin|>",
     .close = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .detect = {"<|tool_calls_section_begin|>"},
     .writings = {{.begin = "<|tool_calls_section_begin|>",
                   .lead = "<|tool_call_begin|>functions.",
                   .middle = ":%d<|tool_call_argument_begin|>",
                   .tail = "<|tool_call_end|>",
                   .end = "<|tool_calls_section_end|>"}},
     .body = output_step_head,
     .head = kimi_head,
     .ends_reasoning = true},
    {.name = "deepseek",
     .section = "<｜tool▁calls▁begin｜>",
     .open = "<｜tool▁call▁begin｜>",
     .close = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
     .detect = {"<｜tool▁calls▁begin｜>"},
     .writings = {{.begin = "<｜tool▁calls▁begin｜>",
                   .lead = "<｜tool▁call▁begin｜>",
                   .middle = "<｜tool▁sep｜>",
                   .tail = "<｜tool▁call▁end｜>",
                   .end = "<｜tool▁calls▁end｜>"},
                  {.begin = "<｜tool▁calls▁begin｜>",
                   .lead = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                   .middle = "\n```json\n",
                   .tail = "\n```<｜tool▁call▁end｜>",
                   .between = "%s",
                   .end = "<｜tool▁calls▁end｜>"}},
     .body = output_step_head,
     .head = deepseek_head,
     .ends_reasoning = true},
    {.name = "longcat",
     .open = "<longcat_tool_call>",
     .close = {"</longcat_tool_call>"},
     .detect = {"<longcat_tool_call>"},
     .writings = {{.lead = "<longcat_tool_call>",
                   .middle = "%s",
                   .tail = "</longcat_tool_call>",
                   .between = "%s"}},
     .body = output_step_tags,
     .tags = &longcat_tags},
    {.name = "glm",
     .open = "<tool_call>",
     .close = {"</tool_call>"},
     .detect = {"<arg_key>"},
     .writings = {{.lead = "<tool_call>", .middle = "%s", .tail = "</tool_call>", .between = "%s"}},
     .body = output_step_tags,
     .tags = &glm_tags},
    {.name = "qwen3_coder",
     .section = "<tool_call>",
     .open = "<function=",
     .close = {"</function>", "</tool_call>"},
     .detect = {"<parameter="},
     .writings = {{.lead = "<tool_call>\n<function=",
                   .middle = ">\n",
                   .tail = "</function>\n</tool_call>",
                   .between = "\n"}},
     .body = output_step_tags,
     .tags = &qwen_tags},
    {.name = "mistral",
     .open = "[TOOL_CALLS]",
     .detect = {"[TOOL_CALLS]"},
     .writings = {{.lead = "[TOOL_CALLS]", .middle = "[ARGS]"},
                  {.begin = "[TOOL_CALLS]%s[",
                   .lead = "{\"name\": \"",
                   .middle = "\", \"arguments\": ",
                   .tail = "}",
                   .between = ", ",
                   .end = "]"}},
     .body = output_step_either,
     .head = mistral_head,
     .short_ids = true},
    {.name = "granite",
     .open = "<|tool_call|>",
     .close = {"<|/tool_call|>"},
     .detect = {"<|tool_call|>"},
     .writings = {{.begin = "<|tool_call|>[",
                   .lead = "{\"name\": \"",
                   .middle = "\", \"arguments\": ",
                   .tail = "}",
                   .between = ", ",
                   .end = "]"}},
     .body = output_step_object},
    {.name = "hermes",
     .open = "<tool_call>",
     .close = {"</tool_call>"},
     .detect = {"<tool_call>"},
     .writings = {{.lead = "<tool_call>\n{\"name\": \"",
                   .middle = "\", \"arguments\": ",
                   .tail = "}\n</tool_call>",
                   .between = "\n"}},
     .body = output_step_object},
    {.name = "llama3",
     .open = "<|python_tag|>",
     .detect = {"<|python_tag|>", "\"name\": function name, \"parameters\""},
     .writings =
         {{.lead = "{\"name\": \"", .middle = "\", \"parameters\": ", .tail = "}", .between = "; "},
          {.begin = "<|python_tag|>",
           .lead = "{\"name\": \"",
           .middle = "\", \"parameters\": ",
           .tail = "}",
           .between = "; "}},
     .body = output_step_object,
     .bare = "{",
     .separator = ';'},
    {.name = "lfm2",
     .open = "<|tool_call_start|>",
     .close = {"<|tool_call_end|>"},
     .detect = {"<|tool_call_start|>"},
     .writings = {{.begin = "<|tool_call_start|>[",
                   .lead = "",
                   .middle = "(",
                   .tail = ")",
                   .between = ", ",
                   .end = "]<|tool_call_end|>"}},
     .body = output_step_python,
     .python = true},
    {.name = "pythonic",
     .open = "<|python_start|>",
     .close = {"<|python_end|>"},
     .writings =
         {{.begin = "[", .lead = "", .middle = "(", .tail = ")", .between = ", ", .end = "]"}},
     .body = output_step_python,
     .bare = "[",
     .python = true},
};

/* For models without a template, or with one that contains no markers. */
static const struct {
    const char *model_type, *reasoning, *tools;
} families[] = {
    {"gpt_oss", "harmony", "harmony"},
    {"kimi_k2", "think", "kimi_k2"},
    {"kimi_k25", "think", "kimi_k2"},
    {"deepseek_v2", "none", "deepseek"},
    {"deepseek_v3", "think", "deepseek"},
    {"glm4_moe", "think", "glm"},
    {"qwen2", "none", "hermes"},
    {"qwen3", "think", "hermes"},
    {"qwen3_moe", "think", "hermes"},
    {"mistral", "none", "mistral"},
    {"ministral3", "mistral", "mistral"},
    {"mixtral", "none", "mistral"},
    {"lfm2", "none", "lfm2"},
};

static bool contains_any(sh_str text, const char *const *marks)
{
    for (int i = 0; i < OUTPUT_DETECT_MAX; i++)
        if (marks[i] != NULL && sh_str_find(text, sh_str_of(marks[i]), 0) < text.len) return true;
    return false;
}

/* Lets both tables share the lookup by name: the first member of each row is its name. */
typedef struct {
    const void *rows;
    size_t count, size;
    const char *what;
} name_table;

static const name_table reasoning_names = {reasonings, SH_COUNT_OF(reasonings),
                                           sizeof(reasonings[0]), "reasoning"};
static const name_table tools_names = {tool_forms, SH_COUNT_OF(tool_forms), sizeof(tool_forms[0]),
                                       "tool-call"};

static const char *row_name(const name_table *table, size_t idx)
{
    return *(const char *const *)((const char *)table->rows + idx * table->size);
}

/* NULL for "none" and for an unknown name. */
static const void *row_find(const name_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(row_name(table, i), name) == 0)
            return (const char *)table->rows + i * table->size;
    return NULL;
}

/* Looks a row up by name; the error lists all names, because users choose one on the command line.
 * */
static sh_status row_must(const name_table *table, const char *name, const void **out, sh_err *err)
{
    const void *row = row_find(table, name);
    if (row == NULL && strcmp(name, "none") != 0) {
        sh_buf names = {0};
        for (size_t i = 0; i < table->count; i++) sh_buf_addf(&names, ", %s", row_name(table, i));
        sh_err_set(err, SH_ERR_NOT_FOUND, "unknown %s dialect '%s', choose one of none%s",
                   table->what, name, names.ptr);
        sh_buf_reset(&names);
        return err->status;
    }
    *out = row;
    return SH_OK;
}

/* Reasoning and tools are detected independently: a template may have markers of only one. The
 * model type fills in what the template does not show. */
sh_output_dialect sh_output_dialect_detect(sh_str template_text, const char *model_type)
{
    sh_output_dialect d = {0};

    for (size_t i = 0; i < SH_COUNT_OF(reasonings) && d.reasoning == NULL; i++)
        if (contains_any(template_text, reasonings[i].detect)) d.reasoning = &reasonings[i];
    for (size_t i = 0; i < SH_COUNT_OF(tool_forms) && d.tools == NULL; i++)
        if (contains_any(template_text, tool_forms[i].detect)) d.tools = &tool_forms[i];
    for (size_t i = 0; i < SH_COUNT_OF(families) && model_type != NULL; i++) {
        if (strcmp(families[i].model_type, model_type) != 0) continue;
        d.reasoning_guessed = d.reasoning == NULL;
        if (d.reasoning == NULL) d.reasoning = row_find(&reasoning_names, families[i].reasoning);
        if (d.tools == NULL) d.tools = row_find(&tools_names, families[i].tools);
    }
    return d;
}

sh_status sh_output_reasoning_named(const char *name, const sh_output_reasoning **out, sh_err *err)
{
    const void *row;
    sh_status status = row_must(&reasoning_names, name, &row, err);
    if (status == SH_OK) *out = row;
    return status;
}

sh_status sh_output_tools_named(const char *name, const sh_output_tools **out, sh_err *err)
{
    const void *row;
    sh_status status = row_must(&tools_names, name, &row, err);
    if (status == SH_OK) *out = row;
    return status;
}

static bool is_auto(const char *name)
{
    return name == NULL || strcmp(name, "auto") == 0;
}

sh_status sh_output_dialect_choose(sh_output_dialect *d, const char *reasoning, const char *tools,
                                   sh_err *err)
{
    sh_output_dialect chosen = *d;
    sh_status status = SH_OK;
    if (!is_auto(reasoning)) status = sh_output_reasoning_named(reasoning, &chosen.reasoning, err);
    if (!is_auto(reasoning)) chosen.reasoning_guessed = false;
    if (status == SH_OK && !is_auto(tools))
        status = sh_output_tools_named(tools, &chosen.tools, err);
    if (status == SH_OK) *d = chosen;
    return status;
}

bool sh_output_reasoning_markers(const sh_output_reasoning *reasoning, sh_str *open, sh_str *close)
{
    if (reasoning == NULL || reasoning->channels) return false;
    *open = sh_str_of(reasoning->open);
    *close = sh_str_of(reasoning->close);
    return true;
}

const char *sh_output_reasoning_name(const sh_output_reasoning *reasoning)
{
    return reasoning == NULL ? "none" : reasoning->name;
}

const char *sh_output_tools_name(const sh_output_tools *tools)
{
    return tools == NULL ? "none" : tools->name;
}

/* Templates put line breaks after the marker, hence the trim. */
bool sh_output_prompt_opens(const sh_output_dialect *dialect, sh_str prompt)
{
    if (dialect->reasoning == NULL || dialect->reasoning->open == NULL) return false;
    return sh_str_ends(sh_str_trim(prompt), sh_str_of(dialect->reasoning->open));
}

bool sh_output_text_reasons(const sh_output_dialect *dialect, sh_str text)
{
    const sh_output_reasoning *r = dialect->reasoning;
    if (r == NULL || r->open == NULL || r->close == NULL) return false;
    text = sh_str_trim(text);
    return sh_str_starts(text, sh_str_of(r->open)) &&
           sh_str_find(text, sh_str_of(r->close), 0) == text.len;
}

bool sh_output_may_reason(const sh_output_dialect *dialect, sh_str prompt)
{
    const sh_output_reasoning *r = dialect->reasoning;
    if (r == NULL || dialect->reasoning_guessed) return sh_output_prompt_opens(dialect, prompt);
    return r->close == NULL || !sh_str_ends(sh_str_trim(prompt), sh_str_of(r->close));
}

/* Whether `part` occurs in any of the marks: several special tokens may make up one marker. */
static bool any_contains(const char *const *marks, size_t count, sh_str part)
{
    for (size_t i = 0; i < count; i++) {
        sh_str mark = sh_str_of(marks[i] == NULL ? "" : marks[i]);
        if (sh_str_find(mark, part, 0) < mark.len) return true;
    }
    return false;
}

bool sh_output_reads(const sh_output *o, sh_str special)
{
    const sh_output_reasoning *r = o->dialect.reasoning;
    const sh_output_tools *t = o->dialect.tools;
    /* Harmony, and calls with a head, have inner markers that are not listed in any row. */
    if ((r != NULL && r->channels) || (t != NULL && (t->channels || t->head != NULL))) return true;
    if (r != NULL && any_contains((const char *const[]){r->open, r->close}, 2, special))
        return true;
    if (t == NULL) return false;
    const output_tags *g = t->tags;
    return any_contains((const char *const[]){t->section, t->open}, 2, special) ||
           any_contains(t->close, OUTPUT_CLOSE_MAX, special) ||
           (g != NULL && any_contains((const char *const[]){g->key, g->key_end, g->value,
                                                            g->value_end[0], g->value_end[1]},
                                      5, special));
}
