/* Translates Oniguruma's syntax to PCRE2's in one pass over the pattern.
 *
 * Most of a pattern is the same in both and is copied. What differs is mostly character classes:
 * the meaning of \s and \w, and classes inside classes. A class is parsed into the text between
 * PCRE2's brackets. PCRE2 has neither nested classes nor intersections, but the general categories
 * partition Unicode, so by De Morgan [\p{Lu}\p{Lo}&&[^x]] is [^\p{all other categories}x]. That
 * covers what tokenizers use.
 *
 * Anything that is not known to mean the same is refused with its position. A pattern that silently
 * splits differently would give other tokens than the model was trained with. */
#include "text/tokenizer/regex.h"

#include "base/alloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 100 };

/* White_Space; PCRE2's \s has U+180E too. */
#define SPACE                                                                                      \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define NOT_SPACE                                                                                  \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"       \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"
/* Oniguruma's \w: alphabetic characters, marks, digits, connectors, and six of Latin-1. */
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}"     \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX "0-9A-Fa-f"
/* The script Han; from 10.40 on PCRE2 takes \p{Han} to mean the wider Script_Extensions. */
#define HAN                                                                                        \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}"                  \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}"                 \
    "\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}"               \
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}"         \
    "\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}"         \
    "\\x{31350}-\\x{323af}"

/* General categories, grouped by their first letter; a set of them is a bit mask. */
static const char categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Co", "Cs"};

typedef struct {
    sh_str in;
    size_t at;
    sh_buf *out;
    size_t atom; /* where in out the last repeatable element begins */
    size_t open[DEPTH_MAX];
    int depth;
    sh_err *err;
} translator;

/* The text between the brackets of a class. */
typedef struct {
    sh_buf body;
    uint32_t cats; /* the categories it contains */
    bool only_cats;
    bool negated;
} class_text;

static sh_status refuse(translator *t, const char *what)
{
    return sh_err_set(t->err, SH_ERR_UNSUPPORTED,
                      "%s at byte %zu is not supported in the pattern '%.*s'", what, t->at,
                      (int)t->in.len, t->in.ptr);
}

static char peek(const translator *t, size_t ahead)
{
    return t->at + ahead < t->in.len ? t->in.ptr[t->at + ahead] : '\0';
}

