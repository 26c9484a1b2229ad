/* Sends random requests to an engine, many at once, and compares every answer to that of the same
 * request sent alone.
 *   soak SOCKET_OF_THE_CROWD SOCKET_OF_THE_REFERENCE REQUESTS SEED
 * The first engine gets more requests at once than its KV memory can hold (the crowd), with
 * cancellations and connections that break; the second gets one request at a time. Where the model
 * has a tokenizer, some requests are bound to a grammar. Request i is a
 * function of the seed and i, so a failure can be reproduced from its seed. Prints a summary; the
 * exit code is 0 when all answers are equal and the memory of the ranks did not grow. */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "engine/engine_client.h"
#include "text/grammar/pack.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 160,
    PREFIXES = 24,
    PREFIX_MAX = 256,
    TAIL_MAX = 40,
    OPEN_MAX = 48,
    RANKS_MAX = 16,
    GRAIN = 5,         /* every fifth request uses the connection that breaks */
    BREAK_EVERY = 211, /* requests between two breaks */
    SILENCE_MS = 60000,
    GROWTH_KIB = 4096
};

/* A request, and when its client cancels it. */
struct ask {
    sh_sequence_spec q;
    int32_t prompt[PREFIX_MAX + TAIL_MAX];
    int32_t stops[SH_STOP_IDS_MAX];
    int32_t bias_ids[8];
    float bias[8];
    int cancel_at; /* tokens; -1: never */
};

struct token {
    int32_t id;
    float logprob;
    int top_count;
    sh_token_logprob best;
};

struct answer {
    bool done;
    bool left; /* cancelled or cut off: the tokens so far are a prefix of the full answer */
    int count;
    struct token tokens[ANSWER_MAX];
    sh_finish finish;
    int prompt_tokens, completion_tokens, cached_tokens;
};

struct soak {
    uint64_t seed;
    int count, vocab;
    struct answer *crowd;
    const char *path;
    sh_engine_client *links[2]; /* the second one breaks now and then */
    int open;
    int64_t resident[RANKS_MAX];
    int ranks;
    uint64_t paused, drafts_kept, cached, constrained;
    sh_buf grammars[3]; /* packed; empty: the model has no tokenizer */
    bool stats_received;
};

static _Noreturn void die(const char *what, int request, const char *why)
{
    fprintf(stderr, "soak: %s (request %d): %s\n", what, request, why);
    exit(1);
}

/* A stream of random numbers for each request. */
struct dice {
    uint64_t state;
};

static uint64_t roll(struct dice *d, uint64_t below)
{
    return sh_mix64(d->state += 0x9e3779b97f4a7c15) % below;
}

static double between(struct dice *d, double low, double high)
{
    return low + (high - low) * (double)roll(d, 1001) / 1000;
}

static bool chance(struct dice *d, int percent)
{
    return roll(d, 100) < (uint64_t)percent;
}

/* A prefix of one of a few long texts, for the prefix cache, then something of its own; some of it
 * repeats itself, which is where drafts work. */
static void prompt_make(const struct soak *s, struct dice *d, struct ask *a)
{
    uint64_t which = roll(d, PREFIXES);
    struct dice text = {s->seed ^ sh_mix64(which + 77)};
    int head = chance(d, 50) ? 0 : (int)roll(d, PREFIX_MAX), tail = 1 + (int)roll(d, TAIL_MAX);
    int period = which % 3 == 0 ? 7 : PREFIX_MAX, n = 0;
    for (; n < head; n++)
        a->prompt[n] = n < period ? (int32_t)roll(&text, (uint64_t)s->vocab)
                                  : a->prompt[n - period];
    for (int i = 0; i < tail; i++, n++)
        a->prompt[n] = i > 6 && chance(d, 80) ? a->prompt[n - 5]
                                              : (int32_t)roll(d, (uint64_t)s->vocab);
    a->q.prompt = a->prompt;
    a->q.prompt_count = (size_t)n;
}

