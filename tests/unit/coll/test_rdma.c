/* The RDMA transport over devices made of memory: addresses and GIDs, what is refused and in which
 * words, lost frames, a pulled cable, and that nothing is copied. That every operation works over
 * it is in coll/test_coll.c. */
#include "net/rdma.h"

#include "base/clock.h"
#include "base/log.h"
#include "coll/coll.h"
#include "net/rdma_address.h"
#include "unit/fake_verbs.h"
#include "unit/ranks.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>

/* ---- addresses ---- */

static sh_rdma_gid gid_of(sh_rdma_gid_type type, const char *text)
{
    sh_rdma_gid gid = {.type = type};
    assert_int_equal(inet_pton(AF_INET6, text, gid.raw), 1);
    return gid;
}

static const char *best_of(const char *const *texts, const sh_rdma_gid *near)
{
    const char *best = "none";
    int value = 0;
    for (; *texts != NULL; texts++) {
        bool old = **texts == '1'; /* of the first version of RoCE */
        sh_rdma_gid gid = gid_of(old ? SH_RDMA_GID_ROCE_1 : SH_RDMA_GID_ROCE_2, *texts + old);
        int this = sh_rdma_gid_value(&gid, near);
        if (this > value) value = this, best = *texts;
    }
    return best;
}

