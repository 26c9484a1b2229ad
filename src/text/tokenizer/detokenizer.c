/* A decoder state with a buffer; ids without a token are skipped. */
#include "text/tokenizer/detokenizer.h"

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_internal.h"

#include <stdlib.h>

struct sh_detokenizer {
    const sh_tokenizer *tok;
    sh_decoder_state *state;
    bool skip_special;
    sh_buf text;
};

sh_detokenizer *sh_detokenizer_create(const sh_tokenizer *tok, bool skip_special)
{
    sh_detokenizer *detok = sh_alloc(sizeof(*detok));
    detok->tok = tok;
    detok->state = sh_decoder_state_create(tok->decoder);
    detok->skip_special = skip_special;
    return detok;
}

void sh_detokenizer_free(sh_detokenizer *detok)
{
    if (detok == NULL) return;
    sh_decoder_state_free(detok->state);
    sh_buf_reset(&detok->text);
    free(detok);
}

sh_str sh_detokenizer_push(sh_detokenizer *detok, int32_t id)
{
    sh_str piece = sh_tokenizer_shown(detok->tok, id, detok->skip_special);
    sh_buf_clear(&detok->text);
    if (piece.ptr != NULL) sh_decoder_push(detok->state, piece, &detok->text);
    return sh_buf_str(&detok->text);
}

sh_str sh_detokenizer_finish(sh_detokenizer *detok)
{
    sh_buf_clear(&detok->text);
    sh_decoder_finish(detok->state, &detok->text);
    return sh_buf_str(&detok->text);
}
