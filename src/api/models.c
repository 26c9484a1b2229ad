/* GET /v1/models and /v1/models/NAME. */
#include "api/api_parts.h"

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

bool sh_api_lacks_model(sh_http_exchange *x, const sh_api *api)
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
    if (sh_api_lacks_model(x, api)) return;
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
    if (sh_api_lacks_model(x, api)) return;
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
