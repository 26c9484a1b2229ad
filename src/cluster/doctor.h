/* doctor.h - evaluates what hosts reported about themselves: a table of checks, one function each.
 *
 * Nothing is queried here; survey.h has done that. Each check adds findings to a report: the state
 * of things and, where something is wrong, what to do about it.
 *
 * Threads: pure functions over values. */
#ifndef SH_CLUSTER_DOCTOR_H
#define SH_CLUSTER_DOCTOR_H

#include "cluster/hostfile.h"
#include "cluster/survey.h"

typedef struct {
    const sh_survey_host *host; /* [count] machines, each listed once */
    const double *need;         /* [count] bytes of the model each would hold; NULL: unknown */
    int count;
    const sh_net_link *link; /* [link_count] measured links */
    int link_count;
    const sh_hostfile *file; /* NULL: check this host only */
    const int *machine;      /* [file->count] index into host[] for each rank */
    const char *version;     /* of this program */
    const char *server;      /* a server already running, so its ports may be in use; or NULL */
    const char *plugin;      /* the RDMA plugin of this program, which launch copies; or NULL */
} sh_doctor_view;

void sh_doctor_check(const sh_doctor_view *view, sh_findings *report);

#endif
