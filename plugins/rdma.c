/* The plugin between the program and libibverbs; see net/rdma_plugin.h. It only translates calls.
 *
 * Thunderbolt devices (librdma of macOS) are send-only. They count the places of a queue in frames
 * of 4 KiB, whatever a request is long, and refuse memory that is not registered for everything.
 * They also have no acknowledgements, no RDMA write and no descriptors to wait for.
 *
 * Two variables are for tests: SHOAL_RDMA_UC=1 makes any device behave like one that has unreliable
 * connections only, SHOAL_RDMA_SEND_ONLY=1 like one of Thunderbolt. */
#include "net/rdma_plugin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

enum {
    ACK_TIMEOUT = 14, /* 4.096 us * 2^14 = 67 ms until a frame is repeated */
    RETRIES = 7,      /* so a dead path fails after half a second */
    RNR_RETRIES = 3,  /* credits make sure that a receive is posted; more would only hide a bug */
    RNR_TIMER = 12,
    HOPS = 64,
    INLINE_WANTED = 128,
    SEND_ONLY_FRAME = 16 * 1024, /* long enough for most sums, and short for a barrier */
};

struct sh_rdma_dev {
    struct ibv_context *context;
    struct ibv_pd *pd;
    bool send_only;
    uint32_t active; /* send-only: which ports were active when last seen, by bit */
};

struct sh_rdma_qp {
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    struct ibv_comp_channel *events; /* NULL: send-only */
    uint8_t port;
    bool send_only;
    uint32_t inline_max;
};

/* Verbs set errno, but a few providers forget. */
static int failure(void)
{
    return errno > 0 ? errno : EIO;
}

/* Most calls return a positive errno value, some providers -1 with errno or a negative value. */
static int code_of(int result)
{
    if (result == -1) return failure();
    return result < 0 ? -result : result;
}

static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? failure() : 0;
}

static int plugin_list(char names[][SH_RDMA_NAME_MAX], int cap, int *count)
{
    errno = 0;
    struct ibv_device **list = ibv_get_device_list(count);
    if (list == NULL) return failure();
    for (int i = 0; i < *count && i < cap; i++)
        snprintf(names[i], SH_RDMA_NAME_MAX, "%s", ibv_get_device_name(list[i]));
    ibv_free_device_list(list);
    return 0;
}

static struct ibv_context *open_by_name(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    bool found = false;
    for (int i = 0; list != NULL && list[i] != NULL && !found; i++) {
        found = strcmp(ibv_get_device_name(list[i]), name) == 0;
        errno = 0;
        if (found) context = ibv_open_device(list[i]);
    }
    int error = found ? failure() : ENODEV;
    if (list != NULL) ibv_free_device_list(list);
    errno = error;
    return context;
}

static void plugin_close(sh_rdma_dev *dev)
{
    if (dev->pd != NULL) ibv_dealloc_pd(dev->pd);
    if (dev->context != NULL) ibv_close_device(dev->context);
    free(dev);
}

#ifdef __APPLE__
static bool is_send_only(void)
{
    return true;
}

/* Before macOS 26.3 longer frames do not arrive. */
static uint32_t send_only_frame(void)
{
    char version[32] = "";
    size_t len = sizeof(version) - 1;
    int major = 0, minor = 0;
    sysctlbyname("kern.osproductversion", version, &len, NULL, 0);
    sscanf(version, "%d.%d", &major, &minor);
    return 100 * major + minor >= 2603 ? SEND_ONLY_FRAME : SH_RDMA_PIECE_MIN;
}
#else
static bool is_send_only(void)
{
    return getenv("SHOAL_RDMA_SEND_ONLY") != NULL;
}

static uint32_t send_only_frame(void)
{
    return SEND_ONLY_FRAME;
}
#endif

static int plugin_open(const char *name, sh_rdma_dev **out)
{
    sh_rdma_dev *dev = calloc(1, sizeof(*dev));
    if (dev == NULL) return ENOMEM;
    dev->send_only = is_send_only();
    int error = 0;
    dev->context = open_by_name(name);
    if (dev->context == NULL) error = failure();
    errno = 0;
    if (error == 0 && (dev->pd = ibv_alloc_pd(dev->context)) == NULL) error = failure();
    if (error == 0 && !dev->send_only) error = set_nonblocking(dev->context->async_fd);
    if (error != 0)
        plugin_close(dev);
    else
        *out = dev;
    return error;
}

