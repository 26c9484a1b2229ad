/* Up-to-date figures of the engine.
 *
 * The engine's stats arrive about once a second, but the answer to a status request should not be
 * older than the request. So the engine is asked again, and the handler runs when the stats have
 * arrived, or after FRESH_MS with the last figures if the engine is too busy to answer. */
#include "api/api_internal.h"
#include "base/alloc.h"

#include <stdlib.h>

enum { FRESH_MS = 250 };

struct sh_fresh_waiter {
    sh_api *api;
    sh_http_request *req;
    sh_http_handler then;
    sh_fresh_waiter *prev, *next;
};

static void waiter_free(sh_fresh_waiter *a)
{
    if (a->prev != NULL)
        a->prev->next = a->next;
    else
        a->api->fresh_waiters = a->next;
    if (a->next != NULL) a->next->prev = a->prev;
    free(a);
}

static void on_gone(void *arg)
{
    waiter_free(arg);
}

void sh_api_when_fresh(sh_api *api, sh_http_request *req, sh_http_handler then)
{
    if (!sh_models_refresh(api)) {
        then(req, api);
        return;
    }
    if (api->fresh_waiters == NULL) sh_trigger_start(api->fresh_limit, FRESH_MS);
    sh_fresh_waiter *a = sh_alloc(sizeof(*a));
    *a = (sh_fresh_waiter){.api = api, .req = req, .then = then, .next = api->fresh_waiters};
    if (a->next != NULL) a->next->prev = a;
    api->fresh_waiters = a;
    sh_http_watch_client(req, on_gone, NULL, a);
}

void sh_api_fresh(void *arg)
{
    sh_api *api = arg;
    sh_trigger_stop(api->fresh_limit);
    while (api->fresh_waiters != NULL) {
        sh_http_request *req = api->fresh_waiters->req;
        sh_http_handler then = api->fresh_waiters->then;
        waiter_free(api->fresh_waiters);
        sh_http_watch_client(req, NULL, NULL, NULL);
        then(req, api);
    }
}
