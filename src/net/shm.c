#include "net/shm.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "base/system.h"
#include "net/cluster_token.h"
#include "net/sock.h"

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
    RING_LEN = 256 * 1024, /* a power of two; both directions stay in a processor's cache */
    SLICE = 4096, /* what the writer shows at a time, so that the reader copies beside it */
};

/* Counters run on for ever; a position is a counter modulo RING_LEN. Writer and reader each have
 * their own cache line. */
typedef struct {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t taken;
    _Alignas(64) uint8_t data[RING_LEN];
} byte_ring;

typedef struct {
    uint8_t key[SH_SHM_KEY_LEN];
    _Alignas(64) _Atomic uint32_t asleep[2]; /* by side */
    _Alignas(64) _Atomic int32_t cpu[2];     /* by side: where it ran when it last wrote */
    byte_ring ring[2];                       /* by the side that writes */
} segment;

_Static_assert((RING_LEN & (RING_LEN - 1)) == 0, "positions are taken with a mask");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters in shared memory must be lock-free");

struct sh_shm {
    segment *seg;
    int side; /* 0 made it, 1 attached it */
    char name[SH_SHM_NAME_MAX];
    bool linked;
};

static sh_status segment_map(int fd, segment **out, sh_err *err)
{
    void *at = mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return sh_err_sys(err, "shared memory of %zu bytes", sizeof(segment));
    *out = at;
    return SH_OK;
}

/* Takes the room now: a page that can not be had later would be a signal in the middle of a copy.
 */
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

/* What shm_open gives never survives exec; some systems refuse to be told so. */
sh_status sh_shm_create(sh_shm **out, char name[SH_SHM_NAME_MAX], uint8_t key[SH_SHM_KEY_LEN],
                        sh_err *err)
{
    sh_shm *shm = sh_alloc(sizeof(*shm));
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
    memcpy(key, shm->seg->key, SH_SHM_KEY_LEN);
    memcpy(name, shm->name, SH_SHM_NAME_MAX);
    sh_sock_close(fd);
    *out = shm;
    return SH_OK;

fail:
    sh_sock_close(fd);
    sh_shm_close(shm);
    return err->status;
}

/* Only what we ourselves would have made is mapped. */
static sh_status segment_check(int fd, sh_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return sh_err_sys(err, "shared memory");
    off_t page = (off_t)sysconf(_SC_PAGESIZE), size = (off_t)sizeof(segment);
    bool fits = st.st_size == size ||
                st.st_size == (size + page - 1) / page * page; /* macOS tells whole pages */
    if (st.st_uid != geteuid() || !fits)
        return sh_err_set(err, SH_ERR_PEER, "shared memory: of another user or size");
    return SH_OK;
}

sh_status sh_shm_attach(const char *name, const uint8_t key[SH_SHM_KEY_LEN], sh_shm **out,
                        sh_err *err)
{
    if (strncmp(name, "/sh", 3) != 0 || strchr(name + 1, '/') != NULL)
        return sh_err_set(err, SH_ERR_PEER, "shared memory: a name that is none of ours");
    int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0) return sh_err_sys(err, "shared memory %s", name);
    sh_shm *shm = sh_alloc(sizeof(*shm));
    shm->side = 1;
    if (segment_check(fd, err) != SH_OK || segment_map(fd, &shm->seg, err) != SH_OK) goto fail;
    if (memcmp(shm->seg->key, key, SH_SHM_KEY_LEN) != 0) {
        sh_err_set(err, SH_ERR_PEER, "shared memory %s: not the one that was offered", name);
        goto fail;
    }
    sh_sock_close(fd);
    *out = shm;
    return SH_OK;

fail:
    sh_sock_close(fd);
    sh_shm_close(shm);
    return err->status;
}

void sh_shm_unlink(sh_shm *shm)
{
    if (shm->linked) shm_unlink(shm->name);
    shm->linked = false;
}

void sh_shm_close(sh_shm *shm)
{
    if (shm == NULL) return;
    sh_shm_unlink(shm);
    if (shm->seg != NULL) munmap(shm->seg, sizeof(segment));
    free(shm);
}

typedef struct {
    sh_channel base;
    sh_shm *shm;
    sh_stream bell;
    _Atomic uint32_t *my_sleep;
    _Atomic uint32_t *peer_sleep;
    _Atomic int32_t *my_cpu;
    const _Atomic int32_t *peer_cpu;
    int cpu; /* what stands in *my_cpu */
    byte_ring *out;
    byte_ring *in;
    uint64_t written; /* own counters: what stands in the segment is only shown, never read back */
    uint64_t taken;
    sh_err gone; /* why the socket ended, once it has; what is in the ring still counts */
} shm_channel;

/* Copies between the message from msg->done on and the ring from `at` on. */
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
    return sh_err_set(err, SH_ERR_GROUP, "shared memory: the peer's counter makes no sense");
}

/* Wakes the peer if it sleeps. The fence orders our counter before the look at its flag; the peer
 * sets its flag before it looks at our counter a last time, so one of the two sees the other. */
static void ring_bell(shm_channel *channel)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(channel->peer_sleep, memory_order_relaxed) == 0) return;
    atomic_store_explicit(channel->peer_sleep, 0, memory_order_relaxed);
    char byte = 1;
    size_t moved;
    sh_err ignored; /* a dead peer shows in arm and in recv */
    if (sh_stream_write(&channel->bell, &(struct iovec){&byte, 1}, 1, &moved, &ignored) < 0) return;
}

/* What a transfer says that can not go on: later, or never since the peer has gone. */
static sh_status stuck(const shm_channel *channel, sh_err *err)
{
    if (channel->gone.status == SH_OK) return SH_AGAIN;
    *err = channel->gone;
    return err->status;
}

static void show_cpu(shm_channel *channel)
{
    int cpu = sh_cpu_now();
    if (cpu == channel->cpu) return;
    channel->cpu = cpu;
    atomic_store_explicit(channel->my_cpu, cpu, memory_order_relaxed);
}

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

/* Empties the bell. The socket tells what the segment can not: that the peer has gone. */
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

static bool shm_is_aside(const sh_channel *base)
{
    const shm_channel *channel = (const shm_channel *)base;
    int peer = atomic_load_explicit(channel->peer_cpu, memory_order_relaxed);
    return peer >= 0 && peer == sh_cpu_now();
}

static void shm_close(sh_channel *base)
{
    shm_channel *channel = (shm_channel *)base;
    sh_shm_close(channel->shm);
    sh_stream_close(&channel->bell);
    free(channel);
}

static const sh_channel_ops SHM_OPS = {"shm",      shm_send,     shm_recv, shm_arm,
                                       shm_disarm, shm_is_aside, shm_close};

sh_channel *sh_shm_channel_create(sh_shm *shm, sh_stream bell)
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