static void sampling_make(const struct soak *s, struct dice *d, struct ask *a)
{
    sh_sampling *p = &a->q.sampling;
    *p = sh_sampling_default();
    p->seed = roll(d, 1 << 20);
    if (chance(d, 60)) p->temperature = between(d, 0.3, 1.8);
    if (chance(d, 25)) p->top_k = 1 + (int)roll(d, 400);
    if (chance(d, 25)) p->top_p = between(d, 0.1, 0.999);
    if (chance(d, 15)) p->min_p = between(d, 0.001, 0.3);
    if (chance(d, 20)) p->repetition_penalty = between(d, 1, 1.5);
    if (chance(d, 20)) p->repetition_window = 1 + (int)roll(d, 400);
    if (chance(d, 15)) p->presence_penalty = between(d, -1, 2);
    if (chance(d, 15)) p->frequency_penalty = between(d, -1, 1);
    if (!chance(d, 15)) return;
    p->logit_bias_count = 1 + (int)roll(d, SH_COUNT_OF(a->bias));
    for (int i = 0; i < p->logit_bias_count; i++) {
        a->bias_ids[i] = (int32_t)roll(d, (uint64_t)s->vocab);
        a->bias[i] = (float)between(d, -5, 8);
    }
    p->logit_bias_ids = a->bias_ids;
    p->logit_bias = a->bias;
}

static void ask_make(const struct soak *s, int i, struct ask *a)
{
    struct dice d = {sh_mix64(s->seed) ^ sh_mix64((uint64_t)i + 1)};
    memset(a, 0, sizeof(*a));
    a->q.id = (uint64_t)i + 1;
    a->q.client = roll(&d, 4);
    prompt_make(s, &d, a);
    sampling_make(s, &d, a);
    a->q.max_tokens = 1 + (int)roll(&d, chance(&d, 40) ? ANSWER_MAX - 1 : 40);
    a->q.min_tokens = chance(&d, 20) ? (int)roll(&d, 20) : 0;
    a->q.logprobs = chance(&d, 40) ? (int)roll(&d, 6) : -1;
    if (chance(&d, 40)) a->q.stop_id_count = 1 + (int)roll(&d, SH_STOP_IDS_MAX);
    for (int k = 0; k < a->q.stop_id_count; k++)
        a->stops[k] = (int32_t)roll(&d, (uint64_t)s->vocab);
    a->q.stop_ids = a->stops;
    a->cancel_at = chance(&d, 10) ? (int)roll(&d, 20) : -1;
    if (!chance(&d, 25)) return;
    a->q.grammar = sh_buf_str(&s->grammars[roll(&d, SH_COUNT_OF(s->grammars))]);
    if (a->q.grammar.len == 0) return;
    a->stops[0] = s->vocab - 1; /* one that none of them needs as text */
    a->q.stop_id_count = 1;
}

static void token_take(struct answer *a, const sh_event *e)
{
    if (a->count == ANSWER_MAX) die("more tokens than requested", (int)e->id - 1, "");
    struct token *t = &a->tokens[a->count++];
    *t = (struct token){.id = e->token, .logprob = e->logprob, .top_count = e->top_count};
    if (e->top_count > 0) t->best = e->top[e->top_count - 1];
}

static void done_take(struct answer *a, const sh_event *e)
{
    a->done = true;
    a->finish = e->finish;
    a->prompt_tokens = e->prompt_tokens;
    a->completion_tokens = e->completion_tokens;
    a->cached_tokens = e->cached_tokens;
    if (e->finish == SH_FINISH_CANCEL) a->left = true;
}

static double stat_of(const cJSON *json, const char *group, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(cJSON_GetObjectItem(json, group), name);
    return item == NULL ? 0 : item->valuedouble;
}

static void stats_take(struct soak *s, sh_str text)
{
    cJSON *json = cJSON_ParseWithLength(text.ptr, text.len);
    const cJSON *rank;
    s->ranks = 0;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItem(json, "ranks"))
    {
        if (s->ranks < RANKS_MAX)
            s->resident[s->ranks++] = (int64_t)stat_of(rank, "memory", "resident") / 1024;
    }
    s->paused = (uint64_t)stat_of(json, "counts", "paused");
    s->drafts_kept = (uint64_t)stat_of(json, "counts", "drafts_kept");
    s->constrained = (uint64_t)stat_of(json, "counts", "constrained");
    s->cached = (uint64_t)stat_of(json, "counts", "cached_tokens");
    s->stats_received = true;
    cJSON_Delete(json);
}

