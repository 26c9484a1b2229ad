/* tokenizer_cases.h - reads tests/data/tokenizers; its README.md has the format. */
#ifndef SH_TESTS_TOKENIZER_CASES_H
#define SH_TESTS_TOKENIZER_CASES_H

#include "base/file.h"
#include "text/tokenizer/tokenizer.h"

#include "test.h"

#define DATA "tests/data/tokenizers/"

static const char *const case_kinds[] = {"deepseek",      "digits",  "gpt2",      "llama3",
                                         "o200k",         "qwen2",   "spm-gemma", "spm-legacy",
                                         "spm-metaspace", "unigram", "wordpiece"};

enum { FIELDS = 4 };

typedef struct {
    char kind;
    sh_str fields[FIELDS]; /* after the kind; texts are unescaped */
    sh_buf text[FIELDS];
} case_line;

typedef void (*case_fn)(void *arg, const case_line *line);

static inline void case_unescape(sh_str text, sh_buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] != '\\') {
            sh_buf_add_char(out, text.ptr[i]);
        } else if (text.ptr[++i] == 'x') {
            char hex[3] = {text.ptr[i + 1], text.ptr[i + 2], '\0'};
            sh_buf_add_char(out, (char)strtoul(hex, NULL, 16));
            i += 2;
        } else {
            sh_buf_add_char(out, text.ptr[i]);
        }
    }
}

static inline void case_ids(sh_str text, sh_ids *out)
{
    sh_str part;
    int64_t id;
    out->len = 0;
    while (sh_str_cut(&text, ' ', &part))
        if (sh_str_to_int(part, &id)) sh_ids_add(out, (int32_t)id);
}

static inline void cases_each(const char *path, case_fn fn, void *arg)
{
    sh_buf file = {0};
    sh_err err;
    case_line line = {0};
    sh_str row;
    CHECK_OK(sh_file_read(path, 1 << 24, &file, &err), err);
    for (sh_str rest = sh_buf_str(&file); sh_str_cut(&rest, '\n', &row);) {
        line.kind = row.ptr[0];
        row = sh_str_sub(row, 2, row.len);
        for (int i = 0; i < FIELDS; i++) {
            sh_str field = {"", 0};
            (void)sh_str_cut(&row, '\t', &field);
            sh_buf_clear(&line.text[i]);
            if (line.kind != 'T') case_unescape(field, &line.text[i]);
            line.fields[i] = line.kind == 'T' ? field : sh_buf_str(&line.text[i]);
        }
        fn(arg, &line);
    }
    for (int i = 0; i < FIELDS; i++) sh_buf_reset(&line.text[i]);
    sh_buf_reset(&file);
}

static inline sh_tokenizer *case_tokenizer(const char *kind)
{
    sh_tokenizer *tok = NULL;
    sh_err err;
    char path[256];
    snprintf(path, sizeof(path), DATA "%s.json", kind);
    CHECK_OK(sh_tokenizer_load(path, &tok, &err), err);
    return tok;
}

#endif
