/* shoal bootstrap: builds the program on hosts that cannot run this one.
 *
 * The source tree is sent as a tar stream; then tools/setup.sh and make run on the host, with their
 * output shown line by line. They end when the connection does. The digest of the tree is left
 * beside what was built from it, so that a host that has built the same tree is skipped. */
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

#define DIGEST_FILE ".tree"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

typedef struct {
    const sh_remote_hosts *remote;
    const sh_remote_host *list[SH_RANKS_MAX]; /* where to build */
    int count;
    sh_buf tree; /* the sources, as a tar archive */
    char digest[SH_DIGEST_TEXT_LEN + 1];
} bootstrap;

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

static void script_begin(const bootstrap *b, sh_buf *script)
{
    sh_buf_add_text(script, "d=");
    sh_state_dir_shell_word(b->remote->state_dir, script);
    sh_buf_add_text(script, "\n");
    sh_state_dir_shell_check(script);
}

/* Runs the script on all hosts of the list at once. Jobs are reset by the caller. */
static void hosts_run(const bootstrap *b, const char *script, sh_str input, sh_ssh_job *jobs)
{
    sh_ssh_opts opts = b->remote->ssh;
    opts.limit_ms = PUSH_MS;
    for (int i = 0; i < b->count; i++)
        jobs[i] = (sh_ssh_job){.host = b->list[i]->ssh, .command = script, .input = input};
    sh_ssh_run(&opts, jobs, b->count);
}

/* Lists the hosts that need a build: all but this machine, where the program already runs, and
 * those that have built this tree. One that does not answer is reported by the push. */
static void hosts_choose(bootstrap *b)
{
    sh_ssh_job jobs[SH_RANKS_MAX];
    sh_buf script = {0};
    int asked = 0, kept = 0;
    for (int i = 0; i < b->remote->count; i++)
        if (b->remote->list[i].ssh != NULL) b->list[asked++] = &b->remote->list[i];
    b->count = asked;
    script_begin(b, &script);
    sh_buf_add_text(&script, "[ -x \"$d/bin/native\" ] && exec cat \"$d/src/" DIGEST_FILE "\"");
    hosts_run(b, script.ptr, (sh_str){0}, jobs);
    for (int i = 0; i < asked; i++) {
        bool same = jobs[i].status == SH_OK && sh_str_is(sh_buf_str(&jobs[i].out), b->digest);
        if (same)
            printf("[%s] up to date\n", b->list[i]->name);
        else
            b->list[kept++] = b->list[i];
        sh_ssh_job_reset(&jobs[i]);
    }
    b->count = kept;
    sh_buf_reset(&script);
}

/* The state folder is checked before anything is written into it. The digest goes first: a build
 * that fails must not look like one of an earlier tree. */
static sh_status tree_push(const bootstrap *b, sh_err *err)
{
    sh_ssh_job jobs[SH_RANKS_MAX];
    sh_buf script = {0};
    sh_status status = SH_OK;
    script_begin(b, &script);
    sh_buf_add_text(&script, "umask 077; mkdir -p \"$d/src\" \"$d/bin\" && cd \"$d/src\" && "
                             "rm -f " DIGEST_FILE " && exec tar -xf -");
    for (int i = 0; i < b->count; i++)
        fprintf(stderr, "[%s] push the source tree\n", b->list[i]->name);
    hosts_run(b, script.ptr, sh_buf_str(&b->tree), jobs);
    for (int i = 0; i < b->count; i++) {
        if (jobs[i].status != SH_OK && status == SH_OK) {
            *err = jobs[i].err;
            status = err->status;
        }
        sh_ssh_job_reset(&jobs[i]);
    }
    sh_buf_reset(&script);
    return status;
}

/* Over ssh without a terminal, a process notices Ctrl-C only by the end of its stdin. So a
 * background `cat` reads stdin and kills the process group when it ends. */
static char *build_script(const bootstrap *b)
{
    sh_buf s = {0};
    sh_buf_add_text(&s, "exec 3<&0; (cat <&3 >/dev/null; kill -TERM 0) >/dev/null 2>&1 & w=$!\n"
                        "d=");
    sh_state_dir_shell_word(b->remote->state_dir, &s);
    sh_buf_addf(&s,
                "; cd \"$d/src\" && tools/setup.sh </dev/null && "
                "make -j\"$(getconf _NPROCESSORS_ONLN)\" </dev/null && "
                "ln -sf ../src/build/release/shoal ../bin/native && ../bin/native --version && "
                "printf %%s %s >" DIGEST_FILE "\nrc=$?; trap '' TERM; kill $w; exit $rc",
                b->digest);
    return sh_buf_take(&s);
}

/* All hosts build in parallel, as children whose output is prefixed with the host's name. */
static sh_status build_all(const bootstrap *b, int *code, sh_err *err)
{
    sh_children *children = sh_children_create();
    char *script = build_script(b);
    sh_status status = SH_OK;
    for (int i = 0; i < b->count && status == SH_OK; i++) {
        char **argv = sh_ssh_argv(&b->remote->ssh, b->list[i]->ssh, script);
        sh_child_spec spec = {
            .name = b->list[i]->name, .argv = argv, .tether = true, .capture = true};
        status = sh_children_add(children, &spec, err);
        sh_ssh_argv_free(argv);
    }
    if (status == SH_OK) *code = sh_children_run(children, GRACE_MS);
    sh_children_free(children);
    free(script);
    return status;
}

/* The hosts that are named, or else those of the hostfile. */
static sh_status hosts_load(const sh_command_args *args, sh_hostfile **out, sh_err *err)
{
    const char *path = args->settings->hostfile;
    if (args->argc > 0) return sh_hostfile_of_names(args->argv[0], 1, out, err);
    if (path != NULL) return sh_hostfile_load(path, out, err);
    return sh_err_set(err, SH_ERR_INPUT, "bootstrap needs the names of hosts, or --hostfile");
}

static sh_status run(const sh_command_args *args, int *code, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_hostfile *hosts = NULL;
    sh_remote_hosts remote = {0};
    bootstrap b = {.remote = &remote};
    sh_status status = hosts_load(args, &hosts, err);
    if (status == SH_OK) status = sh_remote_hosts_init(&remote, hosts, err);
    remote.state_dir = s->state_dir;
    remote.ssh = sh_cluster_ssh(s);
    remote.ssh.cancel = &interrupted;
    if (status == SH_OK) status = tree_read(s, &b.tree, err);
    if (status == SH_OK) {
        sh_digest_text(b.tree.ptr, b.tree.len, b.digest);
        hosts_choose(&b);
        status = tree_push(&b, err);
    }
    if (status == SH_OK && b.count > 0) status = build_all(&b, code, err);
    sh_buf_reset(&b.tree);
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
    sh_status status = run(args, &code, &err);
    return status == SH_OK ? code : sh_command_fail(&err);
}

const sh_command sh_command_bootstrap = {
    SH_COMMAND_NAMED(bootstrap),
    .arguments = "[HOST,HOST,...]",
    .args_max = 1,
    .summary = "build the program on other hosts",
    .details =
        "For hosts of another kind than this one, or without the libraries: copies the "
        "source tree, installs the build dependencies (tools/setup.sh) and builds. Hosts that "
        "have built this tree are skipped. Without names: the other hosts of --hostfile.",
    .run = bootstrap_run,
};
