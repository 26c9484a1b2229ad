/* The text side of a synthetic model: a tokenizer of bytes and made-up words and a chat template,
 * so that it can be served and measured like a real one. Text is encoded byte by byte (there are no
 * merges); the words only give the remaining ids a text to decode to. */
#include "cmd/synth_text.h"

#include "base/buf.h"
#include "base/file.h"
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 256, LETTERS = 26 };

/* The character that byte-level tokenizers use for a byte: the byte itself if it is printable,
 * otherwise the next free one after U+00FF. */
static unsigned character_of(unsigned byte)
{
    unsigned hidden = 0;
    for (unsigned b = 0;; b++) {
        bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        if (b == byte) return prints ? b : BYTES + hidden;
        hidden += !prints;
    }
}

/* A word for each number: " a" to " z", then longer ones. U+0120 stands for the space. */
static void word_add(sh_buf *out, unsigned number)
{
    char letters[16];
    int count = 0;
    for (number++; number > 0; number = (number - 1) / LETTERS)
        letters[count++] = (char)('a' + (number - 1) % LETTERS);
    sh_buf_add_text(out, "\\u0120");
    while (count > 0) sh_buf_add_char(out, letters[--count]);
}

/* Ids 0 to 255 are the bytes, so that any text can be encoded. */
static void tokenizer_text(sh_buf *out, unsigned vocab)
{
    sh_buf_add_text(out, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                         "\"trim_offsets\":true,\"use_regex\":true},"
                         "\"post_processor\":null,"
                         "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                         "\"trim_offsets\":true,\"use_regex\":true},"
                         "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (unsigned id = 0; id < vocab; id++) {
        sh_buf_add_text(out, id == 0 ? "\"" : ",\"");
        if (id < BYTES)
            sh_buf_addf(out, "\\u%04x", character_of(id));
        else
            word_add(out, id - BYTES);
        sh_buf_addf(out, "\":%u", id);
    }
    sh_buf_add_text(out, "}}}\n");
}

/* An existing file is kept. */
static sh_status file_write(const char *dir, const char *name, const sh_buf *text, sh_err *err)
{
    char *path = sh_path_join(dir, name);
    FILE *file = sh_file_exists(path) ? NULL : fopen(path, "w");
    bool there = file == NULL && sh_file_exists(path);
    bool good = file != NULL && fwrite(text->ptr, 1, text->len, file) == text->len;
    if (file != NULL && fclose(file) != 0) good = false;
    sh_status status = good || there ? SH_OK : sh_err_sys(err, "%s", path);
    free(path);
    return status;
}

sh_status sh_synth_text(const char *dir, sh_err *err)
{
    static const char template[] = "{% for message in messages %}{{ message.role }}: "
                                   "{{ message.content }}\n{% endfor %}assistant:";
    sh_config config;
    sh_status status = sh_config_load(dir, &config, err);
    if (status != SH_OK) return status;
    sh_buf text = {0};
    if (config.vocab >= BYTES) {
        tokenizer_text(&text, (unsigned)config.vocab);
        status = file_write(dir, "tokenizer.json", &text, err);
        sh_buf_clear(&text);
        sh_buf_add_text(&text, template);
        if (status == SH_OK) status = file_write(dir, "chat_template.jinja", &text, err);
    }
    sh_buf_reset(&text);
    sh_config_reset(&config);
    return status;
}
