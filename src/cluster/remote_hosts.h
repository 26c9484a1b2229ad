/* remote_hosts.h - the machines of a hostfile, each listed once, and how they get what a rank
 * needs.
 *
 * Three steps, each on all machines at the same time: check (is it reachable, which system, which
 * files does it have), push (the files that are missing or differ, by hash), verify (libraries,
 * version and model). All problems are reported before any rank starts. This machine is handled by
 * the same scripts, without ssh.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_REMOTE_HOSTS_H
#define SH_CLUSTER_REMOTE_HOSTS_H

#include "cluster/hostfile.h"
#include "cluster/ssh.h"
#include "net/digest.h"

#define SH_REMOTE_NO_MODEL "none" /* what `agent check` says of a host without a copy */

typedef struct {
    char *ssh;        /* the name that ssh uses; NULL: this machine */
    char *name;       /* for messages */
    int rank;         /* the first rank that runs there */
    char *system;     /* "Linux x86_64" */
    char *state;      /* its state folder */
    char *program;    /* the program to run, relative to the state folder; once it is in use, a link
                         to it, which stays when another program takes its place */
    char *model;      /* identity of its model in hex, or SH_REMOTE_NO_MODEL */
    bool native;      /* it has a program that was built there */
    bool runs;        /* ranks there already, whose program stays in use */
    uint64_t missing; /* bit f: file f is absent or differs */
    uint64_t strays;  /* bit f: it has file f, which is meant for another host only */
    uint64_t resent;  /* bit f: it lost file f as a stray of a host that shares its home */
} sh_remote_host;

/* A file that hosts must have. */
typedef struct {
    char *name; /* relative to the state folder */
    sh_buf bytes;
    bool program; /* executable; not sent to hosts with another system */
    bool plugin;  /* belongs to the program, and goes where it goes */
    bool first;   /* for rank 0's host only: removed from all others */
    char digest[SH_DIGEST_TEXT_LEN + 1];
} sh_remote_file;

enum { SH_REMOTE_FILES_MAX = 32 };

typedef struct {
    const sh_hostfile *file; /* borrowed */
    sh_remote_host *list;
    int count;
    int *of_rank; /* [file->count] index of a rank's host */
    sh_remote_file files[SH_REMOTE_FILES_MAX];
    int file_count;

    const char *state_dir; /* unexpanded: "~" is each host's own home */
    sh_ssh_opts ssh;
    void (*say)(void *arg, const sh_remote_host *host, const char *text); /* progress */
    void *arg;
} sh_remote_hosts;

/* Finds the machines. The caller fills in the settings (state_dir, ssh, say) afterwards. */
SH_MUST_CHECK sh_status sh_remote_hosts_init(sh_remote_hosts *hosts, const sh_hostfile *file,
                                             sh_err *err);
void sh_remote_hosts_reset(sh_remote_hosts *hosts);

/* Takes ownership of the bytes. The second one is for the host of rank 0 only, the third for hosts
 * that also get the program. */
void sh_remote_hosts_add_file(sh_remote_hosts *hosts, const char *name, sh_buf *bytes,
                              bool program);
void sh_remote_hosts_add_file_of_first(sh_remote_hosts *hosts, const char *name, sh_buf *bytes);
void sh_remote_hosts_add_plugin(sh_remote_hosts *hosts, const char *name, sh_buf *bytes);

SH_MUST_CHECK sh_status sh_remote_hosts_check(sh_remote_hosts *hosts, sh_err *err);
SH_MUST_CHECK sh_status sh_remote_hosts_push(sh_remote_hosts *hosts, sh_err *err);

/* Call after push: settings.env says where the model is; only rank 0's host must have it. `model`
 * is for messages. With `use` the program that was found becomes the one that ranks are started
 * with. */
SH_MUST_CHECK sh_status sh_remote_hosts_verify(sh_remote_hosts *hosts, const char *model, bool use,
                                               sh_err *err);

#endif
