/* Numbers of a schema, as sets of their decimal spellings.
 *
 * Bounds compare digit by digit: a spelling is above a bound if it has more digits before the
 * point, or as many and a larger one at the first that differs. Multiples are remainders, carried
 * from digit to digit. Each is a set of strings, and they are intersected. Exponents are written
 * only where there is nothing to compare. The number of digits is limited, so that an answer cannot
 * consist of them. */
#include "base/buf.h"
#include "text/grammar/nfa.h"
#include "text/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREE_INTEGER "0|-?[1-9]\\d{0,17}"
#define FREE_NUMBER "-?(0|[1-9]\\d{0,17})(\\.\\d{1,17})?([eE][+-]?\\d{1,2})?"

/* Programs compare numbers as doubles, which tell apart all spellings of so many digits. */
enum { EXACT_DIGITS = 15, DIGITS_MAX = 64, REMAINDERS_MAX = 20000 };

typedef struct {
    bool negative;
    char whole[DIGITS_MAX + 1];    /* without leading zeros, "0" for none */
    char fraction[DIGITS_MAX + 1]; /* without trailing zeros */
} decimal;

/* ---- reading ---- */

static void spell(const cJSON *number, char out[DIGITS_MAX])
{
    if (number->valuestring != NULL && strlen(number->valuestring) < DIGITS_MAX)
        snprintf(out, DIGITS_MAX, "%s", number->valuestring);
    else
        snprintf(out, DIGITS_MAX, "%.15g", number->valuedouble);
}

/* Digits without the point, and where the point is. */
static bool read_digits(const char *text, char digits[DIGITS_MAX + 1], int *point)
{
    int count = 0;
    *point = -1;
    for (; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.')
            *point = count;
        else
            digits[count++] = *text;
    }
    digits[count] = '\0';
    if (*point < 0) *point = count;
    if (*text != '\0') *point += atoi(text + 1);
    return *point > -DIGITS_MAX / 2 && *point < DIGITS_MAX / 2 && count < DIGITS_MAX / 2;
}

static bool read_decimal(const cJSON *number, decimal *out)
{
    char text[DIGITS_MAX], digits[DIGITS_MAX + 1];
    int point, count, at = 0, len = 0;
    *out = (decimal){0};
    spell(number, text);
    out->negative = text[0] == '-';
    if (!read_digits(text + out->negative, digits, &point)) return false;
    count = (int)strlen(digits);
    while (at < point && (at >= count || digits[at] == '0')) at++;
    for (; at < point; at++) out->whole[len++] = at < count ? digits[at] : '0';
    if (len == 0) out->whole[len++] = '0';
    len = 0;
    for (at = point; at < count; at++) out->fraction[len++] = at < 0 ? '0' : digits[at];
    while (len > 0 && out->fraction[len - 1] == '0') out->fraction[--len] = '\0';
    return true;
}

/* ---- comparison ---- */

typedef struct {
    sh_grammar_builder *b;
    sh_expr items[DIGITS_MAX * 2 + 4];
    size_t count;
} forms;

static void add_form(forms *f, const sh_expr *parts, size_t count)
{
    f->items[f->count++] = sh_expr_seq(f->b, parts, count);
}

static sh_expr digit(sh_grammar_builder *b, char lo, char hi)
{
    sh_char_range range = {(uint8_t)lo, (uint8_t)hi};
    return lo > hi ? SH_EXPR_AT_NEVER
                   : sh_expr_class(b, &(sh_charset){.ranges = &range, .count = 1});
}

static sh_expr digits(sh_grammar_builder *b, uint32_t min, uint32_t max)
{
    return sh_expr_repeat(b, digit(b, '0', '9'), min, max);
}

static sh_expr text(sh_grammar_builder *b, const char *chars, size_t len)
{
    return sh_expr_literal(b, (sh_str){chars, len});
}

static sh_expr any_fraction(sh_grammar_builder *b)
{
    sh_expr parts[] = {text(b, ".", 1), digits(b, 1, SH_EXPR_UNLIMITED)};
    return sh_expr_optional(b, sh_expr_seq(b, parts, 2));
}

/* Whole parts that are greater (or smaller) than `whole`, each with any fraction. */
static void add_other_wholes(forms *f, const char *whole, bool greater)
{
    sh_grammar_builder *b = f->b;
    uint32_t len = (uint32_t)strlen(whole);
    sh_expr fraction = any_fraction(b);
    for (uint32_t i = 0; i < len; i++) {
        char least = i == 0 && len > 1 ? '1' : '0';
        sh_expr differs = greater ? digit(b, (char)(whole[i] + 1), '9')
                                  : digit(b, least, (char)(whole[i] - 1));
        sh_expr parts[] = {text(b, whole, i), differs, digits(b, len - i - 1, len - i - 1),
                           fraction};
        add_form(f, parts, 4);
    }
    sh_expr first = digit(b, '1', '9');
    if (greater) {
        sh_expr parts[] = {first, digits(b, len, SH_EXPR_UNLIMITED), fraction};
        add_form(f, parts, 3);
    } else if (len > 1) {
        sh_expr parts[] = {first, digits(b, 0, len - 2), fraction};
        sh_expr zero[] = {text(b, "0", 1), fraction};
        add_form(f, parts, 3);
        add_form(f, zero, 2);
    }
}

