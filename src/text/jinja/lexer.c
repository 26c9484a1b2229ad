/* Follows Jinja's lexer to the letter, because white space in a prompt is significant: a line break
 * that Jinja drops and we keep is another prompt. Where Jinja's regular expressions have odd edges
 * (a "+" that is not allowed at the end of a raw tag, a float that must not follow a dot, unknown
 * escapes) the functions here reproduce them.
 *
 * The lexer alternates between data and tags. Data ends at the next "{{", "{%" or "{#"; what the
 * tag's sign and lstrip_blocks remove from the end of the data has to be known before the data
 * token is returned, so data_next() looks at the tag first and remembers its begin in `pending`. */
#include "text/jinja/lexer.h"

#include "text/jinja/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void sh_jlexer_init(sh_jlexer *lex, sh_jrun *run, sh_str source)
{
    char *copy = sh_jrun_alloc(run, source.len);
    size_t len = 0;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.ptr[i];
        if (c == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n') continue;
        copy[len++] = c == '\r' ? '\n' : c;
    }
    if (len > 0 && copy[len - 1] == '\n') len--;
    *lex = (sh_jlexer){.run = run, .source = {copy, len}, .line = 1, .tag = SH_JT_DATA};
}

static SH_NORETURN void lex_fail(sh_jlexer *lex, const char *what)
{
    lex->run->line = lex->line;
    sh_jrun_error(lex->run, "%s", what);
}

/* Advances the line number to a position. Incremental, so counting is linear in the source. */
static void line_to(sh_jlexer *lex, size_t pos)
{
    for (; lex->line_pos < pos; lex->line_pos++)
        if (lex->source.ptr[lex->line_pos] == '\n') lex->line++;
}

static char peek(const sh_jlexer *lex, size_t at)
{
    return at < lex->source.len ? lex->source.ptr[at] : '\0';
}

static bool looking_at(const sh_jlexer *lex, size_t at, const char *text)
{
    return sh_str_starts(sh_str_sub(lex->source, at, lex->source.len), sh_str_of(text));
}

static size_t skip_space(const sh_jlexer *lex, size_t at)
{
    return at + sh_uni_space_prefix(sh_str_sub(lex->source, at, lex->source.len));
}

/* White space control around tags. "-" strips all white space on its side, "+" turns trim_blocks
 * and lstrip_blocks off; without a sign these two apply to blocks and comments, but not to {{ }}.
 * */

/* Where text continues after the end of a tag: "-" skips all white space, "%}" and "#}" without a
 * sign one newline. */
static size_t end_skip(const sh_jlexer *lex, size_t at, char sign, bool trim)
{
    if (sign == '-') return skip_space(lex, at);
    return sign != '+' && trim && peek(lex, at) == '\n' ? at + 1 : at;
}

static sh_jtoken token_at(sh_jlexer *lex, sh_jtoken_type type, size_t start, size_t end)
{
    line_to(lex, start);
    return (sh_jtoken){type, lex->line, sh_str_sub(lex->source, start, end - start), {0}};
}

/* The end of the data start..end once white space before a tag with the given sign is stripped.
 * lstrip_blocks removes blanks only if there is nothing else on the line before the tag. */
static size_t data_strip(const sh_jlexer *lex, size_t start, size_t end, char sign, bool lstrip)
{
    sh_str text = sh_str_sub(lex->source, start, end - start);
    if (sign == '-') return end - sh_uni_space_suffix(text);
    if (sign == '+' || !lstrip) return end;
    size_t line = end;
    while (line > start && lex->source.ptr[line - 1] != '\n') line--;
    bool fresh = line > 0 ? lex->source.ptr[line - 1] == '\n' : true;
    sh_str blank = sh_str_sub(lex->source, line, end - line);
    return fresh && sh_uni_space_prefix(blank) == blank.len ? line : end;
}

static char sign_at(const sh_jlexer *lex, size_t at)
{
    char c = peek(lex, at);
    return c == '-' || c == '+' ? c : '\0';
}

/* The sign before "#}" decides about white space, but only if it is not the sign of the begin tag.
 * */
static void comment_skip(sh_jlexer *lex)
{
    size_t at = sh_str_find(lex->source, SH_STR("#}"), lex->pos);
    if (at >= lex->source.len) lex_fail(lex, "Missing end of comment tag");
    char sign = at > lex->pos ? sign_at(lex, at - 1) : '\0';
    lex->pos = end_skip(lex, at + 2, sign, true);
}

