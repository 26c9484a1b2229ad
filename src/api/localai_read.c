/* From LocalAI's messages to the JSON of OpenAI's requests, whose readers check it.
 *
 * In protobuf a number that is 0 and one that was not sent look the same. So 0 always means that
 * the default holds: that of LoadModel's options, else the model's own; for the temperature, of
 * which LocalAI always sends the one it wants, 0 is greedy unless the options say otherwise
 * (localai_options.c).
 *
 * LocalAI sends all of its settings with every request, whether a backend knows them or not. Those
 * without a meaning here are named in the log once. */
#include "api/localai.h"

#include "api/openai.h"
#include "base/log.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef Backend__PredictOptions predict_options;

static bool unpack(const ProtobufCMessageDescriptor *type, sh_str body, sh_arena *arena, void *out,
                   sh_api_error *err)
{
    sh_err why;
    ProtobufCMessage *message = NULL;
    if (sh_message_unpack(type, body, arena, &message, &why) != SH_OK)
        return sh_api_fail(err, 400, "invalid_message", NULL, "%s", why.text);
    *(void **)out = message;
    return true;
}

/* ---- fields without a meaning ---- */

/* By number; CorrelationId is read by the handler. */
static const uint8_t used[] = {1,  2,  4,  5,  6,  9,  10, 13, 14, 17, 18, 23, 29, 32,
                               35, 36, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53};
static _Atomic uint64_t noted; /* by number, too: they are below 64 */

static void field_note(void *arg, const ProtobufCFieldDescriptor *field)
{
    sh_buf *names = arg;
    for (size_t i = 0; i < SH_COUNT_OF(used); i++)
        if (used[i] == field->id) return;
    uint64_t bit = UINT64_C(1) << (field->id % 64);
    if ((atomic_fetch_or_explicit(&noted, bit, memory_order_relaxed) & bit) != 0) return;
    sh_buf_addf(names, "%s%s", names->len == 0 ? "" : ", ", field->name);
}

static void fields_note(const predict_options *in)
{
    sh_buf names = {0};
    sh_message_each_set(&in->base, field_note, &names);
    if (names.len > 0)
        SH_LOGI("localai: requests set what has no effect here: %s (said once)", names.ptr);
    sh_buf_reset(&names);
}

/* ---- values ---- */

/* The number that was meant: 0.7 arrives as 0.699999988. */
static double decimal(float value)
{
    enum { DIGITS_LEAST = 6, DIGITS_MOST = 9 };
    char text[32];
    for (int digits = DIGITS_LEAST; digits <= DIGITS_MOST; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return strtod(text, NULL);
}

static const struct {
    const char *name;
    size_t offset;
} floats[] = {
    {"temperature", offsetof(predict_options, temperature)},
    {"top_p", offsetof(predict_options, topp)},
    {"min_p", offsetof(predict_options, minp)},
    {"repetition_penalty", offsetof(predict_options, penalty)},
    {"presence_penalty", offsetof(predict_options, presencepenalty)},
    {"frequency_penalty", offsetof(predict_options, frequencypenalty)},
};

/* Values below 0 are LocalAI's way to say "any" or "no limit". */
static const struct {
    const char *name;
    size_t offset;
} counts[] = {
    {"top_k", offsetof(predict_options, topk)},
    {"repetition_context_size", offsetof(predict_options, repeat)},
    {"seed", offsetof(predict_options, seed)},
    {"max_tokens", offsetof(predict_options, tokens)},
};

static void numbers_add(const predict_options *in, cJSON *out)
{
    for (size_t i = 0; i < SH_COUNT_OF(floats); i++) {
        float value = *(const float *)(const void *)((const char *)in + floats[i].offset);
        if (value != 0) cJSON_AddNumberToObject(out, floats[i].name, decimal(value));
    }
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++) {
        int32_t value = *(const int32_t *)(const void *)((const char *)in + counts[i].offset);
        if (value > 0) cJSON_AddNumberToObject(out, counts[i].name, value);
    }
    if (in->ignoreeos) cJSON_AddTrueToObject(out, "ignore_eos");
}

