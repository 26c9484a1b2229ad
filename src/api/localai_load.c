/* LoadModel and Free: which model is served.
 *
 * There is one model, or none. A change of it has two ends: the supervisor reports that the ranks
 * of the new one were started, after nothing of the old one is left, and the engine connects. Both
 * must have come, in this order, before LoadModel is answered. The client may leave meanwhile: the
 * change goes on, and Status tells how it ends.
 *
 * The ranks may also be lost and come back later; that is the replay's business, as in every other
 * server, and not seen here. */
#include "api/localai.h"

#include "api/model_host.h"
#include "base/alloc.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

struct sh_localai_model {
    sh_api *api;
    sh_api_opts *opts; /* of the API: defaults for requests */
    sh_model_host *host;
    sh_api_sampling sampling;
    sh_localai_state state;
    bool frees;           /* LOADING: it is to be unloaded */
    bool started;         /* LOADING: the supervisor has started the ranks */
    sh_localai_wish wish; /* of the model that is loaded, or being loaded */
    sh_http_request *req; /* waits for the change to end; or NULL */
};

sh_localai_state sh_localai_model_state(const sh_localai_model *model)
{
    return model->state;
}

static void on_gone(void *arg)
{
    sh_localai_model *model = arg;
    model->req = NULL;
}

static void wait_for_end(sh_localai_model *model, sh_http_request *req)
{
    model->state = SH_LOCALAI_LOADING;
    model->started = false;
    model->req = req;
    sh_http_watch_client(req, on_gone, NULL, model);
}

/* Defaults of requests; on the loop, where they are read. */
static void defaults_set(sh_localai_model *model)
{
    model->sampling = model->wish.settings == NULL ? sh_localai_sampling() : model->wish.sampling;
    model->opts->max_tokens = model->wish.max_tokens;
}

static void model_forget(sh_localai_model *model)
{
    sh_localai_wish_reset(&model->wish);
    defaults_set(model);
    sh_models_drop(model->api, "no model is loaded; call LoadModel first");
}

static void change_end(sh_localai_model *model, bool success, const char *text)
{
    sh_http_request *req = model->req;
    model->req = NULL;
    model->state = success && !model->frees ? SH_LOCALAI_LOADED : SH_LOCALAI_NO_MODEL;
    if (!success) SH_LOGE("localai: %s", text);
    if (req != NULL) sh_localai_reply_result(req, success, text);
    if (model->state == SH_LOCALAI_NO_MODEL) model_forget(model);
}

static void load_succeed(sh_localai_model *model)
{
    const char *notes = model->wish.notes.len == 0 ? "" : model->wish.notes.ptr;
    sh_err said; /* cleans what is the client's text */
    defaults_set(model);
    sh_err_set(&said, SH_OK, "%s%s%s", sh_served_model_name(sh_models_main(model->api)->served),
               notes[0] == '\0' ? " is loaded" : " is loaded; without effect: ", notes);
    SH_LOGI("localai: %s", said.text);
    change_end(model, true, said.text);
}

/* The first engine of a process that replaces another is the one that the other had loaded. */
void sh_localai_model_up(sh_localai_model *model, const char *trouble)
{
    if (model->state == SH_LOCALAI_NO_MODEL && trouble == NULL) model->state = SH_LOCALAI_LOADED;
    if (model->state != SH_LOCALAI_LOADING || !model->started || model->frees) return;
    if (trouble == NULL) {
        load_succeed(model);
        return;
    }
    change_end(model, false, trouble);
    sh_model_host_ask(model->host, NULL);
}

/* Ranks that fail after the model was loaded are not restarted: then there is none any more. */
static void failed_take(sh_localai_model *model, const char *why)
{
    sh_api_error error;
    if (model->state == SH_LOCALAI_NO_MODEL) return;
    model->frees = false;
    sh_api_fail(&error, 503, "model_lost", NULL, "the model has ended: %s", why);
    sh_jobs_fail(model->api, &error);
    change_end(model, false, why[0] == '\0' ? "the model could not be loaded; see the log" : why);
}

