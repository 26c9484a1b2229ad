/* The link test. It answers two questions about a group: are the collectives correct on these
 * machines, and how much slower are they than the network itself?
 *
 * An absolute time means little on shared machines, where the same link may be twice as slow a
 * minute later. So each size is measured in BATCHES batches that alternate between the collective
 * and a raw TCP socket (rawlink.h), and the report compares the two medians.
 *
 * All ranks must issue the same sequence of collectives. Whatever depends on time or chance (the
 * number of rounds, the operations of the stress phase) is therefore decided by rank 0 and
 * broadcast, or drawn from a generator with the same seed on every rank. */
#include "cluster/linktest.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "cluster/rawlink.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LATENCY_MAX = 128 * 1024, /* sizes up to this are timed for latency, above for bandwidth */
    BATCHES = 9,
    ROUNDS_MAX = 4000,
    ROUNDS_ASKED_MAX = 1 << 20,
    ROUNDS_SHOWN = 20, /* of a batch, when each is timed by itself */
    LARGE_ROUNDS = 100,
    LARGE_ROUNDS_QUICK = 10,
    STRESS_NUMBERS_MAX = 200000,
};

typedef struct {
    sh_group *group;
    const sh_linktest_opts *opts;
    sh_linktest_report *report;
    const sh_linktest_hooks *hooks;
    double *round_s; /* of the current batch; NULL: rounds are not timed one by one */
    sh_rawlink raw;
    float *x;
    float *y;
} test;

void sh_linktest_opts_init(sh_linktest_opts *opts, bool quick)
{
    static const size_t latency[] = {64, 1024, 4096, 8192, 16384, 32768, 65536};
    static const size_t bandwidth[] = {256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    memset(opts, 0, sizeof(*opts));
    opts->quick = quick;
    opts->large_rounds = quick ? LARGE_ROUNDS_QUICK : LARGE_ROUNDS;
    for (size_t i = quick ? 4 : 0; i < (quick ? 5 : SH_COUNT_OF(latency)); i++)
        opts->latency[opts->latency_count++] = latency[i];
    for (size_t i = quick ? 2 : 0; i < (quick ? 3 : SH_COUNT_OF(bandwidth)); i++)
        opts->bandwidth[opts->bandwidth_count++] = bandwidth[i];
}

/* A number of bytes such as "16K"; K, M and G are powers of 1024. At least one f32, at most 8 GiB.
 */
static bool parse_size(sh_str text, size_t *out)
{
    int shift = 0;
    int64_t value;
    char last = text.len > 0 ? text.ptr[text.len - 1] : '0';
    if (last == 'K' || last == 'k') shift = 10;
    if (last == 'M' || last == 'm') shift = 20;
    if (last == 'G' || last == 'g') shift = 30;
    if (shift > 0) text.len--;
    if (!sh_str_to_int(text, &value) || value < 1 || value > (INT64_C(1) << 33 >> shift))
        return false;
    *out = (size_t)value << shift;
    return *out >= 4;
}

/* Sorts a size into short ones, which are timed for latency, and long ones. */
static sh_status add_size(sh_linktest_opts *opts, size_t size, const char *flag, sh_err *err)
{
    bool is_short = size <= LATENCY_MAX;
    int *count = is_short ? &opts->latency_count : &opts->bandwidth_count;
    if (*count == SH_LINKTEST_SIZES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d", flag, SH_LINKTEST_SIZES_MAX);
    (is_short ? opts->latency : opts->bandwidth)[(*count)++] = size / 4 * 4;
    return SH_OK;
}

sh_status sh_linktest_parse_sizes(sh_linktest_opts *opts, const char *text, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    sh_status status = SH_OK;
    opts->latency_count = opts->bandwidth_count = 0;
    while (status == SH_OK && sh_str_cut(&rest, ',', &part)) {
        size_t size;
        if (!parse_size(sh_str_trim(part), &size))
            return sh_err_set(err, SH_ERR_INPUT,
                              "--sizes: '%.*s' must be 4 to 8G bytes, such as 16K", (int)part.len,
                              part.ptr);
        status = add_size(opts, size, "--sizes", err);
    }
    return status;
}

sh_status sh_linktest_parse_counts(sh_linktest_opts *opts, const char *text, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    sh_status status = SH_OK;
    opts->latency_count = opts->bandwidth_count = 0;
    while (status == SH_OK && sh_str_cut(&rest, ',', &part)) {
        int64_t count;
        if (!sh_str_to_int(sh_str_trim(part), &count) || count < 1 || count > INT64_C(1) << 31)
            return sh_err_set(err, SH_ERR_INPUT, "--counts: '%.*s' must be 1 to 2147483648 numbers",
                              (int)part.len, part.ptr);
        status = add_size(opts, (size_t)count * 4, "--counts", err);
    }
    return status;
}

double sh_linktest_rate(const sh_linktest_row *row, int ranks)
{
    return 2.0 * (ranks - 1) / ranks * (double)row->bytes / row->seconds;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

static sh_status wrong(test *t, const char *what, size_t at, double got, double want, sh_err *err)
{
    sh_err_set(err, SH_ERR_GROUP, "rank %d: %s is wrong at %zu: %g, not %g",
               sh_group_rank(t->group), what, at, got, want);
    return err->status;
}

/* Each rank contributes rank + 1. bf16 represents such sums exactly and int8 nearly, but 1 % is
 * allowed to both. The comparison is written so that NaN fails. */
static sh_status check_sum(test *t, size_t rows, size_t cols, sh_codec codec, sh_err *err)
{
    int size = sh_group_size(t->group);
    size_t count = rows * cols;
    double want = size * (size + 1) / 2.0;
    for (size_t i = 0; i < count; i++) t->x[i] = (float)(sh_group_rank(t->group) + 1);
    sh_status status = sh_coll_allreduce(t->group, t->x, rows, cols, codec, err);
    if (status != SH_OK) return status;
    double slack = codec == SH_CODEC_F32 ? 0 : want * 0.01;
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)t->x[i] - want) <= slack))
            return wrong(t, "all-reduce", i, (double)t->x[i], want, err);
    return SH_OK;
}

