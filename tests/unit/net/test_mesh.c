/* Ranks join as threads of one process, over real sockets. */
#include "net/mesh.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/penalty.h"
#include "net/stream.h"
#include "unit/ranks.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct {
    const char *token;
    bool plain_data;
    const sh_transport *wanted;
    int lanes;
    const char *port_name; /* the transport that every pair must use */
} setup;

static bool pass_byte(sh_mesh *mesh, int peer, bool send, uint8_t *byte, sh_err *err)
{
    sh_msg msg = send ? sh_msg_out(NULL, 0, byte, 1) : sh_msg_in(NULL, 0, byte, 1);
    sh_deadline deadline = sh_deadline_in_ms(30000);
    sh_status status;
    sh_channel *port = mesh->peer[peer].channel;
    do {
        status = send ? port->ops->send(port, &msg, err) : port->ops->recv(port, &msg, err);
    } while (status == SH_AGAIN && !sh_deadline_passed(deadline));
    return status == SH_OK;
}

/* Every rank sends its number to every other, over the channel and the control connection. */
static void exchange(ranks_one *one, sh_mesh *mesh, const setup *set)
{
    for (int r = 0; r < mesh->size; r++) {
        uint8_t mine = (uint8_t)(100 + mesh->rank);
        if (r == mesh->rank) continue;
        if (strcmp(mesh->peer[r].channel->ops->name, set->port_name) != 0) {
            one->status = sh_err_set(&one->err, SH_ERR_PEER, "port is %s",
                                     mesh->peer[r].channel->ops->name);
            return;
        }
        if (!pass_byte(mesh, r, true, &mine, &one->err)) one->status = SH_ERR_PEER;
    }
    for (int r = 0; r < mesh->size; r++) {
        uint8_t theirs = 0;
        if (r == mesh->rank) continue;
        if (!pass_byte(mesh, r, false, &theirs, &one->err) || theirs != 100 + r)
            one->status = SH_ERR_PEER;
    }
}

static void join_and_exchange(ranks_one *one)
{
    const setup *set = one->arg;
    sh_mesh_opts opts = ranks_opts(one);
    opts.token = set->token;
    opts.plain_data = set->plain_data;
    opts.wanted = set->wanted;
    opts.lanes = set->lanes;
    sh_mesh *mesh;
    if (one->rank % 2 == 0) sh_sleep_ms(30); /* in any order */
    one->status = sh_mesh_join(&opts, &mesh, &one->err);
    if (one->status != SH_OK) return;
    exchange(one, mesh, set);
    sh_sleep_ms(50); /* do not close while another rank still reads */
    sh_mesh_close(mesh);
}