static sh_expr not_all_zeros(sh_grammar_builder *b)
{
    sh_expr parts[] = {digits(b, 0, SH_EXPR_UNLIMITED), digit(b, '1', '9'),
                       digits(b, 0, SH_EXPR_UNLIMITED)};
    return sh_expr_seq(b, parts, 3);
}

/* The same whole part, and a fraction that is greater than `fraction` (or equal). */
static void add_fractions_above(forms *f, const decimal *d, bool exclusive)
{
    sh_grammar_builder *b = f->b;
    size_t len = strlen(d->fraction);
    sh_expr whole = text(b, d->whole, strlen(d->whole)), point = text(b, ".", 1);
    sh_expr any = digits(b, 0, SH_EXPR_UNLIMITED);
    for (size_t i = 0; i < len; i++) {
        sh_expr parts[] = {whole, point, text(b, d->fraction, i),
                           digit(b, (char)(d->fraction[i] + 1), '9'), any};
        add_form(f, parts, 5);
    }
    if (len == 0 && !exclusive) {
        sh_expr parts[] = {whole, any_fraction(b)};
        add_form(f, parts, 2);
    } else {
        sh_expr parts[] = {whole, point, text(b, d->fraction, len),
                           exclusive ? not_all_zeros(b) : any};
        add_form(f, parts, 4);
    }
}

static void add_fractions_below(forms *f, const decimal *d, bool exclusive)
{
    sh_grammar_builder *b = f->b;
    size_t len = strlen(d->fraction);
    sh_expr whole = text(b, d->whole, strlen(d->whole)), point = text(b, ".", 1);
    sh_expr any = digits(b, 0, SH_EXPR_UNLIMITED);
    sh_expr zero = digit(b, '0', '0');
    for (size_t i = 0; i < len; i++) {
        sh_expr parts[] = {whole, point, text(b, d->fraction, i),
                           digit(b, '0', (char)(d->fraction[i] - 1)), any};
        add_form(f, parts, 5);
        /* What ends here is smaller: the fraction has a digit other than 0 left. */
        sh_expr shorter[] = {whole, i == 0 ? SH_EXPR_AT_EMPTY : point, text(b, d->fraction, i)};
        add_form(f, shorter, 3);
    }
    if (exclusive) return;
    sh_expr zeros[] = {point, text(b, d->fraction, len),
                       sh_expr_repeat(b, zero, len == 0 ? 1 : 0, SH_EXPR_UNLIMITED)};
    sh_expr tail = sh_expr_seq(b, zeros, 3);
    sh_expr parts[] = {whole, len == 0 ? sh_expr_optional(b, tail) : tail};
    add_form(f, parts, 2);
}

/* Spellings without a sign that are above or below. */
static sh_expr magnitudes(sh_grammar_builder *b, const decimal *d, bool exclusive, bool above)
{
    forms f = {.b = b};
    add_other_wholes(&f, d->whole, above);
    if (above)
        add_fractions_above(&f, d, exclusive);
    else
        add_fractions_below(&f, d, exclusive);
    return sh_expr_any_of(b, f.items, f.count);
}

/* Numbers of the other sign are all on one side of the bound. */
static const sh_lang *bounded(sh_grammar_builder *b, const decimal *d, bool exclusive, bool upper)
{
    sh_expr minus = text(b, "-", 1),
            all = sh_expr_seq(b, (sh_expr[]){digits(b, 1, SH_EXPR_UNLIMITED), any_fraction(b)}, 2);
    bool zero = strcmp(d->whole, "0") == 0 && d->fraction[0] == '\0';
    bool negative = d->negative && !zero;
    sh_expr near = magnitudes(b, d, exclusive, upper == negative);
    sh_expr choices[2];
    size_t count = 0;
    if (negative)
        choices[count++] = sh_expr_seq(b, (sh_expr[]){minus, near}, 2);
    else
        choices[count++] = near;
    if (upper && !negative) {
        decimal none = {.whole = "0"};
        sh_expr below_zero = zero && exclusive ? magnitudes(b, &none, true, true) : all;
        choices[count++] = sh_expr_seq(b, (sh_expr[]){minus, below_zero}, 2);
    }
    if (!upper && negative) choices[count++] = all;
    return sh_lang_from_expr(b, sh_expr_any_of(b, choices, count));
}

/* ---- multiples ---- */

/* The step is k / 10^d. Spellings with at most d digits after the point whose digits, filled up to
 * d of them, are a multiple of k. */
