#include "cluster/sites.h"

#include "base/alloc.h"
#include "base/version.h"
#include "cluster/state.h"
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
    CODE_LIBRARIES = 41, /* of the verify script */
    NAME_MAX_LEN = 256,
};

/* One command for each of some sites. */
struct batch {
    sh_ssh_job jobs[SH_RANKS_MAX];
    sh_site *site[SH_RANKS_MAX];
    int count;
};

/* An address of this machine; loopback is everybody's. */
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

static sh_status target_of(const sh_hostfile *hosts, int rank, struct target *t, sh_err *err)
{
    const sh_host *host = &hosts->host[rank];
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

static int site_find(const sh_sites *s, const struct target *t)
{
    for (int i = 0; i < s->count; i++) {
        const char *ssh = s->list[i].ssh;
        if (t->local ? ssh == NULL : ssh != NULL && strcmp(ssh, t->ssh) == 0) return i;
    }
    return -1;
}

static void site_add(sh_sites *s, const struct target *t, int rank)
{
    char own[NAME_MAX_LEN] = {0};
    if (gethostname(own, sizeof(own) - 1) != 0) snprintf(own, sizeof(own), "localhost");
    s->list[s->count++] = (sh_site){.ssh = t->local ? NULL : sh_strdup(t->ssh),
                                    .name = sh_strdup(t->local ? own : t->ssh),
                                    .rank = rank};
}

/* A rank that the others would look for on their own machine. */
static sh_status check_address(const sh_sites *s, int rank, sh_err *err)
{
    sh_addr_list list;
    sh_addr addr;
    char host[SH_ADDR_HOST_MAX];
    uint16_t port;
    sh_err ignored;
    sh_status status = sh_hostfile_addresses(s->hosts, rank, SH_HOSTFILE_PORT, &list, err);
    for (int i = 0; status == SH_OK && i < list.count && s->count > 1; i++) {
        status = sh_addr_split(list.text[i], host, &port, err);
        bool loopback = strcmp(host, "localhost") == 0 ||
                        (sh_addr_parse(list.text[i], &addr, &ignored) == SH_OK &&
                         sh_addr_is_loopback(&addr));
        if (status == SH_OK && loopback)
            status = sh_err_set(err, SH_ERR_INPUT,
                                "rank %d has the address '%s', which the other machines can not "
                                "reach: give it an 'ips' entry in the hostfile",
                                rank, host);
    }
    return status;
}

sh_status sh_sites_init(sh_sites *s, const sh_hostfile *hosts, sh_err *err)
{
    sh_status status = SH_OK;
    memset(s, 0, sizeof(*s));
    s->hosts = hosts;
    s->list = sh_alloc_array((size_t)hosts->count, sizeof(*s->list));
    s->of_rank = sh_alloc_array((size_t)hosts->count, sizeof(*s->of_rank));
    for (int rank = 0; rank < hosts->count && status == SH_OK; rank++) {
        struct target target = {0};
        status = target_of(hosts, rank, &target, err);
        if (status != SH_OK) break;
        int idx = site_find(s, &target);
        s->of_rank[rank] = idx >= 0 ? idx : s->count;
        if (idx < 0) site_add(s, &target, rank);
    }
    for (int rank = 0; rank < hosts->count && status == SH_OK; rank++)
        status = check_address(s, rank, err);
    if (status != SH_OK) sh_sites_reset(s);
    return status;
}

void sh_sites_reset(sh_sites *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->list[i].ssh);
        free(s->list[i].name);
        free(s->list[i].system);
        free(s->list[i].state);
        free(s->list[i].program);
        free(s->list[i].model);
    }
    for (int i = 0; i < s->file_count; i++) {
        free(s->files[i].name);
        sh_buf_reset(&s->files[i].bytes);
    }
    free(s->list);
    free(s->of_rank);
    memset(s, 0, sizeof(*s));
}

void sh_sites_add_file(sh_sites *s, const char *name, sh_buf *bytes, bool program)
{
    SH_ASSERT(s->file_count < SH_SITE_FILES_MAX);
    sh_site_file *file = &s->files[s->file_count++];
    *file = (sh_site_file){.name = sh_strdup(name), .bytes = *bytes, .program = program};
    sh_digest_text(bytes->ptr, bytes->len, file->digest);
    *bytes = (sh_buf){0};
}

