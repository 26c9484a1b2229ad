/* Reads tokenizer.json.
 *
 * The vocabulary and the merges have hundreds of thousands of entries, so the JSON is walked once
 * and never searched by key, which is linear in cJSON. Everything is checked here, since the file
 * may come from anywhere: after this every id in a merge or a post-processor is a token, and the
 * encoder does not check again.
 *
 * Unknown fields are ignored, but an unknown type or a setting that would change the result
 * (an unknown model, dropout) is an error. */
#include "text/tokenizer/tokenizer_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const cJSON *vocab;
    const cJSON *merges;
    const char *unk;
    const char *prefix;
    const char *suffix;
    bool fuse_unk, byte_fallback, ignore_merges;
} model_json;

typedef struct {
    sh_tokenizer *tok;
    size_t prefix_len;
    uint32_t rank;
    sh_buf text;
} merge_reader;

/* The range is checked before the conversion, which would be undefined for larger doubles. */
static bool id_of(const cJSON *item, int64_t *out)
{
    double value = item->valuedouble;
    if (!cJSON_IsNumber(item) || !(value >= -1e15 && value <= 1e15) || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}

static sh_status vocab_read(const cJSON *json, const char *where, sh_vocab *vocab, sh_err *err)
{
    const cJSON *item;
    if (!cJSON_IsObject(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'vocab' must be an object, not %s", where,
                          sh_json_kind(json));
    sh_vocab_init(vocab, (size_t)cJSON_GetArraySize(json));
    cJSON_ArrayForEach(item, json)
    {
        int64_t id;
        if (!id_of(item, &id))
            return sh_err_set(err, SH_ERR_INPUT,
                              "%s: the id of '%s' in 'vocab' is %s, not an integer", where,
                              item->string, sh_json_kind(item));
        sh_status status = sh_vocab_add(vocab, sh_str_of(item->string), id, err);
        if (status != SH_OK) return sh_err_prefix(err, "%s: vocab", where);
    }
    return SH_OK;
}

/* A merge is "left right", or in newer files ["left", "right"]. */
static bool merge_parts(const cJSON *item, sh_str *left, sh_str *right)
{
    if (cJSON_IsString(item)) {
        *right = sh_str_of(item->valuestring);
        return sh_str_cut(right, ' ', left) && memchr(right->ptr, ' ', right->len) == NULL;
    }
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *second = first == NULL ? NULL : first->next;
    if (!cJSON_IsString(first) || !cJSON_IsString(second) || second->next != NULL) return false;
    *left = sh_str_of(first->valuestring);
    *right = sh_str_of(second->valuestring);
    return true;
}

/* The prefix of the right piece disappears when it is merged to the left one. */
static sh_status merge_read(merge_reader *r, sh_str left, sh_str right, sh_err *err)
{
    sh_str names[3] = {left, right};
    sh_buf_clear(&r->text);
    sh_buf_add_str(&r->text, left);
    sh_buf_add_str(&r->text, sh_str_sub(right, r->prefix_len, right.len));
    names[2] = sh_buf_str(&r->text);
    const sh_vocab *vocab = &r->tok->vocab;
    int32_t ids[3] = {sh_vocab_find(vocab, left), sh_vocab_find(vocab, right),
                      sh_vocab_find(vocab, names[2])};
    for (int i = 0; i < 3; i++)
        if (ids[i] < 0)
            return sh_err_set(err, SH_ERR_INPUT,
                              "merge %u ('%.*s' '%.*s'): '%.*s' is not in 'vocab'", r->rank,
                              (int)left.len, left.ptr, (int)right.len, right.ptr, (int)names[i].len,
                              names[i].ptr);
    sh_bpe_add_merge(r->tok->bpe, ids[0], ids[1], r->rank++, ids[2]);
    return SH_OK;
}

static sh_status merges_read(const cJSON *json, const char *where, size_t prefix_len,
                             sh_tokenizer *tok, sh_err *err)
{
    const cJSON *item;
    merge_reader r = {.tok = tok, .prefix_len = prefix_len};
    sh_status status = SH_OK;
    cJSON_ArrayForEach(item, json)
    {
        sh_str left, right;
        bool version = cJSON_IsString(item) &&
                       sh_str_starts(sh_str_of(item->valuestring), SH_STR("#version"));
        if (version) continue; /* the first line of an old merges.txt, which is not a merge */
        if (!merge_parts(item, &left, &right))
            status = sh_err_set(err, SH_ERR_INPUT, "%s: merge %u is not a pair of tokens", where,
                                r.rank);
        else if (merge_read(&r, left, right, err) != SH_OK)
            status = sh_err_prefix(err, "%s", where);
        if (status != SH_OK) break;
    }
    sh_buf_reset(&r.text);
    return status;
}

static sh_status model_fields(const cJSON *json, const char *where, model_json *out, sh_err *err)
{
    double dropout = 0;
    sh_status status = sh_json_double(json, "dropout", where, 0, 1, &dropout, err);
    if (status == SH_OK && dropout > 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: 'dropout' %g is not supported", where,
                          dropout);
    if (status == SH_OK) status = sh_json_string(json, "unk_token", where, &out->unk, err);
    if (status == SH_OK)
        status = sh_json_string(json, "continuing_subword_prefix", where, &out->prefix, err);
    if (status == SH_OK)
        status = sh_json_string(json, "end_of_word_suffix", where, &out->suffix, err);
    if (status == SH_OK) status = sh_json_bool(json, "fuse_unk", where, &out->fuse_unk, err);
    if (status == SH_OK)
        status = sh_json_bool(json, "byte_fallback", where, &out->byte_fallback, err);
    if (status == SH_OK)
        status = sh_json_bool(json, "ignore_merges", where, &out->ignore_merges, err);
    return status;
}

static sh_status wordpiece_read(const cJSON *json, const char *where, sh_tokenizer *tok,
                                sh_err *err)
{
    const char *unk = "[UNK]", *prefix = "##";
    int64_t chars = 100;
    sh_status status = sh_json_string(json, "unk_token", where, &unk, err);
    if (status == SH_OK)
        status = sh_json_string(json, "continuing_subword_prefix", where, &prefix, err);
    if (status == SH_OK)
        status = sh_json_int(json, "max_input_chars_per_word", where, 0, 1 << 20, &chars, err);
    if (status == SH_OK)
        status = vocab_read(cJSON_GetObjectItemCaseSensitive(json, "vocab"), where, &tok->vocab,
                            err);
    if (status != SH_OK) return status;
    int32_t id = sh_vocab_find(&tok->vocab, sh_str_of(unk));
    if (id < 0)
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'unk_token' is '%s', which is not in 'vocab'",
                          where, unk);
    tok->wordpiece = sh_alloc(sizeof(*tok->wordpiece));
    *tok->wordpiece = (sh_wordpiece){.vocab = &tok->vocab,
                                     .unk_id = id,
                                     .prefix = sh_strdup(prefix),
                                     .chars_max = (size_t)chars};
    return SH_OK;
}

/* Pairs of a piece and its score; the position is the id. */
static sh_status scores_read(const cJSON *json, const char *where, sh_vocab *vocab, double *scores,
                             sh_err *err)
{
    int32_t id = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        const cJSON *piece = cJSON_IsArray(item) ? item->child : NULL;
        const cJSON *score = piece == NULL ? NULL : piece->next;
        if (!cJSON_IsString(piece) || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
            return sh_err_set(err, SH_ERR_INPUT,
                              "%s: entry %d of 'vocab' is not a piece with its score", where, id);
        sh_status status = sh_vocab_add(vocab, sh_str_of(piece->valuestring), id, err);
        if (status != SH_OK) return sh_err_prefix(err, "%s: vocab", where);
        scores[id++] = score->valuedouble;
    }
    return SH_OK;
}

static sh_status unigram_read(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err)
{
    const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(json, "vocab");
    int64_t unk = -1;
    bool bytes = false;
    if (!cJSON_IsArray(vocab))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'vocab' must be a list, not %s", where,
                          sh_json_kind(vocab));
    int count = cJSON_GetArraySize(vocab);
    double *scores = sh_alloc_array((size_t)count + 1, sizeof(*scores));
    sh_vocab_init(&tok->vocab, (size_t)count);
    sh_status status = sh_json_int(json, "unk_id", where, 0, count - 1, &unk, err);
    if (status == SH_OK) status = sh_json_bool(json, "byte_fallback", where, &bytes, err);
    if (status == SH_OK) status = scores_read(vocab, where, &tok->vocab, scores, err);
    if (status == SH_OK) tok->unigram = sh_unigram_create(&tok->vocab, scores, (int32_t)unk, bytes);
    free(scores);
    return status;
}

