/* The decoders of the tokenizers library, rewritten as streams.
 *
 * The reference decodes a complete list of tokens at once, one stage after the other. We need the
 * text while tokens arrive, and it must be the same text: a client that concatenates the deltas has
 * to get what decoding the whole answer gives. So each stage answers one question: how much of what
 * I have seen can no later token change? That much it passes on, the rest it holds back.
 *  - ByteLevel holds the bytes of an incomplete character.
 *  - ByteFallback holds a run of byte tokens, because one invalid byte turns all of them to U+FFFD.
 *  - Strip holds characters that might be the last ones, Replace what may be the start of a match.
 *  - BPEDecoder holds one token, since the last one is treated differently.
 *
 * Stages are chained by recursion: feed(idx + 1) passes text on, and finish() ends the stages in
 * order, so that what one of them releases still runs through the next. */
#include "text/tokenizer/decoder.h"

#include "base/alloc.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT SH_STR("\xef\xbf\xbd")

typedef struct stage stage;

/* A token reaches a stage in one or more chunks; `end` marks the last one. A stage that fuses
 * tokens sets no `end` until the stream is finished. Chunks contain complete characters. */
typedef struct {
    void (*feed)(sh_decoder_state *state, size_t idx, sh_str chunk, bool end);
    void (*finish)(sh_decoder_state *state, size_t idx); /* NULL: the stage holds nothing back */
    /* Applies the stage to a single token; false: the result is raw bytes, skip later stages. */
    bool (*bytes)(const stage *st, sh_str piece, sh_buf *out);
} stage_ops;

struct stage {
    const stage_ops *ops;
    sh_pattern pattern;
    char *content;
    uint32_t code;
    int64_t start, stop; /* Strip: the number of characters, at most */
    bool drops_first;    /* Metaspace: remove the marks of the first token */
    bool cleanup;        /* WordPiece: draw marks to the word before */
};

struct sh_decoder {
    stage *stages;
    size_t count;
};

typedef struct {
    sh_buf held;   /* the start of a token, or what a later token may change */
    sh_buf bytes;  /* of tokens that represent bytes */
    sh_buf text;   /* scratch for what is passed on */
    size_t count;  /* depends on the stage: tokens seen, bytes known valid, characters held */
    int64_t taken; /* Strip: characters removed from the front */
    bool flag;     /* depends on the stage */
} stage_state;

struct sh_decoder_state {
    const sh_decoder *decoder;
    sh_buf *out; /* of the current call */
    sh_regex_scratch regex;
    stage_state stages[];
};

static void feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    if (idx == state->decoder->count)
        sh_buf_add_str(state->out, chunk);
    else
        state->decoder->stages[idx].ops->feed(state, idx, chunk, end);
}

/* In order: what a stage releases now still passes through those after it. */
static void finish(sh_decoder_state *state, size_t idx)
{
    if (idx == state->decoder->count) return;
    const stage_ops *ops = state->decoder->stages[idx].ops;
    if (ops->finish != NULL) ops->finish(state, idx);
    finish(state, idx + 1);
}

/* The complete token, when its last chunk has arrived. */
static sh_str token_whole(stage_state *own, sh_str chunk)
{
    if (own->held.len == 0) return chunk;
    sh_buf_add_str(&own->held, chunk);
    return sh_buf_str(&own->held);
}

/* A pattern that exceeds its limits on a token leaves it unchanged, since decoding cannot fail. */
static void replace(const stage *st, sh_str text, sh_str with, sh_regex_scratch *scratch,
                    sh_buf *out)
{
    sh_err err;
    size_t before = out->len;
    if (sh_pattern_replace(&st->pattern, text, with, scratch, out, &err) == SH_OK) return;
    out->len = before;
    sh_buf_add_str(out, text);
}

