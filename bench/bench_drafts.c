/* Tokens per second of one stream, with and without a draft model, for models that agree in a known
 * share of their tokens (tests/table_model.h): a draft model that is right that often, one that is
 * always wrong, and none.
 *
 *   bench_drafts DIR [SHAPE DRAFT-SHAPE [BITS [TOKENS]]]
 *
 * DIR keeps the models for the next run. */
#include "base/log.h"
#include "engine/engine.h"
#include "model/shapes.h"

#include "table_model.h"

#include <stdatomic.h>
#include <stdio.h>

enum { CHUNK = 512, PROMPT = 32, ROUNDS = 3, CONTEXT = 4096 };

static struct {
    atomic_int done, failed;
    double decode_s;
    int tokens;
    int64_t sum; /* of token ids: the answers must be the same */
    sh_buf stats;
    atomic_int told;
} got;

/* Runs on the engine's thread. */
static void sink(void *ctx, uint64_t owner, const sh_event *e)
{
    (void)ctx;
    (void)owner;
    if (e->kind == SH_EVENT_TOKEN) got.sum += e->token;
    if (e->kind == SH_EVENT_STATS) {
        sh_buf_clear(&got.stats);
        sh_buf_add_str(&got.stats, e->stats);
        sh_buf_add_char(&got.stats, '\0');
        atomic_fetch_add(&got.told, 1);
    }
    if (e->kind == SH_EVENT_ERROR) {
        fprintf(stderr, "bench_drafts: %s\n", e->error.text);
        atomic_fetch_add(&got.failed, 1);
    }
    if (e->kind != SH_EVENT_DONE) return;
    got.decode_s += e->decode_s;
    got.tokens += e->drawn_tokens - 1;
    atomic_fetch_add(&got.done, 1);
}

static void fail(const sh_err *err)
{
    fprintf(stderr, "bench_drafts: %s\n", err->text);
    exit(1);
}

static void ask(sh_engine *engine, int round, int tokens, double temperature)
{
    sh_err err;
    sh_buf bytes = {0};
    sh_submit_message request;
    sh_engine_msg_frame frame;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = 1000 * round + 7 * i;
    sh_sequence_spec q = {.id = (uint64_t)round,
                          .prompt = prompt,
                          .prompt_count = PROMPT,
                          .max_tokens = tokens,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = temperature;
    q.sampling.seed = (uint64_t)round;
    sh_engine_msg_put_submit(&bytes, &q);
    if (sh_engine_msg_next(&bytes, &frame, &err) != SH_OK ||
        sh_engine_msg_get_submit(frame.payload, &request, &err) != SH_OK)
        fail(&err);
    if (sh_engine_submit(engine, 1, &request) != SH_OK) exit(1);
    sh_buf_reset(&bytes);
}

static long count_of(const char *name)
{
    const char *at = strstr(got.stats.ptr, name);
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* Opens an engine and runs ROUNDS streams, `at_once` of them together. Returns tokens per second.
 */
static double measure(const char *what, const char *model, const char *draft, int tokens,
                      int at_once, double temperature, int64_t *sum)
{
    sh_err err;
    sh_engine *engine = NULL;
    sh_engine_opts opts = {.model_group = {.model_dir = model,
                                           .context = CONTEXT,
                                           .slots = 8,
                                           .chunk = CHUNK,
                                           .kv_tokens = 8 * 1024},
                           .queue_max = 100,
                           .stall_s = 0.25,
                           .drafts = 4,
                           .draft_model = draft};
    got.decode_s = got.tokens = 0;
    got.sum = 0;
    atomic_store(&got.done, 0);
    if (sh_engine_open(&opts, &engine, &err) != SH_OK ||
        sh_engine_start(engine, sink, NULL, &err) != SH_OK)
        fail(&err);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < at_once; i++) ask(engine, round * at_once + i, tokens, temperature);
        while (atomic_load(&got.done) < (round + 1) * at_once && atomic_load(&got.failed) == 0)
            sh_sleep_ms(5);
    }
    int told = atomic_load(&got.told);
    sh_engine_ask_stats(engine, 1);
    while (atomic_load(&got.told) == told) sh_sleep_ms(5);
    sh_engine_stop(engine, 0);
    sh_engine_close(engine);
    double rate = got.tokens / got.decode_s * at_once;
    long tried = count_of("\"drafts_model_tried\":"), kept = count_of("\"drafts_model_kept\":");
    printf("%-26s %7.2f tok/s  %5ld drafts, %5ld right\n", what, rate, tried, kept);
    fflush(stdout);
    *sum = got.sum;
    return rate;
}

static void make(const char *dir, const char *shape, int bits, int agree)
{
    sh_err err;
    const char *config = sh_shape_find(shape);
    if (config == NULL) {
        fprintf(stderr, "bench_drafts: there is no shape %s\n", shape);
        exit(2);
    }
    char *own = sh_asprintf("%.*s,\"tie_word_embeddings\":false}", (int)strlen(config) - 1, config);
    char *tied = strstr(own, "\"tie_word_embeddings\":true,");
    if (tied != NULL) memmove(tied, tied + 27, strlen(tied + 27) + 1);
    if (!table_model_write(dir, own, bits, agree, &err)) fail(&err);
    free(own);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_drafts DIR [SHAPE DRAFT-SHAPE [BITS [TOKENS]]]\n");
        return 2;
    }
    const char *shape = argc > 3 ? argv[2] : "qwen3-4b", *small = argc > 3 ? argv[3] : "qwen3-0.6b";
    int bits = argc > 4 ? atoi(argv[4]) : 4, tokens = argc > 5 ? atoi(argv[5]) : 192;
    char *model = sh_asprintf("%s/%s-%d", argv[1], shape, bits);
    char *agrees = sh_asprintf("%s/%s-%d-agrees", argv[1], small, bits);
    char *wrong = sh_asprintf("%s/%s-%d-wrong", argv[1], small, bits);
    sh_log_set_level(SH_LOG_WARN);
    make(model, shape, bits, 100);
    make(agrees, small, bits, 70);
    make(wrong, small, bits, 0);
    bool same = true;
    for (int at_once = 1; at_once <= 4; at_once *= 4) {
        int64_t sum, other;
        printf("%s drafts for %s, %d bits, %d at once\n", small, shape, bits, at_once);
        double none = measure("no draft model", model, NULL, tokens, at_once, 0, &sum);
        double good = measure("70 % right", model, agrees, tokens, at_once, 0, &other);
        same = same && sum == other;
        double sampled = measure("70 % right, sampled", model, agrees, tokens, at_once, 1, &other);
        same = same && sum == other;
        double bad = measure("always wrong", model, wrong, tokens, at_once, 0, &other);
        same = same && sum == other;
        printf("70 %% right: %.2fx, sampled %.2fx; always wrong: %.3fx\n", good / none,
               sampled / none, bad / none);
    }
    if (!same) fprintf(stderr, "bench_drafts: answers differ\n");
    free(model);
    free(agrees);
    free(wrong);
    sh_buf_reset(&got.stats);
    return !same;
}
