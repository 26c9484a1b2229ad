/* Two single-producer single-consumer byte rings in one segment.
 *
 * The peer is another process: it may be killed at any moment, and nothing that it writes is
 * trusted. Our own positions live in private memory and are only published in the segment, and the
 * peer's counters are checked against the ring size before every copy. A bad counter ends the
 * group; it never leads out of the ring. There are no locks, so a killed peer leaves none behind.
 *
 * The writer publishes every SLICE bytes, so that the reader copies the start of a long message out
 * while the rest is still being copied in.
 *
 * Sleeping is a Dekker-style handshake: the sleeper sets its flag and then checks the counter, the
 * writer moves the counter and then checks the flag, with a full fence between on both sides. Drop
 * either fence and a wake-up can be lost. */
#include "net/shm.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "base/system.h"
#include "net/cluster_token.h"
#include "net/sock.h"
#include "net/transport.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RING_LEN = 256 * 1024, /* a power of two; both directions fit into a CPU's cache */
    SLICE = 4096, /* what the writer publishes at a time, so that the reader copies alongside */
    SEGMENT_NAME_MAX = 48, /* of a segment, with the terminating zero */
    KEY_LEN = 16,
};

/* Counters only grow (64 bits never wrap); a position is a counter modulo RING_LEN. Writer and
 * reader each have their own cache line. */
typedef struct {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) uint8_t data[RING_LEN];
} byte_ring;

typedef struct {
    uint8_t key[KEY_LEN];
    _Alignas(64) _Atomic uint32_t asleep[2]; /* by side */
    _Alignas(64) _Atomic int32_t cpu[2];     /* by side: the CPU it ran on when it last wrote */
    byte_ring ring[2];                       /* by the writing side */
} segment;

_Static_assert((RING_LEN & (RING_LEN - 1)) == 0, "positions are taken with a mask");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters in shared memory must be lock-free");

typedef struct {
    segment *seg;
    int side; /* 0 created it, 1 attached it */
    char name[SEGMENT_NAME_MAX];
    bool linked; /* the name exists, and it is for us to remove it */
} shm_segment;

static void segment_close(shm_segment *shm)
{
    if (shm->linked) shm_unlink(shm->name);
    if (shm->seg != NULL) munmap(shm->seg, sizeof(segment));
    free(shm);
}

static sh_status segment_map(int fd, segment **out, sh_err *err)
{
    void *at = mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return sh_err_sys(err, "shared memory of %zu bytes", sizeof(segment));
    *out = at;
    return SH_OK;
}

/* Allocates all pages now: running out of shared memory later would be a SIGBUS in the middle of a
 * copy. */
static sh_status segment_size(int fd, sh_err *err)
{
    if (ftruncate(fd, (off_t)sizeof(segment)) < 0)
        return sh_err_sys(err, "shared memory of %zu bytes", sizeof(segment));
#ifdef __linux__
    int error = posix_fallocate(fd, 0, (off_t)sizeof(segment));
    if (error != 0)
        return sh_err_set(err, SH_ERR_MEMORY, "shared memory of %zu bytes: %s", sizeof(segment),
                          strerror(error));
#endif
    return SH_OK;
}

/* shm_open sets close-on-exec by itself, and some systems reject O_CLOEXEC here. */
static sh_status segment_create(shm_segment **out, sh_err *err)
{
    shm_segment *shm = sh_alloc(sizeof(*shm));
    uint64_t secret[2];
    sh_random(secret, sizeof(secret));
    snprintf(shm->name, sizeof(shm->name), "/sh%013llx%013llx",
             (unsigned long long)(secret[0] >> 12), (unsigned long long)(secret[1] >> 12));
    int fd = shm_open(shm->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        sh_err_sys(err, "shared memory %s", shm->name);
        goto fail;
    }
    shm->linked = true;
    if (segment_size(fd, err) != SH_OK || segment_map(fd, &shm->seg, err) != SH_OK) goto fail;
    sh_random(shm->seg->key, sizeof(shm->seg->key));
    sh_sock_close(fd);
    *out = shm;
    return SH_OK;

fail:
    sh_sock_close(fd);
    segment_close(shm);
    return err->status;
}