static sh_status check_gather(test *t, size_t len, sh_err *err)
{
    size_t lens[SH_RANKS_MAX];
    int size = sh_group_size(t->group);
    uint8_t *all = (uint8_t *)t->x;
    for (int r = 0; r < size; r++) lens[r] = len;
    memset(t->y, sh_group_rank(t->group) + 1, len);
    sh_status status = sh_coll_allgather(t->group, t->y, lens, all, err);
    for (size_t i = 0; i < len * (size_t)size && status == SH_OK; i++)
        if (all[i] != i / len + 1)
            return wrong(t, "all-gather", i, all[i], (double)(i / len + 1), err);
    return status;
}

static sh_status check_broadcast(test *t, int root, size_t len, sh_err *err)
{
    uint8_t *data = (uint8_t *)t->x;
    memset(data, sh_group_rank(t->group) == root ? 7 + root : 0, len);
    sh_status status = sh_coll_broadcast(t->group, root, data, len, err);
    for (size_t i = 0; i < len && status == SH_OK; i++)
        if (data[i] != 7 + root) return wrong(t, "broadcast", i, data[i], 7 + root, err);
    return status;
}

/* Once around the ring; each rank adds one to every byte. */
static sh_status check_ring(test *t, size_t len, sh_err *err)
{
    int size = sh_group_size(t->group);
    int rank = sh_group_rank(t->group);
    uint8_t *data = (uint8_t *)t->x;
    memset(data, 0, len);
    sh_status status = rank > 0 ? sh_coll_recv(t->group, rank - 1, data, len, err) : SH_OK;
    for (size_t i = 0; i < len; i++) data[i]++;
    if (status == SH_OK) status = sh_coll_send(t->group, (rank + 1) % size, data, len, err);
    if (status == SH_OK && rank == 0) status = sh_coll_recv(t->group, size - 1, data, len, err);
    for (size_t i = 0; i < len && status == SH_OK; i++)
        if (data[i] != (rank == 0 ? size : rank + 1))
            return wrong(t, "send and recv", i, data[i], size, err);
    return status;
}

