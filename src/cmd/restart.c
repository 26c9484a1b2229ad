/* shoal restart: replaces all processes of a launched cluster by new ones.
 *
 * As a rule they are renewed: the hosts get the program of this command if they lack it, and the
 * launcher tells every agent to renew its rank, under running answers (docs/failures.md). A renewal
 * keeps the settings that the supervisors have. Where those must change, or with --cold, the
 * cluster is stopped and launched again; that is said, with the reason. */
#include "base/alloc.h"
#include "cmd/launched.h"
#include "cmd/support/cluster.h"
#include "cmd/support/launch_job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESTARTS_MAX = 8 };

/* Files that a renewal cannot replace: supervisors have read them. */
static const struct {
    const char *file, *means;
} FIXED[] = {
    {"settings.env", "the settings have changed"},
    {"api.env", "the settings of the API have changed"},
    {"hostfile.json", "the hostfile has changed"},
};

/* Call after sh_remote_hosts_check. What that takes away itself, where hosts share a home, has not
 * changed. */
static const char *changed_file(const sh_remote_hosts *hosts)
{
    for (size_t k = 0; k < SH_COUNT_OF(FIXED); k++)
        for (int f = 0; f < hosts->file_count; f++)
            for (int i = 0; i < hosts->count; i++)
                if (strcmp(hosts->files[f].name, FIXED[k].file) == 0 &&
                    ((hosts->list[i].missing & ~hosts->list[i].resent) >> f & 1) != 0)
                    return FIXED[k].means;
    return NULL;
}

/* The hosts of the launch, without those that were removed, and with those that were added. */
static sh_status members_reach(sh_launched *c, sh_err *err)
{
    sh_launch *l = &c->launch;
    sh_remote_hosts_reset(&l->remote);
    sh_hostfile_free(l->hosts);
    l->hosts = NULL;
    sh_status status = sh_placement_hostfile(&c->members, &l->hosts, err);
    if (status == SH_OK) status = sh_launch_reach(l, "hosts.json", err);
    for (int i = c->members.count - 1; status == SH_OK && i >= 0; i--)
        l->remote.list[l->remote.of_rank[i]].rank = c->members.list[i].rank;
    return status;
}

struct renewal {
    double before;              /* how many there were */
    bool began;                 /* the launcher has taken the order */
    int restarts[SH_RANKS_MAX]; /* of each rank when it began */
};

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* A rank that does not come up is restarted again and again: a few times show it. */
static sh_status rank_check(struct renewal *r, const cJSON *rank, bool began, sh_err *err)
{
    int number = (int)number_of(rank, "rank"), restarts = (int)number_of(rank, "restarts");
    if (number < 0 || number >= SH_RANKS_MAX) return SH_OK;
    if (began) r->restarts[number] = restarts;
    if (restarts - r->restarts[number] < RESTARTS_MAX) return SH_OK;
    const char *said = sh_launch_text(rank, "error");
    return sh_err_set(err, SH_ERR_PEER, "rank %d on %s does not come up: %s", number,
                      sh_launch_text(rank, "host"), said[0] == '\0' ? "see `shoal logs`" : said);
}

static sh_status renewal_check(const cJSON *record, void *arg, sh_err *err)
{
    struct renewal *r = arg;
    const cJSON *rank;
    if (number_of(record, "renewals") <= r->before) return SH_AGAIN;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(record, "ranks"))
    {
        sh_status status = rank_check(r, rank, !r->began, err);
        if (status != SH_OK) return status;
    }
    r->began = true;
    return strcmp(sh_launch_text(record, "state"), "ready") == 0 ? SH_OK : SH_AGAIN;
}

/* Nothing on a host changes before all hosts have passed. */
static sh_status program_change(sh_launch *l, sh_err *err)
{
    const char *model = l->model == NULL ? "" : l->model;
    sh_status status = sh_remote_hosts_push(&l->remote, err);
    if (status == SH_OK) status = sh_remote_hosts_verify(&l->remote, model, false, err);
    return status == SH_OK ? sh_remote_hosts_verify(&l->remote, model, true, err) : status;
}

static sh_status renew(sh_launched *c, sh_err *err)
{
    struct renewal r = {.before = number_of(c->record, "renewals")};
    sh_status status = program_change(&c->launch, err);
    if (status != SH_OK) return status;
    if (!sh_process_signal(&c->launcher, SIGUSR2))
        return sh_err_set(err, SH_ERR_PEER, "the cluster has stopped: `shoal logs` shows why");
    status = sh_launched_await(c, renewal_check, &r, err);
    if (status == SH_OK) status = sh_launched_await_api(c, c->members.count, err);
    if (status == SH_OK)
        printf(c->members.count == 1 ? "renewed: the rank is ready\n"
                                     : "renewed: all %d ranks are ready\n",
               c->members.count);
    return status;
}

/* A new rank 0 learns from the others who has left. If nobody is there to tell it, it would wait
 * for them. */
static bool is_last_one(const sh_placement *members)
{
    return members->count == 1 && members->changed;
}

/* Why the cluster has to be stopped and launched again; NULL: it has not. */
static sh_status cold_reason(sh_launched *c, bool cold, const char **reason, sh_err *err)
{
    sh_launch *l = &c->launch;
    *reason = cold                                        ? "--cold"
              : !sh_launched_is_alive(c)                  ? "it is not running"
              : c->members.count == 0                     ? "it was launched by an earlier version"
              : sh_launch_job_find(c->settings.job)->ends ? "its job ends by itself"
              : c->settings.models_dir != NULL            ? "it has several models"
              : sh_launched_has_new_hostfile(c)           ? "the hostfile has changed"
              : is_last_one(&c->members)                  ? "all ranks but rank 0 were removed"
                                                          : NULL;
    if (*reason != NULL) return SH_OK;
    sh_status status = members_reach(c, err);
    if (status == SH_OK) status = sh_launch_gather(l, err);
    if (status == SH_OK) status = sh_remote_hosts_check(&l->remote, err);
    if (status == SH_OK) *reason = changed_file(&l->remote);
    return status;
}

static sh_status restart(sh_launched *c, const sh_settings *s, sh_err *err)
{
    const char *reason = NULL;
    sh_status status = sh_launched_open(c, s->state_dir, err);
    if (status == SH_OK) status = sh_launched_recall(c, err);
    if (status == SH_OK) status = cold_reason(c, s->cold, &reason, err);
    if (status != SH_OK || reason == NULL) return status == SH_OK ? renew(c, err) : status;
    if (s->warm)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "%s: the cluster would have to be stopped and launched again, by `shoal "
                          "restart` where it was launched",
                          reason);
    fprintf(stderr, "%s: stopping the cluster and launching it again\n", reason);
    sh_cluster_stop(c->record);
    return sh_launched_repeat(c, err);
}

static int restart_run(const sh_command_args *args)
{
    sh_launched c;
    sh_err err;
    sh_launch_catch_signals();
    sh_status status = restart(&c, args->settings, &err);
    sh_launched_close(&c);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_restart = {
    SH_COMMAND_NAMED(restart),
    .summary = "renew all processes of the launched cluster, without losing an answer",
    .details =
        "Ranks and API are replaced by new processes, of this program, while requests wait "
        "and go on. If settings or the hostfile have changed since the launch, with "
        "--models-dir or with --cold, the cluster is stopped and launched again in the background, "
        "unless --warm forbids it.",
    .run = restart_run,
};