/* A field that contains JSON as a text. */
static bool json_add(const char *text, const char *field, const char *name, cJSON *out,
                     sh_api_error *err)
{
    cJSON *json = NULL;
    sh_err why;
    if (text[0] == '\0') return true;
    if (sh_json_parse(sh_str_of(text), field, &json, &why) != SH_OK ||
        sh_json_refuse_nul(sh_str_of(text), field, &why) != SH_OK) {
        cJSON_Delete(json);
        return sh_api_fail(err, 400, "invalid_json", field, "%s", why.text);
    }
    cJSON_AddItemToObject(out, name, json);
    return true;
}

static void texts_add(char *const *list, size_t count, const char *name, cJSON *out)
{
    if (count == 0) return;
    cJSON *texts = cJSON_AddArrayToObject(out, name);
    for (size_t i = 0; i < count; i++) cJSON_AddItemToArray(texts, cJSON_CreateString(list[i]));
}

/* ---- a chat ---- */

static bool message_add(const Backend__Message *in, cJSON *list, sh_api_error *err)
{
    static const struct {
        const char *name;
        size_t offset;
    } optional[] = {
        {"name", offsetof(Backend__Message, name)},
        {"tool_call_id", offsetof(Backend__Message, tool_call_id)},
        {"reasoning_content", offsetof(Backend__Message, reasoning_content)},
    };
    cJSON *message = cJSON_CreateObject();
    cJSON_AddItemToArray(list, message);
    cJSON_AddStringToObject(message, "role", in->role);
    cJSON_AddStringToObject(message, "content", in->content);
    for (size_t i = 0; i < SH_COUNT_OF(optional); i++) {
        const char *text = *(const char *const *)(const void *)((const char *)in +
                                                                optional[i].offset);
        if (text[0] != '\0') cJSON_AddStringToObject(message, optional[i].name, text);
    }
    return json_add(in->tool_calls, "Messages.tool_calls", "tool_calls", message, err);
}

/* A word, or JSON: both are in use. */
static bool tool_choice_add(const char *text, cJSON *out, sh_api_error *err)
{
    if (text[0] == '{' || text[0] == '"')
        return json_add(text, "ToolChoice", "tool_choice", out, err);
    if (text[0] != '\0') cJSON_AddStringToObject(out, "tool_choice", text);
    return true;
}

/* The entries that concern the template. */
static void metadata_add(const predict_options *in, cJSON *out)
{
    for (size_t i = 0; i < in->n_metadata; i++) {
        const Backend__PredictOptions__MetadataEntry *entry = in->metadata[i];
        if (strcmp(entry->key, "enable_thinking") == 0)
            cJSON_AddBoolToObject(out, entry->key, strcasecmp(entry->value, "true") == 0);
        else if (strcmp(entry->key, "reasoning_effort") == 0)
            cJSON_AddStringToObject(out, entry->key, entry->value);
    }
}

static bool chat_add(const predict_options *in, cJSON *out, sh_api_error *err)
{
    cJSON *list = cJSON_AddArrayToObject(out, "messages");
    bool fine = true;
    for (size_t i = 0; fine && i < in->n_messages; i++)
        fine = message_add(in->messages[i], list, err);
    metadata_add(in, out);
    return fine && json_add(in->tools, "Tools", "tools", out, err) &&
           tool_choice_add(in->toolchoice, out, err);
}

/* ---- requests ---- */

/* In a chat OpenAI has a switch and a number, in a completion the number alone. */
static void logprobs_add(const predict_options *in, bool chat, cJSON *out)
{
    int32_t top = in->toplogprobs > 0 ? in->toplogprobs : in->logprobs;
    if (top <= 0) return;
    if (chat) cJSON_AddTrueToObject(out, "logprobs");
    cJSON_AddNumberToObject(out, chat ? "top_logprobs" : "logprobs", top);
}