static void event_take(struct soak *s, sh_engine_client *link, const sh_event *e,
                       struct answer *answers)
{
    if (e->kind == SH_EVENT_STATS) {
        stats_take(s, e->stats);
        return;
    }
    int i = (int)e->id - 1;
    struct answer *a = &answers[i];
    if (a->done) die("event after the end", i, "");
    if (e->kind == SH_EVENT_PROGRESS) return;
    if (e->kind == SH_EVENT_ERROR) die("error", i, e->error.text);
    if (e->kind == SH_EVENT_DONE) {
        done_take(a, e);
        s->open--;
        return;
    }
    token_take(a, e);
    struct ask ask;
    ask_make(s, i, &ask);
    if (answers == s->crowd && a->count == ask.cancel_at) sh_engine_client_cancel(link, e->id);
}

/* Waits for events on any connection, and handles them. */
static void events_wait(struct soak *s, sh_engine_client **links, int count, struct answer *answers)
{
    struct pollfd polls[2];
    sh_event e;
    sh_err err;
    for (int i = 0; i < count; i++)
        polls[i] = (struct pollfd){
            .fd = sh_engine_client_fd(links[i]),
            .events = (short)(POLLIN | (sh_engine_client_wants_write(links[i]) ? POLLOUT : 0))};
    if (poll(polls, (nfds_t)count, SILENCE_MS) == 0) die("no events for a minute", -1, "");
    for (int i = 0; i < count; i++) {
        if (sh_engine_client_progress(links[i], &err) != SH_OK) die("progress", -1, err.text);
        while (sh_engine_client_next(links[i], &e) == SH_OK) event_take(s, links[i], &e, answers);
    }
}

static sh_engine_client *connect_to(const char *path)
{
    sh_engine_client *link;
    sh_err err;
    sh_deadline end = sh_deadline_in_ms(SILENCE_MS); /* it may still be loading */
    while (sh_engine_client_open(path, end, NULL, &link, &err) != SH_OK) {
        if (sh_deadline_passed(end)) die("connecting", -1, err.text);
        sh_sleep_ms(50);
    }
    return link;
}

static void submit(struct soak *s, sh_engine_client *link, int i, bool crowd)
{
    struct ask ask;
    sh_err err;
    ask_make(s, i, &ask);
    if (sh_engine_client_submit(link, &ask.q, &err) != SH_OK) die("submitting", i, err.text);
    if (crowd && ask.cancel_at == 0) sh_engine_client_cancel(link, ask.q.id);
    s->open++;
}

/* Closes the second connection with all its requests, and opens a new one. */
static void link_break(struct soak *s, int next)
{
    sh_engine_client_close(s->links[1]);
    for (int i = 0; i < next; i += GRAIN)
        if (!s->crowd[i].done) {
            s->crowd[i].done = s->crowd[i].left = true;
            s->open--;
        }
    s->links[1] = connect_to(s->path);
}

static void stats_ask(struct soak *s)
{
    s->stats_received = false;
    sh_engine_client_ask_stats(s->links[0]);
    while (!s->stats_received) events_wait(s, s->links, 2, s->crowd);
}

static void crowd_run(struct soak *s, int first, int end)
{
    for (int i = first; i < end; i++) {
        while (s->open >= OPEN_MAX) events_wait(s, s->links, 2, s->crowd);
        if (i % BREAK_EVERY == BREAK_EVERY - 1) link_break(s, i);
        submit(s, s->links[i % GRAIN == 0], i, true);
    }
    while (s->open > 0) events_wait(s, s->links, 2, s->crowd);
    stats_ask(s);
}

static bool token_same(const struct token *a, const struct token *b)
{
    return a->id == b->id && a->logprob == b->logprob && a->top_count == b->top_count &&
           a->best.id == b->best.id && a->best.logprob == b->best.logprob;
}

static void compare(const struct answer *crowd, const struct answer *alone, int i)
{
    char text[160];
    for (int t = 0; t < crowd->count && t < alone->count; t++)
        if (!token_same(&crowd->tokens[t], &alone->tokens[t])) {
            snprintf(text, sizeof(text), "token %d is %d (%.9g) in the crowd, %d (%.9g) alone", t,
                     crowd->tokens[t].id, (double)crowd->tokens[t].logprob, alone->tokens[t].id,
                     (double)alone->tokens[t].logprob);
            die("answers differ", i, text);
        }
    bool whole = !crowd->left;
    snprintf(text, sizeof(text), "%d tokens and end %d in the crowd, %d and %d alone", crowd->count,
             (int)crowd->finish, alone->count, (int)alone->finish);
    if (crowd->count > alone->count || (whole && crowd->count != alone->count) ||
        (whole && (crowd->finish != alone->finish || crowd->prompt_tokens != alone->prompt_tokens ||
                   crowd->completion_tokens != alone->completion_tokens)))
        die("answers end differently", i, text);
}

