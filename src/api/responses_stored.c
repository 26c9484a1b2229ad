/* /v1/responses/{id}: what was stored of earlier responses. */
#include "api/api_internal.h"
#include "api/responses.h"
#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>

enum { ITEMS_DEFAULT = 20, ITEMS_MAX = 100 };

static void missing_reply(sh_http_request *req)
{
    sh_api_error error;
    sh_api_fail(&error, 404, "not_found", NULL, "the response '%s' is not stored here (any more)",
                sh_http_param(req).ptr);
    sh_api_reply_error(req, &error);
}

/* Appends a part of the response that the path names; replies if there is none. */
static bool part_get(sh_http_request *req, const sh_api *api, sh_stored_part part, sh_buf *out)
{
    if (sh_response_store_get(api->responses, sh_http_client_of(req), sh_http_param(req).ptr, part,
                              out))
        return true;
    missing_reply(req);
    return false;
}

void sh_responses_get(sh_http_request *req, void *arg)
{
    sh_buf json = {0};
    if (!part_get(req, arg, SH_STORED_RESPONSE, &json)) return;
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

void sh_responses_delete(sh_http_request *req, void *arg)
{
    const sh_api *api = arg;
    sh_buf json = {0};
    sh_json_writer w = sh_json_writer_on(&json);
    if (!sh_response_store_delete(api->responses, sh_http_client_of(req), sh_http_param(req).ptr)) {
        missing_reply(req);
        return;
    }
    sh_write_begin(&w, NULL, '{');
    sh_write_str(&w, "id", sh_http_param(req));
    sh_write_text(&w, "object", "response");
    sh_write_bool(&w, "deleted", true);
    sh_write_end(&w, '}');
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

/* ---- input items ---- */

/* A part of the list. Items are numbered by their ids, in_0 and so on. */
typedef struct {
    int64_t limit, after; /* after: the number of the item before the first one, or -1 */
    bool ascending;
} page;

static bool page_read(sh_http_request *req, page *out, sh_api_error *err)
{
    sh_str limit = sh_http_query(req, "limit"), order = sh_http_query(req, "order"),
           after = sh_http_query(req, "after");
    *out = (page){.limit = ITEMS_DEFAULT, .after = -1, .ascending = sh_str_is(order, "asc")};
    if (limit.len > 0 &&
        (!sh_str_to_int(limit, &out->limit) || out->limit < 1 || out->limit > ITEMS_MAX))
        return sh_api_fail(err, 400, "invalid_value", "limit",
                           "'limit' must be a whole number from 1 to %d", ITEMS_MAX);
    if (order.len > 0 && !out->ascending && !sh_str_is(order, "desc"))
        return sh_api_fail(err, 400, "invalid_value", "order", "'order' must be asc or desc");
    return after.len == 0 ||
           (sh_str_starts(after, SH_STR("in_")) &&
            sh_str_to_int(sh_str_sub(after, 3, after.len), &out->after) && out->after >= 0) ||
           sh_api_fail(err, 400, "invalid_value", "after", "'after' must be the id of an item");
}

/* Cuts the next item from a list that we have written, so it need not be parsed. */
static bool item_cut(sh_str *rest, sh_str *item)
{
    size_t at = 1; /* after the bracket or the comma */
    int depth = 0;
    bool quoted = false;
    for (; at < rest->len; at++) {
        char c = rest->ptr[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && --depth == 0)
            break;
    }
    if (at >= rest->len) return false;
    *item = sh_str_sub(*rest, 1, at);
    *rest = sh_str_sub(*rest, at + 1, rest->len);
    return true;
}

static void item_id_write(const char *key, int64_t number, sh_json_writer *w)
{
    char id[32];
    snprintf(id, sizeof(id), "in_%lld", (long long)number);
    sh_write_text(w, key, number < 0 ? NULL : id);
}

static void items_write(const sh_str *items, int64_t count, const page *p, sh_json_writer *w)
{
    int64_t step = p->ascending ? 1 : -1, first = -1, last = -1;
    int64_t at = p->after >= 0 ? p->after + step : p->ascending ? 0 : count - 1;
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "object", "list");
    sh_write_begin(w, "data", '[');
    for (int64_t left = p->limit; left > 0 && at >= 0 && at < count; left--, at += step) {
        sh_write_raw(w, NULL, items[at]);
        last = at;
        if (first < 0) first = at;
    }
    sh_write_end(w, ']');
    item_id_write("first_id", first, w);
    item_id_write("last_id", last, w);
    sh_write_bool(w, "has_more", at >= 0 && at < count);
    sh_write_end(w, '}');
}

void sh_responses_input_items(sh_http_request *req, void *arg)
{
    sh_buf text = {0}, json = {0};
    page p;
    sh_api_error error;
    if (!page_read(req, &p, &error)) {
        sh_api_reply_error(req, &error);
        return;
    }
    if (!part_get(req, arg, SH_STORED_INPUT, &text)) return;
    sh_str rest = sh_buf_str(&text), item, *items = NULL;
    size_t count = 0;
    while (item_cut(&rest, &item)) {
        if (count % 64 == 0) items = sh_realloc_array(items, count + 64, sizeof(*items));
        items[count++] = item;
    }
    sh_json_writer w = sh_json_writer_on(&json);
    items_write(items, (int64_t)count, &p, &w);
    sh_api_reply_json(req, 200, &json);
    free(items);
    sh_buf_reset(&text);
    sh_buf_reset(&json);
}

void sh_responses_cancel(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_api_error error;
    sh_api_fail(&error, 400, "unsupported", NULL,
                "only background responses can be cancelled, and this server has none: to stop an "
                "answer, close its connection");
    sh_api_reply_error(req, &error);
}
