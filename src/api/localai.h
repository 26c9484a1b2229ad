/* localai.h - the dialect of LocalAI's backends: gRPC calls with protobuf messages.
 *
 * A call of the service backend.Backend is a request to the model like any other: its message is
 * turned into the JSON of OpenAI's requests, which the readers of that dialect check, and the
 * answer is written as messages (grpc/frame.h). So templates, forms, tools, batching and replay are
 * the same for all. What is special is LoadModel: LocalAI decides which model is served. This
 * process may not start others, so it asks its supervisor (model_host.h).
 *
 * Threads: the loop's, but formats and what converts texts as dialect.h and text_task.h say. */
#ifndef SH_API_LOCALAI_H
#define SH_API_LOCALAI_H

#include "api/api_internal.h"
#include "grpc/message.h"

#include "grpc/backend.pb-c.h"

extern const sh_endpoint_table sh_localai_endpoints;
extern const sh_dialect sh_localai;

/* ---- the model: localai_load.c ---- */

/* opts: of the API, whose defaults for requests LoadModel sets. fd: the supervisor's socket. */
sh_localai_model *sh_localai_model_create(sh_api *api, sh_api_opts *opts, int fd);
void sh_localai_model_free(sh_localai_model *model);

/* Another process takes over. */
void sh_localai_model_leave(sh_localai_model *model);

/* An engine has connected; trouble: why its model cannot be used, or NULL. */
void sh_localai_model_up(sh_localai_model *model, const char *trouble);

typedef enum {
    SH_LOCALAI_NO_MODEL,
    SH_LOCALAI_LOADING, /* or unloading */
    SH_LOCALAI_LOADED,
} sh_localai_state;
sh_localai_state sh_localai_model_state(const sh_localai_model *model);

void sh_localai_load(sh_http_request *req, void *arg);
void sh_localai_free(sh_http_request *req, void *arg);

/* What ModelOptions ask for: localai_options.c. */
typedef struct {
    cJSON *settings; /* of the ranks, by the names of their flags: texts */
    sh_api_sampling sampling;
    int64_t max_tokens;
    sh_buf notes; /* what is not done, and why */
} sh_localai_wish;

/* Fails with what is wrong in err. Reset in any case. */
SH_MUST_CHECK sh_status sh_localai_wish_read(const Backend__ModelOptions *options,
                                             sh_localai_wish *out, sh_err *err);
void sh_localai_wish_reset(sh_localai_wish *wish);

/* Sampling without any option: 0 is greedy, since LocalAI always says which temperature it wants
 * and protobuf cannot tell a 0 from nothing. */
sh_api_sampling sh_localai_sampling(void);

/* ---- requests: localai_read.c ---- */

bool sh_localai_parse_predict(sh_str body, cJSON **out, sh_api_error *err);
bool sh_localai_parse_stream(sh_str body, cJSON **out, sh_api_error *err);
bool sh_localai_parse_embedding(sh_str body, cJSON **out, sh_api_error *err);
bool sh_localai_parse_rerank(sh_str body, cJSON **out, sh_api_error *err);
bool sh_localai_parse_ids(sh_str body, cJSON **out, sh_api_error *err);

/* A chat if it has messages, else a completion. */
bool sh_localai_read(sh_job_spec *spec, sh_api_error *err);

/* ---- answers: localai_reply.c ---- */

void sh_localai_write_reply(const sh_answer *answer, sh_buf *out);
void sh_localai_write_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out);
void sh_localai_write_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out);
void sh_localai_write_embedding(const sh_answer *answer, sh_buf *out);
void sh_localai_write_ranking(const sh_answer *answer, sh_buf *out);
void sh_localai_write_error(const sh_api_error *error, sh_buf *out);

/* Replies with a message. */
void sh_localai_reply(sh_http_request *req, const ProtobufCMessage *message);
void sh_localai_reply_result(sh_http_request *req, bool success, const char *text);

#endif