TEST(every_pair_gets_a_port_of_the_asked_kind)
{
    UNUSED_STATE;
    static const setup sets[] = {
        {NULL, false, &sh_transport_tcp, 1, "tcp"},
        {NULL, false, NULL, 1, "shm"},
        {RANKS_TOKEN, false, &sh_transport_tcp, 1, "tls"},
        {RANKS_TOKEN, true, &sh_transport_tcp, 3, "tcp"},
        {RANKS_TOKEN, false, &sh_transport_shm, 2, "shm"},
        {RANKS_TOKEN, false, &sh_transport_tcp, 2, "tls"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(sets); i++) {
        for (int size = 2; size <= 5; size += 3) {
            ranks_one ranks[8];
            ranks_run(size, size, join_and_exchange, (void *)(uintptr_t)&sets[i], ranks);
            for (int r = 0; r < size; r++) CHECK_OK(ranks[r].status, ranks[r].err);
        }
    }
}

/* What rank 2 does differently in a group that must not form. */
typedef struct {
    int as_rank;
    int world;
    const char *group;
    uint8_t model;
    const char *part; /* of the error on every rank */
    const char *part2;
} misfit;

static void join_with_misfit(ranks_one *one)
{
    const misfit *odd = one->arg;
    sh_mesh_opts opts = ranks_opts(one);
    if (one->rank == 2) {
        opts.rank = odd->as_rank;
        opts.size = odd->world;
        opts.group = odd->group;
        opts.model[0] = odd->model;
        sh_sleep_ms(400); /* the others have joined by then */
    }
    opts.token = RANKS_TOKEN;
    sh_mesh *mesh = NULL;
    one->status = sh_mesh_join(&opts, &mesh, &one->err);
    sh_mesh_close(mesh);
}

TEST(a_rank_that_does_not_fit_is_named_on_every_rank)
{
    UNUSED_STATE;
    static const misfit misfits[] = {
        {2, 4, "shoal", 0, "rank 2 has world size 4", "rank 0 has 3"},
        {1, 3, "shoal", 0, "rank 1 was started twice", "127.0.0.1:"},
        {2, 3, "other", 0, "rank 2 has group name other", "rank 0 has shoal"},
        {2, 3, "shoal", 0xab, "rank 2 has model ab00", "rank 0 has 0000"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(misfits); i++) {
        ranks_one ranks[3];
        int64_t start = sh_clock_ns();
        ranks_run(3, 3, join_with_misfit, (void *)(uintptr_t)&misfits[i], ranks);
        for (int r = 0; r < 3; r++) {
            CHECK_FAILS(ranks[r].status, ranks[r].err, misfits[i].part);
            CHECK_FAILS(ranks[r].status, ranks[r].err, misfits[i].part2);
        }
        assert_true(sh_clock_ns() - start < 3000000000);
    }
}

/* A group that forms without some ranks, and with others that were not there at its start. */
typedef struct {
    sh_roster *roster;
    sh_mesh *mesh[4];
} elastic;

static void join_elastic(ranks_one *one)
{
    elastic *e = one->arg;
    sh_mesh_opts opts = ranks_opts(one);
    opts.token = RANKS_TOKEN;
    if (one->rank == 0) opts.roster = e->roster;
    if (one->rank == 1) opts.rank = 2; /* there is no rank 1 */
    if (one->rank == 2) {              /* and one without a number */
        opts.rank = SH_RANK_ANY;
        opts.size = 0;
        opts.node[0] = 42;
    }
    opts.last_epoch = one->rank == 1 ? 77 : 0;
    one->status = sh_mesh_join(&opts, &e->mesh[one->rank], &one->err);
}

TEST(a_group_forms_with_holes_and_with_ranks_that_were_added)
{
    UNUSED_STATE;
    static sh_roster roster;
    elastic e = {.roster = &roster};
    ranks_one ranks[3];
    sh_roster_init(&roster, 3, 0);
    ranks_run(3, 3, join_elastic, &e, ranks);
    for (int i = 0; i < 3; i++) CHECK_OK(ranks[i].status, ranks[i].err);
    const int numbers[] = {0, 2, 3};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(e.mesh[i]->rank, numbers[i]);
        assert_int_equal(e.mesh[i]->size, 4);
        assert_int_equal(e.mesh[i]->local_count, 3);
        assert_null(e.mesh[i]->peer[1].control);
        assert_null(e.mesh[i]->peer[1].channel);
        for (int k = 0; k < 3; k++) {
            if (k == i) continue;
            assert_non_null(e.mesh[i]->peer[numbers[k]].control);
            assert_non_null(e.mesh[i]->peer[numbers[k]].channel);
        }
    }
    for (int i = 0; i < 3; i++) sh_mesh_close(e.mesh[i]);
}

/* Ranks without numbers, that listen everywhere and know of several addresses of rank 0. */
static void join_gathered(ranks_one *one)
{
    elastic *e = one->arg;
    sh_mesh_opts opts = ranks_opts(one);
    char several[2 * SH_ADDR_TEXT_MAX];
    snprintf(several, sizeof(several), "127.0.0.1:1,%s", one->coordinator);
    opts.token = RANKS_TOKEN;
    opts.life = (uint64_t)one->rank + 1;
    if (one->rank == 0) {
        opts.roster = e->roster;
        opts.size = 1;
    } else {
        opts.coordinator = several;
        opts.rank = SH_RANK_ANY;
        opts.size = 0;
        opts.everywhere = 0;
        opts.node[0] = (uint8_t)(9 - one->rank);
    }
    one->status = sh_mesh_join(&opts, &e->mesh[one->rank], &one->err);
}

TEST(the_first_group_is_made_of_those_who_come_in_the_order_of_their_node_ids)
{
    UNUSED_STATE;
    static sh_roster roster;
    elastic e = {.roster = &roster};
    ranks_one ranks[4];
    sh_roster_init(&roster, 1, 0);
    sh_roster_gather(&roster, 4, -1);
    ranks_run(4, 4, join_gathered, &e, ranks);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(ranks[i].status, ranks[i].err);
        assert_int_equal(e.mesh[i]->rank, i == 0 ? 0 : 4 - i);
        assert_int_equal(e.mesh[i]->size, 4);
    }
    for (int i = 0; i < 4; i++) sh_mesh_close(e.mesh[i]);
}

