/* shoal launch: from a hostfile to a served model.
 *
 * First the hosts are checked and given what they lack; nothing is started before all of them can.
 * What the ranks are to do goes to them as files of the state folder, never in a command line. */
#include "cluster/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "cluster/children.h"
#include "cmd/bits.h"
#include "cmd/cluster.h"
#include "cmd/demo.h"
#include "cmd/ranks.h"
#include "net/token.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROGRAM_MAX = 512 << 20,
    SETTINGS_FILE_MAX = 4 << 20,
    STOP_EXTRA_MS = 12000, /* more than an agent takes, which takes more than its rank */
    LOOK_MS = 100,
    HASH_SHOWN = 16,
    DEMO_RANKS = 2,
};

static const char DEMO_DIR[] = "./models/demo"; /* in the state folders */

extern char **environ;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

struct launcher {
    const sh_command_args *args;
    sh_hostfile *hosts;
    sh_buf hosts_text;
    sh_sites sites;
    char *state;
    char *model; /* path or name on all hosts, or below their state folders */
    char token[SH_TOKEN_LEN_MAX + 1];
    int lock, log, ready_fd;
    cJSON *record;
};

static bool is_linktest(const struct launcher *l)
{
    return strcmp(l->args->settings->job, "linktest") == 0;
}

/* Settings that belong to one process or to the launcher, and those that are added below. */
static bool is_handed_on(const sh_option *row)
{
    static const char *const own[] = {
        "rank",   "ranks",  "hostfile", "model",    "token",        "part",        "coordinator-fd",
        "listen", "config", "help",     "env-file", "print-config", "runtime-dir", "log-file"};
    if ((row->commands & (FOR_SERVE | FOR_WORKER | FOR_LINKTEST)) == 0 &&
        strcmp(row->name, "job") != 0)
        return false;
    for (size_t i = 0; i < SH_COUNT_OF(own); i++)
        if (strcmp(row->name, own[i]) == 0) return false;
    return true;
}

struct settings_text {
    sh_buf text;
    sh_err *err;
    sh_status status;
};

/* A line that sh_options_parse_dotenv reads back as it was. */
static void setting_write(struct settings_text *to, const sh_option *row, const char *value)
{
    bool single = strchr(value, '\'') == NULL;
    if (strchr(value, '\n') != NULL || (!single && strpbrk(value, "\"$") != NULL)) {
        to->status = sh_err_set(to->err, SH_ERR_INPUT,
                                "--%s: the value can not be handed on to other hosts: it has line "
                                "breaks, or several kinds of quotes",
                                row->name);
        return;
    }
    sh_option_env_name(&sh_option_rows, row, &to->text);
    sh_buf_addf(&to->text, single ? "='%s'\n" : "=\"%s\"\n", value);
}

static void setting_take(void *arg, const sh_option *row, const char *value)
{
    if (is_handed_on(row)) setting_write(arg, row, value);
}

static const sh_option *row_of(const char *env)
{
    return sh_option_by_env(&sh_option_rows, sh_str_of(env));
}

static sh_status settings_file(struct launcher *l, sh_err *err)
{
    struct settings_text to = {.err = err};
    sh_options_each_given(l->args->options, setting_take, &to);
    if (to.status == SH_OK && l->model != NULL) setting_write(&to, row_of("SHOAL_MODEL"), l->model);
    if (to.status == SH_OK && l->token[0] != '\0')
        setting_write(&to, row_of("SHOAL_TOKEN"), l->token);
    if (to.status == SH_OK) sh_sites_add_file(&l->sites, "settings.env", &to.text, false);
    sh_buf_reset(&to.text);
    return to.status;
}

/* The one that was set, or one that is made once and kept. */
static sh_status token_find(struct launcher *l, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    sh_buf kept = {0};
    sh_err ignored;
    sh_status status = SH_OK;
    if (s->token != NULL) {
        status = sh_token_check(s->token, err);
        if (status == SH_OK) snprintf(l->token, sizeof(l->token), "%s", s->token);
    } else if (!s->insecure) {
        if (sh_state_read(l->state, "token", &kept, &ignored) == SH_OK &&
            sh_token_check(kept.ptr, &ignored) == SH_OK)
            snprintf(l->token, sizeof(l->token), "%s", kept.ptr);
        else
            sh_token_make(l->token);
        status = sh_state_write(l->state, "token", sh_str_of(l->token), err);
    }
    sh_buf_reset(&kept);
    return status;
}

static sh_status file_add(struct launcher *l, const char *path, const char *name, size_t max,
                          bool program, sh_err *err)
{
    sh_buf bytes = {0};
    sh_status status = sh_file_read(path, max, &bytes, err);
    if (status == SH_OK) sh_sites_add_file(&l->sites, name, &bytes, program);
    return status;
}

static sh_status demo_add(struct launcher *l, const char *dir, sh_err *err)
{
    DIR *d = opendir(dir);
    sh_status status = d == NULL ? sh_err_sys(err, "%s", dir) : SH_OK;
    for (struct dirent *e; status == SH_OK && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || l->sites.file_count >= SH_SITE_FILES_MAX - 3) continue;
        char *path = sh_path_join(dir, e->d_name), *name = sh_path_join(DEMO_DIR + 2, e->d_name);
        status = file_add(l, path, name, PROGRAM_MAX, false, err);
        free(path);
        free(name);
    }
    if (d != NULL) closedir(d);
    return status;
}

