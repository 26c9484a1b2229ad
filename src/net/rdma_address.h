/* rdma_address.h - the addresses of queue pairs, as offers carry them, and the choice of a GID.
 *
 * A port has a table of GIDs, one for each address of its network interface and each version of
 * RoCE, in an order that differs between machines. Taking a fixed index fails on some of them. So
 * the end that offers names the best of each class of addresses; the end that answers compares them
 * with its own, takes the two that are closest to each other, and names that one.
 *
 * Without device names the lanes of an offer are alternatives: all active ports of the machine. The
 * answer has one lane, and says which of them it goes to.
 *
 * Threads: pure functions. */
#ifndef SH_NET_RDMA_ADDRESS_H
#define SH_NET_RDMA_ADDRESS_H

#include "net/peer_messages.h"
#include "net/rdma_plugin.h"

typedef enum {
    SH_RDMA_IPV4,
    SH_RDMA_IPV6,
    SH_RDMA_LINK_LOCAL,
    SH_RDMA_GID_CLASSES
} sh_rdma_gid_class;

/* One end of a lane. */
typedef struct {
    uint16_t lid; /* 0: addressed by its GID alone */
    sh_rdma_gid gid[SH_RDMA_GID_CLASSES];
    uint32_t qpn[SH_RDMA_KINDS]; /* 0: it does not have that kind */
    uint32_t psn;
    int mtu;
} sh_rdma_address;

typedef struct {
    bool send_only;     /* one of the devices is */
    bool any;           /* the lanes are alternatives */
    int chosen;         /* of an answer to alternatives: which */
    int depth;          /* receives that are posted on each lane */
    uint32_t slot_len;  /* of each receive */
    uint32_t frame_len; /* the longest frame */
    int count;
    sh_rdma_address lane[SH_LANES_MAX];
} sh_rdma_addresses;

void sh_rdma_addresses_pack(const sh_rdma_addresses *from, sh_offer *offer);
SH_MUST_CHECK sh_status sh_rdma_addresses_unpack(const sh_offer *offer, sh_rdma_addresses *out,
                                                 sh_err *err);

/* With link-local IPv4 addresses among those of IPv4. */
sh_rdma_gid_class sh_rdma_gid_class_of(const sh_rdma_gid *gid);

/* How well a GID suits: the one of the highest value is taken, 0 is not usable. near: the GID that
 * it must reach; NULL if that is not known yet. */
int sh_rdma_gid_value(const sh_rdma_gid *gid, const sh_rdma_gid *near);

/* The least that an end must offer: so many receives, each as long as the longest notice. */
enum { SH_RDMA_DEPTH_MIN = 8, SH_RDMA_NOTICE_LEN = 128 };

enum { SH_RDMA_GID_TEXT_MAX = 46 };
void sh_rdma_gid_format(const sh_rdma_gid *gid, char out[SH_RDMA_GID_TEXT_MAX]);

#endif
