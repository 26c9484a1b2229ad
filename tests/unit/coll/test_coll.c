/* The same operations over every transport of this machine, with ranks as threads.
 *
 *   mpirun -n N test_coll PLUGINS     over MPI instead, with ranks as processes; PLUGINS is the
 *                                     folder of the plugin
 *   test_coll --rdma RANK ADDRESS DEVICE...   as one rank over RDMA devices, one for each rank of
 *                                     the group ("-" for itself); rank 0 listens at the address */
#include "coll/coll.h"

#include "base/log.h"
#include "cluster/rendezvous.h"
#include "unit/fake_verbs.h"
#include "unit/ranks.h"

#include <signal.h>

/* Devices made of memory, for the RDMA transport. */
typedef struct {
    bool unreliable, send_only;
    int lanes; /* 0: no device list */
    uint32_t frame_max;
    uint32_t inline_max;
    int depth;
} verbs;

static const verbs RC = {.frame_max = 1 << 30, .inline_max = 128, .depth = 32};
static const verbs UC = {.unreliable = true, .frame_max = 1 << 20, .depth = 32};
static const verbs SMALL = {.frame_max = 5000, .inline_max = 60, .depth = 8};
static const verbs LANES = {.unreliable = true, .lanes = 2, .frame_max = 1 << 30, .depth = 16};

static const verbs SENDS = {.send_only = true, .frame_max = 16384, .depth = 16};

typedef struct {
    const char *name;
    const char *token;
    bool plain_data;
    const sh_transport *wanted;
    int lanes;
    int spin_us;
    const verbs *verbs;
} transport;

static const transport TRANSPORTS[] = {
    {"tcp", NULL, false, &sh_transport_tcp, 1, 20, NULL},
    {"tcp, asleep at once", NULL, false, &sh_transport_tcp, 1, 0, NULL},
    {"tcp on three sockets", NULL, false, &sh_transport_tcp, 3, 20, NULL},
    {"tls", RANKS_TOKEN, false, &sh_transport_tcp, 1, 20, NULL},
    {"tls on two sockets", RANKS_TOKEN, false, &sh_transport_tcp, 2, 0, NULL},
    {"clear after tls", RANKS_TOKEN, true, &sh_transport_tcp, 1, 20, NULL},
    {"shared memory", RANKS_TOKEN, false, &sh_transport_shm, 1, 20, NULL},
    {"shared memory, asleep at once", NULL, false, &sh_transport_shm, 1, 0, NULL},
    {"rdma", RANKS_TOKEN, false, &sh_transport_rdma, 1, 20, &RC},
    {"rdma, unreliable, asleep at once", NULL, false, &sh_transport_rdma, 1, 0, &UC},
    {"rdma with short frames", NULL, false, &sh_transport_rdma, 1, 20, &SMALL},
    {"rdma on two devices", NULL, false, &sh_transport_rdma, 1, 0, &LANES},
    {"rdma that only sends", NULL, false, &sh_transport_rdma, 1, 20, &SENDS},
};

static const transport RDMA = {"rdma devices", RANKS_TOKEN, false, &sh_transport_rdma, 1, 20, NULL};
static const transport MPI = {"mpi", NULL, false, &sh_transport_mpi, 1, 20, NULL};

/* The ranks that mpirun has started; NULL: ranks are threads. */
static sh_mpi *world;

/* This process as one rank over RDMA devices; NULL: it is not. */
static sh_rdma *devices;
static ranks_one device_rank;

/* Whether ranks are processes. */
static bool apart(void)
{
    return world != NULL || devices != NULL;
}

typedef sh_status (*job_fn)(sh_group *group, sh_err *err);

typedef struct {
    const transport *transport;
    job_fn job;
} job;

static void verbs_set(const verbs *v)
{
    fake_reset();
    FAKE.no_kind[SH_RDMA_RC] = v->unreliable;
    FAKE.send_only = v->send_only;
    FAKE.frame_max = v->frame_max;
    FAKE.inline_max = v->inline_max;
    FAKE.depth = v->depth;
}

