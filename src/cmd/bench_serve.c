/* shoal bench serve: measures a running server under load. It uses OpenAI's streaming
 * /v1/completions with token ids as the prompt, so that different servers can be compared.
 *
 * A level is a number of connections ("lanes"), each of which sends one request after another, so
 * that many requests are always in flight. Prompts are random ids, different for every request,
 * so a prefix cache cannot help. One thread runs all lanes in an event loop; a time is taken when
 * an event of the stream is parsed.
 *
 * Gaps are between events that carry text, not between tokens: a server may put several tokens
 * into one event. Rates use the server's own token count where it reports one. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "cmd/bench.h"
#include "http/http_client.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IDS_FIRST = 32, /* prompts are random ids from this range, which every vocabulary has */
    IDS_COUNT = 3900,
    LEVELS_MAX = 16,
    LANES_MAX = 4096,
    WAIT_S = 600,
    LINE_MAX = 1 << 20
};

/* Measured times, to be sorted. */
typedef struct {
    double *ms;
    size_t count, cap;
} times;

typedef struct {
    const sh_settings *s;
    struct event_base *loop;
    const char *host;
    char address[SH_HTTP_HOST_MAX];
    int port;
    uint64_t seed; /* of the next prompt */

    /* of one level, except where noted */
    int open;
    int left; /* requests still to be started */
    int failed;
    int all_failed; /* in all levels */
    int why;        /* how the first of them failed: an HTTP status, or 0 for no answer */
    int64_t tokens;
    times first, gap, whole;
} bench;

/* A connection that sends one request after another. */
typedef struct {
    bench *b;
    struct evhttp_connection *link;
    sh_buf text; /* received bytes of an incomplete line */
    int64_t start_ns, last_ns;
    int events;
    int64_t reported; /* tokens by the server's count; -1: it sent none */
} lane;

static void times_add(times *t, double ms)
{
    if (t->count == t->cap) {
        t->cap = t->cap * 2 + 64;
        t->ms = sh_realloc_array(t->ms, t->cap, sizeof(*t->ms));
    }
    t->ms[t->count++] = ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(times *t, double share)
{
    if (t->count == 0) return 0;
    qsort(t->ms, t->count, sizeof(*t->ms), by_value);
    return t->ms[(size_t)(share * (double)(t->count - 1) + 0.5)];
}

/* ignore_eos makes every answer as long as asked for, so that levels do the same work; servers that
 * do not know it may answer shorter. */
static void body_write(bench *b, struct evbuffer *out)
{
    evbuffer_add_printf(out, "{\"prompt\":[");
    for (int64_t i = 0; i < b->s->bench_prompt; i++)
        evbuffer_add_printf(out, "%s%d", i == 0 ? "" : ",",
                            (int)(IDS_FIRST + sh_mix64(++b->seed) % IDS_COUNT));
    evbuffer_add_printf(out,
                        "],\"max_tokens\":%lld,\"temperature\":1,\"seed\":%u,\"ignore_eos\":true,"
                        "\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                        (long long)b->s->bench_generate, (unsigned)(b->seed % 100000));
}

/* One event of the stream: a piece of text, the usage figures, or the end. */
static void event_take(lane *l, sh_str data)
{
    cJSON *json = cJSON_ParseWithLength(data.ptr, data.len);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "choices"), 0);
    const cJSON *usage = cJSON_GetObjectItem(json, "usage");
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(choice, "text"));
    const cJSON *count = cJSON_GetObjectItem(usage, "completion_tokens");
    int64_t now = sh_clock_ns();
    if (cJSON_IsNumber(count)) l->reported = (int64_t)count->valuedouble;
    if (text != NULL && text[0] != '\0') {
        double ms = (double)(now - l->last_ns) * 1e-6;
        times_add(l->events++ == 0 ? &l->b->first : &l->b->gap, ms);
        l->last_ns = now;
    }
    cJSON_Delete(json);
}

/* Called by libevent for every piece of the chunked body. Only "data:" lines matter. */
static void on_bytes(struct evhttp_request *request, void *arg)
{
    lane *l = arg;
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(in);
    if (l->text.len + len > LINE_MAX) return;
    evbuffer_remove(in, sh_buf_reserve(&l->text, len), len);
    l->text.len += len;
    for (char *end; (end = memchr(l->text.ptr, '\n', l->text.len)) != NULL;) {
        size_t line = (size_t)(end - l->text.ptr);
        if (line > 6 && memcmp(l->text.ptr, "data: ", 6) == 0)
            event_take(l, (sh_str){l->text.ptr + 6, line - 6});
        sh_buf_drop_front(&l->text, line + 1);
    }
}

static void lane_ask(lane *l);

/* The lane sends its next request at once; the last answer of a level ends the loop. request is
 * NULL when the connection failed. */
static void on_end(struct evhttp_request *request, void *arg)
{
    lane *l = arg;
    bench *b = l->b;
    int code = request == NULL ? 0 : evhttp_request_get_response_code(request);
    b->open--;
    if (code != HTTP_OK || l->events == 0) {
        b->failed++;
        if (b->all_failed++ == 0) b->why = code;
    } else {
        b->tokens += l->reported >= 0 ? l->reported : l->events;
        times_add(&b->whole, (double)(sh_clock_ns() - l->start_ns) * 1e-6);
    }
    if (b->left > 0)
        lane_ask(l);
    else if (b->open == 0)
        event_base_loopbreak(b->loop);
}

