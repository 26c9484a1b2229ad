/* GET /v1/models and /v1/models/NAME: what can be asked for, loaded or not. */
#include "api/api_internal.h"
#include "api/openai.h"

/* The context is known while the model is loaded. */
static void model_write(const sh_api_model *m, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", sh_model_name(m));
    sh_write_text(w, "object", "model");
    sh_write_int(w, "created", sh_model_created_s(m));
    sh_write_text(w, "owned_by", "shoal");
    if (m->served != NULL) sh_write_int(w, "max_model_len", sh_served_model_context(m->served));
    sh_write_text(w, "state", sh_model_state_name(m));
    if (m->state == SH_MODEL_FAILED) sh_write_text(w, "error", m->why);
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
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m))
        model_write(m, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

void sh_openai_model(sh_http_request *req, void *arg)
{
    sh_api_reply_model(req, arg, model_write);
}