TEST(the_gid_that_reaches_furthest_is_offered)
{
    UNUSED_STATE;
    static const struct {
        const char *gids[5];
        const char *best;
    } ports[] = {
        {{"fe80::1", "::ffff:10.0.0.1"}, "::ffff:10.0.0.1"},
        {{"1::ffff:10.0.0.1", "::ffff:10.0.0.1"}, "::ffff:10.0.0.1"},
        {{"fe80::1", "::ffff:169.254.1.1", "2001:db8::1"}, "2001:db8::1"},
        {{"fe80::1", "::ffff:169.254.1.1"}, "::ffff:169.254.1.1"},
        {{"1::ffff:10.0.0.1", "fe80::1"}, "fe80::1"},
        {{"1fe80::1", "1::ffff:10.0.0.1"}, "1::ffff:10.0.0.1"},
        {{NULL}, "none"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(ports); i++)
        assert_string_equal(best_of(ports[i].gids, NULL), ports[i].best);
}

TEST(the_gid_in_the_network_of_the_peer_answers)
{
    UNUSED_STATE;
    static const char *const gids[] = {"fe80::1",
                                       "1::ffff:10.0.1.1",
                                       "::ffff:10.0.0.1",
                                       "::ffff:10.0.1.1",
                                       "::ffff:10.0.2.1",
                                       "2001:db8::1",
                                       NULL};
    sh_rdma_gid near = gid_of(SH_RDMA_GID_ROCE_2, "::ffff:10.0.1.2");
    assert_string_equal(best_of(gids, &near), "::ffff:10.0.1.1");
    near = gid_of(SH_RDMA_GID_ROCE_2, "fe80::2");
    assert_string_equal(best_of(gids, &near), "fe80::1");
    near = gid_of(SH_RDMA_GID_ROCE_1, "::ffff:10.0.1.2");
    assert_string_equal(best_of(gids, &near), "1::ffff:10.0.1.1");
    near = gid_of(SH_RDMA_GID_IB, "fe80::2");
    assert_string_equal(best_of(gids, &near), "none");
}

TEST(routed_addresses_win_over_link_local_ones_of_similar_macs)
{
    UNUSED_STATE;
    sh_rdma_gid v4[] = {gid_of(SH_RDMA_GID_ROCE_2, "::ffff:10.79.1.1"),
                        gid_of(SH_RDMA_GID_ROCE_2, "::ffff:10.79.200.2")};
    sh_rdma_gid local[] = {gid_of(SH_RDMA_GID_ROCE_2, "fe80::5054:ff:fe00:100"),
                           gid_of(SH_RDMA_GID_ROCE_2, "fe80::5054:ff:fe00:101")};
    assert_true(sh_rdma_gid_value(&v4[0], &v4[1]) > sh_rdma_gid_value(&local[0], &local[1]));
}

TEST(addresses_travel_in_an_offer)
{
    UNUSED_STATE;
    sh_rdma_addresses from = {.send_only = true,
                              .any = true,
                              .chosen = 3,
                              .depth = 16,
                              .slot_len = 65600,
                              .frame_len = 1 << 18,
                              .count = SH_LANES_MAX},
                      to;
    sh_offer offer = {0};
    sh_err err;
    for (int i = 0; i < from.count; i++)
        from.lane[i] = (sh_rdma_address){.lid = (uint16_t)(60000 + i),
                                         .gid = {gid_of(SH_RDMA_GID_ROCE_2, "::ffff:10.0.0.1"),
                                                 gid_of(SH_RDMA_GID_ROCE_1, "2001:db8::1"),
                                                 gid_of(SH_RDMA_GID_ROCE_2, "fe80::1")},
                                         .qpn = {0xfffffe, (uint32_t)i},
                                         .psn = 0xabcdef,
                                         .mtu = 4096};
    sh_rdma_addresses_pack(&from, &offer);
    CHECK_OK(sh_rdma_addresses_unpack(&offer, &to, &err), err);
    assert_memory_equal(&from, &to, sizeof(from));
    for (uint32_t len = 0; len < offer.body_len; len++) { /* cut anywhere */
        sh_offer cut = offer;
        cut.body_len = len;
        assert_int_equal(sh_rdma_addresses_unpack(&cut, &to, &err), SH_ERR_PEER);
    }
    for (int i = 0; i < 4; i++) { /* too little to work with */
        sh_rdma_addresses less = from;
        if (i == 2) memset(less.lane[0].gid, 0, sizeof(less.lane[0].gid));
        if (i == 3) less.lane[0].gid[SH_RDMA_IPV6] = less.lane[0].gid[SH_RDMA_LINK_LOCAL];
        less.depth = i == 0 ? 7 : from.depth;
        less.slot_len = i == 1 ? 127 : from.slot_len;
        sh_offer small = {0};
        sh_rdma_addresses_pack(&less, &small);
        CHECK_FAILS(sh_rdma_addresses_unpack(&small, &to, &err), err, "the offer is malformed");
    }
    offer.body[0] = SH_LANES_MAX + 1;
    CHECK_FAILS(sh_rdma_addresses_unpack(&offer, &to, &err), err, "9 lanes, must be 1 to 8");
}

/* ---- groups ---- */

typedef struct {
    const char *names[2][3];              /* of ranks 0 and 1; without any, all active ones */
    const char *gids[3][FAKE_DEVICES][3]; /* by rank; see fake_gids */
    bool listed, partial;
    int op_ms;
    bool registered; /* register the memory of the sums */
    int sums;        /* long and short ones */
    int lose_after;  /* rank 1 pulls its cable after so many; 0: never */
    bool unplug;     /* its device vanishes instead */
    bool leave;      /* rank 1 then leaves, and rank 0 waits for a message from it */
    atomic_long copied;
    const char *path; /* of the pair */
} setup;

static sh_status sum(sh_group *group, float *x, size_t count, sh_err *err)
{
    int size = sh_group_size(group);
    for (size_t i = 0; i < count; i++) x[i] = (float)sh_group_rank(group);
    sh_status status = sh_coll_allreduce(group, x, 1, count, SH_CODEC_F32, err);
    for (size_t i = 0; status == SH_OK && i < count; i++)
        if (x[i] != (float)(size * (size - 1) / 2))
            return sh_err_set(err, SH_ERR_GROUP, "the sum is wrong at %zu", i);
    return status;
}

enum { LONG = 300000, SHORT = 1001 };

static sh_status sums(sh_group *group, setup *set, const sh_rdma *rdma, sh_err *err)
{
    static _Thread_local float x[LONG];
    sh_status status = set->registered ? sh_group_register_memory(group, x, sizeof(x), err) : SH_OK;
    uint64_t before = sh_rdma_copied(rdma);
    for (int i = 0; i < set->sums && status == SH_OK; i++) {
        if (set->lose_after > 0 && i == set->lose_after && sh_group_rank(group) == 1)
            (set->unplug ? fake_unplug : fake_pull_cable)(0);
        status = sum(group, x, i % 2 == 0 ? SHORT : LONG, err);
    }
    if (status == SH_OK) status = sh_coll_barrier(group, err);
    if (status == SH_OK && set->leave && sh_group_rank(group) == 0)
        status = sh_coll_recv(group, 1, x, sizeof(x), err);
    atomic_fetch_add(&set->copied, (long)(sh_rdma_copied(rdma) - before));
    return status;
}

static void run(ranks_one *one)
{
    setup *set = one->arg;
    memcpy(fake_gids, set->gids[one->rank], sizeof(fake_gids));
    const char *const *lists[2] = {one->rank == 0 ? NULL : set->names[1],
                                   one->rank == 0 ? set->names[0] : NULL};
    sh_rdma_devices devices = {.size = 2, .names = lists, .partial = set->partial};
    sh_rdma_opts rdma_opts = {.plugin = &FAKE_VERBS, .devices = set->listed ? &devices : NULL};
    sh_rdma *rdma = NULL;
    sh_group *group = NULL;
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.wanted = &sh_transport_rdma;
    opts.op_ms = set->op_ms > 0 ? set->op_ms : 20000;
    opts.silence_ms = 10000;
    opts.spin_us = 0;
    one->status = sh_rdma_open(&rdma_opts, &rdma, &one->err);
    opts.mesh.library = rdma;
    if (one->status == SH_OK) one->status = sh_group_open(&opts, &group, &one->err);
    int peer = one->rank == 0 ? 1 : 0;
    if (one->status == SH_OK && set->path != NULL &&
        strcmp(sh_group_path(group, peer), set->path) != 0)
        one->status = sh_err_set(&one->err, SH_ERR_GROUP, "the pair uses %s",
                                 sh_group_path(group, peer));
    if (one->status == SH_OK) one->status = sums(group, set, rdma, &one->err);
    sh_group_close(group);
    sh_rdma_close(rdma);
}

static void all_pass(int size, setup *set)
{
    ranks_one ranks[3];
    ranks_run(size, size, run, set, ranks);
    for (int r = 0; r < size; r++) CHECK_OK(ranks[r].status, ranks[r].err);
    assert_int_equal(FAKE.unposted + FAKE.bad_writes + FAKE.registered, 0);
}

static void both_pass(setup *set)
{
    all_pass(2, set);
}

/* Both ranks end with this text in their error. */
static void both_fail(setup *set, const char *text)
{
    ranks_one ranks[2];
    ranks_run(2, 2, run, set, ranks);
    for (int r = 0; r < 2; r++) CHECK_FAILS(ranks[r].status, ranks[r].err, text);
    assert_int_equal(FAKE.registered, 0);
}

TEST(registered_memory_is_never_copied)
{
    UNUSED_STATE;
    for (int inline_max = 0; inline_max <= 128; inline_max += 128) {
        fake_reset();
        FAKE.inline_max = (uint32_t)inline_max;
        setup set = {.sums = 40, .registered = true, .path = "rdma"};
        both_pass(&set);
        assert_int_equal(atomic_load(&set.copied), 0);
        set.registered = false;
        both_pass(&set);
        assert_true(atomic_load(&set.copied) > 0);
    }
}

TEST(devices_are_named_or_found)
{
    UNUSED_STATE;
    fake_reset();
    setup two = {.names = {{"fake0", "fake1"}, {"fake0", "fake1"}},
                 .listed = true,
                 .sums = 4,
                 .path = "rdma"};
    both_pass(&two);
    setup port = {.names = {{"fake1:1"}, {"fake1"}}, .listed = true, .sums = 4, .path = "rdma"};
    both_pass(&port);
    fake_pull_cable(0); /* and none is named: the other one is found */
    setup any = {.sums = 4, .path = "rdma"};
    both_pass(&any);
}

/* Three ranks, a cable between each two of them, and no names. */
TEST(without_names_a_pair_uses_the_ports_that_reach_each_other)
{
    UNUSED_STATE;
    fake_reset();
    setup triangle = {.gids = {{{"::ffff:10.254.1.1"}, {"::ffff:10.254.2.1"}},
                               {{"::ffff:10.254.1.2"}, {"::ffff:10.254.3.1"}},
                               {{"::ffff:10.254.2.2"}, {"::ffff:10.254.3.2"}}},
                      .sums = 4,
                      .path = "rdma"};
    all_pass(3, &triangle);
    fake_reset();
    FAKE.ports = 2; /* and only the second one has a cable */
    FAKE.port_down[0] = FAKE.port_down[1] = true;
    setup second = {.sums = 4, .path = "rdma"};
    both_pass(&second);
}

TEST(a_pair_uses_a_class_of_addresses_that_both_have)
{
    UNUSED_STATE;
    fake_reset();
    setup set = {.gids = {{{"2001:db8::1", "fe80::1"}, {"fe80:1::1"}},
                          {{"::ffff:10.0.0.2", "fe80::2"}, {"::ffff:10.0.9.2"}}},
                 .sums = 4,
                 .path = "rdma"};
    both_pass(&set);
    setup none = {
        .gids = {{{"2001:db8::1"}, {"2001:db8:1::1"}}, {{"::ffff:10.0.0.2"}, {"::ffff:10.0.9.2"}}}};
    both_fail(&none, "fake0 has no GID that reaches ::ffff:10.0.0.2; give both interfaces an "
                     "address in the same network");
}

TEST(pairs_without_devices_use_sockets_only_if_that_was_asked_for)
{
    UNUSED_STATE;
    fake_reset();
    setup ring = {.listed = true, .partial = true, .sums = 4, .path = "shm"};
    both_pass(&ring);
    setup mesh = {.listed = true};
    both_fail(&mesh, "RDMA was asked for between ranks 0 and 1, but rank 1 has no RDMA device for "
                     "rank 0 in its device list");
    setup one_end = {.names = {{NULL}, {"fake0"}}, .listed = true, .partial = true};
    both_fail(&one_end, "RDMA was asked for between ranks 0 and 1");
    setup uneven = {.names = {{"fake0"}, {"fake0", "fake1"}}, .listed = true};
    both_fail(&uneven, "rank 0 lists 1 devices for it; must be 2, as on the other end");
}

TEST(a_device_that_cannot_be_used_is_named_with_what_to_do)
{
    UNUSED_STATE;
    fake_reset();
    setup wrong = {.names = {{"mlx5_0"}, {"fake0"}}, .listed = true};
    both_fail(&wrong, "there is no RDMA device 'mlx5_0' on this machine, only fake0, fake1");
    setup bad = {.names = {{"fake0:9"}, {"fake0"}}, .listed = true};
    both_fail(&bad, "'fake0:9' is not an RDMA device; must be a name, or name:port");
    setup fine = {.names = {{"fake0"}, {"fake0"}}, .listed = true};
    FAKE.open_error = EBUSY;
    both_fail(&fine, "fake0: opening it: the device is busy; if a program that used it was killed, "
                     "wait 30 s");
    fake_reset();
    FAKE.register_error = ENODEV;
    both_fail(&fine, "the device is gone");
    fake_reset();
    FAKE.port_down[0] = true;
    both_fail(&fine, "port 1 of fake0 is down; check the cable");
    fake_reset();
    FAKE.depth = 4;
    both_fail(&fine, "fake0 can queue 4 frames");
    fake_reset();
    FAKE.no_kind[SH_RDMA_RC] = FAKE.no_kind[SH_RDMA_UC] = true;
    both_fail(&fine, "fake0: creating a queue pair");
    fake_reset();
    FAKE.create_error = ENOMEM;
    both_fail(&fine, "creating a queue pair (the device may have no more of them)");
}

TEST(a_lost_frame_ends_the_group_within_seconds)
{
    UNUSED_STATE;
    for (int frame = 3; frame <= 23; frame += 4) {
        fake_reset();
        FAKE.no_kind[SH_RDMA_RC] = true;
        FAKE.drop = frame;
        setup set = {.sums = 40, .op_ms = 6000};
        both_fail(&set, "RDMA over fake0: frames were lost; check the cable");
    }
    for (int frame = 3; frame <= 11; frame += 4) {
        fake_reset();
        FAKE.send_only = true;
        FAKE.frame_max = 4096;
        FAKE.drop = frame;
        setup set = {.sums = 40, .op_ms = 6000};
        both_fail(&set, "RDMA over fake0: frames were lost; check the cable");
    }
    fake_reset();
    FAKE.drop = 9; /* a reliable queue pair notices by itself */
    setup set = {.sums = 40};
    both_fail(&set, "RDMA over fake0: the peer does not acknowledge; check the cable");
}

/* Every message is copied into frames; long ones are also copied out of them. */
TEST(a_device_that_only_sends_copies_once_on_each_end)
{
    UNUSED_STATE;
    fake_reset();
    FAKE.send_only = true;
    FAKE.frame_max = 16384;
    setup set = {.sums = 1, .path = "rdma"};
    both_pass(&set); /* a short sum, taken where it arrives, and a barrier */
    assert_in_range(atomic_load(&set.copied), 2 * SHORT * sizeof(float), 3 * SHORT * sizeof(float));
    set.sums = 40;
    both_pass(&set);
    fake_pull_cable(0);
    fake_pull_cable(1);
    both_fail(&set, "is down; check the cable");
}

TEST(lengths_of_a_device_that_only_sends_are_refused_or_rounded)
{
    UNUSED_STATE;
    fake_reset();
    FAKE.send_only = true;
    FAKE.frame_max = 2048;
    setup set = {.sums = 4};
    both_fail(&set, "needs frames of at least 4096 bytes");
    FAKE.frame_max = 12000;
    both_pass(&set);
}

/* A message goes around three ranks, and its first hop is lost: the rank that sent it waits for the
 * last hop, and must help the rank that waits for the first. */
static void run_around(ranks_one *one)
{
    char x[5000] = {0};
    int next = (one->rank + 1) % 3, last = (one->rank + 2) % 3;
    sh_rdma *rdma = NULL;
    sh_group *group = NULL;
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.wanted = &sh_transport_rdma;
    opts.op_ms = 60000;
    opts.silence_ms = 10000;
    opts.spin_us = 0;
    one->status = sh_rdma_open(&(sh_rdma_opts){.plugin = &FAKE_VERBS}, &rdma, &one->err);
    opts.mesh.library = rdma;
    if (one->status == SH_OK) one->status = sh_group_open(&opts, &group, &one->err);
    if (one->status == SH_OK && one->rank == 0)
        one->status = sh_coll_send(group, next, x, sizeof(x), &one->err);
    if (one->status == SH_OK) one->status = sh_coll_recv(group, last, x, sizeof(x), &one->err);
    if (one->status == SH_OK && one->rank != 0)
        one->status = sh_coll_send(group, next, x, sizeof(x), &one->err);
    if (one->status == SH_OK) one->status = sh_coll_barrier(group, &one->err);
    sh_group_close(group);
    sh_rdma_close(rdma);
}

TEST(a_frame_lost_toward_a_rank_that_nobody_waits_for_is_noticed)
{
    UNUSED_STATE;
    for (int send_only = 0; send_only < 2; send_only++) {
        fake_reset();
        FAKE.no_kind[SH_RDMA_RC] = true;
        FAKE.send_only = send_only == 1;
        FAKE.frame_max = send_only ? 16384 : 1 << 20;
        FAKE.drop_len = send_only ? 0 : SH_OP_HEAD_LEN + 5000;
        FAKE.drop = send_only ? 7 : 0; /* after two greetings for each pair */
        ranks_one ranks[3];
        int64_t start_ns = sh_clock_ns();
        ranks_run(3, 3, run_around, NULL, ranks);
        for (int r = 0; r < 3; r++)
            CHECK_FAILS(ranks[r].status, ranks[r].err,
                        "RDMA over fake0: frames were lost; check the cable");
        assert_true(sh_clock_ns() - start_ns < 10 * (int64_t)1000000000);
    }
}

TEST(a_pulled_cable_ends_the_group_at_once)
{
    UNUSED_STATE;
    fake_reset();
    setup set = {.sums = 200, .lose_after = 7};
    both_fail(&set, "port 1 of fake0 went down; check the cable");
}

TEST(a_device_that_vanishes_ends_the_group)
{
    UNUSED_STATE;
    fake_reset();
    setup set = {.sums = 200, .lose_after = 7, .unplug = true};
    both_fail(&set, "fake0 is gone; check the cable, or load its driver");
}

/* Unreliable queue pairs say nothing about a peer that is no longer there. */
TEST(a_rank_that_waits_for_one_that_has_left_is_told)
{
    UNUSED_STATE;
    fake_reset();
    FAKE.no_kind[SH_RDMA_RC] = true;
    setup set = {.sums = 2, .leave = true, .op_ms = 60000};
    ranks_one ranks[2];
    ranks_run(2, 2, run, &set, ranks);
    CHECK_OK(ranks[1].status, ranks[1].err);
    CHECK_FAILS(ranks[0].status, ranks[0].err, "left during message");
}

TEST(without_the_plugin_it_says_what_to_install)
{
    UNUSED_STATE;
    sh_rdma *rdma;
    sh_err err;
    sh_rdma_opts opts = {.dir = "/nonexistent"};
    CHECK_FAILS(sh_rdma_open(&opts, &rdma, &err), err, "install libibverbs-dev and run make again");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gid_that_reaches_furthest_is_offered),
        cmocka_unit_test(the_gid_in_the_network_of_the_peer_answers),
        cmocka_unit_test(routed_addresses_win_over_link_local_ones_of_similar_macs),
        cmocka_unit_test(addresses_travel_in_an_offer),
        cmocka_unit_test(registered_memory_is_never_copied),
        cmocka_unit_test(devices_are_named_or_found),
        cmocka_unit_test(without_names_a_pair_uses_the_ports_that_reach_each_other),
        cmocka_unit_test(a_pair_uses_a_class_of_addresses_that_both_have),
        cmocka_unit_test(pairs_without_devices_use_sockets_only_if_that_was_asked_for),
        cmocka_unit_test(a_device_that_cannot_be_used_is_named_with_what_to_do),
        cmocka_unit_test(a_lost_frame_ends_the_group_within_seconds),
        cmocka_unit_test(a_device_that_only_sends_copies_once_on_each_end),
        cmocka_unit_test(lengths_of_a_device_that_only_sends_are_refused_or_rounded),
        cmocka_unit_test(a_frame_lost_toward_a_rank_that_nobody_waits_for_is_noticed),
        cmocka_unit_test(a_pulled_cable_ends_the_group_at_once),
        cmocka_unit_test(a_device_that_vanishes_ends_the_group),
        cmocka_unit_test(a_rank_that_waits_for_one_that_has_left_is_told),
        cmocka_unit_test(without_the_plugin_it_says_what_to_install),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