/* Every rank has its own devices, as every process has. */
static sh_rdma *verbs_open(const verbs *v)
{
    static const char *const names[] = {"fake0", "fake1", NULL};
    static const char *const *const all[] = {names, names, names, names,
                                             names, names, names, names};
    static const sh_rdma_devices listed = {.size = 8, .names = all};
    sh_rdma_opts opts = {.plugin = &FAKE_VERBS, .devices = v->lanes > 0 ? &listed : NULL};
    sh_rdma *rdma = NULL;
    sh_err err;
    return sh_rdma_open(&opts, &rdma, &err) == SH_OK ? rdma : NULL;
}

static void run_job(ranks_one *one)
{
    const job *j = one->arg;
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.token = j->transport->token;
    opts.mesh.plain_data = j->transport->plain_data;
    opts.mesh.wanted = j->transport->wanted;
    opts.mesh.lanes = j->transport->lanes;
    if (world != NULL) opts.mesh.token = RANKS_TOKEN;
    sh_rdma *rdma = j->transport->verbs != NULL ? verbs_open(j->transport->verbs) : NULL;
    opts.mesh.library = rdma != NULL      ? (void *)rdma
                        : devices != NULL ? (void *)devices
                                          : (void *)world;
    opts.spin_us = j->transport->spin_us;
    opts.op_ms = 20000;
    opts.silence_ms = 10000; /* sanitizers and a busy machine are slow */
    sh_group *group = NULL;
    one->status = sh_group_open(&opts, &group, &one->err);
    if (one->status == SH_OK) one->status = j->job(group, &one->err);
    if (one->status == SH_OK) one->status = sh_coll_barrier(group, &one->err);
    sh_group_close(group);
    sh_rdma_close(rdma);
}

/* This process is one rank of a group over MPI. */
static ranks_one run_over_mpi(job *j)
{
    sh_rendezvous met;
    ranks_one one = {.rank = sh_mpi_rank(world), .size = sh_mpi_size(world), .arg = j};
    CHECK_OK(sh_rendezvous_run(world, RANKS_TOKEN, 20000, &met, &one.err), one.err);
    memcpy(one.coordinator, met.coordinator, sizeof(one.coordinator));
    one.listen_fd = met.fd;
    run_job(&one);
    return one;
}

static void run_on(const transport *t, int size, job_fn fn)
{
    job j = {world != NULL ? &MPI : devices != NULL ? &RDMA : t, fn};
    ranks_one ranks[8];
    if (j.transport->verbs != NULL) verbs_set(j.transport->verbs);
    if (world != NULL) {
        ranks[0] = run_over_mpi(&j);
        size = 1;
    } else if (devices != NULL) {
        ranks[0] = device_rank;
        ranks[0].arg = &j;
        run_job(&ranks[0]);
        size = 1;
    } else {
        ranks_run(size, size, run_job, &j, ranks);
    }
    for (int r = 0; r < size; r++)
        if (ranks[r].status != SH_OK)
            fail_msg("%s, rank %d of %d: %s", j.transport->name, r, size, ranks[r].err.text);
    /* No frame without a posted receive, none outside of registered memory, nothing left behind. */
    assert_int_equal(FAKE.unposted, 0);
    assert_int_equal(FAKE.bad_writes, 0);
    assert_int_equal(FAKE.registered, 0);
}

static void run_everywhere(job_fn fn, int sizes_max)
{
    if (apart()) {
        run_on(&MPI, 0, fn);
        return;
    }
    for (size_t t = 0; t < SH_COUNT_OF(TRANSPORTS); t++)
        for (int size = 1; size <= sizes_max; size++) run_on(&TRANSPORTS[t], size, fn);
}

static sh_status wrong(sh_err *err, const char *what, size_t at)
{
    return sh_err_set(err, SH_ERR_INPUT, "%s: wrong at %zu", what, at);
}

/* Numbers whose sum depends on the order of adding, so that a wrong order shows. */
static float number_of(int rank, size_t i)
{
    uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u + 977u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    float mantissa = (float)(h & 0xffff) / 65536.0f + 1.0f;
    return ((h >> 31) != 0 ? -mantissa : mantissa) * (float)(1 << (h >> 16 & 15));
}

