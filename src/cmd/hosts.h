/* hosts.h - what the files of `shoal hosts` and `shoal doctor` share.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_HOSTS_H
#define SH_CMD_HOSTS_H

#include "cluster/findings.h"
#include "cluster/hostfile.h"
#include "cmd/command.h"

#include <signal.h>

/* Writes the hostfile to --out, or to stdout, in the form that --form says. */
SH_MUST_CHECK sh_status sh_hosts_write(const sh_hostfile *file, const sh_settings *s, sh_err *err);

/* Prints a report; the exit code is a failure when a finding is one. */
int sh_hosts_report(const sh_findings *report, bool json);

/* From now on Ctrl-C only sets the flag that is returned, so that what runs on other hosts is ended
 * in order; the command then ends with SH_EXIT_INTERRUPTED. */
const volatile sig_atomic_t *sh_hosts_interrupt(void);

int sh_hosts_detect(const sh_command_args *args);

#endif
