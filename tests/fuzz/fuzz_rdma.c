/* A peer that sends anything over RDMA: its offer, then frames of any type, number, credits, length
 * and content, while this rank sends and receives. The device is made of memory and hands over the
 * bytes of the input; a sanitizer sees what leaves the slots. */
#include "net/rdma.h"

#include "net/rdma_address.h"
#include "net/transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16, STEPS = 64 };

/* What is left of the input. */
static const uint8_t *input;
static size_t input_len;

static uint32_t take(int bytes)
{
    uint32_t value = 0;
    for (; bytes > 0 && input_len > 0; bytes--, input_len--) value = value << 8 | *input++;
    return value;
}

struct sh_rdma_dev {
    int unused;
};
struct sh_rdma_mr {
    int unused;
};
struct sh_rdma_qp {
    struct {
        uint64_t id;
        uint8_t *at;
        uint32_t len;
    } slot[DEPTH];
    int slots;
    uint64_t sent[DEPTH];
    int sends;
    uint32_t seq;
};

static bool send_only;

static struct sh_rdma_dev device;
static struct sh_rdma_mr region;

static int list(char names[][SH_RDMA_NAME_MAX], int cap, int *count)
{
    (void)cap;
    snprintf(names[0], SH_RDMA_NAME_MAX, "fuzz0");
    *count = 1;
    return 0;
}

static int dev_open(const char *name, sh_rdma_dev **out)
{
    (void)name;
    *out = &device;
    return 0;
}

static void dev_close(sh_rdma_dev *dev)
{
    (void)dev;
}

static int port(sh_rdma_dev *dev, int number, sh_rdma_port *out)
{
    (void)dev, (void)number;
    *out = (sh_rdma_port){.active = true,
                          .ethernet = true,
                          .mtu = 1024,
                          .send_only = send_only,
                          .frame_max = send_only ? 4096 : 2048,
                          .gids = 1,
                          .ports = 1,
                          .depth = DEPTH};
    return 0;
}

static int gid(sh_rdma_dev *dev, int number, int index, sh_rdma_gid *out)
{
    (void)dev, (void)number, (void)index;
    *out = (sh_rdma_gid){.type = SH_RDMA_GID_ROCE_2};
    out->raw[10] = out->raw[11] = 0xff;
    return 0;
}

static sh_rdma_event event(sh_rdma_dev *dev, int *number)
{
    (void)dev, (void)number;
    return SH_RDMA_QUIET;
}

static int event_fd(const sh_rdma_dev *dev)
{
    (void)dev;
    return STDIN_FILENO;
}

static int register_memory(sh_rdma_dev *dev, void *at, size_t len, sh_rdma_mr **out,
                           sh_rdma_keys *keys)
{
    (void)dev, (void)at, (void)len;
    *out = &region;
    *keys = (sh_rdma_keys){1, 1};
    return 0;
}

static void deregister(sh_rdma_mr *mr)
{
    (void)mr;
}

static int create(sh_rdma_dev *dev, int number, sh_rdma_kind kind, int depth, sh_rdma_qp **out)
{
    (void)dev, (void)number, (void)kind;
    if (depth > DEPTH) return EINVAL;
    *out = calloc(1, sizeof(**out));
    return 0;
}

static void destroy(sh_rdma_qp *qp)
{
    free(qp);
}

static uint32_t number(const sh_rdma_qp *qp)
{
    (void)qp;
    return 7;
}

static uint32_t inline_max(const sh_rdma_qp *qp)
{
    (void)qp;
    return 0;
}

static int qp_connect(sh_rdma_qp *qp, const sh_rdma_path *path)
{
    (void)qp, (void)path;
    return 0;
}

static int post_receive(sh_rdma_qp *qp, uint64_t id, void *at, uint32_t len, uint32_t key)
{
    (void)key;
    if (qp->slots == DEPTH) return ENOMEM;
    qp->slot[qp->slots].id = id;
    qp->slot[qp->slots].at = at;
    qp->slot[qp->slots++].len = len;
    return 0;
}

/* What is sent is read, so that a sanitizer sees where from. */
static int post_send(sh_rdma_qp *qp, const sh_rdma_send *send)
{
    static volatile uint8_t sum;
    if (qp->sends == DEPTH) return ENOMEM;
    for (int i = 0; i < send->parts; i++)
        for (uint32_t k = 0; k < send->part[i].len; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)send->part[i].at)[k]);
    qp->sent[qp->sends++] = send->id;
    return 0;
}

