/* shoal launch: from a hostfile to a running server.
 *
 * First the hosts are checked and sent what they lack; no rank is started before all hosts are
 * ready. Settings, tokens and keys reach the ranks as files in their state folders, never on a
 * command line, which other users of a machine could read.
 *
 * The launcher holds a lock in its state folder while it lives, so there is one cluster per folder.
 * With --detach it forks after the preparation: errors up to then appear on the terminal and set
 * the exit code. The parent shows the log until the child reports that all ranks are ready.
 *
 * Signals only set a flag here. The preparation polls it through ssh.cancel; once ranks run,
 * sh_children takes the signals over (cluster/launch.h). */
#include "cmd/launch_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/run_list.h"
#include "cmd/support/cluster.h"
#include "cmd/support/launch_job.h"
#include "cmd/support/ranks.h"
#include "cmd/support/role.h"
#include "http/http_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SETTINGS_FILE_MAX = 4 << 20,
    STOP_EXTRA_MS = 12000, /* on top of --grace: the agent waits longer than its rank, we longer
                              than the agent */
    POLL_MS = 100,
    DEMO_RANKS = 2,
};

extern char **environ;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

void sh_launch_catch_signals(void)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
}

bool sh_launch_is_cancelled(void)
{
    return interrupted != 0;
}

static void say(void *arg, const sh_remote_host *host, const char *text)
{
    const sh_launch *l = arg;
    sh_launch_say(l->log, host->rank, host->name, sh_str_of(text));
}

/* Without a hostfile: this host and --workers, or this machine once for each rank. */
static sh_status hosts_make(sh_launch *l, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    sh_hostfile *file = NULL;
    if (s->workers != NULL) {
        sh_status status = sh_hostfile_of_workers(s->workers, s->worker_ssh, &file, err);
        if (status == SH_OK)
            status = sh_hostfile_write(file, SH_HOSTFILE_OBJECT, &l->hosts_text, err);
        sh_hostfile_free(file);
        return status;
    }
    bool given = sh_options_given(l->args->options, "ranks");
    bool demo = s->model == NULL && s->models_dir == NULL;
    int64_t count = given ? s->ranks : demo ? DEMO_RANKS : 1;
    for (int64_t i = 0; i < count; i++)
        sh_buf_addf(&l->hosts_text, "%s{\"ssh\": \"localhost\"}", i == 0 ? "[" : ", ");
    sh_buf_add_text(&l->hosts_text, "]\n");
    return SH_OK;
}

/* hosts_text is kept besides the parsed form: it is what the hosts get as hostfile.json. *where
 * names the source in errors. */
static sh_status hosts_read(sh_launch *l, const char **where, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    *where = s->hostfile != NULL ? s->hostfile : s->workers != NULL ? "--workers" : "--ranks";
    sh_status status = s->hostfile == NULL
                           ? hosts_make(l, err)
                           : sh_file_read(s->hostfile, SETTINGS_FILE_MAX, &l->hosts_text, err);
    if (status != SH_OK) return status;
    sh_digest_text(l->hosts_text.ptr, l->hosts_text.len, l->hosts_digest);
    status = sh_hostfile_parse(sh_buf_str(&l->hosts_text), *where, &l->hosts, err);
    if (status == SH_OK && sh_options_given(l->args->options, "ranks") &&
        l->hosts->count != s->ranks)
        status = sh_err_set(err, SH_ERR_INPUT, "--ranks is %d, but %s has %d hosts", (int)s->ranks,
                            *where, l->hosts->count);
    return status;
}

/* Whether a variable is one of our settings, or an ignored one, that cannot run code. */
static bool is_harmless(sh_str name)
{
    const sh_option *row = sh_option_by_env(&sh_option_rows, name);
    bool known = row != NULL && !row->runs_code;
    for (size_t i = 0; i < sh_option_rows.ignored_count; i++)
        known = known || sh_str_is(name, sh_option_rows.ignored[i].name);
    return known;
}