void sh_sites_add_file_of_first(sh_sites *s, const char *name, sh_buf *bytes)
{
    sh_sites_add_file(s, name, bytes, false);
    s->files[s->file_count - 1].first = true;
}

static bool is_for(const sh_sites *s, const sh_site *site, int file)
{
    return !s->files[file].first || site == &s->list[s->of_rank[0]];
}

static void batch_add(struct batch *b, sh_site *site, char *command, sh_str input)
{
    b->site[b->count] = site;
    b->jobs[b->count++] = (sh_ssh_job){.host = site->ssh, .command = command, .input = input};
}

static void batch_run(const sh_sites *s, struct batch *b, int64_t limit_ms)
{
    sh_ssh_opts opts = s->ssh;
    opts.limit_ms = limit_ms;
    sh_ssh_run(&opts, b->jobs, b->count);
}

/* Where more than one machine fails each is told of; the first is the error. */
static sh_status batch_status(const sh_sites *s, const struct batch *b, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; i < b->count; i++) {
        if (b->jobs[i].status == SH_OK) continue;
        if (status != SH_OK) s->say(s->arg, b->site[i], b->jobs[i].err.text);
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

static char *check_script(const sh_sites *s)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "umask 077; d=");
    sh_state_shell_word(s->state_dir, &b);
    sh_buf_add_text(&b, "\n");
    sh_state_shell_check(&b);
    sh_buf_add_text(&b, "mkdir -p \"$d/bin\" && cd \"$d\" || exit 1\n"
                        "echo \"system $(uname -sm)\"; echo \"state $(pwd)\"\n"
                        "[ -x bin/native ] && echo native\n");
    sh_buf_add_text(&b, "for f in");
    for (int i = 0; i < s->file_count; i++) {
        sh_buf_add_char(&b, ' ');
        sh_shell_quote(&b, sh_str_of(s->files[i].name));
    }
    sh_buf_add_text(&b, "; do [ -f \"$f\" ] || continue\n"
                        "h=$(sha256sum <\"$f\" 2>/dev/null || shasum -a 256 <\"$f\" 2>/dev/null)\n"
                        "echo \"file ${h%% *} $f\"; done");
    return sh_buf_take(&b);
}

static void file_seen(const sh_sites *s, sh_site *site, sh_str rest)
{
    sh_str digest;
    if (!sh_str_cut(&rest, ' ', &digest)) return;
    for (int i = 0; i < s->file_count; i++) {
        if (!sh_str_is(rest, s->files[i].name)) continue;
        if (!is_for(s, site, i))
            site->strays |= UINT64_C(1) << i;
        else if (sh_str_is(digest, s->files[i].digest))
            site->lacks &= ~(UINT64_C(1) << i);
    }
}

static void text_replace(char **text, sh_str with)
{
    free(*text);
    *text = sh_str_dup(with);
}

static void check_read(const sh_sites *s, sh_site *site, const sh_buf *out)
{
    sh_str rest = sh_buf_str(out), line, key;
    site->lacks = site->strays = 0;
    for (int i = 0; i < s->file_count; i++)
        if (is_for(s, site, i)) site->lacks |= UINT64_C(1) << i;
    site->native = false;
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str value = line;
        if (!sh_str_cut(&value, ' ', &key)) continue;
        if (sh_str_is(key, "system")) text_replace(&site->system, value);
        if (sh_str_is(key, "state")) text_replace(&site->state, value);
        if (sh_str_is(key, "native")) site->native = true;
        if (sh_str_is(key, "file")) file_seen(s, site, value);
    }
}

/* The program of this machine runs on another one only when that is of the same kind. */
static sh_status check_system(const sh_sites *s, sh_site *site, sh_err *err)
{
    struct utsname own;
    uname(&own);
    char *ours = sh_asprintf("%s %s", own.sysname, own.machine);
    sh_status status = SH_OK;
    if (site->system == NULL || site->state == NULL)
        status = sh_err_set(err, SH_ERR_INPUT, "host %s: its shell gives no sensible answer",
                            site->name);
    else if (strcmp(site->system, ours) != 0 && !site->native)
        status = sh_err_set(err, SH_ERR_UNSUPPORTED,
                            "host %s is %s, but this program is for %s: `shoal bootstrap "
                            "--hostfile FILE` builds it there",
                            site->name, site->system, ours);
    for (int i = 0; i < s->file_count && status == SH_OK; i++) {
        if (!s->files[i].program) continue;
        bool same = strcmp(site->system, ours) == 0;
        if (!same) site->lacks &= ~(UINT64_C(1) << i);
        text_replace(&site->program, sh_str_of(same ? s->files[i].name : "bin/native"));
    }
    free(ours);
    return status;
}

