/* Times one TCP connection. The protocol: the client sends the secret and gets one byte back; then
 * it sends commands of five bytes, a letter and a length (little endian), and each but QUIT is
 * answered with one byte. PUSH is followed by that many bytes from the client; for PULL the server
 * sends that many bytes before its answer.
 *
 * The server may listen on an address that others can reach, so it does nothing for a client
 * without the secret, gives it a second to show it, bounds every length and every wait, and exits
 * on its own. It handles one client at a time: the survey times links one after another. */
#include "cluster/probe.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "net/cluster_token.h"
#include "net/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PING = 'p', PUSH = 'b', PULL = 'r', QUIT = 'q' };

enum {
    CONNECT_MS = 1500,
    STUCK_MS = 5000, /* give up after this long without progress */
    KNOCK_MS = 1000, /* time for a client to show the secret */
    PIECE = 1 << 18, /* bytes of one write */
    KNOCKS = 5,
    KNOCKS_AT_ONCE = 256,
    NEAR_MS = 1200, /* a neighbour answers at once, but its address may have to be resolved first */
    ROUNDS = 200,   /* short messages, at most */
    ROUNDS_NS = 100000000,
    BULK_NS = 100000000, /* a transfer must take this long for its rate to count */
    BULK_MAX = 1 << 29,
    COMMAND_LEN = 5, /* a letter and a length */
};

struct sh_probe_server {
    int fd[SH_PROBE_ADDRESSES_MAX];
    int count;
    char secret[SH_PROBE_SECRET_LEN + 1];
    char *piece; /* [PIECE] */
};

/* Sends or receives exactly len bytes. Fails when nothing moves for wait_ms. */
static sh_status move(int fd, void *data, size_t len, bool out, int wait_ms, sh_err *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = out ? send(fd, (char *)data + done, len - done, MSG_NOSIGNAL)
                        : recv(fd, (char *)data + done, len - done, 0);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n == 0) return sh_err_set(err, SH_ERR_PEER, "the other side closed the connection");
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return sh_err_sys(err, "the connection");
        struct pollfd p = {.fd = fd, .events = out ? POLLOUT : POLLIN};
        if (poll(&p, 1, wait_ms) == 0)
            return sh_err_set(err, SH_ERR_TIMEOUT, "no progress for %d ms", wait_ms);
    }
    return SH_OK;
}

/* Moves len bytes through one buffer; their contents do not matter. */
static sh_status move_long(int fd, char *piece, size_t len, bool out, sh_err *err)
{
    while (len > 0) {
        size_t part = len < PIECE ? len : PIECE;
        sh_status status = move(fd, piece, part, out, STUCK_MS, err);
        if (status != SH_OK) return status;
        len -= part;
    }
    return SH_OK;
}

static void command_pack(uint8_t out[COMMAND_LEN], char letter, uint32_t len)
{
    out[0] = (uint8_t)letter;
    for (int i = 0; i < 4; i++) out[1 + i] = (uint8_t)(len >> (8 * i));
}

static uint32_t command_len(const uint8_t in[COMMAND_LEN])
{
    return in[1] | (uint32_t)in[2] << 8 | (uint32_t)in[3] << 16 | (uint32_t)in[4] << 24;
}

/* `number` is an IPv4 or IPv6 address without a port; the kernel chooses one. */
static sh_status listen_on(const char *number, int *fd, sh_err *err)
{
    char text[SH_ADDR_TEXT_MAX];
    sh_addr addr;
    snprintf(text, sizeof(text), strchr(number, ':') != NULL ? "[%s]:0" : "%s:0", number);
    sh_status status = sh_addr_parse(text, &addr, err);
    return status == SH_OK ? sh_sock_listen(&addr, fd, err) : status;
}

/* Addresses that cannot be used (of another host, or malformed) are skipped; the last error is
 * reported if none is left. */