/* Accepts only what we would have created ourselves. Another user could truncate its segment while
 * we use it, which is a SIGBUS; one of another size is not ours. */
static sh_status segment_check(int fd, sh_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return sh_err_sys(err, "shared memory");
    off_t page = (off_t)sysconf(_SC_PAGESIZE), size = (off_t)sizeof(segment);
    bool fits = st.st_size == size ||
                st.st_size == (size + page - 1) / page * page; /* macOS reports whole pages */
    if (st.st_uid != geteuid() || !fits)
        return sh_err_set(err, SH_ERR_PEER, "shared memory: wrong owner or size");
    return SH_OK;
}

static sh_status segment_attach(const char *name, const uint8_t key[KEY_LEN], shm_segment **out,
                                sh_err *err)
{
    if (strncmp(name, "/sh", 3) != 0 || strchr(name + 1, '/') != NULL)
        return sh_err_set(err, SH_ERR_PEER, "shared memory: not a Shoal segment name");
    int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0) return sh_err_sys(err, "shared memory %s", name);
    shm_segment *shm = sh_alloc(sizeof(*shm));
    shm->side = 1;
    if (segment_check(fd, err) != SH_OK || segment_map(fd, &shm->seg, err) != SH_OK) goto fail;
    if (memcmp(shm->seg->key, key, KEY_LEN) != 0) {
        sh_err_set(err, SH_ERR_PEER, "shared memory %s: not the segment that was offered", name);
        goto fail;
    }
    shm_unlink(name); /* now both have it, so that not even a SIGKILL leaves it behind */
    sh_sock_close(fd);
    *out = shm;
    return SH_OK;

fail:
    sh_sock_close(fd);
    segment_close(shm);
    return err->status;
}

typedef struct {
    sh_channel base;
    shm_segment *shm;
    sh_stream bell;
    _Atomic uint32_t *my_sleep;
    _Atomic uint32_t *peer_sleep;
    _Atomic int32_t *my_cpu;
    const _Atomic int32_t *peer_cpu;
    int cpu; /* the value of *my_cpu */
    byte_ring *out;
    byte_ring *in;
    uint64_t written; /* our counters; the copies in the segment are never read back */
    uint64_t taken;
    sh_err gone; /* why the socket ended, once it has; bytes in the ring are still delivered */
} shm_channel;

/* Copies between the message at msg->done and the ring at counter `at`. */
static void copy(sh_msg *msg, byte_ring *ring, uint64_t at, size_t len, bool to_ring)
{
    struct iovec parts[2];
    int count = sh_msg_parts(msg, msg->done, msg->done + len, parts);
    for (int i = 0; i < count; i++) {
        for (size_t done = 0, run; done < parts[i].iov_len; done += run, at += run) {
            size_t pos = at & (RING_LEN - 1);
            run = parts[i].iov_len - done < RING_LEN - pos ? parts[i].iov_len - done
                                                           : RING_LEN - pos;
            char *side = (char *)parts[i].iov_base + done;
            memcpy(to_ring ? (char *)&ring->data[pos] : side,
                   to_ring ? side : (const char *)&ring->data[pos], run);
        }
    }
    msg->done += len;
}

static sh_status bad_counter(sh_err *err)
{
    return sh_err_set(err, SH_ERR_GROUP, "shared memory: invalid counter from the peer");
}

/* Wakes the peer if it sleeps. The fence orders our counter before the check of its flag; the peer
 * sets its flag before it checks our counter for the last time, so one of the two sees the other.
 */
static void ring_bell(shm_channel *channel)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(channel->peer_sleep, memory_order_relaxed) == 0) return;
    atomic_store_explicit(channel->peer_sleep, 0, memory_order_relaxed);
    char byte = 1;
    size_t moved;
    sh_err ignored; /* a dead peer is noticed by disarm and recv */
    if (sh_stream_write(&channel->bell, &(struct iovec){&byte, 1}, 1, &moved, &ignored) < 0) return;
}

/* The status of a transfer that cannot continue: try later, or an error if the peer is gone. */
static sh_status stuck(const shm_channel *channel, sh_err *err)
{
    if (channel->gone.status == SH_OK) return SH_AGAIN;
    *err = channel->gone;
    return err->status;
}

