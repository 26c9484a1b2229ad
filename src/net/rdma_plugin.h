/* rdma_plugin.h - the interface between the program and libibverbs.
 *
 * The program contains nothing of the verbs library, so that it runs where there is none. The
 * plugin (plugins/rdma.c) only translates calls; credits, frames, sequence numbers and the choice
 * of addresses are in net/rdma*.c. Tests put devices made of memory behind the same table.
 *
 * Calls return 0 or a positive errno value. None of them waits for the peer.
 *
 * Threads: any, one call at a time for a device and everything opened on it. */
#ifndef SH_NET_RDMA_PLUGIN_H
#define SH_NET_RDMA_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SH_RDMA_PLUGIN_VERSION = 2,
    SH_RDMA_NAME_MAX = 64, /* of a device, with the terminating zero */
    SH_RDMA_GID_LEN = 16,
    SH_RDMA_PARTS_MAX = 2,    /* pieces of memory that one frame is gathered from */
    SH_RDMA_PIECE_MIN = 4096, /* the shortest frame of a send-only device */
};

typedef struct sh_rdma_dev sh_rdma_dev;
typedef struct sh_rdma_qp sh_rdma_qp;
typedef struct sh_rdma_mr sh_rdma_mr;

/* Reliable connections acknowledge and repeat; unreliable ones lose a frame without notice. */
typedef enum { SH_RDMA_RC, SH_RDMA_UC, SH_RDMA_KINDS } sh_rdma_kind;

/* A send-only device (Thunderbolt) has unreliable queue pairs, without writes, immediate data,
 * inline data or a second part. Receives can be posted only after connect, and a frame must be as
 * long as the receive that it goes to. Completions and lost ports raise no event: arm, disarm, fd
 * and event_fd are not called. */
typedef struct {
    bool active;
    bool ethernet;  /* RoCE; false: InfiniBand or Thunderbolt */
    bool send_only; /* see above; frame_max is a power of two then, at least SH_RDMA_PIECE_MIN */
    uint16_t lid;
    int mtu;            /* in bytes */
    uint32_t frame_max; /* the longest frame */
    int gids;           /* entries of the GID table */
    int ports;          /* of the device */
    int depth;          /* requests that a queue of the device can hold */
} sh_rdma_port;

typedef enum {
    SH_RDMA_GID_NONE,
    SH_RDMA_GID_IB,
    SH_RDMA_GID_ROCE_1,
    SH_RDMA_GID_ROCE_2
} sh_rdma_gid_type;

typedef struct {
    sh_rdma_gid_type type; /* NONE: the entry is empty */
    uint8_t raw[SH_RDMA_GID_LEN];
} sh_rdma_gid;

typedef struct {
    uint32_t local, remote; /* keys */
} sh_rdma_keys;

/* Where a queue pair is connected to. */
typedef struct {
    int gid_index; /* of this end */
    int mtu;
    uint32_t my_psn;
    uint32_t psn, qpn; /* of the peer */
    uint16_t lid;      /* of the peer; 0: it is addressed by its GID alone */
    uint8_t gid[SH_RDMA_GID_LEN];
} sh_rdma_path;

typedef struct {
    const void *at;
    uint32_t len;
    uint32_t key;
} sh_rdma_part;

typedef struct {
    uint64_t id;
    bool write;   /* into the peer's memory at `remote`; false: into a receive that it posted */
    bool in_line; /* the data is taken at once, and needs no key */
    uint32_t imm; /* arrives with the data */
    uint64_t remote;
    uint32_t remote_key;
    int parts;
    sh_rdma_part part[SH_RDMA_PARTS_MAX];
} sh_rdma_send;

typedef enum {
    SH_RDMA_DONE,
    SH_RDMA_SILENT,  /* the peer did not acknowledge in time */
    SH_RDMA_FLUSHED, /* the queue pair had failed before */
    SH_RDMA_FAILED,  /* anything else; `reason` says what */
} sh_rdma_result;

typedef struct {
    uint64_t id;
    sh_rdma_result result;
    const char *reason; /* in the library's words */
    bool received;      /* false: something was sent */
    bool written;       /* received: into the memory that the peer was told of */
    uint32_t len;       /* received */
    uint32_t imm;       /* received */
} sh_rdma_completion;

typedef enum { SH_RDMA_QUIET, SH_RDMA_PORT_DOWN, SH_RDMA_GONE } sh_rdma_event;

typedef struct {
    int version; /* SH_RDMA_PLUGIN_VERSION */

    /* Fills in up to `cap` names and sets *count to how many devices there are. */
    int (*list)(char names[][SH_RDMA_NAME_MAX], int cap, int *count);

    int (*open)(const char *name, sh_rdma_dev **out);
    void (*close)(sh_rdma_dev *dev);
    int (*port)(sh_rdma_dev *dev, int port, sh_rdma_port *out);
    int (*gid)(sh_rdma_dev *dev, int port, int index, sh_rdma_gid *out);

    /* What has happened to the device since the last call; the descriptor is readable then. */
    sh_rdma_event (*event)(sh_rdma_dev *dev, int *port);
    int (*event_fd)(const sh_rdma_dev *dev);

    /* Pins memory, so that the device and its peers can read and write it. */
    int (*register_memory)(sh_rdma_dev *dev, void *at, size_t len, sh_rdma_mr **out,
                           sh_rdma_keys *keys);
    void (*deregister)(sh_rdma_mr *mr);

    /* A queue pair with its own completion queue; `depth` requests in each direction. EOPNOTSUPP:
     * the device does not have that kind. */
    int (*create)(sh_rdma_dev *dev, int port, sh_rdma_kind kind, int depth, sh_rdma_qp **out);
    void (*destroy)(sh_rdma_qp *qp);
    uint32_t (*number)(const sh_rdma_qp *qp);
    uint32_t (*inline_max)(const sh_rdma_qp *qp);
    int (*connect)(sh_rdma_qp *qp, const sh_rdma_path *path);

    int (*post_receive)(sh_rdma_qp *qp, uint64_t id, void *at, uint32_t len, uint32_t key);
    int (*post_send)(sh_rdma_qp *qp, const sh_rdma_send *send);

    /* Sets *count to how many completions were stored, at most `cap`. */
    int (*poll)(sh_rdma_qp *qp, sh_rdma_completion *out, int cap, int *count);

    /* After arm, the descriptor becomes readable at the next completion; disarm clears it. */
    int (*arm)(sh_rdma_qp *qp);
    void (*disarm)(sh_rdma_qp *qp);
    int (*fd)(const sh_rdma_qp *qp);
} sh_rdma_plugin;

/* The only symbol that a plugin exports. */
#define SH_RDMA_PLUGIN_SYMBOL "sh_rdma_plugin_table"
extern const sh_rdma_plugin sh_rdma_plugin_table;

#endif
