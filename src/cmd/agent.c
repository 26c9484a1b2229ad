/* shoal agent: runs one rank on its host, for `shoal launch`.
 *
 * Its standard input is the tether that launch holds (cluster/children.h); its standard output
 * carries the rank's lines and the marks of cluster/launch.h. A rank that crashes is restarted
 * here, on its host, without a new ssh connection and while the page cache still has the model. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "cluster/children.h"
#include "cluster/launch.h"
#include "cmd/support/cluster.h"
#include "cmd/support/launch_job.h"
#include "cmd/support/launch_program.h"
#include "cmd/support/model_find.h"
#include "cmd/support/role.h"
#include "model/identity.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_EXTRA_MS = 7000, LEFTOVER_MS = 2000, LOCK_MS = 3000, ENV_MAX = 1200 };

struct agent {
    const char *state;
    int rank;
    char pid_name[32];
    sh_children *children;
    char *env[ENV_MAX + 1];
    int env_count;
    int control[2]; /* what the launcher tells goes to the server through this pipe; or -1 */
    bool fetches;   /* this host has no copy of the model: the rank gets its share from rank 0 */
    int64_t grace_s, frozen_s;
    const sh_launch_job *job;
    sh_launch_program program; /* of a job without commands of ours */
};

/* One write per line, so that output of the rank and marks never interleave. */
static void put_line(const char *mark, sh_str text)
{
    sh_buf line = {0};
    if (mark != NULL) sh_buf_addf(&line, "%c%s ", SH_LAUNCH_MARK, mark);
    sh_buf_add_str(&line, text);
    sh_buf_add_char(&line, '\n');
    ssize_t put = write(STDOUT_FILENO, line.ptr, line.len);
    (void)put; /* the launcher is gone: the tether reports that */
    sh_buf_reset(&line);
}

static void on_line(void *arg, int child, sh_str line)
{
    const struct agent *a = arg;
    if (sh_str_is(line, "\x01ready")) sh_children_ready(a->children, child);
    put_line(NULL, line);
}

static void on_started(void *arg, int child, pid_t pid)
{
    const struct agent *a = arg;
    char text[SH_PROCESS_TEXT_MAX];
    sh_process process = sh_process_of(pid);
    sh_err err;
    (void)child;
    sh_process_format(&process, text);
    if (sh_state_dir_write(a->state, a->pid_name, sh_str_of(text), &err) != SH_OK)
        put_line(NULL, sh_str_of(err.text));
    put_line("pid", sh_str_of(text));
}

static void on_ended(void *arg, int child, const char *how, bool restarts)
{
    char text[96];
    (void)arg;
    (void)child;
    if (!restarts) return;
    snprintf(text, sizeof(text), "%s; restarting", how);
    put_line(NULL, sh_str_of(text));
    put_line("ended", sh_str_of(how));
}

/* The pipe outlives the server, which may be restarted. One that does not read misses it. */
static void on_told(void *arg, sh_str text)
{
    const struct agent *a = arg;
    sh_buf line = {0};
    sh_buf_add_str(&line, text);
    sh_buf_add_char(&line, '\n');
    ssize_t put = a->control[1] < 0 ? 0 : write(a->control[1], line.ptr, line.len);
    (void)put;
    sh_buf_reset(&line);
}

/* One agent per rank; an earlier one may be about to exit. */
static sh_status lock_take(const struct agent *a, int *fd, sh_err *err)
{
    char name[32];
    sh_deadline end = sh_deadline_in_ms(LOCK_MS);
    sh_status status;
    snprintf(name, sizeof(name), "rank-%d.lock", a->rank);
    while ((status = sh_state_dir_lock(a->state, name, fd, err)) == SH_AGAIN &&
           !sh_deadline_passed(end))
        sh_sleep_ms(50);
    if (status == SH_AGAIN)
        return sh_err_set(
            err, SH_ERR_LIMIT,
            "another launch runs rank %d on this host, from the same state folder %s; "
            "choose another one with --state-dir",
            a->rank, a->state);
    return status;
}

/* Stops a process of this rank that a killed agent left behind: it would keep the rank's place in
 * the group and its port. It is certainly ours: pid, start time and boot id are those recorded. */