/* The expected sum: each part is encoded and decoded, added in order, encoded and decoded again. */
static void reference(float *out, int size, size_t rows, size_t cols, sh_codec codec)
{
    size_t count = rows * cols;
    float *part = calloc(count + 1, sizeof(float));
    uint8_t *wire = calloc(count + 1, 8);
    sh_layout l = sh_layout_of(codec, rows, cols);
    size_t blocks = sh_layout_blocks(&l);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < count; i++) part[i] = number_of(r, i);
        if (size > 1) sh_codec_encode(wire, &l, 0, blocks, part);
        if (size > 1) sh_codec_decode(part, &l, 0, blocks, wire);
        for (size_t i = 0; i < count; i++) out[i] = r == 0 ? part[i] : out[i] + part[i];
    }
    if (size > 1) sh_codec_encode(wire, &l, 0, blocks, out);
    if (size > 1) sh_codec_decode(out, &l, 0, blocks, wire);
    free(part);
    free(wire);
}

static sh_status one_sum(sh_group *group, size_t rows, size_t cols, sh_codec codec, sh_err *err)
{
    size_t count = rows * cols;
    float *x = calloc(count + 1, sizeof(float));
    float *want = calloc(count + 1, sizeof(float));
    for (size_t i = 0; i < count; i++) x[i] = number_of(sh_group_rank(group), i);
    x[count] = 12345.0f;
    reference(want, sh_group_size(group), rows, cols, codec);
    sh_status status = sh_coll_allreduce(group, x, rows, cols, codec, err);
    for (size_t i = 0; i < count && status == SH_OK; i++)
        if (memcmp(&x[i], &want[i], sizeof(float)) != 0) status = wrong(err, "all-reduce", i);
    if (status == SH_OK && x[count] != 12345.0f) status = wrong(err, "past the end", count);
    free(x);
    free(want);
    return status;
}

typedef struct {
    size_t rows;
    size_t cols;
} shape;

static sh_status sums_of(sh_group *group, const shape *shapes, size_t count, sh_err *err)
{
    for (size_t s = 0; s < count; s++) {
        for (int codec = SH_CODEC_F32; codec <= SH_CODEC_INT8; codec++) {
            sh_status status = one_sum(group, shapes[s].rows, shapes[s].cols, (sh_codec)codec, err);
            if (status != SH_OK)
                return sh_err_prefix(err, "%zux%zu codec %d", shapes[s].rows, shapes[s].cols,
                                     codec);
        }
    }
    return SH_OK;
}

static sh_status job_sums(sh_group *group, sh_err *err)
{
    static const shape shapes[] = {{0, 5}, {1, 1}, {3, 33}, {7, 1000}, {1, 33000}, {33, 2047}};
    return sums_of(group, shapes, SH_COUNT_OF(shapes) - SLOW, err);
}

TEST(sums_have_the_bits_of_adding_in_rank_order_at_every_size)
{
    UNUSED_STATE;
    run_everywhere(job_sums, SLOW ? 3 : 4);
}

/* Enough pieces to use all slots several times. */
static sh_status job_long_sums(sh_group *group, sh_err *err)
{
    static const shape shapes[] = {{3, SLOW ? 100001 : 250001}};
    return sums_of(group, shapes, SH_COUNT_OF(shapes), err);
}

TEST(long_sums_go_in_pieces)
{
    UNUSED_STATE;
    static const struct {
        size_t transport;
        int size;
    } cases[] = {{1, 2}, {2, 3}, {6, 2}, {7, 5}};
    for (size_t i = 0; i < (apart() ? 1 : SH_COUNT_OF(cases)); i++)
        run_on(&TRANSPORTS[cases[i].transport], cases[i].size, job_long_sums);
}

/* More than any transport buffers. */
enum { CIRCLE_BYTES = SLOW ? 1 << 20 : 16 << 20, CIRCLE_ROUNDS = 3 };

/* Every rank sends to the next before it receives from the previous one: a cycle in which no send
 * completes until somebody receives. */
