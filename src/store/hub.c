/* Requests by libcurl's multi interface.
 *
 * HTTP/1.1 on purpose: with HTTP/2 all ranges would share one connection, and with it one
 * congestion window. There is no limit on the time of a whole request, since files are large, but
 * connecting and any pause in the data have one. */
#include "store/hub.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "store/curl_library.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    HOPS_MAX = 5,
    RETRY_AFTER_MAX_S = 300,
    BUFFER_BYTES = 512 << 10,
    TRIES = 12,
    PAUSE_FIRST_MS = 200,
    PAUSE_MAX_MS = 20000,
};

static const sh_curl *curl; /* set when the first hub is opened */

struct sh_hub {
    char *endpoint; /* without a slash at its end */
    CURLU *origin;
    char *auth; /* header line with the token, or NULL */
    bool has_token;
    const sh_repo_name *name;
    int64_t timeout_ms;
    CURLM *multi;
    int64_t left_ns, away_ns; /* when the last sh_hub_wait ended; time spent outside of it */
};

/* A request while it runs. */
struct sh_hub_call {
    CURL *easy;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
    int hops;
    const sh_hub *hub;
    curl_off_t arrived; /* bytes */
    int64_t arrived_ns; /* when the last of them came, by listening_ns */
    bool stopped_by_data;
    bool foreign; /* the URL is not on the hub */
};

/* ---- addresses ---- */

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = NULL, *y = NULL;
    bool same = curl->url_get(a, part, &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl->url_get(b, part, &y, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                strcasecmp(x, y) == 0;
    curl->free(x);
    curl->free(y);
    return same;
}

/* The same scheme, host and port: what the token may be sent to. */
static bool is_ours(const sh_hub *hub, const char *url)
{
    CURLU *parsed = curl->url();
    bool ours = curl->url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                same_part(parsed, hub->origin, CURLUPART_SCHEME) &&
                same_part(parsed, hub->origin, CURLUPART_HOST) &&
                same_part(parsed, hub->origin, CURLUPART_PORT);
    curl->url_cleanup(parsed);
    return ours;
}

static bool has_part(CURLU *url, CURLUPart part, const char *const *values)
{
    char *text = NULL;
    bool found = false;
    if (curl->url_get(url, part, &text, 0) != CURLUE_OK) return false;
    for (; *values != NULL; values++) found = found || strcasecmp(text, *values) == 0;
    curl->free(text);
    return found;
}

static bool is_https(const sh_hub *hub)
{
    return has_part(hub->origin, CURLUPART_SCHEME, (const char *[]){"https", NULL});
}

static bool is_loopback(const sh_hub *hub)
{
    return has_part(hub->origin, CURLUPART_HOST,
                    (const char *[]){"127.0.0.1", "localhost", "[::1]", NULL});
}

/* The text of a path, with everything escaped but slashes. */
static void path_add(sh_buf *out, const char *path)
{
    sh_str rest = sh_str_of(path), part;
    for (bool first = true; sh_str_cut(&rest, '/', &part); first = false) {
        char *escaped = curl->easy_escape(NULL, part.ptr, (int)part.len);
        sh_buf_addf(out, "%s%s", first ? "" : "/", escaped == NULL ? "" : escaped);
        curl->free(escaped);
    }
}

char *sh_hub_listing_url(const sh_hub *hub)
{
    char *revision = curl->easy_escape(NULL, hub->name->revision, 0);
    char *url = sh_asprintf("%s/api/models/%s/revision/%s?blobs=true", hub->endpoint, hub->name->id,
                            revision);
    curl->free(revision);
    return url;
}

char *sh_hub_file_url(const sh_hub *hub, const char *commit, const char *path)
{
    sh_buf url = {0};
    sh_buf_addf(&url, "%s/%s/resolve/%s/", hub->endpoint, hub->name->id, commit);
    path_add(&url, path);
    return sh_buf_take(&url);
}

char *sh_hub_page(const sh_hub *hub)
{
    return sh_asprintf("%s/%s", hub->endpoint, hub->name->id);
}

/* ---- opening ---- */

static sh_status endpoint_take(sh_hub *hub, const char *text, sh_err *err)
{
    static const char *const schemes[] = {"http", "https", NULL};
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '/') len--;
    hub->endpoint = sh_strndup(text, len);
    hub->origin = curl->url();
    if (curl->url_set(hub->origin, CURLUPART_URL, hub->endpoint, 0) != CURLUE_OK ||
        !has_part(hub->origin, CURLUPART_SCHEME, schemes))
        return sh_err_set(err, SH_ERR_INPUT,
                          "--hf-endpoint '%s' must be an address such as " SH_HUB_ENDPOINT, text);
    return SH_OK;
}