static void lane_ask(lane *l)
{
    bench *b = l->b;
    struct evhttp_request *request = evhttp_request_new(on_end, l);
    SH_ASSERT(request != NULL);
    struct evkeyvalq *head = evhttp_request_get_output_headers(request);
    evhttp_request_set_chunked_cb(request, on_bytes);
    evhttp_add_header(head, "Host", b->host);
    evhttp_add_header(head, "Content-Type", "application/json");
    if (b->s->api_key != NULL) {
        sh_buf value = {0};
        sh_buf_addf(&value, "Bearer %.*s", (int)strcspn(b->s->api_key, ","), b->s->api_key);
        evhttp_add_header(head, "Authorization", value.ptr);
        sh_buf_reset(&value);
    }
    body_write(b, evhttp_request_get_output_buffer(request));
    sh_buf_clear(&l->text);
    l->events = 0;
    l->reported = -1;
    l->start_ns = l->last_ns = sh_clock_ns();
    b->left--;
    b->open++;
    evhttp_make_request(l->link, request, EVHTTP_REQ_POST, "/v1/completions");
}

static void level_print(bench *b, int lanes, double seconds)
{
    size_t answers = b->whole.count;
    printf("%d,%zu,%d,%lld,%.2f,%.2f,%.1f,%.1f,%.1f,%.1f,%.1f\n", lanes, answers, b->failed,
           (long long)b->tokens, seconds, (double)b->tokens / seconds, percentile(&b->first, 0.5),
           percentile(&b->first, 0.95), percentile(&b->gap, 0.5), percentile(&b->gap, 0.95),
           percentile(&b->whole, 0.5));
    fflush(stdout);
}

/* Times and counters are reset here, so each row of the table stands for one level. */
static void level_run(bench *b, int lanes)
{
    lane *all = sh_alloc_array((size_t)lanes, sizeof(*all));
    b->tokens = b->failed = 0;
    b->first.count = b->gap.count = b->whole.count = 0;
    b->left = lanes * (int)b->s->rounds;
    int64_t start = sh_clock_ns();
    for (int i = 0; i < lanes; i++) {
        all[i] = (lane){
            .b = b,
            .link = evhttp_connection_base_new(b->loop, NULL, b->address, (unsigned short)b->port)};
        SH_ASSERT(all[i].link != NULL);
        evhttp_connection_set_timeout(all[i].link, WAIT_S);
        lane_ask(&all[i]);
    }
    if (b->open > 0) event_base_dispatch(b->loop);
    level_print(b, lanes, (double)(sh_clock_ns() - start) * 1e-9);
    for (int i = 0; i < lanes; i++) {
        evhttp_connection_free(all[i].link);
        sh_buf_reset(&all[i].text);
    }
    free(all);
}

static sh_status levels_parse(const char *text, int *out, int *count, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    for (*count = 0; sh_str_cut(&rest, ',', &part);) {
        int64_t lanes;
        if (!sh_str_to_int(part, &lanes) || lanes < 1 || lanes > LANES_MAX || *count == LEVELS_MAX)
            return sh_err_set(err, SH_ERR_INPUT,
                              "--concurrency '%s': takes up to %d numbers from 1 to %d, separated "
                              "by commas",
                              text, LEVELS_MAX, LANES_MAX);
        out[(*count)++] = (int)lanes;
    }
    return SH_OK;
}

static int failures_report(const bench *b)
{
    char status[32] = "no answer";
    if (b->all_failed == 0) return SH_EXIT_OK;
    if (b->why != 0) snprintf(status, sizeof(status), "HTTP status %d", b->why);
    fprintf(stderr, "shoal: %d requests to %s failed; the first got %s%s\n", b->all_failed,
            b->s->url, status, b->why == HTTP_OK ? ", but no text" : "");
    return SH_EXIT_FAILED;
}

/* Stops after a level in which nothing was answered: the next ones would only time out as well. */
int sh_bench_serve(const sh_command_args *args)
{
    bench b = {.s = args->settings, .seed = (uint64_t)sh_clock_unix_us()};
    int levels[LEVELS_MAX], count;
    sh_err err;
    struct evhttp_uri *uri = evhttp_uri_parse(b.s->url);
    const char *scheme = uri == NULL ? NULL : evhttp_uri_get_scheme(uri);
    b.host = uri == NULL ? NULL : evhttp_uri_get_host(uri);
    sh_status status = levels_parse(b.s->concurrency, levels, &count, &err);
    if (status == SH_OK &&
        (scheme == NULL || strcmp(scheme, "http") != 0 || b.host == NULL || b.host[0] == '\0'))
        status = sh_err_set(&err, SH_ERR_INPUT, "--url '%s' is not of the form http://HOST:PORT",
                            b.s->url);
    if (status == SH_OK) {
        b.port = evhttp_uri_get_port(uri) > 0 ? evhttp_uri_get_port(uri) : 80;
        sh_http_bare_host(b.host, b.address);
        b.loop = event_base_new();
        printf("concurrency,answers,failed,tokens,seconds,tokens_per_s,first_token_ms,"
               "first_token_p95_ms,gap_ms,gap_p95_ms,answer_ms\n");
        for (int i = 0; i < count && (i == 0 || b.whole.count > 0); i++) level_run(&b, levels[i]);
        event_base_free(b.loop);
    }
    free(b.first.ms);
    free(b.gap.ms);
    free(b.whole.ms);
    if (uri != NULL) evhttp_uri_free(uri);
    return status == SH_OK ? failures_report(&b) : sh_command_fail(&err);
}
