/* Answers as LocalAI's messages.
 *
 * Reply.message is the text. Where this server has rendered the conversation, chat_deltas have the
 * same divided into content, reasoning and calls, and LocalAI prefers them. A prompt that LocalAI
 * has rendered is answered by text alone, so that its own parsers work on it. Counts are
 * cumulative, times come with the last message. */
#include "api/localai.h"

#include "api/openai.h"
#include "api/vectors.h"
#include "base/alloc.h"
#include "grpc/frame.h"

#include <math.h>
#include <stdlib.h>

/* ---- errors ---- */

static const struct {
    int status;
    sh_grpc_code code;
} codes[] = {
    {401, SH_GRPC_UNAUTHENTICATED},
    {403, SH_GRPC_PERMISSION_DENIED},
    {404, SH_GRPC_NOT_FOUND},
    {408, SH_GRPC_DEADLINE_EXCEEDED},
    {409, SH_GRPC_FAILED_PRECONDITION},
    {413, SH_GRPC_RESOURCE_EXHAUSTED},
    {429, SH_GRPC_RESOURCE_EXHAUSTED},
    {499, SH_GRPC_CANCELLED},
    {500, SH_GRPC_INTERNAL},
    {501, SH_GRPC_UNIMPLEMENTED},
    {503, SH_GRPC_UNAVAILABLE},
    {504, SH_GRPC_DEADLINE_EXCEEDED},
    {507, SH_GRPC_RESOURCE_EXHAUSTED},
};

void sh_localai_write_error(const sh_api_error *error, sh_buf *out)
{
    sh_grpc_code code = error->status >= 500 ? SH_GRPC_INTERNAL : SH_GRPC_INVALID_ARGUMENT;
    for (size_t i = 0; i < SH_COUNT_OF(codes); i++)
        if (codes[i].status == error->status) code = codes[i].code;
    sh_grpc_status_write(code, error->message, out);
}

void sh_localai_write_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_localai_write_error(error, out);
}

/* ---- texts ---- */

static ProtobufCBinaryData bytes_of(const sh_buf *buf)
{
    return (ProtobufCBinaryData){buf->len, (uint8_t *)buf->ptr};
}

/* Borrowed; protobuf-c does not change what it packs. */
static char *text_of(const sh_buf *buf)
{
    return buf->len == 0 ? (char *)(uintptr_t) "" : buf->ptr;
}

/* The pending part of each call. Name and id come once, with the first part. */
static void calls_fill(const sh_choice *choice, Backend__ChatDelta *delta,
                       Backend__ToolCallDelta *calls, Backend__ToolCallDelta **list)
{
    for (int i = 0; i < choice->call_count; i++) {
        const sh_call *call = &choice->calls[i];
        if (!sh_call_has_pending(call)) continue;
        Backend__ToolCallDelta *to = &calls[delta->n_tool_calls];
        *to = (Backend__ToolCallDelta)BACKEND__TOOL_CALL_DELTA__INIT;
        to->index = i;
        if (!call->announced) to->id = call->id;
        if (!call->announced) to->name = call->name;
        to->arguments = text_of(&call->args);
        list[delta->n_tool_calls++] = to;
    }
}

