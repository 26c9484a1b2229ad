/* Any text with each kind of tokenizer: the ids are tokens, and text without special tokens that
 * needs no normalizing decodes to itself. Input: a byte that selects the tokenizer, then the text.
 */
#include "text/tokenizer/detokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *path;
    bool exact; /* decoding gives the same text */
} kinds[] = {
    {"tests/data/tokenizers/deepseek.json", true},
    {"tests/data/tokenizers/digits.json", true},
    {"tests/data/tokenizers/gpt2.json", true},
    {"tests/data/tokenizers/llama3.json", true},
    {"tests/data/tokenizers/o200k.json", true},
    {"tests/data/tokenizers/qwen2.json", false},
    {"tests/data/tokenizers/spm-gemma.json", false},
    {"tests/data/tokenizers/spm-legacy.json", false},
    {"tests/data/tokenizers/spm-metaspace.json", false},
    {"tests/data/tokenizers/tiktoken.model", true},
    {"tests/data/tokenizers/unigram.json", false},
    {"tests/data/tokenizers/wordpiece.json", false},
};

static void must(bool ok)
{
    if (!ok) abort();
}

static const sh_tokenizer *tokenizer(size_t idx)
{
    static sh_tokenizer *loaded[SH_COUNT_OF(kinds)];
    sh_err err;
    if (loaded[idx] == NULL && sh_tokenizer_load(kinds[idx].path, &loaded[idx], &err) != SH_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return loaded[idx];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_ids ids = {0};
    sh_buf back = {0};
    sh_err err;
    if (size < 1) return -1;
    size_t idx = data[0] % SH_COUNT_OF(kinds);
    const sh_tokenizer *tok = tokenizer(idx);
    sh_str text = {(const char *)data + 1, size - 1};
    bool brackets = text.len > 0 &&
                    memchr(text.ptr, '[', text.len) != NULL; /* consumes white space */
    sh_encode_opts opts = {.parse_special = (data[0] & 0x80) != 0};
    sh_status status = sh_tokenizer_encode(tok, text, opts, &ids, &err);
    must((status == SH_OK) == sh_utf8_valid(text.ptr, text.len));
    for (size_t i = 0; i < ids.len; i++) must(sh_tokenizer_piece(tok, ids.ptr[i]).ptr != NULL);
    sh_tokenizer_decode(tok, ids.ptr, ids.len, false, &back);
    if (status == SH_OK && kinds[idx].exact && !brackets) must(sh_str_eq(sh_buf_str(&back), text));
    sh_ids_reset(&ids);
    sh_buf_reset(&back);
    return 0;
}