static sh_status job_circle(sh_group *group, sh_err *err)
{
    int rank = sh_group_rank(group), size = sh_group_size(group);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    if (size == 1) return SH_OK;
    uint8_t *out = malloc(CIRCLE_BYTES), *in = malloc(CIRCLE_BYTES);
    sh_status status = SH_OK;
    for (int round = 0; round < CIRCLE_ROUNDS && status == SH_OK; round++) {
        size_t lens[2] = {(size_t)CIRCLE_BYTES >> (2 * round), 5};
        uint8_t last[5] = {0};
        uint64_t first_due = sh_coll_expect(group, from, in, lens[0]);
        uint64_t second_due = sh_coll_expect(group, from, last, lens[1]);
        memset(out, rank + round, lens[0]);
        status = sh_coll_send(group, to, out, lens[0], err);
        if (status == SH_OK) status = sh_coll_send(group, to, "after", lens[1], err);
        if (status == SH_OK) status = sh_coll_await(group, from, second_due, err);
        if (status == SH_OK && !sh_coll_has_come(group, from, first_due))
            status = wrong(err, "order of messages", 0);
        for (size_t i = 0; i < lens[0] && status == SH_OK; i += 997)
            if (in[i] != (uint8_t)(from + round)) status = wrong(err, "message", i);
        if (status == SH_OK && memcmp(last, "after", 5) != 0) status = wrong(err, "second", 0);
    }
    free(out);
    free(in);
    return status;
}

TEST(messages_posted_ahead_of_time_block_nobody)
{
    UNUSED_STATE;
    run_everywhere(job_circle, SLOW ? 2 : 3);
}

static sh_status job_gather(sh_group *group, sh_err *err)
{
    for (size_t base = 0; base <= 300000; base = base * 10 + 3) {
        size_t lens[SH_RANKS_MAX];
        size_t total = 0;
        int rank = sh_group_rank(group);
        for (int r = 0; r < sh_group_size(group); r++) total += lens[r] = base + (size_t)r * 7;
        uint8_t *mine = malloc(lens[rank] + 1);
        uint8_t *all = calloc(total + 1, 1);
        memset(mine, rank + 1, lens[rank]);
        sh_status status = sh_coll_allgather(group, mine, lens, all, err);
        for (int round = 0; round < 2 && status == SH_OK; round++) {
            size_t at = 0;
            for (int r = 0; r < sh_group_size(group); at += lens[r++])
                for (size_t i = 0; i < lens[r]; i++)
                    if (all[at + i] != r + 1 && (round == 0 || rank == 1 % sh_group_size(group)))
                        status = wrong(err, "gather", at + i);
            if (round == 1 || status != SH_OK) break;
            memset(all, 0, total);
            status = sh_coll_gather(group, 1 % sh_group_size(group), mine, lens, all, err);
        }
        free(mine);
        free(all);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

TEST(gathers_blocks_of_different_lengths)
{
    UNUSED_STATE;
    run_everywhere(job_gather, 4);
}

static sh_status check_fill(const uint8_t *data, size_t len, uint8_t value, sh_err *err)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != (uint8_t)(value + i)) return wrong(err, "broadcast", i);
    return SH_OK;
}

static sh_status job_broadcast(sh_group *group, sh_err *err)
{
    static const size_t lens[] = {0, 1, 4000, 40000, 262144, SLOW ? 300003 : 1000003};
    for (int root = 0; root < sh_group_size(group); root++) {
        for (size_t l = 0; l < SH_COUNT_OF(lens); l++) {
            size_t len = lens[l];
            bool leads = sh_group_rank(group) == root;
            uint8_t value = (uint8_t)(root + 40);
            sh_buf buf = {0};
            uint8_t *data = calloc(len + 1, 1);
            for (size_t i = 0; leads && i < len; i++) data[i] = (uint8_t)(value + i);
            if (leads) sh_buf_add(&buf, data, len);
            sh_status status = sh_coll_broadcast(group, root, data, len, err);
            if (status == SH_OK) status = check_fill(data, len, value, err);
            if (status == SH_OK)
                status = sh_coll_broadcast_buf(group, root, &buf, 2000000, SH_DEADLINE_NEVER, err);
            if (status == SH_OK && buf.len != len) status = wrong(err, "length", buf.len);
            if (status == SH_OK) status = check_fill((uint8_t *)buf.ptr, len, value, err);
            sh_buf_reset(&buf);
            free(data);
            if (status != SH_OK) return status;
        }
    }
    return SH_OK;
}

TEST(broadcasts_from_any_root_with_known_and_unknown_length)
{
    UNUSED_STATE;
    run_everywhere(job_broadcast, SLOW ? 3 : 4);
}

