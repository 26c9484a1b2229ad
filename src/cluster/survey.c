/* Queries hosts and times their links, by running `shoal fingerprint` and `shoal probe` on them.
 *
 * Timing a link takes two processes: a probe server on the target ("responder" here), started
 * first, and a probe on the other host that connects to it. The server goes to the background of
 * its host with a time limit, and the last probe that visits it tells it to exit; responders_stop
 * sweeps up those that were never info, also after Ctrl-C. Nothing may be left running.
 *
 * What the program cannot do on a host falls back: without a server on the target the probe times
 * connecting to port 22, and without the program on the source the host's own ping is used. */
#include "cluster/survey.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/version.h"
#include "cluster/probe.h"
#include "cluster/state_dir.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SSH_PORT = 22, LINK_MS = 4000, END_MS = 5000, PROBE_SECONDS_MIN = 15, ASK_EXTRA_MS = 30000 };

static void quoted(sh_buf *out, const char *flag, const char *value)
{
    if (value == NULL) return;
    sh_buf_addf(out, " %s ", flag);
    sh_shell_quote(out, sh_str_of(value));
}

/* Looks for the program at the same path as here, where `shoal launch` puts it, and in PATH. The
 * first one of this version wins, then the first that runs, then the plain shell script. */
static char *ask_command(const sh_survey_opts *opts, const sh_survey_host *host)
{
    sh_buf text = {0};
    sh_buf_add_text(&text, "d=");
    sh_state_dir_shell_word(opts->state_dir, &text);
    sh_buf_add_char(&text, '\n');
    sh_state_dir_shell_check(&text);
    sh_buf_addf(&text, "for want in 'shoal %s' ''; do\nfor p in ", sh_version());
    sh_shell_quote(&text, sh_str_of(opts->program));
    sh_buf_add_text(&text,
                    " \"$d\"/bin/shoal-* \"$d\"/bin/native shoal /usr/local/bin/shoal; do\n"
                    "command -v \"$p\" >/dev/null 2>&1 || continue\n"
                    "[ -z \"$want\" ] || [ \"$(\"$p\" --version 2>/dev/null)\" = \"$want\" ] "
                    "|| continue\n"
                    "out=$(\"$p\" fingerprint");
    quoted(&text, "--model", opts->model);
    quoted(&text, "--listen", host->listen);
    sh_buf_add_text(&text, " 2>/dev/null) && printf '%s\\n' \"$out\" && exit 0\ndone\ndone\n");
    sh_buf_add_text(&text, sh_fingerprint_script);
    return sh_buf_take(&text);
}

static int64_t limit_ms(const sh_survey_opts *opts)
{
    return (opts->ssh.connect_s > 0 ? opts->ssh.connect_s : 5) * 1000 + ASK_EXTRA_MS;
}

/* answered_us is taken after all hosts have answered, so the interval is wider than necessary for
 * the fast ones, and the doctor's clock check is less strict with them. */
void sh_survey_query(const sh_survey_opts *opts, sh_survey_host *hosts, int count)
{
    sh_ssh_job *jobs = sh_alloc_array((size_t)count, sizeof(*jobs));
    sh_ssh_opts ssh = opts->ssh;
    ssh.limit_ms = limit_ms(opts);
    for (int i = 0; i < count; i++) {
        jobs[i].host = hosts[i].name;
        jobs[i].command = ask_command(opts, &hosts[i]);
        hosts[i].asked_us = sh_clock_unix_us();
    }
    sh_ssh_run(&ssh, jobs, count);
    for (int i = 0; i < count; i++) {
        hosts[i].answered_us = sh_clock_unix_us();
        hosts[i].err = jobs[i].err;
        if (jobs[i].status == SH_OK) {
            sh_fingerprint *fp = sh_alloc(sizeof(*fp));
            if (sh_fingerprint_parse(sh_buf_str(&jobs[i].out), hosts[i].shown, fp, &hosts[i].err) ==
                SH_OK)
                hosts[i].fp = fp;
            else
                free(fp);
        }
        free((char *)(uintptr_t)jobs[i].command);
        sh_ssh_job_reset(&jobs[i]);
    }
    free(jobs);
}

