/* Times grammars on a vocabulary of 150k tokens: compiling, and the mask of every step of random
 * answers. The vocabulary is made up of what real ones have: words with and without a space, code,
 * numbers, other scripts, parts of characters.
 *
 *   bench_grammar [ANSWERS]      per schema: states, ms to compile, masks, us at the median and p99
 */
#include "base/alloc.h"
#include "base/json.h"
#include "text/grammar/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 151936, END = TOKENS - 1, STEPS_MAX = 400, STEPS_SHORT = 150 };

static uint64_t seed = 1;

/* Time on the processor, which does not count what else the machine is doing. */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- vocabulary ---- */

static void add_word(sh_buf *out)
{
    static const char *const parts[] = {"the", "ing", "er", "con",  "ab",  "st", "ra",
                                        "mo",  "li",  "an", "tion", "pre", "de", "ment",
                                        "al",  "or",  "us", "e",    "qu",  "y"};
    static const char starts[] = "    _.-(\"'";
    size_t first;
    if (pick(2) == 0) sh_buf_add_char(out, starts[pick(sizeof(starts) - 1)]);
    first = out->len;
    for (uint32_t n = 1 + pick(4); n > 0; n--)
        sh_buf_add_text(out, parts[pick(SH_COUNT_OF(parts))]);
    if (pick(4) == 0) out->ptr[first] = (char)(out->ptr[first] - 32);
    if (pick(20) == 0) sh_buf_add_char(out, "\",:;)}"[pick(6)]);
}

static void add_code(sh_buf *out)
{
    static const char signs[] = "\"\"\"'{}[]():;,.=<>/\\+-*&|!#_ \n\t";
    for (uint32_t n = 1 + pick(5); n > 0; n--) sh_buf_add_char(out, signs[pick(sizeof(signs) - 1)]);
    if (pick(3) == 0) add_word(out);
}

static void add_script(sh_buf *out, uint32_t lo, uint32_t hi, uint32_t chars)
{
    if (pick(3) == 0) sh_buf_add_char(out, ' ');
    for (uint32_t n = 1 + pick(chars); n > 0; n--) sh_buf_add_utf8(out, lo + pick(hi - lo));
}

static void add_token(sh_buf *out, uint32_t id)
{
    size_t first = out->len;
    uint32_t kind = pick(100);
    if (id < 256)
        sh_buf_add_char(out, (char)id);
    else if (id < 1366)
        sh_buf_addf(out, "%u", id - 256);
    else if (id < 1494)
        sh_buf_addf(out, "%*s", (int)(id - 1364), "");
    else if (kind < 50)
        add_word(out);
    else if (kind < 62)
        add_code(out);
    else if (kind < 80)
        add_script(out, 0x4e00, 0x9fa0, 3);
    else if (kind < 90)
        add_script(out, 0x410, 0x450, 7);
    else if (kind < 94)
        add_script(out, 0x627, 0x64a, 6);
    else if (kind < 98)
        add_script(out, 0xac00, 0xd7a0, 2);
    else {
        add_script(out, 0x4e00, 0x9fa0, 2);
        out->len -= 1 + pick(2); /* a part of a character */
        if (out->len <= first) sh_buf_add_char(out, 'x');
    }
}

static sh_token_trie *make_trie(void)
{
    sh_token_text *tokens = sh_alloc_array(TOKENS, sizeof(*tokens));
    size_t *firsts = sh_alloc_array(TOKENS + 1, sizeof(*firsts));
    sh_buf bytes = {0};
    int32_t end = END;
    for (uint32_t id = 0; id < TOKENS; id++) {
        firsts[id] = bytes.len;
        add_token(&bytes, id);
    }
    firsts[TOKENS] = bytes.len;
    for (uint32_t id = 0; id < TOKENS; id++)
        tokens[id].bytes = (sh_str){bytes.ptr + firsts[id], firsts[id + 1] - firsts[id]};
    tokens[END].special = true;
    int64_t began = cpu_ns();
    sh_token_trie *trie = sh_token_trie_build(tokens, TOKENS, &end, 1);
    printf("trie of %d tokens: %.1f ms\n", TOKENS, (double)(cpu_ns() - began) / 1e6);
    free(tokens);
    free(firsts);
    sh_buf_reset(&bytes);
    return trie;
}

/* ---- schemas ---- */

