/* A transport that only this file knows: a socket pair between threads of one process. It takes its
 * own sh_transport and a line in a table, and the group sums over it. */
#include "coll/coll.h"

#include "base/alloc.h"
#include "base/log.h"
#include "unit/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct {
    sh_channel base;
    sh_stream stream;
} pipe_channel;

/* What an offer makes: this rank's end, and on the rank that offers also the peer's. */
typedef struct {
    int mine, theirs;
    int tries; /* connect is not done at once */
} pipe_ends;

static atomic_int channels_made, offers_withdrawn;

/* Ranks are threads: what this one can do. */
static _Thread_local bool has_pipes;
static _Thread_local int fails_to; /* a peer, or -1 */

static sh_status pipe_send(sh_channel *base, sh_msg *msg, sh_err *err)
{
    struct iovec parts[2];
    size_t moved;
    int count = sh_msg_parts(msg, msg->done, msg->len, parts);
    if (count == 0) return SH_OK;
    sh_status status = sh_stream_write(&((pipe_channel *)base)->stream, parts, count, &moved, err);
    if (status == SH_OK) msg->done += moved;
    return status == SH_OK && msg->done < msg->len ? SH_AGAIN : status;
}

static sh_status pipe_recv(sh_channel *base, sh_msg *msg, sh_err *err)
{
    struct iovec parts[2];
    size_t moved;
    int count = sh_msg_parts(msg, msg->done, msg->len, parts);
    if (count == 0) return SH_OK;
    sh_status status = sh_stream_read(&((pipe_channel *)base)->stream, parts, count, &moved, err);
    if (status == SH_OK) msg->done += moved;
    return status == SH_OK && msg->done < msg->len ? SH_AGAIN : status;
}

static void pipe_close(sh_channel *base)
{
    sh_stream_close(&((pipe_channel *)base)->stream);
    free(base);
}

static const char *pipe_device(const sh_channel *base)
{
    return base == NULL ? "" : "pipe0";
}

/* Without arm: the group must poll it. */
static const sh_channel_ops PIPE_OPS = {.name = "pipe",
                                        .send = pipe_send,
                                        .recv = pipe_recv,
                                        .device = pipe_device,
                                        .close = pipe_close};

