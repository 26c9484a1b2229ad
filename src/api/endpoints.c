/* The table of endpoints. The server routes by it and the OpenAPI document is written from it, so
 * an endpoint cannot exist without being documented. It is also the only place that knows which
 * paths belong to which dialect. */
#include "api/api_internal.h"
#include "api/openai.h"

void sh_handle_generate(sh_http_request *req, void *arg)
{
    const sh_endpoint *endpoint = sh_http_route_of(req)->data;
    sh_job_start(arg, req, endpoint->format);
}

const sh_dialect *const sh_default_dialect = &sh_openai;

const sh_dialect *sh_endpoint_dialect(const sh_endpoint *endpoint)
{
    return endpoint->dialect == NULL ? sh_default_dialect : endpoint->dialect;
}

static int segments_shared(sh_str a, sh_str b)
{
    sh_str in_a, in_b;
    int count = 0;
    while (sh_str_cut(&a, '/', &in_a) && sh_str_cut(&b, '/', &in_b) && sh_str_eq(in_a, in_b))
        count++;
    return count;
}

const sh_dialect *sh_endpoints_dialect(const sh_endpoint_table *table, sh_str path)
{
    const sh_dialect *best = sh_default_dialect;
    int most = 1; /* the empty segment before the first slash, which all paths share */
    for (size_t i = 0; i < table->count; i++) {
        int shared = segments_shared(sh_str_of(table->rows[i].path), path);
        if (shared <= most) continue;
        most = shared;
        best = sh_endpoint_dialect(&table->rows[i]);
    }
    return best;
}

#define CHAT_ENDPOINT                                                                              \
    .method = SH_HTTP_POST, .handle = sh_handle_generate, .dialect = &sh_openai,                   \
    .format = &sh_openai_chat, .fields = &sh_openai_chat_fields, .tag = "OpenAI"
#define COMPLETION_ENDPOINT                                                                        \
    .method = SH_HTTP_POST, .handle = sh_handle_generate, .dialect = &sh_openai,                   \
    .format = &sh_openai_completion, .fields = &sh_openai_completion_fields, .tag = "OpenAI"

#define RERANK_ENDPOINT                                                                            \
    .method = SH_HTTP_POST, .handle = sh_handle_generate, .dialect = &sh_openai,                   \
    .format = &sh_openai_rerank, .fields = &sh_openai_rerank_fields, .tag = "OpenAI"

