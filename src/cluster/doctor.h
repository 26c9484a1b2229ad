/* doctor.h - judges what hosts said of themselves: a table of checks, one small function each.
 *
 * Nothing is asked here; survey.h did that. Every check adds its findings to a report: what is, and
 * what to do about it.
 *
 * Threads: pure functions over values. */
#ifndef SH_CLUSTER_DOCTOR_H
#define SH_CLUSTER_DOCTOR_H

#include "cluster/hostfile.h"
#include "cluster/survey.h"

typedef struct {
    const sh_survey_host *host; /* [count] machines, each once */
    const double *need;         /* [count] bytes of the model that each would hold; NULL: unknown */
    int count;
    const sh_net_link *link; /* [link_count] as measured */
    int link_count;
    const sh_hostfile *file; /* NULL: this host alone */
    const int *machine;      /* [file->count] machine of each rank */
    const char *version;     /* of this program */
    const char *server;      /* that runs already, and whose ports are taken by right; or NULL */
} sh_doctor_view;

void sh_doctor_judge(const sh_doctor_view *view, sh_findings *report);

#endif
