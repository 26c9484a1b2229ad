/* Tokens per second with and without a draft model, for models that agree in a known share of their
 * tokens (tests/table_model.h): a draft model that is right that often, one that is always wrong,
 * and none.
 *
 *   bench_drafts DIR [SHAPE DRAFT-SHAPE [BITS [TOKENS]]]
 *
 * DIR keeps the models for the next run. All run at the same time, and take turns, since the speed
 * of most machines varies over minutes. "None" runs twice: how far it differs from itself is how
 * far the other figures can be trusted. */
#include "base/log.h"
#include "engine/engine.h"
#include "model/shapes.h"

#include "table_model.h"

#include <stdatomic.h>
#include <stdio.h>

enum { CHUNK = 512, PROMPT = 32, ROUNDS = 4, CONTEXT = 4096, VARIANTS = 5 };

/* A model with its draft model, or without. */
typedef struct {
    const char *name, *draft;
    double temperature;
    sh_engine *engine;
    atomic_int done; /* answers */
    atomic_bool told;
    double decode_s;
    int tokens;
    int64_t sum; /* of token ids: the answers must be the same */
    sh_buf stats;
} variant;

/* Runs on the engine's thread. */
static void sink(void *ctx, uint64_t owner, const sh_event *e)
{
    variant *v = ctx;
    (void)owner;
    if (e->kind == SH_EVENT_TOKEN) v->sum += e->token;
    if (e->kind == SH_EVENT_STATS) {
        sh_buf_add_str(&v->stats, e->stats);
        sh_buf_add_char(&v->stats, '\0');
        atomic_store(&v->told, true);
    }
    if (e->kind == SH_EVENT_ERROR) {
        fprintf(stderr, "bench_drafts: %s\n", e->error.text);
        exit(1);
    }
    if (e->kind != SH_EVENT_DONE) return;
    v->decode_s += e->decode_s;
    v->tokens += e->drawn_tokens - 1;
    atomic_fetch_add(&v->done, 1);
}

static void fail(const sh_err *err)
{
    fprintf(stderr, "bench_drafts: %s\n", err->text);
    exit(1);
}

static void ask(const variant *v, int number, int tokens)
{
    sh_err err;
    sh_buf bytes = {0};
    sh_submit_message request;
    sh_engine_msg_frame frame;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = 1000 * number + 7 * i;
    sh_sequence_spec q = {.id = (uint64_t)number,
                          .prompt = prompt,
                          .prompt_count = PROMPT,
                          .max_tokens = tokens,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = v->temperature;
    q.sampling.seed = (uint64_t)number;
    sh_engine_msg_put_submit(&bytes, &q);
    if (sh_engine_msg_next(&bytes, &frame, &err) != SH_OK ||
        sh_engine_msg_get_submit(frame.payload, &request, &err) != SH_OK)
        fail(&err);
    if (sh_engine_submit(v->engine, 1, &request) != SH_OK) exit(1);
    sh_buf_reset(&bytes);
}

static void start(variant *v, const char *model)
{
    sh_err err;
    sh_engine_opts opts = {.model_group = {.model_dir = model,
                                           .context = CONTEXT,
                                           .slots = 8,
                                           .chunk = CHUNK,
                                           .kv_tokens = 8 * 1024},
                           .queue_max = 100,
                           .stall_s = 0.25,
                           .drafts = 4,
                           .draft_model = v->draft};
    if (sh_engine_open(&opts, &v->engine, &err) != SH_OK ||
        sh_engine_start(v->engine, sink, v, &err) != SH_OK)
        fail(&err);
}

/* Has `at_once` answers made at the same time. Returns tokens per second. */
static double one_round(variant *v, int round, int at_once, int tokens)
{
    double before_s = v->decode_s;
    int before = v->tokens;
    for (int i = 0; i < at_once; i++) ask(v, round * at_once + i, tokens);
    while (atomic_load(&v->done) < (round + 1) * at_once) sh_sleep_ms(5);
    return (v->tokens - before) / (v->decode_s - before_s) * at_once;
}

/* A number of the stats. */
static double stat_of(const variant *v, const char *name)
{
    const char *at = strstr(v->stats.ptr, name);
    return at == NULL ? -1 : strtod(at + strlen(name), NULL);
}

static void stop(variant *v)
{
    sh_engine_ask_stats(v->engine, 1);
    while (!atomic_load(&v->told)) sh_sleep_ms(5);
    sh_engine_stop(v->engine, 0);
    sh_engine_close(v->engine);
}

/* False if the answers differ. */
static bool compare(const char *model, const char *agrees, const char *wrong, int at_once,
                    int tokens)
{
    variant variants[VARIANTS] = {{.name = "no draft model"},
                                  {.name = "no draft model, again"},
                                  {.name = "70 % right", .draft = agrees},
                                  {.name = "70 % right, sampled", .draft = agrees, 1},
                                  {.name = "always wrong", .draft = wrong}};
    double rates[VARIANTS][ROUNDS];
    bool same = true;
    for (int i = 0; i < VARIANTS; i++) start(&variants[i], model);
    for (int round = 0; round < ROUNDS; round++)
        for (int turn = 0; turn < VARIANTS; turn++) {
            int i = (turn + round) % VARIANTS;
            rates[i][round] = one_round(&variants[i], round, at_once, tokens);
        }
    for (int i = 0; i < VARIANTS; i++) {
        variant *v = &variants[i];
        stop(v);
        double rate = v->tokens / v->decode_s * at_once,
               none = variants[0].tokens / variants[0].decode_s * at_once;
        printf("  %-22s %7.2f tok/s %5.3fx  (answer by answer:", v->name, rate, rate / none);
        for (int r = 0; r < ROUNDS; r++) printf(" %5.3f", rates[i][r] / rates[0][r]);
        printf(")  %5.0f drafts, %5.0f right, drafting %.2f of %.1f s\n",
               stat_of(v, "\"drafts_model_tried\":"), stat_of(v, "\"drafts_model_kept\":"),
               stat_of(v, "\"draft_s\":"), v->decode_s / at_once);
        same = same && v->sum == variants[0].sum;
        sh_buf_reset(&v->stats);
    }
    fflush(stdout);
    return same;
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
        printf("%s drafts for %s, %d bits, %d at once\n", small, shape, bits, at_once);
        same = compare(model, agrees, wrong, at_once, tokens) && same;
    }
    if (!same) fprintf(stderr, "bench_drafts: answers differ\n");
    free(model);
    free(agrees);
    free(wrong);
    return !same;
}