/* If a tag `{%`sign word sign`%}` starts at `at`: the position of its last sign or "%}", else 0. */
static size_t word_tag(const sh_jlexer *lex, size_t at, const char *word)
{
    size_t p = skip_space(lex, at + 2 + (sign_at(lex, at + 2) != '\0'));
    if (!looking_at(lex, p, word)) return 0;
    p = skip_space(lex, p + strlen(word));
    char sign = sign_at(lex, p);
    return looking_at(lex, p + (sign != '\0'), "%}") ? p : 0;
}

/* Everything up to the endraw tag is data. */
static sh_jtoken raw_next(sh_jlexer *lex, size_t start)
{
    for (size_t at = start;; at += 2) {
        at = sh_str_find(lex->source, SH_STR("{%"), at);
        if (at >= lex->source.len) lex_fail(lex, "Missing end of raw directive");
        size_t tail = word_tag(lex, at, "endraw");
        if (tail == 0) continue;
        size_t end = data_strip(lex, start, at, sign_at(lex, at + 2), true);
        char sign = sign_at(lex, tail);
        lex->pos = end_skip(lex, tail + 2 + (sign != '\0'), sign, true);
        return token_at(lex, SH_JT_DATA, start, end);
    }
}

/* The next position from `at` on where a tag or comment begins; the end if there is none. */
static size_t tag_find(const sh_jlexer *lex, size_t at)
{
    for (; at + 1 < lex->source.len; at++) {
        const char *p = memchr(lex->source.ptr + at, '{', lex->source.len - at);
        if (p == NULL) break;
        at = (size_t)(p - lex->source.ptr);
        char c = peek(lex, at + 1);
        if (c == '{' || c == '%' || c == '#') return at;
    }
    return lex->source.len;
}

/* Enters the tag at `at`; a comment is skipped at once. */
static void tag_start(sh_jlexer *lex, size_t at)
{
    char kind = peek(lex, at + 1);
    line_to(lex, at);
    lex->pos = at + 2 + (sign_at(lex, at + 2) != '\0');
    if (kind == '#') {
        comment_skip(lex);
        return;
    }
    lex->tag = lex->pending = kind == '{' ? SH_JT_VARIABLE_BEGIN : SH_JT_BLOCK_BEGIN;
}

/* If a raw block begins at `at`: where its text starts, else 0. Its begin tag cannot end in "+",
 * and does not trim a newline. */
static size_t raw_start(const sh_jlexer *lex, size_t at)
{
    size_t tail = peek(lex, at + 1) == '%' ? word_tag(lex, at, "raw") : 0;
    if (tail == 0 || peek(lex, tail) == '+') return 0;
    char sign = sign_at(lex, tail);
    return end_skip(lex, tail + 2 + (sign != '\0'), sign, false);
}

/* Returns the text before the next tag; if there is none, the begin of the tag itself. Comments
 * vanish here, so the loop may run several times. */
static sh_jtoken data_next(sh_jlexer *lex)
{
    while (lex->pending == SH_JT_EOF && lex->pos < lex->source.len) {
        size_t start = lex->pos, at = tag_find(lex, start);
        if (at == lex->source.len) {
            lex->pos = at;
            return token_at(lex, SH_JT_DATA, start, at);
        }
        size_t end = data_strip(lex, start, at, sign_at(lex, at + 2), peek(lex, at + 1) != '{');
        if (end > start) {
            lex->pos = at;
            return token_at(lex, SH_JT_DATA, start, end);
        }
        size_t raw = raw_start(lex, at);
        if (raw > 0) return raw_next(lex, raw);
        tag_start(lex, at);
    }
    line_to(lex, lex->pos);
    sh_jtoken token = {.type = lex->pending, .line = lex->line};
    lex->pending = SH_JT_EOF;
    return token;
}

/* Numbers. Floats are tried first, since an integer is a prefix of a float. */

/* Skips digits with single underscores between them; returns `at` if there are none. */
static size_t digits_end(const sh_jlexer *lex, size_t at)
{
    while (isdigit((unsigned char)peek(lex, at))) {
        size_t next = at + 1;
        if (peek(lex, next) == '_' && isdigit((unsigned char)peek(lex, next + 1))) next++;
        at = next;
    }
    return at;
}

/* The end of a float at `at`, or `at` if there is none. After a dot there cannot be one: in
 * `a.1.2` each number is a subscript. */