/* Publishes where we run, for the peer's peer_descheduled; written only when it changes. */
static void show_cpu(shm_channel *channel)
{
    int cpu = sh_cpu_now();
    if (cpu == channel->cpu) return;
    channel->cpu = cpu;
    atomic_store_explicit(channel->my_cpu, cpu, memory_order_relaxed);
}

/* acquire on `taken`: the peer has finished reading those bytes, so they may be overwritten.
 * release on `written`: the bytes are visible before the counter that announces them. */
static sh_status shm_send(sh_channel *base, sh_msg *msg, sh_err *err)
{
    shm_channel *channel = (shm_channel *)base;
    size_t before = msg->done;
    show_cpu(channel);
    while (msg->done < msg->len) {
        uint64_t taken = atomic_load_explicit(&channel->out->taken, memory_order_acquire);
        uint64_t used = channel->written - taken;
        if (used > RING_LEN) return bad_counter(err);
        size_t len = RING_LEN - (size_t)used;
        if (len > msg->len - msg->done) len = msg->len - msg->done;
        if (len > SLICE) len = SLICE;
        if (len == 0) break;
        copy(msg, channel->out, channel->written, len, true);
        channel->written += len;
        atomic_store_explicit(&channel->out->written, channel->written, memory_order_release);
    }
    if (msg->done > before) ring_bell(channel);
    return msg->done == msg->len ? SH_OK : stuck(channel, err);
}

static sh_status shm_recv(sh_channel *base, sh_msg *msg, sh_err *err)
{
    shm_channel *channel = (shm_channel *)base;
    size_t before = msg->done;
    while (msg->done < msg->len) {
        uint64_t written = atomic_load_explicit(&channel->in->written, memory_order_acquire);
        uint64_t ready = written - channel->taken;
        if (ready > RING_LEN) return bad_counter(err);
        size_t len = ready < msg->len - msg->done ? (size_t)ready : msg->len - msg->done;
        if (len == 0) break;
        copy(msg, channel->in, channel->taken, len, false);
        channel->taken += len;
        atomic_store_explicit(&channel->in->taken, channel->taken, memory_order_release);
    }
    if (msg->done > before) ring_bell(channel);
    return msg->done == msg->len ? SH_OK : stuck(channel, err);
}

/* A bad counter counts as ready too: the next send or recv then reports it. */
static bool is_ready(const shm_channel *channel, bool sending, bool receiving)
{
    uint64_t written = atomic_load_explicit(&channel->in->written, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&channel->out->taken, memory_order_acquire);
    return (receiving && written != channel->taken) ||
           (sending && channel->written - taken != RING_LEN);
}

