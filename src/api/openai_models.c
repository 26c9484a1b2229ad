/* GET /v1/models and /v1/models/NAME: a list of one, since a server has one model. */
#include "api/api_internal.h"
#include "api/openai.h"

static void model_write(const sh_api *api, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", sh_served_model_name(api->served));
    sh_write_text(w, "object", "model");
    sh_write_int(w, "created", sh_served_model_created_s(api->served));
    sh_write_text(w, "owned_by", "shoal");
    sh_write_int(w, "max_model_len", sh_served_model_context(api->served));
    sh_write_end(w, '}');
}

void sh_openai_models(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    if (sh_api_lacks_model(req, api)) return;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "object", "list");
    sh_write_begin(&w, "data", '[');
    model_write(api, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

void sh_openai_model(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    if (sh_api_lacks_model(req, api)) return;
    sh_api_error error;
    if (!sh_served_model_check_name(api->served, sh_http_param(req).ptr, &error)) {
        sh_api_reply_error(req, &error);
        return;
    }
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    model_write(api, &w);
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}