static size_t float_end(const sh_jlexer *lex, size_t at)
{
    if (at > 0 && peek(lex, at - 1) == '.') return at;
    size_t whole = digits_end(lex, at), end = whole;
    if (whole == at) return at;
    if (peek(lex, end) == '.' && digits_end(lex, end + 1) > end + 1) end = digits_end(lex, end + 1);
    if ((peek(lex, end) | 0x20) == 'e') {
        size_t exp = end + 1;
        if (peek(lex, exp) == '+' || peek(lex, exp) == '-') exp++;
        if (digits_end(lex, exp) > exp) return digits_end(lex, exp);
    }
    return end > whole ? end : at;
}

static int digit_of(char c, int base)
{
    int digit = isdigit((unsigned char)c)    ? c - '0'
                : isxdigit((unsigned char)c) ? (c | 0x20) - 'a' + 10
                                             : base;
    return digit < base ? digit : -1;
}

/* Skips digits of the base, each of which may follow an underscore. */
static size_t base_digits_end(const sh_jlexer *lex, size_t at, int base)
{
    for (;;) {
        size_t digit = at + (peek(lex, at) == '_');
        if (digit_of(peek(lex, digit), base) < 0) return at;
        at = digit + 1;
    }
}

static sh_jtoken int_next(sh_jlexer *lex)
{
    size_t start = lex->pos, first = start, end;
    int base = 10;
    char mark = peek(lex, start) == '0' ? (char)(peek(lex, start + 1) | 0x20) : '\0';
    if (mark == 'b' || mark == 'o' || mark == 'x') {
        base = mark == 'b' ? 2 : mark == 'o' ? 8 : 16;
        first = start + 2;
        end = base_digits_end(lex, first, base);
        /* "0x" without digits is a zero and then a name, as for Jinja's regular expression. */
        if (end == first) base = 10, first = start, end = start + 1;
    } else if (peek(lex, start) == '0') {
        end = base_digits_end(lex, start, 1); /* after a leading zero, zeros only */
    } else {
        end = base_digits_end(lex, start, 10);
    }
    sh_jtoken token = token_at(lex, SH_JT_INT, start, end);
    int64_t value = 0;
    for (size_t i = first; i < end; i++) {
        int digit = digit_of(peek(lex, i), base);
        if (digit < 0) continue;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            lex->run->line = lex->line;
            sh_jrun_fail(lex->run, SH_ERR_LIMIT, "the number %.*s does not fit in 64 bits",
                         (int)(end - start < 40 ? end - start : 40), lex->source.ptr + start);
        }
    }
    token.value = sh_jv_int(value);
    lex->pos = end;
    return token;
}

static sh_jtoken float_next(sh_jlexer *lex, size_t end)
{
    sh_jtoken token = token_at(lex, SH_JT_FLOAT, lex->pos, end);
    char *digits = sh_jrun_alloc(lex->run, token.text.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < token.text.len; i++)
        if (token.text.ptr[i] != '_') digits[len++] = token.text.ptr[i];
    token.value = sh_jv_float(strtod(digits, NULL));
    lex->pos = end;
    return token;
}

/* Names may contain any letters of Unicode, as in Python. */
static size_t name_end(sh_jlexer *lex, size_t at)
{
    size_t start = at;
    while (at < lex->source.len) {
        uint32_t code = 0;
        int len = sh_utf8_decode(lex->source.ptr + at, lex->source.len - at, &code);
        if (len == 0 || !(at == start ? sh_uni_is_id_start(code) : sh_uni_is_id_part(code))) break;
        at += (size_t)len;
    }
    return at;
}

/* Strings, with the escapes of Python. */

/* The position after the closing quote; `at` if the string is not closed. */
static size_t string_end(const sh_jlexer *lex, size_t at)
{
    char quote = peek(lex, at);
    for (size_t i = at + 1; i < lex->source.len; i++) {
        if (lex->source.ptr[i] == '\\')
            i++;
        else if (lex->source.ptr[i] == quote)
            return i + 1;
    }
    return at;
}

/* Reads `count` hexadecimal digits at *at. */
static uint32_t hex_read(sh_jlexer *lex, sh_str text, size_t *at, size_t count, const char *fault)
{
    uint32_t code = 0;
    for (size_t i = 0; i < count; i++, ++*at) {
        int digit = *at < text.len ? digit_of(text.ptr[*at], 16) : -1;
        if (digit < 0) lex_fail(lex, fault);
        code = code << 4 | (uint32_t)digit;
    }
    return code;
}