sh_status sh_probe_server_open(const char *addresses, sh_probe_server **out, sh_err *err)
{
    sh_probe_server *p = sh_alloc(sizeof(*p));
    sh_str rest = sh_str_of(addresses), part;
    uint8_t secret[SH_PROBE_SECRET_LEN / 2];
    sh_status status = SH_OK;
    p->piece = sh_alloc(PIECE);
    sh_random(secret, sizeof(secret));
    for (size_t i = 0; i < sizeof(secret); i++) snprintf(p->secret + 2 * i, 3, "%02x", secret[i]);
    while (p->count < SH_PROBE_ADDRESSES_MAX && sh_str_cut(&rest, ',', &part)) {
        char *number = sh_str_dup(part);
        status = listen_on(number, &p->fd[p->count], err);
        if (status == SH_OK) p->count++;
        free(number);
    }
    if (p->count > 0) {
        *out = p;
        return SH_OK;
    }
    sh_probe_server_close(p);
    return status == SH_OK ? sh_err_set(err, SH_ERR_INPUT, "no address to listen on") : status;
}

void sh_probe_server_close(sh_probe_server *p)
{
    if (p == NULL) return;
    for (int i = 0; i < p->count; i++) sh_sock_close(p->fd[i]);
    free(p->piece);
    free(p);
}

void sh_probe_server_describe(const sh_probe_server *p, sh_buf *out)
{
    sh_buf_addf(out, "{\"secret\": \"%s\", \"listen\": [", p->secret);
    for (int i = 0; i < p->count; i++) {
        char text[SH_ADDR_TEXT_MAX];
        sh_addr addr;
        sh_err err;
        if (sh_sock_local(p->fd[i], &addr, &err) != SH_OK) continue;
        sh_addr_format(&addr, text);
        sh_buf_addf(out, "%s\"%s\"", i > 0 ? ", " : "", text);
    }
    sh_buf_add_text(out, "]}\n");
}

/* Serves one client. True when it said that no other client will come. */
static bool serve_one(sh_probe_server *p, int fd)
{
    char secret[SH_PROBE_SECRET_LEN];
    uint8_t command[COMMAND_LEN];
    sh_err err;
    if (move(fd, secret, sizeof(secret), false, KNOCK_MS, &err) != SH_OK) return false;
    if (memcmp(secret, p->secret, sizeof(secret)) != 0) return false;
    if (move(fd, secret, 1, true, STUCK_MS, &err) != SH_OK) return false;
    while (move(fd, command, sizeof(command), false, STUCK_MS, &err) == SH_OK) {
        uint32_t len = command_len(command);
        bool out = command[0] == PULL, bulk = out || command[0] == PUSH;
        if (bulk && (len > BULK_MAX || move_long(fd, p->piece, len, out, &err) != SH_OK))
            return false;
        if (command[0] == QUIT) return true;
        if (move(fd, command, 1, true, STUCK_MS, &err) != SH_OK) return false;
    }
    return false;
}

