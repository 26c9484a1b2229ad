/* dialect.h - the interface of an API dialect.
 *
 * A dialect reads a body into the internal spec and writes the answer in its own format. It writes
 * into a buffer: a whole answer as one JSON value; a stream as server-sent events, one part for
 * each batch of pending output of a choice, then the end or a failure.
 *
 * Threads: pure functions over their arguments; read may run on another thread than the rest. */
#ifndef SH_API_DIALECT_H
#define SH_API_DIALECT_H

#include "api/answer.h"
#include "api/error.h"
#include "api/job_spec.h"

typedef struct {
    const char *kind; /* for records and metrics: "chat", "completion" */
    const char *id_prefix;

    /* Fills the spec from spec->json, which is parsed already. */
    bool (*read)(sh_job_spec *spec, sh_api_error *err);

    void (*whole)(const sh_answer *answer, sh_buf *out);
    void (*part)(const sh_answer *answer, const sh_choice *choice, sh_buf *out);
    void (*end)(const sh_answer *answer, sh_buf *out);
    void (*fail)(const sh_api_error *error, sh_buf *out);
} sh_dialect;

#endif