typedef struct {
    const char *second; /* address of rank 2 */
    sh_mesh *mesh[3];   /* open until all have joined */
} astray;

/* One of the addresses that rank 1 knows leads to rank 2. */
static void join_astray(ranks_one *one)
{
    astray *a = one->arg;
    const char *second = a->second;
    sh_mesh_opts opts = ranks_opts(one);
    char several[3 * SH_ADDR_TEXT_MAX];
    snprintf(several, sizeof(several), "%s,%s,%s", second, second, one->coordinator);
    opts.token = RANKS_TOKEN;
    if (one->rank == 1) {
        opts.coordinator = several;
        sh_sleep_ms(200); /* rank 2 listens by then */
    }
    if (one->rank == 2) {
        opts.listen[0] = second;
        opts.listen_count = 1;
    }
    one->status = sh_mesh_join(&opts, &a->mesh[one->rank], &one->err);
}

TEST(an_address_that_leads_to_another_rank_is_passed_over)
{
    UNUSED_STATE;
    for (int i = 0; i < 4; i++) { /* which of them comes first is a matter of chance */
        ranks_one ranks[3];
        char second[SH_ADDR_TEXT_MAX];
        astray a = {.second = second};
        sh_sock_close(ranks_listen(second));
        ranks_run(3, 3, join_astray, &a, ranks);
        for (int r = 0; r < 3; r++) CHECK_OK(ranks[r].status, ranks[r].err);
        for (int r = 0; r < 3; r++) sh_mesh_close(a.mesh[r]);
    }
}

/* Rank 0 goes on alone, since nobody is waited for any more. */
TEST(rank_0_may_form_a_group_alone)
{
    UNUSED_STATE;
    static sh_roster roster;
    char text[SH_ADDR_TEXT_MAX];
    ranks_one one = {.size = 2, .listen_fd = ranks_listen(text)};
    memcpy(one.coordinator, text, sizeof(text));
    sh_roster_init(&roster, 2, 0);
    sh_roster_formed(&roster, (int[]){0, 1}, 2);
    sh_roster_lost(&roster);
    sh_mesh_opts opts = ranks_opts(&one);
    opts.roster = &roster;
    sh_mesh *mesh;
    sh_err err;
    CHECK_OK(sh_mesh_join(&opts, &mesh, &err), err);
    assert_int_equal(mesh->size, 1);
    assert_non_null(mesh->acceptor);
    sh_mesh_close(mesh);
}

static void join_running(ranks_one *one)
{
    sh_mesh_opts opts = ranks_opts(one);
    static sh_roster roster;
    sh_mesh *mesh = NULL;
    if (one->rank == 0) {
        sh_roster_init(&roster, 2, 0);
        sh_roster_formed(&roster, (int[]){0, 1}, 2); /* it has served before */
        opts.roster = &roster;
    }
    if (one->rank == 2) {
        opts.size = 0;
        opts.model[0] = 0xab;
    }
    if (one->rank == 1) sh_sleep_ms(300); /* the misfit is refused by then */
    one->status = sh_mesh_join(&opts, &mesh, &one->err);
    sh_mesh_close(mesh);
}

TEST(a_rank_that_does_not_fit_cannot_break_a_group_that_has_served)
{
    UNUSED_STATE;
    ranks_one ranks[3];
    ranks_run(2, 3, join_running, NULL, ranks);
    CHECK_OK(ranks[0].status, ranks[0].err);
    CHECK_OK(ranks[1].status, ranks[1].err);
    CHECK_FAILS(ranks[2].status, ranks[2].err, "rank 2 has model ab00");
}