void sh_probe_server_run(sh_probe_server *p, int64_t idle_ms, int64_t limit_ms)
{
    sh_deadline end = sh_deadline_in_ms(limit_ms), idle = sh_deadline_in_ms(idle_ms);
    bool done = false;
    while (!done && !sh_deadline_passed(end) && !sh_deadline_passed(idle)) {
        struct pollfd polls[SH_PROBE_ADDRESSES_MAX];
        for (int i = 0; i < p->count; i++)
            polls[i] = (struct pollfd){.fd = p->fd[i], .events = POLLIN};
        poll(polls, (nfds_t)p->count, sh_deadline_left_ms(idle < end ? idle : end));
        for (int i = 0; i < p->count; i++) {
            sh_addr from;
            sh_err err;
            int fd = -1;
            if (sh_sock_accept(p->fd[i], &fd, &from, &err) != SH_OK) continue;
            done |= serve_one(p, fd);
            sh_sock_close(fd);
            idle = sh_deadline_in_ms(idle_ms);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of up to ROUNDS round trips, within 100 ms: a slow link gets fewer rounds. */
static sh_status time_short(int fd, sh_probe_result *out, sh_err *err)
{
    double took[ROUNDS];
    int count = 0;
    int64_t start_ns = sh_clock_ns();
    do {
        uint8_t command[COMMAND_LEN];
        command_pack(command, PING, 0);
        int64_t sent_ns = sh_clock_ns();
        sh_status status = move(fd, command, sizeof(command), true, STUCK_MS, err);
        if (status == SH_OK) status = move(fd, command, 1, false, STUCK_MS, err);
        if (status != SH_OK) return status;
        took[count++] = (double)(sh_clock_ns() - sent_ns) / 1e3;
    } while (count < ROUNDS && sh_clock_ns() - start_ns < ROUNDS_NS);
    qsort(took, (size_t)count, sizeof(*took), by_value);
    out->rtt_us = took[count / 2];
    return SH_OK;
}

static sh_status time_run(int fd, bool push, char *piece, uint32_t len, int64_t *took_ns,
                          sh_err *err)
{
    uint8_t command[COMMAND_LEN];
    int64_t start_ns = sh_clock_ns();
    command_pack(command, push ? PUSH : PULL, len);
    sh_status status = move(fd, command, sizeof(command), true, STUCK_MS, err);
    if (status == SH_OK) status = move_long(fd, piece, len, push, err);
    if (status == SH_OK) status = move(fd, command, 1, false, STUCK_MS, err);
    *took_ns = sh_clock_ns() - start_ns;
    return status;
}

/* Doubles the amount until a transfer takes long enough to be trusted, then repeats that one. The
 * faster of the two counts: a busy host can slow a transfer down but cannot speed it up. */
static sh_status time_long(int fd, bool push, double *gbit_s, sh_err *err)
{
    char *piece = sh_alloc(PIECE);
    uint32_t len = PIECE;
    int64_t took_ns, again_ns;
    sh_status status = time_run(fd, push, piece, len, &took_ns, err);
    while (status == SH_OK && took_ns < BULK_NS && len < BULK_MAX) {
        len *= 2;
        status = time_run(fd, push, piece, len, &took_ns, err);
    }
    if (status == SH_OK) status = time_run(fd, push, piece, len, &again_ns, err);
    if (status == SH_OK)
        *gbit_s = (double)len * 8 / (double)(again_ns < took_ns ? again_ns : took_ns);
    free(piece);
    return status;
}

static sh_status connect_to(const char *address, const char *secret, int *fd, sh_err *err)
{
    sh_addr addr;
    char key[SH_PROBE_SECRET_LEN];
    sh_status status = sh_addr_parse(address, &addr, err);
    if (status != SH_OK) return status;
    if (strlen(secret) != SH_PROBE_SECRET_LEN)
        return sh_err_set(err, SH_ERR_INPUT, "the secret has %zu characters, not %d",
                          strlen(secret), SH_PROBE_SECRET_LEN);
    status = sh_sock_connect(&addr, fd, err);
    if (status != SH_OK) return status;
    struct pollfd p = {.fd = *fd, .events = POLLOUT};
    if (poll(&p, 1, CONNECT_MS) == 0)
        return sh_err_set(err, SH_ERR_TIMEOUT, "no answer within %d ms", CONNECT_MS);
    status = sh_sock_connected(*fd, err);
    /* A server that closes instead of answering the secret is not the one that printed it: the
     * address leads to another machine. */
    memcpy(key, secret, sizeof(key));
    if (status == SH_OK) status = move(*fd, key, sizeof(key), true, STUCK_MS, err);
    if (status == SH_OK && move(*fd, key, 1, false, STUCK_MS, err) != SH_OK)
        status = sh_err_set(err, SH_ERR_PEER, "another machine answers at that address");
    return status;
}

static sh_status quit_send(int fd, sh_err *err)
{
    uint8_t command[COMMAND_LEN];
    command_pack(command, QUIT, 0);
    return move(fd, command, sizeof(command), true, STUCK_MS, err);
}

sh_status sh_probe_quit(const char *address, const char *secret, sh_err *err)
{
    int fd = -1;
    sh_status status = connect_to(address, secret, &fd, err);
    if (status == SH_OK) status = quit_send(fd, err);
    sh_sock_close(fd);
    return status;
}

/* Both directions, because a link may be slower in one (Wi-Fi); the slower one counts, since ranks
 * send both ways. */
sh_status sh_probe_measure(const char *address, const char *secret, bool last, sh_probe_result *out,
                           sh_err *err)
{
    int fd = -1;
    double back_gbit_s = 0;
    sh_probe_result result = {0};
    sh_status status = connect_to(address, secret, &fd, err);
    if (status == SH_OK) status = time_short(fd, &result, err);
    if (status == SH_OK) status = time_long(fd, true, &result.gbit_s, err);
    if (status == SH_OK) status = time_long(fd, false, &back_gbit_s, err);
    if (back_gbit_s < result.gbit_s) result.gbit_s = back_gbit_s;
    if (status == SH_OK && last) status = quit_send(fd, err);
    sh_sock_close(fd);
    if (status == SH_OK) *out = result;
    return status;
}

/* ECONNREFUSED is a success here: the refusal comes from the host itself, so it took one round
 * trip. */
static sh_status knock_once(const sh_addr *addr, double *took_us, sh_err *err)
{
    int fd = -1, fault = 0;
    socklen_t len = sizeof(fault);
    int64_t start_ns = sh_clock_ns();
    sh_status status = sh_sock_connect(addr, &fd, err);
    if (status != SH_OK) return status;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int ready = poll(&p, 1, CONNECT_MS);
    *took_us = (double)(sh_clock_ns() - start_ns) / 1e3;
    if (ready == 0)
        status = sh_err_set(err, SH_ERR_TIMEOUT, "no answer within %d ms", CONNECT_MS);
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &len) == 0 && fault != 0 &&
             fault != ECONNREFUSED)
        status = sh_err_set(err, SH_ERR_PEER, "%s", strerror(fault));
    sh_sock_close(fd);
    return status;
}

sh_status sh_probe_knock(const char *address, double *rtt_us, sh_err *err)
{
    double took[KNOCKS];
    sh_addr addr;
    sh_status status = sh_addr_parse(address, &addr, err);
    for (int i = 0; status == SH_OK && i < KNOCKS; i++) status = knock_once(&addr, &took[i], err);
    if (status != SH_OK) return status;
    qsort(took, KNOCKS, sizeof(*took), by_value);
    *rtt_us = took[KNOCKS / 2];
    return SH_OK;
}

/* Whether the connection was established or refused. */
static bool has_answered(int fd)
{
    int fault = 0;
    socklen_t len = sizeof(fault);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &len) == 0 &&
           (fault == 0 || fault == ECONNREFUSED);
}