/* The offer is a descriptor of this process. */
static sh_status pipe_offer(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine,
                            void **state, sh_err *err)
{
    int fds[2];
    if (!has_pipes) return sh_err_set(err, SH_ERR_UNSUPPORTED, "rank %d has no pipes", pair->rank);
    if (pair->peer == fails_to) return sh_err_set(err, SH_ERR_SYSTEM, "out of pipes");
    pipe_ends *ends = sh_alloc(sizeof(*ends));
    ends->mine = ends->theirs = -1;
    *state = ends;
    if (theirs != NULL) {
        memcpy(&ends->mine, theirs->body, sizeof(int));
        return SH_OK;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        return sh_err_sys(err, "socketpair");
    ends->mine = fds[0];
    ends->theirs = fds[1];
    mine->body_len = sizeof(int);
    memcpy(mine->body, &fds[1], sizeof(int));
    return SH_OK;
}

static sh_status pipe_connect(const sh_pair *pair, void *state, const sh_offer *theirs,
                              sh_channel **out, sh_err *err)
{
    (void)pair, (void)theirs, (void)err;
    pipe_ends *ends = state;
    if (ends->tries++ < 3) return SH_AGAIN;
    pipe_channel *channel = sh_alloc(sizeof(*channel));
    channel->base.ops = &PIPE_OPS;
    sh_stream_init(&channel->stream, ends->mine);
    free(ends);
    *out = &channel->base;
    atomic_fetch_add(&channels_made, 1);
    return SH_OK;
}

static void pipe_withdraw(void *state)
{
    pipe_ends *ends = state;
    sh_sock_close(ends->mine);
    sh_sock_close(ends->theirs);
    free(ends);
    atomic_fetch_add(&offers_withdrawn, 1);
}

static const sh_transport PIPE = {
    .name = "pipe",
    .title = "a pipe",
    .backend = "pipes",
    .offer = pipe_offer,
    .connect = pipe_connect,
    .withdraw = pipe_withdraw,
};

static const sh_transport *const TABLE[] = {&PIPE, &sh_transport_shm, &sh_transport_tcp, NULL};

typedef struct {
    const sh_transport *wanted;
    int fails_to;     /* a peer whose pipe fails */
    bool only_rank_0; /* has pipes */
    const char *path; /* of every pair */
} setup;

static void sum(ranks_one *one)
{
    const setup *set = one->arg;
    enum { COUNT = 50000 };
    float *x = calloc(COUNT, sizeof(float));
    sh_group_opts opts;
    sh_group *group = NULL;
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.transports = TABLE;
    opts.mesh.wanted = set->wanted;
    has_pipes = !set->only_rank_0 || one->rank == 0;
    fails_to = set->fails_to;
    opts.spin_us = 0;
    opts.op_ms = 20000;
    opts.silence_ms = 10000;
    for (int i = 0; i < COUNT; i++) x[i] = (float)(one->rank + i % 7);
    one->status = sh_group_open(&opts, &group, &one->err);
    for (int r = 0; one->status == SH_OK && r < one->size; r++)
        if (r != one->rank && strcmp(sh_group_path(group, r), set->path) != 0)
            one->status = sh_err_set(&one->err, SH_ERR_GROUP, "rank %d is reached by %s", r,
                                     sh_group_path(group, r));
    for (int r = 0; one->status == SH_OK && r < one->size; r++) {
        bool piped = strcmp(sh_group_path(group, r), "pipe") == 0;
        if (strcmp(sh_group_device(group, r), piped ? "pipe0" : "") != 0)
            one->status = sh_err_set(&one->err, SH_ERR_GROUP, "rank %d is behind device '%s'", r,
                                     sh_group_device(group, r));
    }
    if (one->status == SH_OK)
        one->status = sh_coll_allreduce(group, x, 1, COUNT, SH_CODEC_F32, &one->err);
    for (int i = 0; one->status == SH_OK && i < COUNT; i++)
        if (x[i] != (float)(one->size * (one->size - 1) / 2 + one->size * (i % 7)))
            one->status = sh_err_set(&one->err, SH_ERR_GROUP, "the sum is wrong at %d", i);
    if (one->status == SH_OK) one->status = sh_coll_barrier(group, &one->err);
    sh_group_close(group);
    free(x);
}

TEST(a_transport_of_ones_own_carries_a_group)
{
    UNUSED_STATE;
    static const setup sets[] = {{NULL, -1, false, "pipe"}, {&PIPE, -1, false, "pipe"}};
    for (size_t i = 0; i < SH_COUNT_OF(sets); i++) {
        ranks_one ranks[3];
        atomic_store(&channels_made, 0);
        atomic_store(&offers_withdrawn, 0);
        ranks_run(3, 3, sum, (void *)(uintptr_t)&sets[i], ranks);
        for (int r = 0; r < 3; r++) CHECK_OK(ranks[r].status, ranks[r].err);
        assert_int_equal(atomic_load(&channels_made), 6);
        assert_int_equal(atomic_load(&offers_withdrawn), 0);
    }
}

/* Runs two ranks and returns what they logged, to be freed. */
static char *sum_and_log(const setup *set)
{
    FILE *file = tmpfile();
    ranks_one ranks[2];
    int saved = dup(STDERR_FILENO);
    assert_true(file != NULL && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    sh_log_set_level(SH_LOG_WARN);
    ranks_run(2, 2, sum, (void *)(uintptr_t)set, ranks);
    sh_log_set_level(SH_LOG_ERROR);
    dup2(saved, STDERR_FILENO);
    close(saved);
    for (int r = 0; r < 2; r++) CHECK_OK(ranks[r].status, ranks[r].err);
    char *text = calloc(1, 4096);
    rewind(file);
    size_t got = fread(text, 1, 4095, file);
    assert_true(got < 4095);
    fclose(file);
    return text;
}

TEST(one_that_fails_gives_way_to_the_next_with_one_warning)
{
    UNUSED_STATE;
    static const char warning[] = "ranks 0 and 1 use shared memory: out of pipes";
    for (int peer = 0; peer < 2;
         peer++) { /* of the rank that offers, and of the one that answers */
        setup set = {NULL, peer, false, "shm"};
        atomic_store(&offers_withdrawn, 0);
        char *log = sum_and_log(&set), *found = strstr(log, warning);
        if (found == NULL || strstr(found + 1, warning) != NULL) fail_msg("it logged: %s", log);
        assert_int_equal(atomic_load(&offers_withdrawn), peer);
        free(log);
    }
}

TEST(one_that_a_peer_does_not_have_is_nothing_to_warn_of)
{
    UNUSED_STATE;
    static const setup set = {NULL, -1, true, "shm"};
    char *log = sum_and_log(&set);
    assert_string_equal(log, "");
    free(log);
}

TEST(one_that_was_asked_for_and_fails_ends_the_group_on_both)
{
    UNUSED_STATE;
    static const setup set = {&PIPE, 0, false, "pipe"};
    ranks_one ranks[2];
    ranks_run(2, 2, sum, (void *)(uintptr_t)&set, ranks);
    for (int r = 0; r < 2; r++)
        CHECK_FAILS(ranks[r].status, ranks[r].err,
                    "a pipe was asked for between ranks 0 and 1, but rank 1 failed to set it up: "
                    "out of pipes");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transport_of_ones_own_carries_a_group),
        cmocka_unit_test(one_that_fails_gives_way_to_the_next_with_one_warning),
        cmocka_unit_test(one_that_a_peer_does_not_have_is_nothing_to_warn_of),
        cmocka_unit_test(one_that_was_asked_for_and_fails_ends_the_group_on_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
