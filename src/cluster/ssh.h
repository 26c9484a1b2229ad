/* ssh.h - runs commands on hosts, several at once: by the real `ssh`, or by /bin/sh for this one.
 *
 * A job says what to run where, what goes in, and takes what came out. Nothing is asked at the
 * terminal (BatchMode), a host that does not answer costs connect_s, and a job that hangs is ended
 * at the deadline. Errors name the host and say which of these it was: no connection, key refused,
 * command not found, time over, or the command's own failure with its last line.
 *
 * Threads: one owner a call; calls share nothing. */
#ifndef SH_CLUSTER_SSH_H
#define SH_CLUSTER_SSH_H

#include "base/buf.h"
#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *options;                 /* more options for ssh, separated by spaces; or NULL */
    int connect_s;                       /* 0: 5 */
    int64_t limit_ms;                    /* for all jobs of a call together; 0: 60000 */
    const volatile sig_atomic_t *cancel; /* once it is not 0 all jobs are ended; or NULL */
} sh_ssh_opts;

typedef struct {
    const char *host;    /* "me@name"; NULL: this machine */
    const char *command; /* for /bin/sh, whatever the user's own shell is there */
    sh_str input;        /* all of its stdin */
    size_t output_max;   /* of stdout and of stderr, more is an error; 0: 1 MiB */

    /* The answer. */
    sh_status status; /* SH_OK: it ran and ended with code 0 */
    sh_err err;       /* else */
    int code;         /* exit code, 128 + signal; -1 when there is none */
    sh_buf out;       /* stdout */
    sh_buf errors;    /* stderr */
} sh_ssh_job;

/* Runs all jobs at the same time and waits for them. True when all are SH_OK. */
bool sh_ssh_run(const sh_ssh_opts *opts, sh_ssh_job *jobs, int count);

void sh_ssh_job_reset(sh_ssh_job *job); /* frees the answer */

/* The argument list that runs `command` on `host` (NULL: here), for those who start it themselves.
 * Owned by the caller: sh_ssh_argv_free. */
char **sh_ssh_argv(const sh_ssh_opts *opts, const char *host, const char *command);
void sh_ssh_argv_free(char **argv);

/* Whether "me@name" is this machine and this user: localhost, a loopback number, this machine's
 * name, or the number of one of its interfaces. Names are not resolved, since ssh may know them
 * from its own settings. */
bool sh_ssh_is_local(const char *host);

/* Adds `word` so that any shell takes it as one word. */
void sh_shell_quote(sh_buf *out, sh_str word);

#endif
