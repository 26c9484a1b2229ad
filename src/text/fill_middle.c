#include "text/fill_middle.h"

typedef struct {
    const char *before, *after, *middle; /* tokens that precede each text; middle NULL: none */
    bool after_first;                    /* the text after the middle comes first */
    const char *end;                     /* besides the model's end ids, or NULL */
} markers;

static const markers families[] = {
    /* qwen2.5-coder, codegemma */
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false, NULL},
    /* starcoder, starcoder2, granite */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false, NULL},
    /* deepseek-coder, deepseek-v2 and later */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", false, NULL},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", false, "▁<EOT>"}, /* codellama */
    {"[PREFIX]", "[SUFFIX]", NULL, true, NULL},      /* codestral */
};

static int32_t id_of(const sh_tokenizer *tok, const char *piece)
{
    return piece == NULL ? -1 : sh_tokenizer_id(tok, sh_str_of(piece));
}

static const markers *family_of(const sh_tokenizer *tok)
{
    for (size_t i = 0; i < SH_COUNT_OF(families); i++) {
        const markers *m = &families[i];
        if (id_of(tok, m->before) >= 0 && id_of(tok, m->after) >= 0 &&
            (m->middle == NULL || id_of(tok, m->middle) >= 0))
            return m;
    }
    return NULL;
}

bool sh_fill_middle_known(const sh_tokenizer *tok, int32_t *end)
{
    const markers *m = family_of(tok);
    *end = m == NULL ? -1 : id_of(tok, m->end);
    return m != NULL;
}

/* What the tokenizer puts around an empty text is what it puts before and after any; only the
 * beginning belongs into a prompt that goes on. */
static sh_status start_add(const sh_tokenizer *tok, sh_ids *out, sh_err *err)
{
    sh_ids around = {0};
    int32_t bos = sh_tokenizer_named(tok, SH_TOKEN_BOS);
    sh_status status = sh_tokenizer_encode(tok, SH_STR(""), (sh_encode_opts){.add_special = true},
                                           &around, err);
    if (status == SH_OK && around.len > 0 && (bos < 0 || around.ptr[0] == bos))
        sh_ids_add(out, around.ptr[0]);
    sh_ids_reset(&around);
    return status;
}

/* Markers that are written in the texts are plain text. */
static sh_status part_add(const sh_tokenizer *tok, const char *marker, sh_str text, sh_ids *out,
                          sh_err *err)
{
    sh_ids_add(out, id_of(tok, marker));
    return sh_tokenizer_encode(tok, text, (sh_encode_opts){0}, out, err);
}

sh_status sh_fill_middle_encode(const sh_tokenizer *tok, sh_str before, sh_str after, sh_ids *out,
                                sh_err *err)
{
    const markers *m = family_of(tok);
    SH_ASSERT(m != NULL);
    sh_status status = start_add(tok, out, err);
    if (status == SH_OK && m->after_first) status = part_add(tok, m->after, after, out, err);
    if (status == SH_OK) status = part_add(tok, m->before, before, out, err);
    if (status == SH_OK && !m->after_first) status = part_add(tok, m->after, after, out, err);
    if (status == SH_OK && m->middle != NULL) sh_ids_add(out, id_of(tok, m->middle));
    return status;
}
