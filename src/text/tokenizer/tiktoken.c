/* Reads tiktoken files: a line for each token, with its bytes in base64 and its rank, which is also
 * its id.
 *
 * There is no list of merges: two adjacent pieces may be merged if their concatenation is a token,
 * lowest rank first. We turn that into explicit merges, one for each way to split a token into two
 * tokens, with the rank of the whole; so bpe.c needs to know only one kind of vocabulary.
 *
 * The pattern that splits words is not in the file; it depends on the tokenizer's class, and so do
 * the special tokens that follow the vocabulary. */
#include "base/base64.h"
#include "text/tokenizer/tokenizer_internal.h"

#include "text/tokenizer/unicode.h"

#include <string.h>

enum { KIMI_RESERVED = 256, QWEN_EXTRA = 205 };

#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PATTERN_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K_PATTERN ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" PATTERN_TAIL
#define QWEN_PATTERN ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" PATTERN_TAIL
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_PATTERN                                                                               \
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" ENDINGS "?"                 \
    "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" ENDINGS "?|\\p{N}{1,3}" PATTERN_TAIL

typedef struct {
    const char *class_name;
    const char *pattern;
    bool nfc;
    const char *const *names; /* special tokens after the vocabulary, NULL at the end */
    const char *reserved;     /* prefix of further ones, followed by a number */
    bool reserved_by_id;      /* the number is the id instead of a count from 0 */
    int reserved_count;
} tiktoken_family;

static const char *const qwen_names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};
static const char *const no_names[] = {NULL};

/* The last row is the default. */
static const tiktoken_family families[] = {
    {"TikTokenTokenizer", KIMI_PATTERN, false, no_names, "<|reserved_token_", true, KIMI_RESERVED},
    {"QWenTokenizer", QWEN_PATTERN, true, qwen_names, "<|extra_", false, QWEN_EXTRA},
    {"", CL100K_PATTERN, false, no_names, "", false, 0},
};

/* By the class named in tokenizer_config.json. */
static const tiktoken_family *family_of(const cJSON *config)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class");
    size_t i = 0;
    while (i + 1 < SH_COUNT_OF(families) &&
           !(cJSON_IsString(item) && strcmp(item->valuestring, families[i].class_name) == 0))
        i++;
    return &families[i];
}

static sh_status line_read(sh_str line, sh_vocab *vocab, sh_buf *bytes, sh_buf *piece, sh_err *err)
{
    sh_str code;
    int64_t rank;
    sh_buf_clear(bytes);
    sh_buf_clear(piece);
    if (!sh_str_cut(&line, ' ', &code) || !sh_str_to_int(line, &rank) ||
        !sh_base64_decode(code, bytes) || bytes->len == 0)
        return sh_err_set(err, SH_ERR_INPUT, "expected a token in base64 and a rank");
    sh_bytelevel_encode(sh_buf_str(bytes), piece);
    return sh_vocab_add(vocab, sh_buf_str(piece), rank, err);
}

static sh_status lines_read(sh_str text, const char *where, sh_vocab *vocab, sh_err *err)
{
    sh_str line;
    sh_buf bytes = {0}, piece = {0};
    sh_status status = SH_OK;
    sh_vocab_init(vocab, text.len / 16);
    for (int number = 1; status == SH_OK && sh_str_cut(&text, '\n', &line); number++) {
        line = sh_str_trim(line);
        if (line.len > 0) status = line_read(line, vocab, &bytes, &piece, err);
        if (status != SH_OK) sh_err_prefix(err, "%s: line %d", where, number);
    }
    sh_buf_reset(&bytes);
    sh_buf_reset(&piece);
    return status;
}

/* In the byte-level alphabet each byte is a character of one or two bytes; split only between
 * characters. */
static void merges_of(sh_tokenizer *tok, int32_t id)
{
    sh_str piece = sh_vocab_piece(&tok->vocab, id);
    for (size_t at = 1; at < piece.len; at++) {
        if (((unsigned char)piece.ptr[at] & 0xc0) == 0x80) continue;
        int32_t left = sh_vocab_find(&tok->vocab, sh_str_sub(piece, 0, at));
        if (left < 0) continue;
        int32_t right = sh_vocab_find(&tok->vocab, sh_str_sub(piece, at, piece.len));
        if (right >= 0) sh_bpe_add_merge(tok->bpe, left, right, (uint32_t)id, id);
    }
}

