/* A pushdown automaton: the state is the position in the grammar, the stack one bit per open
 * bracket. The order of the states matters: sh_json_scan_feed() tells strings and numbers apart by
 * range. */
#include "text/output/json_scan.h"

#include <string.h>

enum {
    AT_VALUE,
    AT_FIRST_ITEM, /* after '[': a value or ']' */
    AT_FIRST_KEY,  /* after '{': a key or '}' */
    AT_KEY,
    AT_COLON,
    AT_NEXT, /* after a value inside an array or object */
    IN_STRING,
    IN_ESCAPE,
    IN_HEX,
    IN_LITERAL,
    NUM_SIGN,
    NUM_ZERO,
    NUM_INT,
    NUM_DOT,
    NUM_FRAC,
    NUM_E,
    NUM_E_SIGN,
    NUM_EXP,
};

void sh_json_scan_init(sh_json_scan *scan)
{
    memset(scan, 0, sizeof(*scan));
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static sh_json_scan_result go(sh_json_scan *s, uint8_t state)
{
    s->state = state;
    return SH_JSON_SCAN_MORE;
}

static bool in_object(const sh_json_scan *s)
{
    unsigned level = s->depth - 1u;
    return (s->objects[level / 8] >> (level % 8) & 1) != 0;
}

static sh_json_scan_result value_end(sh_json_scan *s)
{
    if (s->depth == 0) return SH_JSON_SCAN_DONE;
    return go(s, AT_NEXT);
}

/* Sets or clears the bit of the new level; it may hold a value from an earlier bracket. */
static sh_json_scan_result push_level(sh_json_scan *s, bool object)
{
    if (s->depth == SH_JSON_SCAN_DEPTH_MAX) return SH_JSON_SCAN_BAD;
    unsigned level = s->depth++;
    uint8_t bit = (uint8_t)(1u << (level % 8));
    if (object)
        s->objects[level / 8] |= bit;
    else
        s->objects[level / 8] &= (uint8_t)~bit;
    return go(s, object ? AT_FIRST_KEY : AT_FIRST_ITEM);
}

static sh_json_scan_result pop_level(sh_json_scan *s, bool object)
{
    if (in_object(s) != object) return SH_JSON_SCAN_BAD;
    s->depth--;
    return value_end(s);
}

static sh_json_scan_result start_string(sh_json_scan *s, bool key)
{
    s->key = key;
    return go(s, IN_STRING);
}

static sh_json_scan_result start_literal(sh_json_scan *s, const char *rest)
{
    s->literal = rest;
    return go(s, IN_LITERAL);
}

static sh_json_scan_result feed_value(sh_json_scan *s, char c)
{
    switch (c) {
    case '{': return push_level(s, true);
    case '[': return push_level(s, false);
    case '"': return start_string(s, false);
    case 't': return start_literal(s, "rue");
    case 'f': return start_literal(s, "alse");
    case 'n': return start_literal(s, "ull");
    case '-': return go(s, NUM_SIGN);
    case '0': return go(s, NUM_ZERO);
    default: return is_digit(c) ? go(s, NUM_INT) : SH_JSON_SCAN_BAD;
    }
}

/* Between tokens: white space is allowed here and nowhere else. */
static sh_json_scan_result feed_between(sh_json_scan *s, char c)
{
    if (is_space(c)) return SH_JSON_SCAN_MORE;
    switch (s->state) {
    case AT_VALUE: return feed_value(s, c);
    case AT_FIRST_ITEM: return c == ']' ? pop_level(s, false) : feed_value(s, c);
    case AT_FIRST_KEY:
        if (c == '}') return pop_level(s, true);
        return c == '"' ? start_string(s, true) : SH_JSON_SCAN_BAD;
    case AT_KEY: return c == '"' ? start_string(s, true) : SH_JSON_SCAN_BAD;
    case AT_COLON: return c == ':' ? go(s, AT_VALUE) : SH_JSON_SCAN_BAD;
    default: /* AT_NEXT */
        if (c == ',') return go(s, in_object(s) ? AT_KEY : AT_VALUE);
        if (c == '}' || c == ']') return pop_level(s, c == '}');
        return SH_JSON_SCAN_BAD;
    }
}

static sh_json_scan_result feed_string(sh_json_scan *s, char c)
{
    switch (s->state) {
    case IN_ESCAPE:
        if (c == 'u') {
            s->left = 4;
            return go(s, IN_HEX);
        }
        return c != '\0' && strchr("\"\\/bfnrt", c) != NULL ? go(s, IN_STRING) : SH_JSON_SCAN_BAD;
    case IN_HEX:
        if (!is_hex(c)) return SH_JSON_SCAN_BAD;
        return --s->left == 0 ? go(s, IN_STRING) : SH_JSON_SCAN_MORE;
    default:
        if (c == '\\') return go(s, IN_ESCAPE);
        if (c == '"') return s->key ? go(s, AT_COLON) : value_end(s);
        return (unsigned char)c < 0x20 ? SH_JSON_SCAN_BAD : SH_JSON_SCAN_MORE;
    }
}

/* Nothing in a number marks its last byte: the byte after it ends it, and must then be processed in
 * its own right. */
static sh_json_scan_result number_end(sh_json_scan *s, char c)
{
    if (s->depth == 0) return SH_JSON_SCAN_OVER;
    s->state = AT_NEXT;
    return feed_between(s, c);
}

/* RFC 8259: no leading zeros, no bare "-" or ".", digits on both sides of the point and after "e".
 * */
static sh_json_scan_result feed_number(sh_json_scan *s, char c)
{
    switch (s->state) {
    case NUM_SIGN:
        if (c == '0') return go(s, NUM_ZERO);
        return is_digit(c) ? go(s, NUM_INT) : SH_JSON_SCAN_BAD;
    case NUM_INT:
        if (is_digit(c)) return SH_JSON_SCAN_MORE;
        /* fall through */
    case NUM_ZERO:
        if (c == '.') return go(s, NUM_DOT);
        return c == 'e' || c == 'E' ? go(s, NUM_E) : number_end(s, c);
    case NUM_DOT: return is_digit(c) ? go(s, NUM_FRAC) : SH_JSON_SCAN_BAD;
    case NUM_FRAC:
        if (is_digit(c)) return SH_JSON_SCAN_MORE;
        return c == 'e' || c == 'E' ? go(s, NUM_E) : number_end(s, c);
    case NUM_E:
        if (c == '+' || c == '-') return go(s, NUM_E_SIGN);
        /* fall through */
    case NUM_E_SIGN: return is_digit(c) ? go(s, NUM_EXP) : SH_JSON_SCAN_BAD;
    default: return is_digit(c) ? SH_JSON_SCAN_MORE : number_end(s, c);
    }
}

sh_json_scan_result sh_json_scan_feed(sh_json_scan *s, char c)
{
    if (s->state >= NUM_SIGN) return feed_number(s, c);
    if (s->state == IN_LITERAL) {
        if (c != *s->literal) return SH_JSON_SCAN_BAD;
        s->literal++;
        return *s->literal == '\0' ? value_end(s) : SH_JSON_SCAN_MORE;
    }
    return s->state >= IN_STRING ? feed_string(s, c) : feed_between(s, c);
}