/* The `envs` of a hostfile go into the environment of every rank, where LD_PRELOAD and the like
 * would run code. So only a hostfile that the user named may set such variables, not one that a
 * .env in the current folder points to. */
static sh_status envs_check(const sh_launch *l, const char *where, sh_err *err)
{
    if (!sh_options_is_implicit(l->args->options, "hostfile")) return SH_OK;
    for (int i = 0; i < l->hosts->env_count; i++) {
        sh_str rest = sh_str_of(l->hosts->env[i]), name;
        if (sh_str_cut(&rest, '=', &name) && is_harmless(name)) continue;
        return sh_err_set(err, SH_ERR_AUTH,
                          "%s sets %.*s for the ranks, but only .env names that file: if you trust "
                          "it, pass --hostfile %s",
                          where, (int)name.len, name.ptr, where);
    }
    return SH_OK;
}

/* The devices of --ibv-devices replace those of the hostfile, and reach the ranks as text: the file
 * is on this host only. */
static sh_status devices_read(sh_launch *l, sh_err *err)
{
    const char *given = l->args->settings->ibv_devices;
    if (given == NULL) return SH_OK;
    sh_status status = sh_hostfile_load_matrix(given, "--ibv-devices", &l->matrix, err);
    if (status == SH_OK && l->matrix->count != l->hosts->count)
        status = sh_err_set(err, SH_ERR_INPUT, "%s: devices of %d ranks, but there are %d hosts",
                            l->matrix->where, l->matrix->count, l->hosts->count);
    return status;
}

/* The ranks would find the same mistakes, each on its host and after everything was copied. A
 * backend with a launcher of its own (MPI) must start its ranks itself. */
static sh_status backend_check(sh_launch *l, const char *where, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    bool given = sh_options_given(l->args->options, "backend");
    const char *name = given                          ? s->backend
                       : l->hosts->backend[0] != '\0' ? l->hosts->backend
                       : l->matrix == NULL            ? ""
                       : s->jaccl_ring                ? "jaccl-ring"
                                                      : "jaccl";
    const sh_backend *backend = sh_backend_find(name);
    if (backend != NULL && backend->own_launcher)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "backend '%s' needs its own launcher: `mpirun -n %d shoal serve ...`",
                          name, l->hosts->count);
    sh_status status = sh_ranks_check_backend(name, given ? "--backend" : where, err);
    if (status != SH_OK || backend->devices == SH_DEVICES_NOWHERE) return status;
    const sh_hostfile *devices = l->matrix != NULL ? l->matrix : l->hosts;
    l->uses_devices = true;
    return sh_hostfile_has_devices(devices) ? sh_hostfile_check_devices(devices, backend, err)
                                            : SH_OK;
}

sh_status sh_launch_reach(sh_launch *l, const char *where, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    sh_status status = sh_remote_hosts_init(&l->remote, l->hosts, err);
    if (status != SH_OK) return sh_err_prefix(err, "%s", where);
    l->remote.state_dir = s->state_dir;
    l->remote.ssh = sh_cluster_ssh(s);
    l->remote.ssh.cancel = &interrupted;
    l->remote.say = say;
    l->remote.arg = l;
    return SH_OK;
}

sh_status sh_launch_open(sh_launch *l, sh_err *err)
{
    const char *where;
    sh_status status = hosts_read(l, &where, err);
    if (status == SH_OK && l->hosts->host[0].ssh == NULL && l->hosts->host[0].address_count == 0)
        status = sh_err_set(err, SH_ERR_INPUT, "%s names no host to start ranks on", where);
    if (status == SH_OK) status = envs_check(l, where, err);
    if (status == SH_OK) status = devices_read(l, err);
    if (status == SH_OK) status = backend_check(l, where, err);
    return status == SH_OK ? sh_launch_reach(l, where, err) : status;
}

