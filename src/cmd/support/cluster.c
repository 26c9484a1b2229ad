/* Shared code for launched clusters: calls to their API, and their settings in the environment. */
#include "cmd/support/cluster.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cluster/launch.h"

#include <signal.h>
#include <stdlib.h>

enum { CALL_MS = 130000, ANSWER_MAX = 16 << 20, POLL_MS = 50, KILL_EXTRA_MS = 15000 };

extern char **environ;

sh_ssh_opts sh_cluster_ssh(const sh_settings *s)
{
    return (sh_ssh_opts){.options = s->ssh_options, .connect_s = (int)s->ssh_timeout};
}

sh_status sh_cluster_find(const sh_command_args *args, cJSON **record, sh_err *err)
{
    *record = NULL;
    if (sh_options_source(args->options, "port") == SH_FROM_FLAG ||
        sh_options_source(args->options, "host") == SH_FROM_FLAG)
        return SH_OK;
    char *state = sh_state_dir_path(args->settings->state_dir);
    sh_status status = sh_launch_read(state, record, err);
    free(state);
    if (status != SH_OK) return status == SH_ERR_NOT_FOUND ? SH_OK : status;
    sh_process launcher = sh_launch_process(*record);
    if (sh_process_alive(&launcher)) return SH_OK;
    cJSON_Delete(*record);
    *record = NULL;
    return SH_OK;
}

static void word_add(sh_buf *script, const char *word)
{
    sh_buf_add_char(script, ' ');
    sh_shell_quote(script, sh_str_of(word));
}

sh_status sh_cluster_call(const cJSON *record, const sh_settings *s, const char *path,
                          const char *body, sh_buf *out, sh_err *err)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(record, "ranks");
    const cJSON *first = cJSON_GetArrayItem(ranks, 0);
    const cJSON *port = cJSON_GetObjectItemCaseSensitive(record, "api_port");
    sh_buf script = {0};
    sh_ssh_opts opts = sh_cluster_ssh(s);
    opts.limit_ms = CALL_MS;
    sh_buf_add_text(&script, "cd");
    word_add(&script, sh_launch_text(first, "folder"));
    sh_buf_add_text(&script, " && exec");
    char *program = sh_path_join(sh_launch_text(first, "folder"), sh_launch_text(first, "program"));
    word_add(&script, program);
    sh_buf_addf(&script, " call --env-file api.env --port %d --host",
                cJSON_IsNumber(port) ? port->valueint : 0);
    word_add(&script, sh_launch_text(record, "api_host"));
    word_add(&script, path);
    if (body != NULL) word_add(&script, "-"); /* on stdin: other users can read command lines */
    const char *ssh = sh_launch_text(first, "ssh");
    sh_ssh_job job = {.host = ssh[0] == '\0' ? NULL : ssh,
                      .command = script.ptr,
                      .input = sh_str_of(body),
                      .output_max = ANSWER_MAX};
    bool ok = sh_ssh_run(&opts, &job, 1);
    /* Pass the output of the remote `shoal call` on as if it were ours: a body that came with an
     * HTTP error, and the text of its error message. */
    sh_str said = sh_str_trim(sh_buf_str(&job.errors));
    if (ok || job.code == SH_EXIT_FAILED) sh_buf_add_str(out, sh_buf_str(&job.out));
    if (!ok && sh_str_starts(said, SH_STR("shoal: ")))
        sh_err_set(&job.err, job.status, "%.*s", (int)said.len - 7, said.ptr + 7);
    if (!ok) *err = job.err;
    sh_ssh_job_reset(&job);
    sh_buf_reset(&script);
    free(program);
    return ok ? SH_OK : err->status;
}

bool sh_cluster_stop_launcher(const sh_process *launcher, int64_t grace_ms)
{
    if (!sh_process_signal(launcher, SIGTERM)) return false;
    sh_deadline end = sh_deadline_in_ms(grace_ms + KILL_EXTRA_MS);
    while (sh_process_alive(launcher) && !sh_deadline_passed(end)) sh_sleep_ms(POLL_MS);
    /* Killing it is safe: ranks stop on their own when their launcher is gone. */
    sh_process_signal(launcher, SIGKILL);
    while (sh_process_alive(launcher)) sh_sleep_ms(POLL_MS);
    return true;
}

bool sh_cluster_stop(const cJSON *record)
{
    sh_process launcher = sh_launch_process(record);
    const cJSON *grace = cJSON_GetObjectItemCaseSensitive(record, "grace");
    double grace_ms = cJSON_IsNumber(grace) ? grace->valuedouble * 1000 : 0;
    return sh_cluster_stop_launcher(&launcher, (int64_t)grace_ms);
}

/* By what a name means and not by a list of names: aliases are found too. */
void sh_cluster_unset(const sh_option *row)
{
    for (char **p = environ; *p != NULL;) {
        sh_str rest = sh_str_of(*p), name;
        const sh_option *found = sh_str_cut(&rest, '=', &name)
                                     ? sh_option_by_env(&sh_option_rows, name)
                                     : NULL;
        char *gone = found != NULL && (row == NULL || found == row) ? sh_str_dup(name) : NULL;
        if (gone == NULL)
            p++;
        else
            unsetenv(gone); /* moves the later entries down, so p stays */
        free(gone);
    }
}
