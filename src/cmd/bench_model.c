/* shoal bench --model: tokens per second for a prompt and for an answer, and how close that comes
 * to what the machine can do.
 *
 * A rate alone says little about a program on an unknown machine. Decoding is bound by memory: each
 * token reads the weights that it needs once, so it is compared with the bandwidth that a plain
 * read of the same weights reaches. A prompt is bound by arithmetic, so it is compared with the
 * best rate of the int8 instructions. Both limits are measured in the same process.
 *
 * Each rate is the median over --rounds, with minimum and maximum beside it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/system.h"
#include "cmd/bench.h"
#include "cmd/support/step_driver.h"
#include "kernels/cpu/peak.h"
#include "kernels/profile.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };
static const double GIGA = 1e9, MIB = 1024.0 * 1024.0;

/* Tokens per second over all rounds. */
typedef struct {
    double median;
    double min;
    double max;
} speed;

typedef struct {
    const sh_settings *s;
    sh_step_driver driver;
    int32_t *ids;
    int prompt;
    int generate;
    sh_profile *profile;
    speed prefill;
    speed decode;
    double read_gbps;  /* best memory bandwidth seen */
    double read_share; /* how much of the bandwidth decoding reaches, 0 to 1 */
    double int8_gops;
    double peak_memory; /* bytes */
    double own_share;   /* share of generation outside forward passes and collectives */
} bench;

static sh_model *model_of(const bench *b)
{
    return sh_model_group_model(b->driver.model_group);
}

static sh_device *device_of(const bench *b)
{
    return sh_model_device(model_of(b));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median is the mean of the middle two values if the count is even. Sorts in place. */
static speed speed_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    double middle = (values[count / 2] + values[(count - 1) / 2]) / 2;
    return (speed){.median = middle, .min = values[0], .max = values[count - 1]};
}

/* The prompt in chunks; logits for its last token only. */
static sh_status run_prompt(bench *b, sh_err *err)
{
    sh_status status = SH_OK;
    for (int pos = 0; pos < b->prompt && status == SH_OK; pos += CHUNK) {
        int left = b->prompt - pos, now = left < CHUNK ? left : CHUNK;
        status = sh_step_driver_run(&b->driver, b->ids, pos, now, b->prompt, now == left, NULL,
                                    err);
    }
    return status;
}

/* One token at a time, starting with an empty context. */
static sh_status run_generate(bench *b, sh_err *err)
{
    sh_status status = SH_OK;
    for (int pos = 0; pos < b->generate && status == SH_OK; pos++)
        status = sh_step_driver_run(&b->driver, b->ids, pos, 1, b->generate, 1, NULL, err);
    return status;
}

/* Bytes of weights that one token reads. */
static double token_bytes(const bench *b)
{
    sh_model_cost cost = sh_model_cost_of(model_of(b));
    return cost.bytes + cost.head_bytes;
}

/* Measures the memory bandwidth by reading the weights. */
static double read_now(bench *b)
{
    sh_peak_block *blocks = NULL, block;
    int count = 0;
    for (; (block.data = sh_model_weights(model_of(b), count, &block.size)) != NULL; count++) {
        blocks = sh_realloc_array(blocks, (size_t)count + 1, sizeof(*blocks));
        blocks[count] = block;
    }
    double gbps = sh_peak_read_gbps(device_of(b), blocks, count);
    free(blocks);
    if (gbps > b->read_gbps) b->read_gbps = gbps;
    return gbps;
}

/* Seconds of one round; negative when it failed. */
static double time_round(bench *b, sh_status (*run)(bench *, sh_err *), sh_err *err)
{
    int64_t start = sh_clock_ns();
    if (run(b, err) != SH_OK) return -1;
    return (double)(sh_clock_ns() - start) * 1e-9;
}

static sh_status time_prompts(bench *b, double *values, sh_err *err)
{
    for (int i = 0; i < b->s->rounds; i++) {
        double seconds = time_round(b, run_prompt, err);
        if (seconds < 0) return err->status;
        values[i] = b->prompt / seconds;
    }
    b->prefill = speed_of(values, (int)b->s->rounds);
    return SH_OK;
}

/* The memory bandwidth of a virtual machine doubles and halves from one second to the next, so each
 * round is compared with the better of two measurements, one right before it and one right after.
 */
