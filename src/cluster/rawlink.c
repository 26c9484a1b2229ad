/* Raw sockets to compare a group's links with. They spin like the ranks do, so that the comparison
 * is between protocols and not between ways of waiting. */
#include "cluster/rawlink.h"

#include "base/clock.h"
#include "coll/coll.h"
#include "net/cluster_token.h"
#include "net/sock.h"
#include "net/stream.h"

#include <poll.h>
#include <string.h>

enum { SECRET_LEN = 16, WAIT_MS = 5000, STUCK_MS = 10000 };

/* What each rank publishes: the port of its raw socket, and the secret that a connection to it must
 * begin with. */
typedef struct {
    uint8_t secret[SECRET_LEN];
    uint8_t port[2];
} endpoint;

_Static_assert(sizeof(endpoint) == SECRET_LEN + 2, "sent as is");

/* Listens where the group's own connections come in: on loopback if the ranks share a machine, on
 * all addresses otherwise. */
static sh_status listen_raw(const sh_group *group, int *fd, endpoint *mine, sh_err *err)
{
    int other = sh_group_rank(group) == 0 ? 1 : 0;
    sh_addr addr;
    sh_status status = sh_addr_parse(sh_group_address(group, other), &addr, err);
    if (status != SH_OK) return status;
    if (!sh_addr_is_loopback(&addr))
        sh_addr_set_any(&addr); /* ranks may reach us at different addresses */
    sh_addr_set_port(&addr, 0);
    status = sh_sock_listen(&addr, fd, err);
    if (status != SH_OK) return status;
    status = sh_sock_local(*fd, &addr, err);
    uint16_t port = sh_addr_port(&addr);
    sh_random(mine->secret, sizeof(mine->secret));
    mine->port[0] = (uint8_t)port;
    mine->port[1] = (uint8_t)(port >> 8);
    return status;
}

/* Sends or receives exactly len bytes, spinning. Fails when that takes longer than STUCK_MS. */
static sh_status move_all(int fd, void *data, size_t len, bool out, sh_err *err)
{
    sh_stream stream;
    sh_deadline deadline = sh_deadline_in_ms(STUCK_MS);
    sh_stream_init(&stream, fd);
    for (size_t done = 0; done < len;) {
        struct iovec part = {(char *)data + done, len - done};
        size_t moved;
        sh_status status = out ? sh_stream_write(&stream, &part, 1, &moved, err)
                               : sh_stream_read(&stream, &part, 1, &moved, err);
        if (status < 0) return status;
        if (status == SH_OK) done += moved;
        if (status == SH_AGAIN && sh_deadline_passed(deadline))
            return sh_err_set(err, SH_ERR_TIMEOUT, "a raw socket made no progress for %d s",
                              STUCK_MS / 1000);
    }
    return SH_OK;
}

static sh_status connect_right(const sh_group *group, const endpoint *endpoints, sh_rawlink *link,
                               sh_err *err)
{
    int right = (sh_group_rank(group) + 1) % sh_group_size(group);
    endpoint theirs = endpoints[right];
    sh_addr addr;
    sh_status status = sh_addr_parse(sh_group_address(group, right), &addr, err);
    if (status != SH_OK) return status;
    sh_addr_set_port(&addr, (uint16_t)(theirs.port[0] | theirs.port[1] << 8));
    status = sh_sock_connect(&addr, &link->right, err);
    if (status != SH_OK) return status;
    struct pollfd p = {.fd = link->right, .events = POLLOUT};
    poll(&p, 1, WAIT_MS);
    status = sh_sock_connected(link->right, err);
    if (status == SH_OK) status = move_all(link->right, theirs.secret, SECRET_LEN, true, err);
    return status;
}

static sh_status accept_left(int listen_fd, const endpoint *mine, sh_rawlink *link, sh_err *err)
{
    struct pollfd p = {.fd = listen_fd, .events = POLLIN};
    sh_deadline deadline = sh_deadline_in_ms(WAIT_MS);
    while (!sh_deadline_passed(deadline)) {
        sh_addr from;
        uint8_t secret[SECRET_LEN];
        poll(&p, 1, sh_deadline_left_ms(deadline));
        sh_status status = sh_sock_accept(listen_fd, &link->left, &from, err);
        if (status == SH_AGAIN) continue;
        if (status != SH_OK) return status;
        if (move_all(link->left, secret, SECRET_LEN, false, err) == SH_OK &&
            memcmp(secret, mine->secret, SECRET_LEN) == 0)
            return SH_OK;
        sh_sock_close(link->left); /* not our neighbour: keep waiting for it */
        link->left = -1;
    }
    return sh_err_set(err, SH_ERR_TIMEOUT, "the rank on the left did not open its raw socket");
}

