/* Grammars from outside the unit tests: verdicts on texts and random answers, for the scripts that
 * compare them with other implementations.
 *
 * Each line of the input is {"kind": "schema" | "regex" | "gbnf" | "choice", "grammar": ...,
 * "texts": [...], "walks": N, "seed": N}; each line of the output {"error": text} or
 * {"verdicts": [bool...], "walks": [text...]}. A walk is an answer of random tokens that the masks
 * allow.
 *
 * Kind "call" is about calls of a tool whose parameters have the schema `grammar`, as the model
 * family `dialect` writes them: its walks are the arguments that the parser finds in random calls,
 * or what it found instead. */
#include "base/alloc.h"
#include "base/json.h"
#include "text/grammar/matcher.h"
#include "text/output/output_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WALK_SHORT = 60, WALK_MAX = 3000, TOKENS = 400, END = 256 };

static uint64_t seed;
static sh_token_text tokens[TOKENS];

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* All bytes, an end, and strings that cross the borders of rules. */
static sh_token_trie *make_trie(void)
{
    static const char *const words[] = {
        "\"}",      "\",",  "\":",  "\": \"", "{\"",  "[{",   "}]",    "}}",       "]}",
        ", ",       ",\"",  "true", "false",  "null", "\\n",  "\\u00", "\xc3\xa9", "\xe2\x82\xac",
        "\xf0\x9f", "10",   "-1",   "0.",     "e+",   "the",  " a",    "ing",      "[]",
        "{}",       "\n  ", "\"\"", "2024-",  ":00",  "http", "://",   "ab",       "ba"};
    static char bytes[256];
    int32_t end = END;
    for (int i = 1; i < 256; i++) { /* texts are C strings */
        bytes[i] = (char)i;
        tokens[i].bytes = (sh_str){&bytes[i], 1};
    }
    tokens[END] = (sh_token_text){SH_STR("<end>"), true};
    for (size_t i = 0; i < SH_COUNT_OF(words); i++) tokens[END + 1 + i].bytes = sh_str_of(words[i]);
    return sh_token_trie_build(tokens, TOKENS, &end, 1);
}

static sh_expr make_expr(sh_grammar_builder *b, const char *kind, const cJSON *grammar)
{
    if (strcmp(kind, "schema") == 0)
        return sh_expr_json_schema(b, grammar, (sh_json_form){.spaces = true});
    if (strcmp(kind, "regex") == 0) return sh_expr_regex(b, sh_str_of(grammar->valuestring));
    if (strcmp(kind, "gbnf") == 0) return sh_expr_gbnf(b, sh_str_of(grammar->valuestring));
    size_t count = (size_t)cJSON_GetArraySize(grammar), i = 0;
    sh_str *choices = sh_alloc_array(count, sizeof(*choices));
    const cJSON *item;
    cJSON_ArrayForEach(item, grammar) choices[i++] = sh_str_of(item->valuestring);
    sh_expr e = sh_expr_choice(b, choices, count);
    free(choices);
    return e;
}

/* ---- calls ---- */

static cJSON *make_tools(const cJSON *parameters)
{
    cJSON *tools = cJSON_CreateArray(), *tool = cJSON_CreateObject();
    cJSON *function = cJSON_AddObjectToObject(tool, "function");
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON_AddStringToObject(function, "name", "get_it");
    cJSON_AddItemToObject(function, "parameters", cJSON_Duplicate(parameters, true));
    cJSON_AddItemToArray(tools, tool);
    return tools;
}