static sh_status time_answers(bench *b, double *values, double *shares, sh_err *err)
{
    double before = read_now(b);
    for (int i = 0; i < b->s->rounds; i++) {
        double seconds = time_round(b, run_generate, err);
        if (seconds < 0) return err->status;
        double after = read_now(b), best = after > before ? after : before;
        values[i] = b->generate / seconds;
        shares[i] = token_bytes(b) * values[i] / GIGA / best;
        before = after;
    }
    b->decode = speed_of(values, (int)b->s->rounds);
    b->read_share = speed_of(shares, (int)b->s->rounds).median;
    return SH_OK;
}

/* Seconds spent in steps, and the part of them that is neither computation nor communication. */
static void step_times(const bench *b, double *all, double *own)
{
    sh_model_group_times t = sh_model_group_times_of(b->driver.model_group);
    *all = t.step_s;
    *own = t.step_s - t.compute_s;
    for (int i = 0; i < SH_TRAFFICS; i++) *own -= t.traffic[i].seconds;
}

static sh_status time_rounds(bench *b, sh_err *err)
{
    size_t rounds = (size_t)b->s->rounds;
    double *values = sh_alloc_array(2 * rounds, sizeof(*values));
    sh_status status = SH_OK;
    double all[2], own[2];
    if (b->prompt > 0) status = time_prompts(b, values, err);
    step_times(b, &all[0], &own[0]);
    if (status == SH_OK && b->generate > 0) status = time_answers(b, values, values + rounds, err);
    step_times(b, &all[1], &own[1]);
    b->own_share = b->generate > 0 ? (own[1] - own[0]) / (all[1] - all[0]) : 0;
    free(values);
    return status;
}

static void print_profile(const bench *b, const char *what)
{
    size_t count = 0;
    const sh_profile_row *rows = sh_profile_rows(b->profile, &count);
    int64_t total = 0;
    for (size_t i = 0; i < count; i++) total += rows[i].ns;
    fprintf(stderr, "%-16s %10s %10s %7s %10s\n", what, "calls", "ms", "share", "GB/s");
    for (size_t i = 0; i < count; i++) {
        const sh_profile_row *r = &rows[i];
        if (r->calls == 0) continue;
        fprintf(stderr, "  %-14s %10lld %10.2f %6.1f%% ", r->op, (long long)r->calls,
                (double)r->ns * 1e-6, 100.0 * (double)r->ns / (double)total);
        if (r->bytes > 0)
            fprintf(stderr, "%10.2f\n", (double)r->bytes / (double)r->ns);
        else
            fprintf(stderr, "%10s\n", "");
    }
}

/* An untimed round first, to warm caches, page tables and CPU clocks; with --profile it is the one
 * whose operations are printed, so that profiling does not slow the timed rounds. */
static sh_status measure(bench *b, sh_err *err)
{
    sh_status status = SH_OK;
    if (b->s->profile) b->profile = sh_profile_start(device_of(b));
    if (b->prompt > 0) status = run_prompt(b, err);
    if (status == SH_OK && b->profile != NULL) print_profile(b, "prompt");
    if (b->profile != NULL) sh_profile_clear(b->profile);
    if (status == SH_OK && b->generate > 0) status = run_generate(b, err);
    if (status == SH_OK && b->profile != NULL) print_profile(b, "generate");
    sh_profile_stop(b->profile);
    b->profile = NULL;

    return status == SH_OK ? time_rounds(b, err) : status;
}

static int threads_of(const sh_settings *s)
{
    return s->threads > 0 ? (int)s->threads : sh_cpu_count();
}

/* The head computes logits for the last token of the prompt only. */
static double prompt_gops(const bench *b)
{
    sh_model_cost cost = sh_model_cost_of(model_of(b));
    double all = cost.operations * b->prompt + cost.head_operations;
    return b->prompt > 0 ? all / b->prompt * b->prefill.median / GIGA : 0;
}

static void print_text(const bench *b)
{
    sh_model_memory memory = sh_model_memory_used(model_of(b));
    double gbps = token_bytes(b) * b->decode.median / GIGA, gops = prompt_gops(b);
    printf("model      %s, %.2f GiB of weights\n", sh_model_config(model_of(b))->family->model_type,
           (double)memory.weights / MIB / 1024);
    printf("threads    %d\n", threads_of(b->s));
    printf("load       %.2f s, %.2f GB/s\n", b->driver.load_s,
           (double)memory.weights / GIGA / b->driver.load_s);
    if (b->prompt > 0)
        printf("prompt     %d tokens: %.2f tokens/s (%.2f to %.2f)\n", b->prompt, b->prefill.median,
               b->prefill.min, b->prefill.max);
    if (b->generate > 0)
        printf("generate   %d tokens: %.2f tokens/s (%.2f to %.2f)\n", b->generate,
               b->decode.median, b->decode.min, b->decode.max);
    if (b->generate > 0)
        printf("           %.2f %% of that outside forward passes and collectives\n",
               100 * b->own_share);
    printf("memory     %.0f MiB at most: %.0f weights, %.0f KV, %.0f buffers\n",
           b->peak_memory / MIB, (double)memory.weights / MIB, (double)memory.kv / MIB,
           (double)memory.scratch / MIB);
    if (b->generate > 0)
        printf("a token    reads %.3f GB of weights: %.2f GB/s, %.0f %% of what this machine read "
               "next to it (%.2f GB/s at best)\n",
               token_bytes(b) / GIGA, gbps, 100 * b->read_share, b->read_gbps);
    if (b->int8_gops > 0)
        printf("a prompt   computes %.1f GOP/s, %.0f %% of the %.0f GOP/s that its instructions "
               "can reach\n",
               gops, 100 * gops / b->int8_gops, b->int8_gops);
}

