/* Figures of the engine that are of now.
 *
 * The engine is asked about once a second. Who wants to know how things stand gets an answer that
 * is newer than the question: the engine is asked again, and the handler runs when it has answered,
 * or with the last figures when it is too busy to. */
#include "api/api_internal.h"
#include "base/alloc.h"

#include <stdlib.h>

enum { FRESH_MS = 250 };

struct sh_asker {
    sh_api *api;
    sh_http_request *req;
    sh_http_handler then;
    sh_asker *prev, *next;
};

static void asker_free(sh_asker *a)
{
    if (a->prev != NULL)
        a->prev->next = a->next;
    else
        a->api->askers = a->next;
    if (a->next != NULL) a->next->prev = a->prev;
    free(a);
}

static void on_gone(void *arg)
{
    asker_free(arg);
}

void sh_api_when_fresh(sh_api *api, sh_http_request *req, sh_http_handler then)
{
    if (!sh_engine_conn_refresh(api->engine_conn)) {
        then(req, api);
        return;
    }
    if (api->askers == NULL) sh_trigger_start(api->fresh_limit, FRESH_MS);
    sh_asker *a = sh_alloc(sizeof(*a));
    *a = (sh_asker){.api = api, .req = req, .then = then, .next = api->askers};
    if (a->next != NULL) a->next->prev = a;
    api->askers = a;
    sh_http_watch_client(req, on_gone, NULL, a);
}

void sh_api_fresh(void *arg)
{
    sh_api *api = arg;
    sh_trigger_stop(api->fresh_limit);
    while (api->askers != NULL) {
        sh_http_request *req = api->askers->req;
        sh_http_handler then = api->askers->then;
        asker_free(api->askers);
        sh_http_watch_client(req, NULL, NULL, NULL);
        then(req, api);
    }
}