void sh_survey_reset(sh_survey_host *hosts, int count)
{
    for (int i = 0; i < count; i++) {
        free(hosts[i].fp);
        hosts[i].fp = NULL;
    }
}

void sh_survey_net(const sh_survey_host *hosts, int count, sh_net_host *out)
{
    for (int i = 0; i < count; i++) out[i] = (sh_net_host){hosts[i].shown, hosts[i].fp};
}

/* The probe server of a host. */
typedef struct {
    cJSON *info; /* {"secret", "listen"}; NULL: it does not run */
} responder;

/* The addresses of a host that links lead to, separated by commas; NULL when there are none. */
static char *join_targets(const sh_net_link *links, int count, int to)
{
    sh_buf text = {0};
    for (int i = 0; i < count; i++) {
        if (links[i].to != to) continue;
        if (text.len > 0 &&
            sh_str_find(sh_buf_str(&text), sh_str_of(links[i].address), 0) < text.len)
            continue;
        sh_buf_addf(&text, "%s%s", text.len > 0 ? "," : "", links[i].address);
    }
    return text.len == 0 ? NULL : sh_buf_take(&text);
}

/* Starts a probe server on every host that is a target and has the program. */
static void responders_start(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                             const sh_net_link *links, int link_count, responder *out)
{
    sh_ssh_job *jobs = sh_alloc_array((size_t)count, sizeof(*jobs));
    int *owner = sh_alloc_array((size_t)count, sizeof(*owner)), used = 0;
    for (int i = 0; i < count; i++) {
        char *targets = hosts[i].fp == NULL || hosts[i].fp->program[0] == '\0'
                            ? NULL
                            : join_targets(links, link_count, i);
        if (targets == NULL) continue;
        sh_buf command = {0};
        sh_shell_quote(&command, sh_str_of(hosts[i].fp->program));
        sh_buf_addf(&command, " probe --seconds %d",
                    PROBE_SECONDS_MIN + link_count * LINK_MS / 1000);
        quoted(&command, "--listen", targets);
        jobs[used] = (sh_ssh_job){.host = hosts[i].name, .command = sh_buf_take(&command)};
        owner[used++] = i;
        free(targets);
    }
    sh_ssh_opts ssh = opts->ssh;
    ssh.cancel = NULL; /* not interrupted halfway: we must know what to stop afterwards */
    ssh.limit_ms = limit_ms(opts);
    if (opts->ssh.cancel == NULL || *opts->ssh.cancel == 0) sh_ssh_run(&ssh, jobs, used);
    for (int k = 0; k < used; k++) {
        sh_err err;
        if (jobs[k].code == 0 && sh_json_parse(sh_str_trim(sh_buf_str(&jobs[k].out)), "probe",
                                               &out[owner[k]].info, &err) != SH_OK)
            out[owner[k]].info = NULL;
        free((char *)(uintptr_t)jobs[k].command);
        sh_ssh_job_reset(&jobs[k]);
    }
    free(jobs);
    free(owner);
}

/* "ip:port" at which the server listens on that address, or NULL. */
static const char *responder_at(const responder *a, const char *number)
{
    char start[SH_FP_NAME_MAX + 4];
    bool v6 = strchr(number, ':') != NULL;
    int len = snprintf(start, sizeof(start), v6 ? "[%s]:" : "%s:", number);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(a->info, "listen"), *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *text = cJSON_GetStringValue(item);
        if (text != NULL && strncmp(text, start, (size_t)len) == 0) return text;
    }
    return NULL;
}

static bool is_last_for(const sh_net_link *links, int count, int idx)
{
    for (int i = idx + 1; i < count; i++)
        if (links[i].to == links[idx].to) return false;
    return true;
}

/* The input of one host's probe, and the link that each line stands for (cmd/probe.c has the
 * syntax). */
