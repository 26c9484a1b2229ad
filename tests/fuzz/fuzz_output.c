/* Any output text in any dialect: the events do not depend on how it is split, calls begin and end
 * in order (only the end of the output may cut one), complete calls have an object for arguments,
 * and text without calls or reasoning comes out unchanged. The first byte is the dialect, the
 * second the seed for the splits; in the rest, bytes from 0x80 up are replaced by pieces of the
 * dialects, so that complete calls are found soon. */
#include "base/buf.h"
#include "text/output/output.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pieces[] = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "```json\n",
    "```",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
    "assistant",
    "analysis",
    "commentary",
    "final",
    " to=functions.",
    "functions.f:0",
    "function",
    "{\"name\":\"f\",\"arguments\":",
    "{\"parameters\":",
    "\"name\"",
    "\"arguments\"",
    "\"id\"",
    ":\"f\"",
    "{}",
    "{\"a\":",
    "\"b\\u00e9\"",
    "}",
    "]",
    "[",
    "null",
    "true",
    "-1.5e3",
    "f",
    "a",
    "s",
    "\n",
    " ",
    "€",
    "[THINK]",
    "[/THINK]",
    "<|channel>thought",
    "<channel|>",
    "\n</parameter>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|python_start|>",
    "f(a=",
    "'\\x41\\'",
    "\\ud83d",
    "(",
    ")",
    ", b=",
    "None",
};

static const char *const tools_names[] = {"none",    "hermes",   "qwen3_coder", "llama3", "mistral",
                                          "granite", "deepseek", "kimi_k2",     "glm",    "longcat",
                                          "harmony", "lfm2",     "pythonic"};
static const char *const reasoning_names[] = {"none", "think", "gemma", "mistral", "harmony"};

typedef struct {
    sh_buf all, content, args;
    int last_kind, open_call, calls, whole;
    bool reasoning;
} record;

static void must(bool ok)
{
    if (!ok) abort();
}

static void check_object(sh_str text)
{
    cJSON *item = NULL;
    sh_err err;
    /* The scanner leaves UTF-8 to its caller, and this caller does not check it. */
    if (!sh_utf8_valid(text.ptr, text.len)) return;
    must(sh_json_parse(text, "arguments", &item, &err) == SH_OK);
    must(cJSON_IsObject(item));
    cJSON_Delete(item);
}

static void note(void *arg, const sh_output_event *e)
{
    record *r = arg;

    if ((int)e->kind != r->last_kind || e->kind == SH_OUTPUT_CALL_BEGIN)
        sh_buf_addf(&r->all, "\n%d ", e->kind);
    r->last_kind = (int)e->kind;
    sh_buf_add_str(&r->all, e->text);
    sh_buf_add_str(&r->all, e->id);
    sh_buf_add_str(&r->all, e->name);
    switch (e->kind) {
    case SH_OUTPUT_CONTENT:
        must(r->open_call < 0);
        sh_buf_add_str(&r->content, e->text);
        break;
    case SH_OUTPUT_REASONING:
        must(r->open_call < 0);
        r->reasoning = true;
        break;
    case SH_OUTPUT_CALL_BEGIN:
        must(r->open_call < 0 && e->call == r->calls && e->name.len > 0 && e->id.len > 0);
        r->open_call = r->calls++;
        sh_buf_clear(&r->args);
        break;
    case SH_OUTPUT_CALL_ARGS: sh_buf_add_str(&r->args, e->text); break;
    case SH_OUTPUT_CALL_END:
        check_object(sh_buf_str(&r->args));
        r->whole++;
        break;
    case SH_OUTPUT_CALL_BROKEN: break;
    }
    if (e->kind > SH_OUTPUT_CALL_BEGIN) must(e->call == r->open_call);
    if (e->kind >= SH_OUTPUT_CALL_END) r->open_call = -1;
}

static void record_reset(record *r)
{
    sh_buf_reset(&r->all);
    sh_buf_reset(&r->content);
    sh_buf_reset(&r->args);
}

/* Pieces of one byte for seed 0, all at once for 1, else pieces of 1 to 16 bytes. */
static record read_all(const sh_output_dialect *d, const sh_output_opts *opts, sh_str text,
                       unsigned seed)
{
    record r = {.last_kind = -1, .open_call = -1};
    sh_output *o = sh_output_create(d, opts, note, &r);
    for (size_t at = 0, len; at < text.len; at += len) {
        seed = seed < 2 ? seed : seed * 1103515245u + 12345u;
        len = seed == 0 ? 1 : seed == 1 ? text.len : 1 + (seed >> 16) % 16;
        sh_output_push(o, sh_str_sub(text, at, len));
    }
    sh_output_finish(o);
    must(r.whole == sh_output_calls(o));
    sh_output_free(o);
    return r;
}

static void check(const sh_output_dialect *d, const sh_output_opts *opts, sh_str text,
                  unsigned seed)
{
    record whole = read_all(d, opts, text, 1), bytes = read_all(d, opts, text, 0);
    record parts = read_all(d, opts, text, seed + 2);
    must(sh_str_eq(sh_buf_str(&whole.all), sh_buf_str(&bytes.all)));
    must(sh_str_eq(sh_buf_str(&whole.all), sh_buf_str(&parts.all)));
    bool markers = strcmp(sh_output_tools_name(d->tools), "harmony") == 0 || d->reasoning != NULL;
    sh_str content = sh_buf_str(&whole.content);
    /* The text of a call that was cut is not content; all before it is. */
    if (!markers && whole.whole == 0)
        must(whole.open_call < 0 ? sh_str_eq(content, text) : sh_str_starts(text, content));
    record_reset(&whole);
    record_reset(&bytes);
    record_reset(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cJSON *tools;
    sh_output_dialect d = {0};
    sh_buf text = {0};
    sh_err err;

    if (size < 2 || size > 4096) return -1;
    if (tools == NULL)
        tools = cJSON_Parse(
            "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
            "\"a\":{\"type\":[\"number\",\"null\"]}}}}]");
    unsigned pick = data[0];
    must(sh_output_tools_named(tools_names[pick % SH_COUNT_OF(tools_names)], &d.tools, &err) ==
         SH_OK);
    pick /= (unsigned)SH_COUNT_OF(tools_names);
    must(sh_output_reasoning_named(reasoning_names[pick % SH_COUNT_OF(reasoning_names)],
                                   &d.reasoning, &err) == SH_OK);
    sh_output_opts opts = {.in_reasoning = pick >= 11, .tools = pick % 2 == 0 ? tools : NULL};
    for (size_t i = 2; i < size; i++) {
        if (data[i] < 0x80)
            sh_buf_add_char(&text, (char)data[i]);
        else
            sh_buf_add_text(&text, pieces[(data[i] - 0x80u) % SH_COUNT_OF(pieces)]);
    }
    check(&d, &opts, sh_buf_str(&text), data[1]);
    sh_buf_reset(&text);
    return 0;
}