static char *remove_script(const sh_sites *s, const sh_site *site)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "cd ");
    sh_shell_quote(&b, sh_str_of(site->state));
    sh_buf_add_text(&b, " && rm -f");
    for (int i = 0; i < s->file_count; i++) {
        if ((site->strays >> i & 1) == 0) continue;
        sh_buf_add_char(&b, ' ');
        sh_shell_quote(&b, sh_str_of(s->files[i].name));
    }
    return sh_buf_take(&b);
}

/* Removes what is for the first rank's host alone from the others, where an earlier launch with
 * another order may have left it. Hosts may share a home: then its own copy is gone too, and is
 * sent anew. */
static sh_status strays_remove(sh_sites *s, sh_err *err)
{
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < s->count; i++) {
        if (s->list[i].strays == 0) continue;
        s->list[s->of_rank[0]].lacks |= s->list[i].strays;
        batch_add(b, &s->list[i], remove_script(s, &s->list[i]), (sh_str){0});
    }
    if (b->count > 0) batch_run(s, b, CHECK_MS);
    sh_status status = batch_status(s, b, err);
    batch_free(b);
    return status;
}

sh_status sh_sites_check(sh_sites *s, sh_err *err)
{
    char text[NAME_MAX_LEN];
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < s->count; i++) batch_add(b, &s->list[i], check_script(s), (sh_str){0});
    batch_run(s, b, CHECK_MS);
    sh_status status = batch_status(s, b, err);
    for (int i = 0; i < b->count && status == SH_OK; i++) {
        check_read(s, b->site[i], &b->jobs[i].out);
        status = check_system(s, b->site[i], err);
        if (status != SH_OK) break;
        snprintf(text, sizeof(text), "check: %s", b->site[i]->system);
        s->say(s->arg, b->site[i], text);
    }
    batch_free(b);
    return status == SH_OK ? strays_remove(s, err) : status;
}

/* Writes beside the file and renames, and only when all bytes came: a connection that breaks looks
 * like the end of the input. Hosts may share a home, so each has a name of its own to write to. */
static char *push_script(const sh_site *site, const sh_site_file *file)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "umask 077; cd ");
    sh_shell_quote(&b, sh_str_of(site->state));
    sh_buf_add_text(&b, " || exit 1; f=");
    sh_shell_quote(&b, sh_str_of(file->name));
    sh_buf_addf(&b,
                "; p=$f.$(uname -n).part; case $f in */*) mkdir -p \"${f%%/*}\" ;; esac\n"
                "cat >\"$p\" && [ \"$(wc -c <\"$p\")\" -eq %zu ] && chmod %s \"$p\" "
                "&& mv \"$p\" \"$f\" && exit 0\n"
                "rm -f \"$p\"; echo \"$f could not be written: is the disk full?\" >&2; exit 1",
                file->bytes.len, file->program ? "700" : "600");
    return sh_buf_take(&b);
}

static sh_status push_file(sh_sites *s, int idx, sh_err *err)
{
    const sh_site_file *file = &s->files[idx];
    struct batch *b = sh_alloc(sizeof(*b));
    char text[NAME_MAX_LEN];
    bool big = file->bytes.len >= 100000;
    snprintf(text, sizeof(text), "push %s, %.*f %s", file->name, big ? 1 : 0,
             (double)file->bytes.len / (big ? 1e6 : 1), big ? "MB" : "bytes");
    for (int i = 0; i < s->count; i++) {
        sh_site *site = &s->list[i];
        if ((site->lacks >> idx & 1) == 0) continue;
        batch_add(b, site, push_script(site, file), sh_buf_str(&file->bytes));
        s->say(s->arg, site, text);
    }
    batch_run(s, b, PUSH_MS);
    sh_status status = batch_status(s, b, err);
    for (int i = 0; i < b->count; i++)
        if (b->jobs[i].status == SH_OK) b->site[i]->lacks &= ~(UINT64_C(1) << idx);
    batch_free(b);
    return status;
}

