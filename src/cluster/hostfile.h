/* hostfile.h - who the ranks are and where, as MLX and its relatives write it down.
 *
 * Rank = position. Forms that are read, all JSON:
 *
 *   [{"ssh": "me@host", "ips": ["10.0.0.1"], "rdma": [null, "mlx5_0"]}, ...]
 *   {"backend": "ring", "envs": ["K=V"], "hosts": [the same objects]}
 *   ["10.0.0.1:9000", "10.0.0.2:9000"]                  one address a rank
 *   [["10.0.0.1:9000", "10.0.1.1:9001"], ...]           several a rank
 *   [[null, "mlx5_0"], ["mlx5_1", null]]                devices, no addresses
 *
 * and an empty file, which means one host. Errors name the file and the entry.
 *
 * Threads: a hostfile is read-only once loaded. */
#ifndef SH_CLUSTER_HOSTFILE_H
#define SH_CLUSTER_HOSTFILE_H

#include "base/arena.h"
#include "base/status.h"
#include "cluster/findings.h"
#include "net/peer_messages.h"

typedef struct {
    const char **name;
    int count; /* 0 for null */
} sh_devices;

typedef struct {
    const char *ssh;                   /* NULL where the form has none */
    const char *address[SH_LANES_MAX]; /* "ip" or "ip:port", see has_ports */
    int address_count;
    sh_devices *rdma; /* [rdma_count] devices of this host that reach each other host */
    int rdma_count;
} sh_host;

typedef struct {
    sh_arena arena;      /* owns all texts */
    const char *backend; /* "" when the file does not say */
    const char **env;    /* "K=V" */
    int env_count;
    sh_host *host;
    int count;
    bool has_ports; /* addresses are "ip:port" */
} sh_hostfile;

enum { SH_HOSTFILE_PORT = 32323 }; /* where ports start when the file has none */

SH_MUST_CHECK sh_status sh_hostfile_load(const char *path, sh_hostfile **out, sh_err *err);

/* The same from text; `where` names it in errors. */
SH_MUST_CHECK sh_status sh_hostfile_parse(sh_str text, const char *where, sh_hostfile **out,
                                          sh_err *err);
void sh_hostfile_free(sh_hostfile *file);

/* The addresses "host:port" of a rank. Where the file has no ports they are counted up from
 * first_port over all addresses of all ranks, so that ranks may share a machine; a host without ips
 * is reached by its ssh name. */
SH_MUST_CHECK sh_status sh_hostfile_addresses(const sh_hostfile *file, int rank, int first_port,
                                              sh_addr_list *out, sh_err *err);

/* One host a name of the list "a,me@b,10.0.0.3", each `repeat` times; a name that is a number is
 * its own address too. */
SH_MUST_CHECK sh_status sh_hostfile_of_names(const char *names, int repeat, sh_hostfile **out,
                                             sh_err *err);

/* This host, by the address from which it reaches the first worker, and the workers: addresses and
 * ssh names, lists by commas of the same length (ssh may be NULL). */
SH_MUST_CHECK sh_status sh_hostfile_of_workers(const char *addresses, const char *ssh,
                                               sh_hostfile **out, sh_err *err);

typedef enum {
    SH_HOSTFILE_OBJECT, /* {backend, envs, hosts} */
    SH_HOSTFILE_LIST,   /* [{ssh, ips, rdma}, ...] */
    SH_HOSTFILE_PLAIN,  /* ["ip:port", ...], or a list of lists when a rank has several */
    SH_HOSTFILE_MATRIX, /* [[null, "device"], ...] */
} sh_hostfile_form;

/* Adds the file's text in that form. A form that needs what the file does not say is an error. */
SH_MUST_CHECK sh_status sh_hostfile_write(const sh_hostfile *file, sh_hostfile_form form,
                                          sh_buf *out, sh_err *err);

/* Which groups the devices allow: a mesh (every pair has one), a ring (neighbours have as many as
 * rank 0 has to rank 1). When neither, `why` says what lacks. */
typedef struct {
    bool mesh, ring;
    char why[160];
} sh_device_shape;
sh_device_shape sh_hostfile_devices(const sh_hostfile *file);

/* What a file that could be read may still have wrong, as findings. */
void sh_hostfile_check(const sh_hostfile *file, sh_findings *report);

#endif
