/* mesh.h - the links of one rank to all others of its group.
 *
 * Ranks start in any order and meet at the coordinator, which is rank 0. When all are there it
 * tells everybody where everybody is; then each pair makes a control link and a data port. Joining
 * is all or nothing: when a rank does not fit (another version, model, world size, a rank that is
 * there already), every rank that has come hears which and why.
 *
 * Strangers do not count: who does not prove the token is sent away and the ranks go on waiting.
 *
 * The mesh owns its links and ports. A thread may take care of the control links while another uses
 * the ports; coll/group.h does that.
 *
 * Threads: one thread joins; afterwards each link and port has one owner. */
#ifndef SH_NET_MESH_H
#define SH_NET_MESH_H

#include "net/acceptor.h"
#include "net/channel.h"
#include "net/mpi.h"

typedef enum {
    SH_PATH_AUTO, /* shared memory where two ranks share a machine, else sockets */
    SH_PATH_TCP,
    SH_PATH_SHM, /* shared memory or nothing */
} sh_path;

typedef struct {
    int rank;
    int size;                /* 1..SH_RANKS_MAX */
    const char *coordinator; /* "host:port" of rank 0; rank 0 listens there */
    /* This rank's own addresses "host:port", in the order of the data connections. None: rank 0
     * listens on the coordinator's, others on the address from which they reach it. */
    const char *listen[SH_LANES_MAX];
    int listen_count;
    int listen_fd;     /* rank 0: a socket that listens already, taken over; -1 for none */
    const char *token; /* NULL: no token, and then only loopback unless insecure */
    bool insecure;
    bool plain_data;   /* data links go on in clear after the handshake */
    const char *group; /* name; ranks of another group are refused */
    uint8_t model[SH_MODEL_ID_LEN];
    sh_path path;
    int lanes;   /* pairs of data connections between two ranks, 1..SH_LANES_MAX */
    sh_mpi *mpi; /* borrowed; carries the data, with the same ranks. NULL: path says what does */
    int join_ms; /* how long to wait for all ranks */
    int handshake_ms; /* how long one connection may take to say hello */
} sh_mesh_opts;

typedef struct {
    sh_peer_conn *control;       /* NULL for this rank itself */
    sh_channel *channel;         /* likewise */
    char name[SH_ADDR_TEXT_MAX]; /* the address, for error texts */
} sh_mesh_peer;

typedef struct {
    int rank;
    int size;
    uint64_t epoch;  /* of this forming of the group; the same on all ranks, never 0 */
    int local_count; /* ranks on this machine, this one included */
    sh_mesh_peer peer[SH_RANKS_MAX];
    sh_acceptor *acceptor; /* still open, to tell latecomers */
    sh_tls *tls;
} sh_mesh;

/* Defaults: one rank of a group of one, loopback, 60 s to join. */
void sh_mesh_opts_init(sh_mesh_opts *opts);

SH_MUST_CHECK sh_status sh_mesh_join(const sh_mesh_opts *opts, sh_mesh **out, sh_err *err);
void sh_mesh_close(sh_mesh *mesh);

#endif
