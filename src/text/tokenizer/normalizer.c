/* A normalizer is a list of steps, each of which rewrites the whole text. Two buffers are enough
 * for any number of steps: a step reads from one and writes to the other.
 *
 * The types and their odd cases are those of the tokenizers library: Prepend leaves an empty text
 * empty, Nmt has the table of SentencePiece. A type that is missing here is an error when the model
 * is loaded; skipping it would give other tokens than the model was trained with. */
#include "text/tokenizer/normalizer.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/pattern.h"

#include <stdlib.h>

typedef struct step step;
typedef sh_status (*step_fn)(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                             sh_err *err);

struct step {
    step_fn apply;
    sh_unicode_form form;
    bool left, right;
    uint32_t (*map)(uint32_t code); /* the new character; 0: remove it */
    sh_pattern pattern;
    char *content;
    sh_charsmap *charsmap;
};

struct sh_normalizer {
    step *steps;
    size_t count;
};

static step *step_add(sh_normalizer *n, const step *like)
{
    n->steps = sh_realloc_array(n->steps, n->count + 1, sizeof(*n->steps));
    n->steps[n->count] = *like;
    return &n->steps[n->count++];
}

static sh_status apply_form(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                            sh_err *err)
{
    (void)scratch, (void)err;
    sh_unicode_normalize(in, s->form, out);
    return SH_OK;
}

static sh_status apply_lower(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                             sh_err *err)
{
    (void)s, (void)scratch, (void)err;
    sh_unicode_lower(in, out);
    return SH_OK;
}

static sh_status apply_bytes(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                             sh_err *err)
{
    (void)s, (void)scratch, (void)err;
    sh_bytelevel_encode(in, out);
    return SH_OK;
}

/* A NUL in the text is not removed: 0 means "remove" only as a result of map. */
static sh_status apply_chars(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                             sh_err *err)
{
    (void)scratch, (void)err;
    int len;
    for (size_t i = 0; i < in.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(in, i, in.len), &len);
        uint32_t now = s->map(code);
        if (now != 0 || code == 0) sh_buf_add_utf8(out, now);
    }
    return SH_OK;
}

static uint32_t without_marks(uint32_t code)
{
    return sh_unicode_is_mark(code) ? 0 : code;
}

static uint32_t without_accents(uint32_t code)
{
    return sh_unicode_is_accent(code) ? 0 : code;
}

/* BERT: white space becomes plain spaces, control characters go. */
static uint32_t clean_char(uint32_t code)
{
    if (code == '\t' || code == '\n' || code == '\r') return ' ';
    if (code == 0xfffd || sh_unicode_is_other(code)) return 0;
    return sh_unicode_is_space(code) ? ' ' : code;
}

static bool is_ideograph(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < SH_COUNT_OF(ranges); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return false;
}

/* BERT: every ideograph is a word. */
static sh_status apply_ideographs(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                                  sh_err *err)
{
    (void)s, (void)scratch, (void)err;
    int len;
    for (size_t i = 0; i < in.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(in, i, in.len), &len);
        bool word = is_ideograph(code);
        if (word) sh_buf_add_char(out, ' ');
        sh_buf_add_str(out, sh_str_sub(in, i, (size_t)len));
        if (word) sh_buf_add_char(out, ' ');
    }
    return SH_OK;
}

static sh_status apply_charsmap(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                                sh_err *err)
{
    (void)scratch, (void)err;
    sh_charsmap_apply(s->charsmap, in, out);
    return SH_OK;
}

/* SentencePiece's NMT rules for control characters and unusual spaces. */
static uint32_t nmt_char(uint32_t code)
{
    if ((code >= 0x01 && code <= 0x08) || code == 0x0b || (code >= 0x0e && code <= 0x1f) ||
        code == 0x7f || code == 0x8f || code == 0x9f)
        return 0;
    if ((code >= 0x09 && code <= 0x0d) || code == 0x1680 || (code >= 0x200b && code <= 0x200f) ||
        code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xfeff || code == 0xfffd)
        return ' ';
    return code;
}

static sh_status apply_strip(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                             sh_err *err)
{
    (void)scratch, (void)err;
    int len;
    while (s->left && in.len > 0 && sh_unicode_is_space(sh_unicode_next(in, &len)))
        in = sh_str_sub(in, (size_t)len, in.len);
    while (s->right && in.len > 0 && sh_unicode_is_space(sh_unicode_last(in, &len)))
        in.len -= (size_t)len;
    sh_buf_add_str(out, in);
    return SH_OK;
}

static sh_status apply_prepend(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                               sh_err *err)
{
    (void)scratch, (void)err;
    if (in.len > 0) sh_buf_add_text(out, s->content);
    sh_buf_add_str(out, in);
    return SH_OK;
}

static sh_status apply_replace(const step *s, sh_str in, sh_regex_scratch *scratch, sh_buf *out,
                               sh_err *err)
{
    return sh_pattern_replace(&s->pattern, in, sh_str_of(s->content), scratch, out, err);
}

/* For types without any settings. */
static sh_status read_plain(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    (void)json, (void)where, (void)err;
    step_add(to, arg);
    return SH_OK;
}

static sh_status read_strip(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    step *s = step_add(to, arg);
    sh_status status = sh_json_bool(json, "strip_left", where, &s->left, err);
    return status != SH_OK ? status : sh_json_bool(json, "strip_right", where, &s->right, err);
}

static sh_status read_prepend(void *to, const void *arg, const cJSON *json, const char *where,
                              sh_err *err)
{
    const char *text = NULL;
    sh_status status = sh_json_string_required(json, "prepend", where, &text, err);
    if (status == SH_OK) step_add(to, arg)->content = sh_strdup(text);
    return status;
}

