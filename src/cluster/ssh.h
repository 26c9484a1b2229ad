/* ssh.h - runs commands on several hosts at once, with the system's `ssh`, or with /bin/sh for this
 * host.
 *
 * A job says what to run on which host with which input, and holds the output. ssh never prompts
 * (BatchMode), a host that does not answer costs connect_s, and a job that hangs is killed at the
 * deadline. Errors name the host and the cause: no connection, key refused, command not found, time
 * out, or the command's own failure with the last line of its stderr.
 *
 * Threads: each call has one owner; calls share nothing. */
#ifndef SH_CLUSTER_SSH_H
#define SH_CLUSTER_SSH_H

#include "base/buf.h"
#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *options;                 /* further options for ssh, separated by spaces; or NULL */
    int connect_s;                       /* 0: 5 */
    int64_t limit_ms;                    /* for all jobs of a call together; 0: 60000 */
    const volatile sig_atomic_t *cancel; /* jobs are killed once it is not 0; or NULL */
} sh_ssh_opts;

typedef struct {
    const char *host;    /* "me@name"; NULL: this machine */
    const char *command; /* run by /bin/sh, whatever the user's login shell is */
    sh_str input;        /* its whole stdin */
    size_t output_max;   /* limit for stdout and for stderr, more is an error; 0: 1 MiB */

    /* Results. */
    sh_status status; /* SH_OK: it exited with code 0 */
    sh_err err;       /* set otherwise */
    int code;         /* exit code, or 128 + signal; -1 when there is none */
    sh_buf out;       /* stdout */
    sh_buf errors;    /* stderr */
} sh_ssh_job;

/* Runs all jobs at the same time and waits for them. True when all are SH_OK. */
bool sh_ssh_run(const sh_ssh_opts *opts, sh_ssh_job *jobs, int count);

void sh_ssh_job_reset(sh_ssh_job *job); /* frees the output */

/* The argument list that runs `command` on `host` (NULL: here), for callers that start the process
 * themselves. Free it with sh_ssh_argv_free. */
char **sh_ssh_argv(const sh_ssh_opts *opts, const char *host, const char *command);
void sh_ssh_argv_free(char **argv);

/* Whether "me@name" is this machine and this user: localhost, a loopback address, this machine's
 * name, or the address of one of its interfaces. Names are not resolved, because in ssh's
 * configuration they may mean another machine. */
bool sh_ssh_is_local(const char *host);

/* Appends `word`, quoted so that any shell reads it as one word. */
void sh_shell_quote(sh_buf *out, sh_str word);

#endif
