/* What all of Anthropic's endpoints share: errors, headers, and the list of models. */
#include "api/anthropic.h"

#include "api/api_internal.h"

#include <string.h>
#include <time.h>

static const struct {
    int status;
    const char *type;
} types[] = {
    {401, "authentication_error"},
    {403, "permission_error"},
    {404, "not_found_error"},
    {413, "request_too_large"},
    {429, "rate_limit_error"},
    {500, "api_error"},
    {501, "api_error"},
    {503, "overloaded_error"},
    {504, "timeout_error"},
    {507, "overloaded_error"},
};

static const char *type_of(int status)
{
    for (size_t i = 0; i < SH_COUNT_OF(types); i++)
        if (types[i].status == status) return types[i].type;
    return "invalid_request_error";
}

/* 529 is Anthropic's status for a server that cannot take the request at the moment. */
static int error_status(const sh_api_error *error)
{
    return strcmp(type_of(error->status), "overloaded_error") == 0 ? 529 : error->status;
}

/* Coding agents shorten their conversation when the message says that the prompt is too long. */
static void error_write(const sh_api_error *error, sh_buf *out)
{
    bool too_long = error->code != NULL && strcmp(error->code, "context_length_exceeded") == 0;
    char message[SH_ERR_TEXT_MAX + 32];
    snprintf(message, sizeof(message), "%s%s", too_long ? "prompt is too long: " : "",
             error->message);
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "type", "error");
    sh_write_begin(&w, "error", '{');
    sh_write_text(&w, "type", type_of(error->status));
    sh_write_text(&w, "message", message);
    sh_write_end(&w, '}');
    sh_write_end(&w, '}');
}

static void headers_add(sh_http_request *req)
{
    sh_http_add_header(req, "request-id", sh_http_id(req));
}

const sh_dialect sh_anthropic = {
    .error_status = error_status,
    .error = error_write,
    .error_schema =
        "{\"type\":\"object\",\"required\":[\"type\",\"error\"],\"properties\":{\"type\":{"
        "\"const\":\"error\"},\"error\":{\"type\":\"object\",\"required\":[\"type\",\"message\"],"
        "\"properties\":{\"type\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}}}}",
    .headers = headers_add,
};

static void model_write(const sh_api_model *m, sh_json_writer *w)
{
    char created[32];
    time_t time = (time_t)sh_model_created_s(m);
    struct tm parts;
    gmtime_r(&time, &parts);
    strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &parts);
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "type", "model");
    sh_write_text(w, "id", sh_model_name(m));
    sh_write_text(w, "display_name", sh_model_name(m));
    sh_write_text(w, "created_at", created);
    sh_write_end(w, '}');
}

void sh_anthropic_models(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    const sh_api_model *first = sh_models_first(api), *last = NULL;
    if (sh_api_lacks_model(req, api)) return;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_begin(&w, "data", '[');
    for (const sh_api_model *m = first; m != NULL; m = sh_models_next(m)) {
        model_write(m, &w);
        last = m;
    }
    sh_write_end(&w, ']');
    sh_write_bool(&w, "has_more", false);
    sh_write_text(&w, "first_id", first == NULL ? NULL : sh_model_name(first));
    sh_write_text(&w, "last_id", last == NULL ? NULL : sh_model_name(last));
    sh_write_end(&w, '}');
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

void sh_anthropic_model(sh_http_request *req, void *arg)
{
    sh_api_reply_model(req, arg, model_write);
}
