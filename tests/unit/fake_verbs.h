/* fake_verbs.h - RDMA devices made of memory, behind the table of net/rdma_plugin.h.
 *
 * Ranks are threads of one test. Every device "fakeN" is on the same network; a frame is copied
 * into the peer's memory by the thread that sends it. What a test sets in FAKE holds for all of
 * them; what went wrong (a frame that found no posted receive, a write outside of registered
 * memory) is counted there. */
#ifndef SH_TESTS_UNIT_FAKE_VERBS_H
#define SH_TESTS_UNIT_FAKE_VERBS_H

#include "net/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FAKE_DEPTH = 32, FAKE_QPS = 1024, FAKE_KEYS = 4096, FAKE_DEVICES = 2 };

static struct {
    pthread_mutex_t lock;
    /* set by tests */
    bool no_kind[SH_RDMA_KINDS];
    bool send_only;               /* like a device of Thunderbolt */
    bool port_down[FAKE_DEVICES]; /* the first port of each; others are always up */
    int ports;
    uint32_t inline_max;
    uint32_t frame_max;
    int depth;
    bool gone[FAKE_DEVICES]; /* devices that have vanished */
    int register_error, open_error, create_error;
    long drop;         /* the frame to lose, counted from 1 over all queue pairs; 0: none */
    uint32_t drop_len; /* lose the next frame of this length; 0: none */
    /* counted */
    long frames, unposted, bad_writes, registered;
    /* the network */
    struct sh_rdma_qp *qp[FAKE_QPS]; /* by number */
    uint32_t next_qp;
    struct {
        uint8_t *at;
        size_t len;
    } memory[FAKE_KEYS]; /* by key */
    uint32_t next_key;
    unsigned downs[FAKE_DEVICES]; /* ports that went down, ever */
} FAKE = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The addresses of a rank's devices, instead of 10.0.NUMBER.1; a rank is a thread. Two queue pairs
 * reach each other if their GIDs agree up to the last two bytes, or the last one for IPv4. */
static _Thread_local const char *fake_gids[FAKE_DEVICES][3];

/* What every test starts from. */
static inline void fake_reset(void)
{
    pthread_mutex_lock(&FAKE.lock);
    memset(FAKE.no_kind, 0, sizeof(FAKE.no_kind));
    memset(FAKE.port_down, 0, sizeof(FAKE.port_down));
    FAKE.send_only = false;
    FAKE.ports = 1;
    FAKE.drop_len = 0;
    FAKE.inline_max = 0;
    FAKE.frame_max = 1 << 30;
    FAKE.depth = FAKE_DEPTH;
    memset(FAKE.gone, 0, sizeof(FAKE.gone));
    FAKE.register_error = FAKE.open_error = FAKE.create_error = 0;
    FAKE.drop = FAKE.frames = FAKE.unposted = FAKE.bad_writes = 0;
    pthread_mutex_unlock(&FAKE.lock);
}

struct sh_rdma_dev {
    int number;
    int fd;
    unsigned downs; /* of the port, that were reported */
    int qps;
};

struct sh_rdma_mr {
    uint32_t key;
};

struct sh_rdma_qp {
    uint32_t number, peer;
    sh_rdma_dev *dev;
    sh_rdma_kind kind;
    int fd;
    bool armed;
    bool reaches; /* its peer */
    struct {
        uint64_t id;
        uint8_t *at;
        uint32_t len;
    } receive[FAKE_DEPTH];
    int receive_first, receives;
    sh_rdma_completion done[2 * FAKE_DEPTH];
    int done_first, dones;
};

static inline int fake_list(char names[][SH_RDMA_NAME_MAX], int cap, int *count)
{
    for (int i = 0; i < FAKE_DEVICES && i < cap; i++)
        snprintf(names[i], SH_RDMA_NAME_MAX, "fake%d", i);
    *count = FAKE_DEVICES;
    return 0;
}