static int plugin_port(sh_rdma_dev *dev, int port, sh_rdma_port *out)
{
    struct ibv_port_attr attr;
    struct ibv_device_attr device;
    int error = code_of(ibv_query_port(dev->context, (uint8_t)port, &attr));
    if (error == 0) error = code_of(ibv_query_device(dev->context, &device));
    if (error != 0) return error;
    *out = (sh_rdma_port){.active = attr.state == IBV_PORT_ACTIVE,
                          .ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET,
                          .lid = attr.lid,
                          .mtu = 128 << attr.active_mtu,
                          .frame_max = attr.max_msg_sz,
                          .gids = attr.gid_tbl_len,
                          .ports = device.phys_port_cnt,
                          .depth = device.max_qp_wr};
    if (dev->send_only) {
        out->send_only = true;
        out->frame_max = send_only_frame();
        out->depth /= SEND_ONLY_FRAME / SH_RDMA_PIECE_MIN;
        if (out->active && port < 32) dev->active |= 1u << port;
    }
    return 0;
}

#ifdef __APPLE__
/* Without types; Thunderbolt behaves like RoCE version 2. */
static int plugin_gid(sh_rdma_dev *dev, int port, int index, sh_rdma_gid *out)
{
    static const union ibv_gid none;
    union ibv_gid gid;
    int error = code_of(ibv_query_gid(dev->context, (uint8_t)port, index, &gid));
    if (error != 0) return error;
    memcpy(out->raw, gid.raw, sizeof(out->raw));
    out->type = memcmp(&gid, &none, sizeof(gid)) == 0 ? SH_RDMA_GID_NONE : SH_RDMA_GID_ROCE_2;
    return 0;
}
#else
/* An empty entry of the table is an error of the call (ENODATA), and none of ours. */
static int plugin_gid(sh_rdma_dev *dev, int port, int index, sh_rdma_gid *out)
{
    static const sh_rdma_gid_type types[] = {[IBV_GID_TYPE_IB] = SH_RDMA_GID_IB,
                                             [IBV_GID_TYPE_ROCE_V1] = SH_RDMA_GID_ROCE_1,
                                             [IBV_GID_TYPE_ROCE_V2] = SH_RDMA_GID_ROCE_2};
    struct ibv_gid_entry entry;
    out->type = SH_RDMA_GID_NONE;
    int error = code_of(ibv_query_gid_ex(dev->context, (uint32_t)port, (uint32_t)index, &entry, 0));
    if (error != 0) return error == ENODATA ? 0 : error;
    memcpy(out->raw, entry.gid.raw, sizeof(out->raw));
    if (entry.gid_type < sizeof(types) / sizeof(types[0])) out->type = types[entry.gid_type];
    return 0;
}
#endif

/* Asks for the state of the ports that have been active, since nothing reports a change. */
static sh_rdma_event event_by_state(sh_rdma_dev *dev, int *port)
{
    for (*port = 1; *port < 32; ++*port) {
        struct ibv_port_attr attr;
        if ((dev->active >> *port & 1) == 0) continue;
        if (ibv_query_port(dev->context, (uint8_t)*port, &attr) != 0) return SH_RDMA_GONE;
        if (attr.state == IBV_PORT_ACTIVE) continue;
        dev->active &= ~(1u << *port);
        return SH_RDMA_PORT_DOWN;
    }
    return SH_RDMA_QUIET;
}

static sh_rdma_event plugin_event(sh_rdma_dev *dev, int *port)
{
    if (dev->send_only) return event_by_state(dev, port);
    struct ibv_async_event event;
    sh_rdma_event found = SH_RDMA_QUIET;
    while (found == SH_RDMA_QUIET && ibv_get_async_event(dev->context, &event) == 0) {
        if (event.event_type == IBV_EVENT_PORT_ERR) {
            found = SH_RDMA_PORT_DOWN;
            *port = event.element.port_num;
        } else if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
            found = SH_RDMA_GONE;
        }
        ibv_ack_async_event(&event);
    }
    return found;
}

static int plugin_event_fd(const sh_rdma_dev *dev)
{
    return dev->context->async_fd;
}

static int plugin_register(sh_rdma_dev *dev, void *at, size_t len, sh_rdma_mr **out,
                           sh_rdma_keys *keys)
{
    errno = 0;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (dev->send_only) access |= IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = ibv_reg_mr(dev->pd, at, len, access);
    if (mr == NULL) return failure();
    *keys = (sh_rdma_keys){.local = mr->lkey, .remote = mr->rkey};
    *out = (sh_rdma_mr *)mr;
    return 0;
}

