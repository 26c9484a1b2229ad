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

/* What an earlier setup has done. */
typedef struct {
    sh_cable_address at;
    bool kept; /* also after a reboot */
} sh_cable_record;

/* Reads the records of all hosts; returns their number, at most cap. Hosts that do not answer, and
 * lines that cannot be from a setup, become findings. */
int sh_cable_setup_records(const sh_cable_setup *setup, sh_cable_record *out, int cap,
                           sh_findings *report);

/* Appends what undo would remove, by host, for people to read. */
void sh_cable_setup_show_undo(const sh_cable_setup *setup, const sh_cable_record *records,
                              int count, sh_buf *out);
void sh_cable_setup_undo(const sh_cable_setup *setup, sh_findings *report);

#endif