/* Takes the lock and starts a new log; the previous one is kept as launch.log.1. */
static sh_status state_open(sh_launch *l, sh_err *err)
{
    sh_status status = sh_state_dir_make(l->state, err);
    if (status == SH_OK) status = sh_state_dir_lock(l->state, "lock", &l->lock, err);
    if (status == SH_AGAIN)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "a cluster is already running from %s: `shoal status` shows it, `shoal "
                          "stop` stops it; use another --state-dir for a second one",
                          l->state);
    if (status != SH_OK) return status;
    char *log = sh_path_join(l->state, "launch.log"), *old = sh_path_join(l->state, "launch.log.1");
    rename(log, old);
    l->log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (l->log < 0) status = sh_err_sys(err, "%s", log);
    free(log);
    free(old);
    return status;
}

/* Everything that `shoal restart` needs to repeat this launch: command line, folder, and the
 * variables that settings came from. It may hold secrets, so launch.json has mode 0600 and
 * `status --json` leaves these fields out. */
static void record_make(sh_launch *l)
{
    const sh_settings *s = l->args->settings;
    char *here = getcwd(NULL, 0);
    l->record = cJSON_CreateObject();
    cJSON_AddStringToObject(l->record, "version", sh_version());
    cJSON_AddNumberToObject(l->record, "started", (double)(sh_clock_unix_us() / 1000000));
    const char *models = l->args->settings->models_dir;
    cJSON_AddStringToObject(l->record, "model",
                            l->model != NULL ? l->model
                            : models != NULL ? models
                                             : "");
    cJSON_AddStringToObject(l->record, "hostfile", s->hostfile == NULL ? "" : s->hostfile);
    cJSON_AddStringToObject(l->record, "hosts", l->hosts_digest);
    cJSON_AddStringToObject(l->record, "api_host", s->host);
    cJSON_AddNumberToObject(l->record, "api_port", (double)s->port);
    cJSON_AddBoolToObject(l->record, "tls", s->tls_cert != NULL);
    cJSON_AddNumberToObject(l->record, "grace", (double)s->grace);
    cJSON_AddStringToObject(l->record, "folder", here == NULL ? "/" : here);
    cJSON *line = cJSON_AddArrayToObject(l->record, "line");
    for (char *const *p = l->args->line + 1; *p != NULL; p++)
        cJSON_AddItemToArray(line, cJSON_CreateString(*p));
    cJSON *env = cJSON_AddArrayToObject(l->record, "environment");
    for (char **p = environ; *p != NULL; p++) {
        sh_str rest = sh_str_of(*p), name;
        if (sh_str_cut(&rest, '=', &name) && sh_option_by_env(&sh_option_rows, name) != NULL)
            cJSON_AddItemToArray(env, cJSON_CreateString(*p));
    }
    free(here);
}

/* Announces the API's address on the terminal, in the log and, with --detach, to the waiting
 * parent. A write that fails must not stop the cluster. */
static void on_ready(void *arg)
{
    sh_launch *l = arg;
    const sh_settings *s = l->args->settings;
    char *url = sh_http_url(s->tls_cert != NULL, s->host, (int)s->port, "");
    int count = l->hosts->count;
    char *text = sh_asprintf("%s%d rank%s ready; the API is on %s, %s\n", count == 1 ? "" : "all ",
                             count, count == 1 ? " is" : "s are",
                             l->remote.list[l->remote.of_rank[0]].name, url);
    ssize_t put = write(STDERR_FILENO, text, strlen(text));
    if (l->log >= 0) put = write(l->log, text, strlen(text));
    if (l->ready_fd >= 0) put = write(l->ready_fd, "r", 1);
    (void)put;
    free(text);
    free(url);
}

/* Without the list `stop` cannot help someone who removes the state folder: no reason to fail. */
static void list_enter(const sh_launch *l)
{
    sh_err err;
    if (sh_run_list_add(l->args->settings->runtime_dir, l->state, &err) != SH_OK)
        SH_LOGW("this launch is not in the list of launches: %s", err.text);
}

