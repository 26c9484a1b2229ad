/* rdma_internal.h - what the files of the RDMA transport share; private to net/rdma*.c.
 *
 *   rdma.c            the plugin, open devices, registered memory, errors in words
 *   rdma_address.c    what two ranks tell each other, and the choice of GIDs
 *   rdma_transport.c  offers: from device names to connected queue pairs
 *   rdma_channel.c    messages over queue pairs; what it is made of is in rdma_channel.h
 *
 * Threads: the one that uses the group. */
#ifndef SH_NET_RDMA_INTERNAL_H
#define SH_NET_RDMA_INTERNAL_H

#include "net/rdma.h"
#include "net/rdma_address.h"
#include "net/transport.h"

enum { SH_RDMA_DEVICES_MAX = 16, SH_RDMA_PORTS_MAX = 8 };

/* An open device. It stays open until the program ends, because opening takes long and memory is
 * registered with it. */
typedef struct {
    char name[SH_RDMA_NAME_MAX];
    sh_rdma_dev *handle; /* NULL: closed again, after it had vanished */
    int index;           /* in sh_rdma */
    bool gone;
    int users; /* queue pairs on it; it stays open while there are any */
    unsigned downs[SH_RDMA_PORTS_MAX + 1]; /* how often each port went down */
} sh_rdma_device;

typedef struct sh_rdma_region sh_rdma_region;

struct sh_rdma {
    const sh_rdma_plugin *plugin;
    const sh_rdma_devices *devices; /* NULL: any */
    sh_rdma_device device[SH_RDMA_DEVICES_MAX];
    int device_count;
    sh_rdma_region *regions; /* a list; there are few */
    uint64_t copied;         /* bytes that went through a bounce buffer */
};

/* A port of a device, as it is now. */
typedef struct {
    sh_rdma_device *device;
    int number;
    sh_rdma_port is;
} sh_rdma_port_ref;

/* The port of that name, which must be active; opens the device on first use. */
SH_MUST_CHECK sh_status sh_rdma_find_port(sh_rdma *rdma, const char *name, sh_rdma_port_ref *out,
                                          sh_err *err);

/* The active ports of all devices, at most `cap`; returns how many. An error if there are none. */
SH_MUST_CHECK sh_status sh_rdma_active_ports(sh_rdma *rdma, sh_rdma_port_ref *out, int cap,
                                             int *count, sh_err *err);

/* SH_OK unless the device or the port was lost since `downs` was downs[port]. */
SH_MUST_CHECK sh_status sh_rdma_check_port(sh_rdma *rdma, sh_rdma_device *device, int port,
                                           unsigned downs, sh_err *err);

/* Queue pairs on a port; create returns 0 or an errno value, destroy takes NULL. */
SH_MUST_CHECK int sh_rdma_qp_create(sh_rdma *rdma, const sh_rdma_port_ref *port, sh_rdma_kind kind,
                                    int depth, sh_rdma_qp **out);
void sh_rdma_qp_destroy(sh_rdma *rdma, const sh_rdma_port_ref *port, sh_rdma_qp *qp);

/* Registers memory with all open devices, once: another call for the same memory shares it. */
SH_MUST_CHECK sh_status sh_rdma_register(sh_rdma *rdma, void *at, size_t len, sh_rdma_region **out,
                                         sh_err *err);
void sh_rdma_unregister(sh_rdma *rdma, sh_rdma_region *region);
bool sh_rdma_region_is_at(const sh_rdma_region *region, const void *at);

/* The keys of registered memory on a device; false if it is not registered, or not all of it. */
bool sh_rdma_keys_of(const sh_rdma *rdma, const sh_rdma_device *device, const void *at, size_t len,
                     sh_rdma_keys *out);

/* Words for an errno value of the plugin, with what to do about it. */
sh_status sh_rdma_failed(const char *device, const char *what, int error, sh_err *err);

/* ---- rdma_channel.c ---- */

typedef struct {
    sh_rdma *rdma;
    int peer;
    bool leads;     /* greets first */
    bool send_only; /* of either end */
    sh_rdma_kind kind;
    int lanes;
    struct {
        sh_rdma_port_ref port;
        sh_rdma_qp *qp; /* owned by the channel once it was created */
        int peer_depth; /* receives that the peer posts */
    } lane[SH_LANES_MAX];
    int depth;          /* receives that we post on each lane */
    uint32_t slot_len;  /* the smaller of both ends */
    uint32_t frame_len; /* likewise; with send_only, all have it, and so do the slots */
} sh_rdma_channel_opts;

/* What a device can do for a channel: how many receives, and how long slots and frames are. */
enum { SH_RDMA_DEPTH = 16, SH_RDMA_FRAME_MIN = 1024 };
uint32_t sh_rdma_slot_len(uint32_t frame_max);
uint32_t sh_rdma_frame_len(uint32_t frame_max);
size_t sh_rdma_padded(size_t len); /* slots start on a page */

/* The queue pairs are still unconnected. */
SH_MUST_CHECK sh_status sh_rdma_channel_create(const sh_rdma_channel_opts *opts, sh_channel **out,
                                               sh_err *err);

/* After the queue pairs are connected: posts the receives. */
SH_MUST_CHECK sh_status sh_rdma_channel_start(sh_channel *channel, sh_err *err);

/* After that, on both ends: SH_OK once a frame has gone each way on every lane. */
SH_MUST_CHECK sh_status sh_rdma_channel_greet(sh_channel *channel, sh_err *err);

#endif
