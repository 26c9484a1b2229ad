/* The view of `shoal monitor`. The JSON may come from another version of the server, or from
 * something else at that address: absent fields are shown as 0 or "-". */
#include "cmd/support/monitor_view.h"

#include <stdio.h>
#include <string.h>

enum { BAR_LEN = 20, REQUESTS_MAX = 10 };
static const double GIB = 1024.0 * 1024.0 * 1024.0;

typedef struct {
    sh_buf *out;
    int columns, rows_left;
} canvas;

static double number(const cJSON *obj, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *text(const cJSON *obj, const char *key)
{
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
    return found == NULL ? "-" : found;
}

/* One line, cut at the width; control characters, which could drive the terminal, become '?'. */
static void line(canvas *c, const sh_buf *words)
{
    int at = 0;
    if (c->rows_left == 0) return;
    c->rows_left--;
    for (size_t i = 0; i < words->len && at < c->columns; at++) {
        uint32_t code;
        int len = sh_utf8_decode(words->ptr + i, words->len - i, &code);
        if (len == 0 || code < 32 || (code >= 127 && code < 160))
            sh_buf_add_char(c->out, '?');
        else
            sh_buf_add(c->out, words->ptr + i, (size_t)len);
        i += (size_t)(len == 0 ? 1 : len);
    }
    sh_buf_add_char(c->out, '\n');
}

/* The values are the server's: part may exceed whole, which just fills the bar. */
static void bar(sh_buf *out, double part, double whole)
{
    double share = whole > 0 ? part / whole : 0;
    int full = share >= 1 ? BAR_LEN : share > 0 ? (int)(share * BAR_LEN + 0.5) : 0;
    sh_buf_add_char(out, '[');
    for (int i = 0; i < BAR_LEN; i++) sh_buf_add_char(out, i < full ? '#' : '.');
    sh_buf_add_char(out, ']');
}

static void draw_head(canvas *c, const cJSON *snapshot)
{
    sh_buf b = {0};
    double uptime = number(snapshot, "uptime_s");
    long long up = uptime >= 0 && uptime < 1e12 ? (long long)uptime : 0;
    sh_buf_addf(&b, "%s   %s   up %lld:%02lld:%02lld", text(snapshot, "model"),
                text(snapshot, "status"), up / 3600, up / 60 % 60, up % 60);
    line(c, &b);
    sh_buf_clear(&b);
    sh_buf_addf(&b,
                "%.1f tok/s (peak %.1f)   latency %.2f s   %.0f requests, %.0f tokens, %.0f errors",
                number(snapshot, "avg_tps_60s"), number(snapshot, "peak_tps_60s"),
                number(snapshot, "avg_latency_60s"), number(snapshot, "total_requests"),
                number(snapshot, "total_tokens"), number(snapshot, "error_count"));
    line(c, &b);
    sh_buf_clear(&b);
    sh_buf_add_text(&b, "queue ");
    bar(&b, number(snapshot, "queue_size"), number(snapshot, "queue_max"));
    sh_buf_addf(&b, " %.0f of %.0f waiting, %.0f running", number(snapshot, "queue_size"),
                number(snapshot, "queue_max"), number(snapshot, "requests_running"));
    if (number(snapshot, "requests_held") > 0)
        sh_buf_addf(&b, ", %.0f held", number(snapshot, "requests_held"));
    line(c, &b);
    sh_buf_reset(&b);
}

/* Used memory is that of the whole host, since other programs count too. The last column is the
 * share of time spent in collectives: what is lost to the network and to waiting for others. */
static void draw_rank(canvas *c, const cJSON *rank)
{
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(rank, "memory");
    double total = number(memory, "total"), used = total - number(memory, "available");
    double compute = number(rank, "compute_s"), wire = number(rank, "collective_s");
    sh_buf b = {0};
    sh_buf_addf(&b, "%4.0f  %-12.12s ", number(rank, "rank"), text(rank, "host"));
    bar(&b, used, total);
    sh_buf_addf(&b, " %5.1f %6.1f %8.2f %6.2f %5.0f %%", used / GIB, total / GIB,
                number(memory, "weights") / GIB, number(memory, "kv") / GIB,
                compute + wire > 0 ? 100 * wire / (compute + wire) : 0);
    line(c, &b);
    sh_buf_reset(&b);
}

/* The engine is absent from a snapshot until it has answered the API for the first time. */
static void draw_ranks(canvas *c, const cJSON *snapshot)
{
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(snapshot, "engine"), *rank;
    const cJSON *kv = cJSON_GetObjectItemCaseSensitive(engine, "kv");
    sh_buf b = {0};
    line(c, &b);
    if (!cJSON_IsObject(engine)) {
        sh_buf_add_text(&b, "the engine has not answered yet");
        line(c, &b);
    }
    sh_buf_clear(&b);
    sh_buf_add_text(
        &b, "rank  host         GiB of the host:         used  total  weights     KV    wire");
    if (cJSON_IsObject(engine)) line(c, &b);
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(engine, "ranks"))
    {
        draw_rank(c, rank);
    }
    const cJSON *imbalance = cJSON_GetObjectItemCaseSensitive(engine, "imbalance");
    if (cJSON_IsObject(imbalance)) {
        sh_buf_clear(&b);
        sh_buf_addf(&b, "imbalance %.2f, rank %.0f is slowest", number(imbalance, "ratio"),
                    number(imbalance, "rank"));
        line(c, &b);
    }
    if (cJSON_IsObject(kv)) {
        double blocks = number(kv, "blocks"), unused = number(kv, "free");
        sh_buf_clear(&b);
        sh_buf_add_text(&b, "KV    ");
        bar(&b, blocks - unused, blocks);
        sh_buf_addf(&b, " %.0f of %.0f blocks in use, %.0f kept for reuse", blocks - unused, blocks,
                    number(kv, "cached"));
        line(c, &b);
    }
    sh_buf_reset(&b);
}

