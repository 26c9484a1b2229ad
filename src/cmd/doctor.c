/* shoal doctor: queries every host of a hostfile, times the links between them, and reports what
 * would keep a server from running well.
 *
 * This file connects the parts: it decides which machines, ports, models and links to look at
 * (machines_find, links_pick); the survey does the looking (cluster/survey.h), the checks are in
 * cluster/doctor.h. Several ranks may share a machine, so there are two indexes: ranks of the file,
 * and machines, each of which is queried once; `machine` maps the first to the second. */
#include "cluster/doctor.h"

#include "base/alloc.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/launch.h"
#include "cmd/hosts.h"
#include "cmd/support/api_call.h"
#include "cmd/support/cluster.h"
#include "cmd/support/model_find.h"
#include "model/predict.h"
#include "net/addr.h"
#include "net/plugin.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEALTH_MS = 2000 };

typedef struct {
    sh_hostfile *file;
    sh_survey_host host[SH_RANKS_MAX];
    sh_buf listen[SH_RANKS_MAX];
    double need[SH_RANKS_MAX];
    int machine[SH_RANKS_MAX]; /* index into host[] for each rank */
    int count;
    sh_net_link *link; /* [SH_NET_LINKS_MAX] */
    int link_count;
    sh_findings report;
} visit;

/* The first address of a rank, without a port, or NULL. */
static const char *first_address(sh_hostfile *file, int rank)
{
    const sh_host *h = &file->host[rank];
    char name[SH_ADDR_HOST_MAX];
    uint16_t port;
    sh_err err;
    if (h->address_count == 0 || !file->has_ports)
        return h->address_count == 0 ? NULL : h->address[0];
    if (sh_addr_split(h->address[0], name, &port, &err) != SH_OK) return NULL;
    return sh_arena_str(&file->arena, sh_str_of(name)).ptr;
}

/* The ssh name of the rank's machine, or else its address. */
static const char *ssh_name(sh_hostfile *file, int rank)
{
    const char *name = file->host[rank].ssh;
    if (name == NULL) name = first_address(file, rank);
    return name != NULL ? name : "localhost";
}

static int machine_of(visit *v, const char *name)
{
    for (int i = 0; i < v->count; i++)
        if (strcmp(v->host[i].shown, name) == 0) return i;
    v->host[v->count] = (sh_survey_host){.name = sh_ssh_is_local(name) ? NULL : name,
                                         .shown = name};
    return v->count++;
}

/* Collects the machines, and for each the addresses on which its ranks (and the API of rank 0) will
 * listen. */
static sh_status machines_find(visit *v, const sh_settings *s, sh_err *err)
{
    if (s->hostfile == NULL) {
        machine_of(v, "localhost");
        sh_buf_addf(&v->listen[0], "%s:%d", s->host, (int)s->port);
        return SH_OK;
    }
    sh_status status = sh_hostfile_load(s->hostfile, &v->file, err);
    for (int r = 0; status == SH_OK && r < v->file->count; r++) {
        sh_addr_list list;
        int m = v->machine[r] = machine_of(v, ssh_name(v->file, r));
        status = sh_hostfile_addresses(v->file, r, SH_HOSTFILE_PORT, &list, err);
        for (int k = 0; status == SH_OK && k < list.count; k++)
            sh_buf_addf(&v->listen[m], "%s%s", v->listen[m].len > 0 ? "," : "", list.text[k]);
    }
    if (status == SH_OK) sh_buf_addf(&v->listen[v->machine[0]], ",%s:%d", s->host, (int)s->port);
    if (status == SH_OK) sh_hostfile_check(v->file, &v->report);
    return status;
}

/* The address of a machine's first rank, or NULL if the file has none. */
static const char *number_of(const visit *v, int machine)
{
    for (int r = 0; v->file != NULL && r < v->file->count; r++)
        if (v->machine[r] == machine) return first_address(v->file, r);
    return NULL;
}

/* Keeps only the links that the hostfile will use, or all where it names no address. */
static void links_pick(visit *v)
{
    int kept = 0;
    for (int i = 0; i < v->link_count; i++) {
        const char *to = number_of(v, v->link[i].to);
        if (to == NULL || strcmp(to, v->link[i].address) == 0) v->link[kept++] = v->link[i];
    }
    v->link_count = kept;
}

