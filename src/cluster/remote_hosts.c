/* Prepares the machines of a hostfile for a launch: check, push, verify.
 *
 * Each step is one small shell script per host, all hosts in parallel (a batch). Scripts print
 * lines "key value", which is all that is parsed of them. Everything that goes into a script is
 * quoted by sh_shell_quote; file contents travel on stdin, never in a command line, because other
 * users of a machine can read command lines.
 *
 * Files are pushed only where their SHA-256 differs, so a second launch sends nothing. Hosts may
 * share a home folder over the network, so the same path may be written by several hosts at once:
 * see push_script and strays_remove. */
#include "cluster/remote_hosts.h"

#include "base/alloc.h"
#include "base/version.h"
#include "cluster/state_dir.h"
#include "net/addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    CHECK_MS = 30000,
    PUSH_MS = 600000,
    VERIFY_MS = 60000,
    CODE_LIBRARIES = 41, /* exit code of the verify script when libraries are missing */
    NAME_MAX_LEN = 256,
};

/* One command for each of a set of hosts. */
struct batch {
    sh_ssh_job jobs[SH_RANKS_MAX];
    sh_remote_host *host[SH_RANKS_MAX];
    int count;
};

/* Whether this is an address of this machine. Loopback does not count: every machine has it. */
static bool address_is_ours(const char *text)
{
    sh_addr addr;
    char *full = sh_asprintf(strchr(text, ':') != NULL ? "[%s]:1" : "%s:1", text);
    sh_err ignored;
    bool number = sh_addr_parse(full, &addr, &ignored) == SH_OK;
    free(full);
    return number && !sh_addr_is_loopback(&addr) && sh_ssh_is_local(text);
}

/* How the host of a rank is reached. */
struct target {
    char ssh[SH_ADDR_HOST_MAX];
    bool local;
};

/* A host is this machine if its ssh name says so or, where the name is only an alias, if one of its
 * addresses is ours. "user@name" always goes through ssh unless the user is us: another account has
 * another home and other permissions. */
static sh_status target_of(const sh_hostfile *file, int rank, struct target *t, sh_err *err)
{
    const sh_host *host = &file->host[rank];
    uint16_t port;
    if (host->ssh == NULL && host->address_count == 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "entry %d of the hostfile has neither an address nor an ssh name", rank);
    if (host->ssh == NULL) {
        sh_status status = sh_addr_split(host->address[0], t->ssh, &port, err);
        if (status == SH_OK) t->local = sh_ssh_is_local(t->ssh);
        return status;
    }
    if ((size_t)snprintf(t->ssh, sizeof(t->ssh), "%s", host->ssh) >= sizeof(t->ssh))
        return sh_err_set(err, SH_ERR_INPUT, "the ssh name of rank %d is too long", rank);
    t->local = sh_ssh_is_local(t->ssh);
    bool with_user = strchr(t->ssh, '@') != NULL;
    for (int i = 0; i < host->address_count && !t->local && !with_user; i++)
        t->local = address_is_ours(host->address[i]);
    return SH_OK;
}

static int host_find(const sh_remote_hosts *hosts, const struct target *t)
{
    for (int i = 0; i < hosts->count; i++) {
        const char *ssh = hosts->list[i].ssh;
        if (t->local ? ssh == NULL : ssh != NULL && strcmp(ssh, t->ssh) == 0) return i;
    }
    return -1;
}

static void host_add(sh_remote_hosts *hosts, const struct target *t, int rank)
{
    char own[NAME_MAX_LEN] = {0};
    if (gethostname(own, sizeof(own) - 1) != 0) snprintf(own, sizeof(own), "localhost");
    hosts->list[hosts->count++] = (sh_remote_host){.ssh = t->local ? NULL : sh_strdup(t->ssh),
                                                   .name = sh_strdup(t->local ? own : t->ssh),
                                                   .rank = rank};
}

/* Refuses a loopback address in a group of several machines: the other ranks would connect to
 * themselves. */
static sh_status check_address(const sh_remote_hosts *hosts, int rank, sh_err *err)
{
    sh_addr_list list;
    sh_addr addr;
    char host[SH_ADDR_HOST_MAX];
    uint16_t port;
    sh_err ignored;
    sh_status status = sh_hostfile_addresses(hosts->file, rank, SH_HOSTFILE_PORT, &list, err);
    for (int i = 0; status == SH_OK && i < list.count && hosts->count > 1; i++) {
        status = sh_addr_split(list.text[i], host, &port, err);
        bool loopback = strcmp(host, "localhost") == 0 ||
                        (sh_addr_parse(list.text[i], &addr, &ignored) == SH_OK &&
                         sh_addr_is_loopback(&addr));
        if (status == SH_OK && loopback)
            status = sh_err_set(err, SH_ERR_INPUT,
                                "rank %d has the address '%s', which the other machines cannot "
                                "reach: give it an 'ips' entry in the hostfile",
                                rank, host);
    }
    return status;
}