static void join_with_other_token(ranks_one *one)
{
    sh_mesh_opts opts = ranks_opts(one);
    opts.token = one->rank == 1 ? "fedcba9876543210fedcba9876543210" : RANKS_TOKEN;
    opts.join_ms = 1500;
    sh_mesh *mesh = NULL;
    one->status = sh_mesh_join(&opts, &mesh, &one->err);
    sh_mesh_close(mesh);
}

TEST(another_token_is_refused_and_both_sides_say_so)
{
    UNUSED_STATE;
    ranks_one ranks[2];
    ranks_run(2, 2, join_with_other_token, NULL, ranks);
    CHECK_FAILS(ranks[1].status, ranks[1].err, "tokens of the two ends differ");
    CHECK_FAILS(ranks[0].status, ranks[0].err, "missing rank 1");
    CHECK_FAILS(ranks[0].status, ranks[0].err, "tokens of the two ends differ");
    assert_int_equal(ranks[1].status, SH_ERR_AUTH);
}

TEST(without_a_token_only_loopback_is_served)
{
    UNUSED_STATE;
    sh_mesh_opts opts;
    sh_mesh_opts_init(&opts);
    opts.size = 2;
    opts.coordinator = "0.0.0.0:0";
    sh_mesh *mesh;
    sh_err err;
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "cluster token");
    assert_int_equal(err.status, SH_ERR_AUTH);
    opts.token = "short";
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "cluster token");
    opts.token = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "cluster token is too easy to guess");
    assert_null(strstr(err.text, "aaaa"));
    opts.token = NULL;
    opts.insecure = true;
    opts.join_ms = 50;
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "missing rank 1");
}

TEST(bad_options_are_named)
{
    UNUSED_STATE;
    sh_mesh_opts opts;
    sh_mesh *mesh;
    sh_err err;
    sh_mesh_opts_init(&opts);
    opts.size = 65;
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "world size 65");
    opts.size = 2;
    opts.rank = 2;
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "rank 2");
    opts.rank = 0;
    opts.lanes = 9;
    CHECK_FAILS(sh_mesh_join(&opts, &mesh, &err), err, "9 pairs");
}

TEST(a_group_of_one_needs_nobody)
{
    UNUSED_STATE;
    sh_mesh_opts opts;
    sh_mesh *mesh;
    sh_err err;
    sh_mesh_opts_init(&opts);
    CHECK_OK(sh_mesh_join(&opts, &mesh, &err), err);
    assert_int_equal(mesh->size, 1);
    sh_mesh_close(mesh);
}

/* Strangers: some send noise, some a byte now and then, some nothing; all stay connected. */
static void *pester(void *arg)
{
    const char *where = arg;
    enum { COUNT = 150 };
    static int fds[COUNT];
    sh_err err;
    sh_addr addr;
    if (sh_addr_parse(where, &addr, &err) != SH_OK) return NULL;
    for (int i = 0; i < COUNT; i++) {
        static const char noise[] = "\x16\x03\x01\xff\xff GET / HTTP/1.1\r\n\r\n\x5f\x01\x00\x00";
        if (sh_sock_connect(&addr, &fds[i], &err) != SH_OK) fds[i] = -1;
        struct pollfd p = {.fd = fds[i], .events = POLLOUT};
        poll(&p, 1, 100);
        if (fds[i] >= 0 && i % 3 != 0) {
            ssize_t put = write(fds[i], noise + i % 5, i % 3 == 1 ? sizeof(noise) - 5 : 1);
            (void)put;
        }
    }
    sh_sleep_ms(400);
    for (int i = 0; i < COUNT; i++) sh_sock_close(fds[i]);
    return NULL;
}

static void join_beside_strangers(ranks_one *one)
{
    static const setup set = {RANKS_TOKEN, false, &sh_transport_tcp, 1, "tls"};
    pthread_t thread;
    if (one->rank == 1) {
        pthread_create(&thread, NULL, pester, one->coordinator);
        sh_sleep_ms(100);
    }
    one->arg = (void *)(uintptr_t)&set;
    join_and_exchange(one);
    if (one->rank == 1) pthread_join(thread, NULL);
}