/* Bytes at the end of the text that may be the start of the literal. */
static size_t literal_tail(const sh_pattern *pattern, sh_str text)
{
    size_t len = pattern->literal_len == 0 ? 0 : pattern->literal_len - 1;
    if (len > text.len) len = text.len;
    while (len > 0 && memcmp(text.ptr + text.len - len, pattern->literal, len) != 0) len--;
    return len;
}

/* How many bytes of an incomplete token must be held back: those after the last match that may be
 * the start of another. For a regular expression that is unknown, so all of them. */
static size_t replace_hold(const sh_pattern *pattern, sh_str text)
{
    size_t from = 0, at;
    if (pattern->literal_len == 0) return text.len;
    sh_str literal = {pattern->literal, pattern->literal_len};
    while ((at = sh_str_find(text, literal, from)) < text.len) from = at + literal.len;
    return literal_tail(pattern, sh_str_sub(text, from, text.len));
}

/* A Replace never matches across tokens, unless a stage before it has fused them. */
static void replace_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    const stage *st = &state->decoder->stages[idx];
    stage_state *own = &state->stages[idx];
    sh_buf_add_str(&own->held, chunk);
    sh_str text = sh_buf_str(&own->held);
    text.len -= end ? 0 : replace_hold(&st->pattern, text);
    sh_buf_clear(&own->text);
    replace(st, text, sh_str_of(st->content), &state->regex, &own->text);
    sh_buf_drop_front(&own->held, text.len);
    feed(state, idx + 1, sh_buf_str(&own->text), end);
}

static bool replace_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    sh_regex_scratch scratch = {0};
    replace(st, piece, sh_str_of(st->content), &scratch, out);
    sh_regex_scratch_reset(&scratch);
    return true;
}

/* ByteLevel: tokens are bytes in the byte-level alphabet. */

/* Length of the invalid sequence at the start of the text: the bytes that could begin a character,
 * at least one. *cut is set if more text could still complete it. */
static size_t broken_len(sh_str text, bool *cut)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    unsigned char low = 0x80, high = 0xbf;
    size_t need = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : p[0] < 0xf5 ? 3 : 0;
    if (p[0] == 0xe0) low = 0xa0;
    if (p[0] == 0xed) high = 0x9f;
    if (p[0] == 0xf0) low = 0x90;
    if (p[0] == 0xf4) high = 0x8f;
    size_t len = 1;
    while (len <= need && len < text.len && p[len] >= low && p[len] <= high) {
        low = 0x80;
        high = 0xbf;
        len++;
    }
    *cut = need > 0 && len == text.len;
    return len;
}

/* Appends the bytes as text, with a U+FFFD for each invalid sequence (as Rust's from_utf8_lossy()).
 * An incomplete character at the end stays in `bytes`, unless this is the end of the stream. */
static void lossy(sh_buf *bytes, bool end, sh_buf *out)
{
    size_t at = 0;
    while (at < bytes->len) {
        size_t valid = sh_utf8_valid_prefix(bytes->ptr + at, bytes->len - at);
        sh_buf_add(out, bytes->ptr + at, valid);
        at += valid;
        if (at == bytes->len) break;
        bool cut;
        size_t broken = broken_len((sh_str){bytes->ptr + at, bytes->len - at}, &cut);
        if (cut && !end) break;
        sh_buf_add_str(out, REPLACEMENT);
        at += broken;
    }
    sh_buf_drop_front(bytes, at);
}

/* A character may be spread over several tokens, so bytes are collected across them, and no later
 * stage sees where a token ends: only the stream has an end. */
static void bytes_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    stage_state *own = &state->stages[idx];
    if (!end) {
        sh_buf_add_str(&own->held, chunk);
        return;
    }
    sh_str token = token_whole(own, chunk);
    if (!sh_bytelevel_decode(token, &own->bytes)) sh_buf_add_str(&own->bytes, token);
    sh_buf_clear(&own->held);
    sh_buf_clear(&own->text);
    lossy(&own->bytes, false, &own->text);
    feed(state, idx + 1, sh_buf_str(&own->text), false);
}