sh_status sh_remote_hosts_init(sh_remote_hosts *hosts, const sh_hostfile *file, sh_err *err)
{
    sh_status status = SH_OK;
    memset(hosts, 0, sizeof(*hosts));
    hosts->file = file;
    hosts->list = sh_alloc_array((size_t)file->count, sizeof(*hosts->list));
    hosts->of_rank = sh_alloc_array((size_t)file->count, sizeof(*hosts->of_rank));
    for (int rank = 0; rank < file->count && status == SH_OK; rank++) {
        struct target target = {0};
        status = target_of(file, rank, &target, err);
        if (status != SH_OK) break;
        int idx = host_find(hosts, &target);
        hosts->of_rank[rank] = idx >= 0 ? idx : hosts->count;
        if (idx < 0) host_add(hosts, &target, rank);
    }
    for (int rank = 0; rank < file->count && status == SH_OK; rank++)
        status = check_address(hosts, rank, err);
    if (status != SH_OK) sh_remote_hosts_reset(hosts);
    return status;
}

void sh_remote_hosts_reset(sh_remote_hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->list[i].ssh);
        free(hosts->list[i].name);
        free(hosts->list[i].system);
        free(hosts->list[i].state);
        free(hosts->list[i].program);
        free(hosts->list[i].model);
    }
    for (int i = 0; i < hosts->file_count; i++) {
        free(hosts->files[i].name);
        sh_buf_reset(&hosts->files[i].bytes);
    }
    free(hosts->list);
    free(hosts->of_rank);
    memset(hosts, 0, sizeof(*hosts));
}

void sh_remote_hosts_add_file(sh_remote_hosts *hosts, const char *name, sh_buf *bytes, bool program)
{
    SH_ASSERT(hosts->file_count < SH_REMOTE_FILES_MAX);
    sh_remote_file *file = &hosts->files[hosts->file_count++];
    *file = (sh_remote_file){.name = sh_strdup(name), .bytes = *bytes, .program = program};
    sh_digest_text(bytes->ptr, bytes->len, file->digest);
    *bytes = (sh_buf){0};
}

void sh_remote_hosts_add_file_of_first(sh_remote_hosts *hosts, const char *name, sh_buf *bytes)
{
    sh_remote_hosts_add_file(hosts, name, bytes, false);
    hosts->files[hosts->file_count - 1].first = true;
}

void sh_remote_hosts_add_plugin(sh_remote_hosts *hosts, const char *name, sh_buf *bytes)
{
    sh_remote_hosts_add_file(hosts, name, bytes, false);
    hosts->files[hosts->file_count - 1].plugin = true;
}

static bool is_for(const sh_remote_hosts *hosts, const sh_remote_host *host, int file)
{
    return !hosts->files[file].first || host == &hosts->list[hosts->of_rank[0]];
}

static void batch_add(struct batch *b, sh_remote_host *host, char *command, sh_str input)
{
    b->host[b->count] = host;
    b->jobs[b->count++] = (sh_ssh_job){.host = host->ssh, .command = command, .input = input};
}

static void batch_run(const sh_remote_hosts *hosts, struct batch *b, int64_t limit_ms)
{
    sh_ssh_opts opts = hosts->ssh;
    opts.limit_ms = limit_ms;
    sh_ssh_run(&opts, b->jobs, b->count);
}

/* The first failure becomes the error; the others are only printed. */
static sh_status batch_status(const sh_remote_hosts *hosts, const struct batch *b, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; i < b->count; i++) {
        if (b->jobs[i].status == SH_OK) continue;
        if (status != SH_OK) hosts->say(hosts->arg, b->host[i], b->jobs[i].err.text);
        if (status == SH_OK) *err = b->jobs[i].err;
        status = err->status;
    }
    return status;
}

static void batch_free(struct batch *b)
{
    for (int i = 0; i < b->count; i++) {
        free((char *)(uintptr_t)b->jobs[i].command);
        sh_ssh_job_reset(&b->jobs[i]);
    }
    free(b);
}

/* Refuses a state folder that others may write to, creates it, and prints the system, the folder's
 * absolute path and the hash of each file that exists. macOS has shasum instead of sha256sum. */