/* A pipeline: rank 0 sends, each rank adds one and forwards it, the last one sends it back. */
static sh_status job_pipeline(sh_group *group, sh_err *err)
{
    int rank = sh_group_rank(group);
    int size = sh_group_size(group);
    enum { COUNT = 100000 };
    if (size == 1) return SH_OK;
    uint32_t *data = calloc(COUNT, sizeof(*data));
    sh_status status = SH_OK;
    for (int round = 0; round < 5 && status == SH_OK; round++) {
        size_t len = round % 2 == 0 ? COUNT * sizeof(*data) : 12;
        if (rank > 0) status = sh_coll_recv(group, rank - 1, data, len, err);
        for (size_t i = 0; i < len / 4; i++) data[i]++;
        if (status == SH_OK) status = sh_coll_send(group, (rank + 1) % size, data, len, err);
        if (rank == 0 && status == SH_OK) status = sh_coll_recv(group, size - 1, data, len, err);
        if (status == SH_OK) status = sh_coll_barrier(group, err);
    }
    if (status == SH_OK && rank == 0)
        for (size_t i = 0; i < COUNT && status == SH_OK; i++)
            if (data[i] != (uint32_t)size * (i < 3 ? 5 : 3)) status = wrong(err, "pipeline", i);
    free(data);
    return status;
}

TEST(sends_along_a_pipeline)
{
    UNUSED_STATE;
    run_everywhere(job_pipeline, 4);
}

/* A grid of two stages: sums inside each stage, messages between them, sums over all. */
static sh_status job_grid(sh_group *group, sh_err *err)
{
    static const int stages[2][2] = {{0, 1}, {2, 3}};
    if (sh_group_size(group) != 4) return SH_OK;
    int rank = sh_group_rank(group);
    sh_group *stage = sh_group_split(group, stages[rank / 2], 2);
    sh_status status = SH_OK;
    for (int i = 0; i < 20 && status == SH_OK; i++) {
        float x[3] = {(float)rank, 1, (float)i};
        status = sh_coll_allreduce(stage, x, 1, 3, SH_CODEC_F32, err);
        if (status == SH_OK && x[0] != (rank < 2 ? 1 : 5)) status = wrong(err, "stage", 0);
        if (status == SH_OK && rank < 2) status = sh_coll_send(group, rank + 2, x, sizeof(x), err);
        if (status == SH_OK && rank >= 2) status = sh_coll_recv(group, rank - 2, x, sizeof(x), err);
        if (status == SH_OK && x[0] != 1) status = wrong(err, "grid", 0);
        if (status == SH_OK && i % 3 == 0)
            status = sh_coll_allreduce(group, x, 1, 3, SH_CODEC_F32, err);
        if (status == SH_OK && i % 3 == 0 && x[1] != 8) status = wrong(err, "whole", 1);
    }
    sh_group_close(stage);
    return status;
}

TEST(parts_of_a_group_work_beside_the_whole)
{
    UNUSED_STATE;
    run_everywhere(job_grid, 4);
}

static sh_status job_mismatch_size(sh_group *group, sh_err *err)
{
    float x[64] = {0};
    return sh_coll_allreduce(group, x, 1, sh_group_rank(group) == 1 ? 64 : 63, SH_CODEC_F32, err);
}

static sh_status job_mismatch_kind(sh_group *group, sh_err *err)
{
    float x[64] = {0};
    if (sh_group_rank(group) == 1) return sh_coll_barrier(group, err);
    return sh_coll_allreduce(group, x, 1, 64, SH_CODEC_F32, err);
}

static sh_status job_mismatch_count(sh_group *group, sh_err *err)
{
    float x[64] = {0};
    for (int i = 0; i < 3; i++) {
        sh_status status = sh_coll_allreduce(group, x, 1, 64, SH_CODEC_F32, err);
        if (status != SH_OK) return status;
        if (sh_group_rank(group) == 1 && i == 1) return sh_coll_broadcast(group, 1, x, 256, err);
    }
    return SH_OK;
}

TEST(ranks_that_do_not_run_the_same_operations_end_the_group)
{
    UNUSED_STATE;
    static const job_fn jobs[] = {job_mismatch_size, job_mismatch_kind, job_mismatch_count};
    for (size_t i = 0; i < SH_COUNT_OF(jobs); i++) {
        for (size_t t = 0; t < SH_COUNT_OF(TRANSPORTS); t += t == 6 ? 2 : 6) { /* one of each */
            job j = {&TRANSPORTS[t], jobs[i]};
            ranks_one ranks[8];
            /* Over RDMA a rank that is asked for nothing waits until the deadline. */
            if (j.transport->verbs != NULL && jobs[i] == job_mismatch_count) continue;
            if (j.transport->verbs != NULL) verbs_set(j.transport->verbs);
            ranks_run(3, 3, run_job, &j, ranks);
            for (int r = 0; r < 3; r++) {
                CHECK_FAILS(ranks[r].status, ranks[r].err, "do not run the same operations");
                assert_int_equal(ranks[r].status, SH_ERR_GROUP);
            }
        }
    }
}

