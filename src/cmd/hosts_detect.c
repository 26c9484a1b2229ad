/* shoal hosts detect: queries the machines, times every pair over every network that they share,
 * and writes a hostfile with the best address of each.
 *
 * The hostfile is the product and goes to stdout (or --out), so that the command can be used in a
 * pipe; tables and findings go to stderr then. A host that does not answer is left out of the file
 * and reported as a failure: the file is still useful, and the exit code says that it is
 * incomplete. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"
#include "cluster/survey.h"
#include "cmd/hosts.h"
#include "cmd/support/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX = 1 << 20 };

typedef struct {
    sh_arena arena;
    sh_survey_host host[SH_RANKS_MAX];
    sh_net_host net[SH_RANKS_MAX];
    const char *address[SH_RANKS_MAX]; /* chosen */
    int count;
    sh_net_link *link; /* [SH_NET_LINKS_MAX] */
    int link_count;
    sh_findings report;
} detection;

static void show_progress(const char *text)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "timing the links of %s\n", text);
}

/* A name that is given twice counts once. */
static void add_host(detection *d, const char *name)
{
    if (d->count == SH_RANKS_MAX) return;
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->host[i].shown, name) == 0) return;
    d->host[d->count++] = (sh_survey_host){.name = sh_ssh_is_local(name) ? NULL : name,
                                           .shown = name};
}

/* Adds the hosts named in ~/.ssh/config. HOME is not a setting, because settings are sent to other
 * hosts. */
static sh_status add_known(detection *d, sh_err *err)
{
    const char *home = getenv("HOME");
    const char *names[SH_RANKS_MAX];
    sh_buf text = {0};
    if (home == NULL) return sh_err_set(err, SH_ERR_INPUT, "no host is named, and HOME is not set");
    char *path = sh_path_join(home, ".ssh/config");
    sh_status status = sh_file_read(path, CONFIG_MAX, &text, err);
    if (status != SH_OK)
        sh_err_prefix(err, "no host is named, and there is no ssh configuration");
    else
        for (int i = 0,
                 count = sh_ssh_config_hosts(sh_buf_str(&text), &d->arena, names, SH_RANKS_MAX);
             i < count; i++)
            add_host(d, names[i]);
    if (status == SH_OK && d->count == 0)
        status = sh_err_set(err, SH_ERR_INPUT, "no host is named, and %s has none", path);
    sh_buf_reset(&text);
    free(path);
    return status;
}

/* One finding per host, whatever it answered, so that the report lists all of them. */
static void check_answers(detection *d)
{
    for (int i = 0; i < d->count; i++) {
        const sh_survey_host *h = &d->host[i];
        if (h->fp == NULL)
            sh_findings_add(&d->report, SH_FINDING_FAIL, "ssh", h->shown,
                            "`ssh HOST true` must work without a prompt", "%s", h->err.text);
        else if (h->fp->program[0] == '\0')
            sh_findings_add(&d->report, SH_FINDING_WARN, "program", h->shown,
                            "`shoal bootstrap --hostfile F`, or copy the program to its PATH",
                            "shoal is not installed: only the latency of its links is known");
        else
            sh_findings_add(&d->report, SH_FINDING_OK, "ssh", h->shown, NULL, "shoal %s, %s %s",
                            h->fp->version, h->fp->os, h->fp->arch);
    }
}

/* Reports are added in the order in which a reader wants them: hosts, networks, then links. */
static void detect(detection *d, const sh_survey_opts *opts)
{
    sh_survey_query(opts, d->host, d->count);
    sh_survey_net(d->host, d->count, d->net);
    check_answers(d);
    sh_net_check(d->net, d->count, &d->report);
    sh_net_check_mtu(d->net, d->count, &d->report);
    d->link_count = sh_net_links(d->net, d->count, d->link, SH_NET_LINKS_MAX);
    sh_survey_measure(opts, d->host, d->count, d->link, d->link_count);
    sh_net_choose(d->net, d->count, d->link, d->link_count, d->address, &d->report);
}

/* All links, not only the chosen ones: a user who expected another network sees why it lost. */
static void print_links(const detection *d, FILE *to)
{
    fprintf(to, "%-24s %-20s %-34s %10s %12s\n", "pair", "network", "addresses", "latency",
            "bandwidth");
    for (int i = 0; i < d->link_count; i++) {
        const sh_net_link *l = &d->link[i];
        char pair[160], ends[160], gbit[32] = "-", us[32] = "-";
        snprintf(pair, sizeof(pair), "%.64s - %.64s", d->host[l->from].shown, d->host[l->to].shown);
        snprintf(ends, sizeof(ends), "%s%s%s", l->from_address,
                 l->from_address[0] == '\0' ? "" : " - ", l->address);
        if (l->reached) snprintf(us, sizeof(us), "%.0f us", l->rtt_us);
        if (l->gbit_s > 0) snprintf(gbit, sizeof(gbit), "%.2f Gbit/s", l->gbit_s);
        bool best = sh_net_best(d->link, d->link_count, l->from, l->to) == l;
        fprintf(to, "%-24s %-20s %-34s %10s %12s  %s\n", pair, l->network, ends, us, gbit,
                best         ? "* best"
                : l->reached ? "slower"
                             : l->fault);
    }
}

