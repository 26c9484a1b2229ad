/* shoal bootstrap: builds the program on hosts that cannot run this one.
 *
 * The source tree is sent as a tar stream; then tools/setup.sh and make run on the host, with their
 * output shown line by line. They end when the connection does. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"
#include "cluster/children.h"
#include "cluster/remote_hosts.h"
#include "cluster/state_dir.h"
#include "cmd/support/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_MAX = 512 << 20, PUSH_MS = 600000, GRACE_MS = 2000 };

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

/* All hosts but this machine, where the program already runs. */
static int others(const sh_remote_hosts *remote, const sh_remote_host *out[SH_RANKS_MAX])
{
    int count = 0;
    for (int i = 0; i < remote->count; i++)
        if (remote->list[i].ssh != NULL) out[count++] = &remote->list[i];
    return count;
}

/* The closest folder above the program that contains our sources. */
static char *source_find(const char *program)
{
    static const char *const places[] = {"..", "../..", "../../.."};
    sh_str dir = sh_str_of(program);
    while (dir.len > 0 && dir.ptr[dir.len - 1] != '/') dir.len--;
    for (size_t i = 0; i < SH_COUNT_OF(places); i++) {
        char *path = sh_asprintf("%.*s%s", (int)dir.len, dir.ptr, places[i]);
        char *sign = sh_path_join(path, "src/cmd/main.c");
        bool there = sh_file_exists(sign);
        free(sign);
        if (there) return path;
        free(path);
    }
    return NULL;
}

/* The source tree as a tar archive in memory, without build outputs, history and a .env, which may
 * hold secrets. */
static sh_status tree_read(const sh_settings *s, sh_buf *out, sh_err *err)
{
    char *program = NULL;
    sh_status status = sh_program_path(&program, err);
    if (status != SH_OK) return status;
    char *dir = s->source != NULL ? sh_strdup(s->source) : source_find(program);
    free(program);
    if (dir == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "no source tree was found near the program; name it with --source DIR");
    sh_buf script = {0};
    sh_buf_add_text(&script, "cd ");
    sh_shell_quote(&script, sh_str_of(dir));
    sh_buf_add_text(&script, " && exec tar -cf - --exclude=./build --exclude=./.git "
                             "--exclude=./.env --exclude=node_modules .");
    sh_ssh_job job = {.command = script.ptr, .output_max = TREE_MAX};
    sh_ssh_run(&(sh_ssh_opts){.cancel = &interrupted}, &job, 1);
    status = job.status;
    if (status == SH_OK)
        *out = job.out;
    else
        sh_buf_reset(&job.out);
    *err = job.err;
    sh_buf_reset(&job.errors);
    sh_buf_reset(&script);
    free(dir);
    return status;
}

/* To all hosts at once; the state folder is checked before anything is written into it. */
static sh_status tree_push(const sh_remote_hosts *remote, const sh_buf *tree, sh_err *err)
{
    const sh_remote_host *list[SH_RANKS_MAX];
    int count = others(remote, list);
    sh_ssh_job *jobs = sh_alloc_array((size_t)count, sizeof(*jobs));
    sh_ssh_opts opts = remote->ssh;
    sh_buf script = {0};
    sh_status status = SH_OK;
    opts.limit_ms = PUSH_MS;
    sh_buf_add_text(&script, "d=");
    sh_state_dir_shell_word(remote->state_dir, &script);
    sh_buf_add_text(&script, "\n");
    sh_state_dir_shell_check(&script);
    sh_buf_add_text(&script, "umask 077; mkdir -p \"$d/src\" \"$d/bin\" && cd \"$d/src\" && exec "
                             "tar -xf -");
    for (int i = 0; i < count; i++) {
        jobs[i] = (sh_ssh_job){
            .host = list[i]->ssh, .command = script.ptr, .input = sh_buf_str(tree)};
        fprintf(stderr, "[%s] push the source tree\n", list[i]->name);
    }
    sh_ssh_run(&opts, jobs, count);
    for (int i = 0; i < count; i++) {
        if (jobs[i].status != SH_OK && status == SH_OK) {
            *err = jobs[i].err;
            status = err->status;
        }
        sh_ssh_job_reset(&jobs[i]);
    }
    sh_buf_reset(&script);
    free(jobs);
    return status;
}

/* Over ssh without a terminal, a process notices Ctrl-C only by the end of its stdin. So a
 * background `cat` reads stdin and kills the process group when it ends. */
static char *build_script(const char *state_dir)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "exec 3<&0; (cat <&3 >/dev/null; kill -TERM 0) >/dev/null 2>&1 & w=$!\n"
                        "d=");
    sh_state_dir_shell_word(state_dir, &b);
    sh_buf_add_text(&b, "; cd \"$d/src\" && tools/setup.sh </dev/null && "
                        "make -j\"$(getconf _NPROCESSORS_ONLN)\" </dev/null && "
                        "ln -sf ../src/build/release/shoal ../bin/native && ../bin/native --version"
                        "\nrc=$?; trap '' TERM; kill $w; exit $rc");
    return sh_buf_take(&b);
}

/* All hosts build in parallel, as children whose output is prefixed with the host's name. */
static sh_status build_all(const sh_remote_hosts *remote, int *code, sh_err *err)
{
    const sh_remote_host *list[SH_RANKS_MAX];
    int count = others(remote, list);
    sh_children *children = sh_children_create();
    char *script = build_script(remote->state_dir);
    sh_status status = SH_OK;
    for (int i = 0; i < count && status == SH_OK; i++) {
        char **argv = sh_ssh_argv(&remote->ssh, list[i]->ssh, script);
        sh_child_spec spec = {.name = list[i]->name, .argv = argv, .tether = true, .capture = true};
        status = sh_children_add(children, &spec, err);
        sh_ssh_argv_free(argv);
    }
    if (status == SH_OK) *code = sh_children_run(children, GRACE_MS);
    sh_children_free(children);
    free(script);
    return status;
}

static sh_status bootstrap(const sh_settings *s, int *code, sh_err *err)
{
    sh_hostfile *hosts = NULL;
    sh_remote_hosts remote = {0};
    sh_buf tree = {0};
    if (s->hostfile == NULL) return sh_err_set(err, SH_ERR_INPUT, "bootstrap needs --hostfile");
    sh_status status = sh_hostfile_load(s->hostfile, &hosts, err);
    if (status == SH_OK) status = sh_remote_hosts_init(&remote, hosts, err);
    remote.state_dir = s->state_dir;
    remote.ssh = sh_cluster_ssh(s);
    remote.ssh.cancel = &interrupted;
    if (status == SH_OK) status = tree_read(s, &tree, err);
    if (status == SH_OK) status = tree_push(&remote, &tree, err);
    if (status == SH_OK) status = build_all(&remote, code, err);
    sh_buf_reset(&tree);
    sh_remote_hosts_reset(&remote);
    sh_hostfile_free(hosts);
    return status;
}

static int bootstrap_run(const sh_command_args *args)
{
    sh_err err;
    int code = SH_EXIT_OK;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    sh_status status = bootstrap(args->settings, &code, &err);
    return status == SH_OK ? code : sh_command_fail(&err);
}

const sh_command sh_command_bootstrap = {
    SH_COMMAND_NAMED(bootstrap),
    .summary = "build the program on the other hosts of a hostfile",
    .details = "For hosts of another kind than this one, or without the libraries: copies the "
               "source tree, installs the build dependencies (tools/setup.sh) and builds.",
    .run = bootstrap_run,
};
