/* POST /tokenize, /detokenize, /apply-template and /v1/messages/count_tokens.
 *
 * A long body goes to the worker, like a long prompt: on the loop, a few megabytes would stall
 * every stream for seconds. Each endpoint is one pure function (`convert`) from the parsed body to
 * the JSON of the reply; it runs on either thread and uses only the model and the format of its
 * task. The task belongs to the worker from submit until task_end(), so a client that disconnects
 * only sets two flags. */
#include "api/api_internal.h"
#include "api/openai.h"
#include "base/alloc.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
    const char *model;
    const char *content; /* llama.cpp's name, and vLLM's */
    const char *prompt;
    const cJSON *messages, *add_special_tokens;
    bool with_strings;
    bool add_special;
    bool parse_special;
    bool with_pieces;
    const cJSON *tokens;
} text_fields;

#define AT(field) .offset = offsetof(text_fields, field)

static const sh_field tokenize_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`. May be left out.",
     AT(model)},
    {.name = "content",
     .type = SH_FIELD_STRING,
     .max = SH_ENCODE_TEXT_MAX,
     .meaning = "The text. This, `prompt` or `messages` must be given.",
     AT(content)},
    {.name = "prompt",
     .type = SH_FIELD_STRING,
     .max = SH_ENCODE_TEXT_MAX,
     .meaning = "vLLM's name for the text; with the special tokens around it, unless "
                "`add_special_tokens` is false.",
     AT(prompt)},
    {.name = "messages",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .meaning = "A conversation, rendered by the chat template; other fields of a chat request "
                "may stand beside it.",
     AT(messages)},
    {.name = "add_special_tokens",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "vLLM's name for `add_special`; true by default with `prompt`.",
     AT(add_special_tokens)},
    {.name = "return_token_strs",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Return the text of each token as `token_strs`, too.",
     AT(with_strings)},
    {.name = "add_special",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Add the special tokens that the tokenizer puts around a text.",
     AT(add_special)},
    {.name = "parse_special",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Parse special tokens written in the text as these tokens, not as plain text.",
     AT(parse_special)},
    {.name = "with_pieces",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Return each token as an object with its id and its piece of text.",
     AT(with_pieces)},
};
const sh_field_table sh_tokenize_fields = {tokenize_rows, SH_COUNT_OF(tokenize_rows), NULL};

/* With `messages`. */
static const sh_field_table tokenize_chat_fields = {tokenize_rows, SH_COUNT_OF(tokenize_rows),
                                                    &sh_openai_chat_fields};

static const sh_field detokenize_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`. May be left out.",
     AT(model)},
    {.name = "tokens",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"$ref\":\"#/components/schemas/TokenIds\"}",
     .meaning = "Token ids.",
     AT(tokens)},
};
const sh_field_table sh_detokenize_fields = {detokenize_rows, SH_COUNT_OF(detokenize_rows), NULL};

const char sh_tokenize_rules[] =
    "[{\"oneOf\":[{\"required\":[\"content\"],\"properties\":{\"content\":{\"type\":\"string\"}}},{"
    "\"required\":[\"prompt\"],\"properties\":{\"prompt\":{\"type\":\"string\"}}},{\"required\":["
    "\"messages\"],\"properties\":{\"messages\":{\"type\":\"array\",\"minItems\":1,\"items\":{"
    "\"$ref\":\"#/components/schemas/Message\"}}}}]}]";

/* A piece is text, or a list of bytes when it is not valid UTF-8 by itself. */
static void piece_write(const sh_served_model *served, int32_t id, sh_json_writer *w)
{
    sh_buf piece = {0};
    sh_served_model_piece(served, id, &piece);
    sh_write_begin(w, NULL, '{');
    sh_write_int(w, "id", id);
    if (sh_utf8_valid(sh_buf_str(&piece).ptr, piece.len))
        sh_write_str(w, "piece", sh_buf_str(&piece));
    else {
        sh_write_begin(w, "piece", '[');
        for (size_t i = 0; i < piece.len; i++) sh_write_int(w, NULL, (unsigned char)piece.ptr[i]);
        sh_write_end(w, ']');
    }
    sh_write_end(w, '}');
    sh_buf_reset(&piece);
}

static void strings_write(const sh_served_model *served, const sh_ids *ids, sh_json_writer *w)
{
    sh_buf piece = {0};
    sh_write_begin(w, "token_strs", '[');
    for (size_t i = 0; i < ids->len; i++) {
        sh_buf_clear(&piece);
        sh_served_model_piece(served, ids->ptr[i], &piece);
        sh_write_str(w, NULL, sh_buf_str(&piece));
    }
    sh_write_end(w, ']');
    sh_buf_reset(&piece);
}

static void ids_write(const sh_served_model *served, const sh_ids *ids, bool pieces, bool strings,
                      sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "count", (int64_t)ids->len);
    sh_write_int(&w, "max_model_len", sh_served_model_context(served));
    if (strings) strings_write(served, ids, &w);
    sh_write_begin(&w, "tokens", '[');
    for (size_t i = 0; i < ids->len; i++) {
        if (pieces)
            piece_write(served, ids->ptr[i], &w);
        else
            sh_write_int(&w, NULL, ids->ptr[i]);
    }
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
}

