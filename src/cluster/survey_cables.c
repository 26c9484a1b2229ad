/* Finding cables: link-local IPv6 addresses exist on every interface that is up, without any setup,
 * and are valid on that interface only. So an address that answers on an interface is on the same
 * cable or switch. */
#include "base/alloc.h"
#include "cluster/survey.h"

#include <stdlib.h>

enum { SSH_PORT = 22, TRIES_MAX = 4096, TRY_MS = 5000 };

/* What one line of a host's probe stands for. */
typedef struct {
    int interface, other, other_interface;
} try;

static bool is_link_local(const sh_fp_address *a)
{
    return a->len == 16 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

/* Appends the line and records what it stands for. */
static void try_add(const sh_survey_host *from, int interface, const sh_fp_address *to, int other,
                    sh_buf *lines, try *tries, int *count)
{
    if (*count == TRIES_MAX) return;
    tries[(*count)++] = (try){interface, other, to->interface};
    sh_buf_addf(lines, "[%s%%%s]:%d - near\n", to->text, from->fp->interface[interface].name,
                SSH_PORT);
}

/* Everything to try on one host: each of its interfaces with each address of the others. */
static int tries_list(const sh_survey_host *hosts, int count, int from, sh_buf *lines, try *tries)
{
    const sh_fingerprint *own = hosts[from].fp;
    int used = 0;
    for (int i = 0; i < own->interface_count; i++) {
        if (!sh_cable_can_end_at(&own->interface[i])) continue;
        for (int other = 0; other < count; other++) {
            const sh_fingerprint *fp = hosts[other].fp;
            for (int k = 0; other != from && fp != NULL && k < fp->address_count; k++)
                if (is_link_local(&fp->address[k]) &&
                    sh_cable_can_end_at(&fp->interface[fp->address[k].interface]))
                    try_add(&hosts[from], i, &fp->address[k], other, lines, tries, &used);
        }
    }
    return used;
}

static void answers_take(sh_str rest, int from, const try *tries, int count, sh_cables *out)
{
    sh_str line;
    for (int i = 0; i < count && sh_str_cut(&rest, '\n', &line); i++) {
        cJSON *answer = NULL;
        sh_err err;
        if (sh_json_parse(line, "probe", &answer, &err) != SH_OK) continue;
        if (cJSON_GetObjectItemCaseSensitive(answer, "rtt_us") != NULL)
            sh_cables_add(out, (sh_cable){{from, tries[i].other},
                                          {tries[i].interface, tries[i].other_interface}});
        cJSON_Delete(answer);
    }
}

void sh_survey_cables(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                      sh_cables *out)
{
    sh_ssh_job *jobs = sh_alloc_array((size_t)count, sizeof(*jobs));
    sh_buf *texts = sh_alloc_array((size_t)count * 2, sizeof(*texts));
    try *tries = sh_alloc_array((size_t)count * TRIES_MAX, sizeof(*tries));
    int *owner = sh_alloc_array((size_t)count, sizeof(*owner)), used = 0;
    int *lengths = sh_alloc_array((size_t)count, sizeof(*lengths));
    sh_ssh_opts ssh = opts->ssh;
    for (int i = 0; i < count; i++) {
        if (hosts[i].fp == NULL || hosts[i].fp->program[0] == '\0') continue;
        sh_buf *command = &texts[2 * used], *input = &texts[2 * used + 1];
        lengths[used] = tries_list(hosts, count, i, input, tries + (size_t)used * TRIES_MAX);
        if (lengths[used] == 0) continue;
        sh_shell_quote(command, sh_str_of(hosts[i].fp->program));
        sh_buf_add_text(command, " probe");
        jobs[used] = (sh_ssh_job){
            .host = hosts[i].name, .command = command->ptr, .input = sh_buf_str(input)};
        owner[used++] = i;
    }
    ssh.limit_ms = (ssh.connect_s > 0 ? ssh.connect_s : 5) * 1000 + TRY_MS * (1 + TRIES_MAX / 256);
    sh_ssh_run(&ssh, jobs, used);
    for (int k = 0; k < used; k++) {
        answers_take(sh_buf_str(&jobs[k].out), owner[k], tries + (size_t)k * TRIES_MAX, lengths[k],
                     out);
        sh_ssh_job_reset(&jobs[k]);
    }
    for (int k = 0; k < 2 * count; k++) sh_buf_reset(&texts[k]);
    free(jobs);
    free(texts);
    free(tries);
    free(owner);
    free(lengths);
}