static bool takes(translator *t, const char *text)
{
    if (!sh_str_starts(sh_str_sub(t->in, t->at, t->in.len), sh_str_of(text))) return false;
    t->at += strlen(text);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The categories denoted by a name such as "L" or "Lu"; 0 if it is not a category. */
static uint32_t category_set(sh_str name)
{
    uint32_t set = 0;
    for (size_t i = 0; i < SH_COUNT_OF(categories); i++)
        if ((name.len == 1 || name.len == 2) && memcmp(categories[i], name.ptr, name.len) == 0)
            set |= 1u << i;
    return set;
}

/* From 10.40 on a bare script name means Script_Extensions; older versions do not know "sc:". */
static const char *script_prefix(void)
{
    char version[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    return strtod(version, NULL) > 10.395 ? "sc:" : "";
}

/* \p{...} and \P{...}, with t->at after the p. */
static sh_status property(translator *t, bool negated, bool in_class, class_text *to)
{
    size_t end = sh_str_find(t->in, SH_STR("}"), t->at);
    if (peek(t, 0) != '{' || end == t->in.len) return refuse(t, "a property without {name}");
    sh_str name = sh_str_sub(t->in, t->at + 1, end - t->at - 1);
    if (name.len > 0 && name.ptr[0] == '^') {
        negated = !negated;
        name = sh_str_sub(name, 1, name.len);
    }
    for (size_t i = 0; i < name.len; i++)
        if (!is_letter(name.ptr[i]) && name.ptr[i] != '_') return refuse(t, "this property name");
    uint32_t set = category_set(name);
    if (set != 0 || !sh_str_is(name, "Han")) {
        sh_buf_addf(&to->body, "\\%c{%s%.*s}", negated ? 'P' : 'p', set != 0 ? "" : script_prefix(),
                    (int)name.len, name.ptr);
    } else {
        if (negated && in_class) return refuse(t, "\\P{Han} in a class");
        sh_buf_add_text(&to->body, HAN);
        to->negated = negated;
    }
    to->cats |= set;
    to->only_cats = to->only_cats && set != 0 && !negated;
    t->at = end + 1;
    return SH_OK;
}

/* \x41, \x{41}, \u0041 and \u{41}, with t->at after the letter. */
static sh_status hex_escape(translator *t, char letter, sh_buf *out)
{
    bool braces = takes(t, "{");
    size_t max = braces ? 6 : letter == 'u' ? 4 : 2, len = 0;
    while (len < max && memchr("0123456789abcdefABCDEF", peek(t, len), 22) != NULL &&
           peek(t, len) != '\0')
        len++;
    if (len == 0 || (letter == 'u' && !braces && len != 4)) return refuse(t, "this code point");
    sh_buf_addf(out, "\\x{%.*s}", (int)len, t->in.ptr + t->at);
    t->at += len;
    if (braces && !takes(t, "}")) return refuse(t, "this code point");
    return SH_OK;
}

/* An escape that denotes a character or a class of them; t->at is at the letter. */
static sh_status char_escape(translator *t, bool in_class, class_text *to)
{
    static const struct {
        char letter;
        const char *plain; /* NULL: only the negation can be expressed */
        const char *negation;
    } sets[] = {
        {'s', SPACE, NOT_SPACE}, {'S', NOT_SPACE, SPACE}, {'w', WORD, NULL},    {'W', NULL, WORD},
        {'d', "\\p{Nd}", NULL},  {'D', "\\P{Nd}", NULL},  {'h', HEX, NULL},     {'H', NULL, HEX},
        {'n', "\\n", NULL},      {'t', "\\t", NULL},      {'r', "\\r", NULL},   {'f', "\\f", NULL},
        {'a', "\\a", NULL},      {'e', "\\e", NULL},      {'v', "\\x0b", NULL},
    };
    char letter = peek(t, 0);
    for (size_t i = 0; i < SH_COUNT_OF(sets); i++) {
        if (sets[i].letter != letter) continue;
        if (sets[i].plain == NULL && in_class) return refuse(t, "this escape in a class");
        to->negated = sets[i].plain == NULL;
        to->only_cats = false;
        sh_buf_add_text(&to->body, to->negated ? sets[i].negation : sets[i].plain);
        t->at++;
        return SH_OK;
    }
    if (letter == 'p' || letter == 'P') {
        t->at++;
        return property(t, letter == 'P', in_class, to);
    }
    to->only_cats = false;
    if (letter == 'x' || letter == 'u') {
        t->at++;
        return hex_escape(t, letter, &to->body);
    }
    if (is_letter(letter) || is_digit(letter) || letter == '\0') return refuse(t, "this escape");
    if ((unsigned char)letter < 0x80) sh_buf_addf(&to->body, "\\%c", letter);
    if ((unsigned char)letter < 0x80) t->at++; /* else the character is copied as it is */
    return SH_OK;
}

/* An escape in a class. A hyphen after one that is a set is literal; PCRE2 would see a range. */
static sh_status class_escape(translator *t, class_text *out)
{
    bool set = strchr("sSwWdDhHpP", peek(t, 1)) != NULL;
    t->at++;
    sh_status status = char_escape(t, true, out);
    if (status == SH_OK && set && takes(t, "-")) sh_buf_add_text(&out->body, "\\-");
    return status;
}

static void class_reset(class_text *c)
{
    sh_buf_reset(&c->body);
}

static sh_status class_read(translator *t, int depth, class_text *out);

/* Adds a nested class to the operand that contains it. A union with a negated class cannot be
 * expressed, so a negated class must be the only member of its operand. */
static sh_status nested_add(translator *t, int depth, class_text *operand, bool *alone)
{
    class_text inner = {0};
    bool first = operand->body.len == 0;
    sh_status status = class_read(t, depth + 1, &inner);
    if (status == SH_OK && (*alone || (inner.negated && !first)))
        status = refuse(t, "a negated class inside a class");
    if (status == SH_OK) {
        sh_buf_add_str(&operand->body, sh_buf_str(&inner.body));
        operand->cats |= inner.cats;
        operand->only_cats = operand->only_cats && inner.only_cats && !inner.negated;
        operand->negated = *alone = inner.negated;
    }
    class_reset(&inner);
    return status;
}

/* One operand of &&, up to && or the closing bracket. */
static sh_status operand_read(translator *t, int depth, class_text *out)
{
    bool alone = false; /* after a negated nested class, which must be the only member */
    out->only_cats = true;
    for (bool start = true;; start = false) {
        char c = peek(t, 0);
        if (t->at >= t->in.len) return refuse(t, "an unterminated class");
        if ((c == ']' && !start) || (c == '&' && peek(t, 1) == '&')) return SH_OK;
        if (c == '[') {
            if (peek(t, 1) == ':') return refuse(t, "[:name:]");
            t->at++;
            sh_status status = nested_add(t, depth, out, &alone);
            if (status != SH_OK) return status;
            continue;
        }
        if (alone) return refuse(t, "a negated class inside a class");
        if (c == '\\') {
            sh_status status = class_escape(t, out);
            if (status != SH_OK) return status;
            continue;
        }
        if (c == ']') sh_buf_add_char(&out->body, '\\');
        sh_buf_add_char(&out->body, c);
        out->only_cats = false;
        t->at++;
    }
}

/* Adds the complement of the operand; false if that cannot be expressed. */
static bool complement_add(const class_text *operand, sh_buf *out)
{
    if (operand->negated) {
        sh_buf_add_str(out, sh_buf_str(&operand->body));
        return true;
    }
    if (!operand->only_cats) return false;
    for (size_t i = 0; i < SH_COUNT_OF(categories); i++)
        if ((operand->cats >> i & 1) == 0) sh_buf_addf(out, "\\p{%s}", categories[i]);
    return true;
}

/* Parses a class, from after its opening bracket to after its closing one. The intersection of
 * several operands is collected as the complement of the union of their complements. */
static sh_status class_read(translator *t, int depth, class_text *out)
{
    bool negated = takes(t, "^"), several = false;
    class_text operand = {0};
    sh_buf others = {0};
    sh_status status = depth > DEPTH_MAX ? refuse(t, "a class nested this deep") : SH_OK;
    while (status == SH_OK) {
        class_reset(&operand);
        operand = (class_text){0};
        status = operand_read(t, depth, &operand);
        several = several || peek(t, 0) == '&';
        if (status == SH_OK && several && !complement_add(&operand, &others))
            status = refuse(t, "&& with this class");
        if (status != SH_OK || !takes(t, "&&")) break;
    }
    if (status == SH_OK) {
        t->at++;
        *out = operand;
        if (several) *out = (class_text){.body = others, .negated = true};
        out->negated = out->negated != negated;
        out->only_cats = out->only_cats && !out->negated;
    }
    if (status != SH_OK || several) class_reset(&operand);
    if (status != SH_OK || !several) sh_buf_reset(&others);
    return status;
}

static void class_write(translator *t, const class_text *c)
{
    t->atom = t->out->len;
    sh_buf_addf(t->out, "[%s", c->negated ? "^" : "");
    sh_buf_add_str(t->out, sh_buf_str(&c->body));
    sh_buf_add_char(t->out, ']');
}

/* An escape outside of a class; t->at is at the letter. \b is written out, because PCRE2's word
 * characters are not Oniguruma's. */
static sh_status escape(translator *t)
{
    static const char kept[] = "AzZGKRX0123456789"; /* the same in both */
    char letter = peek(t, 0);
    t->atom = t->out->len;
    if (letter == 'b' || letter == 'B') {
        bool edge = letter == 'b';
        sh_buf_addf(t->out, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", WORD, edge ? '!' : '=',
                    WORD, WORD, edge ? '=' : '!', WORD);
        t->at++;
        return SH_OK;
    }
    if (letter != '\0' && strchr(kept, letter) != NULL) {
        sh_buf_addf(t->out, "\\%c", letter);
        t->at++;
        return SH_OK;
    }
    class_text set = {0};
    sh_status status = char_escape(t, false, &set);
    if (status == SH_OK && set.body.len > 0) class_write(t, &set);
    class_reset(&set);
    return status;
}

/* "(", and what follows in case of "(?"; Ruby's flag m lets the dot match a newline, as PCRE2's s
 * does. */
static sh_status group_open(translator *t)
{
    if (t->depth == DEPTH_MAX) return refuse(t, "a group nested this deep");
    t->open[t->depth++] = t->out->len;
    t->at++;
    sh_buf_add_char(t->out, '(');
    if (peek(t, 0) == '*') return refuse(t, "'*' with nothing to repeat");
    if (!takes(t, "?")) return SH_OK;
    sh_buf_add_char(t->out, '?');
    while (peek(t, 0) != '\0' && strchr("imx-", peek(t, 0)) != NULL) {
        char flag = peek(t, 0);
        sh_buf_add_char(t->out, flag);
        if (flag == 'm') t->out->ptr[t->out->len - 1] = 's';
        t->at++;
    }
    bool known = peek(t, 0) != '\0' && strchr(":)=!><", peek(t, 0)) != NULL;
    return known ? SH_OK : refuse(t, "this kind of group");
}

static sh_status group_close(translator *t)
{
    if (t->depth == 0) return refuse(t, "an unmatched ')'");
    t->atom = t->open[--t->depth];
    t->at++;
    sh_buf_add_char(t->out, ')');
    return SH_OK;
}

/* Turns "X{2,3}" into "(?:X{2,3})". */
static void atom_wrap(translator *t)
{
    sh_buf tail = {0};
    sh_buf_add(&tail, t->out->ptr + t->atom, t->out->len - t->atom);
    t->out->len = t->atom;
    sh_buf_add_text(t->out, "(?:");
    sh_buf_add_str(t->out, sh_buf_str(&tail));
    sh_buf_add_char(t->out, ')');
    sh_buf_reset(&tail);
}

static size_t digits_at(const translator *t, size_t ahead)
{
    size_t len = 0;
    while (is_digit(peek(t, ahead + len))) len++;
    return len;
}

/* {n}, {n,}, {,m}, {n,m}; any other '{' is a literal. In Ruby's syntax a + after it repeats the
 * whole, and so does a ? after {n}; in PCRE2 they would mean possessive and lazy. */
static void interval(translator *t)
{
    size_t low = digits_at(t, 1);
    bool comma = peek(t, 1 + low) == ',';
    size_t high = comma ? digits_at(t, 2 + low) : 0;
    size_t len = 1 + low + comma + high;
    if (peek(t, len) != '}' || low + high == 0) {
        t->atom = t->out->len;
        sh_buf_add_text(t->out, "\\{");
        t->at++;
        return;
    }
    sh_buf_addf(t->out, "{%s%.*s", low == 0 ? "0" : "", (int)len, t->in.ptr + t->at + 1);
    t->at += len + 1;
    if (peek(t, 0) == '+' || (peek(t, 0) == '?' && !comma)) atom_wrap(t);
}

static sh_status step(translator *t)
{
    class_text set = {0};
    char c = peek(t, 0);
    switch (c) {
    case '\\': t->at++; return escape(t);
    case '(': return group_open(t);
    case ')': return group_close(t);
    case '{': interval(t); return SH_OK;
    case '[':
        t->at++;
        sh_status status = class_read(t, 0, &set);
        if (status == SH_OK) {
            class_write(t, &set);
            class_reset(&set);
        }
        return status;
    }
    bool operator= c == '*' || c == '+' || c == '?' || c == '|' || c == '^' || c == '$';
    bool inside = ((unsigned char)c & 0xc0) == 0x80; /* a continuation byte of UTF-8 */
    if (!operator&& !inside) t->atom = t->out->len;
    sh_buf_add_char(t->out, c);
    t->at++;
    return SH_OK;
}

sh_status sh_regex_translate(sh_str pattern, sh_buf *out, sh_err *err)
{
    translator t = {.in = pattern, .out = out, .atom = out->len, .err = err};
    sh_status status = SH_OK;
    while (status == SH_OK && t.at < pattern.len) status = step(&t);
    return status;
}