static void leftover_end(const struct agent *a)
{
    sh_buf text = {0};
    sh_err err;
    sh_process process;
    sh_deadline end = sh_deadline_in_ms(LEFTOVER_MS);
    bool known = sh_state_dir_read(a->state, a->pid_name, false, &text, &err) == SH_OK &&
                 sh_process_parse(text.ptr, &process);
    sh_buf_reset(&text);
    if (!known || !sh_process_signal(&process, SIGTERM)) return;
    put_line(NULL, SH_STR("stopping an earlier process of this rank first"));
    while (sh_process_alive(&process) && !sh_deadline_passed(end)) sh_sleep_ms(50);
    sh_process_signal(&process, SIGKILL);
    while (sh_process_alive(&process)) sh_sleep_ms(20);
}

/* Adds "NAME=value" (owned) to the rank's environment. Variables that set the same option under
 * another name are removed from our own environment, which the rank inherits: two names of one
 * option that disagree are an error. */
static void env_add(struct agent *a, char *text)
{
    sh_str rest = sh_str_of(text), name;
    if (a->env_count == ENV_MAX || !sh_str_cut(&rest, '=', &name)) {
        free(text);
        return;
    }
    a->env[a->env_count++] = text;
    const sh_option *row = sh_option_by_env(&sh_option_rows, name);
    if (row != NULL) sh_cluster_unset(row);
}

static sh_status control_open(struct agent *a, sh_err *err)
{
    if (a->rank != 0 || a->job->ends || a->job->first == NULL) return SH_OK;
    if (!sh_pipe(a->control)) return sh_err_sys(err, "pipe");
    for (int i = 0; i < 2; i++) fcntl(a->control[i], F_SETFL, O_NONBLOCK);
    env_add(a, sh_asprintf("SHOAL_CONTROL_FD=%d", a->control[0]));
    return SH_OK;
}

static void setting_add(void *arg, const sh_option *row, const char *text)
{
    struct agent *a = arg;
    sh_buf name = {0};
    bool model = strcmp(row->name, "model") == 0;
    if (model && a->fetches) {
        sh_cluster_unset(row);
        return;
    }
    sh_option_env_name(&sh_option_rows, row, &name);
    env_add(a, sh_asprintf("%s=%s", name.ptr, text));
    sh_buf_reset(&name);
}

/* Says where the rank is in its group. One that was added later is not in the hostfile: it joins
 * at the address of rank 0, which other programs than ours get as well. */
static sh_status place_add(struct agent *a, const sh_hostfile *file, const char *path, sh_err *err)
{
    sh_addr_list first;
    env_add(a, sh_asprintf("SHOAL_RANK=%d", a->rank));
    env_add(a, sh_strdup("SHOAL_PROGRESS=true"));
    bool added = a->rank >= file->count;
    if (!added) {
        env_add(a, sh_asprintf("SHOAL_HOSTFILE=%s", path));
        env_add(a, sh_asprintf("SHOAL_RANKS=%d", file->count));
        if (a->job->first != NULL) return SH_OK;
    }
    sh_status status = sh_hostfile_addresses(file, 0, SH_HOSTFILE_PORT, &first, err);
    if (status == SH_OK)
        env_add(a, sh_asprintf("SHOAL_%s=%s", added ? "JOIN" : "COORDINATOR", first.text[0]));
    return status;
}

static sh_status env_fill(struct agent *a, sh_err *err)
{
    sh_settings settings = {0};
    sh_options *opts = sh_options_create(&sh_option_rows, &settings);
    char *path = sh_path_join(a->state, "settings.env"), *api = sh_path_join(a->state, "api.env");
    char *hosts = sh_path_join(a->state, "hostfile.json");
    sh_hostfile *file = NULL;
    sh_status status = sh_options_parse_dotenv(opts, path, true, err);
    if (status == SH_OK) a->job = sh_launch_job_find(settings.job);
    if (status == SH_OK && a->rank == 0 && a->job->first != NULL)
        status = sh_options_parse_dotenv(opts, api, true, err);
    if (status == SH_OK) status = sh_hostfile_load(hosts, &file, err);
    if (status == SH_OK) {
        for (int i = 0; i < file->env_count; i++) env_add(a, sh_strdup(file->env[i]));
        a->fetches = a->rank > 0 && settings.model != NULL && !sh_model_is_here(&settings);
        sh_options_each_given(opts, setting_add, a);
        status = place_add(a, file, hosts, err);
        a->grace_s = settings.grace;
        a->frozen_s = settings.frozen_after;
    }
    if (status == SH_OK && settings.cwd != NULL && chdir(settings.cwd) != 0)
        status = sh_err_sys(err, "--cwd %s", settings.cwd);
    sh_hostfile_free(file);
    sh_options_free(opts);
    free(hosts);
    free(path);
    free(api);
    return status;
}

