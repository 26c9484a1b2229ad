/* head.h - the head of an HTTP/1 request: request line, headers, and how its body is framed.
 *
 * Strict, since a front that reads a message another way than the proxy before it is how requests
 * are smuggled: two lengths, a length beside chunks, folded lines, white space before a colon, bare
 * line feeds and control characters are refused, not repaired.
 *
 * libevent's own HTTP server is not used: it answers what it refuses with HTML pages and takes the
 * lax forms above, lets a request's input grow without bound, has no bound on the time of a
 * request or the number of connections, and does not see a client leave while its answer is made.
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
    sh_str path;  /* as sent, still percent-encoded; begins with '/' or is "*" */
    sh_str query; /* behind the '?', may be empty */
    int minor;    /* HTTP/1.<minor> */
    sh_http_header headers[SH_HTTP_HEADERS_MAX];
    int header_count;
    bool keep_alive;
    bool expect_continue;
    bool chunked;
    uint64_t content_length; /* 0 when chunked */
} sh_http_head;

/* Why a message is refused: the status to answer, and a sentence about it. */
typedef struct {
    int status; /* 0: it is fine */
    const char *why;
} sh_http_refusal;

/* Parses the bytes of a head with its closing empty line, changing the case of names in place.
 * *out borrows from text. On refusal *out holds what was understood so far. */
sh_http_refusal sh_http_head_parse(char *text, size_t len, sh_http_head *out);

/* The value of a header (name in lower case), or an empty string. */
sh_str sh_http_head_find(const sh_http_head *head, const char *name);

/* "GET", ...; the route table and the documents speak of methods by these names. */
const char *sh_http_method_name(sh_http_method method);

/* True when the comma-separated list holds the token, whatever the case. */
bool sh_http_list_has(sh_str list, const char *token);

#endif
