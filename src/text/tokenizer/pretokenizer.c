/* Each type of pre-tokenizer becomes one or more stages, most of them a Split with some pattern.
 *
 * Text runs depth first through the stages, so memory does not grow with the number of words, and
 * the first word is encoded before the rest of the text has been looked at. A stage that rewrites
 * text (ByteLevel, Metaspace) needs a buffer of its own; one per stage is enough, because a piece
 * is finished before the stage sees the next one.
 *
 * `first` travels along: it is true only for a piece at the very start of the input, and decides
 * whether Metaspace adds its mark under the scheme "first". */
#include "text/tokenizer/pretokenizer.h"

#include "base/alloc.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Word characters as in sh_unicode_is_word(), which differ from Oniguruma's. */
#define WORD_CHARS                                                                                 \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"                       \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORDS_PATTERN "[" WORD_CHARS "]+|[^" WORD_CHARS "\\s]+"

/* What a Split does with the text it finds. */
typedef enum { ISOLATED, REMOVED, CONTIGUOUS, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT } split_way;

typedef enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct stage stage;
typedef struct run run;
typedef sh_status (*stage_fn)(run *r, size_t idx, sh_str piece, bool first);

struct stage {
    stage_fn apply;
    sh_pattern pattern;
    split_way behavior;
    bool invert; /* swap matches and the text between them */
    prepend_scheme scheme;
    char mark[5]; /* Metaspace: the character that replaces a space */
    size_t length;
};

struct sh_pretokenizer {
    stage *stages;
    size_t count;
};

/* One call of sh_pretokenizer_run. */
struct run {
    const sh_pretokenizer *pre;
    sh_pretokenizer_scratch *scratch;
    sh_word_fn fn;
    void *arg;
    sh_err *err;
};

/* Passes a piece to stage idx; after the last stage it is a word. */
static sh_status pass(run *r, size_t idx, sh_str piece, bool first)
{
    if (piece.len == 0) return SH_OK;
    if (idx < r->pre->count) return r->pre->stages[idx].apply(r, idx, piece, first);
    return r->fn(r->arg, piece, r->err);
}

/* The piece that a Split may still extend. */
typedef struct {
    bool held;
    bool match;
    size_t first;
    size_t end;
} held_part;

typedef struct {
    run *run;
    size_t idx;
    sh_str piece;
    bool first;
    held_part held;
    bool last_match;
} split;

static sh_status split_pass(split *s, size_t first, size_t end)
{
    sh_str part = sh_str_sub(s->piece, first, end - first);
    return pass(s->run, s->idx + 1, part, s->first && first == 0);
}

static sh_status split_flush(split *s)
{
    if (!s->held.held) return SH_OK;
    s->held.held = false;
    return split_pass(s, s->held.first, s->held.end);
}

/* Handles the next part of the piece, which is a match or the text between two. The behaviors that
 * join parts hold one back until it is clear whether the next part joins it. */
static sh_status split_part(split *s, size_t first, size_t end, bool match)
{
    split_way behavior = s->run->pre->stages[s->idx].behavior;
    held_part part = {.held = true, .match = match, .first = first, .end = end};
    bool joins = false, held = s->held.held, last_match = s->last_match;
    s->last_match = match;
    switch (behavior) {
    case ISOLATED: return split_pass(s, first, end);
    case REMOVED: return match ? SH_OK : split_pass(s, first, end);
    case CONTIGUOUS: joins = held && match == last_match; break;
    case MERGED_WITH_PREVIOUS: joins = held && match && !last_match; break;
    case MERGED_WITH_NEXT: joins = held && !match && s->held.match; break;
    }
    if (joins) {
        s->held.end = end;
        s->held.match = match;
        return SH_OK;
    }
    sh_status status = split_flush(s);
    s->held = part;
    return status;
}