/* At most KNOCKS_AT_ONCE addresses. */
static void knock_batch(const char *const *addresses, int count, double *rtt_us)
{
    struct pollfd wait[KNOCKS_AT_ONCE];
    int64_t start_ns = sh_clock_ns();
    sh_deadline end = sh_deadline_in_ms(NEAR_MS);
    int open = 0;
    for (int i = 0; i < count; i++) {
        sh_addr addr;
        sh_err err;
        wait[i] = (struct pollfd){.fd = -1, .events = POLLOUT};
        rtt_us[i] = -1;
        if (sh_addr_parse(addresses[i], &addr, &err) == SH_OK &&
            sh_sock_connect(&addr, &wait[i].fd, &err) == SH_OK)
            open++;
    }
    while (open > 0 && !sh_deadline_passed(end)) {
        if (poll(wait, (nfds_t)count, sh_deadline_left_ms(end)) <= 0) continue;
        for (int i = 0; i < count; i++) {
            if (wait[i].fd < 0 || wait[i].revents == 0) continue;
            if (has_answered(wait[i].fd)) rtt_us[i] = (double)(sh_clock_ns() - start_ns) / 1e3;
            sh_sock_close(wait[i].fd);
            wait[i].fd = -1;
            open--;
        }
    }
    for (int i = 0; i < count; i++)
        if (wait[i].fd >= 0) sh_sock_close(wait[i].fd);
}

void sh_probe_knock_all(const char *const *addresses, int count, double *rtt_us)
{
    for (int i = 0; i < count; i += KNOCKS_AT_ONCE)
        knock_batch(addresses + i, count - i < KNOCKS_AT_ONCE ? count - i : KNOCKS_AT_ONCE,
                    rtt_us + i);
}