/* With a token for every byte any text can be encoded, so there is no unk token. */
static sh_status bytes_check(const sh_vocab *vocab, const char *where, sh_err *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        size_t len = (size_t)sh_utf8_encode(sh_bytelevel_char((uint8_t)byte), text);
        if (sh_vocab_find(vocab, (sh_str){text, len}) < 0)
            return sh_err_set(err, SH_ERR_INPUT, "%s: no token for byte 0x%02x", where, byte);
    }
    return SH_OK;
}

/* The special tokens of tokenizer_config.json: {"163584": {"content": "[BOS]", ...}, ...}. */
static sh_status config_tokens(const cJSON *config, sh_tokenizer *tok, sh_err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder"))
    {
        const char *content = NULL;
        int64_t id;
        sh_added_token token = {.special = true};
        const char *where = "tokenizer_config.json: added_tokens_decoder";
        if (!sh_str_to_int(sh_str_of(item->string), &id) || id < 0 || id >= SH_VOCAB_MAX)
            return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' is not a token id", where, item->string);
        sh_status status = sh_json_string_required(item, "content", where, &content, err);
        if (status == SH_OK) status = sh_json_bool(item, "special", where, &token.special, err);
        if (status == SH_OK) status = sh_json_bool(item, "lstrip", where, &token.lstrip, err);
        if (status == SH_OK) status = sh_json_bool(item, "rstrip", where, &token.rstrip, err);
        if (status != SH_OK) return status;
        token.content = sh_str_of(content);
        token.id = (int32_t)id;
        status = sh_tokenizer_add_token(tok, token, err);
        if (status != SH_OK) return sh_err_prefix(err, "%s", where);
    }
    return SH_OK;
}

static bool has_id(const sh_added *added, size_t count, int32_t id)
{
    for (size_t i = 0; i < count; i++)
        if (added->tokens[i].id == id) return true;
    return false;
}

/* The family's own special tokens, starting with the first id after the vocabulary. Ids that
 * tokenizer_config.json has defined keep that definition. */
static sh_status family_tokens(const tiktoken_family *family, sh_tokenizer *tok, sh_err *err)
{
    size_t from_config = tok->added.count;
    int32_t id = tok->vocab.size;
    sh_buf name = {0};
    sh_status status = SH_OK;
    int named = 0;
    while (family->names[named] != NULL) named++;
    for (int i = 0; i < named + family->reserved_count && status == SH_OK; i++, id++) {
        if (has_id(&tok->added, from_config, id)) continue;
        sh_buf_clear(&name);
        if (i < named)
            sh_buf_add_text(&name, family->names[i]);
        else
            sh_buf_addf(&name, "%s%d|>", family->reserved, family->reserved_by_id ? id : i - named);
        sh_added_token token = {.content = sh_buf_str(&name), .id = id, .special = true};
        status = sh_tokenizer_add_token(tok, token, err);
    }
    sh_buf_reset(&name);
    return status;
}

sh_status sh_tiktoken_read(sh_str text, const cJSON *config, const char *where, sh_tokenizer *tok,
                           sh_err *err)
{
    const tiktoken_family *family = family_of(config);
    const sh_bpe_opts opts = {.unk_id = -1, .ignore_merges = true};
    sh_status status = lines_read(text, where, &tok->vocab, err);
    if (status == SH_OK) status = bytes_check(&tok->vocab, where, err);
    if (status != SH_OK) return status;
    tok->bpe = sh_bpe_create(&tok->vocab, &opts, (size_t)tok->vocab.size * 2);
    for (int32_t id = 0; id < tok->vocab.size; id++) merges_of(tok, id);
    tok->decoder = sh_decoder_create_bytes();
    if (family->nfc)
        tok->normalizer = sh_normalizer_create_form(SH_UNICODE_NFC);
    else
        status = sh_normalizer_create(NULL, where, &tok->normalizer, err);
    if (status == SH_OK)
        status = sh_pretokenizer_create_bytes(sh_str_of(family->pattern), &tok->pre, err);
    if (status == SH_OK) status = config_tokens(config, tok, err);
    if (status == SH_OK) status = family_tokens(family, tok, err);
    if (status == SH_OK) status = sh_added_seal(&tok->added, err);
    return status;
}
