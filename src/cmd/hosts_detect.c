/* shoal hosts detect: queries the machines, times every pair over every network that they share,
 * finds out which interfaces and RDMA devices are connected, and writes a hostfile with the best
 * address of each host. Takes the flags of mlx.distributed_config.
 *
 * The hostfile is the product and goes to stdout (or --out), so that the command can be used in a
 * pipe; tables and findings go to stderr then. A host that does not answer is left out of the file
 * and reported as a failure: the file is still useful, and the exit code says that it is
 * incomplete. */
#include "cmd/hosts_detect.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"
#include "base/terminal.h"
#include "cluster/neighbours.h"
#include "cmd/support/cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX = 1 << 20 };

static bool verbose; /* progress is shown even if nobody watches */

static void show_progress(const char *text)
{
    if (verbose || isatty(STDERR_FILENO)) fprintf(stderr, "timing the links of %s\n", text);
}

/* A name that is given twice counts once. */
static void add_host(sh_detection *d, const char *name)
{
    if (d->count == SH_RANKS_MAX) return;
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->host[i].shown, name) == 0) return;
    d->host[d->count++] = (sh_survey_host){.name = sh_ssh_is_local(name) ? NULL : name,
                                           .shown = name};
}

/* Adds the hosts named in ~/.ssh/config, if there is one. HOME is not a setting, because settings
 * are sent to other hosts. */
static void add_known(sh_detection *d)
{
    const char *home = getenv("HOME");
    const char *names[SH_RANKS_MAX];
    sh_buf text = {0};
    sh_err ignored;
    if (home == NULL) return;
    char *path = sh_path_join(home, ".ssh/config");
    if (sh_file_read(path, CONFIG_MAX, &text, &ignored) == SH_OK) {
        int count = sh_ssh_config_hosts(sh_buf_str(&text), &d->arena, names, SH_RANKS_MAX);
        for (int i = 0; i < count; i++) add_host(d, names[i]);
    }
    sh_buf_reset(&text);
    free(path);
}

/* This machine, and those at the other end of its cables. */
static void add_neighbours(sh_detection *d)
{
    static sh_neighbours found;
    sh_neighbours_find(&found);
    if (found.count == 0) return;
    add_host(d, "localhost");
    for (int i = 0; i < found.count; i++) {
        fprintf(stderr, "found %s on a cable\n", found.address[i]);
        add_host(d, found.address[i]);
    }
}

/* The hosts of --hosts, a comma-separated list. */
static sh_status add_listed(sh_detection *d, const char *names, sh_err *err)
{
    sh_hostfile *file;
    sh_status status = sh_hostfile_of_names(names, 1, &file, err);
    if (status != SH_OK) return status;
    for (int i = 0; i < file->count; i++)
        add_host(d, sh_arena_str(&d->arena, sh_str_of(file->host[i].ssh)).ptr);
    sh_hostfile_free(file);
    return SH_OK;
}

/* Nobody has named a host. */
static sh_status add_found(sh_detection *d, const sh_settings *s, sh_err *err)
{
    if (s->worker_ssh != NULL) {
        add_host(d, "localhost");
        return add_listed(d, s->worker_ssh, err);
    }
    add_known(d);
    if (d->count == 0) add_neighbours(d);
    if (d->count > 0) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "no host is named, ~/.ssh/config has none, and nothing answers on a cable: "
                      "`shoal hosts detect HOST ...`");
}

/* The hosts of an earlier hostfile. */
static sh_status add_filed(sh_detection *d, const char *path, sh_err *err)
{
    sh_hostfile *file;
    sh_status status = sh_hostfile_load(path, &file, err);
    if (status != SH_OK) return status;
    for (int i = 0; i < file->count; i++)
        if (file->host[i].ssh != NULL)
            add_host(d, sh_arena_str(&d->arena, sh_str_of(file->host[i].ssh)).ptr);
    if (d->count == 0) status = sh_err_set(err, SH_ERR_INPUT, "%s has no ssh names", path);
    sh_hostfile_free(file);
    return status;
}

/* HOSTFILE in the environment may name the file that is about to be written, so only the flag
 * counts. */