/* Over MPI the library itself may be the first to see that a message is too long. */
TEST(ranks_over_mpi_that_do_not_run_the_same_operations_end_the_group)
{
    UNUSED_STATE;
    if (world == NULL || sh_mpi_size(world) < 2) skip();
    static const job_fn jobs[] = {job_mismatch_size, job_mismatch_kind, job_mismatch_count};
    for (size_t i = 0; i < SH_COUNT_OF(jobs); i++) {
        ranks_one one = run_over_mpi(&(job){&MPI, jobs[i]});
        assert_int_equal(one.status, SH_ERR_GROUP);
    }
}

/* One device for each rank. */
static const sh_rdma_devices *devices_of(char **names, int count)
{
    static const char *list[8][2];
    static const char *const *lists[8];
    static sh_rdma_devices all = {.names = lists};
    for (all.size = 0; all.size < count && all.size < 8; all.size++) {
        list[all.size][0] = strcmp(names[all.size], "-") == 0 ? NULL : names[all.size];
        lists[all.size] = list[all.size];
    }
    return &all;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest over_rdma[] = {
        cmocka_unit_test(sums_have_the_bits_of_adding_in_rank_order_at_every_size),
        cmocka_unit_test(long_sums_go_in_pieces),
        cmocka_unit_test(gathers_blocks_of_different_lengths),
        cmocka_unit_test(messages_posted_ahead_of_time_block_nobody),
        cmocka_unit_test(broadcasts_from_any_root_with_known_and_unknown_length),
        cmocka_unit_test(sends_along_a_pipeline),
        cmocka_unit_test(parts_of_a_group_work_beside_the_whole),
    };
    const struct CMUnitTest over_mpi[] = {
        cmocka_unit_test(sums_have_the_bits_of_adding_in_rank_order_at_every_size),
        cmocka_unit_test(long_sums_go_in_pieces),
        cmocka_unit_test(gathers_blocks_of_different_lengths),
        cmocka_unit_test(messages_posted_ahead_of_time_block_nobody),
        cmocka_unit_test(broadcasts_from_any_root_with_known_and_unknown_length),
        cmocka_unit_test(sends_along_a_pipeline),
        cmocka_unit_test(parts_of_a_group_work_beside_the_whole),
        cmocka_unit_test(ranks_over_mpi_that_do_not_run_the_same_operations_end_the_group),
    };
    if (argc > 4 && strcmp(argv[1], "--rdma") == 0) {
        sh_rdma_opts opts = {.devices = devices_of(argv + 4, argc - 4)};
        sh_err err;
        device_rank = (ranks_one){.rank = atoi(argv[2]), .size = argc - 4, .listen_fd = -1};
        snprintf(device_rank.coordinator, sizeof(device_rank.coordinator), "%s", argv[3]);
        CHECK_OK(sh_rdma_open(&opts, &devices, &err), err);
        int failed = cmocka_run_group_tests(over_rdma, NULL, NULL);
        sh_rdma_close(devices);
        return failed;
    }
    if (argc > 1) {
        sh_err err;
        if (sh_mpi_open(NULL, argv[1], &world, &err) != SH_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        int failed = cmocka_run_group_tests(over_mpi, NULL, NULL);
        sh_mpi_close(world, failed == 0 ? 20000 : 0);
        return failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_adding_in_rank_order_at_every_size),
        cmocka_unit_test(long_sums_go_in_pieces),
        cmocka_unit_test(gathers_blocks_of_different_lengths),
        cmocka_unit_test(messages_posted_ahead_of_time_block_nobody),
        cmocka_unit_test(broadcasts_from_any_root_with_known_and_unknown_length),
        cmocka_unit_test(sends_along_a_pipeline),
        cmocka_unit_test(parts_of_a_group_work_beside_the_whole),
        cmocka_unit_test(ranks_that_do_not_run_the_same_operations_end_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
