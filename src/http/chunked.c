/* An incremental decoder: it consumes what has arrived and keeps its state between calls. Data is
 * moved from one evbuffer to the other without copying; only lines are copied, into a small buffer.
 * A size is checked against the limit before its data arrives. */
#include "http/chunked.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 256, TRAILER_MAX_BYTES = 8192 };

typedef enum { LINE_WHOLE, LINE_PARTIAL, LINE_BAD } line_state;

/* Removes one line ending with CR LF from the input and stores it without them, zero-terminated. */
static line_state line_read(struct evbuffer *in, char *line, size_t *len)
{
    struct evbuffer_ptr eol = evbuffer_search_eol(in, NULL, NULL, EVBUFFER_EOL_CRLF_STRICT);
    size_t have = evbuffer_get_length(in);
    if (eol.pos < 0) return have > LINE_MAX_BYTES ? LINE_BAD : LINE_PARTIAL;
    if (eol.pos > LINE_MAX_BYTES) return LINE_BAD;
    *len = (size_t)eol.pos;
    evbuffer_remove(in, line, *len);
    line[*len] = '\0';
    evbuffer_drain(in, 2);
    return LINE_WHOLE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* "1A" or "1a;name=value"; false if it is neither. At most 15 digits, so that it cannot overflow.
 */
static bool size_parse(const char *line, size_t len, uint64_t *out)
{
    uint64_t size = 0;
    size_t at = 0;
    for (; at < len && hex_digit(line[at]) >= 0; at++) {
        if (at == 15) return false;
        size = size * 16 + (uint64_t)hex_digit(line[at]);
    }
    if (at == 0) return false;
    while (at < len && (line[at] == ' ' || line[at] == '\t')) at++;
    *out = size;
    return at == len || line[at] == ';';
}

static sh_http_refusal size_read(sh_http_chunked *chunked, const char *line, size_t len,
                                 size_t have, size_t body_max)
{
    if (!size_parse(line, len, &chunked->left))
        return (sh_http_refusal){400, "a chunk of the body has no valid size"};
    if (chunked->left > body_max - have) /* have <= body_max, by this very check */
        return (sh_http_refusal){413, "the body is larger than this server accepts"};
    chunked->state = chunked->left == 0 ? CHUNK_TRAILER : CHUNK_DATA;
    return (sh_http_refusal){0, NULL};
}

static void data_read(sh_http_chunked *chunked, struct evbuffer *in, struct evbuffer *out)
{
    size_t have = evbuffer_get_length(in);
    size_t take = have < chunked->left ? have : (size_t)chunked->left;
    evbuffer_remove_buffer(in, out, take);
    chunked->left -= take;
    if (chunked->left == 0) chunked->state = CHUNK_END;
}

/* Handles a complete line, in the states that read lines. */
static sh_http_refusal line_handle(sh_http_chunked *chunked, const char *line, size_t len,
                                   size_t have, size_t body_max)
{
    if (chunked->state == CHUNK_SIZE) return size_read(chunked, line, len, have, body_max);
    if (chunked->state == CHUNK_END) {
        chunked->state = CHUNK_SIZE;
        return len == 0 ? (sh_http_refusal){0, NULL}
                        : (sh_http_refusal){400, "a chunk of the body is longer than its size"};
    }
    chunked->trailer_bytes += len;
    if (len == 0) chunked->state = CHUNK_DONE;
    if (chunked->trailer_bytes > TRAILER_MAX_BYTES)
        return (sh_http_refusal){431, "the trailer of the body is too long"};
    return (sh_http_refusal){0, NULL};
}

sh_http_refusal sh_http_chunked_read(sh_http_chunked *chunked, struct evbuffer *in,
                                     struct evbuffer *out, size_t body_max, bool *done)
{
    char line[LINE_MAX_BYTES + 1];
    size_t len;
    sh_http_refusal refusal = {0, NULL};
    *done = false;
    while (refusal.status == 0 && chunked->state != CHUNK_DONE) {
        if (chunked->state == CHUNK_DATA) {
            if (evbuffer_get_length(in) == 0) return refusal;
            data_read(chunked, in, out);
            continue;
        }
        line_state got = line_read(in, line, &len);
        if (got == LINE_PARTIAL) return refusal;
        if (got == LINE_BAD) return (sh_http_refusal){400, "a chunk of the body has no valid size"};
        refusal = line_handle(chunked, line, len, evbuffer_get_length(out), body_max);
    }
    *done = refusal.status == 0;
    return refusal;
}
