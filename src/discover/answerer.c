#include "discover/answerer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "discover/limiter.h"
#include "discover/multicast.h"
#include "discover/packet.h"
#include "net/interfaces.h"
#include "net/sock.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REFRESH_MS = 2000,   /* how often interfaces are looked at */
    BATCH_MAX = 64,      /* packets before timers are looked at */
    SOURCE_PER_S = 20,   /* packets that are opened, and so answered at most */
    ALL_PER_S = 1000,    /* a thousandth of a processor */
    ANSWERS_PER_S = 200, /* to all together */
};

struct sh_answerer {
    sh_packet_key key;
    sh_multicast sockets;
    int wake[2]; /* closed on one end to stop the thread */
    pthread_t thread;
    sh_limiter opened;  /* of the thread */
    sh_allowance spare; /* answers; of the thread */
    pthread_mutex_t lock;
    sh_answer_packet self; /* guarded by lock */
    bool is_set;           /* likewise */
};

/* The addresses are those of this moment. */
static bool answer_make(sh_answerer *a, const sh_query *query, sh_answer_packet *out)
{
    sh_interfaces all = {.count = 0};
    sh_err err;
    pthread_mutex_lock(&a->lock);
    bool asked = a->is_set && (query->seek == SH_SEEK_ALL || a->self.rank == 0);
    *out = a->self;
    pthread_mutex_unlock(&a->lock);
    if (!asked) return false;
    memcpy(out->nonce, query->nonce, sizeof(out->nonce));
    if (sh_interfaces_read(&all, &err) != SH_OK) SH_LOGW("discovery: %s", err.text);
    for (int i = 0; i < all.addr_count && out->addr_count < SH_LANES_MAX; i++)
        out->addr[out->addr_count++] = all.addr[i];
    return true;
}

static void packet_take(sh_answerer *a, const uint8_t *data, size_t len, const sh_addr *from)
{
    int64_t now_ns = sh_clock_ns();
    sh_packet packet;
    sh_answer_packet answer;
    sh_err err;
    if (!sh_packet_is_ours(&a->key, data, len) || !sh_limiter_take(&a->opened, from, now_ns))
        return;
    if (sh_packet_open(&a->key, data, &packet, &err) != SH_OK) {
        SH_LOGD("discovery: %s", err.text);
        return;
    }
    if (!packet.is_query || !answer_make(a, &packet.as.query, &answer) ||
        !sh_allowance_take(&a->spare, ANSWERS_PER_S, now_ns))
        return;
    uint8_t out[SH_PACKET_LEN];
    sh_answer_seal(&a->key, &answer, out);
    sh_multicast_send_to(&a->sockets, out, sizeof(out), from);
}

static void packets_take(sh_answerer *a)
{
    uint8_t data[SH_PACKET_LEN + 1]; /* one more, so that a longer packet does not pass for one */
    sh_addr from;
    ssize_t len;
    for (int i = 0; i < BATCH_MAX; i++) {
        if ((len = sh_multicast_recv(&a->sockets, data, sizeof(data), &from)) < 0) return;
        packet_take(a, data, (size_t)len, &from);
    }
}

static void *run(void *arg)
{
    sh_answerer *a = arg;
    sh_deadline refresh = 0;
    int joined = -1;
    for (;;) {
        if (sh_deadline_passed(refresh)) {
            int now = sh_multicast_join(&a->sockets);
            if (now != joined) SH_LOGD("discovery: listening on %d interfaces", now);
            joined = now;
            refresh = sh_deadline_in_ms(REFRESH_MS);
        }
        struct pollfd fds[3];
        int count = sh_multicast_poll(&a->sockets, fds);
        fds[count] = (struct pollfd){.fd = a->wake[0], .events = POLLIN};
        poll(fds, (nfds_t)count + 1, sh_deadline_left_ms(refresh));
        if (fds[count].revents != 0) return NULL;
        packets_take(a);
    }
}

static sh_status open_all(sh_answerer *a, sh_err *err)
{
    sh_status status = sh_multicast_listen(&a->sockets, err);
    if (status != SH_OK) return status;
    status = sh_sock_pipe(a->wake, err);
    if (status != SH_OK) {
        sh_multicast_close(&a->sockets);
        return status;
    }
    if (pthread_create(&a->thread, NULL, run, a) == 0) return SH_OK;
    sh_multicast_close(&a->sockets);
    sh_sock_close(a->wake[0]);
    sh_sock_close(a->wake[1]);
    return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the thread of discovery");
}

static void answerer_free(sh_answerer *a)
{
    pthread_mutex_destroy(&a->lock);
    OPENSSL_cleanse(&a->key, sizeof(a->key));
    free(a);
}

sh_status sh_answerer_start(const sh_answerer_opts *opts, sh_answerer **out, sh_err *err)
{
    sh_answerer *a = sh_alloc(sizeof(*a));
    sh_packet_key_init(&a->key, opts->token);
    sh_limiter_init(&a->opened, SOURCE_PER_S, ALL_PER_S);
    a->self.port = opts->port;
    gethostname(a->self.host, sizeof(a->self.host) - 1);
    snprintf(a->self.model, sizeof(a->self.model), "%s", opts->model == NULL ? "" : opts->model);
    a->self.model[sh_utf8_valid_prefix(a->self.model, strlen(a->self.model))] = '\0';
    pthread_mutex_init(&a->lock, NULL);
    sh_status status = open_all(a, err);
    if (status == SH_OK)
        *out = a;
    else
        answerer_free(a);
    return status;
}

void sh_answerer_stop(sh_answerer *a)
{
    if (a == NULL) return;
    sh_sock_close(a->wake[1]);
    pthread_join(a->thread, NULL);
    sh_sock_close(a->wake[0]);
    sh_multicast_close(&a->sockets);
    answerer_free(a);
}

void sh_answerer_set(sh_answerer *a, const uint8_t node[SH_NODE_ID_LEN], int rank, int world)
{
    pthread_mutex_lock(&a->lock);
    memcpy(a->self.node, node, SH_NODE_ID_LEN);
    a->self.rank = (uint32_t)rank;
    a->self.world = (uint32_t)world;
    a->is_set = true;
    pthread_mutex_unlock(&a->lock);
}