sh_status sh_sites_push(sh_sites *s, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; i < s->file_count && status == SH_OK; i++) status = push_file(s, i, err);
    return status;
}

/* A program whose libraries are not there gives way to one that was built on the spot. */
static char *verify_script(const sh_site *site)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "cd ");
    sh_shell_quote(&b, sh_str_of(site->state));
    sh_buf_add_text(&b, " || exit 1; p=");
    sh_shell_quote(&b, sh_str_of(site->program));
    sh_buf_addf(&b,
                "\nlacking() { ldd \"$1\" 2>/dev/null | sed -n 's/^[ \\t]*\\([^ ]*\\) => not "
                "found.*/\\1/p' | tr '\\n' ' '; }\n"
                "m=$(lacking \"$p\"); [ -n \"$m\" ] && [ -x bin/native ] && p=bin/native && "
                "m=$(lacking \"$p\")\n"
                "[ -z \"$m\" ] || { echo \"$m\" >&2; exit %d; }\n"
                "echo \"program $p\"; exec \"./$p\" agent check --env-file settings.env",
                CODE_LIBRARIES);
    return sh_buf_take(&b);
}

/* The script's failures in words that say what to do. */
static void verify_explain(const sh_site *site, sh_ssh_job *job, const char *model)
{
    sh_str said = sh_str_trim(sh_buf_str(&job->errors));
    if (job->code == CODE_LIBRARIES)
        job->status = sh_err_set(&job->err, SH_ERR_NOT_FOUND,
                                 "host %s lacks the libraries %.*s: `shoal bootstrap --hostfile "
                                 "FILE` installs them and builds there",
                                 site->name, (int)said.len, said.ptr);
    else if (job->code == 1 && sh_str_starts(said, SH_STR("shoal: ")))
        job->status = sh_err_set(&job->err, SH_ERR_NOT_FOUND,
                                 "host %s does not have the model %s: %.*s; copy it, as by `rsync "
                                 "-a FOLDER/ %s:FOLDER/`",
                                 site->name, model, (int)said.len - 7, said.ptr + 7, site->name);
}

static sh_status verify_read(sh_site *site, const sh_buf *out, sh_err *err)
{
    sh_str rest = sh_buf_str(out), line, key, version = {0};
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str value = line;
        if (!sh_str_cut(&value, ' ', &key)) continue;
        if (sh_str_is(key, "program")) text_replace(&site->program, value);
        if (sh_str_is(key, "version")) version = value;
        if (sh_str_is(key, "model")) text_replace(&site->model, value);
    }
    if (sh_str_is(version, sh_version())) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "host %s has version %.*s of shoal (%s/%s), but this is %s: `shoal bootstrap "
                      "--hostfile FILE` builds the same there",
                      site->name, (int)version.len, version.ptr, site->state, site->program,
                      sh_version());
}

static sh_status same_models(const sh_sites *s, const char *model, sh_err *err)
{
    const sh_site *first = &s->list[0];
    for (int i = 1; i < s->count; i++) {
        const char *here = s->list[i].model == NULL ? "" : s->list[i].model;
        if (first->model == NULL || strcmp(first->model, here) != 0)
            return sh_err_set(err, SH_ERR_INPUT,
                              "hosts %s and %s have different models at %s: names, sizes or "
                              "headers of the files differ",
                              first->name, s->list[i].name, model);
    }
    return SH_OK;
}

sh_status sh_sites_verify(sh_sites *s, const char *model, sh_err *err)
{
    struct batch *b = sh_alloc(sizeof(*b));
    for (int i = 0; i < s->count; i++)
        batch_add(b, &s->list[i], verify_script(&s->list[i]), (sh_str){0});
    batch_run(s, b, VERIFY_MS);
    for (int i = 0; i < b->count; i++) {
        sh_ssh_job *job = &b->jobs[i];
        if (job->status == SH_OK)
            job->status = verify_read(b->site[i], &job->out, &job->err);
        else
            verify_explain(b->site[i], job, model);
    }
    sh_status status = batch_status(s, b, err);
    if (status == SH_OK) status = same_models(s, model, err);
    batch_free(b);
    return status;
}