static sh_status bpe_read(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err)
{
    model_json model = {.vocab = cJSON_GetObjectItemCaseSensitive(json, "vocab"),
                        .merges = cJSON_GetObjectItemCaseSensitive(json, "merges")};
    sh_status status = model_fields(json, where, &model, err);
    if (status == SH_OK) status = vocab_read(model.vocab, where, &tok->vocab, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsArray(model.merges))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'merges' must be a list, not %s", where,
                          sh_json_kind(model.merges));
    sh_bpe_opts opts = {
        /* Some files name an unk_token that is not in their vocabulary; nothing is unknown there.
         */
        .unk_id = model.unk == NULL ? -1 : sh_vocab_find(&tok->vocab, sh_str_of(model.unk)),
        .fuse_unk = model.fuse_unk,
        .byte_fallback = model.byte_fallback,
        .ignore_merges = model.ignore_merges,
        .prefix = sh_str_of(model.prefix),
        .suffix = sh_str_of(model.suffix),
    };
    tok->bpe = sh_bpe_create(&tok->vocab, &opts, (size_t)cJSON_GetArraySize(model.merges));
    return merges_read(model.merges, where, opts.prefix.len, tok, err);
}

static sh_status model_read(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err)
{
    static const struct {
        const char *type;
        sh_status (*read)(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err);
    } models[] = {{"BPE", bpe_read}, {"WordPiece", wordpiece_read}, {"Unigram", unigram_read}};
    const char *type = "BPE";
    if (!cJSON_IsObject(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'model' must be an object, not %s", where,
                          sh_json_kind(json));
    sh_status status = sh_json_string(json, "type", where, &type, err);
    for (size_t i = 0; i < SH_COUNT_OF(models) && status == SH_OK; i++)
        if (strcmp(type, models[i].type) == 0) return models[i].read(json, where, tok, err);
    if (status != SH_OK) return status;
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "%s: model '%s' is not supported; BPE, WordPiece and Unigram are", where,
                      type);
}

