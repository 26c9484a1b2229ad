/* Encoding is a pipeline: added tokens that are matched in the raw text, the normalizer, added
 * tokens that are matched in normalized text, the pre-tokenizer, BPE. The order is that of the
 * tokenizers library and cannot be changed: a special token such as <|im_end|> must be found before
 * the normalizer or the pre-tokenizer can take it apart.
 *
 * All working memory is in the `encoder` of one call, so a tokenizer can be shared by any number of
 * threads without a lock. */
#include "text/tokenizer/tokenizer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* The working memory of one call of encode. */
typedef struct {
    const sh_tokenizer *tok;
    bool skip_special;
    sh_ids *out;
    sh_normalizer_scratch normalizer;
    sh_pretokenizer_scratch pre;
    sh_bpe_scratch bpe;
    sh_unigram_scratch unigram;
    sh_buf piece;
} encoder;

static sh_status encode_word(void *arg, sh_str word, sh_err *err)
{
    encoder *e = arg;
    const sh_tokenizer *tok = e->tok;
    if (word.len > (tok->unigram != NULL ? SH_UNIGRAM_WORD_MAX : SH_BPE_WORD_MAX))
        return sh_err_set(err, SH_ERR_LIMIT, "a word of %zu bytes is too long", word.len);
    if (tok->unigram != NULL)
        return sh_unigram_encode(tok->unigram, word, &e->unigram, e->out, err);
    if (tok->wordpiece != NULL)
        sh_wordpiece_encode(tok->wordpiece, word, &e->piece, e->out);
    else
        sh_bpe_encode(tok->bpe, word, &e->bpe, e->out);
    return SH_OK;
}

typedef sh_status (*encode_fn)(encoder *e, sh_str text, bool first, sh_err *err);

/* Splits the text at added tokens: passes the text between them to fn, and adds their ids. */
static sh_status encode_around(encoder *e, const sh_added_trie *trie, sh_str text, bool first,
                               encode_fn fn, sh_err *err)
{
    sh_added_walk walk = {.trie = trie, .text = text, .skip_special = e->skip_special};
    for (bool more = true; more;) {
        more = sh_added_next(&walk);
        if (walk.from < walk.first) {
            sh_str part = sh_str_sub(text, walk.from, walk.first - walk.from);
            sh_status status = fn(e, part, first && walk.from == 0, err);
            if (status != SH_OK) return status;
        }
        if (more) sh_ids_add(e->out, walk.token->id);
    }
    return SH_OK;
}

static sh_status encode_normalized(encoder *e, sh_str text, bool first, sh_err *err)
{
    return sh_pretokenizer_run(e->tok->pre, text, first, &e->pre, encode_word, e, err);
}

static sh_status encode_plain(encoder *e, sh_str text, bool first, sh_err *err)
{
    sh_status status = sh_normalizer_apply(e->tok->normalizer, text, &e->normalizer, &text, err);
    if (status != SH_OK) return status;
    return encode_around(e, e->tok->added.normalized, text, first, encode_normalized, err);
}

sh_status sh_tokenizer_encode(const sh_tokenizer *tok, sh_str text, sh_encode_opts opts,
                              sh_ids *out, sh_err *err)
{
    encoder e = {.tok = tok, .skip_special = !opts.parse_special, .out = out};
    size_t before = out->len;
    if (text.len > SH_ENCODE_TEXT_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "the text has %zu bytes, at most %d can be encoded",
                          text.len, SH_ENCODE_TEXT_MAX);
    size_t valid = sh_utf8_valid_prefix(text.ptr, text.len);
    if (valid < text.len)
        return sh_err_set(err, SH_ERR_INPUT, "the text is not valid UTF-8 at byte %zu", valid);
    if (opts.add_special) sh_ids_add_all(out, tok->post.before.ptr, tok->post.before.len);
    sh_status status = encode_around(&e, tok->added.raw, text, true, encode_plain, err);
    if (opts.add_special) sh_ids_add_all(out, tok->post.after.ptr, tok->post.after.len);
    /* All or nothing: the caller's list may hold other ids already. */
    if (status != SH_OK) out->len = before;
    sh_normalizer_scratch_reset(&e.normalizer);
    sh_pretokenizer_scratch_reset(&e.pre);
    sh_bpe_scratch_reset(&e.bpe);
    sh_unigram_scratch_reset(&e.unigram);
    sh_buf_reset(&e.piece);
    return status;
}