TEST(strangers_do_not_keep_a_group_from_forming)
{
    UNUSED_STATE;
    ranks_one ranks[2];
    sh_log_set_level(SH_LOG_ERROR);
    int64_t start = sh_clock_ns();
    ranks_run(2, 2, join_beside_strangers, NULL, ranks);
    for (int r = 0; r < 2; r++) CHECK_OK(ranks[r].status, ranks[r].err);
    assert_true(sh_clock_ns() - start < 3000000000);
}

/* Before rank 0 listens, a stranger does, and sends in plain text the alerts that a rank with
 * another token would cause. */
static void join_after_forged_alerts(ranks_one *one)
{
    static const uint8_t alerts[][7] = {{21, 3, 3, 0, 2, 2, 51},  /* decrypt_error */
                                        {21, 3, 3, 0, 2, 2, 47},  /* illegal_parameter */
                                        {21, 3, 3, 0, 2, 2, 40}}; /* handshake_failure */
    static const setup set = {RANKS_TOKEN, false, &sh_transport_tcp, 1, "tls"};
    for (size_t i = 0; one->rank == 0 && i < SH_COUNT_OF(alerts); i++) {
        struct pollfd p = {.fd = one->listen_fd, .events = POLLIN};
        poll(&p, 1, 5000);
        int fd = accept(one->listen_fd, NULL, NULL);
        ssize_t put = write(fd, alerts[i], sizeof(alerts[i]));
        (void)put;
        sh_sock_close(fd);
    }
    one->arg = (void *)(uintptr_t)&set;
    join_and_exchange(one);
}

TEST(a_forged_alert_does_not_end_a_joining_rank)
{
    UNUSED_STATE;
    ranks_one ranks[2];
    ranks_run(2, 2, join_after_forged_alerts, NULL, ranks);
    for (int r = 0; r < 2; r++) CHECK_OK(ranks[r].status, ranks[r].err);
}

/* A stranger that opens connections as fast as possible and keeps the last ones: silent, with the
 * start of a handshake, or with the complete first message of one for another token. */
typedef struct {
    char where[SH_ADDR_TEXT_MAX];
    char first[2048]; /* that message */
    size_t first_len;
    atomic_bool stop;
    atomic_int made;
} flood;

static void flood_prepare(flood *f, const char *where)
{
    sh_stream stream;
    sh_tls *tls = NULL;
    sh_err err;
    int pair[2];
    snprintf(f->where, sizeof(f->where), "%s", where);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || sh_sock_prepare(pair[0], &err) != SH_OK ||
        sh_tls_create("9b1f0c6e2d7a48b3a5c4e1f708d2963b", &tls, &err) != SH_OK)
        return;
    sh_stream_init(&stream, pair[0]);
    sh_status status = sh_stream_start_tls(&stream, tls, false, &err);
    if (status == SH_OK) status = sh_stream_handshake(&stream, &err);
    ssize_t got = status == SH_AGAIN ? read(pair[1], f->first, sizeof(f->first)) : 0;
    f->first_len = got > 0 ? (size_t)got : 0;
    sh_stream_close(&stream);
    sh_sock_close(pair[1]);
    sh_tls_free(tls);
}

static void *flood_run(void *arg)
{
    enum { HELD = 400, LATER = 20 };
    flood *f = arg;
    int fds[HELD];
    sh_err err;
    sh_addr addr;
    for (int i = 0; i < HELD; i++) fds[i] = -1;
    if (sh_addr_parse(f->where, &addr, &err) != SH_OK) return NULL;
    for (int n = 0; !atomic_load(&f->stop); n++) {
        int *fd = &fds[n % HELD], old = fds[(n + HELD - LATER) % HELD], kind = n % 3;
        sh_sock_close(*fd);
        if (sh_sock_connect(&addr, fd, &err) != SH_OK) *fd = -1;
        ssize_t put = kind == 0 || old < 0 ? 0
                                           : write(old, f->first, kind == 1 ? 11 : f->first_len);
        (void)put;
        atomic_fetch_add(&f->made, 1);
    }
    for (int i = 0; i < HELD; i++) sh_sock_close(fds[i]);
    return NULL;
}

static int64_t joined_ns;