static const sh_endpoint rows[] = {
    {CHAT_ENDPOINT, .path = "/v1/chat/completions", .summary = "Answer a conversation",
     .answer = "The answer, or with `stream` its chunks as server-sent events."},
    {CHAT_ENDPOINT, .path = "/chat/completions", .summary = "The same as /v1/chat/completions",
     .answer = "The answer, or with `stream` its chunks as server-sent events."},
    {COMPLETION_ENDPOINT, .path = "/v1/completions", .summary = "Continue a text",
     .answer = "The text, or with `stream` its chunks as server-sent events."},
    {.method = SH_HTTP_POST,
     .path = "/v1/embeddings",
     .handle = sh_handle_generate,
     .dialect = &sh_openai,
     .format = &sh_openai_embeddings,
     .fields = &sh_openai_embeddings_fields,
     .tag = "OpenAI",
     .summary = "Make vectors of texts",
     .answer = "The vectors, in the order of the inputs."},
    {RERANK_ENDPOINT, .path = "/v1/rerank", .summary = "Order documents by their relevance",
     .answer = "The documents with their scores, best first."},
    {RERANK_ENDPOINT, .path = "/rerank", .summary = "The same as /v1/rerank",
     .answer = "The documents with their scores, best first."},
    {.method = SH_HTTP_GET,
     .path = "/v1/models",
     .handle = sh_openai_models,
     .dialect = &sh_openai,
     .tag = "OpenAI",
     .summary = "List the models; there is always one",
     .answer = "The list."},
    {.method = SH_HTTP_GET,
     .path = "/v1/models/{id}",
     .handle = sh_openai_model,
     .dialect = &sh_openai,
     .tag = "OpenAI",
     .summary = "One model by its name, or `default`",
     .answer = "The model."},
    {.method = SH_HTTP_POST,
     .path = "/tokenize",
     .handle = sh_handle_tokenize,
     .fields = &sh_tokenize_fields,
     .tag = "Text",
     .summary = "Turn text into token ids",
     .answer = "The ids."},
    {.method = SH_HTTP_POST,
     .path = "/detokenize",
     .handle = sh_handle_detokenize,
     .fields = &sh_detokenize_fields,
     .tag = "Text",
     .summary = "Turn token ids into text",
     .answer = "The text."},
    {.method = SH_HTTP_POST,
     .path = "/apply-template",
     .handle = sh_handle_apply_template,
     .format = &sh_openai_chat,
     .fields = &sh_openai_chat_fields,
     .tag = "Text",
     .summary = "Show the prompt that a chat is rendered to",
     .answer = "The prompt."},
    {.method = SH_HTTP_GET,
     .path = "/",
     .open = true,
     .handle = sh_handle_root,
     .tag = "Status",
     .summary = "Name, version and paths; browsers are redirected to the dashboard",
     .answer = "The name and the paths."},
    {.method = SH_HTTP_GET,
     .path = "/health",
     .open = true,
     .handle = sh_handle_health,
     .tag = "Status",
     .summary = "Whether requests can be served (503 if not); details only with an API key",
     .answer = "Requests can be served."},
    {.method = SH_HTTP_GET,
     .path = "/health/live",
     .open = true,
     .handle = sh_handle_live,
     .tag = "Status",
     .summary = "Whether this process is alive",
     .answer = "It is."},
    {.method = SH_HTTP_GET,
     .path = "/health/ready",
     .open = true,
     .handle = sh_handle_ready,
     .tag = "Status",
     .summary = "Whether requests can be served; 503 if not",
     .answer = "They can."},
    {.method = SH_HTTP_GET,
     .path = "/model/info",
     .handle = sh_handle_model_info,
     .tag = "Status",
     .summary = "The served model",
     .answer = "The model."},
    {.method = SH_HTTP_GET,
     .path = "/queue",
     .handle = sh_handle_queue,
     .tag = "Status",
     .summary = "Waiting and running requests",
     .answer = "Size and limit of the queue."},
    {.method = SH_HTTP_GET,
     .path = "/memory",
     .handle = sh_handle_memory,
     .tag = "Status",
     .summary = "Memory of machine and engine",
     .answer = "The figures."},
    {.method = SH_HTTP_GET,
     .path = "/requests/recent",
     .handle = sh_handle_recent,
     .query = "n: how many, 50 by default",
     .tag = "Status",
     .summary = "The last requests, newest first, without their text",
     .answer = "The records."},
    {.method = SH_HTTP_GET,
     .path = "/requests/stats",
     .handle = sh_handle_stats,
     .tag = "Status",
     .summary = "Counts, rates and percentiles over the last requests",
     .answer = "The figures."},
    {.method = SH_HTTP_GET,
     .path = "/metrics/snapshot",
     .handle = sh_handle_snapshot,
     .tag = "Status",
     .summary = "All live figures at once",
     .answer = "The snapshot."},
    {.method = SH_HTTP_GET,
     .path = "/metrics/stream",
     .handle = sh_handle_stream,
     .tag = "Status",
     .summary = "The snapshot every second, as server-sent events",
     .answer = "The events.",
     .answer_type = "text/event-stream"},
    {.method = SH_HTTP_GET,
     .path = "/metrics",
     .handle = sh_handle_metrics,
     .tag = "Status",
     .summary = "Counters and histograms in Prometheus' text format",
     .answer = "The metrics.",
     .answer_type = "text/plain"},
    {.method = SH_HTTP_GET,
     .path = "/settings",
     .handle = sh_handle_settings,
     .tag = "Status",
     .summary = "The settings in effect, without keys",
     .answer = "The settings."},
    {.method = SH_HTTP_GET,
     .path = "/openapi.json",
     .open = true,
     .handle = sh_handle_openapi,
     .tag = "Documents",
     .summary = "This document",
     .answer = "OpenAPI 3.1."},
    {.method = SH_HTTP_GET,
     .path = "/docs",
     .open = true,
     .handle = sh_handle_page,
     .tag = "Documents",
     .summary = "This document as a page, with forms to try requests",
     .answer = "The page.",
     .answer_type = "text/html"},
    {.method = SH_HTTP_GET,
     .path = "/docs/{file}",
     .open = true,
     .handle = sh_handle_page,
     .tag = "Documents",
     .summary = "Script and style sheet of the page",
     .answer = "The file.",
     .answer_type = "text/javascript"},
    {.method = SH_HTTP_GET,
     .path = "/dashboard",
     .open = true,
     .handle = sh_handle_page,
     .tag = "Documents",
     .summary = "The dashboard: group, live figures, requests and a chat",
     .answer = "The page.",
     .answer_type = "text/html"},
    {.method = SH_HTTP_GET,
     .path = "/dashboard/{file}",
     .open = true,
     .handle = sh_handle_page,
     .tag = "Documents",
     .summary = "Scripts and style sheet of the dashboard",
     .answer = "The file.",
     .answer_type = "text/javascript"},
};

const sh_endpoint_table sh_endpoints = {rows, SH_COUNT_OF(rows)};