static sh_status add_hosts(sh_detection *d, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    bool filed = sh_options_source(args->options, "hostfile") == SH_FROM_FLAG;
    for (int i = 1; i < args->argc; i++) add_host(d, args->argv[i]);
    if (args->argc > 1) return SH_OK;
    if (s->host_names != NULL) return add_listed(d, s->host_names, err);
    return filed ? add_filed(d, s->hostfile, err) : add_found(d, s, err);
}

/* One finding per host, whatever it answered, so that the report lists all of them. */
static void check_answers(sh_detection *d)
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

/* Whether a link is over a direct cable. */
static bool is_direct(const sh_detection *d, const sh_net_link *l)
{
    sh_cables one = {0};
    sh_cables_add_links(&one, d->net, l, 1);
    for (int i = 0; one.count > 0 && i < d->cables.count; i++)
        if (memcmp(&d->cables.cable[i], &one.cable[0], sizeof(one.cable[0])) == 0)
            return sh_cables_is_direct(&d->cables, d->net, i);
    return false;
}

/* --over: where a pair of hosts has both, ethernet leaves their direct cables out, and thunderbolt
 * everything else. */
static void restrict_links(sh_detection *d, const char *over)
{
    static struct {
        bool direct, other;
    } has[SH_RANKS_MAX][SH_RANKS_MAX];
    bool ethernet = strcmp(over, "ethernet") == 0, thunderbolt = strcmp(over, "thunderbolt") == 0;
    int kept = 0;
    memset(has, 0, sizeof(has));
    for (int i = 0; i < d->link_count; i++) {
        const sh_net_link *l = &d->link[i];
        bool direct = is_direct(d, l);
        has[l->from][l->to].direct |= direct;
        has[l->from][l->to].other |= l->reached && !direct;
    }
    for (int i = 0; i < d->link_count; i++) {
        const sh_net_link *l = &d->link[i];
        bool direct = is_direct(d, l);
        if ((ethernet && direct && has[l->from][l->to].other) ||
            (thunderbolt && !direct && has[l->from][l->to].direct))
            continue;
        d->link[kept++] = *l;
    }
    d->link_count = kept;
}

/* Reports nothing: --auto-setup does it twice. */
static void detect(sh_detection *d, const sh_survey_opts *opts, const sh_settings *s)
{
    sh_survey_reset(d->host, d->count);
    sh_survey_query(opts, d->host, d->count);
    sh_survey_net(d->host, d->count, d->net);
    d->cables.count = 0;
    sh_survey_cables(opts, d->host, d->count, &d->cables);
    d->link_count = sh_net_links(d->net, d->count, d->link, SH_NET_LINKS_MAX);
    if (s->dot) return;
    sh_survey_measure(opts, d->host, d->count, d->link, d->link_count);
    sh_cables_add_links(&d->cables, d->net, d->link, d->link_count);
}

/* All links, not only the chosen ones: a user who expected another network sees why it lost. */
static void print_links(const sh_detection *d, FILE *to)
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

static void add_links(const sh_detection *d, cJSON *list)
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

static void print_json(const sh_detection *d)
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
    sh_detection_add_cables(d, top);
    cJSON_AddItemToObject(top, "findings", sh_findings_json(&d->report));
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
}

/* --env, one variable on each line. */
static sh_status envs_fill(sh_detection *d, const char *text, sh_hostfile *file, sh_err *err)
{
    sh_str rest = sh_str_of(text), line;
    file->env = sh_arena_array(&d->arena, rest.len + 1, sizeof(*file->env));
    while (sh_str_cut(&rest, '\n', &line)) {
        size_t equals = sh_str_find(line, SH_STR("="), 0);
        if (equals == 0 || equals == line.len)
            return sh_err_set(err, SH_ERR_INPUT, "--env: '%.*s' must be NAME=VALUE", (int)line.len,
                              line.ptr);
        file->env[file->env_count++] = sh_arena_str(&d->arena, line).ptr;
    }
    return SH_OK;
}

/* The hosts that answered, in the order in which they were named: that order is the ranks', unless
 * a ring of cables asks for another. A host whose links all failed is written without an address,
 * and reached by its ssh name. */