static bool predict_add(const predict_options *in, cJSON *out, sh_api_error *err)
{
    bool chat = in->usetokenizertemplate && in->n_messages > 0;
    if (in->n_images + in->n_videos + in->n_audios > 0)
        return sh_api_fail(err, 400, "unsupported", "Images",
                           "Images, Videos and Audios: this backend serves models that read text");
    if (!chat && in->prompt[0] == '\0')
        return sh_api_fail(err, 400, "missing_field", "Prompt",
                           "Prompt is empty, and UseTokenizerTemplate with Messages was not given");
    fields_note(in);
    numbers_add(in, out);
    logprobs_add(in, chat, out);
    texts_add(in->stopprompts, in->n_stopprompts, "stop", out);
    if (in->grammar[0] != '\0') cJSON_AddStringToObject(out, "grammar", in->grammar);
    if (!json_add(in->logitbias, "LogitBias", "logit_bias", out, err)) return false;
    if (chat) return chat_add(in, out, err);
    cJSON_AddStringToObject(out, "prompt", in->prompt);
    return true;
}

static bool embedding_add(const predict_options *in, cJSON *out, sh_api_error *err)
{
    const char *text = in->embeddings[0] != '\0' ? in->embeddings : in->prompt;
    if (in->n_embeddingtokens > 0) {
        cJSON *ids = cJSON_AddArrayToObject(out, "input");
        for (size_t i = 0; i < in->n_embeddingtokens; i++)
            cJSON_AddItemToArray(ids, cJSON_CreateNumber(in->embeddingtokens[i]));
        return true;
    }
    if (text[0] == '\0')
        return sh_api_fail(err, 400, "missing_field", "Embeddings",
                           "Embeddings, EmbeddingTokens and Prompt are all empty");
    cJSON_AddStringToObject(out, "input", text);
    return true;
}

typedef bool (*add_fn)(const predict_options *in, cJSON *out, sh_api_error *err);

static bool options_parse(sh_str body, add_fn add, cJSON **out, sh_api_error *err)
{
    sh_arena arena = {0};
    predict_options *in = NULL;
    cJSON *json = cJSON_CreateObject();
    bool fine = unpack(&backend__predict_options__descriptor, body, &arena, &in, err) &&
                add(in, json, err);
    sh_arena_reset(&arena);
    *out = json; /* the caller frees it in any case */
    return fine;
}

bool sh_localai_parse_predict(sh_str body, cJSON **out, sh_api_error *err)
{
    return options_parse(body, predict_add, out, err);
}

bool sh_localai_parse_stream(sh_str body, cJSON **out, sh_api_error *err)
{
    bool fine = options_parse(body, predict_add, out, err);
    cJSON_AddTrueToObject(*out, "stream");
    return fine;
}

bool sh_localai_parse_embedding(sh_str body, cJSON **out, sh_api_error *err)
{
    return options_parse(body, embedding_add, out, err);
}

bool sh_localai_parse_rerank(sh_str body, cJSON **out, sh_api_error *err)
{
    sh_arena arena = {0};
    Backend__RerankRequest *in = NULL;
    bool fine = unpack(&backend__rerank_request__descriptor, body, &arena, &in, err);
    *out = cJSON_CreateObject();
    if (fine) {
        cJSON_AddStringToObject(*out, "query", in->query);
        cJSON_AddItemToObject(*out, "documents", cJSON_CreateArray());
        cJSON *list = cJSON_GetObjectItemCaseSensitive(*out, "documents");
        for (size_t i = 0; i < in->n_documents; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(in->documents[i]));
        if (in->top_n > 0) cJSON_AddNumberToObject(*out, "top_n", in->top_n);
    }
    sh_arena_reset(&arena);
    return fine;
}

bool sh_localai_parse_ids(sh_str body, cJSON **out, sh_api_error *err)
{
    sh_arena arena = {0};
    Backend__DetokenizeRequest *in = NULL;
    bool fine = unpack(&backend__detokenize_request__descriptor, body, &arena, &in, err);
    *out = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(*out, "tokens");
    for (size_t i = 0; fine && i < in->n_tokens; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(in->tokens[i]));
    sh_arena_reset(&arena);
    return fine;
}

bool sh_localai_read(sh_job_spec *spec, sh_api_error *err)
{
    bool chat = cJSON_GetObjectItemCaseSensitive(spec->json, "messages") != NULL;
    return chat ? sh_openai_chat_read(spec, err) : sh_openai_completion_read(spec, err);
}
