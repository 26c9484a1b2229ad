/* Any bytes as a tokenizer.json: rejected, or a tokenizer whose streamed and plain decoding agree.
 */
#include "text/tokenizer/detokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void decode_check(const sh_tokenizer *tok, const sh_ids *ids)
{
    sh_buf whole = {0}, joined = {0};
    sh_detokenizer *detok = sh_detokenizer_create(tok, false);
    sh_tokenizer_decode(tok, ids->ptr, ids->len, false, &whole);
    for (size_t i = 0; i < ids->len; i++) {
        sh_str text = sh_detokenizer_push(detok, ids->ptr[i]);
        must(sh_utf8_valid(text.ptr, text.len));
        sh_buf_add_str(&joined, text);
    }
    sh_buf_add_str(&joined, sh_detokenizer_finish(detok));
    must(sh_str_eq(sh_buf_str(&whole), sh_buf_str(&joined)));
    sh_detokenizer_free(detok);
    sh_buf_reset(&whole);
    sh_buf_reset(&joined);
}

static void encode_check(const sh_tokenizer *tok, sh_str text)
{
    sh_ids ids = {0};
    sh_err err;
    sh_encode_opts opts = {.add_special = true, .parse_special = true};
    if (sh_tokenizer_encode(tok, text, opts, &ids, &err) == SH_OK)
        for (size_t i = 0; i < ids.len; i++) must(sh_tokenizer_piece(tok, ids.ptr[i]).ptr != NULL);
    else
        must(ids.len == 0);
    decode_check(tok, &ids);
    sh_ids_reset(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_tokenizer *tok = NULL;
    sh_err err;
    sh_ids all = {0};
    if (sh_tokenizer_parse((sh_str){(const char *)data, size}, "fuzz", &tok, &err) != SH_OK)
        return 0;
    encode_check(
        tok,
        SH_STR("ab abXybzz <s> ab\n\n a\xcc\x81\xe4\xb8\xad\xf0\x9f\x99\x82 1234 it's <0x41>"));
    int32_t size_shown = sh_tokenizer_size(tok) < 64 ? sh_tokenizer_size(tok) : 64;
    for (int32_t id = -1; id <= size_shown; id++) sh_ids_add(&all, id);
    decode_check(tok, &all);
    sh_ids_reset(&all);
    sh_tokenizer_free(tok);
    return 0;
}