static void put_code(sh_jlexer *lex, uint32_t code)
{
    if (code > 0x10ffff) lex_fail(lex, "illegal Unicode character");
    if (code >= 0xd800 && code < 0xe000) lex_fail(lex, "surrogates are not allowed in a string");
    sh_jrun_put_char(lex->run, code);
}

/* One to three digits. */
static uint32_t octal_read(sh_str text, size_t *at)
{
    uint32_t code = 0;
    for (int i = 0; i < 3 && *at < text.len && digit_of(text.ptr[*at], 8) >= 0; i++)
        code = code * 8 + (uint32_t)(text.ptr[(*at)++] - '0');
    return code;
}

/* Decodes the escape at *at, just after its backslash. Python keeps an unknown escape as it is; if
 * its character is not ASCII it becomes a numeric escape, because Jinja encodes the string with
 * backslashreplace before it decodes the escapes. */
static void escape_read(sh_jlexer *lex, sh_str text, size_t *at)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = text.ptr[*at];
    if (c >= '0' && c <= '7') {
        put_code(lex, octal_read(text, at));
        return;
    }
    uint32_t code = 0;
    *at += (size_t)sh_utf8_decode(text.ptr + *at, text.len - *at, &code);
    switch (c) {
    case '\n': return;
    case 'x': put_code(lex, hex_read(lex, text, at, 2, "truncated \\xXX escape")); return;
    case 'u': put_code(lex, hex_read(lex, text, at, 4, "truncated \\uXXXX escape")); return;
    case 'U': put_code(lex, hex_read(lex, text, at, 8, "truncated \\UXXXXXXXX escape")); return;
    case 'N': lex_fail(lex, "\\N{...} is not supported in a string");
    }
    for (const char *p = plain; *p != '\0'; p += 2) {
        if (p[0] != c) continue;
        put_code(lex, (unsigned char)p[1]);
        return;
    }
    put_code(lex, '\\');
    if (code < 0x80)
        put_code(lex, code);
    else
        sh_jrun_putf(lex->run, code < 0x100 ? "x%02x" : code < 0x10000 ? "u%04x" : "U%08x", code);
}

static sh_jtoken string_next(sh_jlexer *lex, size_t end)
{
    sh_jtoken token = token_at(lex, SH_JT_STRING, lex->pos + 1, end - 1);
    lex->pos = end;
    if (memchr(token.text.ptr, '\\', token.text.len) == NULL) return token;
    size_t mark = sh_jrun_mark(lex->run);
    for (size_t i = 0; i < token.text.len;) {
        const char *slash = memchr(token.text.ptr + i, '\\', token.text.len - i);
        size_t stop = slash == NULL ? token.text.len : (size_t)(slash - token.text.ptr);
        sh_jrun_put(lex->run, sh_str_sub(token.text, i, stop - i));
        i = stop + 1;
        if (slash != NULL) escape_read(lex, token.text, &i);
    }
    token.text = sh_jstr_str(sh_jrun_take(lex->run, mark));
    return token;
}

static const struct {
    const char *text;
    sh_jtoken_type type;
} operators[] = {
    {"//", SH_JT_FLOORDIV}, {"**", SH_JT_POW},      {"==", SH_JT_EQ},    {"!=", SH_JT_NE},
    {">=", SH_JT_GE},       {"<=", SH_JT_LE},       {"+", SH_JT_ADD},    {"-", SH_JT_SUB},
    {"/", SH_JT_DIV},       {"*", SH_JT_MUL},       {"%", SH_JT_MOD},    {"~", SH_JT_TILDE},
    {"[", SH_JT_LBRACKET},  {"]", SH_JT_RBRACKET},  {"(", SH_JT_LPAREN}, {")", SH_JT_RPAREN},
    {"{", SH_JT_LBRACE},    {"}", SH_JT_RBRACE},    {">", SH_JT_GT},     {"<", SH_JT_LT},
    {"=", SH_JT_ASSIGN},    {".", SH_JT_DOT},       {":", SH_JT_COLON},  {"|", SH_JT_PIPE},
    {",", SH_JT_COMMA},     {";", SH_JT_SEMICOLON},
};

/* Tracks open brackets. A tag can only end when all are closed: a `}}` inside is two braces, as at
 * the end of a nested dict. */
