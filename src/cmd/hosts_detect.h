/* hosts_detect.h - shared by the files of `shoal hosts detect`.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_HOSTS_DETECT_H
#define SH_CMD_HOSTS_DETECT_H

#include "cluster/cable_setup.h"
#include "cmd/hosts.h"

#include <stdio.h>

typedef struct {
    sh_arena arena;
    sh_survey_host host[SH_RANKS_MAX];
    sh_net_host net[SH_RANKS_MAX];
    const char *address[SH_RANKS_MAX]; /* chosen */
    int count;
    sh_net_link *link; /* [SH_NET_LINKS_MAX] */
    int link_count;
    sh_cables cables;
    const sh_backend *backend; /* to write into the hostfile; NULL: none */
    bool refused;              /* the backend that was asked for is not possible */
    int order[SH_RANKS_MAX];   /* hosts in the order of the file: those that answered */
    int order_count;
    sh_findings report;
} sh_detection;

/* RDMA: reports the devices, chooses backend and order of the hosts. */
void sh_detection_choose_backend(sh_detection *d, const sh_command_args *args);

/* Fills the rdma fields of a hostfile whose hosts are in d->order. */
void sh_detection_fill_devices(sh_detection *d, sh_hostfile *file);

void sh_detection_print_cables(const sh_detection *d, FILE *to);
void sh_detection_add_cables(const sh_detection *d, cJSON *top);
void sh_detection_print_dot(const sh_detection *d);

/* --auto-setup: *changed when addresses were added and the hosts must be asked again. */
SH_MUST_CHECK sh_status sh_detection_setup(sh_detection *d, const sh_survey_opts *opts,
                                           const sh_settings *s, bool *changed, sh_err *err);

/* --undo: returns the exit code. */
int sh_detection_undo(sh_detection *d, const sh_survey_opts *opts, const sh_settings *s);

#endif
