/* The table of LocalAI's calls, and those that need neither the model nor much code. */
#include "api/localai.h"

#include "api/openai.h"
#include "api/text_task.h"
#include "grpc/frame.h"

#include <string.h>

static int error_status(const sh_api_error *error)
{
    return error->status;
}

static void nothing(const sh_answer *answer, sh_buf *out)
{
    (void)answer;
    (void)out; /* the last part has said it all */
}

const sh_dialect sh_localai = {
    .error_status = error_status,
    .error = sh_localai_write_error,
    .error_schema = "{}",
};

static const sh_framing framing = {.content_type = "application/grpc"};

#define ANSWERS                                                                                    \
    .kind = "localai", .id_prefix = "localai-", .read = sh_localai_read,                           \
    .whole = sh_localai_write_reply, .framing = &framing, .part = sh_localai_write_part,           \
    .end = nothing, .fail = sh_localai_write_fail

static const sh_job_format predict = {ANSWERS, .parse = sh_localai_parse_predict};
static const sh_job_format predict_stream = {ANSWERS, .parse = sh_localai_parse_stream};

static const sh_job_format embedding = {.kind = "embedding",
                                        .id_prefix = "localai-",
                                        .parse = sh_localai_parse_embedding,
                                        .read = sh_openai_embeddings_read,
                                        .whole = sh_localai_write_embedding};

static const sh_job_format rerank = {.kind = "rerank",
                                     .id_prefix = "localai-",
                                     .parse = sh_localai_parse_rerank,
                                     .read = sh_openai_rerank_read,
                                     .whole = sh_localai_write_ranking};

static const sh_job_format ids = {.kind = "detokenize", .parse = sh_localai_parse_ids};

/* ---- calls to the model ---- */

/* True, after replying with an error, while LoadModel has not been called or is at work. */
static bool lacks_model(sh_http_request *req, const sh_api *api)
{
    sh_api_error error;
    sh_localai_state state = sh_localai_model_state(api->localai);
    if (state == SH_LOCALAI_LOADED) return false;
    sh_api_fail(&error, 409, "no_model", NULL, "%s",
                state == SH_LOCALAI_LOADING ? "the model is being loaded"
                                            : "no model is loaded; call LoadModel first");
    sh_api_reply_error(req, &error);
    return true;
}

/* The client's own number of the request becomes its id in logs and records. */
static void handle_generate(sh_http_request *req, void *arg)
{
    enum { CORRELATION_ID = 47 };
    sh_api *api = arg;
    if (lacks_model(req, api)) return;
    sh_http_set_id(req, sh_message_find_text(sh_http_body(req), CORRELATION_ID));
    sh_job_start(api, req, sh_api_endpoint_of(req)->format);
}

static sh_str prompt_text(const sh_text_task *t, cJSON *body, sh_buf *rendered, sh_api_error *err)
{
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, "prompt");
    sh_job_spec spec = {.json = body};
    if (prompt != NULL) return sh_str_of(prompt->valuestring);
    bool fine = sh_localai_read(&spec, err) &&
                sh_served_model_render(t->served, &spec, rendered, err);
    spec.json = NULL; /* owned by the caller */
    sh_job_spec_reset(&spec);
    return fine ? sh_buf_str(rendered) : (sh_str){NULL, 0};
}

/* The prompt as Predict would encode it. */
static bool tokenize(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_buf rendered = {0};
    sh_ids found = {0};
    sh_err why;
    bool chat = cJSON_GetObjectItemCaseSensitive(body, "prompt") == NULL;
    sh_str text = prompt_text(t, body, &rendered, err);
    bool fine = text.ptr != NULL;
    sh_encode_opts opts = {.add_special = !chat, .parse_special = true};
    if (fine && sh_tokenizer_encode(sh_served_model_tokenizer(t->served), text, opts, &found,
                                    &why) != SH_OK) {
        *err = sh_api_error_of(&why, false);
        fine = false;
    }
    if (fine) {
        Backend__TokenizationResponse reply = BACKEND__TOKENIZATION_RESPONSE__INIT;
        reply.length = (int32_t)found.len;
        reply.n_tokens = found.len;
        reply.tokens = found.ptr;
        sh_message_frame(&reply.base, out);
    }
    sh_ids_reset(&found);
    sh_buf_reset(&rendered);
    return fine;
}