/* An address in the file that no machine reported is tried as well: it may be translated on the way
 * (NAT), or wrong. */
static void links_add_foreign(visit *v)
{
    for (int a = 0; a < v->count; a++)
        for (int b = a + 1; b < v->count; b++) {
            const char *to = number_of(v, b);
            bool have = v->host[a].fp == NULL || v->host[b].fp == NULL || to == NULL;
            for (int i = 0; i < v->link_count && !have; i++)
                have = v->link[i].from == a && v->link[i].to == b;
            if (have || v->link_count == SH_NET_LINKS_MAX) continue;
            sh_net_link *l = &v->link[v->link_count++];
            *l = (sh_net_link){.from = a, .to = b};
            snprintf(l->address, sizeof(l->address), "%s", to);
            snprintf(l->network, sizeof(l->network), "routed");
        }
}

/* Bytes of weights that each machine would hold, with shares by free memory as in a real server.
 * Ranks on one machine divide its memory equally. */
static sh_status needs_fill(visit *v, const char *dir, sh_err *err)
{
    sh_config config = {0};
    sh_rank_resources resources[SH_RANKS_MAX];
    double shares[SH_RANKS_MAX];
    int ranks = v->file == NULL ? 1 : v->file->count;
    sh_shard *shards = sh_alloc_array((size_t)ranks, sizeof(*shards));
    sh_rank_cost cost;
    sh_status status = sh_config_load(dir, &config, err);
    for (int r = 0; r < ranks; r++) {
        const sh_fingerprint *fp = v->host[v->machine[r]].fp;
        int mates = 0;
        for (int q = 0; q < ranks; q++) mates += v->machine[q] == v->machine[r];
        resources[r] = (sh_rank_resources){
            .memory = fp == NULL ? 1e18 : (double)fp->memory_available / mates, .speed = 1};
    }
    if (status == SH_OK) {
        sh_shard whole = sh_shard_whole(&config);
        sh_predict_rank(&config, &whole, &cost);
        status = sh_shares_by_resources(resources, ranks, cost.weight_bytes, shares, err);
    }
    sh_plan_opts opts = {.tensor_size = ranks, .stages = 1, .weights = shares};
    if (status == SH_OK) status = sh_shard_plan(&config, &opts, shards, err);
    for (int r = 0; status == SH_OK && r < ranks; r++) {
        sh_predict_rank(&config, &shards[r], &cost);
        v->need[v->machine[r]] += cost.weight_bytes;
    }
    sh_config_reset(&config);
    free(shards);
    return status;
}

/* Without the model on this host the shares are unknown, and memory is only listed, not judged. */
static void plan_check(visit *v, const sh_settings *s)
{
    char *dir = NULL;
    sh_err err;
    if (s->model == NULL) return;
    if (sh_model_find(s, &dir, &err) == SH_OK && needs_fill(v, dir, &err) != SH_OK)
        sh_findings_add(&v->report, SH_FINDING_FAIL, "plan", "",
                        "`shoal plan --model DIR` shows what a group would need", "%s", err.text);
    free(dir);
}

/* A path that exists here is sent as an absolute path; anything else is a name that each host looks
 * up on its own. */
static char *model_for_hosts(const sh_settings *s)
{
    char full[PATH_MAX];
    if (s->model == NULL) return NULL;
    return sh_strdup(realpath(s->model, full) != NULL ? full : s->model);
}

/* What is already running: the cluster launched from the state folder, or a server that answers at
 * the API's address. NULL when there is none. Its ports may then be in use without that being an
 * error. */
static const char *server_find(const sh_settings *s)
{
    char *state = sh_state_dir_path(s->state_dir);
    cJSON *record = NULL;
    sh_buf answer = {0};
    sh_err ignored;
    int code = 0;
    sh_process launcher = {0};
    if (sh_launch_read(state, &record, &ignored) == SH_OK) launcher = sh_launch_process(record);
    const char *found = sh_process_alive(&launcher) ? "the launched cluster" : NULL;
    if (found == NULL &&
        sh_api_call(s, NULL, "/health", NULL, HEALTH_MS, &code, &answer, &ignored) == SH_OK &&
        sh_str_find(sh_buf_str(&answer), SH_STR("\"status\""), 0) < answer.len)
        found = "the server there";
    sh_buf_reset(&answer);
    cJSON_Delete(record);
    free(state);
    return found;
}