/* The reference: one request after the other, each compared to its answer in the crowd. */
static void alone_run(struct soak *s, const char *path)
{
    sh_engine_client *link = connect_to(path);
    struct answer *alone = sh_alloc_array((size_t)s->count, sizeof(*alone));
    for (int i = 0; i < s->count; i++) {
        submit(s, link, i, false);
        while (!alone[i].done) events_wait(s, &link, 1, alone);
        compare(&s->crowd[i], &alone[i], i);
    }
    free(alone);
    sh_engine_client_close(link);
}

static int growth_check(const struct soak *s, const int64_t *before)
{
    int bad = 0;
    for (int r = 0; r < s->ranks; r++) {
        printf("rank %d: %lld KiB resident, %+lld KiB in the second half\n", r,
               (long long)s->resident[r], (long long)(s->resident[r] - before[r]));
        if (before[r] > 0 && s->resident[r] - before[r] > GROWTH_KIB) bad = 1;
    }
    if (bad) fprintf(stderr, "soak: the memory of a rank is growing\n");
    return bad;
}

/* Any object, text with forced runs, and something that nests. */
static void grammars_make(struct soak *s)
{
    char *path = sh_asprintf("%s/tokenizer.json", sh_engine_client_info(s->links[0])->model_dir);
    bool usable = access(path, R_OK) == 0;
    free(path);
    sh_grammar_builder *b = sh_grammar_builder_create();
    const sh_expr roots[] = {
        sh_expr_json_object(b, (sh_json_form){.spaces = true}),
        sh_expr_regex(
            b, SH_STR("\\{\"first name\": \"[a-z ]{1,30}\", \"numbers\": \\[[0-9, ]*\\]\\}")),
        sh_expr_gbnf(b, SH_STR("root ::= [a-z]+ | \"(\" root (\" and \" root)* \")\"")),
    };
    for (size_t i = 0; usable && i < SH_COUNT_OF(roots); i++) {
        sh_grammar *g;
        sh_err err;
        if (sh_grammar_compile(b, roots[i], &g, &err) != SH_OK) die("grammar", (int)i, err.text);
        sh_grammar_pack(g, &s->grammars[i]);
        sh_grammar_free(g);
    }
    sh_grammar_builder_free(b);
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    struct soak s = {.path = argv[1], .count = atoi(argv[3]), .seed = strtoull(argv[4], NULL, 10)};
    int64_t half[RANKS_MAX];
    s.crowd = sh_alloc_array((size_t)s.count, sizeof(*s.crowd));
    s.links[0] = connect_to(s.path);
    s.links[1] = connect_to(s.path);
    s.vocab = sh_engine_client_info(s.links[0])->vocab;
    grammars_make(&s);
    crowd_run(&s, 0, s.count / 2);
    memcpy(half, s.resident, sizeof(half));
    crowd_run(&s, s.count / 2, s.count);
    alone_run(&s, argv[2]);

    long tokens = 0, left = 0;
    for (int i = 0; i < s.count; i++) tokens += s.crowd[i].count, left += s.crowd[i].left;
    printf("%d requests, %ld tokens, all the same as alone; %ld cancelled or cut off, %llu pauses, "
           "%llu drafts kept, %llu prompt tokens from the cache, %llu bound to a grammar\n",
           s.count, tokens, left, (unsigned long long)s.paused, (unsigned long long)s.drafts_kept,
           (unsigned long long)s.cached, (unsigned long long)s.constrained);
    for (size_t i = 0; i < SH_COUNT_OF(s.grammars); i++) sh_buf_reset(&s.grammars[i]);
    int bad = growth_check(&s, half);
    sh_engine_client_close(s.links[0]);
    sh_engine_client_close(s.links[1]);
    free(s.crowd);
    return bad;
}