static void join_in_a_flood(ranks_one *one)
{
    static const setup set = {RANKS_TOKEN, false, &sh_transport_tcp, 1, "tls"};
    if (one->rank == 1) sh_sleep_ms(500); /* the flood starts first */
    int64_t start = sh_clock_ns();
    one->arg = (void *)(uintptr_t)&set;
    join_and_exchange(one);
    if (one->rank == 1) joined_ns = sh_clock_ns() - start;
}

/* ranks_run starts ranks only: rank 0 starts the flood, which outlasts the joining. */
static flood flooding;

static void rank_in_a_flood(ranks_one *one)
{
    enum { THREADS = 3 };
    pthread_t thread[THREADS];
    if (one->rank == 0) flood_prepare(&flooding, one->coordinator);
    for (int i = 0; one->rank == 0 && i < THREADS; i++)
        pthread_create(&thread[i], NULL, flood_run, &flooding);
    join_in_a_flood(one);
    if (one->rank == 1) atomic_store(&flooding.stop, true);
    for (int i = 0; one->rank == 0 && i < THREADS; i++) pthread_join(thread[i], NULL);
}

TEST(a_flood_of_handshakes_keeps_no_rank_waiting)
{
    UNUSED_STATE;
    ranks_one ranks[2];
    ranks_run(2, 2, rank_in_a_flood, NULL, ranks);
    printf("# joined within %.2f s of a flood of %d connections\n", (double)joined_ns / 1e9,
           atomic_load(&flooding.made));
    for (int r = 0; r < 2; r++) CHECK_OK(ranks[r].status, ranks[r].err);
}

TEST(a_source_that_keeps_failing_has_to_wait)
{
    UNUSED_STATE;
    static sh_penalty penalty;
    sh_addr far, same, other, near;
    sh_err err;
    CHECK_OK(sh_addr_parse("10.1.2.3:1000", &far, &err), err);
    CHECK_OK(sh_addr_parse("10.1.2.3:2000", &same, &err), err);
    CHECK_OK(sh_addr_parse("10.1.2.4:1000", &other, &err), err);
    CHECK_OK(sh_addr_parse("127.0.0.1:1000", &near, &err), err);
    for (int i = 0; i < 2 * SH_PENALTY_FREE_TRIES; i++) {
        assert_int_equal(sh_deadline_passed(sh_penalty_start(&penalty, &same)),
                         i <= SH_PENALTY_FREE_TRIES);
        sh_penalty_add(&penalty, &far);
        sh_penalty_add(&penalty, &near);
    }
    assert_true(sh_deadline_passed(sh_penalty_start(&penalty, &other)));
    assert_true(sh_deadline_passed(sh_penalty_start(&penalty, &near)));
    for (int i = 0; i < SH_PENALTY_SOURCES; i++) { /* many others evict the first one */
        sh_addr_set_port(&other, 1);
        other.sa.v4.sin_addr.s_addr = htonl(0x0b000000u + (uint32_t)i);
        sh_penalty_add(&penalty, &other);
    }
    assert_true(sh_deadline_passed(sh_penalty_start(&penalty, &same)));
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_gets_a_port_of_the_asked_kind),
        cmocka_unit_test(a_rank_that_does_not_fit_is_named_on_every_rank),
        cmocka_unit_test(a_group_forms_with_holes_and_with_ranks_that_were_added),
        cmocka_unit_test(the_first_group_is_made_of_those_who_come_in_the_order_of_their_node_ids),
        cmocka_unit_test(an_address_that_leads_to_another_rank_is_passed_over),
        cmocka_unit_test(rank_0_may_form_a_group_alone),
        cmocka_unit_test(a_rank_that_does_not_fit_cannot_break_a_group_that_has_served),
        cmocka_unit_test(another_token_is_refused_and_both_sides_say_so),
        cmocka_unit_test(without_a_token_only_loopback_is_served),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(a_group_of_one_needs_nobody),
        cmocka_unit_test(strangers_do_not_keep_a_group_from_forming),
        cmocka_unit_test(a_forged_alert_does_not_end_a_joining_rank),
        cmocka_unit_test(a_flood_of_handshakes_keeps_no_rank_waiting),
        cmocka_unit_test(a_source_that_keeps_failing_has_to_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
