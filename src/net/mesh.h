/* mesh.h - the connections of one rank to all others of its group.
 *
 * Ranks start in any order and connect to the coordinator, which is rank 0. When all have joined it
 * sends everybody the table of addresses; then each pair opens a control connection and a data
 * channel. Joining is all or nothing: if a rank does not match (another version, model or world
 * size, or a rank that is already taken), every rank that has joined learns which one and why.
 *
 * Strangers do not affect this: a connection that does not prove the token is rejected and the
 * ranks keep waiting.
 *
 * The mesh owns its connections and channels. One thread may serve the control connections while
 * another uses the channels; coll/group.h does that.
 *
 * Threads: one thread joins; afterwards each connection and channel has one owner. */
#ifndef SH_NET_MESH_H
#define SH_NET_MESH_H

#include "net/acceptor.h"
#include "net/roster.h"
#include "net/transport.h"

typedef struct {
    int rank;                /* SH_RANK_ANY: rank 0 is to give a number */
    int size;                /* 1..SH_RANKS_MAX; on ranks that are added later 0 */
    const char *coordinator; /* "host:port" of rank 0, or several; rank 0 listens there */
    /* This rank's own addresses "host:port", in the order of the data connections. None: rank 0
     * listens on the coordinator address, others on the local address of their route to it. */
    const char *listen[SH_LANES_MAX];
    int listen_count;
    int everywhere;    /* instead, on all addresses of this machine, with this port; -1: no. The
                          others use the nearest of them */
    int listen_fd;     /* rank 0: a listening socket to take ownership of; -1 for none */
    const char *token; /* NULL: no token, and then only loopback unless insecure */
    bool insecure;
    bool plain_data;   /* data connections drop TLS after the handshake */
    const char *group; /* name; ranks of another group are refused */
    uint8_t model[SH_MODEL_ID_LEN];
    uint8_t node[SH_NODE_ID_LEN];   /* see sh_hello */
    uint64_t life;                  /* likewise */
    uint64_t last_epoch, last_left; /* of the group that this rank was in before; 0: none */
    /* A group that runs takes in a rank that is prepared: it has loaded its share for the group
     * with this epoch. 0: it comes in as it is, and the others wait while it loads. If it is not
     * prepared for this group, sh_mesh_join returns SH_ERR_CANCELLED at once. */
    uint64_t prepared;

    sh_roster *roster; /* rank 0, borrowed: ranks may come and go. NULL: exactly `size` of them */
    const sh_transport *const *transports; /* sh_transports; tests may have more */
    const sh_transport *wanted;            /* for all pairs, or fail; NULL: the best for each */
    void *library;    /* borrowed; what `wanted` runs on: an sh_mpi for MPI, else NULL */
    int lanes;        /* pairs of data connections between two ranks, 1..SH_LANES_MAX */
    int join_ms;      /* how long to wait for all ranks */
    int handshake_ms; /* how long one connection may take until its hello */
} sh_mesh_opts;

typedef struct {
    sh_peer_conn *control;       /* NULL for this rank itself, and where there is no rank */
    sh_channel *channel;         /* likewise */
    char name[SH_ADDR_TEXT_MAX]; /* the address, for error texts */
} sh_mesh_peer;

typedef struct {
    int rank;
    int size;        /* the largest number of a rank, and one; some in between may not exist */
    sh_hello hello;  /* of this rank, to compare with those of others */
    bool grows;      /* rank 0 of a group that ranks may be added to */
    uint64_t left;   /* see sh_rank_table */
    uint64_t epoch;  /* new each time the group forms; the same on all ranks, never 0 */
    int local_count; /* ranks on this machine, including this one */
    sh_mesh_peer peer[SH_RANKS_MAX];
    sh_addr_list coordinator; /* where rank 0 can be reached */
    sh_acceptor *acceptor;    /* stays open, to refuse latecomers with a reason */
    sh_tls *tls;
} sh_mesh;

#define SH_PREPARED_NOT UINT64_MAX

/* Defaults: one rank of a group of one, loopback, 60 s to join. */
void sh_mesh_opts_init(sh_mesh_opts *opts);

SH_MUST_CHECK sh_status sh_mesh_join(const sh_mesh_opts *opts, sh_mesh **out, sh_err *err);
void sh_mesh_close(sh_mesh *mesh);

/* Opens a connection to rank 0 of a mesh that has formed, for weights. Those with different `index`
 * use the addresses of rank 0 in turn, as data connections do. Waits until the deadline, or until
 * stop_fd is readable (SH_ERR_GROUP). For any thread. */
SH_MUST_CHECK sh_status sh_mesh_connect(const sh_mesh *mesh, int index, int stop_fd,
                                        sh_deadline deadline, sh_stream *out, sh_err *err);

/* The same for a rank that prepares to come in: to rank 0 of the group that runs at the coordinator
 * of these options. `tls` is for their token (NULL: none), and must outlive the stream. */
SH_MUST_CHECK sh_status sh_mesh_visit(const sh_mesh_opts *opts, sh_tls *tls, sh_deadline deadline,
                                      sh_stream *out, sh_err *err);

#endif