static int probe_lines(const responder *responders, int from, const sh_net_link *links, int count,
                       sh_buf *lines, int *which)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (links[i].from != from) continue;
        const responder *a = &responders[links[i].to];
        const char *at = a->info == NULL ? NULL : responder_at(a, links[i].address);
        const char *secret = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(a->info, "secret"));
        if (at == NULL || secret == NULL || strchr(secret, '\n') != NULL)
            sh_buf_addf(lines,
                        strchr(links[i].address, ':') != NULL ? "[%s]:%d - knock\n"
                                                              : "%s:%d - knock\n",
                        links[i].address, SSH_PORT);
        else
            sh_buf_addf(lines, "%s %s %s\n", at, secret,
                        is_last_for(links, count, i) ? "last" : "more");
        which[used++] = i;
    }
    return used;
}

static void link_take(sh_net_link *link, const cJSON *answer)
{
    const char *fault = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "fault"));
    const cJSON *rtt = cJSON_GetObjectItemCaseSensitive(answer, "rtt_us");
    const cJSON *gbit = cJSON_GetObjectItemCaseSensitive(answer, "gbit_s");
    link->tried = true;
    if (fault != NULL || !cJSON_IsNumber(rtt) || !cJSON_IsNumber(gbit)) {
        snprintf(link->fault, sizeof(link->fault), "%s", fault == NULL ? "no answer" : fault);
        return;
    }
    link->reached = true;
    link->rtt_us = rtt->valuedouble;
    link->gbit_s = gbit->valuedouble;
}

/* Runs one probe on the host for all links that start there; its output has one line per link, in
 * order. A missing or broken line counts as "no answer". */
static void links_probe(const sh_survey_opts *opts, const sh_survey_host *host,
                        const responder *responders, int from, sh_net_link *links, int count)
{
    sh_buf lines = {0}, command = {0};
    int *which = sh_alloc_array((size_t)count, sizeof(*which));
    int used = probe_lines(responders, from, links, count, &lines, which);
    sh_shell_quote(&command, sh_str_of(host->fp->program));
    sh_buf_add_text(&command, " probe");
    sh_ssh_job job = {.host = host->name, .command = command.ptr, .input = sh_buf_str(&lines)};
    sh_ssh_opts ssh = opts->ssh;
    ssh.limit_ms = limit_ms(opts) + (int64_t)used * LINK_MS;
    if (used > 0) sh_ssh_run(&ssh, &job, 1);
    sh_str rest = sh_buf_str(&job.out), line;
    for (int k = 0; k < used; k++) {
        cJSON *answer = NULL;
        sh_err err;
        if (sh_str_cut(&rest, '\n', &line) && sh_json_parse(line, "probe", &answer, &err) != SH_OK)
            answer = NULL;
        link_take(&links[which[k]], answer);
        cJSON_Delete(answer);
    }
    sh_ssh_job_reset(&job);
    sh_buf_reset(&lines);
    sh_buf_reset(&command);
    free(which);
}

/* For a host without the program: three pings per link. Also marks as failed whatever has not been
 * tried by other means. */
static void links_ping(const sh_survey_opts *opts, const sh_survey_host *host, int from,
                       sh_net_link *links, int count)
{
    sh_buf command = {0};
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (links[i].from != from || links[i].tried) continue;
        sh_buf_addf(&command,
                    "ping -n -q -c 3 -i 0.2 -W 1 %s 2>/dev/null | awk -F/ "
                    "'/^(rtt|round-trip)/{print \"%d\",$5}'\n",
                    links[i].address, i);
        used++;
    }
    sh_ssh_job job = {.host = host->name, .command = command.ptr};
    sh_ssh_opts ssh = opts->ssh;
    ssh.limit_ms = limit_ms(opts) + (int64_t)used * LINK_MS;
    if (used > 0) sh_ssh_run(&ssh, &job, 1);
    for (int i = 0; i < count; i++)
        if (links[i].from == from && !links[i].tried) {
            links[i].tried = true;
            snprintf(links[i].fault, sizeof(links[i].fault), "no answer to ping");
        }
    sh_str rest = sh_buf_str(&job.out), line;
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str number;
        int64_t idx;
        double ms;
        if (!sh_str_cut(&line, ' ', &number) || !sh_str_to_int(number, &idx) || idx < 0 ||
            idx >= count || links[idx].from != from || !sh_str_to_double(sh_str_trim(line), &ms))
            continue;
        links[idx].reached = true;
        links[idx].fault[0] = '\0';
        links[idx].rtt_us = ms * 1e3;
    }
    sh_ssh_job_reset(&job);
    sh_buf_reset(&command);
}