static sh_status added_read(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err)
{
    const char *content = NULL;
    int64_t id = 0;
    sh_added_token token = {0};
    sh_status status = sh_json_string_required(json, "content", where, &content, err);
    if (status == SH_OK)
        status = sh_json_int_required(json, "id", where, 0, SH_VOCAB_MAX - 1, &id, err);
    if (status == SH_OK) status = sh_json_bool(json, "special", where, &token.special, err);
    /* The default of the tokenizers library: special tokens are matched in the raw text. */
    token.normalized = !token.special;
    if (status == SH_OK) status = sh_json_bool(json, "normalized", where, &token.normalized, err);
    if (status == SH_OK) status = sh_json_bool(json, "lstrip", where, &token.lstrip, err);
    if (status == SH_OK) status = sh_json_bool(json, "rstrip", where, &token.rstrip, err);
    if (status == SH_OK) status = sh_json_bool(json, "single_word", where, &token.single_word, err);
    if (status != SH_OK) return sh_err_prefix(err, "added_tokens");
    token.content = sh_str_of(content);
    token.id = (int32_t)id;
    status = sh_tokenizer_add_token(tok, token, err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s: added_tokens", where);
}

static sh_status all_added_read(const cJSON *json, const char *where, sh_tokenizer *tok,
                                sh_err *err)
{
    const cJSON *item;
    if (json != NULL && !cJSON_IsArray(json) && !cJSON_IsNull(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'added_tokens' must be a list, not %s", where,
                          sh_json_kind(json));
    cJSON_ArrayForEach(item, json)
    {
        sh_status status = added_read(item, where, tok, err);
        if (status != SH_OK) return status;
    }
    sh_status status = sh_added_seal(&tok->added, err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s: added_tokens", where);
}

/* The ids of the post-processor are passed to the model as they are, so they must be tokens. */
static sh_status post_check(const sh_tokenizer *tok, const sh_ids *ids, const char *where,
                            sh_err *err)
{
    for (size_t i = 0; i < ids->len; i++)
        if (sh_tokenizer_piece(tok, ids->ptr[i]).ptr == NULL)
            return sh_err_set(err, SH_ERR_INPUT, "%s: post_processor: no token has id %d", where,
                              ids->ptr[i]);
    return SH_OK;
}

/* The order matters: added tokens need the normalizer and the vocabulary, and the ids of the
 * post-processor may be added tokens. */
sh_status sh_tokenizer_read(const cJSON *json, const char *where, sh_tokenizer *tok, sh_err *err)
{
    if (!cJSON_IsObject(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: must be an object, not %s", where,
                          sh_json_kind(json));
    const cJSON *normalizer = cJSON_GetObjectItemCaseSensitive(json, "normalizer");
    const cJSON *pre = cJSON_GetObjectItemCaseSensitive(json, "pre_tokenizer");
    const cJSON *post = cJSON_GetObjectItemCaseSensitive(json, "post_processor");
    const cJSON *decoder = cJSON_GetObjectItemCaseSensitive(json, "decoder");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(json, "model");
    const cJSON *added = cJSON_GetObjectItemCaseSensitive(json, "added_tokens");
    sh_status status = sh_normalizer_create(normalizer, where, &tok->normalizer, err);
    if (status == SH_OK) status = sh_pretokenizer_create(pre, where, &tok->pre, err);
    if (status == SH_OK) status = sh_postprocessor_read(post, where, &tok->post, err);
    if (status == SH_OK) status = sh_decoder_create(decoder, where, &tok->decoder, err);
    if (status == SH_OK) status = model_read(model, where, tok, err);
    if (status == SH_OK) status = all_added_read(added, where, tok, err);
    if (status == SH_OK) status = post_check(tok, &tok->post.before, where, err);
    if (status == SH_OK) status = post_check(tok, &tok->post.after, where, err);
    if (status == SH_OK) status = post_check(tok, &tok->post.pair_before, where, err);
    if (status == SH_OK) status = post_check(tok, &tok->post.between, where, err);
    if (status == SH_OK) status = post_check(tok, &tok->post.pair_after, where, err);
    return status;
}