/* A token ends up in a header line, where a line break would start another one. */
static sh_status token_take(sh_hub *hub, const char *token, sh_err *err)
{
    if (token == NULL || token[0] == '\0') return SH_OK;
    for (const char *p = token; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return sh_err_set(
                err, SH_ERR_INPUT,
                "the token for the hub (HF_TOKEN) has spaces or other characters that "
                "no token has");
    if (!is_https(hub) && !is_loopback(hub)) {
        static atomic_flag said = ATOMIC_FLAG_INIT; /* a process may open many hubs */
        if (!atomic_flag_test_and_set(&said))
            SH_LOGW("the token is not sent to %s, since the connection is not encrypted",
                    hub->endpoint);
        return SH_OK;
    }
    hub->has_token = true;
    hub->auth = sh_asprintf("Authorization: Bearer %s", token);
    return SH_OK;
}

sh_status sh_hub_open(const sh_hub_opts *opts, sh_hub **out, sh_err *err)
{
    sh_status status = curl != NULL ? SH_OK : sh_curl_load(&curl, err);
    if (status != SH_OK) return status;
    sh_hub *hub = sh_alloc(sizeof(*hub));
    hub->name = opts->name;
    hub->timeout_ms = opts->timeout_ms;
    hub->left_ns = sh_clock_ns();
    hub->multi = curl->multi_init();
    SH_ASSERT(hub->multi != NULL);
    status = endpoint_take(hub, opts->endpoint, err);
    if (status == SH_OK) status = token_take(hub, opts->token, err);
    if (status != SH_OK) {
        sh_hub_close(hub);
        return status;
    }
    *out = hub;
    return SH_OK;
}

void sh_hub_close(sh_hub *hub)
{
    if (hub == NULL) return;
    curl->multi_cleanup(hub->multi);
    curl->url_cleanup(hub->origin);
    if (hub->auth != NULL) memset(hub->auth, 0, strlen(hub->auth));
    free(hub->auth);
    free(hub->endpoint);
    free(hub);
}

/* ---- headers ---- */

static void text_take(char *out, size_t cap, sh_str value)
{
    snprintf(out, cap, "%.*s", (int)(value.len < cap ? value.len : cap - 1), value.ptr);
}

static void reply_reset(sh_hub_reply *reply)
{
    free(reply->location);
    *reply = (sh_hub_reply){.retry_after = -1, .range_first = -1, .range_total = -1};
}

/* W/"abc" and "abc" are both abc. The hub's own digest of a linked file wins over that of the
 * server that answers; it may come first or last. */
static void etag_take(sh_hub_reply *reply, sh_str value, bool linked)
{
    if (!linked && reply->etag[0] != '\0') return;
    if (sh_str_starts(value, SH_STR("W/"))) value = sh_str_sub(value, 2, value.len);
    if (value.len >= 2 && value.ptr[0] == '"') value = sh_str_sub(value, 1, value.len - 2);
    text_take(reply->etag, sizeof(reply->etag), value);
}

/* Seconds, or a date. */
static int64_t retry_after(sh_str value)
{
    int64_t seconds;
    if (sh_str_to_int(value, &seconds)) return seconds < 0 ? -1 : seconds;
    char *text = sh_str_dup(value);
    struct tm date = {0};
    bool valid = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date) != NULL;
    time_t then = valid ? timegm(&date) : -1, now = time(NULL);
    free(text);
    return !valid ? -1 : then < now ? 0 : (int64_t)(then - now);
}

/* "bytes 0-9/100" */
static void range_take(sh_hub_reply *reply, sh_str value)
{
    sh_str rest = value, unit, first, last;
    int64_t a, b, total;
    if (!sh_str_cut(&rest, ' ', &unit) || !sh_str_is(unit, "bytes")) return;
    if (!sh_str_cut(&rest, '-', &first) || !sh_str_cut(&rest, '/', &last)) return;
    if (!sh_str_to_int(first, &a) || !sh_str_to_int(last, &b) || !sh_str_to_int(rest, &total))
        return;
    if (a < 0 || b < a || total <= b) return;
    reply->range_first = a;
    reply->range_total = total;
}

static bool is_named(sh_str name, const char *text)
{
    return name.len == strlen(text) && strncasecmp(name.ptr, text, name.len) == 0;
}