static const sh_lang *multiples_of(sh_grammar_builder *b, uint32_t k, uint32_t d)
{
    sh_nfa nfa;
    sh_lang dfa;
    sh_nfa_init(&nfa, b);
    uint32_t start = sh_nfa_state(&nfa), end = sh_nfa_state(&nfa), body = sh_nfa_state(&nfa);
    uint32_t base = nfa.state_count; /* base + place * k + remainder */
    for (uint32_t i = 0; i < k * (d + 1); i++) sh_nfa_state(&nfa);
    sh_nfa_add(&nfa, start, '-', '-', body);
    sh_nfa_skip(&nfa, start, body);
    for (uint32_t c = 0; c < 10; c++) sh_nfa_add(&nfa, body, '0' + c, '0' + c, base + c % k);
    for (uint32_t place = 0; place <= d && sh_expr_ok(b); place++) {
        uint64_t scale = 1;
        for (uint32_t i = place; i < d; i++) scale = scale * 10 % k;
        for (uint32_t r = 0; r < k; r++) {
            uint32_t at = base + place * k + r, point = at;
            if (r * scale % k == 0) sh_nfa_skip(&nfa, at, end);
            for (uint32_t c = 0; c < 10 && place == 0; c++)
                sh_nfa_add(&nfa, at, '0' + c, '0' + c, base + (r * 10 + c) % k);
            if (place == d) continue;
            if (place == 0) {
                point = sh_nfa_state(&nfa);
                sh_nfa_add(&nfa, at, '.', '.', point);
            }
            for (uint32_t c = 0; c < 10; c++)
                sh_nfa_add(&nfa, point, '0' + c, '0' + c,
                           base + (place + 1) * k + (r * 10 + c) % k);
        }
    }
    const sh_lang *out = NULL;
    if (sh_expr_ok(b) && sh_nfa_determinize(&nfa, start, end, &dfa)) {
        out = sh_lang_keep(b, &dfa);
        sh_dfa_reset(&dfa);
    }
    sh_nfa_reset(&nfa);
    return out;
}

static const sh_lang *multiples(sh_schema *s, const cJSON *number)
{
    decimal d;
    bool ok = read_decimal(number, &d);
    uint32_t places = (uint32_t)strlen(d.fraction);
    uint64_t k = 0;
    for (const char *c = d.whole; ok && *c != '\0' && k <= REMAINDERS_MAX; c++)
        k = k * 10 + (uint64_t)(*c - '0');
    for (const char *c = d.fraction; ok && *c != '\0' && k <= REMAINDERS_MAX; c++)
        k = k * 10 + (uint64_t)(*c - '0');
    if (!ok || k * (places + 1) > REMAINDERS_MAX || k == 0) {
        sh_schema_fail(s, number, SH_ERR_UNSUPPORTED, "cannot be enforced for this number");
        return NULL;
    }
    return multiples_of(s->b, (uint32_t)k, places);
}

/* ---- together ---- */

static const sh_lang *narrow(sh_schema *s, const sh_lang *lang, sh_bound bound, bool upper)
{
    decimal d;
    if (bound.number == NULL) return lang;
    if (!read_decimal(bound.number, &d)) {
        sh_schema_fail(s, bound.number, SH_ERR_UNSUPPORTED, "cannot be enforced for this number");
        return NULL;
    }
    return sh_lang_intersect(s->b, lang, bounded(s->b, &d, bound.exclusive, upper));
}

/* How many digits a number on the far side of zero from this bound has at least. */
static int digits_beyond(sh_bound bound, bool upper)
{
    decimal d;
    if (bound.number == NULL || !read_decimal(bound.number, &d) || d.negative != upper) return 0;
    return (int)strlen(d.whole);
}

/* All spellings of at most so many digits. */
static const sh_lang *exact_numbers(sh_schema *s, const sh_shape *shape, bool integer)
{
    int low = digits_beyond(shape->min, false), high = digits_beyond(shape->max, true);
    int most = low > high ? low : high;
    if (most < EXACT_DIGITS) most = EXACT_DIGITS;
    sh_buf pattern = {0};
    sh_buf_addf(&pattern, "0|-?[1-9]\\d{0,%d}", most - 1);
    if (!integer) sh_buf_addf(&pattern, "|-?0\\.\\d{1,%d}", most);
    for (int i = 1; i < most && !integer; i++)
        sh_buf_addf(&pattern, "|-?[1-9]\\d{%d}\\.\\d{1,%d}", i - 1, most - i);
    const sh_lang *lang = sh_lang_regex(s->b, sh_buf_str(&pattern), true);
    sh_buf_reset(&pattern);
    return lang;
}

const sh_lang *sh_schema_numbers(sh_schema *s, const sh_shape *shape)
{
    bool integer = (shape->types & SH_TYPE_FRACTION) == 0;
    if (shape->min.number == NULL && shape->max.number == NULL && shape->multiple_count == 0)
        return sh_lang_regex(s->b, sh_str_of(integer ? FREE_INTEGER : FREE_NUMBER), true);
    const sh_lang *lang = exact_numbers(s, shape, integer);
    lang = narrow(s, lang, shape->min, false);
    lang = narrow(s, lang, shape->max, true);
    for (size_t i = 0; i < shape->multiple_count; i++)
        lang = sh_lang_intersect(s->b, lang, multiples(s, shape->multiples[i]));
    return lang;
}
