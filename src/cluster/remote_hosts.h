/* remote_hosts.h - the machines of a hostfile, each once, and how they get what a rank needs.
 *
 * Three steps, each on all machines at the same time: check (can we come in, which system, which
 * files are there), push (the files that lack or differ, by their hash), verify (libraries, version
 * and model). Whatever is wrong is said before any rank starts. This machine is served by the same
 * scripts, without ssh.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_REMOTE_HOSTS_H
#define SH_CLUSTER_REMOTE_HOSTS_H

#include "cluster/hostfile.h"
#include "cluster/ssh.h"
#include "net/digest.h"

typedef struct {
    char *ssh;       /* as ssh knows it; NULL: this machine */
    char *name;      /* for messages */
    int rank;        /* the first that runs there */
    char *system;    /* "Linux x86_64" */
    char *state;     /* its state folder */
    char *program;   /* what runs there, relative to the state folder */
    char *model;     /* identity of its model in hex */
    bool native;     /* a program that was built there exists */
    uint64_t lacks;  /* bit f: file f is absent or differs */
    uint64_t strays; /* files that are for another host alone; a bit each */
} sh_remote_host;

/* A file that every host must have, relative to its state folder. */
typedef struct {
    char *name;
    sh_buf bytes;
    bool program; /* may be run; a host of another system does without */
    bool first;   /* for rank 0's host alone: others do not get it, and lose one that they have */
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

    const char *state_dir; /* as set: "~" is each host's own home */
    sh_ssh_opts ssh;
    void (*say)(void *arg, const sh_remote_host *host, const char *text); /* progress */
    void *arg;
} sh_remote_hosts;

/* Finds the machines. Settings (state_dir, ssh, say) are the caller's to fill in behind it. */
SH_MUST_CHECK sh_status sh_remote_hosts_init(sh_remote_hosts *hosts, const sh_hostfile *file,
                                             sh_err *err);
void sh_remote_hosts_reset(sh_remote_hosts *hosts);

/* Takes over the bytes. The second one is for the host of rank 0 alone. */
void sh_remote_hosts_add_file(sh_remote_hosts *hosts, const char *name, sh_buf *bytes,
                              bool program);
void sh_remote_hosts_add_file_of_first(sh_remote_hosts *hosts, const char *name, sh_buf *bytes);

SH_MUST_CHECK sh_status sh_remote_hosts_check(sh_remote_hosts *hosts, sh_err *err);
SH_MUST_CHECK sh_status sh_remote_hosts_push(sh_remote_hosts *hosts, sh_err *err);

/* Behind push: settings.env says where the model is; `model` is for messages. */
SH_MUST_CHECK sh_status sh_remote_hosts_verify(sh_remote_hosts *hosts, const char *model,
                                               sh_err *err);

#endif