static inline int fake_open(const char *name, sh_rdma_dev **out)
{
    int number = name[4] - '0';
    if (FAKE.open_error != 0) return FAKE.open_error;
    if (strncmp(name, "fake", 4) != 0 || number < 0 || number >= FAKE_DEVICES) return ENODEV;
    sh_rdma_dev *dev = calloc(1, sizeof(*dev));
    dev->number = number;
    dev->fd = eventfd(0, EFD_NONBLOCK);
    pthread_mutex_lock(&FAKE.lock);
    dev->downs = FAKE.downs[number];
    pthread_mutex_unlock(&FAKE.lock);
    *out = dev;
    return 0;
}

static inline void fake_close(sh_rdma_dev *dev)
{
    if (dev->qps > 0) abort(); /* closed under its queue pairs */
    close(dev->fd);
    free(dev);
}

static inline int fake_port(sh_rdma_dev *dev, int port, sh_rdma_port *out)
{
    if (port < 1 || port > FAKE.ports) return EINVAL;
    pthread_mutex_lock(&FAKE.lock);
    *out = (sh_rdma_port){.active = port > 1 || !FAKE.port_down[dev->number],
                          .ethernet = true,
                          .mtu = dev->number == 0 ? 4096 : 1024,
                          .frame_max = FAKE.frame_max,
                          .send_only = FAKE.send_only,
                          .gids = 3,
                          .ports = FAKE.ports,
                          .depth = FAKE.depth};
    pthread_mutex_unlock(&FAKE.lock);
    return 0;
}

