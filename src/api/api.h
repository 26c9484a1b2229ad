/* api.h - the API process: an HTTP server that is a client of the engine's socket.
 *
 * Threads: runs in the calling thread until SIGTERM or SIGINT; on SIGHUP it reloads certificate and
 * keys and reopens its logs. */
#ifndef SH_API_API_H
#define SH_API_API_H

#include "api/job_spec.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Sampling of requests that leave it open. NAN or -1: the model's own settings; the seed: random.
 */
typedef struct {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, seed;
} sh_api_sampling;

typedef struct {
    const char *host;
    int port;
    const char *listen_fds;  /* inherited sockets to listen on instead; or NULL */
    const char *socket_path; /* of the engine */
    const char *keeper_path; /* the socket of the keeper of several models; NULL: there is one */
    const char *model_dir;   /* the engine's model; NULL: not known until the engine is connected */
    const char *model_name;  /* NULL: the name of the model's folder */
    /* Names from text/output/output.h; NULL or "auto": detected. */
    const char *reasoning_parser, *tool_parser;

    const char *api_keys;     /* separated by commas; NULL: none */
    const char *api_key_file; /* NULL: none */
    const char *tls_cert, *tls_key;
    const char *cors;
    const char *allowed_hosts; /* Host names, separated by commas, that a server without keys
                                  answers to; or NULL */

    const char *access_log;  /* a file, "-" for stderr, NULL: none */
    const char *request_log; /* the same */
    bool log_prompts;        /* write prompts to the program's log */

    sh_job_defaults defaults;         /* what is added to requests */
    sh_defaults_reader defaults_read; /* of a model that a file describes; NULL: none does */
    sh_facts_reader facts_read;       /* of a model's weights; or NULL */
    const sh_api_sampling *sampling;  /* defaults of requests; NULL: the model's own */
    int64_t max_tokens;               /* default for requests without max_tokens; 0: the context */
    int64_t max_tokens_hard;          /* limit of any answer; 0: the context */
    double timeout_s; /* of requests that do not say, until an engine says it; 0: none */
    double replay_s;  /* how long requests wait for a lost engine; 0: not at all, below 0:
                        as long as they may take */
    double grace_s;   /* time for running answers to finish after SIGTERM or SIGINT */

    int64_t connections_max;
    int64_t peer_connections_max; /* of one address; 0: see http/server.h */
    int64_t header_bytes_max;
    int64_t body_bytes_max;
    int64_t bodies_bytes_max; /* of all requests together */
    double idle_s, receive_s, send_s;

    int control_fd; /* the socket of the supervisor, for changes of the cluster; 0: none */
    int store_fd;   /* the socket of the process that downloads and deletes models; 0: none */

    /* A backend of LocalAI instead of an HTTP server: gRPC on these inherited sockets; or NULL. */
    const char *grpc_fds;
    const char *grpc_token; /* that clients must present; NULL: none */
    int model_fd;           /* the socket of the supervisor that starts models (model_host.h) */

    void (*serving)(void *arg); /* called whenever a model becomes available, with gRPC when one may
                                   be asked for; or NULL */
    void *arg;
} sh_api_opts;

/* Returns after a stop signal, or with the reason why it could not start. */
SH_MUST_CHECK sh_status sh_api_run(const sh_api_opts *opts, sh_err *err);

#endif
