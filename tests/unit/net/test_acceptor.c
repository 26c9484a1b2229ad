/* Which connections the acceptor keeps when there are more than it has slots. */
#include "net/acceptor.h"

#include "base/log.h"
#include "net/sock.h"

#include "test.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { STRANGERS = 2 * SH_ACCEPTOR_PENDING_MAX };

static sh_err err;

static sh_tls *tls_make(const char *token)
{
    sh_tls *tls = NULL;
    CHECK_OK(sh_tls_create(token, &tls, &err), err);
    return tls;
}

static sh_acceptor *gate_make(sh_tls *tls, sh_addr *addr)
{
    sh_acceptor *acceptor = NULL;
    const sh_addr *own;
    CHECK_OK(sh_addr_parse("127.0.0.1:0", addr, &err), err);
    CHECK_OK(sh_acceptor_open(addr, 1, tls, 60000, &acceptor, &err), err);
    assert_int_equal(sh_acceptor_addrs(acceptor, &own), 1);
    *addr = own[0];
    return acceptor;
}

static void knock(const sh_addr *addr, int *fd, const char *bytes, size_t len)
{
    CHECK_OK(sh_sock_connect(addr, fd, &err), err);
    struct pollfd p = {.fd = *fd, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, 2000), 1);
    if (len > 0) assert_int_equal(write(*fd, bytes, len), (ssize_t)len);
}

static void nobody_yet(sh_acceptor *acceptor)
{
    sh_peer_conn *link;
    assert_int_equal(sh_acceptor_step(acceptor, &link, &err), SH_AGAIN);
}

TEST(a_proof_of_the_token_keeps_its_place)
{
    UNUSED_STATE;
    static const char start[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    static int fds[STRANGERS];
    sh_tls *tls = tls_make("9b1f0c6e2d7a48b3a5c4e1f708d2963b");
    sh_addr addr;
    sh_acceptor *acceptor = gate_make(tls, &addr);
    sh_hello hello = {.protocol = SH_PEER_PROTOCOL, .world = 2, .rank = 1, .use = SH_USE_JOIN};
    sh_peer_conn *mine = NULL, *theirs = NULL;
    CHECK_OK(sh_peer_conn_connect(&addr, tls, &hello, sh_deadline_in_ms(20000), &mine, &err), err);
    for (int i = 0; i < 100 && !sh_peer_conn_is_connected(mine); i++) {
        assert_int_equal(sh_peer_conn_step(mine, &err), SH_AGAIN);
        nobody_yet(acceptor);
    }
    sh_sleep_ms(20); /* its first message is on the way */
    nobody_yet(acceptor);
    for (int i = 0; i < STRANGERS; i++) {
        knock(&addr, &fds[i], start, i % 2 == 0 ? 0 : sizeof(start) - 1);
        nobody_yet(acceptor);
    }
    sh_deadline end = sh_deadline_in_ms(30000);
    sh_status status = SH_AGAIN;
    while (status == SH_AGAIN && !sh_deadline_passed(end)) {
        sh_status dialled = sh_peer_conn_step(mine, &err);
        if (dialled < 0) fail_msg("the rank was rejected: %s", err.text);
        status = sh_acceptor_step(acceptor, &theirs, &err);
    }
    assert_int_equal(status, SH_OK);
    assert_int_equal(sh_peer_conn_peer(theirs)->rank, 1);
    for (int i = 0; i < STRANGERS; i++) sh_sock_close(fds[i]);
    sh_peer_conn_close(mine);
    sh_peer_conn_close(theirs);
    sh_acceptor_close(acceptor);
    sh_tls_free(tls);
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0;
}

TEST(silent_connections_are_dropped_first)
{
    UNUSED_STATE;
    static const char start[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    static int fds[SH_ACCEPTOR_PENDING_MAX + 1];
    sh_tls *tls = tls_make("9b1f0c6e2d7a48b3a5c4e1f708d2963b");
    sh_addr addr;
    sh_acceptor *acceptor = gate_make(tls, &addr);
    for (int i = 0; i < SH_ACCEPTOR_PENDING_MAX; i++) {
        knock(&addr, &fds[i], start, i == 7 ? 0 : sizeof(start) - 1);
        nobody_yet(acceptor);
        nobody_yet(acceptor);
    }
    sh_sleep_ms(20);
    nobody_yet(acceptor);
    knock(&addr, &fds[SH_ACCEPTOR_PENDING_MAX], "", 0);
    nobody_yet(acceptor);
    sh_sleep_ms(20);
    for (int i = 0; i <= SH_ACCEPTOR_PENDING_MAX; i++) assert_int_equal(is_open(fds[i]), i != 7);
    for (int i = 0; i <= SH_ACCEPTOR_PENDING_MAX; i++) sh_sock_close(fds[i]);
    sh_acceptor_close(acceptor);
    sh_tls_free(tls);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_of_the_token_keeps_its_place),
        cmocka_unit_test(silent_connections_are_dropped_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
