/* The link between the keeper of models and its workers: what is packed and refused, and a worker
 * that comes, speaks, goes and comes back, over loopback. */
#include "cluster/model_hosts.h"

#include "base/version.h"
#include "net/cluster_token.h"
#include "net/connector.h"
#include "net/sock.h"

#include "test.h"

enum { PATIENCE_MS = 30000 };

static const sh_model_message start = {.kind = SH_MODEL_START,
                                       .load = 7,
                                       .rank = 1,
                                       .ranks = 2,
                                       .port = 4711,
                                       .kv_tokens = 512,
                                       .name = "org/name",
                                       .dir = "/models/org/name"};

static sh_status unpack(const sh_model_message *message, size_t cut, sh_model_message *out)
{
    sh_buf frame = {0};
    sh_err err;
    sh_model_message_pack(&frame, message);
    sh_status status = sh_model_message_unpack((const uint8_t *)frame.ptr + SH_FRAME_HEAD_LEN,
                                               frame.len - SH_FRAME_HEAD_LEN - cut, out, &err);
    sh_buf_reset(&frame);
    return status;
}

TEST(a_message_is_read_as_it_was_written)
{
    UNUSED_STATE;
    sh_model_message got;
    assert_int_equal(unpack(&start, 0, &got), SH_OK);
    assert_int_equal(got.kind, SH_MODEL_START);
    assert_int_equal(got.load, 7);
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.ranks, 2);
    assert_int_equal(got.port, 4711);
    assert_int_equal(got.kv_tokens, 512);
    assert_string_equal(got.name, "org/name");
    assert_string_equal(got.dir, "/models/org/name");
}

TEST(what_makes_no_sense_is_refused)
{
    UNUSED_STATE;
    sh_model_message got, bad;
    for (size_t cut = 1; cut < 50; cut++) assert_int_not_equal(unpack(&start, cut, &got), SH_OK);
    bad = start, bad.rank = 2;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, bad.rank = 0;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, bad.ranks = SH_RANKS_MAX + 1;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, bad.port = 0;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, bad.kind = SH_MODEL_KIND_END;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, bad.memory = -1;
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
    bad = start, strcpy(bad.name, "a\nb");
    assert_int_not_equal(unpack(&bad, 0, &got), SH_OK);
}

/* ---- a keeper and a worker in one thread ---- */

static struct {
    sh_model_hosts *hosts;
    char address[SH_ADDR_TEXT_MAX];
    char token[SH_CLUSTER_TOKEN_LEN + 1];
    int came, went, host;
    sh_model_message said;
} keeper;

static struct {
    sh_tls *tls;
    sh_connector connector;
    sh_model_link link;
    sh_model_message got;
    sh_err err;
    bool refused;
} worker;

static void on_came(void *arg, int host)
{
    (void)arg;
    keeper.came++;
    keeper.host = host;
}

static void on_went(void *arg, int host)
{
    (void)arg;
    keeper.went++;
    assert_int_equal(host, keeper.host);
}

static void on_said(void *arg, int host, const sh_model_message *message)
{
    (void)arg;
    assert_int_equal(host, keeper.host);
    keeper.said = *message;
}

static void keeper_open(void)
{
    const sh_model_hosts_hooks hooks = {on_came, on_went, on_said, NULL};
    sh_err err;
    sh_addr addr;
    int fd;
    memset(&keeper, 0, sizeof(keeper));
    sh_cluster_token_make(keeper.token);
    /* A port that was free a moment ago. */
    assert_int_equal(sh_addr_parse("127.0.0.1:0", &addr, &err), SH_OK);
    assert_int_equal(sh_sock_listen(&addr, &fd, &err), SH_OK);
    assert_int_equal(sh_sock_local(fd, &addr, &err), SH_OK);
    sh_addr_format(&addr, keeper.address);
    sh_sock_close(fd);
    CHECK_OK(sh_model_hosts_open(keeper.address, keeper.token, false, &hooks, &keeper.hosts, &err),
             err);
}

static void worker_open(const char *token, sh_peer_conn_use use, uint8_t node)
{
    sh_hello hello = {
        .protocol = SH_PEER_PROTOCOL, .rank = SH_RANK_ANY, .use = use, .node = {node}};
    sh_err err;
    snprintf(hello.version, sizeof(hello.version), "%s", sh_version());
    memset(&worker, 0, sizeof(worker));
    CHECK_OK(sh_tls_create(token, &worker.tls, &err), err);
    sh_connector_init(&worker.connector, keeper.address, worker.tls, &hello, 5000);
}

static void worker_close(void)
{
    sh_connector_reset(&worker.connector);
    sh_model_link_close(&worker.link);
    sh_tls_free(worker.tls);
}