/* An empty entry, version 1, and version 2 with an IPv4 address. */
static inline int fake_gid(sh_rdma_dev *dev, int port, int index, sh_rdma_gid *out)
{
    (void)port;
    if (fake_gids[dev->number][0] != NULL) {
        const char *text = fake_gids[dev->number][index];
        *out = (sh_rdma_gid){.type = text != NULL ? SH_RDMA_GID_ROCE_2 : SH_RDMA_GID_NONE};
        return text == NULL || inet_pton(AF_INET6, text, out->raw) == 1 ? 0 : EINVAL;
    }
    *out = (sh_rdma_gid){.type = index == 0   ? SH_RDMA_GID_NONE
                                 : index == 1 ? SH_RDMA_GID_ROCE_1
                                              : SH_RDMA_GID_ROCE_2};
    memcpy(out->raw, (uint8_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
           SH_RDMA_GID_LEN);
    out->raw[14] = (uint8_t)dev->number;
    return 0;
}

static inline sh_rdma_event fake_event(sh_rdma_dev *dev, int *port)
{
    pthread_mutex_lock(&FAKE.lock);
    bool down = dev->downs != FAKE.downs[dev->number];
    dev->downs = FAKE.downs[dev->number];
    bool gone = FAKE.gone[dev->number];
    pthread_mutex_unlock(&FAKE.lock);
    *port = 1;
    if (gone) return SH_RDMA_GONE;
    return down ? SH_RDMA_PORT_DOWN : SH_RDMA_QUIET;
}

static inline int fake_event_fd(const sh_rdma_dev *dev)
{
    return dev->fd;
}

static inline void fake_pull_cable(int number)
{
    pthread_mutex_lock(&FAKE.lock);
    FAKE.port_down[number] = true;
    FAKE.downs[number]++;
    pthread_mutex_unlock(&FAKE.lock);
}

static inline void fake_unplug(int number)
{
    pthread_mutex_lock(&FAKE.lock);
    FAKE.gone[number] = true;
    pthread_mutex_unlock(&FAKE.lock);
}

static inline int fake_register(sh_rdma_dev *dev, void *at, size_t len, sh_rdma_mr **out,
                                sh_rdma_keys *keys)
{
    (void)dev;
    if (FAKE.register_error != 0) return FAKE.register_error;
    sh_rdma_mr *mr = calloc(1, sizeof(*mr));
    pthread_mutex_lock(&FAKE.lock);
    mr->key = ++FAKE.next_key % FAKE_KEYS;
    FAKE.memory[mr->key].at = at;
    FAKE.memory[mr->key].len = len;
    FAKE.registered++;
    pthread_mutex_unlock(&FAKE.lock);
    *keys = (sh_rdma_keys){mr->key, mr->key};
    *out = mr;
    return 0;
}

static inline void fake_deregister(sh_rdma_mr *mr)
{
    pthread_mutex_lock(&FAKE.lock);
    FAKE.memory[mr->key].at = NULL;
    FAKE.registered--;
    pthread_mutex_unlock(&FAKE.lock);
    free(mr);
}

/* Whether [at, at + len) belongs to the key; the lock is held. */
static inline bool fake_may(uint32_t key, const void *at, size_t len)
{
    const uint8_t *from = FAKE.memory[key % FAKE_KEYS].at, *p = at;
    return from != NULL && p >= from && p + len <= from + FAKE.memory[key % FAKE_KEYS].len;
}

static inline int fake_create(sh_rdma_dev *dev, int port, sh_rdma_kind kind, int depth,
                              sh_rdma_qp **out)
{
    (void)port;
    if (FAKE.create_error != 0) return FAKE.create_error;
    if (FAKE.no_kind[kind] || (FAKE.send_only && kind == SH_RDMA_RC) || depth > FAKE_DEPTH)
        return EOPNOTSUPP;
    sh_rdma_qp *qp = calloc(1, sizeof(*qp));
    qp->dev = dev;
    qp->kind = kind;
    dev->qps++;
    qp->fd = eventfd(0, EFD_NONBLOCK);
    pthread_mutex_lock(&FAKE.lock);
    do qp->number = 1 + FAKE.next_qp++ % (FAKE_QPS - 1);
    while (FAKE.qp[qp->number] != NULL);
    FAKE.qp[qp->number] = qp;
    pthread_mutex_unlock(&FAKE.lock);
    *out = qp;
    return 0;
}

static inline void fake_destroy(sh_rdma_qp *qp)
{
    pthread_mutex_lock(&FAKE.lock);
    FAKE.qp[qp->number] = NULL;
    pthread_mutex_unlock(&FAKE.lock);
    qp->dev->qps--;
    close(qp->fd);
    free(qp);
}

static inline uint32_t fake_number(const sh_rdma_qp *qp)
{
    return qp->number;
}

static inline uint32_t fake_inline_max(const sh_rdma_qp *qp)
{
    (void)qp;
    return FAKE.inline_max;
}

static inline int fake_connect(sh_rdma_qp *qp, const sh_rdma_path *path)
{
    sh_rdma_gid mine;
    fake_gid(qp->dev, 1, path->gid_index, &mine);
    bool is_v4 = mine.raw[10] == 0xff;
    pthread_mutex_lock(&FAKE.lock);
    qp->peer = path->qpn;
    qp->reaches = memcmp(mine.raw, path->gid, is_v4 ? 15 : 14) == 0;
    pthread_mutex_unlock(&FAKE.lock);
    return 0;
}

static inline int fake_post_receive(sh_rdma_qp *qp, uint64_t id, void *at, uint32_t len,
                                    uint32_t key)
{
    int error = ENOMEM;
    pthread_mutex_lock(&FAKE.lock);
    if (!fake_may(key, at, len) || (FAKE.send_only && qp->peer == 0)) FAKE.bad_writes++;
    if (qp->receives < FAKE_DEPTH) {
        int i = (qp->receive_first + qp->receives++) % FAKE_DEPTH;
        qp->receive[i].id = id;
        qp->receive[i].at = at;
        qp->receive[i].len = len;
        error = 0;
    }
    pthread_mutex_unlock(&FAKE.lock);
    return error;
}

static inline void fake_complete(sh_rdma_qp *qp, sh_rdma_completion done)
{
    if (qp->dones == 2 * FAKE_DEPTH) abort(); /* the completion queue overflows */
    qp->done[(qp->done_first + qp->dones++) % (2 * FAKE_DEPTH)] = done;
    uint64_t one = 1;
    if (qp->armed && write(qp->fd, &one, sizeof(one)) < 0) abort();
    qp->armed = false;
}

static inline void fake_gather(uint8_t *to, const sh_rdma_send *send)
{
    for (int i = 0; i < send->parts; to += send->part[i].len, i++) {
        if (!send->in_line && !fake_may(send->part[i].key, send->part[i].at, send->part[i].len))
            FAKE.bad_writes++;
        memcpy(to, send->part[i].at, send->part[i].len);
    }
}

/* A frame arrives at its peer; the lock is held. */
static inline void fake_deliver(sh_rdma_qp *to, const sh_rdma_send *send, uint32_t len)
{
    if (to->receives == 0) {
        FAKE.unposted++;
        return;
    }
    uint8_t *at = to->receive[to->receive_first].at;
    uint64_t id = to->receive[to->receive_first].id;
    uint32_t space = to->receive[to->receive_first].len;
    to->receive_first = (to->receive_first + 1) % FAKE_DEPTH;
    to->receives--;
    if (send->write) at = (uint8_t *)(uintptr_t)send->remote; /* NOLINT: an address by design */
    if (send->write ? !fake_may(send->remote_key, at, len)
                    : len > space || (FAKE.send_only && len != space))
        FAKE.bad_writes++;
    else
        fake_gather(at, send);
    fake_complete(to, (sh_rdma_completion){.id = id,
                                           .received = true,
                                           .written = send->write,
                                           .len = len,
                                           .imm = FAKE.send_only ? 0 : send->imm});
}

static inline int fake_post_send(sh_rdma_qp *qp, const sh_rdma_send *send)
{
    uint32_t len = 0;
    for (int i = 0; i < send->parts; i++) len += send->part[i].len;
    pthread_mutex_lock(&FAKE.lock);
    sh_rdma_qp *to = FAKE.qp[qp->peer];
    bool lost = ++FAKE.frames == FAKE.drop || len == FAKE.drop_len || to == NULL ||
                to->peer != qp->number || !qp->reaches;
    if (len == FAKE.drop_len) FAKE.drop_len = 0;
    if (FAKE.send_only && (send->write || send->parts != 1)) FAKE.bad_writes++;
    if (!lost) fake_deliver(to, send, len);
    if (len > FAKE.frame_max || (send->in_line && len > FAKE.inline_max)) FAKE.bad_writes++;
    fake_complete(qp, (sh_rdma_completion){.id = send->id,
                                           .result = lost && qp->kind == SH_RDMA_RC ? SH_RDMA_SILENT
                                                                                    : SH_RDMA_DONE,
                                           .reason = "lost"});
    pthread_mutex_unlock(&FAKE.lock);
    return 0;
}

static inline int fake_poll(sh_rdma_qp *qp, sh_rdma_completion *out, int cap, int *count)
{
    *count = 0;
    pthread_mutex_lock(&FAKE.lock);
    for (; qp->dones > 0 && *count < cap; qp->dones--) {
        out[(*count)++] = qp->done[qp->done_first];
        qp->done_first = (qp->done_first + 1) % (2 * FAKE_DEPTH);
    }
    pthread_mutex_unlock(&FAKE.lock);
    return 0;
}

static inline int fake_arm(sh_rdma_qp *qp)
{
    if (FAKE.send_only) abort();
    pthread_mutex_lock(&FAKE.lock);
    qp->armed = true;
    pthread_mutex_unlock(&FAKE.lock);
    return 0;
}

static inline void fake_disarm(sh_rdma_qp *qp)
{
    uint64_t count;
    if (read(qp->fd, &count, sizeof(count)) < 0 && errno != EAGAIN) abort();
}

static inline int fake_fd(const sh_rdma_qp *qp)
{
    return qp->fd;
}

static const sh_rdma_plugin FAKE_VERBS = {
    .version = SH_RDMA_PLUGIN_VERSION,
    .list = fake_list,
    .open = fake_open,
    .close = fake_close,
    .port = fake_port,
    .gid = fake_gid,
    .event = fake_event,
    .event_fd = fake_event_fd,
    .register_memory = fake_register,
    .deregister = fake_deregister,
    .create = fake_create,
    .destroy = fake_destroy,
    .number = fake_number,
    .inline_max = fake_inline_max,
    .connect = fake_connect,
    .post_receive = fake_post_receive,
    .post_send = fake_post_send,
    .poll = fake_poll,
    .arm = fake_arm,
    .disarm = fake_disarm,
    .fd = fake_fd,
};

#endif