sh_status sh_tokenizer_encode_pair(const sh_tokenizer *tok, sh_str first, sh_str second,
                                   sh_ids *out, size_t *second_at, sh_err *err)
{
    const sh_postprocessor *post = &tok->post;
    sh_encode_opts plain = {0};
    size_t before = out->len;
    if (!post->pairs)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "the tokenizer does not say how to write a pair of texts");
    sh_ids_add_all(out, post->pair_before.ptr, post->pair_before.len);
    sh_status status = sh_tokenizer_encode(tok, first, plain, out, err);
    sh_ids_add_all(out, post->between.ptr, post->between.len);
    *second_at = out->len - before;
    if (status == SH_OK) status = sh_tokenizer_encode(tok, second, plain, out, err);
    sh_ids_add_all(out, post->pair_after.ptr, post->pair_after.len);
    if (status != SH_OK) out->len = before;
    return status;
}

sh_added_counts sh_tokenizer_added(const sh_tokenizer *tok, bool pair)
{
    const sh_postprocessor *post = &tok->post;
    if (!pair) return (sh_added_counts){.before = post->before.len, .after = post->after.len};
    return (sh_added_counts){post->pair_before.len, post->between.len, post->pair_after.len};
}

/* An added token takes precedence over the vocabulary, which may have the same id. */
sh_str sh_tokenizer_shown(const sh_tokenizer *tok, int32_t id, bool skip_special)
{
    const sh_added_token *added = sh_added_by_id(&tok->added, id);
    if (added == NULL) return sh_vocab_piece(&tok->vocab, id);
    return added->special && skip_special ? (sh_str){NULL, 0} : added->shown;
}

void sh_tokenizer_decode(const sh_tokenizer *tok, const int32_t *ids, size_t count,
                         bool skip_special, sh_buf *out)
{
    sh_decoder_state *state = sh_decoder_state_create(tok->decoder);
    for (size_t i = 0; i < count; i++) {
        sh_str piece = sh_tokenizer_shown(tok, ids[i], skip_special);
        if (piece.ptr != NULL) sh_decoder_push(state, piece, out);
    }
    sh_decoder_finish(state, out);
    sh_decoder_state_free(state);
}

/* Added tokens are sorted by id, so the last one has the largest. */
int32_t sh_tokenizer_size(const sh_tokenizer *tok)
{
    const sh_added *added = &tok->added;
    int32_t last = added->count == 0 ? -1 : added->tokens[added->count - 1].id;
    return last >= tok->vocab.size ? last + 1 : tok->vocab.size;
}

sh_str sh_tokenizer_piece(const sh_tokenizer *tok, int32_t id)
{
    const sh_added_token *added = sh_added_by_id(&tok->added, id);
    return added != NULL ? added->content : sh_vocab_piece(&tok->vocab, id);
}

int32_t sh_tokenizer_id(const sh_tokenizer *tok, sh_str piece)
{
    const sh_added_token *added = sh_added_by_content(&tok->added, piece);
    return added != NULL ? added->id : sh_vocab_find(&tok->vocab, piece);
}

void sh_tokenizer_bytes(const sh_tokenizer *tok, int32_t id, sh_buf *out)
{
    sh_str piece = sh_tokenizer_shown(tok, id, false);
    if (piece.ptr != NULL) sh_decoder_bytes(tok->decoder, piece, out);
}

bool sh_tokenizer_is_special(const sh_tokenizer *tok, int32_t id)
{
    const sh_added_token *added = sh_added_by_id(&tok->added, id);
    return added != NULL && added->special;
}

int32_t sh_tokenizer_named(const sh_tokenizer *tok, sh_token_name name)
{
    return tok->named[name];
}

sh_status sh_tokenizer_add_token(sh_tokenizer *tok, sh_added_token token, sh_err *err)
{
    int32_t id = sh_vocab_find(&tok->vocab, token.content);
    sh_str piece = sh_vocab_piece(&tok->vocab, token.id);
    if (id >= 0 && id != token.id)
        return sh_err_set(err, SH_ERR_INPUT, "'%s' appears twice, with ids %d and %d",
                          token.content.ptr, id, token.id);
    if (id < 0 && piece.ptr != NULL)
        return sh_err_set(err, SH_ERR_INPUT, "id %d is assigned to both '%s' and '%s'", token.id,
                          piece.ptr, token.content.ptr);
    sh_normalizer_scratch scratch = {0};
    sh_status status = SH_OK;
    token.shown = token.content;
    if (token.normalized)
        status = sh_normalizer_apply(tok->normalizer, token.content, &scratch, &token.shown, err);
    if (status == SH_OK) sh_added_add(&tok->added, &token);
    sh_normalizer_scratch_reset(&scratch);
    return status;
}