/* One request. */
typedef struct task task;
struct task {
    sh_api *api;
    const sh_job_format *format; /* of the body; or NULL */
    const sh_field_table *fields;
    sh_http_request *req; /* NULL: the client is gone */
    atomic_bool gone;     /* the same, readable by the worker, which can then skip its work */
    sh_model_waiter turn; /* for its model, which is known once the body was read */
    sh_served_model *served;
    sh_str body;
    char *body_copy; /* for the worker */
    cJSON *json_body;
    size_t values; /* in it */
    bool (*convert)(const task *t, cJSON *body, sh_buf *out, sh_api_error *err);
    bool refused;
    sh_api_error error;
    sh_buf json;
    sh_buf ignored; /* fields that have no effect, see sh_fields_unknown */
};

/* The prompt of a chat, whose body is read by the same code as a chat request. */
static bool chat_render(const task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_job_spec spec = {.json = body};
    bool fine = t->format->read(&spec, err) && sh_served_model_render(t->served, &spec, out, err);
    spec.json = NULL; /* owned by the caller */
    sh_job_spec_reset(&spec);
    return fine;
}

/* The text to encode; a chat is rendered first, and brings its special tokens along. */
static bool text_find(const task *t, cJSON *body, text_fields *fields, sh_buf *rendered,
                      sh_str *text, sh_api_error *err)
{
    const cJSON *special = fields->add_special_tokens;
    int given = (fields->content != NULL) + (fields->prompt != NULL) + (fields->messages != NULL);
    if (given != 1)
        return sh_api_fail(err, 400, given == 0 ? "missing_field" : "invalid_value", "content",
                           "one of 'content', 'prompt' and 'messages' must be given, not %d of "
                           "them",
                           given);
    if (fields->messages != NULL) {
        if (!chat_render(t, body, rendered, err)) return false;
        *text = sh_buf_str(rendered);
        fields->add_special = cJSON_IsTrue(special);
        return true;
    }
    *text = sh_str_of(fields->prompt != NULL ? fields->prompt : fields->content);
    if (special != NULL || fields->prompt != NULL) fields->add_special = !cJSON_IsFalse(special);
    return true;
}

static bool encode(const task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    sh_buf rendered = {0};
    sh_str text;
    text_fields fields = {0};
    if (!sh_fields_read(&sh_tokenize_fields, body, &fields, err) ||
        !text_find(t, body, &fields, &rendered, &text, err)) {
        sh_buf_reset(&rendered);
        return false;
    }
    sh_encode_opts opts = {.add_special = fields.add_special,
                           .parse_special = fields.parse_special};
    bool fine = sh_tokenizer_encode(sh_served_model_tokenizer(t->served), text, opts, &ids, &why) ==
                SH_OK;
    if (fine)
        ids_write(t->served, &ids, fields.with_pieces, fields.with_strings, out);
    else
        *err = sh_api_error_of(&why, false);
    sh_ids_reset(&ids);
    sh_buf_reset(&rendered);
    return fine;
}

static bool ids_read(const cJSON *list, int32_t size, sh_ids *out, sh_api_error *err)
{
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < size) || floor(id) != id)
            return sh_api_fail(err, 400, "invalid_value", "tokens",
                               "'tokens' must contain whole numbers from 0 to %d", size - 1);
        sh_ids_add(out, (int32_t)id);
    }
    return true;
}

/* Under both names that clients know, or under the second alone. */
static void text_write(const char *name, const sh_buf *text, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    if (name != NULL) sh_write_str(&w, name, sh_buf_str(text));
    sh_write_str(&w, "prompt", sh_buf_str(text));
    sh_write_end(&w, '}');
}

static bool decode(const task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    const sh_tokenizer *tok = sh_served_model_tokenizer(t->served);
    text_fields fields = {0};
    sh_ids ids = {0};
    sh_buf text = {0};
    bool fine = sh_fields_read(&sh_detokenize_fields, body, &fields, err) &&
                ids_read(fields.tokens, sh_tokenizer_size(tok), &ids, err);
    if (fine) {
        sh_tokenizer_decode(tok, ids.ptr, ids.len, false, &text);
        text_write("content", &text, out);
    }
    sh_buf_reset(&text);
    sh_ids_reset(&ids);
    return fine;
}

static bool render(const task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_buf text = {0};
    bool fine = chat_render(t, body, &text, err);
    if (fine) text_write(NULL, &text, out);
    sh_buf_reset(&text);
    return fine;
}

/* The body is that of a request to the model, read by the same code. */
static bool count(const task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_job_spec spec = {.json = body};
    sh_tokens *prompts = NULL;
    size_t prompt_count = 0;
    bool fine = t->format->read(&spec, err) &&
                sh_served_model_prepare(t->served, &spec, &prompts, &prompt_count, err);
    if (fine) {
        sh_json_writer w = sh_json_writer_on(out);
        sh_write_begin(&w, NULL, '{');
        sh_write_int(&w, "input_tokens", (int64_t)prompts[0].count);
        sh_write_end(&w, '}');
    }
    spec.json = NULL; /* owned by the caller */
    sh_job_spec_reset(&spec);
    return fine;
}

