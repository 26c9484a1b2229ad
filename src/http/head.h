/* head.h - the head of an HTTP/1 request: request line, headers, and the framing of its body.
 *
 * Parsing is strict, because a server that reads a message differently than the proxy before it
 * allows request smuggling: two lengths, a length together with chunks, folded lines, white space
 * before a colon, bare line feeds and control characters are refused, not repaired.
 *
 * libevent's own HTTP server is not used: it answers errors with HTML pages, accepts the lax forms
 * above, lets the input of a request grow without a limit, bounds neither the duration of a request
 * nor the number of connections, and does not notice a client that leaves before its answer is
 * ready.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_HEAD_H
#define SH_HTTP_HEAD_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SH_HTTP_HEADERS_MAX = 100 };

typedef enum {
    SH_HTTP_GET,
    SH_HTTP_HEAD,
    SH_HTTP_POST,
    SH_HTTP_PUT,
    SH_HTTP_PATCH,
    SH_HTTP_DELETE,
    SH_HTTP_OPTIONS,
    SH_HTTP_OTHER, /* a method that this server does not know */
} sh_http_method;

typedef struct {
    sh_str name; /* lower case */
    sh_str value;
} sh_http_header;

typedef struct {
    sh_http_method method;
    sh_str method_text;
    sh_str path;  /* as sent, still percent-encoded; starts with '/' or is "*" */
    sh_str query; /* what follows the '?', may be empty */
    int minor;    /* HTTP/1.<minor> */
    sh_http_header headers[SH_HTTP_HEADERS_MAX];
    int header_count;
    bool keep_alive;
    bool expect_continue;
    bool chunked;
    uint64_t content_length; /* 0 if chunked */
} sh_http_head;

/* Why a message is refused: the HTTP status and a sentence. */
typedef struct {
    int status; /* 0: not refused */
    const char *why;
} sh_http_refusal;

/* Parses a head including the empty line at its end, converting header names to lower case in
 * place. *out borrows from text. On refusal *out holds what was parsed so far. */
sh_http_refusal sh_http_head_parse(char *text, size_t len, sh_http_head *out);

/* The value of a header (name in lower case), or an empty string. */
sh_str sh_http_head_find(const sh_http_head *head, const char *name);

/* "GET", ... */
const char *sh_http_method_name(sh_http_method method);

/* Whether the comma-separated list contains the token, ignoring case. */
bool sh_http_list_has(sh_str list, const char *token);

#endif