static sh_status write_hostfile(sh_detection *d, const sh_settings *s, sh_err *err)
{
    sh_hostfile file = {.backend = d->backend == NULL ? "" : d->backend->name};
    sh_host hosts[SH_RANKS_MAX] = {0};
    file.host = hosts;
    for (int k = 0; k < d->order_count; k++)
        for (int n = 0; n < s->repeat && file.count < SH_RANKS_MAX; n++) {
            int i = d->order[k];
            sh_host *h = &hosts[file.count++];
            h->ssh = d->host[i].shown;
            if (d->address[i] != NULL) h->address[h->address_count++] = d->address[i];
        }
    if (file.count == 0) return sh_err_set(err, SH_ERR_PEER, "no host answered");
    bool rdma = strcmp(s->over, "ethernet") != 0 && s->repeat == 1;
    if (rdma) sh_detection_fill_devices(d, &file);
    if (!rdma || !sh_hostfile_has_devices(&file))
        for (int i = 0; i < file.count; i++) hosts[i].rdma_count = 0;
    sh_status status = envs_fill(d, s->rank_env, &file, err);
    return status == SH_OK ? sh_hosts_write(&file, s, err) : status;
}

/* Without --out the hostfile goes to stdout, so the tables go to stderr. */
static int show(sh_detection *d, const sh_settings *s)
{
    sh_err err;
    sh_buf text = {0};
    bool to_file = sh_hosts_out(s) != NULL;
    FILE *to = to_file ? stdout : stderr;
    if (s->json)
        print_json(d);
    else {
        print_links(d, to);
        sh_detection_print_cables(d, to);
        sh_findings_text(&d->report, sh_terminal_has_color(fileno(to)), &text);
        fprintf(to, "\n%s", text.ptr);
    }
    sh_buf_reset(&text);
    if (d->refused) return SH_EXIT_FAILED; /* a file that cannot work is worse than none */
    sh_status status = SH_OK;
    if (!s->json || to_file) status = write_hostfile(d, s, &err);
    if (status != SH_OK) return sh_command_fail(&err);
    if (to_file && !s->json) printf("\nwritten to %s\n", sh_hosts_out(s));
    return sh_findings_worst(&d->report) == SH_FINDING_FAIL ? SH_EXIT_FAILED : SH_EXIT_OK;
}

/* With --dot only what went wrong is worth words. */
static int show_failures(const sh_detection *d)
{
    sh_buf text = {0};
    bool failed = sh_findings_worst(&d->report) == SH_FINDING_FAIL;
    if (failed) sh_findings_text(&d->report, sh_terminal_has_color(STDERR_FILENO), &text);
    if (failed) fputs(text.ptr, stderr);
    sh_buf_reset(&text);
    return failed ? SH_EXIT_FAILED : SH_EXIT_OK;
}

/* After --auto-setup the hosts are asked again: the new addresses are candidates like any other. */
static int run(sh_detection *d, const sh_survey_opts *opts, const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    bool changed = false;
    detect(d, opts, s);
    if (*opts->ssh.cancel != 0) return SH_EXIT_INTERRUPTED;
    if (s->auto_setup && sh_detection_setup(d, opts, s, &changed, &err) != SH_OK)
        return sh_command_fail(&err);
    if (changed) detect(d, opts, s);
    if (*opts->ssh.cancel != 0) return SH_EXIT_INTERRUPTED;
    check_answers(d);
    sh_net_check(d->net, d->count, &d->report);
    sh_net_check_mtu(d->net, d->count, &d->report);
    if (s->dot) {
        sh_detection_print_dot(d);
        return show_failures(d);
    }
    restrict_links(d, s->over);
    sh_net_choose(d->net, d->count, d->link, d->link_count, d->address, &d->report);
    sh_detection_choose_backend(d, args);
    return show(d, s);
}

int sh_hosts_detect(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_detection *d = sh_alloc(sizeof(*d));
    char *program = NULL;
    sh_err err;
    sh_status status = add_hosts(d, args, &err);
    if (status == SH_OK) status = sh_program_path(&program, &err);
    int code = SH_EXIT_FAILED;
    if (status == SH_OK) {
        verbose = s->verbose;
        d->link = sh_alloc_array(SH_NET_LINKS_MAX, sizeof(*d->link));
        sh_survey_opts opts = {.ssh = sh_cluster_ssh(s),
                               .state_dir = s->state_dir,
                               .program = program,
                               .progress = show_progress};
        opts.ssh.cancel = sh_hosts_interrupt();
        code = s->undo ? sh_detection_undo(d, &opts, s) : run(d, &opts, args);
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