/* The order matters: links can only be listed once the hosts have reported their networks, and the
 * shares need their free memory. */
static void visit_run(visit *v, const sh_settings *s, const char *program)
{
    sh_net_host net[SH_RANKS_MAX];
    char *model = model_for_hosts(s);
    sh_survey_opts opts = {
        .ssh = sh_cluster_ssh(s), .state_dir = s->state_dir, .program = program, .model = model};
    opts.ssh.cancel = sh_hosts_interrupt();
    for (int i = 0; i < v->count; i++)
        v->host[i].listen = v->listen[i].len > 0 ? v->listen[i].ptr : NULL;
    sh_survey_query(&opts, v->host, v->count);
    sh_survey_net(v->host, v->count, net);
    v->link_count = sh_net_links(net, v->count, v->link, SH_NET_LINKS_MAX);
    links_pick(v);
    links_add_foreign(v);
    sh_survey_measure(&opts, v->host, v->count, v->link, v->link_count);
    plan_check(v, s);
    char *plugin = sh_plugin_find(NULL, SH_RDMA_PLUGIN_FILE);
    sh_doctor_check(&(sh_doctor_view){.host = v->host,
                                      .need = v->need,
                                      .count = v->count,
                                      .link = v->link,
                                      .link_count = v->link_count,
                                      .file = v->file,
                                      .machine = v->machine,
                                      .version = sh_version(),
                                      .server = server_find(s),
                                      .plugin = plugin},
                    &v->report);
    free(plugin);
    free(model);
}

/* Warnings do not change the exit code: a launch would still work. */
static int show(const visit *v, bool json)
{
    int failures = sh_findings_count(&v->report, SH_FINDING_FAIL);
    int warnings = sh_findings_count(&v->report, SH_FINDING_WARN);
    if (!json) {
        int code = sh_hosts_report(&v->report, false);
        printf("%d host%s: %d failure%s, %d warning%s\n", v->count, v->count == 1 ? "" : "s",
               failures, failures == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
        return code;
    }
    cJSON *top = cJSON_CreateObject();
    cJSON_AddBoolToObject(top, "ok", failures == 0);
    cJSON_AddNumberToObject(top, "hosts", v->count);
    cJSON_AddNumberToObject(top, "failures", failures);
    cJSON_AddNumberToObject(top, "warnings", warnings);
    cJSON_AddItemToObject(top, "findings", sh_findings_json(&v->report));
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
    return failures == 0 ? SH_EXIT_OK : SH_EXIT_FAILED;
}

static int doctor_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    visit *v = sh_alloc(sizeof(*v));
    char *program = NULL;
    sh_err err;
    v->link = sh_alloc_array(SH_NET_LINKS_MAX, sizeof(*v->link));
    sh_status status = sh_program_path(&program, &err);
    if (status == SH_OK) status = machines_find(v, s, &err);
    int code = SH_EXIT_FAILED;
    if (status == SH_OK) {
        visit_run(v, s, program);
        code = *sh_hosts_interrupt() != 0 ? SH_EXIT_INTERRUPTED : show(v, s->json);
    } else {
        code = sh_command_fail(&err);
    }
    sh_survey_reset(v->host, v->count);
    for (int i = 0; i < SH_RANKS_MAX; i++) sh_buf_reset(&v->listen[i]);
    sh_findings_reset(&v->report);
    sh_hostfile_free(v->file);
    free(v->link);
    free(v);
    free(program);
    return code;
}

const sh_command sh_command_doctor = {
    SH_COMMAND_NAMED(doctor),
    .summary = "check all hosts before they serve",
    .details = "Queries every host of --hostfile at once over ssh: versions, clock, model, memory, "
               "ports, links, limits. Each line is ok, a warning or a failure, with what to do "
               "about it. Without --hostfile it checks this host.",
    .run = doctor_run,
};