void sh_tokenizer_free(sh_tokenizer *tok)
{
    if (tok == NULL) return;
    sh_bpe_free(tok->bpe);
    sh_unigram_free(tok->unigram);
    if (tok->wordpiece != NULL) free(tok->wordpiece->prefix);
    free(tok->wordpiece);
    sh_vocab_reset(&tok->vocab);
    sh_added_reset(&tok->added);
    sh_normalizer_free(tok->normalizer);
    sh_pretokenizer_free(tok->pre);
    sh_postprocessor_reset(&tok->post);
    sh_decoder_free(tok->decoder);
    free(tok);
}

static sh_tokenizer *tokenizer_new(void)
{
    sh_tokenizer *tok = sh_alloc(sizeof(*tok));
    for (int i = 0; i < SH_TOKEN_NAMES; i++) tok->named[i] = -1;
    return tok;
}

sh_status sh_tokenizer_parse(sh_str json, const char *where, sh_tokenizer **out, sh_err *err)
{
    cJSON *root = NULL;
    sh_tokenizer *tok = tokenizer_new();
    sh_status status = sh_json_parse(json, where, &root, err);
    if (status == SH_OK) status = sh_tokenizer_read(root, where, tok, err);
    cJSON_Delete(root);
    if (status == SH_OK)
        *out = tok;
    else
        sh_tokenizer_free(tok);
    return status;
}

/* "bos_token": "<s>", or an object with the "content" "<s>". */
static void names_read(const cJSON *config, sh_tokenizer *tok)
{
    static const char *const keys[SH_TOKEN_NAMES] = {"bos_token", "eos_token", "pad_token",
                                                     "unk_token"};
    for (int i = 0; i < SH_TOKEN_NAMES; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, keys[i]);
        if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
        if (cJSON_IsString(item))
            tok->named[i] = sh_tokenizer_id(tok, sh_str_of(item->valuestring));
    }
}

static sh_status load_tiktoken(const char *path, const cJSON *config, sh_tokenizer *tok,
                               sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, SH_TOKENIZER_FILE_MAX, &text, err);
    if (status == SH_OK) status = sh_tiktoken_read(sh_buf_str(&text), config, path, tok, err);
    sh_buf_reset(&text);
    return status;
}

static sh_status load_json(const char *path, sh_tokenizer *tok, sh_err *err)
{
    cJSON *json = NULL;
    sh_status status = sh_json_load(path, SH_TOKENIZER_FILE_MAX, &json, err);
    if (status == SH_OK) status = sh_tokenizer_read(json, path, tok, err);
    cJSON_Delete(json);
    return status;
}

/* The vocabulary file of a model's folder, or the path itself if it is not a folder; NULL for a
 * folder without such a file. The caller frees it. */
static char *vocabulary_path(const char *path)
{
    static const char *const names[] = {"tokenizer.json", "tiktoken.model", "qwen.tiktoken"};
    char *file = NULL;
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        file = sh_path_join(path, names[i]);
        if (sh_file_exists(file)) return file;
        free(file);
    }
    /* "PATH/." exists only if PATH is a folder. */
    file = sh_path_join(path, ".");
    bool folder = sh_file_exists(file);
    free(file);
    return folder ? NULL : sh_strdup(path);
}

/* Loads the tokenizer_config.json of the same folder; *out stays NULL if there is none. */
static sh_status config_load(const char *path, cJSON **out, sh_err *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? sh_strdup(".") : sh_strndup(path, (size_t)(slash - path) + 1);
    char *file = sh_path_join(dir, "tokenizer_config.json");
    sh_status status = SH_OK;
    if (sh_file_exists(file)) status = sh_json_load(file, SH_TOKENIZER_FILE_MAX, out, err);
    free(dir);
    free(file);
    return status;
}

sh_status sh_tokenizer_load(const char *path, sh_tokenizer **out, sh_err *err)
{
    char *file = vocabulary_path(path);
    cJSON *config = NULL;
    if (file == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "%s: found neither tokenizer.json nor tiktoken.model", path);
    sh_tokenizer *tok = tokenizer_new();
    sh_status status = config_load(file, &config, err);
    bool json = sh_str_ends(sh_str_of(file), SH_STR(".json"));
    if (status == SH_OK)
        status = json ? load_json(file, tok, err) : load_tiktoken(file, config, tok, err);
    if (status == SH_OK) {
        names_read(config, tok);
        *out = tok;
    } else {
        sh_tokenizer_free(tok);
    }
    cJSON_Delete(config);
    free(file);
    return status;
}