static sh_output_form make_form(const cJSON *line, const cJSON *tools)
{
    sh_output_form form = {
        .calls = SH_OUTPUT_CALLS_MUST, .tools = tools, .strict = true, .one_call = true};
    const char *dialect = cJSON_GetObjectItem(line, "dialect")->valuestring;
    sh_err err;
    if (sh_output_dialect_choose(&form.dialect, "none", dialect, &err) != SH_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return form;
}

typedef struct {
    sh_buf arguments;
    int begun, whole;
    bool other; /* there is something else */
} found_call;

static void find_call(void *arg, const sh_output_event *event)
{
    found_call *f = arg;
    if (event->kind == SH_OUTPUT_CALL_ARGS) sh_buf_add_str(&f->arguments, event->text);
    f->begun += event->kind == SH_OUTPUT_CALL_BEGIN && sh_str_is(event->name, "get_it");
    f->whole += event->kind == SH_OUTPUT_CALL_END;
    if (event->kind == SH_OUTPUT_CONTENT || event->kind == SH_OUTPUT_CALL_BROKEN) f->other = true;
}

/* Replaces the text of a call by its arguments. */
static void parse_call(const sh_output_form *form, sh_buf *text)
{
    found_call f = {0};
    sh_output_opts opts = {.tools = form->tools};
    sh_output *output = sh_output_create(&form->dialect, &opts, find_call, &f);
    sh_output_push(output, sh_buf_str(text));
    sh_output_finish(output);
    sh_output_free(output);
    if (f.begun == 1 && f.whole == 1 && !f.other) {
        sh_buf_clear(text);
        sh_buf_add_str(text, sh_buf_str(&f.arguments));
    }
    sh_buf_reset(&f.arguments);
}

/* ---- answers ---- */

static bool accepts(sh_matcher *m, const char *text)
{
    sh_match_state state = SH_MATCH_START;
    sh_err err;
    return sh_matcher_bytes(m, state, sh_str_of(text), &state, &err) == SH_OK &&
           sh_matcher_accepts(m, state);
}

/* Long answers are brought to an end by what closes things. */
static int32_t pick_token(const sh_token_mask *mask, int steps)
{
    static const int32_t closing[] = {END, '"', '}', ']', '<'};
    for (size_t i = 0; i < SH_COUNT_OF(closing) && (steps > WALK_SHORT || pick(12) == 0); i++)
        if (mask->words[closing[i] / 64] >> closing[i] % 64 & 1) return closing[i];
    uint32_t nth = pick(mask->allowed);
    for (int32_t id = 0;; id++)
        if ((mask->words[id / 64] >> id % 64 & 1) && nth-- == 0) return id;
}

static bool walk(sh_matcher *m, sh_buf *out)
{
    sh_match_state state = SH_MATCH_START;
    sh_token_mask mask;
    sh_err err;
    for (int steps = 0; steps < WALK_MAX; steps++) {
        if (sh_matcher_mask(m, state, &mask, &err) != SH_OK || mask.allowed == 0) {
            fprintf(stderr, "stuck after '%s'\n", out->ptr == NULL ? "" : out->ptr);
            exit(1);
        }
        int32_t id = pick_token(&mask, steps);
        if (id == END) return true;
        if (sh_matcher_token(m, state, id, &state, &err) != SH_OK || state == SH_MATCH_DEAD) {
            fprintf(stderr, "the mask allowed %d after '%s'\n", id, out->ptr);
            exit(1);
        }
        sh_buf_add_str(out, tokens[id].bytes);
    }
    return false;
}

static cJSON *answer(const cJSON *line, const sh_token_trie *trie)
{
    cJSON *out = cJSON_CreateObject();
    sh_grammar *grammar = NULL;
    sh_err err;
    sh_grammar_builder *b = sh_grammar_builder_create();
    const char *kind = cJSON_GetObjectItem(line, "kind")->valuestring;
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(line, "grammar");
    bool call = strcmp(kind, "call") == 0;
    cJSON *tools = call ? make_tools(given) : NULL;
    sh_output_form form = call ? make_form(line, tools) : (sh_output_form){0};
    int bad_tool;
    sh_expr root = call ? sh_output_form_expr(b, &form, &bad_tool) : make_expr(b, kind, given);
    sh_status status = sh_grammar_compile(b, root, &grammar, &err);
    sh_grammar_builder_free(b);
    if (status != SH_OK) {
        cJSON_AddStringToObject(out, "error", err.text);
        cJSON_Delete(tools);
        return out;
    }
    sh_matcher *m = sh_matcher_create(grammar, trie);
    cJSON *verdicts = cJSON_AddArrayToObject(out, "verdicts");
    cJSON *walks = cJSON_AddArrayToObject(out, "walks");
    const cJSON *item, *count = cJSON_GetObjectItem(line, "walks");
    const cJSON *from = cJSON_GetObjectItem(line, "seed");
    seed = from == NULL ? 1 : (uint64_t)from->valuedouble;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(line, "texts"))
        cJSON_AddItemToArray(verdicts, cJSON_CreateBool(accepts(m, item->valuestring)));
    for (int i = 0; count != NULL && i < count->valueint; i++) {
        sh_buf text = {0};
        sh_buf_add_text(&text, "");
        bool ended = walk(m, &text);
        if (ended && call) parse_call(&form, &text);
        if (ended) cJSON_AddItemToArray(walks, cJSON_CreateString(text.ptr));
        sh_buf_reset(&text);
    }
    cJSON_Delete(tools);
    sh_matcher_free(m);
    sh_grammar_free(grammar);
    return out;
}

int main(void)
{
    sh_token_trie *trie = make_trie();
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&text, &cap, stdin)) > 0) {
        sh_err err;
        cJSON *line = NULL;
        if (sh_json_parse((sh_str){text, (size_t)len}, "line", &line, &err) != SH_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        cJSON *out = answer(line, trie);
        char *printed = cJSON_PrintUnformatted(out);
        puts(printed);
        cJSON_free(printed);
        cJSON_Delete(out);
        cJSON_Delete(line);
    }
    free(text);
    sh_token_trie_free(trie);
    return 0;
}
