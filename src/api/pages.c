/* GET /openapi.json, /docs and /dashboard: documents and pages that are part of the program. */
#include "api/api_internal.h"
#include "api/assets.h"

void sh_handle_openapi(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_api_reply_json(req, 200, &api->openapi);
}

/* Pages may load nothing from other sites and run only scripts that are files of this server, so
 * text from a model can never become code. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void sh_handle_page(sh_http_request *req, void *arg)
{
    (void)arg;
    const sh_asset *asset = sh_asset_find(sh_http_path(req));
    if (asset == NULL) {
        sh_api_error error;
        sh_api_fail(&error, 404, "not_found", NULL, "no such page");
        sh_api_reply_error(req, &error);
        return;
    }
    sh_http_add_header(req, "Content-Security-Policy", policy);
    sh_http_add_header(req, "Referrer-Policy", "no-referrer");
    sh_http_add_header(req, "Cache-Control", "no-cache");
    sh_http_reply(req, 200, asset->type, (sh_str){asset->data, (size_t)(asset->end - asset->data)});
}
