/* dialect.h - the interface of an API dialect.
 *
 * A dialect is the form of an API that clients already know, such as OpenAI's. sh_dialect holds
 * what all of its endpoints have in common: errors and headers. Each kind of request to the model
 * (chat, completion) has an sh_job_format besides, which reads a body into the internal spec and
 * writes the answer, whole or as a stream. The table in endpoints.c names both for each path; no
 * other file knows the fields, words or framing of a dialect.
 *
 * Writers append to a buffer: a body is one JSON value, a stream consists of parts (framing.h).
 *
 * Threads: the loop's, but parse and read may run on the worker's. All depend on their arguments
 * only. */
#ifndef SH_API_DIALECT_H
#define SH_API_DIALECT_H

#include "api/answer.h"
#include "api/error.h"
#include "api/framing.h"
#include "api/job_spec.h"
#include "http/request.h"

typedef struct {
    /* The HTTP status and the body of the reply that reports an error. */
    int (*error_status)(const sh_api_error *error);
    void (*error)(const sh_api_error *error, sh_buf *out);
    const char *error_schema; /* of that body: JSON Schema */

    /* Adds headers to a reply of any status; NULL: none. */
    void (*headers)(sh_http_request *req);
} sh_dialect;

typedef struct {
    const char *kind;      /* for records and metrics: "chat", "completion" */
    const char *id_prefix; /* of the answer's id */

    /* Makes JSON of the body, where that is something else; NULL: it is JSON. */
    bool (*parse)(sh_str body, cJSON **out, sh_api_error *err);

    /* Fills the spec from spec->json, which is parsed already. */
    bool (*read)(sh_job_spec *spec, sh_api_error *err);

    void (*whole)(const sh_answer *answer, sh_buf *out);

    /* A stream: begin (or NULL), a part for each batch of pending output of a choice, then end, or
     * fail instead. An error before the first byte is not a stream but an error reply. */
    const sh_framing *framing;
    size_t state_size; /* of answer->state, which is zero at first and the format's own */
    void (*state_reset)(void *state); /* frees what the state owns; NULL: it owns nothing */
    void (*begin)(const sh_answer *answer, sh_buf *out);
    void (*part)(const sh_answer *answer, const sh_choice *choice, sh_buf *out);
    void (*end)(const sh_answer *answer, sh_buf *out);
    void (*fail)(const sh_answer *answer, const sh_api_error *error, sh_buf *out);

    /* Called once, after the last of the above; NULL: nothing to do. error: why there is no whole
     * answer, or NULL; its status is 499 if the client has left. */
    void (*ended)(const sh_answer *answer, const sh_api_error *error);

    /* Something that clients ignore, sent when a stream was quiet for long, so that proxies do not
     * close it; NULL: nothing. */
    void (*keep_alive)(sh_buf *out);
} sh_job_format;

#endif