static sh_status read_replace(void *to, const void *arg, const cJSON *json, const char *where,
                              sh_err *err)
{
    const char *content = NULL;
    sh_status status = sh_json_string_required(json, "content", where, &content, err);
    if (status != SH_OK) return status;
    step *s = step_add(to, arg);
    s->content = sh_strdup(content);
    return sh_pattern_read(json, where, &s->pattern, err);
}

static const step clean = {.apply = apply_chars, .map = clean_char};
static const step ideographs = {.apply = apply_ideographs};
static const step strip_nonspacing = {.apply = apply_chars, .map = without_accents};
static const step precompiled = {.apply = apply_charsmap};
static const step nfc = {.apply = apply_form, .form = SH_UNICODE_NFC};
static const step nfd = {.apply = apply_form, .form = SH_UNICODE_NFD};
static const step nfkc = {.apply = apply_form, .form = SH_UNICODE_NFKC};
static const step nfkd = {.apply = apply_form, .form = SH_UNICODE_NFKD};
static const step lower = {.apply = apply_lower};
static const step strip_accents = {.apply = apply_chars, .map = without_marks};
static const step nmt = {.apply = apply_chars, .map = nmt_char};
static const step bytes = {.apply = apply_bytes};
static const step strip = {.apply = apply_strip, .left = true, .right = true};
static const step prepend = {.apply = apply_prepend};
static const step replace = {.apply = apply_replace};

/* Up to five steps. Accents are stripped together with lowering unless the file says otherwise. */
static sh_status read_bert(void *to, const void *arg, const cJSON *json, const char *where,
                           sh_err *err)
{
    (void)arg;
    bool cleans = true, chinese = true, lowers = true;
    sh_status status = sh_json_bool(json, "clean_text", where, &cleans, err);
    if (status == SH_OK) status = sh_json_bool(json, "handle_chinese_chars", where, &chinese, err);
    if (status == SH_OK) status = sh_json_bool(json, "lowercase", where, &lowers, err);
    bool strips = lowers;
    if (status == SH_OK) status = sh_json_bool(json, "strip_accents", where, &strips, err);
    if (status != SH_OK) return status;
    if (cleans) step_add(to, &clean);
    if (chinese) step_add(to, &ideographs);
    if (strips) step_add(to, &nfd);
    if (strips) step_add(to, &strip_nonspacing);
    if (lowers) step_add(to, &lower);
    return SH_OK;
}

static sh_status read_precompiled(void *to, const void *arg, const cJSON *json, const char *where,
                                  sh_err *err)
{
    const char *text = NULL;
    sh_buf raw = {0};
    sh_status status = sh_json_string_required(json, "precompiled_charsmap", where, &text, err);
    if (status != SH_OK) return status;
    step *s = step_add(to, arg);
    if (sh_base64_decode(sh_str_of(text), &raw))
        status = sh_charsmap_open(sh_buf_str(&raw), &s->charsmap, err);
    else
        status = sh_err_set(err, SH_ERR_INPUT, "'precompiled_charsmap' is not base64");
    sh_buf_reset(&raw);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s", where);
}

static const sh_component_kind kinds[] = {
    {"NFC", read_plain, &nfc},
    {"NFD", read_plain, &nfd},
    {"NFKC", read_plain, &nfkc},
    {"NFKD", read_plain, &nfkd},
    {"Lowercase", read_plain, &lower},
    {"StripAccents", read_plain, &strip_accents},
    {"Nmt", read_plain, &nmt},
    {"ByteLevel", read_plain, &bytes},
    {"Strip", read_strip, &strip},
    {"Prepend", read_prepend, &prepend},
    {"Replace", read_replace, &replace},
    {"BertNormalizer", read_bert, NULL},
    {"Precompiled", read_precompiled, &precompiled},
};

static const sh_component_family family = {"normalizer", "normalizers", kinds, SH_COUNT_OF(kinds)};

sh_status sh_normalizer_create(const cJSON *json, const char *where, sh_normalizer **out,
                               sh_err *err)
{
    sh_normalizer *n = sh_alloc(sizeof(*n));
    sh_status status = sh_component_read(json, &family, n, where, err);
    if (status != SH_OK)
        sh_normalizer_free(n);
    else
        *out = n;
    return status;
}

sh_normalizer *sh_normalizer_create_form(sh_unicode_form form)
{
    sh_normalizer *n = sh_alloc(sizeof(*n));
    step_add(n, &(step){.apply = apply_form, .form = form});
    return n;
}

void sh_normalizer_free(sh_normalizer *n)
{
    if (n == NULL) return;
    for (size_t i = 0; i < n->count; i++) {
        sh_pattern_reset(&n->steps[i].pattern);
        free(n->steps[i].content);
        sh_charsmap_close(n->steps[i].charsmap);
    }
    free(n->steps);
    free(n);
}

void sh_normalizer_scratch_reset(sh_normalizer_scratch *scratch)
{
    sh_regex_scratch_reset(&scratch->regex);
    sh_buf_reset(&scratch->texts[0]);
    sh_buf_reset(&scratch->texts[1]);
}

/* Alternates between the two buffers; without steps the text itself is the result. */
sh_status sh_normalizer_apply(const sh_normalizer *n, sh_str text, sh_normalizer_scratch *scratch,
                              sh_str *out, sh_err *err)
{
    for (size_t i = 0; i < n->count; i++) {
        sh_buf *to = &scratch->texts[i % 2];
        sh_buf_clear(to);
        sh_status status = n->steps[i].apply(&n->steps[i], text, &scratch->regex, to, err);
        if (status != SH_OK) return status;
        text = sh_buf_str(to);
    }
    *out = text;
    return SH_OK;
}
