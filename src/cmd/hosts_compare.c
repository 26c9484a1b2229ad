/* shoal hosts compare: the hosts side by side, with what differs marked; and shoal hosts clean,
 * which removes from them what `launch` and `bootstrap` have put there. */
#include "cmd/hosts.h"

#include "base/alloc.h"
#include "base/system.h"
#include "base/terminal.h"
#include "cluster/state_dir.h"
#include "cluster/survey.h"
#include "cmd/support/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMN_MIN = 8, COLUMN_MAX = 34, GIB = 1 << 30 };

typedef struct {
    sh_hostfile *file; /* owns the names; NULL: none */
    sh_survey_host host[SH_RANKS_MAX];
    int count;
} hosts_list;

/* Several ranks may share a host: it counts once. */
static void host_add(hosts_list *l, const char *name)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->host[i].shown, name) == 0) return;
    if (l->count < SH_RANKS_MAX)
        l->host[l->count++] = (sh_survey_host){.name = sh_ssh_is_local(name) ? NULL : name,
                                               .shown = name};
}

/* The named hosts, or else those of --hostfile, or else this one. */
static sh_status hosts_find(hosts_list *l, const sh_command_args *args, sh_err *err)
{
    const char *path = args->settings->hostfile;
    for (int i = 1; i < args->argc; i++) host_add(l, args->argv[i]);
    if (l->count > 0) return SH_OK;
    sh_status status = path == NULL ? SH_OK : sh_hostfile_load(path, &l->file, err);
    for (int i = 0; status == SH_OK && l->file != NULL && i < l->file->count; i++)
        if (l->file->host[i].ssh != NULL) host_add(l, l->file->host[i].ssh);
    if (status == SH_OK && l->file != NULL && l->count == 0)
        status = sh_err_set(err, SH_ERR_INPUT, "%s has no ssh names", path);
    if (status == SH_OK && l->count == 0) host_add(l, "localhost");
    return status;
}

static void hosts_reset(hosts_list *l)
{
    sh_survey_reset(l->host, l->count);
    sh_hostfile_free(l->file);
    free(l);
}

static void version_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_add_text(out, fp->version[0] == '\0' ? "not installed" : fp->version);
}

static void os_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_add_text(out, fp->os);
}

static void kernel_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_addf(out, "%s %s", fp->kernel, fp->arch);
}

static void cpu_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_add_text(out, fp->cpu);
}

static void level_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_add_text(out, fp->cpu_level);
}

static void cores_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_addf(out, "%lld", (long long)fp->cores);
}

/* Rounded, so that hosts of the same size compare equal. */
static void memory_text(const sh_fingerprint *fp, sh_buf *out)
{
    sh_buf_addf(out, "%.0f GiB", (double)fp->memory_total / GIB);
}

static void rdma_text(const sh_fingerprint *fp, sh_buf *out)
{
    for (int i = 0; i < fp->device_count; i++)
        sh_buf_addf(out, "%s%s %s", i == 0 ? "" : ", ", fp->device[i].name, fp->device[i].state);
    if (fp->device_count == 0) sh_buf_add_text(out, "none");
}

static void model_text(const sh_fingerprint *fp, sh_buf *out)
{
    if (!fp->model_asked)
        sh_buf_add_text(out, "-");
    else if (fp->model_fault[0] != '\0')
        sh_buf_add_text(out, "missing");
    else
        sh_buf_addf(out, "%.12s", fp->model_hash);
}

static const struct {
    const char *label;
    void (*text)(const sh_fingerprint *fp, sh_buf *out);
} facts[] = {
    {"shoal", version_text}, {"system", os_text},   {"kernel", kernel_text},
    {"CPU", cpu_text},       {"level", level_text}, {"cores", cores_text},
    {"memory", memory_text}, {"RDMA", rdma_text},   {"model", model_text},
};

enum { FACTS = SH_COUNT_OF(facts) };

/* Hosts that do not answer have "?", which differs from nothing: their line below says why. */
static bool row_differs(const hosts_list *l, const sh_buf *cells)
{
    const sh_buf *first = NULL;
    for (int i = 0; i < l->count; i++) {
        if (l->host[i].fp == NULL) continue;
        if (first != NULL && strcmp(first->ptr, cells[i].ptr) != 0) return true;
        if (first == NULL) first = &cells[i];
    }
    return false;
}

static int width_of(const hosts_list *l, sh_buf cells[FACTS][SH_RANKS_MAX], int host)
{
    size_t width = strlen(l->host[host].shown);
    for (int f = 0; f < (int)FACTS; f++)
        if (cells[f][host].len > width) width = cells[f][host].len;
    return width < COLUMN_MIN ? COLUMN_MIN : width > COLUMN_MAX ? COLUMN_MAX : (int)width;
}

/* Answers of other machines end up on the terminal. */
static void cell_print(const char *text, int width)
{
    for (int i = 0; i < width; i++) {
        bool end = *text == '\0';
        putchar(end ? ' ' : (unsigned char)*text < 0x20 ? '?' : *text);
        if (!end) text++;
    }
    fputs("  ", stdout);
}

