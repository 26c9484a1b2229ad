/* fingerprint.h - a host as data: system, CPU, memory, networks, RDMA devices, limits, a model.
 *
 * `shoal fingerprint` prints it as JSON on the host itself; the querying side parses that JSON into
 * an sh_fingerprint. A host without the program runs a shell script that prints a subset of the
 * same JSON. The text comes from another machine: it is bounded, and absent fields are empty, zero
 * or -1.
 *
 * Threads: plain values; gathering reads the system and may be called from any thread. */
#ifndef SH_CLUSTER_FINGERPRINT_H
#define SH_CLUSTER_FINGERPRINT_H

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SH_FP_NAME_MAX = 64,
    SH_FP_TEXT_MAX = 256,
    SH_FP_INTERFACES_MAX = 48,
    SH_FP_ADDRESSES_MAX = 96,
    SH_FP_GATEWAYS_MAX = 8,
    SH_FP_DEVICES_MAX = 32,
    SH_FP_GIDS_MAX = 16,
    SH_FP_SEEN_MAX = 64,
    SH_FP_PORTS_MAX = 8,
};

typedef struct {
    char name[SH_FP_NAME_MAX];
    char mac[SH_FP_NAME_MAX];
    char bridge[SH_FP_NAME_MAX]; /* the bridge it is a port of, or "" */
    bool up, loopback, is_bridge, stp, tap;
    int64_t mtu;
    int64_t speed_mbit; /* 0: unknown */
} sh_fp_interface;

typedef struct {
    char text[SH_FP_NAME_MAX]; /* "10.0.0.1" */
    uint8_t bytes[16];
    int len;    /* 4 or 16 */
    int prefix; /* bits of the network */
    int interface;
} sh_fp_address;

typedef struct {
    char address[SH_FP_NAME_MAX];
    char interface[SH_FP_NAME_MAX];
} sh_fp_gateway;

typedef struct {
    int64_t index;
    char text[SH_FP_NAME_MAX]; /* "0000:0000:0000:0000:0000:ffff:0a00:0001" */
    char type[SH_FP_NAME_MAX]; /* "RoCE v2", "IB/RoCE v1" */
} sh_fp_gid;

/* A port of an RDMA device. */
typedef struct {
    char name[SH_FP_NAME_MAX];      /* "mlx5_0", or "mlx5_0:2" for its second port */
    char state[SH_FP_NAME_MAX];     /* "ACTIVE", "DOWN" */
    char layer[SH_FP_NAME_MAX];     /* "Ethernet", "InfiniBand" */
    char rate[SH_FP_NAME_MAX];      /* "100 Gb/sec (4X EDR)" */
    char interface[SH_FP_NAME_MAX]; /* the network interface on the same cable; "" if none */
    sh_fp_gid gid[SH_FP_GIDS_MAX];
    int gid_count;
} sh_fp_device;

/* An entry of a bridge's forwarding table: this MAC address was seen on this port. */
typedef struct {
    char port[SH_FP_NAME_MAX];
    char mac[SH_FP_NAME_MAX];
} sh_fp_seen;

typedef struct {
    char address[SH_FP_NAME_MAX];
    char fault[SH_FP_TEXT_MAX]; /* why the host cannot listen there; "" when it can */
} sh_fp_port;

typedef struct {
    char version[SH_FP_NAME_MAX]; /* "" when the program is not installed */
    char program[SH_FP_TEXT_MAX]; /* its path */
    char hostname[SH_FP_TEXT_MAX];
    char os[SH_FP_TEXT_MAX];
    char kernel[SH_FP_TEXT_MAX];
    char arch[SH_FP_NAME_MAX];
    char cpu[SH_FP_TEXT_MAX];
    char cpu_level[SH_FP_NAME_MAX];
    char firewall[SH_FP_NAME_MAX]; /* "ufw", "firewalld", "iptables", or "" */
    char
        rdma_plugin[SH_FP_TEXT_MAX]; /* path of the plugin for --backend jaccl; "": there is none */
    int64_t cores;
    int64_t memory_total, memory_available;
    int64_t unix_us;
    int64_t files_soft, files_hard, locked; /* limits; -1: none, or unknown */
    int64_t shm_bytes;

    sh_fp_interface interface[SH_FP_INTERFACES_MAX];
    int interface_count;
    sh_fp_address address[SH_FP_ADDRESSES_MAX];
    int address_count;
    sh_fp_gateway gateway[SH_FP_GATEWAYS_MAX];
    int gateway_count;
    sh_fp_device device[SH_FP_DEVICES_MAX];
    int device_count;
    sh_fp_seen seen[SH_FP_SEEN_MAX];
    int seen_count;
    sh_fp_port port[SH_FP_PORTS_MAX];
    int port_count;

    bool model_asked;
    char model_fault[SH_FP_TEXT_MAX]; /* "" when the model was found and could be read */
    char model_dir[SH_FP_TEXT_MAX];
    char model_hash[SH_FP_TEXT_MAX];
    int64_t model_bytes;
} sh_fingerprint;

/* What to report besides the system itself; each may be NULL. */
typedef struct {
    const char *program; /* path of this program */
    const char *cpu_level;
    const char *model;       /* folder to hash */
    const char *model_fault; /* why the folder could not be found */
    const char *listen;      /* "ip:port,...": test whether this host can listen there */
} sh_fingerprint_opts;

/* The fingerprint of this host; owned by the caller. */
cJSON *sh_fingerprint_gather(const sh_fingerprint_opts *opts);

/* Adds "rdma", the ports below a folder such as /sys/class/infiniband. */
void sh_fingerprint_add_rdma(cJSON *top, const char *dir);

/* Parses what a host printed; `where` names it in errors. The struct is large: allocate it on the
 * heap. */
SH_MUST_CHECK sh_status sh_fingerprint_parse(sh_str text, const char *where, sh_fingerprint *out,
                                             sh_err *err);

/* A script for /bin/sh that prints what can be found out without the program. */
extern const char sh_fingerprint_script[];

#endif