/* Every rank listens before the all-gather, so that after it every connect succeeds at once. All
 * connect to the right first and accept from the left afterwards; the kernel completes connections
 * in the backlog, so this cannot deadlock. */
sh_status sh_rawlink_open(sh_group *group, sh_rawlink *out, sh_err *err)
{
    sh_rawlink link = {-1, -1};
    endpoint endpoints[SH_RANKS_MAX];
    size_t lens[SH_RANKS_MAX];
    int rank = sh_group_rank(group);
    int listen_fd = -1;
    for (int r = 0; r < sh_group_size(group); r++) lens[r] = sizeof(endpoint);
    if (listen_raw(group, &listen_fd, &endpoints[rank], err) != SH_OK) goto fail;
    if (sh_coll_allgather(group, &endpoints[rank], lens, endpoints, err) != SH_OK) goto fail;
    if (connect_right(group, endpoints, &link, err) != SH_OK) goto fail;
    if (accept_left(listen_fd, &endpoints[rank], &link, err) != SH_OK) goto fail;
    sh_sock_close(listen_fd);
    *out = link;
    return SH_OK;

fail:
    sh_sock_close(listen_fd);
    sh_rawlink_close(&link);
    return err->status;
}

void sh_rawlink_close(sh_rawlink *link)
{
    sh_sock_close(link->left);
    sh_sock_close(link->right);
    *link = (sh_rawlink){-1, -1};
}

sh_status sh_rawlink_half_trip(const sh_rawlink *link, int rank, void *data, size_t len, int rounds,
                               double *seconds, sh_err *err)
{
    int fd = rank == 0 ? link->right : link->left;
    int64_t start_ns = sh_clock_ns();
    *seconds = 0;
    if (rank > 1) return SH_OK;
    for (int i = 0; i < rounds; i++) {
        sh_status status = move_all(fd, data, len, rank == 0, err);
        if (status == SH_OK) status = move_all(fd, data, len, rank != 0, err);
        if (status != SH_OK) return status;
    }
    *seconds = (double)(sh_clock_ns() - start_ns) / 1e9 / rounds / 2;
    return SH_OK;
}

/* Both directions at once: if all ranks sent first, long messages would fill the socket buffers and
 * every rank would wait for its neighbour to read. */
static sh_status send_and_receive(sh_stream *right, sh_stream *left, const void *out, void *in,
                                  size_t len, sh_err *err)
{
    sh_deadline deadline = sh_deadline_in_ms(STUCK_MS);
    for (size_t sent = 0, got = 0; sent < len || got < len;) {
        struct iovec to = {(char *)(uintptr_t)out + sent, len - sent};
        struct iovec from = {(char *)in + got, len - got};
        size_t moved;
        sh_status put = sent < len ? sh_stream_write(right, &to, 1, &moved, err) : SH_AGAIN;
        if (put == SH_OK) sent += moved;
        sh_status take = got < len ? sh_stream_read(left, &from, 1, &moved, err) : SH_AGAIN;
        if (take == SH_OK) got += moved;
        if (put < 0 || take < 0) return err->status;
        if (put == SH_AGAIN && take == SH_AGAIN && sh_deadline_passed(deadline))
            return sh_err_set(err, SH_ERR_TIMEOUT, "a raw socket made no progress for %d s",
                              STUCK_MS / 1000);
    }
    return SH_OK;
}

sh_status sh_rawlink_both_ways(const sh_rawlink *link, const void *out, void *in, size_t len,
                               int rounds, double *seconds, sh_err *err)
{
    sh_stream right;
    sh_stream left;
    sh_stream_init(&right, link->right);
    sh_stream_init(&left, link->left);
    int64_t start_ns = sh_clock_ns();
    for (int i = 0; i < rounds; i++) {
        sh_status status = send_and_receive(&right, &left, out, in, len, err);
        if (status != SH_OK) return status;
    }
    *seconds = (double)(sh_clock_ns() - start_ns) / 1e9 / rounds;
    return SH_OK;
}
