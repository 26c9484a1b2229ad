/* Errors in OpenAI's form: {"error":{"message","type","code","param"},"detail":message}. OpenAI's
 * libraries read `error`, the older clients of port 8100 and 8080 read `detail`. Codes and statuses
 * are those of error.h; only the type has a word of its own for each kind of error. */
#include "api/json_writer.h"
#include "api/openai.h"

static const struct {
    int status;
    const char *type;
} types[] = {
    {401, "authentication_error"}, {403, "permission_error"},    {404, "not_found_error"},
    {408, "timeout_error"},        {429, "rate_limit_error"},    {500, "server_error"},
    {501, "server_error"},         {503, "unavailable_error"},   {504, "timeout_error"},
    {505, "server_error"},         {507, "out_of_memory_error"},
};

static const char *type_of(int status)
{
    for (size_t i = 0; i < SH_COUNT_OF(types); i++)
        if (types[i].status == status) return types[i].type;
    return "invalid_request_error";
}

static int error_status(const sh_api_error *error)
{
    return error->status;
}

static void error_write(const sh_api_error *error, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_begin(&w, "error", '{');
    sh_write_text(&w, "message", error->message);
    sh_write_text(&w, "type", type_of(error->status));
    sh_write_text(&w, "code", error->code);
    sh_write_text(&w, "param", error->param[0] == '\0' ? NULL : error->param);
    sh_write_end(&w, '}');
    sh_write_text(&w, "detail", error->message);
    sh_write_end(&w, '}');
}

const sh_dialect sh_openai = {
    .error_status = error_status,
    .error = error_write,
    .error_schema = "{\"$ref\":\"#/components/schemas/Error\"}",
};