/* It runs in the same folder as on the launcher's host, where there is one. */
static sh_status program_open(struct agent *a, sh_err *err)
{
    sh_status status = sh_launch_program_read(a->state, &a->program, err);
    if (status == SH_OK && chdir(a->program.folder) != 0)
        put_line(NULL, SH_STR("the folder of the launch does not exist here; running in that of "
                              "the state"));
    return status == SH_OK ? sh_launch_program_check(&a->program, err) : status;
}

static sh_status rank_run(struct agent *a, char *const *line, int *code, sh_err *err)
{
    char *program = NULL;
    int lock = -1;
    sh_status status = sh_state_dir_check(a->state, err);
    if (status == SH_OK) status = env_fill(a, err);
    if (status == SH_OK && a->job->first == NULL) status = program_open(a, err);
    if (status == SH_OK) status = control_open(a, err);
    if (status == SH_OK) status = lock_take(a, &lock, err);
    if (status == SH_OK) status = sh_role_program(line, &program, err);
    if (status != SH_OK) return status;
    leftover_end(a);
    const char *command = a->rank == 0 ? a->job->first : a->job->others;
    char *ours[] = {program, (char *)(uintptr_t)command, NULL};
    a->children = sh_children_create();
    sh_children_set_hooks(
        a->children,
        &(sh_children_hooks){
            .line = on_line, .started = on_started, .ended = on_ended, .told = on_told, .arg = a});
    sh_children_set_tether(a->children, STDIN_FILENO);
    sh_children_set_frozen(a->children, a->frozen_s * 1000);
    sh_child_spec spec = {.name = "rank",
                          .argv = command != NULL ? ours : a->program.argv,
                          .env = a->env,
                          .policy = a->job->ends ? SH_CHILD_TASK : SH_CHILD_OBSERVED_RANK,
                          .capture = true,
                          .keep_fds = (int[]){a->control[0], 0},
                          .no_input = command == NULL};
    status = sh_children_add(a->children, &spec, err);
    if (status == SH_OK) *code = sh_children_run(a->children, a->grace_s * 1000 + STOP_EXTRA_MS);
    sh_children_free(a->children);
    char *path = sh_path_join(a->state, a->pid_name);
    unlink(path);
    close(lock);
    free(path);
    free(program);
    return status;
}

static sh_status check(const sh_settings *s, sh_err *err)
{
    sh_identity identity;
    char *dir = NULL;
    bool here = s->model != NULL && sh_model_is_here(s);
    sh_status status = here ? sh_model_find(s, &dir, err) : SH_OK;
    if (status == SH_OK && here) status = sh_identity_read(dir, &identity, err);
    free(dir);
    if (status != SH_OK) return status;
    printf("version %s\nmodel ", sh_version());
    for (int i = 0; i < SH_IDENTITY_LEN && here; i++) printf("%02x", identity.id[i]);
    printf("%s\n", s->model != NULL && !here ? SH_REMOTE_NO_MODEL : "");
    return SH_OK;
}

static int agent_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    int code = SH_EXIT_OK;
    sh_status status;
    if (args->argc == 1 && strcmp(args->argv[0], "check") == 0) {
        status = check(s, &err);
    } else if (args->argc > 0) {
        status = sh_err_set(&err, SH_ERR_INPUT, "agent has no argument '%s': only `check`",
                            args->argv[0]);
    } else {
        char *state = sh_state_dir_path(s->state_dir);
        struct agent a = {.state = state, .rank = (int)s->rank, .control = {-1, -1}};
        snprintf(a.pid_name, sizeof(a.pid_name), "rank-%d.pid", a.rank);
        dup2(STDOUT_FILENO, STDERR_FILENO);
        status = rank_run(&a, args->line, &code, &err);
        for (int i = 0; i < a.env_count; i++) free(a.env[i]);
        sh_launch_program_reset(&a.program);
        free(state);
    }
    return status == SH_OK ? code : sh_command_fail(&err);
}

const sh_command sh_command_agent = {
    SH_COMMAND_NAMED(agent),
    .arguments = "[check]",
    .args_max = 1,
    .summary = "run one rank on its host, for `launch`",
    .details = "Exits when its standard input closes. `agent check` prints version and model.",
    .run = agent_run,
};