static void plugin_deregister(sh_rdma_mr *mr)
{
    ibv_dereg_mr((struct ibv_mr *)mr);
}

static void plugin_destroy(sh_rdma_qp *qp)
{
    if (qp->qp != NULL) ibv_destroy_qp(qp->qp);
    if (qp->cq != NULL) ibv_destroy_cq(qp->cq);
    if (qp->events != NULL) ibv_destroy_comp_channel(qp->events);
    free(qp);
}

static int completions_create(sh_rdma_dev *dev, int depth, sh_rdma_qp *qp)
{
    errno = 0;
    if (!dev->send_only) {
        qp->events = ibv_create_comp_channel(dev->context);
        if (qp->events == NULL) return failure();
        int error = set_nonblocking(qp->events->fd);
        if (error != 0) return error;
    }
    qp->cq = ibv_create_cq(dev->context, 2 * depth, NULL, qp->events, 0);
    return qp->cq == NULL ? failure() : 0;
}

static int queues_create(sh_rdma_dev *dev, sh_rdma_kind kind, int depth, sh_rdma_qp *qp)
{
    int error = completions_create(dev, depth, qp);
    if (error != 0) return error;
    struct ibv_qp_init_attr attr = {.send_cq = qp->cq,
                                    .recv_cq = qp->cq,
                                    .qp_type = kind == SH_RDMA_RC ? IBV_QPT_RC : IBV_QPT_UC,
                                    .cap = {.max_send_wr = (uint32_t)depth,
                                            .max_recv_wr = (uint32_t)depth,
                                            .max_send_sge = dev->send_only ? 1 : SH_RDMA_PARTS_MAX,
                                            .max_recv_sge = 1,
                                            .max_inline_data = dev->send_only ? 0 : INLINE_WANTED}};
    errno = 0;
    qp->qp = ibv_create_qp(dev->pd, &attr);
    if (qp->qp == NULL && !dev->send_only) { /* some refuse inline data instead of granting less */
        attr.cap.max_inline_data = 0;
        errno = 0;
        qp->qp = ibv_create_qp(dev->pd, &attr);
    }
    if (qp->qp == NULL) return failure();
    qp->inline_max = attr.cap.max_inline_data;
    return 0;
}

static int to_init(sh_rdma_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = qp->port,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return code_of(ibv_modify_qp(qp->qp, &attr, mask));
}

static int plugin_create(sh_rdma_dev *dev, int port, sh_rdma_kind kind, int depth, sh_rdma_qp **out)
{
    if (kind == SH_RDMA_RC && (dev->send_only || getenv("SHOAL_RDMA_UC") != NULL))
        return EOPNOTSUPP;
    if (dev->send_only) depth *= SEND_ONLY_FRAME / SH_RDMA_PIECE_MIN;
    sh_rdma_qp *qp = calloc(1, sizeof(*qp));
    if (qp == NULL) return ENOMEM;
    qp->port = (uint8_t)port;
    qp->send_only = dev->send_only;
    int error = queues_create(dev, kind, depth, qp);
    if (error == 0) error = to_init(qp);
    if (error != 0)
        plugin_destroy(qp);
    else
        *out = qp;
    return error;
}

static uint32_t plugin_number(const sh_rdma_qp *qp)
{
    return qp->qp->qp_num;
}

static uint32_t plugin_inline_max(const sh_rdma_qp *qp)
{
    return qp->inline_max;
}

static enum ibv_mtu mtu_of(int bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && 256 << mtu <= bytes) mtu++;
    return mtu;
}

static int to_receive(sh_rdma_qp *qp, const sh_rdma_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = mtu_of(path->mtu),
                               .dest_qp_num = path->qpn,
                               .rq_psn = path->psn,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = {.port_num = qp->port,
                                           .dlid = path->lid,
                                           .is_global = path->lid == 0 || qp->send_only,
                                           .grh = {.sgid_index = (uint8_t)path->gid_index,
                                                   .hop_limit = qp->send_only ? 1 : HOPS}}};
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    memcpy(attr.ah_attr.grh.dgid.raw, path->gid, SH_RDMA_GID_LEN);
    if (qp->qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return code_of(ibv_modify_qp(qp->qp, &attr, mask));
}