static char *check_script(const sh_remote_hosts *hosts)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "umask 077; d=");
    sh_state_dir_shell_word(hosts->state_dir, &b);
    sh_buf_add_text(&b, "\n");
    sh_state_dir_shell_check(&b);
    sh_buf_add_text(&b, "mkdir -p \"$d/bin\" && cd \"$d\" || exit 1\n"
                        "echo \"system $(uname -sm)\"; echo \"state $(pwd)\"\n"
                        "[ -x bin/native ] && echo native\n");
    sh_buf_add_text(&b, "for f in");
    for (int i = 0; i < hosts->file_count; i++) {
        sh_buf_add_char(&b, ' ');
        sh_shell_quote(&b, sh_str_of(hosts->files[i].name));
    }
    sh_buf_add_text(&b, "; do [ -f \"$f\" ] || continue\n"
                        "h=$(sha256sum <\"$f\" 2>/dev/null || shasum -a 256 <\"$f\" 2>/dev/null)\n"
                        "echo \"file ${h%% *} $f\"; done");
    return sh_buf_take(&b);
}

/* One line "file DIGEST NAME" of the check. */
static void file_seen(const sh_remote_hosts *hosts, sh_remote_host *host, sh_str rest)
{
    sh_str digest;
    if (!sh_str_cut(&rest, ' ', &digest)) return;
    for (int i = 0; i < hosts->file_count; i++) {
        if (!sh_str_is(rest, hosts->files[i].name)) continue;
        if (!is_for(hosts, host, i))
            host->strays |= UINT64_C(1) << i;
        else if (sh_str_is(digest, hosts->files[i].digest))
            host->missing &= ~(UINT64_C(1) << i);
    }
}

static void text_replace(char **text, sh_str with)
{
    free(*text);
    *text = sh_str_dup(with);
}

/* All files count as missing until the script has named them with the right hash. */
static void check_read(const sh_remote_hosts *hosts, sh_remote_host *host, const sh_buf *out)
{
    sh_str rest = sh_buf_str(out), line, key;
    host->missing = host->strays = host->resent = 0;
    for (int i = 0; i < hosts->file_count; i++)
        if (is_for(hosts, host, i)) host->missing |= UINT64_C(1) << i;
    host->native = false;
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str value = line;
        if (!sh_str_cut(&value, ' ', &key)) continue;
        if (sh_str_is(key, "system")) text_replace(&host->system, value);
        if (sh_str_is(key, "state")) text_replace(&host->state, value);
        if (sh_str_is(key, "native")) host->native = true;
        if (sh_str_is(key, "file")) file_seen(hosts, host, value);
    }
}

/* Our program can only run on a host with the same system and architecture. Other hosts must have
 * one that was built there (shoal bootstrap). */
static sh_status check_system(const sh_remote_hosts *hosts, sh_remote_host *host, sh_err *err)
{
    struct utsname own;
    uname(&own);
    char *ours = sh_asprintf("%s %s", own.sysname, own.machine);
    sh_status status = SH_OK;
    if (host->system == NULL || host->state == NULL)
        status = sh_err_set(err, SH_ERR_INPUT, "host %s: unexpected output from its shell",
                            host->name);
    else if (strcmp(host->system, ours) != 0 && !host->native)
        status = sh_err_set(err, SH_ERR_UNSUPPORTED,
                            "host %s is %s, but this program was built for %s: `shoal bootstrap "
                            "--hostfile FILE` builds it there",
                            host->name, host->system, ours);
    for (int i = 0; i < hosts->file_count && status == SH_OK; i++) {
        if (!hosts->files[i].program && !hosts->files[i].plugin) continue;
        bool same = strcmp(host->system, ours) == 0;
        if (!same) host->missing &= ~(UINT64_C(1) << i);
        if (hosts->files[i].plugin) continue;
        text_replace(&host->program, sh_str_of(same ? hosts->files[i].name : "bin/native"));
    }
    free(ours);
    return status;
}

static char *remove_script(const sh_remote_hosts *hosts, const sh_remote_host *host)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "cd ");
    sh_shell_quote(&b, sh_str_of(host->state));
    sh_buf_add_text(&b, " && rm -f");
    for (int i = 0; i < hosts->file_count; i++) {
        if ((host->strays >> i & 1) == 0) continue;
        sh_buf_add_char(&b, ' ');
        sh_shell_quote(&b, sh_str_of(hosts->files[i].name));
    }
    return sh_buf_take(&b);
}

/* Removes files that only rank 0's host may have (they hold API keys) from the other hosts, where
 * an earlier launch with another rank order may have left them. If hosts share a home, this removes
 * the copy of rank 0's host as well, so it is marked as missing there and sent again. */