static void nest_follow(sh_jlexer *lex, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    const char *p = strchr(open, c);
    if (p != NULL) {
        if (lex->nest == SH_JLEX_NEST_MAX) lex_fail(lex, "brackets are nested too deeply");
        lex->closers[lex->nest++] = close[p - open];
    } else if (strchr(close, c) != NULL) {
        lex->run->line = lex->line;
        if (lex->nest == 0) sh_jrun_error(lex->run, "unexpected '%c'", c);
        char want = lex->closers[--lex->nest];
        if (want != c) sh_jrun_error(lex->run, "unexpected '%c', expected '%c'", c, want);
    }
}

static sh_jtoken operator_next(sh_jlexer *lex)
{
    for (size_t i = 0; i < SH_COUNT_OF(operators); i++) {
        if (!looking_at(lex, lex->pos, operators[i].text)) continue;
        size_t len = strlen(operators[i].text);
        sh_jtoken token = token_at(lex, operators[i].type, lex->pos, lex->pos + len);
        nest_follow(lex, operators[i].text[0]);
        lex->pos += len;
        return token;
    }
    line_to(lex, lex->pos);
    uint32_t code = 0;
    int len = sh_utf8_decode(lex->source.ptr + lex->pos, lex->source.len - lex->pos, &code);
    lex->run->line = lex->line;
    sh_jrun_error(lex->run, "unexpected char '%.*s' at %zu", len, lex->source.ptr + lex->pos,
                  sh_utf8_count(sh_str_sub(lex->source, 0, lex->pos)));
}

/* Leaves the tag if its end is at the current position. */
static bool end_next(sh_jlexer *lex, sh_jtoken *out)
{
    if (lex->nest > 0) return false;
    bool block = lex->tag == SH_JT_BLOCK_BEGIN;
    char sign = sign_at(lex, lex->pos);
    if (sign == '+' && !block) return false;
    if (!looking_at(lex, lex->pos + (sign != '\0'), block ? "%}" : "}}")) return false;
    *out = token_at(lex, block ? SH_JT_BLOCK_END : SH_JT_VARIABLE_END, lex->pos, lex->pos);
    lex->pos = end_skip(lex, lex->pos + 2 + (sign != '\0'), sign, block);
    lex->tag = SH_JT_DATA;
    return true;
}

/* The end of the tag is checked before operators: the "-" of "-%}" is not a minus. */
static sh_jtoken tag_next(sh_jlexer *lex)
{
    sh_jtoken token;
    if (end_next(lex, &token)) return token;
    lex->pos = skip_space(lex, lex->pos);
    if (end_next(lex, &token)) return token;
    if (lex->pos >= lex->source.len) {
        line_to(lex, lex->source.len);
        return (sh_jtoken){.type = SH_JT_EOF, .line = lex->line};
    }
    char c = peek(lex, lex->pos);
    if (isdigit((unsigned char)c)) {
        size_t end = float_end(lex, lex->pos);
        return end > lex->pos ? float_next(lex, end) : int_next(lex);
    }
    size_t end = name_end(lex, lex->pos);
    if (end > lex->pos) {
        token = token_at(lex, SH_JT_NAME, lex->pos, end);
        lex->pos = end;
        return token;
    }
    if (c == '\'' || c == '"') {
        end = string_end(lex, lex->pos);
        if (end > lex->pos) return string_next(lex, end);
    }
    return operator_next(lex);
}

sh_jtoken sh_jlexer_next(sh_jlexer *lex)
{
    sh_jrun_charge(lex->run, 1);
    if (lex->tag == SH_JT_DATA || lex->pending != SH_JT_EOF) return data_next(lex);
    return tag_next(lex);
}

const char *sh_jtoken_type_name(sh_jtoken_type type)
{
    for (size_t i = 0; i < SH_COUNT_OF(operators); i++)
        if (operators[i].type == type) return operators[i].text;
    switch (type) {
    case SH_JT_EOF: return "end of template";
    case SH_JT_DATA: return "template data / text";
    case SH_JT_VARIABLE_BEGIN: return "begin of print statement";
    case SH_JT_VARIABLE_END: return "end of print statement";
    case SH_JT_BLOCK_BEGIN: return "begin of statement block";
    case SH_JT_BLOCK_END: return "end of statement block";
    case SH_JT_NAME: return "name";
    case SH_JT_STRING: return "string";
    case SH_JT_INT: return "integer";
    default: return "float";
    }
}

sh_str sh_jtoken_describe(const sh_jtoken *token)
{
    if (token->type == SH_JT_NAME) return token->text;
    return sh_str_of(sh_jtoken_type_name(token->type));
}
