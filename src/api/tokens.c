/* POST /tokenize, /detokenize, /apply-template and /v1/messages/count_tokens.
 *
 * Each endpoint is one pure function from the parsed body to the JSON of the reply (text_task.h).
 */
#include "api/api_internal.h"
#include "api/openai.h"
#include "api/text_task.h"

#include <math.h>

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

/* The prompt of a chat, whose body is read by the same code as a chat request. */
static bool chat_render(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_job_spec spec = {.json = body};
    bool fine = t->format->read(&spec, err) &&
                sh_job_spec_add_defaults(&spec, &t->api->opts->defaults, err) &&
                sh_job_spec_add_defaults(&spec, &sh_served_model_defaults(t->served)->added, err) &&
                sh_served_model_render(t->served, &spec, out, err);
    spec.json = NULL; /* owned by the caller */
    sh_job_spec_reset(&spec);
    return fine;
}

/* The text to encode; a chat is rendered first, and brings its special tokens along. */
static bool text_find(const sh_text_task *t, cJSON *body, text_fields *fields, sh_buf *rendered,
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

static bool encode(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
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

static bool decode(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
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

static bool render(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_buf text = {0};
    bool fine = chat_render(t, body, &text, err);
    if (fine) text_write(NULL, &text, out);
    sh_buf_reset(&text);
    return fine;
}

/* The body is that of a request to the model, read by the same code. */
static bool count(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err)
{
    sh_job_spec spec = {.json = body};
    sh_tokens *prompts = NULL;
    size_t prompt_count = 0;
    bool fine = t->format->read(&spec, err) &&
                sh_job_spec_add_defaults(&spec, &t->api->opts->defaults, err) &&
                sh_job_spec_add_defaults(&spec, &sh_served_model_defaults(t->served)->added, err) &&
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

static const sh_field_table *tokenize_fields(const cJSON *body)
{
    bool chat = cJSON_GetObjectItemCaseSensitive(body, "messages") != NULL;
    return chat ? &tokenize_chat_fields : &sh_tokenize_fields;
}

void sh_handle_tokenize(sh_http_request *req, void *arg)
{
    sh_text_task_start(req, arg, tokenize_fields, encode);
}

void sh_handle_detokenize(sh_http_request *req, void *arg)
{
    sh_text_task_start(req, arg, NULL, decode);
}

void sh_handle_apply_template(sh_http_request *req, void *arg)
{
    sh_text_task_start(req, arg, NULL, render);
}

void sh_handle_count_tokens(sh_http_request *req, void *arg)
{
    sh_text_task_start(req, arg, NULL, count);
}
