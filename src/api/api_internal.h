/* api_internal.h - what the files of the API process share; private to this folder.
 *
 * Threads: the loop's only, except for `opts`, which is constant, and `json_values`. */
#ifndef SH_API_API_INTERNAL_H
#define SH_API_API_INTERNAL_H

#include "api/api.h"
#include "api/cluster_link.h"
#include "api/dialect.h"
#include "api/field.h"
#include "api/history.h"
#include "api/metrics.h"
#include "api/models.h"
#include "api/quota.h"
#include "api/response_store.h"
#include "api/store_service.h"
#include "api/text_worker.h"
#include "base/clock.h"
#include "grpc/server.h"
#include "http/server.h"

#include <stdatomic.h>
#include <stdio.h>

typedef struct sh_endpoint_table sh_endpoint_table;
typedef struct sh_job sh_job;
typedef struct sh_subscriber sh_subscriber;
typedef struct sh_fresh_waiter sh_fresh_waiter;
typedef struct sh_localai_model sh_localai_model;

struct sh_api {
    const sh_api_opts *opts;
    sh_loop *loop;
    sh_http_tls *tls;
    sh_http_keys *keys;
    sh_quotas *quotas;      /* of keys with names */
    sh_http_server *server; /* NULL: `grpc` is there instead */
    sh_grpc_server *grpc;
    sh_localai_model *localai; /* with it */
    sh_models *models;
    sh_text_worker *worker;
    sh_text_worker *form_worker; /* compiles grammars, apart from prompts, which are quick */
    atomic_size_t json_values;   /* in all bodies that are parsed at the moment */

    sh_response_store *responses; /* answers that clients may refer to */
    sh_response_store *conversations;
    sh_store_service *store;  /* changes the models on disk; NULL: nobody does */
    sh_cluster_link *cluster; /* to the launcher */
    bool draining;            /* takes no new requests to the model */
    sh_history *history;
    sh_metrics *metrics;
    double request_timeout_s; /* the engines' default; kept while there is none */
    FILE *access_log;
    FILE *request_log;

    sh_job *jobs;
    int job_count;
    sh_trigger *job_tick;
    sh_trigger *accept_due;     /* the first connections may be accepted */
    sh_subscriber *subscribers; /* of /metrics/stream */
    sh_trigger *snapshot_tick;
    sh_fresh_waiter *fresh_waiters; /* requests that wait for new stats */
    sh_trigger *fresh_limit;

    const sh_endpoint_table *endpoints;
    sh_http_route *routes; /* made from them */
    sh_buf openapi;        /* written once */
    sh_trigger *signals[4];
    sh_trigger *drain_check;
    sh_deadline stop_deadline;
    int64_t start_ns;
    bool stopping;
};

/* One endpoint: the server routes by it, and the OpenAPI document is written from it. */
typedef struct sh_endpoint sh_endpoint;
struct sh_endpoint {
    sh_http_method method;
    const char *path;
    bool open; /* needs no API key */
    sh_http_handler handle;
    const sh_dialect *dialect;    /* NULL: the default one */
    const sh_job_format *format;  /* of a request to the model; else NULL */
    const sh_field_table *fields; /* of the body; NULL: no body */
    const char *rules;            /* what its fields must satisfy together, see sh_fields_schema */
    const char *query;            /* a parameter "name: meaning", or NULL */
    const char *query_schema;     /* of its value */
    const char *tag;
    const char *summary;
    const char *answer;        /* description of the 200 response */
    const char *answer_type;   /* NULL: application/json */
    const char *answer_schema; /* its name in web/schemas.json; NULL: any object */
    const char *part_schema;   /* of a part, if the answer may be streamed; NULL: it may not */
    /* Another endpoint for requests that have this header: one path, two dialects. Or NULL. */
    const char *header;
    const sh_endpoint *with_header;
};

struct sh_endpoint_table {
    const sh_endpoint *rows;
    size_t count;
};

extern const sh_endpoint_table sh_endpoints;

/* Of endpoints that name none, such as status pages, and of paths that resemble no endpoint's. */
extern const sh_dialect *const sh_default_dialect;

/* Never NULL. For a path without an endpoint: the dialect of the endpoint that shares most of the
 * leading segments with it. */
const sh_dialect *sh_endpoint_dialect(const sh_endpoint *endpoint);
const sh_dialect *sh_endpoints_dialect(const sh_endpoint_table *table, sh_str path);

/* sh_api_run with another table. */
SH_MUST_CHECK sh_status sh_api_run_endpoints(const sh_api_opts *opts,
                                             const sh_endpoint_table *endpoints, sh_err *err);

/* The endpoint of a request that has a route. */
const sh_endpoint *sh_api_endpoint_of(const sh_http_request *req);

/* Replies of handlers, in the dialect of the request's route. */
const sh_dialect *sh_api_dialect_of(const sh_http_request *req);
void sh_api_reply_json(sh_http_request *req, int status, const sh_buf *json);
void sh_api_reply_error(sh_http_request *req, const sh_api_error *error);
void sh_api_stream_start(sh_http_request *req, const char *content_type);

/* Parses a body as JSON; false when it is invalid or too large. *values is the body's share of the
 * limit on parsed values; json and values must be given back with sh_api_parsed_free in any case.
 * From any thread. */