/* Where the model is. The demo model goes along; any other is there already: a folder by its path,
 * and what is none here by the name under which each host finds it. */
static sh_status model_find(struct launcher *l, const char *program, sh_err *err)
{
    const char *given = l->args->settings->model;
    if (is_linktest(l)) return SH_OK;
    if (given != NULL) {
        char *here = realpath(given, NULL);
        l->model = sh_strdup(here != NULL ? here : given);
        free(here);
        return SH_OK;
    }
    char *demo = sh_demo_find(program);
    if (demo == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "the demo model is not here; --model DIR names another");
    l->model = sh_strdup(DEMO_DIR);
    sh_status status = demo_add(l, demo, err);
    free(demo);
    return status;
}

static sh_status files_gather(struct launcher *l, sh_err *err)
{
    char *program = NULL, *name = NULL;
    sh_buf bytes = {0};
    char digest[SH_DIGEST_TEXT_LEN + 1];
    sh_status status = sh_program_path(&program, err);
    if (status == SH_OK) status = sh_file_read(program, PROGRAM_MAX, &bytes, err);
    if (status == SH_OK) {
        sh_digest_text(bytes.ptr, bytes.len, digest);
        name = sh_asprintf("bin/shoal-%.*s", HASH_SHOWN, digest);
        sh_sites_add_file(&l->sites, name, &bytes, true);
        status = model_find(l, program, err);
    }
    if (status == SH_OK) sh_sites_add_file(&l->sites, "hostfile.json", &l->hosts_text, false);
    if (status == SH_OK) status = settings_file(l, err);
    sh_buf_reset(&bytes);
    free(program);
    free(name);
    return status;
}

static void say(void *arg, const sh_site *site, const char *text)
{
    const struct launcher *l = arg;
    sh_launch_say(l->log, site->rank, site->name, sh_str_of(text));
}

/* Without a hostfile: this host and --workers, or this machine as often as there are ranks. */
static sh_status hosts_make(struct launcher *l, sh_err *err)
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
    int64_t count = given ? s->ranks : s->model == NULL ? DEMO_RANKS : 1;
    for (int64_t i = 0; i < count; i++)
        sh_buf_addf(&l->hosts_text, "%s{\"ssh\": \"localhost\"}", i == 0 ? "[" : ", ");
    sh_buf_add_text(&l->hosts_text, "]\n");
    return SH_OK;
}

static sh_status hosts_read(struct launcher *l, const char **where, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    *where = s->hostfile != NULL ? s->hostfile : s->workers != NULL ? "--workers" : "--ranks";
    sh_status status = s->hostfile == NULL
                           ? hosts_make(l, err)
                           : sh_file_read(s->hostfile, SETTINGS_FILE_MAX, &l->hosts_text, err);
    if (status == SH_OK)
        status = sh_hostfile_parse(sh_buf_str(&l->hosts_text), *where, &l->hosts, err);
    if (status == SH_OK && sh_options_given(l->args->options, "ranks") &&
        l->hosts->count != s->ranks)
        status = sh_err_set(err, SH_ERR_INPUT, "--ranks is %d, but %s has %d hosts", (int)s->ranks,
                            *where, l->hosts->count);
    return status;
}

static sh_status backend_check(const struct launcher *l, const char *where, sh_err *err)
{
    bool given = sh_options_given(l->args->options, "backend");
    const char *name = given ? l->args->settings->backend : l->hosts->backend;
    if (strcmp(name, "mpi") == 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "backend 'mpi' wants its own launcher: `mpirun -n %d shoal serve ...`",
                          l->hosts->count);
    return sh_ranks_check_backend(name, given ? "--backend" : where, err);
}

static sh_status hosts_open(struct launcher *l, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    const char *where;
    sh_status status = hosts_read(l, &where, err);
    if (status == SH_OK && l->hosts->host[0].ssh == NULL && l->hosts->host[0].address_count == 0)
        status = sh_err_set(err, SH_ERR_INPUT, "%s names no host to start ranks on", where);
    if (status == SH_OK) status = backend_check(l, where, err);
    if (status != SH_OK) return status;
    status = sh_sites_init(&l->sites, l->hosts, err);
    if (status != SH_OK) return sh_err_prefix(err, "%s", where);
    l->sites.state_dir = s->state_dir;
    l->sites.ssh = sh_cluster_ssh(s);
    l->sites.ssh.cancel = &interrupted;
    l->sites.say = say;
    l->sites.arg = l;
    return SH_OK;
}

