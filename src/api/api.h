/* api.h - the API process: HTTP in front, the engine's socket behind.
 *
 * Threads: runs in the calling thread until SIGTERM or SIGINT; SIGHUP makes it read certificate and
 * keys again and open its logs anew. */
#ifndef SH_API_API_H
#define SH_API_API_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *host;
    int port;
    const char *socket_path; /* of the engine */
    const char *model_dir;   /* that the engine will have; NULL: it will tell */
    const char *model_name;  /* NULL: that of the model's folder */
    const char *reasoning_parser,
        *tool_parser; /* names of text/output/output.h; NULL or "auto": found */

    const char *api_keys;     /* by commas; NULL: none */
    const char *api_key_file; /* NULL: none */
    const char *tls_cert, *tls_key;
    const char *cors;
    const char *allowed_hosts; /* names by commas that a server without keys answers to; or NULL */

    const char *access_log;  /* a file, "-" for stderr, NULL: none */
    const char *request_log; /* the same */
    bool log_prompts;        /* put prompts into the program's log */

    int64_t max_tokens; /* of an answer whose request does not say; 0: what the context holds */
    int64_t max_tokens_hard; /* of any answer; 0: what the context holds */
    double grace_s;          /* for running answers when asked to stop */

    int64_t connections_max;
    int64_t peer_connections_max; /* of one address; 0: see http/server.h */
    int64_t header_bytes_max;
    int64_t body_bytes_max;
    int64_t bodies_bytes_max; /* of all requests together */
    double idle_s, receive_s, send_s;

    void (*serving)(void *arg); /* a model can be asked, for the first time or again; or NULL */
    void *arg;
} sh_api_opts;

/* Returns when asked to stop, or with the reason why it could not start. */
SH_MUST_CHECK sh_status sh_api_run(const sh_api_opts *opts, sh_err *err);

#endif
