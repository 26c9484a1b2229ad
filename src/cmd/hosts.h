/* hosts.h - code shared by `shoal hosts`, `shoal doctor` and `shoal config`.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_HOSTS_H
#define SH_CMD_HOSTS_H

#include "cluster/findings.h"
#include "cluster/hostfile.h"
#include "cmd/command.h"

#include <signal.h>

/* The file that --out or --output-hostfile names; NULL: stdout. */
const char *sh_hosts_out(const sh_settings *s);

/* Writes the hostfile there, in the form given by --form. */
SH_MUST_CHECK sh_status sh_hosts_write(const sh_hostfile *file, const sh_settings *s, sh_err *err);

/* Prints a report on stdout; the exit code is SH_EXIT_FAILED if any finding is a failure. */
int sh_hosts_report(const sh_findings *report, bool json);

/* From now on Ctrl-C only sets the flag that is returned, so that processes on other hosts are
 * stopped in order; the command then exits with SH_EXIT_INTERRUPTED. */
const volatile sig_atomic_t *sh_hosts_interrupt(void);

int sh_hosts_detect(const sh_command_args *args);
int sh_hosts_find(const sh_command_args *args);
int sh_hosts_compare(const sh_command_args *args);
int sh_hosts_clean(const sh_command_args *args);
int sh_hosts_add(const sh_command_args *args);
int sh_hosts_remove(const sh_command_args *args);

#endif
