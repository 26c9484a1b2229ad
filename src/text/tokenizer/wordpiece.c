#include "text/tokenizer/wordpiece.h"

#include "text/tokenizer/unicode.h"

/* The length of the longest piece at the start of `rest`; 0: there is none. Pieces end between
 * characters, so the end moves back over the bytes of one at a time. */
static size_t piece_find(const sh_wordpiece *m, sh_str rest, bool first, sh_buf *text, int32_t *id)
{
    int len;
    size_t prefix;
    sh_buf_clear(text);
    if (!first) sh_buf_add_text(text, m->prefix);
    prefix = text->len;
    sh_buf_add_str(text, rest);
    while (text->len > prefix) {
        if (text->len <= m->vocab->piece_len_max) {
            *id = sh_vocab_find(m->vocab, sh_buf_str(text));
            if (*id >= 0) return text->len - prefix;
        }
        sh_unicode_last(sh_buf_str(text), &len);
        text->len -= (size_t)len;
    }
    return 0;
}

static size_t char_count(sh_str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return count;
}

void sh_wordpiece_encode(const sh_wordpiece *m, sh_str word, sh_buf *text, sh_ids *out)
{
    size_t before = out->len, at = 0;
    bool known = char_count(word) <= m->chars_max;
    while (known && at < word.len) {
        int32_t id;
        size_t len = piece_find(m, sh_str_sub(word, at, word.len), at == 0, text, &id);
        known = len > 0;
        if (known) sh_ids_add(out, id);
        at += len;
    }
    if (known) return;
    out->len = before;
    sh_ids_add(out, m->unk_id);
}