/* The parts are passed on in order: the text before a match, then the match. */
static sh_status apply_split(run *r, size_t idx, sh_str piece, bool first)
{
    const stage *st = &r->pre->stages[idx];
    split s = {.run = r, .idx = idx, .piece = piece, .first = first};
    sh_pattern_walk walk = {.pattern = &st->pattern, .text = piece, .scratch = &r->scratch->regex};
    for (;;) {
        size_t from = walk.done;
        sh_status status = sh_pattern_next(&walk, r->err);
        if (status == SH_OK && from < walk.hit.first)
            status = split_part(&s, from, walk.hit.first, st->invert);
        if (status != SH_OK) return status;
        if (!walk.hit.found) return split_flush(&s);
        status = split_part(&s, walk.hit.first, walk.hit.end, !st->invert);
        if (status != SH_OK) return status;
    }
}

/* Stages that change text. */

static sh_buf *stage_text(run *r, size_t idx)
{
    sh_buf *text = &r->scratch->texts[idx];
    sh_buf_clear(text);
    return text;
}

static sh_status apply_bytes(run *r, size_t idx, sh_str piece, bool first)
{
    sh_buf *text = stage_text(r, idx);
    sh_bytelevel_encode(piece, text);
    return pass(r, idx + 1, sh_buf_str(text), first);
}

/* ByteLevel's add_prefix_space: the first word looks like one in the middle of a text. */
static sh_status apply_prefix_space(run *r, size_t idx, sh_str piece, bool first)
{
    if (piece.ptr[0] == ' ') return pass(r, idx + 1, piece, first);
    sh_buf *text = stage_text(r, idx);
    sh_buf_add_char(text, ' ');
    sh_buf_add_str(text, piece);
    return pass(r, idx + 1, sh_buf_str(text), first);
}

/* Replaces every space by the mark. sh_str_cut() also returns what follows the last space, so
 * whether there was one is seen from the position. */
static sh_status apply_metaspace(run *r, size_t idx, sh_str piece, bool first)
{
    const stage *st = &r->pre->stages[idx];
    sh_str mark = sh_str_of(st->mark), part;
    bool wanted = st->scheme == PREPEND_ALWAYS || (st->scheme == PREPEND_FIRST && first);
    sh_buf *text = stage_text(r, idx);
    if (wanted && piece.ptr[0] != ' ' && !sh_str_starts(piece, mark)) sh_buf_add_str(text, mark);
    for (sh_str rest = piece; sh_str_cut(&rest, ' ', &part);) {
        sh_buf_add_str(text, part);
        bool space = part.ptr + part.len < piece.ptr + piece.len;
        if (space) sh_buf_add_str(text, mark);
    }
    return pass(r, idx + 1, sh_buf_str(text), first);
}

/* Pieces of a fixed number of characters. */
static sh_status apply_fixed(run *r, size_t idx, sh_str piece, bool first)
{
    const stage *st = &r->pre->stages[idx];
    sh_status status = SH_OK;
    for (size_t from = 0; from < piece.len && status == SH_OK;) {
        size_t end = from;
        int len;
        for (size_t n = 0; n < st->length && end < piece.len; n++, end += (size_t)len)
            sh_unicode_next(sh_str_sub(piece, end, piece.len), &len);
        status = pass(r, idx + 1, sh_str_sub(piece, from, end - from), first && from == 0);
        from = end;
    }
    return status;
}

/* Reading the file. A static stage is the template that a new stage is copied from. */

static stage *stage_add(sh_pretokenizer *p, const stage *like)
{
    p->stages = sh_realloc_array(p->stages, p->count + 1, sizeof(*p->stages));
    p->stages[p->count] = *like;
    return &p->stages[p->count++];
}

static sh_status split_add(sh_pretokenizer *p, const char *pattern, const stage *like, sh_err *err)
{
    stage *st = stage_add(p, like);
    st->apply = apply_split;
    return sh_regex_create(sh_str_of(pattern), &st->pattern.regex, err);
}

static void literal_add(sh_pretokenizer *p, const char *literal, split_way behavior)
{
    stage *st = stage_add(p, &(stage){.apply = apply_split, .behavior = behavior});
    st->pattern.literal = sh_strdup(literal);
    st->pattern.literal_len = strlen(literal);
}

/* For types without any settings. */
static sh_status read_plain(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    (void)json, (void)where, (void)err;
    stage_add(to, arg);
    return SH_OK;
}