static bool detokenize(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    const sh_tokenizer *tok = sh_served_model_tokenizer(t->served);
    sh_ids found = {0};
    sh_buf text = {0};
    bool fine = true;
    for (const cJSON *item = body->child->child; fine && item != NULL; item = item->next) {
        fine = item->valueint >= 0 && item->valueint < sh_tokenizer_size(tok);
        if (fine)
            sh_ids_add(&found, item->valueint);
        else
            sh_api_fail(err, 400, "invalid_value", "tokens",
                        "'tokens' must contain numbers from 0 to %d, not %d",
                        sh_tokenizer_size(tok) - 1, item->valueint);
    }
    if (fine) {
        Backend__DetokenizeResponse reply = BACKEND__DETOKENIZE_RESPONSE__INIT;
        sh_tokenizer_decode(tok, found.ptr, found.len, false, &text);
        if (text.len > 0) reply.content = text.ptr;
        sh_message_frame(&reply.base, out);
    }
    sh_ids_reset(&found);
    sh_buf_reset(&text);
    return fine;
}

static void handle_tokenize(sh_http_request *req, void *arg)
{
    if (!lacks_model(req, arg)) sh_text_task_start(req, arg, NULL, tokenize);
}

static void handle_detokenize(sh_http_request *req, void *arg)
{
    if (!lacks_model(req, arg)) sh_text_task_start(req, arg, NULL, detokenize);
}

/* ---- calls about the server ---- */

/* The process is alive; whether it has a model is Status's business. */
static void handle_health(sh_http_request *req, void *arg)
{
    Backend__Reply reply = BACKEND__REPLY__INIT;
    (void)arg;
    reply.message = (ProtobufCBinaryData){2, (uint8_t *)(uintptr_t) "OK"};
    sh_localai_reply(req, &reply.base);
}

static uint64_t number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble : 0;
}

/* The memory of all ranks, by what it is for. */
static void memory_sum(const sh_api *api, Backend__MemoryUsageData__BreakdownEntry *entries,
                       size_t count, uint64_t *total)
{
    const cJSON *rank,
        *ranks = cJSON_GetObjectItemCaseSensitive(sh_models_main(api)->stats, "ranks");
    *total = 0;
    cJSON_ArrayForEach(rank, ranks)
    {
        const cJSON *memory = cJSON_GetObjectItemCaseSensitive(rank, "memory");
        *total += number_of(memory, "resident");
        for (size_t i = 0; i < count; i++) entries[i].value += number_of(memory, entries[i].key);
    }
}

static Backend__StatusResponse__State state_of(const sh_api *api)
{
    sh_api_error error;
    switch (sh_localai_model_state(api->localai)) {
    case SH_LOCALAI_NO_MODEL: return BACKEND__STATUS_RESPONSE__STATE__UNINITIALIZED;
    case SH_LOCALAI_LOADING: return BACKEND__STATUS_RESPONSE__STATE__BUSY;
    case SH_LOCALAI_LOADED: break;
    }
    if (!sh_api_ready(api, &error)) return BACKEND__STATUS_RESPONSE__STATE__ERROR;
    return api->job_count > 0 ? BACKEND__STATUS_RESPONSE__STATE__BUSY
                              : BACKEND__STATUS_RESPONSE__STATE__READY;
}