static void bytes_finish(sh_decoder_state *state, size_t idx)
{
    stage_state *own = &state->stages[idx];
    sh_buf_clear(&own->text);
    lossy(&own->bytes, true, &own->text);
    feed(state, idx + 1, sh_buf_str(&own->text), true);
}

static bool bytes_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    (void)st;
    if (!sh_bytelevel_decode(piece, out)) sh_buf_add_str(out, piece);
    return false;
}

/* ByteFallback: tokens such as <0x0A> are bytes, all others are text. */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of a token such as <0x0A>; -1 for other tokens. */
static int byte_token(sh_str token)
{
    if (token.len != 6 || !sh_str_starts(token, SH_STR("<0x")) || token.ptr[5] != '>') return -1;
    int high = hex_value(token.ptr[3]), low = hex_value(token.ptr[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* A run of byte tokens is text if all of it is valid UTF-8; otherwise each byte becomes a U+FFFD.
 * So a run is held until its end, unless it is known to be invalid (flag). */
static void fallback_flush(sh_decoder_state *state, size_t idx, bool end)
{
    stage_state *own = &state->stages[idx];
    own->count += sh_utf8_valid_prefix(own->bytes.ptr + own->count, own->bytes.len - own->count);
    bool cut = true;
    if (own->count < own->bytes.len)
        broken_len((sh_str){own->bytes.ptr + own->count, own->bytes.len - own->count}, &cut);
    own->flag = own->flag || !cut || (end && own->count < own->bytes.len);
    if (!end && !own->flag) return;
    if (own->flag)
        for (size_t i = 0; i < own->bytes.len; i++) feed(state, idx + 1, REPLACEMENT, true);
    else
        feed(state, idx + 1, sh_buf_str(&own->bytes), true);
    sh_buf_clear(&own->bytes);
    own->count = 0;
    if (end) own->flag = false;
}

static void fallback_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    stage_state *own = &state->stages[idx];
    if (!end) {
        sh_buf_add_str(&own->held, chunk);
        return;
    }
    sh_str token = token_whole(own, chunk);
    int byte = byte_token(token);
    if (byte >= 0) {
        sh_buf_add_char(&own->bytes, (char)byte);
        fallback_flush(state, idx, false);
    } else {
        if (own->bytes.len > 0 || own->flag) fallback_flush(state, idx, true);
        feed(state, idx + 1, token, true);
    }
    sh_buf_clear(&own->held);
}

static void fallback_finish(sh_decoder_state *state, size_t idx)
{
    stage_state *own = &state->stages[idx];
    if (own->bytes.len > 0 || own->flag) fallback_flush(state, idx, true);
}

static bool fallback_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    (void)st;
    int byte = byte_token(piece);
    if (byte < 0)
        sh_buf_add_str(out, piece);
    else
        sh_buf_add_char(out, (char)byte);
    return byte < 0;
}

/* Makes the whole stream one token: the end is reported once, when the stream is finished. */
static void fuse_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    (void)end;
    feed(state, idx + 1, chunk, false);
}

static void fuse_finish(sh_decoder_state *state, size_t idx)
{
    feed(state, idx + 1, SH_STR(""), true);
}

static bool keep_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    (void)st;
    sh_buf_add_str(out, piece);
    return true;
}

/* Releases held characters until only `keep` are left, which may still be stripped. */
static void strip_release(const stage *st, stage_state *own, size_t keep)
{
    for (; own->count > keep; own->count--) sh_buf_add_utf8(&own->text, st->code);
}

/* Removes up to `start` characters at the front at once. At the end up to `stop` characters are
 * held, since only `end` shows that they are the last ones. */