void sh_hub_header(sh_hub_reply *reply, sh_str line)
{
    sh_str value = line, name;
    if (sh_str_find(line, SH_STR(":"), 0) == line.len || !sh_str_cut(&value, ':', &name)) return;
    value = sh_str_trim(value);
    if (is_named(name, "X-Error-Code"))
        text_take(reply->error_code, sizeof(reply->error_code), value);
    if (is_named(name, "X-Repo-Commit")) text_take(reply->commit, sizeof(reply->commit), value);
    if (is_named(name, "X-Linked-Etag")) etag_take(reply, value, true);
    if (is_named(name, "ETag")) etag_take(reply, value, false);
    if (is_named(name, "Retry-After")) reply->retry_after = retry_after(value);
    if (is_named(name, "Content-Range")) range_take(reply, value);
    if (is_named(name, "Location")) {
        free(reply->location);
        reply->location = sh_str_dup(value);
    }
}

/* A status line starts a new reply: before the final one there may be 1xx. */
static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    sh_hub_request *r = ctx;
    sh_str text = sh_str_trim((sh_str){line, size * count});
    if (sh_str_starts(text, SH_STR("HTTP/")))
        reply_reset(&r->reply);
    else
        sh_hub_header(&r->reply, text);
    return size * count;
}

/* The bodies of errors and redirects are not needed. */
static size_t on_data(char *bytes, size_t size, size_t count, void *ctx)
{
    sh_hub_request *r = ctx;
    curl->easy_getinfo(r->call->easy, CURLINFO_RESPONSE_CODE, &r->reply.code);
    if (r->reply.code / 100 != 2 || r->data == NULL || r->data(r, (sh_str){bytes, size * count}))
        return size * count;
    r->call->stopped_by_data = true;
    return size * count == 0 ? 1 : 0;
}

/* A clock that stands still while nobody listens: a caller that hashes or syncs a large file must
 * not take that for silence of the server. */
static int64_t listening_ns(const sh_hub *hub)
{
    return sh_clock_ns() - hub->away_ns;
}

/* curl's own limit on slow transfers takes the mean of several seconds; this one is exact. */
static int on_progress(void *ctx, curl_off_t total, curl_off_t arrived, curl_off_t up_total,
                       curl_off_t up)
{
    struct sh_hub_call *call = ctx;
    (void)total, (void)up_total, (void)up;
    int64_t now = listening_ns(call->hub);
    if (arrived != call->arrived) call->arrived_ns = now;
    call->arrived = arrived;
    return now - call->arrived_ns > call->hub->timeout_ms * 1000000 ? 1 : 0;
}

/* ---- requests ---- */

static void call_free(sh_hub *hub, sh_hub_request *r)
{
    struct sh_hub_call *call = r->call;
    if (call == NULL) return;
    if (call->easy != NULL) {
        curl->multi_remove_handle(hub->multi, call->easy);
        curl->easy_cleanup(call->easy);
    }
    curl->slist_free_all(call->headers);
    free(call);
    r->call = NULL;
}

static void range_set(CURL *easy, const sh_hub_request *r)
{
    char range[64];
    if (r->end == 0) return;
    snprintf(range, sizeof(range), "%lld-%lld", (long long)r->first, (long long)r->end - 1);
    curl->easy_setopt(easy, CURLOPT_RANGE, range);
}

/* A hub with HTTPS may not redirect to plain HTTP. Proxies are those of the environment. */
static void call_prepare(sh_hub *hub, sh_hub_request *r)
{
    struct sh_hub_call *call = r->call;
    CURL *easy = call->easy = curl->easy_init();
    char *agent = sh_asprintf("shoal/%s", sh_version());
    const char *trusted = getenv("SSL_CERT_FILE");
    SH_ASSERT(easy != NULL);
    call->foreign = !is_ours(hub, r->url);
    call->hub = hub;
    call->arrived_ns = listening_ns(hub);
    if (hub->auth != NULL && !call->foreign) call->headers = curl->slist_append(NULL, hub->auth);
    curl->easy_setopt(easy, CURLOPT_URL, r->url);
    curl->easy_setopt(easy, CURLOPT_PRIVATE, r);
    curl->easy_setopt(easy, CURLOPT_USERAGENT, agent);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
    curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, is_https(hub) ? "https" : "http,https");
    curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)hub->timeout_ms);
    curl->easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl->easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl->easy_setopt(easy, CURLOPT_XFERINFODATA, call);
    curl->easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl->easy_setopt(easy, CURLOPT_HEADERDATA, r);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, r);
    if (trusted != NULL) curl->easy_setopt(easy, CURLOPT_CAINFO, trusted);
    if (r->locate) curl->easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (!r->locate && r->end == 0) curl->easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "");
    range_set(easy, r);
    free(agent);
}