/* Whether the last probe to a host succeeded, and so has told its server to exit. */
static bool has_ended(const sh_net_link *links, int count, int host)
{
    for (int i = count - 1; i >= 0; i--)
        if (links[i].to == host) return links[i].gbit_s > 0;
    return false;
}

/* Stops the servers that are still running, from their own hosts, also after Ctrl-C. */
static void responders_stop(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                            const sh_net_link *links, int link_count, const responder *responders)
{
    sh_ssh_job *jobs = sh_alloc_array((size_t)count, sizeof(*jobs));
    sh_buf *texts = sh_alloc_array((size_t)count * 2, sizeof(*texts));
    sh_ssh_opts ssh = opts->ssh;
    int used = 0;
    ssh.cancel = NULL;
    ssh.limit_ms = END_MS;
    for (int i = 0; i < count; i++) {
        const cJSON *listen = cJSON_GetObjectItemCaseSensitive(responders[i].info, "listen");
        const char *at = cJSON_GetStringValue(cJSON_GetArrayItem(listen, 0));
        const char *secret = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(responders[i].info, "secret"));
        if (at == NULL || secret == NULL || has_ended(links, link_count, i)) continue;
        sh_buf *command = &texts[2 * used], *input = &texts[2 * used + 1];
        sh_shell_quote(command, sh_str_of(hosts[i].fp->program));
        sh_buf_add_text(command, " probe");
        sh_buf_addf(input, "%s %s quit\n", at, secret);
        jobs[used++] = (sh_ssh_job){
            .host = hosts[i].name, .command = command->ptr, .input = sh_buf_str(input)};
    }
    sh_ssh_run(&ssh, jobs, used);
    for (int k = 0; k < used; k++) {
        sh_ssh_job_reset(&jobs[k]);
        sh_buf_reset(&texts[2 * k]);
        sh_buf_reset(&texts[2 * k + 1]);
    }
    free(jobs);
    free(texts);
}

void sh_survey_measure(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                       sh_net_link *links, int link_count)
{
    responder *responders = sh_alloc_array((size_t)count, sizeof(*responders));
    responders_start(opts, hosts, count, links, link_count, responders);
    for (int i = 0; i < count; i++) {
        if (hosts[i].fp == NULL) continue;
        if (opts->progress != NULL) opts->progress(hosts[i].shown);
        if (hosts[i].fp->program[0] != '\0')
            links_probe(opts, &hosts[i], responders, i, links, link_count);
        links_ping(opts, &hosts[i], i, links, link_count);
    }
    responders_stop(opts, hosts, count, links, link_count, responders);
    for (int i = 0; i < count; i++) cJSON_Delete(responders[i].info);
    free(responders);
}

/* Neither a pattern nor anything that ssh or a shell could read as more than a name. */
static bool is_plain_name(sh_str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!isalnum((unsigned char)name.ptr[i]) && strchr("._-@:", name.ptr[i]) == NULL)
            return false;
    return name.len > 0 && name.ptr[0] != '-';
}

/* ssh accepts "Host a b", "host\ta" and "Host=a"; keywords are case-insensitive. */
int sh_ssh_config_hosts(sh_str text, sh_arena *arena, const char **out, int cap)
{
    int count = 0;
    sh_str line, word;
    while (sh_str_cut(&text, '\n', &line)) {
        line = sh_str_trim(line);
        if (line.len < 5 || strncasecmp(line.ptr, "host", 4) != 0 ||
            (line.ptr[4] != ' ' && line.ptr[4] != '\t' && line.ptr[4] != '='))
            continue;
        char *names = sh_str_dup(sh_str_sub(line, 4, line.len));
        char *equals = names + strspn(names, " \t");
        if (*equals == '=') *equals = ' ';
        for (char *p = names; *p != '\0'; p++)
            if (*p == '\t') *p = ' ';
        sh_str rest = sh_str_of(names);
        while (count < cap && sh_str_cut(&rest, ' ', &word))
            if (is_plain_name(word)) out[count++] = sh_arena_str(arena, word).ptr;
        free(names);
    }
    return count;
}