static void strip_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    const stage *st = &state->decoder->stages[idx];
    stage_state *own = &state->stages[idx];
    int len;
    sh_buf_clear(&own->text);
    for (size_t i = 0; i < chunk.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(chunk, i, chunk.len), &len);
        bool same = code == st->code;
        if (same && !own->flag && own->taken < st->start) {
            own->taken++;
            continue;
        }
        own->flag = true; /* past the front */
        if (same) {
            own->count++;
            strip_release(st, own, (size_t)st->stop);
        } else {
            strip_release(st, own, 0);
            sh_buf_add_utf8(&own->text, code);
        }
    }
    if (end) {
        own->count = 0;
        own->taken = 0;
        own->flag = false;
    }
    feed(state, idx + 1, sh_buf_str(&own->text), end);
}

/* The mark is a space, but the first token of the stream loses its marks if encoding added one. */
static void metaspace_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    const stage *st = &state->decoder->stages[idx];
    stage_state *own = &state->stages[idx];
    bool drop = own->count == 0 && st->drops_first;
    int len;
    sh_buf_clear(&own->text);
    for (size_t i = 0; i < chunk.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(chunk, i, chunk.len), &len);
        if (code != st->code)
            sh_buf_add_utf8(&own->text, code);
        else if (!drop)
            sh_buf_add_char(&own->text, ' ');
    }
    if (end) own->count = 1;
    feed(state, idx + 1, sh_buf_str(&own->text), end);
}

static void count_finish(sh_decoder_state *state, size_t idx)
{
    state->stages[idx].count = 0;
}

static bool metaspace_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    int len;
    for (size_t i = 0; i < piece.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(piece, i, piece.len), &len);
        sh_buf_add_utf8(out, code == st->code ? ' ' : code);
    }
    return true;
}

/* The suffix of a word's last token becomes a space, or nothing at the end of the text: so a token
 * is held until the next one arrives. */
static void suffix_flush(sh_decoder_state *state, size_t idx, const char *with)
{
    stage_state *own = &state->stages[idx];
    if (!own->flag) return;
    sh_buf_clear(&own->text);
    replace(&state->decoder->stages[idx], sh_buf_str(&own->bytes), sh_str_of(with), &state->regex,
            &own->text);
    sh_buf_clear(&own->bytes);
    own->flag = false;
    feed(state, idx + 1, sh_buf_str(&own->text), true);
}

static void suffix_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    stage_state *own = &state->stages[idx];
    sh_buf_add_str(&own->held, chunk);
    if (!end) return;
    suffix_flush(state, idx, " ");
    sh_buf_add_str(&own->bytes, sh_buf_str(&own->held));
    sh_buf_clear(&own->held);
    own->flag = true;
}

static void suffix_finish(sh_decoder_state *state, size_t idx)
{
    suffix_flush(state, idx, "");
}

static bool suffix_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    sh_regex_scratch scratch = {0};
    replace(st, piece, SH_STR(" "), &scratch, out);
    return true;
}

/* WordPiece: a token that starts a word gets a space before it, the others lose their prefix. A few
 * English contractions and marks are then drawn to the word before, token by token. */
static void wordpiece_write(const stage *st, sh_str token, bool first, sh_buf *out)
{
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    sh_str prefix = {st->pattern.literal, st->pattern.literal_len};
    sh_buf text = {0}, next = {0};
    if (!first && sh_str_starts(token, prefix))
        token = sh_str_sub(token, prefix.len, token.len);
    else if (!first)
        sh_buf_add_char(&text, ' ');
    sh_buf_add_str(&text, token);
    for (size_t i = 0; st->cleanup && i < SH_COUNT_OF(pairs); i++) {
        sh_str rest = sh_buf_str(&text), find = sh_str_of(pairs[i][0]);
        sh_buf_clear(&next);
        for (size_t at; (at = sh_str_find(rest, find, 0)) < rest.len;) {
            sh_buf_add_str(&next, sh_str_sub(rest, 0, at));
            sh_buf_add_text(&next, pairs[i][1]);
            rest = sh_str_sub(rest, at + find.len, rest.len);
        }
        sh_buf_add_str(&next, rest);
        sh_buf_clear(&text);
        sh_buf_add_str(&text, sh_buf_str(&next));
    }
    sh_buf_add_str(out, sh_buf_str(&text));
    sh_buf_reset(&text);
    sh_buf_reset(&next);
}

