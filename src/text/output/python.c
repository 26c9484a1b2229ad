/* Calls written in Python:
 *   [get_weather(city='Paris', days=3), now()]
 * Each argument is converted to a member of one JSON object as soon as it is complete. Where it
 * ends is found byte by byte (brackets and quotes), so that a long one is looked at only once; then
 * it is parsed as a literal: text, number, True, False, None, list, tuple or dictionary. JSON's
 * spellings are accepted as well. Anything else, and arguments without a name, are no call. */
#include "text/output/output_internal.h"

#include <string.h>

enum { DEPTH_MAX = 32 };

static bool step_item(sh_output *o);
static bool step_argument(sh_output *o);

/* ---- literals ---- */

static bool literal(sh_str *rest, sh_buf *out, int depth);

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static void skip(sh_str *rest, size_t len)
{
    *rest = sh_str_sub(*rest, len, rest->len);
}

static void skip_space(sh_str *rest)
{
    while (rest->len > 0 && is_one_of(rest->ptr[0], " \t\r\n")) skip(rest, 1);
}

static bool take(sh_str *rest, char c)
{
    skip_space(rest);
    if (rest->len == 0 || rest->ptr[0] != c) return false;
    skip(rest, 1);
    return true;
}

/* The number that `min` to `max` digits give. */
static bool take_digits(sh_str *rest, uint32_t base, size_t min, size_t max, uint32_t *value)
{
    size_t len = 0;
    *value = 0;
    for (; len < max && len < rest->len; len++) {
        char c = rest->ptr[len];
        uint32_t digit = is_one_of(c, "0123456789")     ? (uint32_t)(c - '0')
                         : is_one_of(c, "abcdefABCDEF") ? (uint32_t)((c | 32) - 'a' + 10)
                                                        : base;
        if (digit >= base) break;
        *value = *value * base + digit;
    }
    skip(rest, len);
    return len >= min;
}

/* A code that cannot be a character by itself may be half of a pair, which JSON writes as well. */
static bool add_code(sh_buf *out, uint32_t code)
{
    char bytes[4];
    bool half = code >= 0xd800 && code < 0xe000;
    if (code > 0x10ffff) return false;
    if (code == '"' || code == '\\')
        sh_buf_addf(out, "\\%c", (char)code);
    else if (half || code < 0x20)
        sh_buf_addf(out, "\\u%04x", code);
    else
        sh_buf_add(out, bytes, (size_t)sh_utf8_encode(code, bytes));
    return true;
}

