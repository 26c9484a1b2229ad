/* Bytes from a socket: the head of a request, then a chunked body split in two places. */
#include "http/chunked.h"
#include "http/head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void head_try(const uint8_t *data, size_t size)
{
    sh_http_head head;
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    sh_http_refusal refusal = sh_http_head_parse(text, size, &head);
    /* An accepted head has one length, and refers only to bytes of the message. */
    if (refusal.status == 0 && head.chunked && head.content_length != 0) abort();
    for (int i = 0; i < head.header_count; i++)
        if (head.headers[i].name.ptr < text ||
            head.headers[i].value.ptr + head.headers[i].value.len > text + size)
            abort();
    free(text);
}

static void chunks_try(const uint8_t *data, size_t size)
{
    enum { BODY_MAX = 64 };
    sh_http_chunked chunked = {0};
    struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();
    bool done = false;
    size_t first = size / 3, second = size / 2;
    evbuffer_add(in, data, first);
    sh_http_refusal refusal = sh_http_chunked_read(&chunked, in, out, BODY_MAX, &done);
    if (refusal.status == 0 && !done) {
        evbuffer_add(in, data + first, second - first);
        refusal = sh_http_chunked_read(&chunked, in, out, BODY_MAX, &done);
    }
    if (refusal.status == 0 && !done) {
        evbuffer_add(in, data + second, size - second);
        refusal = sh_http_chunked_read(&chunked, in, out, BODY_MAX, &done);
    }
    if (evbuffer_get_length(out) > BODY_MAX) abort();
    evbuffer_free(in);
    evbuffer_free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    head_try(data, size);
    chunks_try(data, size);
    return 0;
}