static void add_speed(cJSON *json, const char *name, int tokens, const speed *v)
{
    cJSON *entry = cJSON_AddObjectToObject(json, name);
    cJSON_AddNumberToObject(entry, "tokens", tokens);
    cJSON_AddNumberToObject(entry, "tokens_per_s", v->median);
    cJSON_AddNumberToObject(entry, "min", v->min);
    cJSON_AddNumberToObject(entry, "max", v->max);
}

static void print_json(const bench *b)
{
    sh_model_memory memory = sh_model_memory_used(model_of(b));
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "model", b->s->model);
    cJSON_AddStringToObject(json, "family", sh_model_config(model_of(b))->family->model_type);
    cJSON_AddNumberToObject(json, "threads", threads_of(b->s));
    cJSON_AddNumberToObject(json, "load_s", b->driver.load_s);
    add_speed(json, "prompt", b->prompt, &b->prefill);
    add_speed(json, "generate", b->generate, &b->decode);
    cJSON_AddNumberToObject(json, "generate_own_share", b->own_share);
    cJSON_AddNumberToObject(json, "peak_memory_bytes", b->peak_memory);
    cJSON_AddNumberToObject(json, "weight_bytes", (double)memory.weights);
    cJSON_AddNumberToObject(json, "kv_bytes", (double)memory.kv);
    cJSON_AddNumberToObject(json, "buffer_bytes", (double)memory.scratch);
    cJSON_AddNumberToObject(json, "bytes_per_token", token_bytes(b));
    cJSON_AddNumberToObject(json, "read_gbps", token_bytes(b) * b->decode.median / GIGA);
    cJSON_AddNumberToObject(json, "machine_read_gbps", b->read_gbps);
    cJSON_AddNumberToObject(json, "read_share", b->read_share);
    cJSON_AddNumberToObject(json, "prompt_gops", prompt_gops(b));
    cJSON_AddNumberToObject(json, "machine_int8_gops", b->int8_gops);
    char *text = cJSON_Print(json);
    printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Peak memory is read before the int8 benchmark, whose buffers must not count. */
static sh_status run_bench(bench *b, const sh_command_args *args, sh_err *err)
{
    int longest = larger(larger(b->prompt, b->generate), 1);
    sh_step_driver_limits limits = {
        .chunk = b->prompt < CHUNK ? larger(b->prompt, 1) : CHUNK, .draws = 1, .context = longest};
    sh_status status = sh_step_driver_open(args, &limits, &b->driver, err);
    if (status != SH_OK) return status;
    int vocab = sh_model_group_config(b->driver.model_group)->vocab;
    b->ids = sh_alloc_array((size_t)longest, sizeof(*b->ids));
    for (int i = 0; i < longest; i++)
        b->ids[i] = (int32_t)((unsigned)i * 2654435761U % (unsigned)vocab); /* any ids will do */
    status = measure(b, err);
    b->peak_memory = (double)sh_memory_peak();
    if (status == SH_OK) {
        b->int8_gops = sh_peak_int8_gops(device_of(b));
        if (b->s->json)
            print_json(b);
        else
            print_text(b);
    }
    free(b->ids);
    sh_step_driver_close(&b->driver);
    return status;
}

int sh_bench_model(const sh_command_args *args)
{
    bench b = {.s = args->settings,
               .prompt = (int)args->settings->bench_prompt,
               .generate = (int)args->settings->bench_generate};
    sh_err err;
    if (args->settings->model == NULL && args->settings->rank == 0) {
        fprintf(stderr, "shoal: bench needs --model\n");
        return SH_EXIT_USAGE;
    }
    if (sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    return run_bench(&b, args, &err) >= 0 ? SH_EXIT_OK : sh_command_fail(&err);
}