/* launch.json is removed at the end: without it no other command looks for this cluster. */
static int ranks_run(sh_launch *l)
{
    sh_err err;
    int code = SH_EXIT_OK;
    char **env = sh_role_env(ROLE_AGENT, NULL), *program = NULL;
    const sh_launch_job *job = sh_launch_job_find(l->args->settings->job);
    /* Its path of now: a later build under it is what a restart is for. */
    if (!job->ends && sh_program_path(&program, &err) != SH_OK) SH_LOGW("%s", err.text);
    sh_launch_opts opts = {.env = env,
                           .program = program,
                           .state = l->state,
                           .ssh = l->remote.ssh,
                           .first = job->first_agent,
                           .others = job->other_agents,
                           .outputs = job->first == NULL,
                           .record = l->record,
                           .log_fd = l->log,
                           .grace_ms = l->args->settings->grace * 1000 + STOP_EXTRA_MS,
                           .ready = on_ready,
                           .arg = l};
    list_enter(l);
    sh_status status = sh_launch_run(&opts, &code, &err);
    sh_run_list_remove(l->args->settings->runtime_dir, l->state);
    sh_role_env_free(env);
    free(program);
    char *record = sh_path_join(l->state, "launch.json");
    unlink(record);
    free(record);
    return status == SH_OK ? code : sh_command_fail(&err);
}

/* The child of --detach: its own session, with all output in the log. l->log is closed, because
 * stderr is the log now and lines must not appear twice. */
static int background(sh_launch *l, int ready_fd)
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(l->log, STDOUT_FILENO);
    dup2(l->log, STDERR_FILENO);
    close(null);
    close(l->log);
    l->log = -1;
    l->ready_fd = ready_fd;
    interrupted = 0;
    return ranks_run(l);
}

static void log_copy(int log)
{
    char bytes[4096];
    for (ssize_t got; (got = read(log, bytes, sizeof(bytes))) > 0;) {
        ssize_t put = write(STDERR_FILENO, bytes, (size_t)got);
        (void)put;
    }
}

/* Shows the log of the background process until it is ready or has ended. Ctrl-C stops it. The pipe
 * becomes readable in both cases: by a byte, or by its end. */
static int background_watch(const sh_launch *l, pid_t pid, int ready_fd, int log)
{
    struct pollfd wait = {.fd = ready_fd, .events = POLLIN};
    char ready = 0;
    int signalled = 0, wait_status = 0;
    while (poll(&wait, 1, POLL_MS) <= 0) {
        log_copy(log);
        if (interrupted != 0 && signalled++ == 0) kill(pid, SIGTERM);
    }
    ssize_t got = read(ready_fd, &ready, 1);
    log_copy(log);
    if (got == 1) {
        printf(
            "in the background as process %ld: `shoal status`, `shoal logs -f`, `shoal stop`%s%s\n",
            (long)pid, sh_options_given(l->args->options, "state-dir") ? " with --state-dir " : "",
            sh_options_given(l->args->options, "state-dir") ? l->state : "");
        return SH_EXIT_OK;
    }
    waitpid(pid, &wait_status, 0);
    log_copy(log);
    if (interrupted != 0) return SH_EXIT_INTERRUPTED;
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0 ? WEXITSTATUS(wait_status)
                                                                   : SH_EXIT_FAILED;
}

/* The parent reads the log from its current end, so that it shows only what the child adds. */
static int detach(sh_launch *l)
{
    int pipes[2];
    char *path = sh_path_join(l->state, "launch.log");
    int log = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    fflush(NULL);
    pid_t pid = log >= 0 && lseek(log, 0, SEEK_END) >= 0 && sh_pipe(pipes) ? fork() : -1;
    if (pid == 0) {
        close(pipes[0]);
        close(log);
        return background(l, pipes[1]);
    }
    if (pid < 0) {
        sh_err err;
        sh_err_sys(&err, "cannot go into the background");
        return sh_command_fail(&err);
    }
    close(pipes[1]);
    int code = background_watch(l, pid, pipes[0], log);
    close(pipes[0]);
    close(log);
    return code;
}

