/* GET /v1/models, and text to token ids and back. */
#include "api/api_parts.h"
#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void model_write(const sh_api *api, sh_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", sh_served_name(api->served));
    sh_write_text(w, "object", "model");
    sh_write_int(w, "created", sh_served_created_s(api->served));
    sh_write_text(w, "owned_by", "shoal");
    sh_write_int(w, "max_model_len", sh_served_context(api->served));
    sh_write_end(w, '}');
}

static bool served_missing(sh_http_exchange *x, const sh_api *api)
{
    sh_api_error error;
    if (api->served != NULL) return false;
    sh_api_ready(api, &error);
    sh_api_reply_error(x, &error);
    return true;
}

void sh_handle_models(sh_http_exchange *x, void *arg)
{
    const sh_api *api = arg;
    if (served_missing(x, api)) return;
    sh_buf json = {0};
    sh_writer w = sh_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "object", "list");
    sh_write_begin(&w, "data", '[');
    model_write(api, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    sh_api_reply_json(x, 200, &json);
    sh_buf_reset(&json);
}

void sh_handle_model(sh_http_exchange *x, void *arg)
{
    const sh_api *api = arg;
    if (served_missing(x, api)) return;
    sh_str name = sh_http_param(x);
    if (name.len == 0 || !sh_served_is_named(api->served, name.ptr)) {
        sh_api_error error;
        sh_api_fail(&error, 404, "model_not_found", "model",
                    "the model '%s' is not served here; '%s' is", name.ptr,
                    sh_served_name(api->served));
        sh_api_reply_error(x, &error);
        return;
    }
    sh_buf json = {0};
    sh_writer w = sh_writer_on(&json);
    model_write(api, &w);
    sh_api_reply_json(x, 200, &json);
    sh_buf_reset(&json);
}

typedef struct {
    const char *content;
    bool add_special;
    bool parse_special;
    bool with_pieces;
    const cJSON *tokens;
} text_fields;

#define AT(field) .offset = offsetof(text_fields, field)

static const sh_field tokenize_rows[] = {
    {.name = "content",
     .type = SH_FIELD_STRING,
     .required = true,
     .max = SH_ENCODE_TEXT_MAX,
     .meaning = "The text.",
     AT(content)},
    {.name = "add_special",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Add the special tokens that the tokenizer puts around a text.",
     AT(add_special)},
    {.name = "parse_special",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Special tokens that are written in the text become those tokens.",
     AT(parse_special)},
    {.name = "with_pieces",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Give each token as an object with its id and its piece of text.",
     AT(with_pieces)},
};
const sh_field_table sh_tokenize_fields = {tokenize_rows, SH_COUNT_OF(tokenize_rows), NULL};

static const sh_field detokenize_rows[] = {
    {.name = "tokens",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}",
     .meaning = "Token ids.",
     AT(tokens)},
};
const sh_field_table sh_detokenize_fields = {detokenize_rows, SH_COUNT_OF(detokenize_rows), NULL};

/* A piece is text, or a list of bytes when it is no UTF-8 by itself. */
static void piece_write(const sh_api *api, int32_t id, sh_writer *w)
{
    sh_buf piece = {0};
    sh_served_piece(api->served, id, &piece);
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

static void ids_write(const sh_api *api, const sh_ids *ids, bool pieces, sh_buf *out)
{
    sh_writer w = sh_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_begin(&w, "tokens", '[');
    for (size_t i = 0; i < ids->len; i++) {
        if (pieces)
            piece_write(api, ids->ptr[i], &w);
        else
            sh_write_int(&w, NULL, ids->ptr[i]);
    }
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
}

/* The body in the fields of a table; false when it was answered with an error. */
static bool fields_of(sh_http_exchange *x, const sh_field_table *table, cJSON **body,
                      text_fields *out)
{
    sh_api_error error;
    *body = sh_api_body(x);
    if (*body == NULL) return false;
    if (sh_fields_read(table, *body, out, &error)) return true;
    sh_api_reply_error(x, &error);
    cJSON_Delete(*body);
    return false;
}

void sh_handle_tokenize(sh_http_exchange *x, void *arg)
{
    const sh_api *api = arg;
    text_fields fields = {0};
    cJSON *body;
    if (served_missing(x, api) || !fields_of(x, &sh_tokenize_fields, &body, &fields)) return;
    sh_ids ids = {0};
    sh_err err;
    sh_encode_opts opts = {.add_special = fields.add_special,
                           .parse_special = fields.parse_special};
    if (sh_tokenizer_encode(sh_served_tokenizer(api->served), sh_str_of(fields.content), opts, &ids,
                            &err) != SH_OK) {
        sh_api_error error = sh_api_error_of(&err, false);
        sh_api_reply_error(x, &error);
    } else {
        sh_buf json = {0};
        ids_write(api, &ids, fields.with_pieces, &json);
        sh_api_reply_json(x, 200, &json);
        sh_buf_reset(&json);
    }
    sh_ids_reset(&ids);
    cJSON_Delete(body);
}

static bool ids_read(const cJSON *list, int32_t size, sh_ids *out, sh_api_error *err)
{
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < size) || floor(id) != id)
            return sh_api_fail(err, 400, "invalid_value", "tokens",
                               "'tokens' must hold whole numbers from 0 to %d", size - 1);
        sh_ids_add(out, (int32_t)id);
    }
    return true;
}

void sh_handle_detokenize(sh_http_exchange *x, void *arg)
{
    const sh_api *api = arg;
    text_fields fields = {0};
    cJSON *body;
    if (served_missing(x, api) || !fields_of(x, &sh_detokenize_fields, &body, &fields)) return;
    const sh_tokenizer *tok = sh_served_tokenizer(api->served);
    sh_ids ids = {0};
    sh_api_error error;
    if (!ids_read(fields.tokens, sh_tokenizer_size(tok), &ids, &error))
        sh_api_reply_error(x, &error);
    else {
        sh_buf text = {0}, json = {0};
        sh_tokenizer_decode(tok, ids.ptr, ids.len, false, &text);
        sh_writer w = sh_writer_on(&json);
        sh_write_begin(&w, NULL, '{');
        sh_write_str(&w, "content", sh_buf_str(&text));
        sh_write_end(&w, '}');
        sh_api_reply_json(x, 200, &json);
        sh_buf_reset(&text);
        sh_buf_reset(&json);
    }
    sh_ids_reset(&ids);
    cJSON_Delete(body);
}