/* Returns how many facts differ. */
static int table_print(const hosts_list *l, bool color)
{
    static sh_buf cells[FACTS][SH_RANKS_MAX];
    int width[SH_RANKS_MAX], different = 0;
    for (int f = 0; f < (int)FACTS; f++)
        for (int i = 0; i < l->count; i++) {
            if (l->host[i].fp != NULL) facts[f].text(l->host[i].fp, &cells[f][i]);
            if (cells[f][i].len == 0) sh_buf_add_char(&cells[f][i], '?');
        }
    cell_print("", COLUMN_MIN);
    for (int i = 0; i < l->count; i++) {
        width[i] = width_of(l, cells, i);
        cell_print(l->host[i].shown, width[i]);
    }
    putchar('\n');
    for (int f = 0; f < (int)FACTS; f++) {
        bool differs = row_differs(l, cells[f]);
        different += differs;
        fputs(sh_terminal_hue(color && differs, SH_HUE_YELLOW), stdout);
        cell_print(facts[f].label, COLUMN_MIN);
        for (int i = 0; i < l->count; i++) cell_print(cells[f][i].ptr, width[i]);
        printf("%s%s\n", differs ? "differs" : "", sh_terminal_hue(color && differs, SH_HUE_NONE));
        for (int i = 0; i < l->count; i++) sh_buf_reset(&cells[f][i]);
    }
    return different;
}

static int silent_print(const hosts_list *l)
{
    int silent = 0;
    for (int i = 0; i < l->count; i++)
        if (l->host[i].fp == NULL) {
            printf("%s: %s\n", l->host[i].shown, l->host[i].err.text);
            silent++;
        }
    return silent;
}

/* Differences do not fail: machines need not be alike. `shoal doctor` judges. */
int sh_hosts_compare(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    hosts_list *l = sh_alloc(sizeof(*l));
    char *program = NULL, *model = s->model == NULL ? NULL : realpath(s->model, NULL);
    sh_err err;
    int code = SH_EXIT_OK;
    sh_status status = hosts_find(l, args, &err);
    if (status == SH_OK) status = sh_program_path(&program, &err);
    if (status == SH_OK) {
        sh_survey_opts opts = {.ssh = sh_cluster_ssh(s),
                               .state_dir = s->state_dir,
                               .program = program,
                               .model = model != NULL ? model : s->model};
        opts.ssh.cancel = sh_hosts_interrupt();
        sh_survey_query(&opts, l->host, l->count);
        int different = table_print(l, sh_terminal_has_color(STDOUT_FILENO));
        int silent = silent_print(l);
        printf("%d host%s, %d difference%s\n", l->count, l->count == 1 ? "" : "s", different,
               different == 1 ? "" : "s");
        if (silent > 0) code = SH_EXIT_PEER;
    } else {
        code = sh_command_fail(&err);
    }
    hosts_reset(l);
    free(program);
    free(model);
    return code;
}

/* Token and logs stay: they are the user's. What is removed comes back with the next launch. A rank
 * whose supervisor is alive still uses it. */
static char *clean_script(const char *state_dir)
{
    sh_buf b = {0};
    sh_buf_add_text(&b, "d=");
    sh_state_dir_shell_word(state_dir, &b);
    sh_buf_add_text(&b, "\n");
    sh_state_dir_shell_check(&b);
    sh_buf_add_text(
        &b, "for f in \"$d\"/rank-*.pid; do\n"
            "  [ -e \"$f\" ] && kill -0 \"$(cut -d' ' -f1 \"$f\")\" 2>/dev/null || continue\n"
            "  echo \"a rank is running there: stop the cluster first\" >&2; exit 1\n"
            "done\n"
            "cd \"$d\" 2>/dev/null || { echo nothing to remove; exit 0; }\n"
            "du -sk bin src models 2>/dev/null | awk '{ k += $1 } END { "
            "printf \"%.0f MB\\n\", k / 1000 }'\n"
            "rm -rf bin src models settings.env api.env hostfile.json");
    return sh_buf_take(&b);
}

int sh_hosts_clean(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    hosts_list *l = sh_alloc(sizeof(*l));
    sh_err err;
    int code = SH_EXIT_OK;
    if (hosts_find(l, args, &err) != SH_OK) {
        hosts_reset(l);
        return sh_command_fail(&err);
    }
    sh_ssh_job *jobs = sh_alloc_array((size_t)l->count, sizeof(*jobs));
    sh_ssh_opts opts = sh_cluster_ssh(s);
    char *script = clean_script(s->state_dir);
    opts.cancel = sh_hosts_interrupt();
    for (int i = 0; i < l->count; i++)
        jobs[i] = (sh_ssh_job){.host = l->host[i].name, .command = script};
    sh_ssh_run(&opts, jobs, l->count);
    for (int i = 0; i < l->count; i++) {
        sh_str said = sh_str_trim(sh_buf_str(&jobs[i].out));
        if (jobs[i].status == SH_OK)
            printf("[%s] removed: %.*s\n", l->host[i].shown, (int)said.len, said.ptr);
        else
            code = sh_command_fail(&jobs[i].err);
        sh_ssh_job_reset(&jobs[i]);
    }
    free(script);
    free(jobs);
    hosts_reset(l);
    return code;
}
