/* chunked.h - decodes a body in chunked transfer coding.
 *
 * Chunk extensions and trailers are skipped, and each of their lines is bounded, so only the body
 * itself needs memory.
 *
 * Threads: a decoder has one owner. */
#ifndef SH_HTTP_CHUNKED_H
#define SH_HTTP_CHUNKED_H

#include "http/head.h"

#include <event2/buffer.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER, CHUNK_DONE } state;
    uint64_t left;        /* CHUNK_DATA: bytes still to come */
    size_t trailer_bytes; /* CHUNK_TRAILER: read so far */
} sh_http_chunked;        /* zero is the initial state */

/* Moves decoded bytes from `in` to `out`, which may reach body_max bytes, and sets *done when the
 * body is complete; bytes after it stay in `in`. */
sh_http_refusal sh_http_chunked_read(sh_http_chunked *chunked, struct evbuffer *in,
                                     struct evbuffer *out, size_t body_max, bool *done);

#endif