static const struct {
    const char *name;
    const char *schema;
} cases[] = {
    {"weather",
     "{\"type\":\"object\",\"properties\":{\"location\":{\"type\":\"string\"},\"unit\":{\"enum\":"
     "[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
     "\"required\":[\"location\",\"unit\"],\"additionalProperties\":false}"},
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1,"
     "\"maxLength\":60},\"email\":{\"type\":\"string\",\"format\":\"email\"},\"birth\":{\"type\":"
     "\"string\",\"format\":\"date\"},\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"tags\":"
     "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":8},\"notes\":{\"type\":"
     "\"string\",\"maxLength\":2000}},\"required\":[\"name\",\"email\",\"birth\",\"id\",\"tags\","
     "\"notes\"],\"additionalProperties\":false}"},
    {"invoice",
     "{\"type\":\"object\",\"properties\":{\"number\":{\"type\":\"string\",\"pattern\":\"^INV-[0-9]"
     "{6}$\"},\"lines\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/line\"}},"
     "\"total\":{\"type\":\"number\",\"minimum\":0,\"multipleOf\":0.01},\"paid\":{\"type\":"
     "\"boolean\"},\"due\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"}},\"required\":"
     "[\"number\",\"lines\",\"total\"],\"$defs\":{\"line\":{\"type\":\"object\",\"properties\":"
     "{\"text\":{\"type\":\"string\"},\"count\":{\"type\":\"integer\",\"minimum\":1},\"price\":"
     "{\"type\":\"number\"},\"kind\":{\"enum\":[\"goods\",\"service\",\"fee\"]}},\"required\":"
     "[\"text\",\"count\",\"price\"],\"additionalProperties\":false}},\"additionalProperties\":"
     "false}"},
    {"tree", "{\"$ref\":\"#/$defs/"
             "node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":"
             "{\"type\":\"string\"},\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
             "node\"}}},"
             "\"required\":[\"value\",\"children\"],\"additionalProperties\":false}}}"},
    {"union",
     "{\"type\":\"array\",\"minItems\":3,\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":"
     "{\"kind\":{\"const\":\"text\"},\"body\":{\"type\":\"string\"}},\"required\":[\"kind\","
     "\"body\"],"
     "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":"
     "\"point\"},\"x\":{\"type\":\"number\"},\"y\":{\"type\":\"number\"}},\"required\":[\"kind\","
     "\"x\",\"y\"],\"additionalProperties\":false},{\"type\":\"string\"}]}}"},
    {"any object", "{\"type\":\"object\"}"},
};

static int order_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int32_t pick_token(const sh_token_mask *mask, int steps)
{
    static const int32_t closing[] = {END, '"', '}', ']'};
    for (size_t i = 0; i < SH_COUNT_OF(closing) && (steps > STEPS_SHORT || pick(20) == 0); i++)
        if (mask->words[closing[i] / 64] >> closing[i] % 64 & 1) return closing[i];
    uint32_t nth = pick(mask->allowed);
    for (uint32_t word = 0;; word++) {
        uint32_t count = (uint32_t)__builtin_popcountll(mask->words[word]);
        if (nth >= count) {
            nth -= count;
            continue;
        }
        for (uint32_t bit = 0;; bit++)
            if ((mask->words[word] >> bit & 1) && nth-- == 0) return (int32_t)(word * 64 + bit);
    }
}

typedef struct {
    double *us;
    size_t count, cap;
} samples;

static void add_sample(samples *s, double us)
{
    if (s->count == s->cap) {
        s->cap = s->cap == 0 ? 1024 : s->cap * 2;
        s->us = sh_realloc_array(s->us, s->cap, sizeof(*s->us));
    }
    s->us[s->count++] = us;
}

static void answer(sh_matcher *m, samples *s)
{
    sh_match_state state = SH_MATCH_START;
    sh_token_mask mask;
    sh_err err;
    for (int steps = 0; steps < STEPS_MAX; steps++) {
        int64_t began = cpu_ns();
        if (sh_matcher_mask(m, state, &mask, &err) != SH_OK || mask.allowed == 0) exit(1);
        add_sample(s, (double)(cpu_ns() - began) / 1000);
        int32_t id = pick_token(&mask, steps);
        if (id == END || sh_matcher_token(m, state, id, &state, &err) != SH_OK) return;
    }
}

static void run_case(size_t at, const sh_token_trie *trie, int answers, samples *all)
{
    cJSON *schema = NULL;
    sh_grammar *grammar = NULL;
    sh_err err;
    samples s = {0};
    if (sh_json_parse(sh_str_of(cases[at].schema), "schema", &schema, &err) != SH_OK) exit(1);
    int64_t began = cpu_ns();
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_expr root = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = true});
    if (sh_grammar_compile(b, root, &grammar, &err) != SH_OK) {
        fprintf(stderr, "%s: %s\n", cases[at].name, err.text);
        exit(1);
    }
    sh_grammar_builder_free(b);
    double ms = (double)(cpu_ns() - began) / 1e6;
    sh_matcher *m = sh_matcher_create(grammar, trie);
    for (int i = 0; i < answers; i++) answer(m, &s);
    for (size_t i = 0; i < s.count; i++) add_sample(all, s.us[i]);
    qsort(s.us, s.count, sizeof(*s.us), order_doubles);
    printf("%-12s %6u states %6.1f ms %7zu masks %8.1f us median %8.1f us p99 %8.1f us max\n",
           cases[at].name, sh_grammar_measure(grammar).states, ms, s.count, s.us[s.count / 2],
           s.us[s.count * 99 / 100], s.us[s.count - 1]);
    free(s.us);
    sh_matcher_free(m);
    sh_grammar_free(grammar);
    cJSON_Delete(schema);
}

int main(int argc, char **argv)
{
    int answers = argc > 1 ? atoi(argv[1]) : 20;
    samples all = {0};
    sh_token_trie *trie = make_trie();
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) run_case(i, trie, answers, &all);
    qsort(all.us, all.count, sizeof(*all.us), order_doubles);
    printf("all: %zu masks, %.1f us median, %.1f us p99\n", all.count, all.us[all.count / 2],
           all.us[all.count * 99 / 100]);
    free(all.us);
    sh_token_trie_free(trie);
    return 0;
}