static sh_status read_words(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    (void)arg, (void)json, (void)where;
    return split_add(to, WORDS_PATTERN, &(stage){.behavior = REMOVED, .invert = true}, err);
}

/* BERT: drops white space, then isolates punctuation. */
static sh_status read_bert(void *to, const void *arg, const cJSON *json, const char *where,
                           sh_err *err)
{
    (void)json, (void)where, (void)err;
    stage_add(to, arg);
    stage_add(to, &(stage){.apply = apply_split, .pattern.is_char = sh_unicode_is_punct});
    return SH_OK;
}

static sh_status read_digits(void *to, const void *arg, const cJSON *json, const char *where,
                             sh_err *err)
{
    bool individual = false;
    sh_status status = sh_json_bool(json, "individual_digits", where, &individual, err);
    if (status == SH_OK) stage_add(to, arg)->behavior = individual ? ISOLATED : CONTIGUOUS;
    return status;
}

/* Index of the value in a list of names; *out is unchanged if the key is absent. */
static sh_status read_name(const cJSON *json, const char *key, const char *where,
                           const char *const *names, size_t count, int *out, sh_err *err)
{
    const char *name = NULL;
    sh_status status = sh_json_string(json, key, where, &name, err);
    if (status != SH_OK || name == NULL) return status;
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (int)i;
            return SH_OK;
        }
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: '%s' has the unknown value '%s'", where, key,
                      name);
}

static sh_status read_behavior(const cJSON *json, const char *where, split_way *out, sh_err *err)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    int idx = ISOLATED;
    sh_status status = read_name(json, "behavior", where, names, SH_COUNT_OF(names), &idx, err);
    if (status == SH_OK) *out = (split_way)idx;
    return status;
}

static sh_status read_punctuation(void *to, const void *arg, const cJSON *json, const char *where,
                                  sh_err *err)
{
    return read_behavior(json, where, &stage_add(to, arg)->behavior, err);
}

static sh_status read_split(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    stage *st = stage_add(to, arg);
    sh_status status = read_behavior(json, where, &st->behavior, err);
    if (status == SH_OK) status = sh_json_bool(json, "invert", where, &st->invert, err);
    if (status == SH_OK) status = sh_pattern_read(json, where, &st->pattern, err);
    return status;
}

static sh_status read_delimiter(void *to, const void *arg, const cJSON *json, const char *where,
                                sh_err *err)
{
    (void)arg;
    uint32_t code = ' ';
    char text[5] = "";
    sh_status status = sh_component_char(json, "delimiter", where, &code, err);
    if (status != SH_OK) return status;
    text[sh_utf8_encode(code, text)] = '\0';
    literal_add(to, text, REMOVED);
    return SH_OK;
}

static sh_status read_fixed(void *to, const void *arg, const cJSON *json, const char *where,
                            sh_err *err)
{
    int64_t length = 5;
    sh_status status = sh_json_int(json, "length", where, 1, 1 << 20, &length, err);
    if (status == SH_OK) stage_add(to, arg)->length = (size_t)length;
    return status;
}

/* ByteLevel is up to three stages: add a space, split by GPT-2's pattern, write bytes. */
static sh_status read_byte_level(void *to, const void *arg, const cJSON *json, const char *where,
                                 sh_err *err)
{
    bool space = true, regex = true;
    sh_status status = sh_json_bool(json, "add_prefix_space", where, &space, err);
    if (status == SH_OK) status = sh_json_bool(json, "use_regex", where, &regex, err);
    if (status != SH_OK) return status;
    if (space) stage_add(to, &(stage){.apply = apply_prefix_space});
    if (regex) status = split_add(to, GPT2_PATTERN, &(stage){.behavior = ISOLATED}, err);
    if (status == SH_OK) stage_add(to, arg);
    return status;
}