/* The next frame of the input: usually with the right number, or nothing would get far. */
static sh_rdma_completion next_frame(sh_rdma_qp *qp)
{
    uint32_t how = take(1), type = how & 3, len = take(1);
    bool short_frame = (how & 4) == 0;
    uint32_t seq = (how & 8) != 0 && (how & 0x70) == 0 ? take(2) : qp->seq;
    uint8_t *at = qp->slot[0].at;
    if (!short_frame) len = len << 3 | (how >> 5);
    if (len > qp->slot[0].len) len = qp->slot[0].len;
    uint32_t imm = type << 30 | (how >> 4 & 7) << 20 | (seq & 0xfffff);
    if (send_only) { /* the header is in front of the bytes */
        for (int i = 0; i < 4; i++) at[i] = (uint8_t)(imm >> 8 * i);
        for (int i = 0; i < 4; i++) at[4 + i] = (uint8_t)(len >> 8 * i);
        if ((how & 0x80) == 0) len = qp->slot[0].len;
    }
    for (uint32_t i = 0; i < len && !send_only && type != 1 && input_len > 0; i++)
        at[i] = (uint8_t)take(1);
    sh_rdma_completion done = {
        .id = qp->slot[0].id, .received = true, .written = type == 1, .len = len, .imm = imm};
    memmove(qp->slot, qp->slot + 1, sizeof(qp->slot[0]) * (size_t)--qp->slots);
    qp->seq++;
    return done;
}

static int poll_frames(sh_rdma_qp *qp, sh_rdma_completion *out, int cap, int *count)
{
    *count = 0;
    for (; qp->sends > 0 && *count < cap; qp->sends--)
        out[(*count)++] = (sh_rdma_completion){.id = qp->sent[qp->sends - 1]};
    if (input_len > 0 && qp->slots > 0 && *count < cap) out[(*count)++] = next_frame(qp);
    return 0;
}

static int arm(sh_rdma_qp *qp)
{
    (void)qp;
    return 0;
}

static void disarm(sh_rdma_qp *qp)
{
    (void)qp;
}

static int fd(const sh_rdma_qp *qp)
{
    (void)qp;
    return STDIN_FILENO;
}

static const sh_rdma_plugin PLUGIN = {
    .version = SH_RDMA_PLUGIN_VERSION,
    .list = list,
    .open = dev_open,
    .close = dev_close,
    .port = port,
    .gid = gid,
    .event = event,
    .event_fd = event_fd,
    .register_memory = register_memory,
    .deregister = deregister,
    .create = create,
    .destroy = destroy,
    .number = number,
    .inline_max = inline_max,
    .connect = qp_connect,
    .post_receive = post_receive,
    .post_send = post_send,
    .poll = poll_frames,
    .arm = arm,
    .disarm = disarm,
    .fd = fd,
};

/* Sends and receives short and long messages until the peer is found out, or the input ends. */
static void use_channel(sh_channel *channel)
{
    static char heads[2][64], bodies[2][5000];
    sh_status status[2] = {SH_OK, SH_OK};
    sh_msg msg[2];
    sh_err err;
    struct pollfd fds[SH_CHANNEL_FDS_MAX];
    if (take(1) % 2 == 0 && channel->ops->register_memory != NULL &&
        channel->ops->register_memory(channel, bodies, sizeof(bodies), &err) != SH_OK)
        return;
    for (int step = 0; step < STEPS && status[0] >= 0 && status[1] >= 0; step++) {
        for (int dir = 0; dir < 2; dir++) {
            if (status[dir] == SH_OK) {
                msg[dir] = sh_msg_in(heads[dir], 64, bodies[dir], take(2) % sizeof(bodies[dir]));
                msg[dir].lend = take(1) % 2 == 0;
            }
            status[dir] = dir == 0 ? channel->ops->send(channel, &msg[dir], &err)
                                   : channel->ops->recv(channel, &msg[dir], &err);
            SH_ASSERT(msg[dir].done <= msg[dir].len);
            SH_ASSERT(status[dir] != SH_OK || msg[dir].done == msg[dir].len);
        }
        if (channel->ops->tend(channel, &err) != SH_OK) return;
        if (status[0] == SH_AGAIN && status[1] == SH_AGAIN && channel->ops->arm != NULL &&
            channel->ops->arm(channel, true, true, fds) >= 0)
            channel->ops->disarm(channel);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const sh_transport *t = &sh_transport_rdma;
    sh_rdma_opts opts = {.plugin = &PLUGIN};
    sh_pair pair = {.rank = 0, .peer = 1, .lanes = 1};
    static sh_offer theirs, mine;
    sh_rdma *rdma;
    void *state = NULL;
    sh_channel *channel = NULL;
    sh_err err;
    if (len < 40 || sh_rdma_open(&opts, &rdma, &err) != SH_OK) return 0;
    pair.library = rdma;
    theirs.body_len = data[0] % 128;
    send_only = data[0] >= 128;
    if (theirs.body_len > len - 1) theirs.body_len = (uint32_t)(len - 1);
    memcpy(theirs.body, data + 1, theirs.body_len);
    input = data + 1 + theirs.body_len;
    input_len = len - 1 - theirs.body_len;
    sh_status status = t->offer(&pair, &theirs, &mine, &state, &err);
    for (int i = 0; i < 8 && status >= 0 && channel == NULL; i++)
        status = t->connect(&pair, state, &theirs, &channel, &err);
    if (channel != NULL)
        use_channel(channel);
    else if (state != NULL)
        t->withdraw(state);
    sh_channel_close(channel);
    sh_rdma_close(rdma);
    return 0;
}