static void wordpiece_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    stage_state *own = &state->stages[idx];
    if (!end) {
        sh_buf_add_str(&own->held, chunk);
        return;
    }
    sh_buf_clear(&own->text);
    wordpiece_write(&state->decoder->stages[idx], token_whole(own, chunk), own->count == 0,
                    &own->text);
    own->count = 1;
    sh_buf_clear(&own->held);
    feed(state, idx + 1, sh_buf_str(&own->text), true);
}

static bool wordpiece_bytes(const stage *st, sh_str piece, sh_buf *out)
{
    wordpiece_write(st, piece, false, out);
    return true;
}

/* Without a decoder in the file tokens are joined by spaces. */
static void join_feed(sh_decoder_state *state, size_t idx, sh_str chunk, bool end)
{
    stage_state *own = &state->stages[idx];
    if (own->count > 0) feed(state, idx + 1, SH_STR(" "), false);
    own->count = 1;
    feed(state, idx + 1, chunk, end);
}

static const stage_ops replace_ops = {replace_feed, NULL, replace_bytes};
static const stage_ops bytes_ops = {bytes_feed, bytes_finish, bytes_bytes};
static const stage_ops fallback_ops = {fallback_feed, fallback_finish, fallback_bytes};
static const stage_ops fuse_ops = {fuse_feed, fuse_finish, keep_bytes};
static const stage_ops strip_ops = {strip_feed, NULL, keep_bytes};
static const stage_ops metaspace_ops = {metaspace_feed, count_finish, metaspace_bytes};
static const stage_ops suffix_ops = {suffix_feed, suffix_finish, suffix_bytes};
static const stage_ops wordpiece_ops = {wordpiece_feed, count_finish, wordpiece_bytes};
static const stage_ops join_ops = {join_feed, count_finish, keep_bytes};

/* Reading the file. */

static stage *stage_add(sh_decoder *d, const stage_ops *ops)
{
    d->stages = sh_realloc_array(d->stages, d->count + 1, sizeof(*d->stages));
    d->stages[d->count] = (stage){.ops = ops};
    return &d->stages[d->count++];
}

/* For types without any settings. */
static sh_status read_plain(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    (void)json, (void)where, (void)err;
    stage_add(to, arg);
    return SH_OK;
}

static sh_status read_replace(void *to, const void *arg, const cJSON *json, const char *where,
                              sh_err *err)
{
    const char *content = NULL;
    sh_status status = sh_json_string_required(json, "content", where, &content, err);
    if (status != SH_OK) return status;
    stage *st = stage_add(to, arg);
    st->content = sh_strdup(content);
    return sh_pattern_read(json, where, &st->pattern, err);
}

static sh_status read_strip(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    const int64_t most = 1 << 20;
    stage *st = stage_add(to, arg);
    st->code = ' ';
    sh_status status = sh_component_char(json, "content", where, &st->code, err);
    if (status == SH_OK) status = sh_json_int(json, "start", where, 0, most, &st->start, err);
    if (status == SH_OK) status = sh_json_int(json, "stop", where, 0, most, &st->stop, err);
    return status;
}

static sh_status read_metaspace(void *to, const void *arg, const cJSON *json, const char *where,
                                sh_err *err)
{
    const char *scheme = "always";
    bool space = true;
    stage *st = stage_add(to, arg);
    st->code = 0x2581;
    sh_status status = sh_component_char(json, "replacement", where, &st->code, err);
    if (status == SH_OK) status = sh_json_bool(json, "add_prefix_space", where, &space, err);
    if (status == SH_OK) status = sh_json_string(json, "prepend_scheme", where, &scheme, err);
    st->drops_first = space && strcmp(scheme, "never") != 0;
    return status;
}