/* Odd counts, and a power of two with its successor. A quick run leaves the largest one out. */
static sh_status run_correctness(test *t, sh_err *err)
{
    static const size_t counts[] = {1, 31, 4096, 4097, 100003, 700001};
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT_OF(counts) - t->opts->quick && status == SH_OK; i++) {
        for (int codec = SH_CODEC_F32; codec <= SH_CODEC_INT8 && status == SH_OK; codec++)
            status = check_sum(t, 1, counts[i], (sh_codec)codec, err);
        if (status == SH_OK) status = check_gather(t, counts[i] / 8 + 1, err);
        for (int root = 0; root < sh_group_size(t->group) && status == SH_OK; root++)
            status = check_broadcast(t, root, counts[i], err);
        if (status == SH_OK) status = check_ring(t, counts[i], err);
    }
    return status;
}

static sh_status run_barrier(test *t, sh_err *err)
{
    double seconds[BATCHES];
    int rounds = t->opts->rounds > 0 ? (int)t->opts->rounds : t->opts->quick ? 50 : 500;
    for (int b = 0; b < BATCHES; b++) {
        int64_t start_ns = sh_clock_ns();
        for (int i = 0; i < rounds; i++) {
            sh_status status = sh_coll_barrier(t->group, err);
            if (status != SH_OK) return status;
        }
        seconds[b] = (double)(sh_clock_ns() - start_ns) / 1e9 / rounds;
    }
    t->report->barrier_seconds = median(seconds, BATCHES);
    return SH_OK;
}

static sh_status time_sum(test *t, size_t bytes, int rounds, double *seconds, sh_err *err)
{
    sh_status status = sh_coll_barrier(t->group, err);
    int64_t start_ns = sh_clock_ns(), last_ns = start_ns;
    for (int i = 0; i < rounds && status == SH_OK; i++) {
        status = sh_coll_allreduce(t->group, t->x, 1, bytes / 4, t->opts->wire, err);
        if (t->round_s == NULL) continue;
        int64_t now_ns = sh_clock_ns();
        t->round_s[i] = (double)(now_ns - last_ns) / 1e9;
        last_ns = now_ns;
    }
    *seconds = (double)(sh_clock_ns() - start_ns) / 1e9 / rounds;
    return status;
}

static sh_status time_raw(test *t, size_t bytes, int rounds, bool latency, double *seconds,
                          sh_err *err)
{
    sh_status status = sh_coll_barrier(t->group, err);
    if (status != SH_OK) return status;
    return latency ? sh_rawlink_half_trip(&t->raw, sh_group_rank(t->group), t->y, bytes, rounds,
                                          seconds, err)
                   : sh_rawlink_both_ways(&t->raw, t->x, t->y, bytes, rounds, seconds, err);
}

/* Enough rounds that a batch takes 50 ms (quick: 10 ms). Ranks would measure different times, so
 * rank 0 decides for all of them. */
static sh_status choose_rounds(test *t, size_t bytes, int32_t *rounds, sh_err *err)
{
    double seconds;
    sh_status status = time_sum(t, bytes, 3, &seconds, err);
    if (status != SH_OK) return status;
    double wanted = (t->opts->quick ? 0.01 : 0.05) / (seconds > 1e-9 ? seconds : 1e-9);
    int32_t most = t->opts->each_round ? ROUNDS_SHOWN : ROUNDS_MAX;
    *rounds = wanted < 1 ? 1 : wanted > most ? most : (int32_t)wanted;
    if (t->opts->rounds > 0)
        *rounds = t->opts->rounds < ROUNDS_ASKED_MAX ? (int32_t)t->opts->rounds : ROUNDS_ASKED_MAX;
    return sh_coll_broadcast(t->group, 0, rounds, sizeof(*rounds), err);
}