static const sh_field_table *fields_of(const task *t, const cJSON *body)
{
    bool chat = cJSON_GetObjectItemCaseSensitive(body, "messages") != NULL;
    return chat && t->fields == &sh_tokenize_fields ? &tokenize_chat_fields : t->fields;
}

static void task_parse(void *arg)
{
    task *t = arg;
    t->refused = true;
    if (atomic_load_explicit(&t->gone, memory_order_relaxed)) return;
    t->refused = !sh_api_parse(t->api, t->body, &t->json_body, &t->values, &t->error);
    if (!t->refused && cJSON_IsObject(t->json_body))
        sh_fields_unknown(fields_of(t, t->json_body), t->json_body, &t->ignored);
}

static void task_run(void *arg)
{
    task *t = arg;
    if (atomic_load_explicit(&t->gone, memory_order_relaxed)) return;
    t->refused = !t->convert(t, t->json_body, &t->json, &t->error);
}

static void task_end(void *arg)
{
    task *t = arg;
    if (t->req != NULL && t->ignored.len > 0)
        sh_http_add_header(t->req, "X-Shoal-Ignored-Fields", t->ignored.ptr);
    if (t->req != NULL && t->refused) sh_api_reply_error(t->req, &t->error);
    if (t->req != NULL && !t->refused) sh_api_reply_json(t->req, 200, &t->json);
    sh_api_parsed_free(t->api, t->json_body, t->values);
    sh_served_model_close(t->served);
    sh_model_release(&t->turn);
    sh_buf_reset(&t->json);
    sh_buf_reset(&t->ignored);
    free(t->body_copy);
    free(t);
}

static void on_gone(void *arg)
{
    task *t = arg;
    t->req = NULL; /* task_end() frees the task */
    atomic_store_explicit(&t->gone, true, memory_order_relaxed);
    if (t->turn.waits) task_end(t);
}

/* Runs a stage of the task, long bodies on the worker. Without space in its queue the request is
 * refused: the loop must not do the work. */
static void task_stage(task *t, sh_text_worker_fn run, sh_text_worker_fn then)
{
    if (t->body.len <= SH_API_INLINE_BYTES) {
        run(t);
        then(t);
        return;
    }
    if (sh_text_worker_submit(t->api->worker, run, then, t) == SH_OK) return;
    t->refused = true;
    sh_api_refuse_waiting(&t->error);
    task_end(t);
}

/* The model can be used, or will not be. */
static void on_turn(void *arg, const sh_api_error *error)
{
    task *t = arg;
    if (error == NULL && t->turn.model->served != NULL) {
        t->served = sh_served_model_take(t->turn.model->served);
        task_stage(t, task_run, task_end);
        return;
    }
    t->refused = true;
    if (error != NULL)
        t->error = *error;
    else
        sh_model_ready(t->turn.model, &t->error);
    task_end(t);
}

/* The name may be of the wrong type or carry Ollama's tag; `convert` reads it again. */
static void on_parsed(void *arg)
{
    task *t = arg;
    const char *name = sh_json_text(t->json_body, "model");
    sh_api_model *model = t->refused || t->req == NULL ? NULL
                                                       : sh_models_find(t->api, name, &t->error);
    t->refused = model == NULL;
    if (model == NULL) {
        task_end(t);
        return;
    }
    double limit_s = t->api->request_timeout_s;
    t->turn.go = on_turn;
    t->turn.arg = t;
    t->turn.deadline = limit_s > 0 ? sh_deadline_in_ms((int64_t)(limit_s * 1000))
                                   : SH_DEADLINE_NEVER;
    if (!sh_model_wait(model, &t->turn)) on_turn(t, NULL);
}

/* Replies with what `convert` makes of the body. */
static void convert_start(sh_http_request *req, sh_api *api,
                          bool (*convert)(const task *, cJSON *, sh_buf *, sh_api_error *))
{
    if (sh_api_lacks_model(req, api)) return;
    const sh_endpoint *endpoint = sh_api_endpoint_of(req);
    task *t = sh_alloc(sizeof(*t));
    t->api = api;
    t->format = endpoint->format;
    t->fields = endpoint->fields;
    t->req = req;
    t->body = sh_http_body(req);
    t->convert = convert;
    if (t->body.len > SH_API_INLINE_BYTES) {
        t->body_copy = sh_str_dup(t->body);
        t->body.ptr = t->body_copy;
    }
    sh_http_watch_client(req, on_gone, NULL, t);
    task_stage(t, task_parse, on_parsed);
}

void sh_handle_tokenize(sh_http_request *req, void *arg)
{
    convert_start(req, arg, encode);
}

void sh_handle_detokenize(sh_http_request *req, void *arg)
{
    convert_start(req, arg, decode);
}

void sh_handle_apply_template(sh_http_request *req, void *arg)
{
    convert_start(req, arg, render);
}

void sh_handle_count_tokens(sh_http_request *req, void *arg)
{
    convert_start(req, arg, count);
}