static sh_status read_suffix(void *to, const void *arg, const cJSON *json, const char *where,
                             sh_err *err)
{
    const char *suffix = "</w>";
    sh_status status = sh_json_string(json, "suffix", where, &suffix, err);
    if (status != SH_OK) return status;
    stage *st = stage_add(to, arg);
    st->pattern.literal = sh_strdup(suffix);
    st->pattern.literal_len = strlen(suffix);
    return SH_OK;
}

static sh_status read_wordpiece(void *to, const void *arg, const cJSON *json, const char *where,
                                sh_err *err)
{
    const char *prefix = "##";
    stage *st = stage_add(to, arg);
    st->cleanup = true;
    sh_status status = sh_json_string(json, "prefix", where, &prefix, err);
    if (status == SH_OK) status = sh_json_bool(json, "cleanup", where, &st->cleanup, err);
    st->pattern.literal = sh_strdup(prefix);
    st->pattern.literal_len = strlen(prefix);
    return status;
}

static const sh_component_kind kinds[] = {
    {"ByteLevel", read_plain, &bytes_ops},    {"ByteFallback", read_plain, &fallback_ops},
    {"Fuse", read_plain, &fuse_ops},          {"Replace", read_replace, &replace_ops},
    {"Strip", read_strip, &strip_ops},        {"Metaspace", read_metaspace, &metaspace_ops},
    {"BPEDecoder", read_suffix, &suffix_ops}, {"WordPiece", read_wordpiece, &wordpiece_ops},
};

static const sh_component_family family = {"decoder", "decoders", kinds, SH_COUNT_OF(kinds)};

sh_status sh_decoder_create(const cJSON *json, const char *where, sh_decoder **out, sh_err *err)
{
    sh_decoder *d = sh_alloc(sizeof(*d));
    if (json == NULL || cJSON_IsNull(json)) stage_add(d, &join_ops);
    sh_status status = sh_component_read(json, &family, d, where, err);
    if (status != SH_OK)
        sh_decoder_free(d);
    else
        *out = d;
    return status;
}

sh_decoder *sh_decoder_create_bytes(void)
{
    sh_decoder *d = sh_alloc(sizeof(*d));
    stage_add(d, &bytes_ops);
    return d;
}

void sh_decoder_free(sh_decoder *d)
{
    if (d == NULL) return;
    for (size_t i = 0; i < d->count; i++) {
        sh_pattern_reset(&d->stages[i].pattern);
        free(d->stages[i].content);
    }
    free(d->stages);
    free(d);
}

sh_decoder_state *sh_decoder_state_create(const sh_decoder *decoder)
{
    sh_decoder_state *state = sh_alloc(sizeof(*state) + decoder->count * sizeof(state->stages[0]));
    state->decoder = decoder;
    return state;
}

void sh_decoder_state_free(sh_decoder_state *state)
{
    if (state == NULL) return;
    for (size_t i = 0; i < state->decoder->count; i++) {
        sh_buf_reset(&state->stages[i].held);
        sh_buf_reset(&state->stages[i].bytes);
        sh_buf_reset(&state->stages[i].text);
    }
    sh_regex_scratch_reset(&state->regex);
    free(state);
}

void sh_decoder_push(sh_decoder_state *state, sh_str piece, sh_buf *out)
{
    state->out = out;
    feed(state, 0, piece, true);
}

void sh_decoder_finish(sh_decoder_state *state, sh_buf *out)
{
    state->out = out;
    finish(state, 0);
}

/* Each stage in turn, on a single token; two buffers that alternate are enough. */
void sh_decoder_bytes(const sh_decoder *decoder, sh_str piece, sh_buf *out)
{
    sh_buf texts[2] = {{0}, {0}};
    bool more = true;
    for (size_t i = 0; i < decoder->count && more; i++) {
        sh_buf *to = &texts[i % 2];
        sh_buf_clear(to);
        more = decoder->stages[i].ops->bytes(&decoder->stages[i], piece, to);
        piece = sh_buf_str(to);
    }
    sh_buf_add_str(out, piece);
    sh_buf_reset(&texts[0]);
    sh_buf_reset(&texts[1]);
}
