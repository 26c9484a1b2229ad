/* hostfile.h - the list of ranks and where they run, in the formats of MLX and related projects.
 *
 * A host's position in the list is its rank. These forms are read, all JSON:
 *
 *   [{"ssh": "me@host", "ips": ["10.0.0.1"], "rdma": [null, "mlx5_0"]}, ...]
 *   {"backend": "ring", "envs": ["K=V"], "hosts": [the same objects]}
 *   ["10.0.0.1:9000", "10.0.0.2:9000"]                  one address per rank
 *   [["10.0.0.1:9000", "10.0.1.1:9001"], ...]           several addresses per rank
 *   [[null, "mlx5_0"], ["mlx5_1", null]]                a matrix of devices, no addresses
 *
 * An empty file means a single host. Errors name the file and the entry.
 *
 * Threads: a hostfile is read-only once loaded. */
#ifndef SH_CLUSTER_HOSTFILE_H
#define SH_CLUSTER_HOSTFILE_H

#include "base/arena.h"
#include "base/status.h"
#include "cluster/backend.h"
#include "cluster/findings.h"
#include "net/peer_messages.h"

typedef struct {
    const char **name;
    int count; /* 0: null in the file */
} sh_devices;

typedef struct {
    const char *ssh;                   /* NULL in forms without ssh names */
    const char *address[SH_LANES_MAX]; /* "ip" or "ip:port", see has_ports */
    int address_count;
    sh_devices *rdma; /* [rdma_count] rdma[j]: the devices of this host that reach host j */
    int rdma_count;
} sh_host;

typedef struct {
    sh_arena arena;      /* owns all strings */
    const char *where;   /* the file's name in errors; NULL when it was not read from a file */
    const char *backend; /* "" when the file names none */
    const char **env;    /* "K=V" */
    int env_count;
    sh_host *host;
    int count;
    bool has_ports; /* addresses are "ip:port" */
    bool is_matrix; /* a bare matrix of devices: it does not say where the ranks are */
} sh_hostfile;

enum { SH_HOSTFILE_PORT = 32323 }; /* the first port when the file has none */

SH_MUST_CHECK sh_status sh_hostfile_load(const char *path, sh_hostfile **out, sh_err *err);

/* The same for text in memory; `where` names it in errors. */
SH_MUST_CHECK sh_status sh_hostfile_parse(sh_str text, const char *where, sh_hostfile **out,
                                          sh_err *err);

/* A matrix of devices, as in MLX_IBV_DEVICES: the path of a file, or the JSON itself, for which
 * errors name the setting. */
SH_MUST_CHECK sh_status sh_hostfile_load_matrix(const char *text, const char *setting,
                                                sh_hostfile **out, sh_err *err);
void sh_hostfile_free(sh_hostfile *file);

/* The addresses of a rank as "host:port". When the file has no ports, they count up from first_port
 * over all addresses of all ranks, so that several ranks can share a machine. A host without ips is
 * reached by its ssh name. */
SH_MUST_CHECK sh_status sh_hostfile_addresses(const sh_hostfile *file, int rank, int first_port,
                                              sh_addr_list *out, sh_err *err);

/* One host for each name in the list "a,me@b,10.0.0.3", each `repeat` times. A name that is an IP
 * address also becomes the address of its host. */
SH_MUST_CHECK sh_status sh_hostfile_of_names(const char *names, int repeat, sh_hostfile **out,
                                             sh_err *err);

/* This host as rank 0, with its address if that is among those given, or else that from which it
 * reaches the first worker; then the workers. `addresses` and `ssh` are comma-separated lists of
 * equal length; ssh may be NULL. */
SH_MUST_CHECK sh_status sh_hostfile_of_workers(const char *addresses, const char *ssh,
                                               sh_hostfile **out, sh_err *err);

typedef enum {
    SH_HOSTFILE_OBJECT, /* {backend, envs, hosts} */
    SH_HOSTFILE_LIST,   /* [{ssh, ips, rdma}, ...] */
    SH_HOSTFILE_PLAIN,  /* ["ip:port", ...], or a list of lists when a rank has several addresses */
    SH_HOSTFILE_MATRIX, /* [[null, "device"], ...] */
} sh_hostfile_form;

/* Appends the file's text in that form to `out`. Fails when the form needs something that the file
 * does not contain. */
SH_MUST_CHECK sh_status sh_hostfile_write(const sh_hostfile *file, sh_hostfile_form form,
                                          sh_buf *out, sh_err *err);

/* The devices of rank `from` that reach rank `to`; none where the file names none. */
const sh_devices *sh_hostfile_devices(const sh_hostfile *file, int from, int to);

/* Whether the file names any device. */
bool sh_hostfile_has_devices(const sh_hostfile *file);

/* Fails unless the devices suit a backend: both ends of a pair name equally many, and every pair
 * that needs them has them. The error names the file and the cell. */
SH_MUST_CHECK sh_status sh_hostfile_check_devices(const sh_hostfile *file,
                                                  const sh_backend *backend, sh_err *err);

/* How errors name a cell: "row 0, column 1" in a matrix, "rdma[1] of host 0" elsewhere. */
void sh_hostfile_cell_name(bool matrix, int from, int to, char *out, size_t len);

/* Reports what is wrong in a file that parsed. */
void sh_hostfile_check(const sh_hostfile *file, sh_findings *report);

#endif