/* Of a server with several, those that are not simply absent. */
static void draw_models(canvas *c, const cJSON *snapshot)
{
    const cJSON *models = cJSON_GetObjectItemCaseSensitive(snapshot, "models"), *model;
    sh_buf b = {0};
    int absent = 0;
    if (cJSON_GetArraySize(models) < 2) return;
    line(c, &b);
    cJSON_ArrayForEach(model, models)
    {
        const char *state = text(model, "state");
        if (strcmp(state, "not loaded") == 0) {
            absent++;
            continue;
        }
        sh_buf_clear(&b);
        sh_buf_addf(&b, "model %-24s %-10s %7.2f GiB  %.0f running", text(model, "name"), state,
                    number(model, "memory") / GIB, number(model, "running"));
        line(c, &b);
    }
    sh_buf_clear(&b);
    if (absent > 0) sh_buf_addf(&b, "models that are not loaded: %d", absent);
    if (absent > 0) line(c, &b);
    sh_buf_reset(&b);
}

/* At most REQUESTS_MAX, however many the server sends. */
static void draw_requests(canvas *c, const cJSON *recent)
{
    const cJSON *item;
    int shown = 0;
    sh_buf b = {0};
    line(c, &b);
    sh_buf_add_text(&b, "last requests    prompt  answer    tok/s  seconds  status");
    line(c, &b);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(recent, "requests"))
    {
        if (shown++ == REQUESTS_MAX) break;
        sh_buf_clear(&b);
        sh_buf_addf(&b, "%-16.16s %6.0f  %6.0f %8.1f %8.2f  %s", text(item, "kind"),
                    number(item, "prompt_tokens"), number(item, "generated_tokens"),
                    number(item, "tokens_per_second"), number(item, "wall_time_s"),
                    text(item, "status"));
        line(c, &b);
    }
    sh_buf_reset(&b);
}

void sh_monitor_view_draw(const cJSON *snapshot, const cJSON *recent, int columns, int rows,
                          sh_buf *out)
{
    canvas c = {.out = out, .columns = columns, .rows_left = rows > 0 ? rows : -1};
    draw_head(&c, snapshot);
    draw_models(&c, snapshot);
    draw_ranks(&c, snapshot);
    if (recent != NULL) draw_requests(&c, recent);
}