static void on_host(void *arg, const char *state, const char *why)
{
    sh_localai_model *model = arg;
    bool changes = model->state == SH_LOCALAI_LOADING;
    if (strcmp(state, "started") == 0)
        model->started = changes;
    else if (strcmp(state, "freed") == 0 && changes && model->frees)
        change_end(model, true, "the model is unloaded");
    else if (strcmp(state, "failed") == 0)
        failed_take(model, why);
    else if (strcmp(state, "gone") == 0)
        failed_take(model, "the supervisor has ended");
}

/* True, after replying, if the model cannot be changed now. */
static bool refuses(const sh_localai_model *model, sh_http_request *req, bool busy)
{
    sh_api_error error;
    if (model->state != SH_LOCALAI_LOADING && !busy) return false;
    sh_api_fail(&error, 409, "busy", NULL, "%s",
                busy ? "another model is answering requests; load this one when they are complete"
                     : "a model is being loaded or unloaded; try again when that is done");
    sh_api_reply_error(req, &error);
    return true;
}

static bool same_wish(const sh_localai_model *model, const sh_localai_wish *wish)
{
    return model->state == SH_LOCALAI_LOADED && sh_models_main(model->api)->served != NULL &&
           cJSON_Compare(model->wish.settings, wish->settings, true);
}

static void load_begin(sh_localai_model *model, sh_http_request *req, sh_localai_wish *wish)
{
    bool same = same_wish(model, wish);
    bool busy = model->state == SH_LOCALAI_LOADED && !same && model->api->job_count > 0;
    if (refuses(model, req, busy)) return;
    sh_localai_wish_reset(&model->wish);
    model->wish = *wish;
    *wish = (sh_localai_wish){0};
    model->frees = false;
    wait_for_end(model, req);
    if (same)
        load_succeed(model);
    else if (!sh_model_host_ask(model->host, model->wish.settings))
        change_end(model, false, "the supervisor does not answer");
}

void sh_localai_load(sh_http_request *req, void *arg)
{
    sh_api *api = arg;
    sh_arena arena = {0};
    ProtobufCMessage *options = NULL;
    sh_localai_wish wish = {0};
    sh_err err;
    sh_status status = sh_message_unpack(&backend__model_options__descriptor, sh_http_body(req),
                                         &arena, &options, &err);
    if (status == SH_OK)
        status = sh_localai_wish_read((const Backend__ModelOptions *)options, &wish, &err);
    if (status == SH_OK)
        load_begin(api->localai, req, &wish);
    else
        sh_localai_reply_result(req, false, err.text);
    sh_localai_wish_reset(&wish);
    sh_arena_reset(&arena);
}

/* Whoever frees a model wants its memory now: answers that are running end with an error. */
void sh_localai_free(sh_http_request *req, void *arg)
{
    sh_api *api = arg;
    sh_localai_model *model = api->localai;
    sh_api_error error;
    if (model->state == SH_LOCALAI_NO_MODEL) {
        sh_localai_reply_result(req, true, "no model is loaded");
        return;
    }
    if (refuses(model, req, false)) return;
    model->frees = true;
    wait_for_end(model, req);
    sh_api_fail(&error, 503, "model_unloaded", NULL, "the model was unloaded by a call of Free");
    sh_jobs_fail(api, &error);
    if (!sh_model_host_ask(model->host, NULL))
        change_end(model, false, "the supervisor does not answer");
}

sh_localai_model *sh_localai_model_create(sh_api *api, sh_api_opts *opts, int fd)
{
    sh_localai_model *model = sh_alloc(sizeof(*model));
    model->api = api;
    model->opts = opts;
    model->host = sh_model_host_create(api->loop, fd, on_host, model);
    opts->sampling = &model->sampling;
    defaults_set(model);
    return model;
}

void sh_localai_model_leave(sh_localai_model *model)
{
    sh_model_host_leave(model->host);
}

void sh_localai_model_free(sh_localai_model *model)
{
    if (model == NULL) return;
    sh_model_host_free(model->host);
    sh_localai_wish_reset(&model->wish);
    free(model);
}