static void worker_step(void)
{
    if (worker.link.conn != NULL) {
        sh_model_message got;
        sh_status status = sh_model_link_step(&worker.link, &got, &worker.err);
        if (status == SH_OK) worker.got = got;
        assert_true(status >= 0);
        return;
    }
    sh_status status = worker.refused ? SH_AGAIN
                                      : sh_connector_step(&worker.connector, &worker.err);
    worker.refused = worker.refused || status < 0;
    if (status != SH_OK) return;
    sh_model_link_open(&worker.link, sh_connector_take(&worker.connector));
    sh_model_message host = {.kind = SH_MODEL_HOST, .memory = 1e9, .text = "h1"};
    sh_model_link_send(&worker.link, &host);
}

static bool has_come(void)
{
    return keeper.came > 0;
}

static bool has_said(void)
{
    return keeper.said.kind != 0;
}

static bool has_got(void)
{
    return worker.got.kind != 0;
}

static bool has_gone(void)
{
    return keeper.went > 0;
}

static bool is_refused(void)
{
    return worker.refused;
}

static void until(bool (*condition)(void))
{
    sh_deadline end = sh_deadline_in_ms(PATIENCE_MS);
    while (!condition()) {
        assert_false(sh_deadline_passed(end));
        worker_step();
        sh_model_hosts_poll(keeper.hosts);
        sh_sleep_ms(1);
    }
}

TEST(a_worker_comes_speaks_goes_and_comes_back)
{
    UNUSED_STATE;
    keeper_open();
    worker_open(keeper.token, SH_USE_MODELS, 1);
    until(has_come);
    assert_true(sh_model_hosts_here(keeper.hosts, keeper.host));
    assert_string_equal(sh_model_hosts_name(keeper.hosts, keeper.host), "h1");
    assert_true(sh_model_hosts_memory(keeper.hosts, keeper.host) == 1e9);
    sh_model_hosts_send(keeper.hosts, keeper.host, &start);
    until(has_got);
    assert_string_equal(worker.got.name, "org/name");
    sh_model_message up = {.kind = SH_MODEL_UP, .load = 7};
    sh_model_link_send(&worker.link, &up);
    until(has_said);
    assert_int_equal(keeper.said.load, 7);
    int host = keeper.host;
    worker_close();
    sh_deadline end = sh_deadline_in_ms(PATIENCE_MS);
    while (!has_gone() && !sh_deadline_passed(end)) sh_model_hosts_poll(keeper.hosts);
    assert_int_equal(keeper.went, 1);
    assert_int_equal(sh_model_hosts_count(keeper.hosts), 0);
    keeper.came = 0;
    worker_open(keeper.token, SH_USE_MODELS, 1);
    until(has_come);
    assert_int_equal(keeper.host, host);
    worker_close();
    sh_model_hosts_close(keeper.hosts);
}

TEST(a_worker_for_one_model_is_told_what_is_wrong)
{
    UNUSED_STATE;
    keeper_open();
    worker_open(keeper.token, SH_USE_JOIN, 1);
    until(is_refused);
    assert_non_null(strstr(worker.err.text, "--models-dir"));
    assert_int_equal(keeper.came, 0);
    worker_close();
    sh_model_hosts_close(keeper.hosts);
}

TEST(a_stranger_is_not_heard)
{
    UNUSED_STATE;
    char other[SH_CLUSTER_TOKEN_LEN + 1];
    sh_cluster_token_make(other);
    keeper_open();
    worker_open(other, SH_USE_MODELS, 1);
    sh_deadline end = sh_deadline_in_ms(300);
    while (!sh_deadline_passed(end)) {
        worker_step();
        sh_model_hosts_poll(keeper.hosts);
    }
    assert_int_equal(keeper.came, 0);
    worker_close();
    sh_model_hosts_close(keeper.hosts);
}

TEST(a_network_without_a_token_is_refused)
{
    UNUSED_STATE;
    sh_model_hosts *hosts = NULL;
    const sh_model_hosts_hooks hooks = {on_came, on_went, on_said, NULL};
    sh_err err;
    assert_int_equal(sh_model_hosts_open("192.0.2.1:4711", NULL, false, &hooks, &hosts, &err),
                     SH_ERR_AUTH);
    assert_non_null(strstr(err.text, "cluster token"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_read_as_it_was_written),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_worker_comes_speaks_goes_and_comes_back),
        cmocka_unit_test(a_worker_for_one_model_is_told_what_is_wrong),
        cmocka_unit_test(a_stranger_is_not_heard),
        cmocka_unit_test(a_network_without_a_token_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
