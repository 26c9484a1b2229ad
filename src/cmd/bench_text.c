/* shoal bench text: how fast a tokenizer loads, encodes and decodes, and what hostile input costs.
 *
 * So that the benchmark needs no file from elsewhere, a BPE vocabulary of 150000 tokens is
 * generated: words made of syllables, built up letter by letter, so that every prefix is a token
 * with a merge rule. The generator is deterministic: results can be compared between builds.
 *
 * Each hostile input is a megabyte of one repeated unit. On such text a naive pre-tokenizer or
 * merge loop needs quadratic time. */
#include "base/file.h"
#include "base/hash.h"
#include "cmd/bench.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    VOCAB = 150000,
    SYLLABLES = 1600,
    TEXT_LEN = 8 << 20,
    HOSTILE_LEN = 1 << 20,
    ROUNDS_MAX = 99
};

#define BYTE_SPACE "\xc4\xa0" /* a space in the byte alphabet */

typedef struct {
    sh_vocab vocab;
    sh_buf merges;
    sh_ids words;
    uint64_t draws;
} maker;

static uint32_t pick(maker *m, uint32_t count)
{
    return (uint32_t)(sh_mix64(m->draws++) >> 33) % count;
}

static void syllable(maker *m, sh_buf *out)
{
    static const char *const starts[] = {"b", "c", "d",  "f",  "g",  "h",  "l",  "m",
                                         "n", "p", "r",  "s",  "t",  "v",  "w",  "st",
                                         "",  "",  "tr", "ch", "sh", "pl", "gr", "th"};
    static const char *const vowels[] = {"a", "e", "i", "o", "u", "ea", "ou", "io"};
    static const char *const ends[] = {"", "", "", "n", "r", "s", "t", "l", "m", "nt", "st", "ck"};
    sh_buf_add_text(out, starts[pick(m, SH_COUNT_OF(starts))]);
    sh_buf_add_text(out, vowels[pick(m, SH_COUNT_OF(vowels))]);
    sh_buf_add_text(out, ends[pick(m, SH_COUNT_OF(ends))]);
}

static void token_add(maker *m, sh_str piece)
{
    sh_err err;
    sh_status status = sh_vocab_add(&m->vocab, piece, m->vocab.size, &err);
    SH_ASSERT(status == SH_OK);
}

/* Adds the text as a token with a merge rule of its first `len` bytes and the rest, unless it
 * exists. */
static void join(maker *m, sh_str text, size_t len)
{
    if (m->vocab.size == VOCAB || sh_vocab_find(&m->vocab, text) >= 0) return;
    token_add(m, text);
    sh_buf_addf(&m->merges, "%s[\"%.*s\",\"%.*s\"]", m->merges.len > 0 ? "," : "", (int)len,
                text.ptr, (int)(text.len - len), text.ptr + len);
}

static void vocabulary_make(maker *m)
{
    sh_buf text = {0};
    sh_vocab_init(&m->vocab, VOCAB);
    for (int byte = 0; byte < 256; byte++) {
        char piece[4];
        size_t len = (size_t)sh_utf8_encode(sh_bytelevel_char((uint8_t)byte), piece);
        token_add(m, (sh_str){piece, len});
    }
    while (m->vocab.size < VOCAB) {
        sh_buf_clear(&text);
        sh_buf_add_text(&text, BYTE_SPACE);
        for (uint32_t left = 1 + pick(m, 4); left > 0; left--) syllable(m, &text);
        for (size_t len = sizeof(BYTE_SPACE); len <= text.len; len++)
            join(m, (sh_str){text.ptr, len}, len - 1);
        int32_t word = sh_vocab_find(&m->vocab, sh_buf_str(&text));
        if (word >= 0) sh_ids_add(&m->words, word);
    }
    sh_buf_reset(&text);
}

/* A tokenizer.json in the style of Llama 3: that split expression and byte-level BPE. Pieces need
 * no escapes but for quote and backslash, since byte-level characters are all printable. */
static void tokenizer_json(const maker *m, sh_buf *out)
{
    sh_buf_add_text(out,
                    "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                    "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,"
                    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
                    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
                    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
                    "\\\\s+(?!\\\\S)|\\\\s+\"}},"
                    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
                    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int32_t id = 0; id < m->vocab.size; id++) {
        sh_str piece = m->vocab.pieces[id];
        bool escape = sh_str_is(piece, "\"") || sh_str_is(piece, "\\");
        sh_buf_addf(out, "%s\n      \"%s%.*s\": %d", id > 0 ? "," : "", escape ? "\\" : "",
                    (int)piece.len, piece.ptr, id);
    }
    sh_buf_add_text(out, "},\"merges\":[");
    sh_buf_add_str(out, sh_buf_str(&m->merges));
    sh_buf_add_text(out, "]}}");
}

/* Text whose words follow Zipf's law, with some words outside the vocabulary, numbers, punctuation
 * and line breaks. */
static void prose(maker *m, size_t len, sh_buf *out)
{
    double count = (double)m->words.len;
    while (out->len < len) {
        double draw = pick(m, 1 << 20) / (double)(1 << 20);
        size_t idx = (size_t)pow(count, draw) - 1;
        sh_str piece = m->vocab.pieces[m->words.ptr[idx]];
        uint32_t odd = pick(m, 100);
        sh_buf_add_char(out, odd == 0 ? '\n' : ' ');
        sh_buf_add(out, piece.ptr + 2, piece.len - 2);
        if (odd < 12) syllable(m, out);
        if (odd < 4) syllable(m, out);
        if (odd > 97) sh_buf_addf(out, " %u", pick(m, 3000));
        if (odd % 11 == 5) sh_buf_add_char(out, odd < 50 ? ',' : '.');
    }
}

