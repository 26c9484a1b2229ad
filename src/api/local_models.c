/* GET /models/local: the models on disk. The API may not look for them: the process that downloads
 * them does (store_service.h). */
#include "api/api_internal.h"
#include "base/alloc.h"

#include <stdlib.h>

enum { REPLY_MAX = 4 << 20 };

typedef struct {
    sh_http_request *req;
    sh_store_request *asked;
    sh_buf json;
    sh_json_writer w;
} listing;

static void listing_free(listing *l)
{
    sh_buf_reset(&l->json);
    free(l);
}

static void on_gone(void *arg)
{
    listing *l = arg;
    sh_store_request_forget(l->asked);
    listing_free(l);
}

static void listing_end(listing *l, const cJSON *report)
{
    const char *why = sh_json_text(report, "error");
    sh_api_error error;
    if (report == NULL || why != NULL) {
        sh_api_fail(&error, report == NULL ? 503 : 500, "store_failed", NULL, "%s",
                    why == NULL ? "the models could not be listed: see the log" : why);
        sh_api_reply_error(l->req, &error);
    } else {
        sh_write_end(&l->w, ']');
        sh_write_end(&l->w, '}');
        sh_api_reply_json(l->req, 200, &l->json);
    }
    listing_free(l);
}

static void on_report(void *arg, const cJSON *report)
{
    listing *l = arg;
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(report, "model");
    if (model == NULL) {
        listing_end(l, report);
        return;
    }
    char *text = l->json.len < REPLY_MAX ? cJSON_PrintUnformatted(model) : NULL;
    if (text != NULL) sh_write_raw(&l->w, NULL, sh_str_of(text));
    cJSON_free(text);
}

void sh_handle_local_models(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_api_error error;
    if (api->store == NULL) {
        sh_api_fail(&error, 403, "forbidden", NULL,
                    "this server does not show what is on its disk; start it with --manage-models");
        sh_api_reply_error(req, &error);
        return;
    }
    listing *l = sh_alloc(sizeof(*l));
    *l = (listing){.req = req};
    l->w = sh_json_writer_on(&l->json);
    sh_write_begin(&l->w, NULL, '{');
    sh_write_begin(&l->w, "models", '[');
    l->asked = sh_store_service_ask(api->store, "list", "", on_report, l);
    if (l->asked != NULL) {
        sh_http_watch_client(req, on_gone, NULL, l);
        return;
    }
    listing_end(l, NULL);
}