static void show_rounds(const test *t, size_t bytes, int count)
{
    if (t->hooks->rounds != NULL && sh_group_rank(t->group) == 0)
        t->hooks->rounds(t->hooks->arg, bytes, t->round_s, count);
}

static sh_status run_size(test *t, size_t bytes, bool latency, sh_linktest_row *out, sh_err *err)
{
    double sum[BATCHES];
    double raw[BATCHES];
    int32_t rounds;
    memset(t->x, 0, bytes);
    sh_status status = choose_rounds(t, bytes, &rounds, err);
    if (status == SH_OK && t->opts->each_round)
        t->round_s = sh_alloc_array((size_t)rounds, sizeof(*t->round_s));
    for (int b = 0; b < BATCHES && status == SH_OK; b++) {
        status = time_raw(t, bytes, rounds, latency, &raw[b], err);
        if (status == SH_OK) status = time_sum(t, bytes, rounds, &sum[b], err);
        if (status == SH_OK && t->round_s != NULL) show_rounds(t, bytes, rounds);
    }
    free(t->round_s);
    t->round_s = NULL;
    if (status != SH_OK) return status;
    *out = (sh_linktest_row){bytes, median(sum, BATCHES), median(raw, BATCHES)};
    return SH_OK;
}

static sh_status run_timing(test *t, bool latency, sh_err *err)
{
    const size_t *sizes = latency ? t->opts->latency : t->opts->bandwidth;
    int count = latency ? t->opts->latency_count : t->opts->bandwidth_count;
    sh_linktest_row *rows = latency ? t->report->latency : t->report->bandwidth;
    for (int i = 0; i < count; i++) {
        sh_status status = run_size(t, sizes[i], latency, &rows[i], err);
        if (status != SH_OK) return status;
    }
    *(latency ? &t->report->latency_count : &t->report->bandwidth_count) = count;
    return SH_OK;
}

/* A linear congruential generator: the same sequence on all ranks, since all begin with state 1. */
static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Random operations of random sizes, each one checked. The shift spreads the sizes over all
 * magnitudes. */
static sh_status run_stress(test *t, sh_err *err)
{
    uint64_t state = 1;
    int size = sh_group_size(t->group);
    for (int64_t i = 0; i < t->opts->stress_rounds; i++) {
        size_t count = draw(&state) % STRESS_NUMBERS_MAX >> draw(&state) % 18;
        uint32_t kind = draw(&state) % 8;
        sh_status status = kind == 0   ? sh_coll_barrier(t->group, err)
                           : kind == 1 ? check_gather(t, count / 8 + 1, err)
                           : kind == 2 ? check_broadcast(t, (int)(draw(&state) % (uint32_t)size),
                                                         count, err)
                           : kind == 3
                               ? check_ring(t, count, err)
                               : check_sum(t, 1, count + 1, (sh_codec)(draw(&state) % 3), err);
        if (status != SH_OK) return status;
        t->report->stress_done = i + 1;
    }
    return SH_OK;
}

static size_t largest(const sh_linktest_opts *opts)
{
    size_t most = 0;
    for (int i = 0; i < opts->bandwidth_count; i++)
        if (opts->bandwidth[i] > most) most = opts->bandwidth[i];
    return most;
}

/* Sums of the largest size, each one timed and checked: what long prompts and large models do to a
 * link for minutes. */