/* Older files have add_prefix_space, newer ones prepend_scheme. */
static sh_status read_metaspace(void *to, const void *arg, const cJSON *json, const char *where,
                                sh_err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    uint32_t code = 0x2581;
    bool space = true, cut = true;
    int idx = PREPEND_ALWAYS;
    sh_status status = sh_component_char(json, "replacement", where, &code, err);
    if (status == SH_OK) status = sh_json_bool(json, "add_prefix_space", where, &space, err);
    if (status == SH_OK)
        status = read_name(json, "prepend_scheme", where, names, SH_COUNT_OF(names), &idx, err);
    if (status == SH_OK) status = sh_json_bool(json, "split", where, &cut, err);
    if (status != SH_OK) return status;
    stage *st = stage_add(to, arg);
    st->scheme = space ? (prepend_scheme)idx : PREPEND_NEVER;
    sh_utf8_encode(code, st->mark);
    char mark[sizeof(st->mark)];
    memcpy(mark, st->mark, sizeof(mark));
    if (cut) literal_add(to, mark, MERGED_WITH_NEXT);
    return SH_OK;
}

static const stage bytes = {.apply = apply_bytes};
static const stage metaspace = {.apply = apply_metaspace};
static const stage fixed = {.apply = apply_fixed};
static const stage plain_split = {.apply = apply_split};
static const stage spaces = {
    .apply = apply_split, .pattern.is_char = sh_unicode_is_space, .behavior = REMOVED};
static const stage numbers = {.apply = apply_split, .pattern.is_char = sh_unicode_is_number};
static const stage punctuation = {.apply = apply_split, .pattern.is_char = sh_unicode_is_punct};

static const sh_component_kind kinds[] = {
    {"ByteLevel", read_byte_level, &bytes},
    {"Metaspace", read_metaspace, &metaspace},
    {"Split", read_split, &plain_split},
    {"Digits", read_digits, &numbers},
    {"Punctuation", read_punctuation, &punctuation},
    {"Whitespace", read_words, NULL},
    {"WhitespaceSplit", read_plain, &spaces},
    {"BertPreTokenizer", read_bert, &spaces},
    {"CharDelimiterSplit", read_delimiter, NULL},
    {"Delimiter", read_delimiter, NULL},
    {"FixedLength", read_fixed, &fixed},
};

static const sh_component_family family = {"pre_tokenizer", "pretokenizers", kinds,
                                           SH_COUNT_OF(kinds)};

sh_status sh_pretokenizer_create(const cJSON *json, const char *where, sh_pretokenizer **out,
                                 sh_err *err)
{
    sh_pretokenizer *p = sh_alloc(sizeof(*p));
    sh_status status = sh_component_read(json, &family, p, where, err);
    if (status != SH_OK)
        sh_pretokenizer_free(p);
    else
        *out = p;
    return status;
}

sh_status sh_pretokenizer_create_bytes(sh_str pattern, sh_pretokenizer **out, sh_err *err)
{
    sh_pretokenizer *p = sh_alloc(sizeof(*p));
    stage *st = stage_add(p, &plain_split);
    sh_status status = sh_regex_create(pattern, &st->pattern.regex, err);
    stage_add(p, &bytes);
    if (status != SH_OK)
        sh_pretokenizer_free(p);
    else
        *out = p;
    return status;
}

void sh_pretokenizer_free(sh_pretokenizer *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->count; i++) sh_pattern_reset(&p->stages[i].pattern);
    free(p->stages);
    free(p);
}

void sh_pretokenizer_scratch_reset(sh_pretokenizer_scratch *scratch)
{
    sh_regex_scratch_reset(&scratch->regex);
    for (size_t i = 0; i < scratch->count; i++) sh_buf_reset(&scratch->texts[i]);
    free(scratch->texts);
    *scratch = (sh_pretokenizer_scratch){0};
}

sh_status sh_pretokenizer_run(const sh_pretokenizer *pre, sh_str text, bool first,
                              sh_pretokenizer_scratch *scratch, sh_word_fn fn, void *arg,
                              sh_err *err)
{
    run r = {.pre = pre, .scratch = scratch, .fn = fn, .arg = arg, .err = err};
    if (scratch->texts == NULL) {
        scratch->count = pre->count;
        scratch->texts = sh_alloc_array(pre->count, sizeof(*scratch->texts));
    }
    return pass(&r, 0, text, first);
}
