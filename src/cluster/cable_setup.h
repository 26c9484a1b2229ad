/* cable_setup.h - gives the ends of direct cables their addresses, over ssh, and takes them back.
 *
 * Every host keeps a record of what was done there, in the state folder, written before the change
 * itself. Undoing it removes what the record says and nothing else.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_CABLE_SETUP_H
#define SH_CLUSTER_CABLE_SETUP_H

#include "cluster/survey.h"

typedef struct {
    const sh_survey_opts *survey; /* ssh and the state folder */
    const sh_survey_host *hosts;
    int count;
} sh_cable_setup;

/* The commands that apply would run, by host, for people to read. `keep`: also after a reboot. */
void sh_cable_setup_show(const sh_cable_setup *setup, const sh_cable_address *plan, int plan_count,
                         bool keep, sh_buf *out);

/* Runs them on all hosts at the same time. Adds a finding for each host. */
void sh_cable_setup_apply(const sh_cable_setup *setup, const sh_cable_address *plan, int plan_count,
                          bool keep, sh_findings *report);

/* Appends what undo would remove, by host, for people to read; nothing where no host has a record.
 * Hosts that do not answer become findings. */
void sh_cable_setup_records(const sh_cable_setup *setup, sh_buf *out, sh_findings *report);
void sh_cable_setup_undo(const sh_cable_setup *setup, sh_findings *report);

#endif