static void call_start(sh_hub *hub, sh_hub_request *r, int hops)
{
    call_free(hub, r);
    reply_reset(&r->reply);
    r->call = sh_alloc(sizeof(*r->call));
    r->call->hops = hops;
    call_prepare(hub, r);
    CURLMcode code = curl->multi_add_handle(hub->multi, r->call->easy);
    SH_ASSERT(code == CURLM_OK);
}

void sh_hub_start(sh_hub *hub, sh_hub_request *request)
{
    request->status = SH_OK;
    request->wait_ms = -1;
    request->denied = false;
    call_start(hub, request, 0);
}

void sh_hub_stop(sh_hub *hub, sh_hub_request *request)
{
    call_free(hub, request);
}

void sh_hub_request_reset(sh_hub *hub, sh_hub_request *request)
{
    call_free(hub, request);
    reply_reset(&request->reply);
    free(request->url);
    request->url = NULL;
}

/* ---- results ---- */

/* The host of a URL, for errors: the rest of it may hold a signature. */
static void host_of(const char *url, char *out, size_t cap)
{
    CURLU *parsed = curl->url();
    char *host = NULL;
    if (curl->url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK)
        curl->url_get(parsed, CURLUPART_HOST, &host, 0);
    snprintf(out, cap, "%s", host == NULL ? "the server" : host);
    curl->free(host);
    curl->url_cleanup(parsed);
}

/* Connections that break are worth another try; wrong certificates and settings are not. */
static sh_status explain_curl(sh_hub_request *r, CURLcode code)
{
    static const CURLcode final[] = {
        CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT,      CURLE_PEER_FAILED_VERIFICATION,
        CURLE_SSL_CACERT_BADFILE,   CURLE_SSL_CERTPROBLEM,    CURLE_COULDNT_RESOLVE_PROXY,
        CURLE_BAD_CONTENT_ENCODING, CURLE_WEIRD_SERVER_REPLY,
    };
    const char *text = code == CURLE_ABORTED_BY_CALLBACK ? "sends nothing"
                       : r->call->error[0] != '\0'       ? r->call->error
                                                         : curl->easy_strerror(code);
    const char *advice = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE
                             ? "; the package ca-certificates, or SSL_CERT_FILE, has the "
                               "certificates to trust"
                             : "";
    char host[128];
    host_of(r->url, host, sizeof(host));
    sh_err_set(&r->err, SH_ERR_PEER, "%s: %s%s", host, text, advice);
    for (size_t i = 0; i < SH_COUNT_OF(final); i++)
        if (code == final[i]) return SH_ERR_PEER;
    return SH_AGAIN;
}

static sh_status explain_401(const sh_hub *hub, sh_hub_request *r, bool gated)
{
    char *page = sh_hub_page(hub);
    if (gated && !hub->has_token)
        sh_err_set(
            &r->err, SH_ERR_AUTH,
            "%s is gated: accept its terms at %s, and set HF_TOKEN to a token of that account",
            hub->name->id, page);
    else if (gated)
        sh_err_set(&r->err, SH_ERR_AUTH,
                   "%s is gated, and the account of this token has no access: accept the terms at "
                   "%s, with that account",
                   hub->name->id, page);
    else if (hub->has_token)
        sh_err_set(&r->err, SH_ERR_AUTH,
                   "%s refuses the token for %s (%ld): the token is wrong or may not read it, or "
                   "there is no such model",
                   hub->endpoint, hub->name->id, r->reply.code);
    else
        sh_err_set(&r->err, SH_ERR_NOT_FOUND,
                   "%s has no public model %s (%ld): check the spelling; for a private one set "
                   "HF_TOKEN",
                   hub->endpoint, hub->name->id, r->reply.code);
    free(page);
    return r->err.status;
}

static sh_status explain_404(const sh_hub *hub, sh_hub_request *r)
{
    const char *what = r->reply.error_code;
    if (strcmp(what, "RevisionNotFound") == 0)
        return sh_err_set(&r->err, SH_ERR_NOT_FOUND, "%s has no revision '%s'", hub->name->id,
                          hub->name->revision);
    if (strcmp(what, "EntryNotFound") == 0)
        return sh_err_set(&r->err, SH_ERR_NOT_FOUND,
                          "%s lists this file but does not have it (404)", hub->endpoint);
    return sh_err_set(&r->err, SH_ERR_NOT_FOUND, "%s has no model %s (404)", hub->endpoint,
                      hub->name->id);
}

