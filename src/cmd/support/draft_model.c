/* A draft model sees the ids that the model drew, and proposes ids. If an id meant something else
 * to it, its drafts would be wrong nearly always: no answer would be, but all of its time would be
 * lost. So the vocabularies are compared token by token. */
#include "cmd/support/draft_model.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cmd/support/model_find.h"
#include "engine/engine.h"
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 40 };

/* A piece for an error text. */
static const char *shown(const sh_tokenizer *tok, int32_t id, char text[SHOWN + 3])
{
    sh_str piece = sh_tokenizer_piece(tok, id);
    size_t len = 0;
    if (piece.ptr == NULL) return "no token";
    text[len++] = '\'';
    for (size_t i = 0; i < piece.len && len < SHOWN; i++) {
        bool plain = (unsigned char)piece.ptr[i] >= ' ' && piece.ptr[i] != 127;
        text[len++] = '?';
        if (plain) text[len - 1] = piece.ptr[i];
    }
    text[len++] = '\'';
    text[len] = '\0';
    return text;
}

static bool token_same(const sh_tokenizer *a, const sh_tokenizer *b, int32_t id)
{
    sh_str one = sh_tokenizer_piece(a, id), other = sh_tokenizer_piece(b, id);
    return (one.ptr == NULL) == (other.ptr == NULL) && sh_str_eq(one, other) &&
           sh_tokenizer_is_special(a, id) == sh_tokenizer_is_special(b, id);
}

static sh_status tokens_compare(const sh_tokenizer *model, const sh_tokenizer *draft,
                                const char *dir, sh_err *err)
{
    char one[SHOWN + 3], other[SHOWN + 3];
    int32_t size = sh_tokenizer_size(model);
    if (sh_tokenizer_size(draft) > size) size = sh_tokenizer_size(draft);
    for (int32_t id = 0; id < size; id++) {
        if (token_same(model, draft, id)) continue;
        return sh_err_set(
            err, SH_ERR_INPUT,
            "the draft model %s has another vocabulary than the model: token %d is %s "
            "there and %s here%s",
            dir, (int)id, shown(draft, id, one), shown(model, id, other),
            strcmp(shown(draft, id, one), shown(model, id, other)) == 0
                ? ", but special in one of them only"
                : "");
    }
    return SH_OK;
}

/* A folder without a tokenizer still has a vocabulary of some size, which the engine compares. */
static sh_status vocabulary_check(const sh_settings *s, const char *dir, sh_err *err)
{
    sh_tokenizer *model = NULL, *draft = NULL;
    sh_err missing;
    sh_status status = sh_tokenizer_load(s->tokenizer != NULL ? s->tokenizer : s->model, &model,
                                         &missing);
    if (status == SH_OK) status = sh_tokenizer_load(dir, &draft, &missing);
    if (status == SH_OK)
        status = tokens_compare(model, draft, dir, err);
    else if (status == SH_ERR_NOT_FOUND) {
        SH_LOGW("cannot compare the tokens of the draft model with the model's: %s", missing.text);
        status = SH_OK;
    } else
        *err = missing;
    sh_tokenizer_free(model);
    sh_tokenizer_free(draft);
    return status;
}

bool sh_draft_model_is_mtp(const sh_settings *s)
{
    return s->draft_model != NULL && strcmp(s->draft_model, SH_DRAFT_MODEL_MTP) == 0;
}

sh_status sh_draft_model_obtain(const sh_settings *s, char **out, sh_err *err)
{
    sh_settings named = *s;
    *out = NULL;
    if (s->draft_model == NULL || s->drafts == 0) return SH_OK;
    if (sh_draft_model_is_mtp(s)) {
        *out = sh_strdup(s->draft_model);
        return SH_OK;
    }
    named.model = s->draft_model;
    sh_status status = sh_model_obtain(&named, out, err);
    if (status == SH_OK) status = vocabulary_check(s, *out, err);
    if (status == SH_OK) return SH_OK;
    sh_err_prefix(err, "--draft-model");
    free(*out);
    *out = NULL;
    return status;
}