static int to_send(sh_rdma_qp *qp, const sh_rdma_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = path->my_psn,
                               .timeout = ACK_TIMEOUT,
                               .retry_cnt = RETRIES,
                               .rnr_retry = RNR_RETRIES};
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp->qp_type == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return code_of(ibv_modify_qp(qp->qp, &attr, mask));
}

static int plugin_connect(sh_rdma_qp *qp, const sh_rdma_path *path)
{
    int error = to_receive(qp, path);
    return error == 0 ? to_send(qp, path) : error;
}

static int plugin_post_receive(sh_rdma_qp *qp, uint64_t id, void *at, uint32_t len, uint32_t key)
{
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = len, .lkey = key};
    struct ibv_recv_wr request = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    return code_of(ibv_post_recv(qp->qp, &request, &bad));
}

static int plugin_post_send(sh_rdma_qp *qp, const sh_rdma_send *send)
{
    struct ibv_sge sge[SH_RDMA_PARTS_MAX];
    for (int i = 0; i < send->parts; i++)
        sge[i] = (struct ibv_sge){.addr = (uintptr_t)send->part[i].at,
                                  .length = send->part[i].len,
                                  .lkey = send->part[i].key};
    struct ibv_send_wr request = {
        .wr_id = send->id,
        .sg_list = sge,
        .num_sge = send->parts,
        .opcode = qp->send_only ? IBV_WR_SEND
                  : send->write ? IBV_WR_RDMA_WRITE_WITH_IMM
                                : IBV_WR_SEND_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED | (send->in_line ? IBV_SEND_INLINE : 0),
        .imm_data = htonl(send->imm),
        .wr.rdma = {.remote_addr = send->remote, .rkey = send->remote_key}};
    struct ibv_send_wr *bad;
    return code_of(ibv_post_send(qp->qp, &request, &bad));
}

static sh_rdma_result result_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS: return SH_RDMA_DONE;
    case IBV_WC_RETRY_EXC_ERR: return SH_RDMA_SILENT;
    case IBV_WC_WR_FLUSH_ERR: return SH_RDMA_FLUSHED;
    default: return SH_RDMA_FAILED;
    }
}

/* Of a request that failed, only id and status are defined. */
static sh_rdma_completion translate(const struct ibv_wc *wc)
{
    sh_rdma_completion done = {
        .id = wc->wr_id, .result = result_of(wc->status), .reason = ibv_wc_status_str(wc->status)};
    if (wc->status != IBV_WC_SUCCESS) return done;
    done.received = (wc->opcode & IBV_WC_RECV) != 0;
    done.written = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    done.len = wc->byte_len;
    if (done.received && (wc->wc_flags & IBV_WC_WITH_IMM) != 0) done.imm = ntohl(wc->imm_data);
    return done;
}

static int plugin_poll(sh_rdma_qp *qp, sh_rdma_completion *out, int cap, int *count)
{
    enum { BATCH = 16 };
    struct ibv_wc wc[BATCH];
    int got = ibv_poll_cq(qp->cq, cap < BATCH ? cap : BATCH, wc);
    if (got < 0) return EIO;
    for (int i = 0; i < got; i++) out[i] = translate(&wc[i]);
    *count = got;
    return 0;
}

static int plugin_arm(sh_rdma_qp *qp)
{
    return code_of(ibv_req_notify_cq(qp->cq, 0));
}

static void plugin_disarm(sh_rdma_qp *qp)
{
    struct ibv_cq *cq;
    void *context;
    unsigned events = 0;
    while (ibv_get_cq_event(qp->events, &cq, &context) == 0) events++;
    if (events > 0) ibv_ack_cq_events(qp->cq, events);
}

static int plugin_fd(const sh_rdma_qp *qp)
{
    return qp->events->fd;
}

const sh_rdma_plugin sh_rdma_plugin_table = {
    .version = SH_RDMA_PLUGIN_VERSION,
    .list = plugin_list,
    .open = plugin_open,
    .close = plugin_close,
    .port = plugin_port,
    .gid = plugin_gid,
    .event = plugin_event,
    .event_fd = plugin_event_fd,
    .register_memory = plugin_register,
    .deregister = plugin_deregister,
    .create = plugin_create,
    .destroy = plugin_destroy,
    .number = plugin_number,
    .inline_max = plugin_inline_max,
    .connect = plugin_connect,
    .post_receive = plugin_post_receive,
    .post_send = plugin_post_send,
    .poll = plugin_poll,
    .arm = plugin_arm,
    .disarm = plugin_disarm,
    .fd = plugin_fd,
};