/* One cluster at a time from one folder. */
static sh_status state_open(struct launcher *l, sh_err *err)
{
    sh_status status = sh_state_make(l->state, err);
    if (status == SH_OK) status = sh_state_lock(l->state, "lock", &l->lock, err);
    if (status == SH_AGAIN)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "a cluster runs already from %s: `shoal status` shows it, `shoal stop` "
                          "ends it; --state-dir names another folder for a second one",
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

/* Everything that `shoal restart` needs to do the same again. */
static void record_make(struct launcher *l)
{
    const sh_settings *s = l->args->settings;
    char *here = getcwd(NULL, 0);
    l->record = cJSON_CreateObject();
    cJSON_AddStringToObject(l->record, "version", sh_version());
    cJSON_AddNumberToObject(l->record, "started", (double)(sh_clock_unix_us() / 1000000));
    cJSON_AddStringToObject(l->record, "model", l->model == NULL ? "" : l->model);
    cJSON_AddStringToObject(l->record, "hostfile", s->hostfile == NULL ? "" : s->hostfile);
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

static void on_ready(void *arg)
{
    struct launcher *l = arg;
    const sh_settings *s = l->args->settings;
    char *text = sh_asprintf("all %d ranks are ready; the API is on %s, %s://%s:%d\n",
                             l->hosts->count, l->sites.list[l->sites.of_rank[0]].name,
                             s->tls_cert != NULL ? "https" : "http", s->host, (int)s->port);
    ssize_t put = write(STDERR_FILENO, text, strlen(text));
    if (l->log >= 0) put = write(l->log, text, strlen(text));
    if (l->ready_fd >= 0) put = write(l->ready_fd, "r", 1);
    (void)put;
    free(text);
}

static int ranks_run(struct launcher *l)
{
    sh_err err;
    int code = SH_EXIT_OK;
    sh_launch_opts opts = {.sites = &l->sites,
                           .state = l->state,
                           .record = l->record,
                           .log_fd = l->log,
                           .grace_ms = l->args->settings->grace * 1000 + STOP_EXTRA_MS,
                           .ready = on_ready,
                           .arg = l};
    sh_status status = sh_launch_run(&opts, &code, &err);
    char *record = sh_path_join(l->state, "launch.json");
    unlink(record);
    free(record);
    return status == SH_OK ? code : sh_command_fail(&err);
}

/* In the background: a session of its own, and all output in the log. */
static int background(struct launcher *l, int ready_fd)
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

/* Shows what the background process says until it is ready or gone. Ctrl-C ends it. */
static int background_watch(const struct launcher *l, pid_t pid, int ready_fd, int log)
{
    struct pollfd wait = {.fd = ready_fd, .events = POLLIN};
    char ready = 0;
    int told = 0, wait_status = 0;
    while (poll(&wait, 1, LOOK_MS) <= 0) {
        log_copy(log);
        if (interrupted != 0 && told++ == 0) kill(pid, SIGTERM);
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

static int detach(struct launcher *l)
{
    int pipes[2];
    char *path = sh_path_join(l->state, "launch.log");
    int log = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    fflush(NULL);
    pid_t pid = log >= 0 && lseek(log, 0, SEEK_END) >= 0 && pipe2(pipes, O_CLOEXEC) == 0 ? fork()
                                                                                         : -1;
    if (pid == 0) {
        close(pipes[0]);
        close(log);
        return background(l, pipes[1]);
    }
    if (pid < 0) {
        sh_err err;
        sh_err_sys(&err, "go into the background");
        return sh_command_fail(&err);
    }
    close(pipes[1]);
    int code = background_watch(l, pid, pipes[0], log);
    close(pipes[0]);
    close(log);
    return code;
}

static sh_status prepare(struct launcher *l, sh_err *err)
{
    sh_status status = hosts_open(l, err);
    if (status == SH_OK) status = state_open(l, err);
    if (status == SH_OK) status = token_find(l, err);
    if (status == SH_OK) status = files_gather(l, err);
    if (status == SH_OK) status = sh_sites_check(&l->sites, err);
    if (status == SH_OK) status = sh_sites_push(&l->sites, err);
    if (status == SH_OK) status = sh_sites_verify(&l->sites, l->model == NULL ? "" : l->model, err);
    if (status == SH_OK && interrupted != 0) status = sh_err_set(err, SH_ERR_CANCELLED, "stopped");
    if (status == SH_OK) record_make(l);
    return status;
}

static void launcher_reset(struct launcher *l)
{
    sh_sites_reset(&l->sites);
    sh_hostfile_free(l->hosts);
    sh_buf_reset(&l->hosts_text);
    cJSON_Delete(l->record);
    free(l->state);
    free(l->model);
    if (l->lock >= 0) close(l->lock);
    if (l->log >= 0) close(l->log);
}

int sh_cmd_launch(const sh_command_args *args)
{
    struct launcher l = {.args = args, .lock = -1, .log = -1, .ready_fd = -1};
    sh_err err;
    int code;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    l.state = sh_state_path(args->settings->state_dir);
    if (prepare(&l, &err) != SH_OK) {
        code = sh_command_fail(&err);
    } else if (args->settings->prepare) {
        printf("all %d hosts are ready for a launch\n", l.sites.count);
        code = SH_EXIT_OK;
    } else {
        code = args->settings->detach ? detach(&l) : ranks_run(&l);
    }
    launcher_reset(&l);
    return code;
}