/* What follows a backslash. Python keeps the backslash of a sequence that means nothing. */
static bool escape(sh_str *rest, sh_buf *out)
{
    static const char letters[] = "abfnrtv'\"\\", codes[] = "\a\b\f\n\r\t\v'\"\\";
    static const struct {
        char letter;
        size_t digits;
    } hex[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    uint32_t code;
    char c = rest->len > 0 ? rest->ptr[0] : '\0';
    if (is_one_of(c, "01234567")) return take_digits(rest, 8, 1, 3, &code) && add_code(out, code);
    if (c == '\0') return false;
    skip(rest, 1);
    for (size_t i = 0; i < SH_COUNT_OF(hex); i++)
        if (c == hex[i].letter)
            return take_digits(rest, 16, hex[i].digits, hex[i].digits, &code) &&
                   add_code(out, code);
    if (c == '\n') return true; /* a line that goes on */
    const char *known = strchr(letters, c);
    if (known != NULL) return add_code(out, (uint32_t)codes[known - letters]);
    *rest = (sh_str){rest->ptr - 1, rest->len + 1};
    return add_code(out, '\\');
}

static bool text(sh_str *rest, sh_buf *out)
{
    char quote = rest->ptr[0];
    skip(rest, 1);
    sh_buf_add_char(out, '"');
    while (rest->len > 0 && rest->ptr[0] != quote) {
        char c = rest->ptr[0];
        skip(rest, 1);
        if (c == '\\') {
            if (!escape(rest, out)) return false;
        } else if ((unsigned char)c < 0x20 || c == '"') {
            add_code(out, (uint32_t)(unsigned char)c);
        } else {
            sh_buf_add_char(out, c);
        }
    }
    sh_buf_add_char(out, '"');
    return take(rest, quote);
}

/* JSON wants a digit on both sides of the point, and knows neither a plus sign nor underscores. */
static bool number(sh_str *rest, sh_buf *out)
{
    size_t from = out->len, len = 0;
    char before = '\0';
    if (rest->len > 0 && rest->ptr[0] == '+') skip(rest, 1);
    for (; len < rest->len && is_one_of(rest->ptr[len], "+-.0123456789_eE"); len++) {
        char c = rest->ptr[len];
        bool lonely = c == '.' && (before == '\0' || before == '-');
        if (before == '.' && (c == 'e' || c == 'E')) sh_buf_add_char(out, '0');
        if (lonely) sh_buf_add_char(out, '0');
        if (c != '_') sh_buf_add_char(out, c);
        before = c;
    }
    if (before == '.') sh_buf_add_char(out, '0');
    skip(rest, len);
    return output_json_type(sh_str_sub(sh_buf_str(out), from, out->len)) == OUTPUT_TYPE_NUMBER;
}

static bool constant(sh_str *rest, sh_buf *out)
{
    static const char *const names[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        if (!sh_str_starts(*rest, sh_str_of(names[i][0]))) continue;
        skip(rest, strlen(names[i][0]));
        sh_buf_add_text(out, names[i][1]);
        return true;
    }
    return false;
}

/* A key of a JSON object is text. */
static bool key(sh_str *rest, sh_buf *out)
{
    skip_space(rest);
    if (rest->len == 0 || !is_one_of(rest->ptr[0], "\"'")) return false;
    if (!text(rest, out) || !take(rest, ':')) return false;
    sh_buf_add_text(out, ": ");
    return true;
}

/* A list, a tuple or a dictionary. A comma may follow the last item. */
static bool items(sh_str *rest, sh_buf *out, int depth)
{
    char open = rest->ptr[0], close = open == '(' ? ')' : open == '[' ? ']' : '}';
    bool object = open == '{', first = true;
    skip(rest, 1);
    sh_buf_add_char(out, object ? '{' : '[');
    while (!take(rest, close)) {
        if (!first) sh_buf_add_text(out, ", ");
        first = false;
        if (object && !key(rest, out)) return false;
        if (!literal(rest, out, depth + 1)) return false;
        if (take(rest, ',')) continue;
        if (!take(rest, close)) return false;
        break;
    }
    sh_buf_add_char(out, object ? '}' : ']');
    return true;
}

static bool literal(sh_str *rest, sh_buf *out, int depth)
{
    skip_space(rest);
    if (rest->len == 0 || depth > DEPTH_MAX) return false;
    if (is_one_of(rest->ptr[0], "\"'")) return text(rest, out);
    if (is_one_of(rest->ptr[0], "[({")) return items(rest, out, depth);
    return constant(rest, out) || number(rest, out);
}

/* ---- calls ---- */

/* Consumes the argument as far as it is there: up to a comma or parenthesis that is neither quoted
 * nor in brackets. */
static bool argument_ends(sh_output *o)
{
    output_python *p = &o->python;
    for (; o->pos < o->buf.len; o->pos++) {
        char c = o->buf.ptr[o->pos];
        if (p->escaped) {
            p->escaped = false;
        } else if (p->quote != '\0') {
            p->escaped = c == '\\';
            if (c == p->quote) p->quote = '\0';
        } else if (c == '"' || c == '\'') {
            p->quote = c;
        } else if (p->depth == 0 && (c == ',' || c == ')')) {
            return true;
        } else {
            p->depth += (c == '[' || c == '(' || c == '{') - (c == ']' || c == ')' || c == '}');
        }
    }
    return false;
}

/* Reports NAME=LITERAL as a member. */
static bool argument_send(sh_output *o, sh_str written)
{
    sh_str name;
    if (!sh_str_cut(&written, '=', &name)) return false;
    name = sh_str_trim(name);
    if (!output_name_set(&o->scratch, name)) return false;
    sh_buf_clear(&o->token);
    sh_buf_addf(&o->token, "%s\"%.*s\": ", o->first ? "{" : ", ", (int)name.len, name.ptr);
    if (!literal(&written, &o->token, 0)) return false;
    skip_space(&written);
    if (written.len > 0) return false;
    if (!o->begun) output_call_begin(o);
    output_call_args(o, sh_buf_str(&o->token));
    o->first = false;
    return true;
}

static bool end_call(sh_output *o)
{
    if (!o->begun) output_call_begin(o);
    output_call_args(o, o->first ? SH_STR("{}") : SH_STR("}"));
    output_call_end(o);
    o->step = step_item;
    return true;
}

static bool step_value(sh_output *o)
{
    if (!argument_ends(o)) return output_call_wait(o);
    sh_str all = sh_buf_str(&o->buf);
    if (!argument_send(o, sh_str_sub(all, o->head_pos, o->pos - o->head_pos)))
        return output_call_fail(o);
    bool last = all.ptr[o->pos++] == ')';
    if (last) return end_call(o);
    o->step = step_argument;
    return true;
}

static bool step_argument(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    if (o->buf.ptr[o->pos] == ')') {
        o->pos++;
        return end_call(o);
    }
    o->head_pos = o->pos;
    o->python = (output_python){0};
    o->step = step_value;
    return true;
}

/* Without a marker, what does not name a known tool is an answer, such as a list in JSON. */
static bool is_callable(const sh_output *o)
{
    return o->dialect.tools->bare == NULL || o->opts.tools == NULL ||
           output_tool_find(o, sh_buf_str(&o->name)) != NULL;
}

static bool step_name(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    sh_str name = output_rest(o);
    size_t len = sh_str_find(name, SH_STR("("), 0);
    if (len > OUTPUT_NAME_MAX) return output_call_fail(o);
    /* What cannot be a name need not wait for its end. */
    sh_str begun = sh_str_sub(name, 0, len);
    if (begun.len > 0 && !output_name_set(&o->name, begun)) return output_call_fail(o);
    if (len == name.len) return output_call_wait(o);
    if (begun.len == 0 || !is_callable(o)) return output_call_fail(o);
    o->pos += len + 1;
    o->step = step_argument;
    return true;
}

/* After a call: the next one, or the end of the list. */
static bool step_item(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    char c = o->buf.ptr[o->pos];
    if (c != ',' && c != ']') return output_call_fail(o);
    o->pos++;
    if (c == ']') output_commit(o);
    output_call_reset(o);
    o->step = c == ']' ? output_step_after : step_name;
    return true;
}

bool output_step_python(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    if (o->buf.ptr[o->pos] != '[') return output_call_fail(o);
    o->pos++;
    o->step = step_name;
    return true;
}