static int ms_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    const char *name; /* of the tokenizer */
    const sh_tokenizer *tok;
    int rounds;
} bench;

/* One line of CSV, with the median over the rounds. */
static void row(const bench *b, const char *what, size_t len, double *ms)
{
    qsort(ms, (size_t)b->rounds, sizeof(*ms), ms_compare);
    double median = ms[b->rounds / 2];
    printf("%s,%s,%zu,%.2f,%.1f\n", b->name, what, len, median, (double)len / median / 1e3);
    fflush(stdout);
}

/* CPU time, not wall-clock time: other processes may use the machine too. */
static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static sh_status encode_time(const bench *b, const char *what, sh_str text, sh_ids *ids,
                             sh_err *err)
{
    double ms[ROUNDS_MAX] = {0};
    for (int i = 0; i < b->rounds; i++) {
        ids->len = 0;
        double start = cpu_ms();
        sh_status status = sh_tokenizer_encode(b->tok, text, (sh_encode_opts){0}, ids, err);
        if (status != SH_OK) return status;
        ms[i] = cpu_ms() - start;
    }
    row(b, what, text.len, ms);
    return SH_OK;
}

/* Token by token through the streaming detokenizer, as a server decodes. */
static void decode_time(const bench *b, const sh_ids *ids)
{
    double ms[ROUNDS_MAX] = {0};
    size_t len = 0;
    for (int i = 0; i < b->rounds; i++) {
        double start = cpu_ms();
        sh_detokenizer *detok = sh_detokenizer_create(b->tok, true);
        len = 0;
        for (size_t k = 0; k < ids->len; k++) len += sh_detokenizer_push(detok, ids->ptr[k]).len;
        len += sh_detokenizer_finish(detok).len;
        sh_detokenizer_free(detok);
        ms[i] = cpu_ms() - start;
    }
    row(b, "decode token by token", len, ms);
}

static sh_status hostile_time(const bench *b, sh_err *err)
{
    static const struct {
        const char *what;
        const char *unit;
    } texts[] = {
        {"one letter", "a"},
        {"one capital", "A"},
        {"spaces", " "},
        {"newlines", "\n"},
        {"digits", "7"},
        {"emoji", "\xf0\x9f\x99\x82"},
        {"Chinese", "\xe4\xb8\xad"},
        {"combining marks", "\xcc\x81\xcc\xa3"},
        {"apostrophes", "'"},
        {"words without spaces", "theandofto"},
        {"starts of tokens", "<|"},
    };
    sh_buf text = {0};
    sh_ids ids = {0};
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT_OF(texts) && status == SH_OK; i++) {
        sh_buf_clear(&text);
        while (text.len < HOSTILE_LEN) sh_buf_add_text(&text, texts[i].unit);
        status = encode_time(b, texts[i].what, sh_buf_str(&text), &ids, err);
    }
    sh_buf_reset(&text);
    sh_ids_reset(&ids);
    return status;
}

static sh_status load_time(const bench *b, sh_str json, sh_tokenizer **out, sh_err *err)
{
    double ms[ROUNDS_MAX] = {0};
    for (int i = 0; i < b->rounds; i++) {
        sh_tokenizer_free(*out);
        *out = NULL;
        double start = cpu_ms();
        sh_status status = sh_tokenizer_parse(json, b->name, out, err);
        if (status != SH_OK) return status;
        ms[i] = cpu_ms() - start;
    }
    row(b, "load", json.len, ms);
    return SH_OK;
}

static sh_status tokenizer_time(bench *b, sh_str json, sh_str text, sh_err *err)
{
    sh_tokenizer *tok = NULL;
    sh_ids ids = {0};
    sh_status status = load_time(b, json, &tok, err);
    b->tok = tok;
    if (status == SH_OK) status = encode_time(b, "encode prose", text, &ids, err);
    if (status == SH_OK) decode_time(b, &ids);
    if (status == SH_OK) status = hostile_time(b, err);
    sh_ids_reset(&ids);
    sh_tokenizer_free(tok);
    return status;
}

/* The tokenizer named by --tokenizer or --model, or else the demo model's if that exists. */
static sh_status given_time(bench *b, const sh_settings *settings, sh_str text, sh_err *err)
{
    const char *dir = settings->model != NULL ? settings->model : "models/demo";
    char *file = sh_path_join(dir, "tokenizer.json");
    const char *path = settings->tokenizer != NULL ? settings->tokenizer : file;
    sh_buf json = {0};
    sh_status status = SH_OK;
    bool asked = settings->model != NULL || settings->tokenizer != NULL;
    if (asked || sh_file_exists(path)) {
        b->name = path;
        status = sh_file_read(path, 256 << 20, &json, err);
        if (status == SH_OK) status = tokenizer_time(b, sh_buf_str(&json), text, err);
    }
    sh_buf_reset(&json);
    free(file);
    return status;
}

int sh_bench_text(const sh_command_args *args)
{
    int64_t rounds = args->settings->rounds;
    bench b = {.name = "150k tokens", .rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : (int)rounds};
    maker m = {0};
    sh_buf json = {0}, text = {0};
    sh_err err;
    vocabulary_make(&m);
    tokenizer_json(&m, &json);
    prose(&m, TEXT_LEN, &text);
    printf("tokenizer,what,bytes,cpu_ms,MB/s\n");
    sh_status status = tokenizer_time(&b, sh_buf_str(&json), sh_buf_str(&text), &err);
    if (status == SH_OK) status = given_time(&b, args->settings, sh_buf_str(&text), &err);
    sh_vocab_reset(&m.vocab);
    sh_buf_reset(&m.merges);
    sh_ids_reset(&m.words);
    sh_buf_reset(&json);
    sh_buf_reset(&text);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