/* Everything that can fail before a rank runs, cheapest first: the hostfile, the lock, local files,
 * then the hosts. */
static sh_status prepare(sh_launch *l, sh_err *err)
{
    sh_placement members = {0};
    sh_status status = sh_launch_open(l, err);
    if (status == SH_OK) status = state_open(l, err);
    if (status == SH_OK) status = sh_launch_gather(l, err);
    if (status == SH_OK) status = sh_remote_hosts_check(&l->remote, err);
    if (status == SH_OK) status = sh_remote_hosts_push(&l->remote, err);
    if (status == SH_OK)
        status = sh_remote_hosts_verify(&l->remote, l->model == NULL ? "" : l->model, true, err);
    if (status == SH_OK) status = sh_placement_init(&members, &l->remote, err);
    if (status == SH_OK) status = sh_placement_write(&members, l->state, err);
    sh_placement_reset(&members);
    if (status == SH_OK && interrupted != 0) status = sh_err_set(err, SH_ERR_CANCELLED, "stopped");
    if (status == SH_OK) record_make(l);
    return status;
}

void sh_launch_reset(sh_launch *l)
{
    sh_remote_hosts_reset(&l->remote);
    sh_hostfile_free(l->hosts);
    sh_hostfile_free(l->matrix);
    sh_buf_reset(&l->hosts_text);
    cJSON_Delete(l->record);
    free(l->state);
    free(l->model);
    if (l->lock >= 0) close(l->lock);
    if (l->log >= 0) close(l->log);
}

/* Whether the program after `--` runs on this machine alone; -1, after a message: neither. */
static int program_usage(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    bool program = sh_launch_job_find(s->job)->first == NULL;
    if (program && args->argc == 0) {
        fprintf(stderr, "shoal: --job program needs a program after `--`\n");
        return -1;
    }
    if (program && s->detach) {
        fprintf(stderr, "shoal: --detach is for servers; a program after `--` ends by itself\n");
        return -1;
    }
    return program && s->hostfile == NULL && s->workers == NULL && !s->prepare;
}

static int launch_run(const sh_command_args *args)
{
    int local = program_usage(args);
    if (local != 0) return local > 0 ? sh_launch_program_local(args) : SH_EXIT_USAGE;
    sh_launch l = {.args = args, .lock = -1, .log = -1, .ready_fd = -1};
    sh_err err;
    int code;
    sh_launch_catch_signals();
    l.state = sh_state_dir_path(args->settings->state_dir);
    if (prepare(&l, &err) != SH_OK) {
        code = sh_command_fail(&err);
    } else if (args->settings->prepare) {
        printf("all %d hosts are ready for a launch\n", l.remote.count);
        code = SH_EXIT_OK;
    } else {
        code = args->settings->detach ? detach(&l) : ranks_run(&l);
    }
    sh_launch_reset(&l);
    return code;
}

const sh_command sh_command_launch = {
    SH_COMMAND_NAMED(launch),
    .arguments = "[-- PROGRAM [ARGS]]",
    .takes_program = true,
    .summary = "serve a model on all hosts of a hostfile, over ssh, or run a program there",
    .details = "Takes the flags of `serve`. Checks the hosts, copies the program and the settings "
               "to those that lack them, starts every rank, restarts whatever crashes, and stops "
               "everything on Ctrl-C. The API runs on rank 0's host. With --detach it stays in the "
               "background. Without a hostfile the ranks run on this machine and on --workers. "
               "With a PROGRAM each rank runs that instead, with SHOAL_RANK, SHOAL_RANKS, "
               "SHOAL_COORDINATOR and SHOAL_TOKEN in its environment, by which the groups of "
               "libshoal form. The first failure ends all ranks and is the exit code. If the first "
               "word after `--` begins with a dash, more flags of `serve` follow.",
    .run = launch_run,
};