static sh_status run_large(test *t, sh_err *err)
{
    size_t bytes = largest(t->opts);
    int rounds = t->opts->large_rounds, size = sh_group_size(t->group);
    double *seconds = sh_alloc_array((size_t)rounds, sizeof(*seconds));
    float want = (float)size * (float)(size + 1) / 2;
    sh_status status = SH_OK;
    for (int i = 0; i < rounds && bytes > 0 && status == SH_OK; i++) {
        for (size_t k = 0; k < bytes / 4; k++) t->x[k] = (float)(sh_group_rank(t->group) + 1);
        status = sh_coll_barrier(t->group, err);
        int64_t start_ns = sh_clock_ns();
        if (status == SH_OK)
            status = sh_coll_allreduce(t->group, t->x, 1, bytes / 4, SH_CODEC_F32, err);
        seconds[i] = (double)(sh_clock_ns() - start_ns) / 1e9;
        for (size_t k = 0; k < bytes / 4 && status == SH_OK; k++)
            if (!(t->x[k] == want))
                status = wrong(t, "large sum", k, (double)t->x[k], (double)want, err);
    }
    if (status == SH_OK && bytes > 0 && rounds > 0) {
        t->report->large_bytes = bytes;
        t->report->large_rounds = rounds;
        t->report->large_median = median(seconds, rounds); /* sorts them */
        t->report->large_min = seconds[0];
        t->report->large_max = seconds[rounds - 1];
    }
    free(seconds);
    return status;
}

/* Bytes for the largest operation: 4 MB hold the 700001 numbers of the correctness phase, and the
 * term of `ranks` what an all-gather of it collects. */
static size_t buffer_len(const sh_linktest_opts *opts, int ranks)
{
    size_t least = 4 * 1000000 + (size_t)ranks * 100000;
    return largest(opts) > least ? largest(opts) : least;
}

static sh_status run_latency(test *t, sh_err *err)
{
    return run_timing(t, true, err);
}

static sh_status run_bandwidth(test *t, sh_err *err)
{
    return run_timing(t, false, err);
}

static const struct {
    const char *name;
    sh_status (*run)(test *t, sh_err *err);
    bool timed, stress; /* in which kind of run */
} PHASES[] = {
    {"barrier", run_barrier, true, true},  {"correctness", run_correctness, true, true},
    {"latency", run_latency, true, false}, {"bandwidth", run_bandwidth, true, false},
    {"stress", run_stress, false, true},   {"large sums", run_large, false, true},
};

/* A stress run replaces the timed phases. After the closing barrier all ranks are known to have
 * finished. */
static sh_status run_phases(test *t, sh_err *err)
{
    bool timed = t->opts->stress_rounds == 0;
    sh_status status = timed ? sh_rawlink_open(t->group, &t->raw, err) : SH_OK;
    for (size_t i = 0; i < SH_COUNT_OF(PHASES) && status == SH_OK; i++) {
        if (timed ? !PHASES[i].timed : !PHASES[i].stress) continue;
        if (t->hooks->phase != NULL && sh_group_rank(t->group) == 0)
            t->hooks->phase(t->hooks->arg, PHASES[i].name);
        status = PHASES[i].run(t, err);
    }
    return status == SH_OK ? sh_coll_barrier(t->group, err) : status;
}

static sh_status run_in_memory(test *t, sh_err *err)
{
    size_t len = buffer_len(t->opts, sh_group_size(t->group));
    void *memory;
    sh_status status = sh_mem_map(2 * len, "numbers to test with", &memory, err);
    if (status != SH_OK) return status;
    t->x = memory;
    t->y = (float *)(void *)((char *)memory + len);
    status = sh_group_register_memory(t->group, memory, 2 * len, err);
    if (status == SH_OK) status = run_phases(t, err);
    sh_group_unregister_memory(t->group, memory);
    sh_rawlink_close(&t->raw);
    sh_mem_unmap(memory, 2 * len);
    return status;
}

/* Whatever fails here, a wrong result or a lack of memory, fails the group: the others would wait
 * for this rank. */
sh_status sh_linktest_run(sh_group *group, const sh_linktest_opts *opts,
                          const sh_linktest_hooks *hooks, sh_linktest_report *out, sh_err *err)
{
    test t = {.group = group, .opts = opts, .hooks = hooks, .report = out, .raw = {-1, -1}};
    memset(out, 0, sizeof(*out));
    sh_status status = run_in_memory(&t, err);
    if (status != SH_OK) sh_group_fail(group, err->text);
    return status;
}