static void handle_status(sh_http_request *req, void *arg)
{
    static const char *const names[] = {"weights", "kv", "scratch"};
    const sh_api *api = arg;
    Backend__StatusResponse reply = BACKEND__STATUS_RESPONSE__INIT;
    Backend__MemoryUsageData memory = BACKEND__MEMORY_USAGE_DATA__INIT;
    Backend__MemoryUsageData__BreakdownEntry entries[SH_COUNT_OF(names)];
    Backend__MemoryUsageData__BreakdownEntry *list[SH_COUNT_OF(names)];
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        entries[i] = (Backend__MemoryUsageData__BreakdownEntry)
            BACKEND__MEMORY_USAGE_DATA__BREAKDOWN_ENTRY__INIT;
        entries[i].key = (char *)(uintptr_t)names[i];
        list[i] = &entries[i];
    }
    memory_sum(api, entries, SH_COUNT_OF(names), &memory.total);
    memory.n_breakdown = SH_COUNT_OF(names);
    memory.breakdown = list;
    reply.state = state_of(api);
    reply.memory = &memory;
    sh_localai_reply(req, &reply.base);
}

/* Of the last answer. */
static void handle_metrics(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    Backend__MetricsResponse reply = BACKEND__METRICS_RESPONSE__INIT;
    const sh_record *last = sh_history_last(api->history);
    if (last != NULL) {
        reply.tokens_per_second = (float)sh_record_rate(last);
        reply.tokens_generated = last->generated_tokens;
        reply.prompt_tokens_processed = last->prompt_tokens;
    }
    sh_localai_reply(req, &reply.base);
}

static void handle_metadata(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    Backend__ModelMetadataResponse reply = BACKEND__MODEL_METADATA_RESPONSE__INIT;
    if (lacks_model(req, api) || sh_api_lacks_model(req, api)) return;
    const sh_output_dialect *dialect = sh_model_text_dialect(
        sh_served_model_text(sh_models_main(api)->served));
    reply.supports_thinking = dialect->reasoning != NULL;
    sh_localai_reply(req, &reply.base);
}

/* Names the call, since LocalAI shows only the text of an error. */
static void handle_not_here(sh_http_request *req, void *arg)
{
    sh_api_error error;
    (void)arg;
    sh_api_fail(&error, 501, "not_implemented", NULL,
                "%s is for other kinds of models; this backend serves language models",
                sh_api_endpoint_of(req)->path + strlen("/backend.Backend/"));
    sh_api_reply_error(req, &error);
}

#define CALL(name) .method = SH_HTTP_POST, .dialect = &sh_localai, .path = "/backend.Backend/" #name
#define NOT_HERE(name)                                                                             \
    {                                                                                              \
        CALL(name), .handle = handle_not_here                                                      \
    }

static const sh_endpoint rows[] = {
    {CALL(Health), .handle = handle_health},
    {CALL(Status), .handle = handle_status},
    {CALL(LoadModel), .handle = sh_localai_load},
    {CALL(Free), .handle = sh_localai_free},
    {CALL(Predict), .handle = handle_generate, .format = &predict},
    {CALL(PredictStream), .handle = handle_generate, .format = &predict_stream},
    {CALL(Embedding), .handle = handle_generate, .format = &embedding},
    {CALL(Rerank), .handle = handle_generate, .format = &rerank},
    {CALL(TokenizeString), .handle = handle_tokenize, .format = &predict},
    {CALL(Detokenize), .handle = handle_detokenize, .format = &ids},
    {CALL(GetMetrics), .handle = handle_metrics},
    {CALL(ModelMetadata), .handle = handle_metadata},
    NOT_HERE(GenerateImage),
    NOT_HERE(GenerateVideo),
    NOT_HERE(AudioTranscription),
    NOT_HERE(TTS),
    NOT_HERE(SoundGeneration),
    NOT_HERE(VAD),
    NOT_HERE(Detect),
    NOT_HERE(StoresSet),
    NOT_HERE(StoresGet),
    NOT_HERE(StoresFind),
    NOT_HERE(StoresDelete),
    NOT_HERE(Score),
};

const sh_endpoint_table sh_localai_endpoints = {rows, SH_COUNT_OF(rows)};