static sh_status strays_remove(sh_remote_hosts *hosts, sh_err *err)
{
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < hosts->count; i++) {
        if (hosts->list[i].strays == 0) continue;
        sh_remote_host *first = &hosts->list[hosts->of_rank[0]];
        first->resent |= hosts->list[i].strays & ~first->missing;
        first->missing |= hosts->list[i].strays;
        batch_add(b, &hosts->list[i], remove_script(hosts, &hosts->list[i]), (sh_str){0});
    }
    if (b->count > 0) batch_run(hosts, b, CHECK_MS);
    sh_status status = batch_status(hosts, b, err);
    batch_free(b);
    return status;
}

sh_status sh_remote_hosts_check(sh_remote_hosts *hosts, sh_err *err)
{
    char text[NAME_MAX_LEN];
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < hosts->count; i++)
        batch_add(b, &hosts->list[i], check_script(hosts), (sh_str){0});
    batch_run(hosts, b, CHECK_MS);
    sh_status status = batch_status(hosts, b, err);
    for (int i = 0; i < b->count && status == SH_OK; i++) {
        check_read(hosts, b->host[i], &b->jobs[i].out);
        status = check_system(hosts, b->host[i], err);
        if (status != SH_OK) break;
        snprintf(text, sizeof(text), "check: %s", b->host[i]->system);
        hosts->say(hosts->arg, b->host[i], text);
    }
    batch_free(b);
    return status == SH_OK ? strays_remove(hosts, err) : status;
}

/* Writes to a temporary file and renames it, but only if all bytes arrived: to `cat` a broken
 * connection looks like the end of the input. Hosts may share a home, so the temporary file's name
 * contains the host's name. */
static char *push_script(const sh_remote_host *host, const sh_remote_file *file)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "umask 077; cd ");
    sh_shell_quote(&b, sh_str_of(host->state));
    sh_buf_add_text(&b, " || exit 1; f=");
    sh_shell_quote(&b, sh_str_of(file->name));
    sh_buf_addf(&b,
                "; p=$f.$(uname -n).part; case $f in */*) mkdir -p \"${f%%/*}\" ;; esac\n"
                "cat >\"$p\" && [ \"$(wc -c <\"$p\")\" -eq %zu ] && chmod %s \"$p\" "
                "&& mv \"$p\" \"$f\" && exit 0\n"
                "rm -f \"$p\"; echo \"cannot write $f: is the disk full?\" >&2; exit 1",
                file->bytes.len, file->program ? "700" : "600");
    return sh_buf_take(&b);
}

static sh_status push_file(sh_remote_hosts *hosts, int idx, sh_err *err)
{
    const sh_remote_file *file = &hosts->files[idx];
    struct batch *b = sh_alloc(sizeof(*b));
    char text[NAME_MAX_LEN];
    bool big = file->bytes.len >= 100000;
    snprintf(text, sizeof(text), "push %s, %.*f %s", file->name, big ? 1 : 0,
             (double)file->bytes.len / (big ? 1e6 : 1), big ? "MB" : "bytes");
    for (int i = 0; i < hosts->count; i++) {
        sh_remote_host *host = &hosts->list[i];
        if ((host->missing >> idx & 1) == 0) continue;
        batch_add(b, host, push_script(host, file), sh_buf_str(&file->bytes));
        hosts->say(hosts->arg, host, text);
    }
    batch_run(hosts, b, PUSH_MS);
    sh_status status = batch_status(hosts, b, err);
    for (int i = 0; i < b->count; i++)
        if (b->jobs[i].status == SH_OK) b->host[i]->missing &= ~(UINT64_C(1) << idx);
    batch_free(b);
    return status;
}

sh_status sh_remote_hosts_push(sh_remote_hosts *hosts, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; i < hosts->file_count && status == SH_OK; i++)
        status = push_file(hosts, i, err);
    return status;
}

/* Runs `agent check` with the program that a launch would use. If shared libraries of the pushed
 * program are missing, a native build takes its place. The link is that of one host, named by its
 * first rank, because hosts of different kinds may share a home; it is replaced in one step,
 * because a rank may be restarted at any time. */