bool sh_api_parse(sh_api *api, sh_str body, cJSON **out, size_t *values, sh_api_error *err);
void sh_api_parsed_free(sh_api *api, cJSON *json, size_t values);

/* The same for a body of this format, which may make its JSON itself; NULL: it is JSON. */
bool sh_api_parse_as(sh_api *api, const sh_job_format *format, sh_str body, cJSON **out,
                     size_t *values, sh_api_error *err);

/* Bodies up to this size are processed in the loop, longer ones by the worker. */
enum { SH_API_INLINE_BYTES = 16 << 10 };

/* The error for a request that the worker's queue cannot take. */
void sh_api_refuse_waiting(sh_api_error *err);

/* True, after replying with an error, while no model is known. */
bool sh_api_lacks_model(sh_http_request *req, const sh_api *api);

/* Replies with the model that the path names, as a dialect writes it. */
typedef void sh_model_writer(const sh_api_model *model, sh_json_writer *w);
void sh_api_reply_model(sh_http_request *req, const sh_api *api, sh_model_writer *write);

/* True when a request could be served now; else *err says why not. */
bool sh_api_ready(const sh_api *api, sh_api_error *err);

/* Connections may be accepted; the server has come up. */
void sh_api_accept(sh_api *api);
void sh_api_serving(sh_api *api);

/* fresh.c: calls `then` once an engine's stats are newer than this call, or after a short time. */
void sh_api_when_fresh(sh_api *api, sh_http_request *req, sh_http_handler then);
void sh_api_fresh(void *api); /* new stats have arrived, or none will */

/* job.c */
/* Sampling of a request that says nothing about it: the server's settings, else the model's. */
sh_api_sampling sh_api_sampling_of(const sh_api *api, const sh_served_model *served);
/* Longest answer of a request that does not say; 0: what the context leaves. */
int64_t sh_api_max_tokens_of(const sh_api *api, const sh_served_model *served);
void sh_job_start(sh_api *api, sh_http_request *req, const sh_job_format *format);
void sh_jobs_keep_alive(sh_api *api, int64_t quiet_ms);    /* streams that were quiet for so long */
void sh_jobs_fail(sh_api *api, const sh_api_error *error); /* those that wait for the engine */
void sh_jobs_end(sh_api *api); /* frees all jobs, at the end of the process */

/* cluster.c */
/* Whether the client may change the server; else *err says why not. */
bool sh_api_may_change(const sh_http_request *req, sh_api_error *err);
/* False while the server is being drained. */
bool sh_api_takes_jobs(const sh_api *api, sh_api_error *err);
extern const sh_field_table sh_cluster_host_fields;
extern const sh_field_table sh_cluster_drain_fields;

/* status.c */
void sh_status_snapshot(sh_api *api, sh_buf *out);
void sh_subscribers_push(sh_api *api);
void sh_subscribers_end(sh_api *api);

/* Handlers of the table in endpoints.c; `arg` is the sh_api. */
void sh_handle_generate(sh_http_request *req, void *arg);
void sh_handle_by_header(sh_http_request *req, void *arg);
void sh_handle_tokenize(sh_http_request *req, void *arg);
void sh_handle_detokenize(sh_http_request *req, void *arg);
void sh_handle_apply_template(sh_http_request *req, void *arg);
void sh_handle_count_tokens(sh_http_request *req, void *arg);
void sh_handle_root(sh_http_request *req, void *arg);
void sh_handle_health(sh_http_request *req, void *arg);
void sh_handle_live(sh_http_request *req, void *arg);
void sh_handle_ready(sh_http_request *req, void *arg);
void sh_handle_version(sh_http_request *req, void *arg);
void sh_handle_load(sh_http_request *req, void *arg);
void sh_handle_model_info(sh_http_request *req, void *arg);
void sh_handle_template(sh_http_request *req, void *arg);
void sh_handle_local_models(sh_http_request *req, void *arg);
void sh_handle_queue(sh_http_request *req, void *arg);
void sh_handle_memory(sh_http_request *req, void *arg);
void sh_handle_recent(sh_http_request *req, void *arg);
void sh_handle_stats(sh_http_request *req, void *arg);
void sh_handle_snapshot(sh_http_request *req, void *arg);
void sh_handle_metrics_history(sh_http_request *req, void *arg);
void sh_handle_stream(sh_http_request *req, void *arg);
void sh_handle_settings(sh_http_request *req, void *arg);
void sh_handle_cluster(sh_http_request *req, void *arg);
void sh_handle_restart(sh_http_request *req, void *arg);
void sh_handle_host_add(sh_http_request *req, void *arg);
void sh_handle_host_remove(sh_http_request *req, void *arg);
void sh_handle_drain(sh_http_request *req, void *arg);
void sh_handle_metrics(sh_http_request *req, void *arg);
void sh_handle_openapi(sh_http_request *req, void *arg);
void sh_handle_page(sh_http_request *req, void *arg);

extern const sh_field_table sh_tokenize_fields;
extern const char sh_tokenize_rules[];
extern const sh_field_table sh_detokenize_fields;

/* openapi.c */
void sh_openapi_write(const sh_endpoint_table *endpoints, sh_buf *out);

#endif