static void logprobs_write(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    if (!answer->spec->logprobs || choice->logprobs_count == 0) return;
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_begin(&w, "content", '[');
    sh_openai_logprobs_write(answer, choice, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
}

/* With the calls as a delta, whose lists must live as long as the message. */
static void reply_frame(const sh_answer *answer, const sh_choice *choice, Backend__ChatDelta *delta,
                        sh_buf *out)
{
    Backend__Reply reply = BACKEND__REPLY__INIT;
    sh_buf logprobs = {0};
    logprobs_write(answer, choice, &logprobs);
    delta->content = text_of(&choice->content);
    delta->reasoning_content = text_of(&choice->reasoning);
    reply.message = bytes_of(&choice->content);
    reply.tokens = choice->completion_tokens;
    reply.prompt_tokens = choice->prompt_tokens;
    reply.logprobs = bytes_of(&logprobs);
    if (choice->done) {
        reply.timing_prompt_processing = choice->prefill_s * 1e3;
        reply.timing_token_generation = choice->decode_s * 1e3;
    }
    if (answer->spec->chat) {
        reply.n_chat_deltas = 1;
        reply.chat_deltas = &delta;
    }
    sh_message_frame(&reply.base, out);
    sh_buf_reset(&logprobs);
}

void sh_localai_write_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    Backend__ChatDelta delta = BACKEND__CHAT_DELTA__INIT;
    size_t count = (size_t)choice->call_count;
    Backend__ToolCallDelta *calls = sh_alloc_array(count + 1, sizeof(*calls));
    Backend__ToolCallDelta **list = sh_alloc_array(count + 1, sizeof(*list));
    calls_fill(choice, &delta, calls, list);
    delta.tool_calls = list;
    reply_frame(answer, choice, &delta, out);
    free(calls);
    free(list);
}

void sh_localai_write_reply(const sh_answer *answer, sh_buf *out)
{
    sh_localai_write_part(answer, &answer->choices[0], out);
}

/* ---- vectors ---- */

void sh_localai_write_embedding(const sh_answer *answer, sh_buf *out)
{
    const sh_choice *choice = &answer->choices[0];
    Backend__EmbeddingResult reply = BACKEND__EMBEDDING_RESULT__INIT;
    reply.n_embeddings = (size_t)choice->vector_len;
    reply.embeddings = choice->vector;
    reply.dim = choice->vector_len;
    reply.tokens = reply.prompt_tokens = choice->prompt_tokens;
    sh_message_frame(&reply.base, out);
}

static int best_first(const void *a, const void *b)
{
    const Backend__DocumentResult *x = *(Backend__DocumentResult *const *)a,
                                  *y = *(Backend__DocumentResult *const *)b;
    if (x->relevance_score != y->relevance_score)
        return x->relevance_score < y->relevance_score ? 1 : -1;
    return x->index - y->index;
}

void sh_localai_write_ranking(const sh_answer *answer, sh_buf *out)
{
    Backend__RerankResult reply = BACKEND__RERANK_RESULT__INIT;
    Backend__Usage usage = BACKEND__USAGE__INIT;
    size_t count = (size_t)answer->count, most = (size_t)answer->spec->top_n;
    Backend__DocumentResult *results = sh_alloc_array(count + 1, sizeof(*results));
    Backend__DocumentResult **list = sh_alloc_array(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++) {
        const sh_choice *choice = &answer->choices[i];
        float score = choice->vector_len > 0 ? choice->vector[0] : -INFINITY;
        results[i] = (Backend__DocumentResult)BACKEND__DOCUMENT_RESULT__INIT;
        results[i].index = (int32_t)i;
        results[i].text = (char *)(uintptr_t)answer->spec->prompts[i].text.ptr;
        results[i].relevance_score = isnan(score) ? -INFINITY : score;
        list[i] = &results[i];
    }
    qsort(list, count, sizeof(*list), best_first);
    usage.total_tokens = usage.prompt_tokens = sh_answer_usage(answer).prompt_tokens;
    reply.usage = &usage;
    reply.n_results = most == 0 || most > count ? count : most;
    reply.results = list;
    sh_message_frame(&reply.base, out);
    free(results);
    free(list);
}

/* ---- other replies ---- */

void sh_localai_reply(sh_http_request *req, const ProtobufCMessage *message)
{
    sh_buf out = {0};
    sh_message_frame(message, &out);
    sh_api_reply_json(req, 200, &out);
    sh_buf_reset(&out);
}

void sh_localai_reply_result(sh_http_request *req, bool success, const char *text)
{
    Backend__Result reply = BACKEND__RESULT__INIT;
    reply.success = success;
    reply.message = (char *)(uintptr_t)text;
    sh_localai_reply(req, &reply.base);
}