static void add_links(const detection *d, cJSON *list)
{
    for (int i = 0; i < d->link_count; i++) {
        const sh_net_link *l = &d->link[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "from", d->host[l->from].shown);
        cJSON_AddStringToObject(item, "to", d->host[l->to].shown);
        cJSON_AddStringToObject(item, "network", l->network);
        cJSON_AddStringToObject(item, "from_address", l->from_address);
        cJSON_AddStringToObject(item, "address", l->address);
        cJSON_AddBoolToObject(item, "reached", l->reached);
        cJSON_AddBoolToObject(item, "best",
                              sh_net_best(d->link, d->link_count, l->from, l->to) == l);
        if (l->rtt_us > 0) cJSON_AddNumberToObject(item, "rtt_us", l->rtt_us);
        if (l->gbit_s > 0) cJSON_AddNumberToObject(item, "gbit_s", l->gbit_s);
        if (l->fault[0] != '\0') cJSON_AddStringToObject(item, "fault", l->fault);
        cJSON_AddItemToArray(list, item);
    }
}

static void print_json(const detection *d)
{
    cJSON *top = cJSON_CreateObject();
    cJSON *hosts = cJSON_AddArrayToObject(top, "hosts");
    for (int i = 0; i < d->count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "ssh", d->host[i].shown);
        cJSON_AddBoolToObject(item, "answered", d->host[i].fp != NULL);
        if (d->address[i] != NULL) cJSON_AddStringToObject(item, "address", d->address[i]);
        cJSON_AddItemToArray(hosts, item);
    }
    add_links(d, cJSON_AddArrayToObject(top, "links"));
    cJSON_AddItemToObject(top, "findings", sh_findings_json(&d->report));
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
}

/* The hosts that answered, in the order in which they were named: that order is the ranks'. A host
 * whose links all failed is written without an address, and reached by its ssh name. */
static sh_status write_hostfile(detection *d, const sh_settings *s, sh_err *err)
{
    sh_hostfile file = {.backend = ""};
    sh_host hosts[SH_RANKS_MAX] = {0};
    file.host = hosts;
    for (int i = 0; i < d->count; i++)
        for (int k = 0; d->host[i].fp != NULL && k < s->repeat && file.count < SH_RANKS_MAX; k++) {
            sh_host *h = &hosts[file.count++];
            h->ssh = d->host[i].shown;
            if (d->address[i] != NULL) h->address[h->address_count++] = d->address[i];
        }
    if (file.count == 0) return sh_err_set(err, SH_ERR_PEER, "no host answered");
    return sh_hosts_write(&file, s, err);
}

/* Without --out the hostfile goes to stdout, so the tables go to stderr. */
static int show(detection *d, const sh_settings *s)
{
    sh_err err;
    sh_buf text = {0};
    FILE *to = s->out == NULL ? stderr : stdout;
    if (s->json)
        print_json(d);
    else {
        print_links(d, to);
        sh_findings_text(&d->report, &text);
        fprintf(to, "\n%s", text.ptr);
    }
    sh_buf_reset(&text);
    sh_status status = SH_OK;
    if (!s->json || s->out != NULL) status = write_hostfile(d, s, &err);
    if (status != SH_OK) return sh_command_fail(&err);
    if (s->out != NULL && !s->json) printf("\nwritten to %s\n", s->out);
    return sh_findings_worst(&d->report) == SH_FINDING_FAIL ? SH_EXIT_FAILED : SH_EXIT_OK;
}

int sh_hosts_detect(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    detection *d = sh_alloc(sizeof(*d));
    char *program = NULL;
    sh_err err;
    for (int i = 1; i < args->argc; i++) add_host(d, args->argv[i]);
    sh_status status = args->argc < 2 ? add_known(d, &err) : SH_OK;
    if (status == SH_OK) status = sh_program_path(&program, &err);
    int code = SH_EXIT_FAILED;
    if (status == SH_OK) {
        d->link = sh_alloc_array(SH_NET_LINKS_MAX, sizeof(*d->link));
        sh_survey_opts opts = {.ssh = sh_cluster_ssh(s),
                               .state_dir = s->state_dir,
                               .program = program,
                               .progress = show_progress};
        opts.ssh.cancel = sh_hosts_interrupt();
        detect(d, &opts);
        code = *opts.ssh.cancel != 0 ? SH_EXIT_INTERRUPTED : show(d, s);
    } else {
        sh_command_fail(&err);
    }
    sh_survey_reset(d->host, d->count);
    sh_findings_reset(&d->report);
    sh_arena_reset(&d->arena);
    free(d->link);
    free(d);
    free(program);
    return code;
}