static char *verify_script(const sh_remote_host *host, bool use)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "cd ");
    sh_shell_quote(&b, sh_str_of(host->state));
    sh_buf_add_text(&b, " || exit 1; p=");
    sh_shell_quote(&b, sh_str_of(host->program));
    sh_buf_addf(&b,
                "\nlacking() { ldd \"$1\" 2>/dev/null | sed -n 's/^[ \\t]*\\([^ ]*\\) => not "
                "found.*/\\1/p' | tr '\\n' ' '; }\n"
                "m=$(lacking \"$p\"); [ -n \"$m\" ] && [ -x bin/native ] && p=bin/native && "
                "m=$(lacking \"$p\")\n"
                "[ -z \"$m\" ] || { echo \"$m\" >&2; exit %d; }\n"
                "l=$p\n",
                CODE_LIBRARIES);
    if (use && !host->runs)
        sh_buf_addf(&b,
                    "l=bin/shoal-rank-%d; ln -sf \"${p#bin/}\" \"$l.new\" && "
                    "mv -f \"$l.new\" \"$l\" || exit 1\n",
                    host->rank);
    sh_buf_add_text(&b, "echo \"program $l\"; exec \"./$p\" agent check --env-file settings.env");
    return sh_buf_take(&b);
}

/* Turns known failures of the script into messages that say what to do. */
static void verify_explain(const sh_remote_host *host, sh_ssh_job *job, const char *model)
{
    sh_str said = sh_str_trim(sh_buf_str(&job->errors));
    if (job->code == CODE_LIBRARIES)
        job->status = sh_err_set(&job->err, SH_ERR_NOT_FOUND,
                                 "host %s lacks the libraries %.*s: `shoal bootstrap --hostfile "
                                 "FILE` installs them and builds the program there",
                                 host->name, (int)said.len, said.ptr);
    else if (job->code == 1 && sh_str_starts(said, SH_STR("shoal: ")))
        job->status = sh_err_set(&job->err, SH_ERR_NOT_FOUND,
                                 "host %s cannot read the model %s: %.*s", host->name, model,
                                 (int)said.len - 7, said.ptr + 7);
}

static sh_status verify_read(sh_remote_host *host, const sh_buf *out, sh_err *err)
{
    sh_str rest = sh_buf_str(out), line, key, version = {0};
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str value = line;
        if (!sh_str_cut(&value, ' ', &key)) continue;
        if (sh_str_is(key, "program")) text_replace(&host->program, value);
        if (sh_str_is(key, "version")) version = value;
        if (sh_str_is(key, "model")) text_replace(&host->model, value);
    }
    if (sh_str_is(version, sh_version())) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "host %s has version %.*s of shoal (%s/%s), but this is %s: `shoal bootstrap "
                      "--hostfile FILE` builds this version there",
                      host->name, (int)version.len, version.ptr, host->state, host->program,
                      sh_version());
}

static bool lacks_model(const sh_remote_host *host)
{
    return host->model != NULL && strcmp(host->model, SH_REMOTE_NO_MODEL) == 0;
}

/* Hosts without a copy get their share of the model from rank 0; the others must have the same. */
static sh_status same_models(const sh_remote_hosts *hosts, const char *model, bool use, sh_err *err)
{
    const sh_remote_host *first = &hosts->list[hosts->of_rank[0]];
    if (lacks_model(first))
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "host %s, which runs rank 0, does not have the model %s; copy it, for "
                          "example with `rsync -a FOLDER/ %s:FOLDER/`, or run `shoal pull` there",
                          first->name, model, first->name);
    for (int i = 0; i < hosts->count; i++) {
        const sh_remote_host *host = &hosts->list[i];
        const char *here = host->model == NULL ? "" : host->model;
        bool lacks = lacks_model(host);
        if (lacks && use)
            hosts->say(hosts->arg, host, "has no copy of the model: it gets its share from rank 0");
        if (!lacks && (first->model == NULL || strcmp(first->model, here) != 0))
            return sh_err_set(err, SH_ERR_INPUT,
                              "hosts %s and %s have different models at %s: names, sizes or "
                              "headers of the files differ",
                              first->name, host->name, model);
    }
    return SH_OK;
}

sh_status sh_remote_hosts_verify(sh_remote_hosts *hosts, const char *model, bool use, sh_err *err)
{
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < hosts->count; i++)
        batch_add(b, &hosts->list[i], verify_script(&hosts->list[i], use), (sh_str){0});
    batch_run(hosts, b, VERIFY_MS);
    for (int i = 0; i < b->count; i++) {
        sh_ssh_job *job = &b->jobs[i];
        if (job->status == SH_OK)
            job->status = verify_read(b->host[i], &job->out, &job->err);
        else
            verify_explain(b->host[i], job, model);
    }
    sh_status status = batch_status(hosts, b, err);
    if (status == SH_OK) status = same_models(hosts, model, use, err);
    batch_free(b);
    return status;
}