static int shm_arm(sh_channel *base, bool sending, bool receiving, struct pollfd *out)
{
    shm_channel *channel = (shm_channel *)base;
    atomic_store_explicit(channel->my_sleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (is_ready(channel, sending, receiving)) return -1;
    out[0] = (struct pollfd){.fd = channel->bell.fd, .events = POLLIN};
    return 1;
}

/* Drains the doorbell. The socket also shows what the segment cannot: that the peer is gone. */
static void shm_disarm(sh_channel *base)
{
    shm_channel *channel = (shm_channel *)base;
    char bytes[64] = {0};
    size_t moved;
    sh_err err;
    sh_status status;
    atomic_store_explicit(channel->my_sleep, 0, memory_order_relaxed);
    do
        status = sh_stream_read(&channel->bell, &(struct iovec){bytes, sizeof(bytes)}, 1, &moved,
                                &err);
    while (status == SH_OK && moved == sizeof(bytes));
    if (status < 0) channel->gone = err;
}

/* Two threads cannot run on one CPU at once: if the peer last ran on ours, it is waiting for it,
 * unless it has been moved since. */
static bool shm_peer_descheduled(const sh_channel *base)
{
    const shm_channel *channel = (const shm_channel *)base;
    int peer = atomic_load_explicit(channel->peer_cpu, memory_order_relaxed);
    return peer >= 0 && peer == sh_cpu_now();
}

static void shm_close(sh_channel *base)
{
    shm_channel *channel = (shm_channel *)base;
    segment_close(channel->shm);
    sh_stream_close(&channel->bell);
    free(channel);
}

static const sh_channel_ops SHM_OPS = {
    .name = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .peer_descheduled = shm_peer_descheduled,
    .close = shm_close,
};

/* Takes ownership of the segment and of the doorbell socket, which drops TLS. */
static sh_channel *channel_create(shm_segment *shm, sh_stream bell)
{
    shm_channel *channel = sh_alloc(sizeof(*channel));
    channel->base.ops = &SHM_OPS;
    channel->shm = shm;
    channel->bell = bell;
    sh_stream_end_tls(&channel->bell);
    segment *seg = shm->seg;
    channel->my_sleep = &seg->asleep[shm->side];
    channel->peer_sleep = &seg->asleep[1 - shm->side];
    channel->my_cpu = &seg->cpu[shm->side];
    channel->peer_cpu = &seg->cpu[1 - shm->side];
    channel->cpu = -1;
    atomic_store_explicit(channel->my_cpu, -1, memory_order_relaxed);
    channel->out = &seg->ring[shm->side];
    channel->in = &seg->ring[1 - shm->side];
    return &channel->base;
}

/* An offer is the key and the name of a segment; the answer to it is empty. */

static sh_status offer_segment(sh_offer *mine, shm_segment **out, sh_err *err)
{
    sh_status status = segment_create(out, err);
    if (status != SH_OK) return status;
    size_t len = strlen((*out)->name);
    memcpy(mine->body, (*out)->seg->key, KEY_LEN);
    memcpy(mine->body + KEY_LEN, (*out)->name, len);
    mine->body_len = (uint32_t)(KEY_LEN + len);
    return SH_OK;
}

static sh_status attach_offered(const sh_offer *theirs, shm_segment **out, sh_err *err)
{
    char name[SEGMENT_NAME_MAX] = "";
    if (theirs->body_len < KEY_LEN || theirs->body_len >= KEY_LEN + SEGMENT_NAME_MAX)
        return sh_err_set(err, SH_ERR_PEER, "the offer is malformed");
    memcpy(name, theirs->body + KEY_LEN, theirs->body_len - KEY_LEN);
    return segment_attach(name, theirs->body, out, err);
}

/* That the peer's memory is not visible is normal between containers, and no reason to warn. */
static sh_status shm_offer(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine,
                           void **state, sh_err *err)
{
    shm_segment *shm = NULL;
    sh_err why;
    if (!pair->same_host) return sh_err_set(err, SH_ERR_UNSUPPORTED, "they are on two machines");
    if (theirs == NULL) {
        sh_status status = offer_segment(mine, &shm, err);
        if (status != SH_OK) return status;
    } else if (attach_offered(theirs, &shm, &why) != SH_OK) {
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "rank %d cannot attach it: %s", pair->rank,
                          why.text);
    }
    *state = shm;
    return SH_OK;
}

static int shm_sockets(const sh_pair *pair)
{
    (void)pair;
    return 1; /* the doorbell */
}

static sh_status shm_connect(const sh_pair *pair, void *state, const sh_offer *theirs,
                             sh_channel **out, sh_err *err)
{
    (void)theirs, (void)err;
    shm_segment *shm = state;
    shm->linked = false; /* the peer removed the name when it attached */
    *out = channel_create(shm, pair->socket[0]);
    return SH_OK;
}

static void shm_withdraw(void *state)
{
    segment_close(state);
}

const sh_transport sh_transport_shm = {
    .name = "shm",
    .title = "shared memory",
    .offer = shm_offer,
    .sockets = shm_sockets,
    .connect = shm_connect,
    .withdraw = shm_withdraw,
};

void sh_host_id(uint8_t out[SH_HOST_ID_LEN])
{
    char text[256] = "";
    sh_boot_id(text);
    if (strcmp(text, "-") == 0 && gethostname(text, sizeof(text) - 1) != 0) text[0] = '\0';
    uint8_t hash[32];
    size_t len;
    SH_ASSERT(EVP_Q_digest(NULL, "SHA256", NULL, text, strlen(text), hash, &len) == 1);
    memcpy(out, hash, SH_HOST_ID_LEN);
}
