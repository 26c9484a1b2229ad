/* The table of endpoints. The server routes by it and the OpenAPI document is written from it, so
 * an endpoint cannot exist without being documented. It is also the only place that knows which
 * paths belong to which dialect. */
#include "api/anthropic.h"
#include "api/api_internal.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "api/responses.h"

void sh_handle_generate(sh_http_request *req, void *arg)
{
    const sh_endpoint *endpoint = sh_http_route_of(req)->data;
    sh_job_start(arg, req, endpoint->format);
}

void sh_handle_by_header(sh_http_request *req, void *arg)
{
    const sh_endpoint *endpoint = sh_api_endpoint_of(req);
    endpoint->handle(req, arg);
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

#define OLLAMA .dialect = &sh_ollama, .tag = "Ollama"

/* Anthropic's clients say which version of their API they speak. */
static const sh_endpoint anthropic_models = {.handle = sh_anthropic_models,
                                             .dialect = &sh_anthropic};
static const sh_endpoint anthropic_model = {.handle = sh_anthropic_model, .dialect = &sh_anthropic};

static const sh_endpoint rows[] = {
    {CHAT_ENDPOINT, .path = "/v1/chat/completions", .summary = "Answer a conversation",
     .answer = "The answer, or with `stream` its chunks as server-sent events."},
    {CHAT_ENDPOINT, .path = "/chat/completions", .summary = "The same as /v1/chat/completions",
     .answer = "The answer, or with `stream` its chunks as server-sent events."},
    {COMPLETION_ENDPOINT, .path = "/v1/completions", .summary = "Continue a text",
     .answer = "The text, or with `stream` its chunks as server-sent events."},
    {.method = SH_HTTP_GET,
     .path = "/v1/models",
     .handle = sh_openai_models,
     .dialect = &sh_openai,
     .header = "anthropic-version",
     .with_header = &anthropic_models,
     .tag = "OpenAI",
     .summary = "List the models; there is always one. In Anthropic's form with the header "
                "`anthropic-version`",
     .answer = "The list."},
    {.method = SH_HTTP_GET,
     .path = "/v1/models/{id}",
     .handle = sh_openai_model,
     .dialect = &sh_openai,
     .header = "anthropic-version",
     .with_header = &anthropic_model,
     .tag = "OpenAI",
     .summary = "One model by its name, or `default`",
     .answer = "The model."},
    {.method = SH_HTTP_POST,
     .path = "/v1/responses",
     .handle = sh_handle_generate,
     .dialect = &sh_openai,
     .format = &sh_responses,
     .fields = &sh_responses_fields,
     .tag = "Responses",
     .summary = "Answer a conversation that the server may keep",
     .answer = "The response, or with `stream` its events.",
     .answer_schema = sh_response_schema},
    {.method = SH_HTTP_GET,
     .path = "/v1/responses/{id}/input_items",
     .handle = sh_responses_input_items,
     .dialect = &sh_openai,
     .query =
         "after: the id of the item before the first one; also `limit` (20) and `order` (desc)",
     .tag = "Responses",
     .summary = "The input of a stored response",
     .answer = "The items.",
     .answer_schema = sh_response_items_schema},
    {.method = SH_HTTP_POST,
     .path = "/v1/responses/{id}/cancel",
     .handle = sh_responses_cancel,
     .dialect = &sh_openai,
     .tag = "Responses",
     .summary = "Refused: there are no background responses",
     .answer = "Never."},
    {.method = SH_HTTP_GET,
     .path = "/v1/responses/{id}",
     .handle = sh_responses_get,
     .dialect = &sh_openai,
     .tag = "Responses",
     .summary = "A stored response",
     .answer = "The response.",
     .answer_schema = sh_response_schema},
    {.method = SH_HTTP_DELETE,
     .path = "/v1/responses/{id}",
     .handle = sh_responses_delete,
     .dialect = &sh_openai,
     .tag = "Responses",
     .summary = "Delete a stored response",
     .answer = "It was deleted.",
     .answer_schema = sh_response_deleted_schema},
    {.method = SH_HTTP_POST,
     .path = "/v1/messages",
     .handle = sh_handle_generate,
     .dialect = &sh_anthropic,
     .format = &sh_anthropic_messages,
     .fields = &sh_anthropic_messages_fields,
     .tag = "Anthropic",
     .summary = "Answer a conversation",
     .answer = "The message, or with `stream` its events.",
     .answer_schema = sh_anthropic_message_schema},
    {.method = SH_HTTP_POST,
     .path = "/v1/messages/count_tokens",
     .handle = sh_handle_count_tokens,
     .dialect = &sh_anthropic,
     .format = &sh_anthropic_count,
     .fields = &sh_anthropic_count_fields,
     .tag = "Anthropic",
     .summary = "Count the tokens of a prompt",
     .answer = "The number.",
     .answer_schema = sh_anthropic_count_schema},
    {OLLAMA, .method = SH_HTTP_POST, .path = "/api/chat", .handle = sh_handle_generate,
     .format = &sh_ollama_chat, .fields = &sh_ollama_chat_fields,
     .summary = "Answer a conversation",
     .answer = "The answer; by default as lines of JSON, of which the last has the counts.",
     .answer_schema = sh_ollama_chat_schema},
    {OLLAMA, .method = SH_HTTP_POST, .path = "/api/generate", .handle = sh_handle_generate,
     .format = &sh_ollama_generate, .fields = &sh_ollama_generate_fields,
     .summary = "Answer a prompt, or with `raw` continue it",
     .answer = "The answer; by default as lines of JSON, of which the last has the counts.",
     .answer_schema = sh_ollama_generate_schema},
    {OLLAMA, .method = SH_HTTP_GET, .path = "/api/tags", .handle = sh_ollama_tags,
     .summary = "List the models that can be used; there is always one", .answer = "The list.",
     .answer_schema = sh_ollama_models_schema},
    {OLLAMA, .method = SH_HTTP_GET, .path = "/api/ps", .handle = sh_ollama_ps,
     .summary = "List the models that are loaded: the same one", .answer = "The list.",
     .answer_schema = sh_ollama_models_schema},
    {OLLAMA, .method = SH_HTTP_POST, .path = "/api/show", .handle = sh_ollama_show,
     .fields = &sh_ollama_model_fields, .summary = "Describe a model", .answer = "The model.",
     .answer_schema = sh_ollama_show_schema},
    {OLLAMA, .method = SH_HTTP_GET, .path = "/api/version", .handle = sh_ollama_version,
     .summary = "The version of Ollama whose API is served", .answer = "The version.",
     .answer_schema = sh_ollama_version_schema},
    {OLLAMA, .method = SH_HTTP_POST, .path = "/api/pull", .handle = sh_ollama_pull,
     .fields = &sh_ollama_model_fields,
     .summary = "Download a model from the Hugging Face hub; only with --manage-models",
     .answer = "Its progress as lines of JSON, or without `stream` the end of it.",
     .answer_schema = sh_ollama_status_schema},
    {OLLAMA, .method = SH_HTTP_DELETE, .path = "/api/delete", .handle = sh_ollama_delete,
     .fields = &sh_ollama_model_fields,
     .summary = "Delete a model from this machine's disk; only with --manage-models",
     .answer = "It was deleted."},
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