/* A server that is busy says when to come back. A wait of more than a few minutes is the user's to
 * decide. */
static sh_status explain_busy(sh_hub_request *r, const char *host)
{
    int64_t wait = r->reply.retry_after;
    if (wait > RETRY_AFTER_MAX_S)
        return sh_err_set(&r->err, SH_ERR_LIMIT,
                          "%s (status %ld) asks to wait %lld s: try again then%s", host,
                          r->reply.code, (long long)wait,
                          r->reply.code == 429 ? "; with HF_TOKEN set, the limits are higher" : "");
    if (wait >= 0) r->wait_ms = wait * 1000;
    sh_err_set(&r->err, SH_ERR_PEER, "%s answers with status %ld", host, r->reply.code);
    return SH_AGAIN;
}

static sh_status explain_code(const sh_hub *hub, sh_hub_request *r)
{
    long code = r->reply.code;
    char host[128];
    host_of(r->url, host, sizeof(host));
    r->denied = r->call->foreign && (code == 401 || code == 403 || code == 404 || code == 410);
    if (code / 100 == 2) return SH_OK;
    if (code == 429 || code == 408 || code / 100 == 5) return explain_busy(r, host);
    if (!r->call->foreign && (code == 401 || code == 403))
        return explain_401(hub, r, strcmp(r->reply.error_code, "GatedRepo") == 0);
    if (!r->call->foreign && code == 404) return explain_404(hub, r);
    return sh_err_set(&r->err, SH_ERR_PEER, "%s answers with status %ld", host, code);
}

/* Follows a redirect; false if there is none, or if it is the result. */
static bool redirect(sh_hub *hub, sh_hub_request *r)
{
    CURLU *url = curl->url();
    char *next = NULL;
    int hops = r->call->hops + 1;
    bool valid = r->reply.code / 100 == 3 && r->reply.location != NULL && hops <= HOPS_MAX &&
                 curl->url_set(url, CURLUPART_URL, r->url, 0) == CURLUE_OK &&
                 curl->url_set(url, CURLUPART_URL, r->reply.location, 0) == CURLUE_OK &&
                 curl->url_get(url, CURLUPART_URL, &next, 0) == CURLUE_OK;
    curl->url_cleanup(url);
    if (!valid) return false;
    free(r->url);
    r->url = sh_strdup(next);
    curl->free(next);
    if (r->locate && !is_ours(hub, r->url)) {
        r->reply.code = 200;
        return false;
    }
    call_start(hub, r, hops);
    return true;
}

/* False if the request goes on. */
static bool call_end(sh_hub *hub, sh_hub_request *r, CURLcode code)
{
    curl->easy_getinfo(r->call->easy, CURLINFO_RESPONSE_CODE, &r->reply.code);
    if (code == CURLE_OK && redirect(hub, r)) return false;
    if (!r->call->stopped_by_data)
        r->status = code != CURLE_OK ? explain_curl(r, code) : explain_code(hub, r);
    call_free(hub, r);
    return true;
}

static sh_hub_request *ended(sh_hub *hub)
{
    int left;
    for (CURLMsg *msg; (msg = curl->multi_info_read(hub->multi, &left)) != NULL;) {
        sh_hub_request *r = NULL;
        if (msg->msg != CURLMSG_DONE) continue;
        CURLcode code = msg->data.result;
        curl->easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&r);
        if (call_end(hub, r, code)) return r;
    }
    return NULL;
}

sh_hub_request *sh_hub_wait(sh_hub *hub, int wait_ms)
{
    int running;
    hub->away_ns += sh_clock_ns() - hub->left_ns;
    curl->multi_perform(hub->multi, &running);
    sh_hub_request *r = ended(hub);
    if (r == NULL) {
        curl->multi_poll(hub->multi, NULL, 0, wait_ms, NULL);
        curl->multi_perform(hub->multi, &running);
        r = ended(hub);
    }
    hub->left_ns = sh_clock_ns();
    return r;
}

bool sh_hub_retry(const sh_hub_request *r, int *failures, sh_deadline *patience, sh_deadline *until)
{
    bool told = r->wait_ms >= 0;
    int64_t pause = PAUSE_FIRST_MS;
    for (int i = 0; i < *failures && pause < PAUSE_MAX_MS; i++) pause *= 2;
    if (++*failures > TRIES || (!told && sh_deadline_passed(*patience))) return false;
    *until = sh_deadline_in_ms(told ? r->wait_ms : pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS);
    if (told && *until > *patience) *patience = *until;
    return true;
}
