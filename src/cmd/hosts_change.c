/* shoal hosts add and hosts remove: change which hosts a launched cluster has, while it serves.
 *
 * Both change the list in the launcher's state folder (cluster/placement.h) and signal the
 * launcher, which starts ranks or asks them to leave. What a new host needs is pushed from here,
 * before the list changes, so that the launcher never waits for a slow host. */
#include "cmd/hosts.h"

#include "base/alloc.h"
#include "cmd/launched.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks that a command waits for, and what has become of them. */
struct change {
    sh_placement before; /* as the list was, for when ranks may not leave */
    int rank[SH_RANKS_MAX];
    char *host[SH_RANKS_MAX];
    int count;
};

static void change_note(struct change *ch, const sh_place *member)
{
    ch->rank[ch->count] = member->rank;
    ch->host[ch->count++] = sh_strdup(member->name);
}

static void change_reset(struct change *ch)
{
    for (int i = 0; i < ch->count; i++) free(ch->host[i]);
    sh_placement_reset(&ch->before);
}

static sh_status cluster_open(sh_launched *c, const sh_settings *s, const char *by_hand,
                              sh_err *err)
{
    sh_status status = sh_launched_open(c, s->state_dir, err);
    if (status == SH_ERR_NOT_FOUND || (status == SH_OK && !sh_launched_is_alive(c)))
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "no launched cluster is running from %s; without one, %s", c->state,
                          by_hand);
    if (status == SH_OK) status = sh_launched_recall(c, err);
    if (status != SH_OK) return status;
    if (c->settings.models_dir != NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "the hosts of a cluster with --models-dir are those of its hostfile: "
                          "change that, then `shoal restart`");
    if (c->launch.uses_devices)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "the ranks of this cluster are connected by RDMA devices that the "
                          "hostfile names: change the hostfile, then `shoal restart`");
    return SH_OK;
}

static sh_status order(sh_launched *c, sh_err *err)
{
    sh_status status = sh_placement_write(&c->members, c->state, err);
    if (status == SH_OK && !sh_process_signal(&c->launcher, SIGUSR1))
        status = sh_err_set(err, SH_ERR_PEER, "the cluster has stopped: `shoal logs` shows why");
    return status;
}

/* A hostfile of rank 0's host and the new ones. Rank 0's is among them so that its model and
 * settings are compared with theirs. */
static sh_status hosts_combine(const sh_placement *members, int argc, char **argv,
                               sh_hostfile **out, sh_err *err)
{
    sh_buf names = {0}, text = {0};
    sh_hostfile *fresh = NULL;
    cJSON *json = NULL;
    for (int i = 0; i < argc; i++) sh_buf_addf(&names, "%s%s", i == 0 ? "" : ",", argv[i]);
    sh_status status = sh_hostfile_of_names(names.ptr, 1, &fresh, err);
    if (status == SH_OK) status = sh_hostfile_write(fresh, SH_HOSTFILE_LIST, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), "hosts add", &json, err);
    if (status == SH_OK) {
        const cJSON *first = cJSON_GetObjectItemCaseSensitive(members->json, "hosts")->child;
        cJSON_InsertItemInArray(json, 0, cJSON_Duplicate(first, true));
        char *all = cJSON_PrintUnformatted(json);
        status = sh_hostfile_parse(sh_str_of(all), "hosts add", out, err);
        cJSON_free(all);
    }
    cJSON_Delete(json);
    sh_hostfile_free(fresh);
    sh_buf_reset(&names);
    sh_buf_reset(&text);
    return status;
}

static bool same_host(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Numbers the new hosts, and refuses one that is a member already: a second rank on a host is
 * mostly a mistake, and a hostfile can have it. */
static sh_status hosts_number(const sh_placement *members, sh_remote_hosts *hosts, sh_err *err)
{
    for (int i = 1; i < hosts->file->count; i++) {
        sh_remote_host *host = &hosts->list[hosts->of_rank[i]];
        for (int m = 0; m < members->count; m++)
            if (same_host(members->list[m].ssh, host->ssh))
                return sh_err_set(err, SH_ERR_INPUT,
                                  "host %s is already in the cluster, as rank %d", host->name,
                                  members->list[m].rank);
        if (host->rank != i)
            return sh_err_set(err, SH_ERR_INPUT, "host %s is named twice", host->name);
    }
    for (int i = 1; i < hosts->file->count; i++)
        hosts->list[hosts->of_rank[i]].rank = members->next + i - 1;
    hosts->list[hosts->of_rank[0]].runs = true;
    return SH_OK;
}

/* As for a launch; the host of rank 0 must have everything already. */
static sh_status hosts_prepare(sh_launch *l, sh_err *err)
{
    sh_status status = sh_launch_gather(l, err);
    if (status == SH_OK) status = sh_remote_hosts_check(&l->remote, err);
    if (status != SH_OK) return status;
    const sh_remote_host *first = &l->remote.list[l->remote.of_rank[0]];
    if ((first->missing & ~first->resent) != 0)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "the settings, the hostfile or this program are not those that the "
                            "cluster runs with: `shoal restart` first");
    if (status == SH_OK) status = sh_remote_hosts_push(&l->remote, err);
    if (status == SH_OK)
        status = sh_remote_hosts_verify(&l->remote, l->model == NULL ? "" : l->model, true, err);
    return status;
}

static sh_status members_extend(sh_launched *c, struct change *ch, sh_err *err)
{
    const sh_remote_hosts *hosts = &c->launch.remote;
    sh_status status = SH_OK;
    for (int i = 1; i < hosts->file->count && status == SH_OK; i++) {
        status = sh_placement_add(&c->members, hosts, i, err);
        if (status == SH_OK) change_note(ch, &c->members.list[c->members.count - 1]);
    }
    return status;
}

static sh_status added_check(const cJSON *record, void *arg, sh_err *err)
{
    struct change *ch = arg;
    int ready = 0;
    for (int i = 0; i < ch->count; i++) {
        const cJSON *rank = sh_launched_rank(record, ch->rank[i]);
        const char *state = sh_launch_text(rank, "state"), *said = sh_launch_text(rank, "error");
        if (strcmp(state, "failed") == 0)
            return sh_err_set(err, SH_ERR_PEER, "rank %d on %s could not join: %s", ch->rank[i],
                              ch->host[i], said[0] == '\0' ? "see `shoal logs`" : said);
        ready += strcmp(state, "ready") == 0;
    }
    return ready == ch->count ? SH_OK : SH_AGAIN;
}

/* Takes the new hosts off the list again. Their numbers are used up all the same. */
static void added_undo(sh_launched *c, const struct change *ch)
{
    sh_err err;
    for (int i = 0; i < ch->count; i++)
        sh_placement_remove(&c->members, sh_placement_find(&c->members, ch->rank[i]));
    if (order(c, &err) != SH_OK) fprintf(stderr, "shoal: %s\n", err.text);
}

static sh_status add(sh_launched *c, struct change *ch, const sh_command_args *args, sh_err *err)
{
    sh_launch *l = &c->launch;
    sh_status status = cluster_open(c, args->settings,
                                    "run `shoal worker --join HOST:PORT` on the new host, with the "
                                    "address of rank 0, its token and its model",
                                    err);
    if (status == SH_OK && l->hosts->count == 1)
        status = sh_err_set(err, SH_ERR_UNSUPPORTED,
                            "rank 0 was launched alone and does not listen for others: add the "
                            "host to the hostfile, then `shoal restart`");
    if (status != SH_OK) return status;
    sh_remote_hosts_reset(&l->remote);
    sh_hostfile_free(l->hosts);
    l->hosts = NULL;
    status = hosts_combine(&c->members, args->argc - 1, args->argv + 1, &l->hosts, err);
    if (status == SH_OK) status = sh_launch_reach(l, "hosts add", err);
    if (status == SH_OK) status = hosts_number(&c->members, &l->remote, err);
    if (status == SH_OK) status = hosts_prepare(l, err);
    if (status == SH_OK) status = members_extend(c, ch, err);
    if (status == SH_OK) status = order(c, err);
    if (status != SH_OK) return status;
    status = sh_launched_await(c, added_check, ch, err);
    if (status == SH_ERR_PEER && sh_launched_is_alive(c)) added_undo(c, ch);
    if (status == SH_OK) status = sh_launched_await_api(c, c->members.count, err);
    for (int i = 0; i < ch->count && status == SH_OK; i++)
        printf("rank %d on %s has joined: %d ranks\n", ch->rank[i], ch->host[i], c->members.count);
    return status;
}

int sh_hosts_add(const sh_command_args *args)
{
    sh_launched c;
    struct change ch = {0};
    sh_err err;
    sh_launch_catch_signals();
    sh_status status = add(&c, &ch, args, &err);
    change_reset(&ch);
    sh_launched_close(&c);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

/* Whether a member is meant by its number, by its name, or by what the hostfile calls it. */
static bool is_meant(const sh_placement *members, int idx, const char *word)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(members->json, "hosts");
    const sh_place *member = &members->list[idx];
    int64_t number;
    if (sh_str_to_int(sh_str_of(word), &number)) return number == member->rank;
    return strcmp(word, member->name) == 0 ||
           (member->ssh != NULL && strcmp(word, member->ssh) == 0) ||
           strcmp(word, sh_launch_text(cJSON_GetArrayItem(list, idx), "ssh")) == 0;
}

static sh_status members_reduce(sh_launched *c, struct change *ch, const char *word, sh_err *err)
{
    int found = 0;
    for (int i = c->members.count - 1; i >= 0; i--) {
        if (!is_meant(&c->members, i, word)) continue;
        found++;
        if (c->members.list[i].rank == 0)
            return sh_err_set(err, SH_ERR_INPUT,
                              "rank 0 on %s cannot be removed: it has the API and the scheduler; "
                              "`shoal stop` stops the cluster",
                              c->members.list[i].name);
        change_note(ch, &c->members.list[i]);
        sh_placement_remove(&c->members, i);
    }
    return found > 0 ? SH_OK
                     : sh_err_set(err, SH_ERR_INPUT,
                                  "'%s' is neither a host nor a rank of the cluster: `shoal "
                                  "status` shows them",
                                  word);
}

static sh_status removed_check(const cJSON *record, void *arg, sh_err *err)
{
    struct change *ch = arg;
    int gone = 0;
    for (int i = 0; i < ch->count; i++) {
        const cJSON *rank = sh_launched_rank(record, ch->rank[i]);
        const char *why = sh_launch_text(rank, "refused");
        if (why[0] != '\0')
            return sh_err_set(err, SH_ERR_LIMIT, "rank %d on %s stays: %s", ch->rank[i],
                              ch->host[i], why);
        gone += rank == NULL;
    }
    return gone == ch->count ? SH_OK : SH_AGAIN;
}

/* Puts the list back as it was. */
static void removed_undo(sh_launched *c, const struct change *ch)
{
    sh_err err;
    if (sh_placement_write(&ch->before, c->state, &err) != SH_OK)
        fprintf(stderr, "shoal: %s\n", err.text);
    sh_process_signal(&c->launcher, SIGUSR1);
}

static sh_status removal(sh_launched *c, struct change *ch, const sh_command_args *args,
                         sh_err *err)
{
    sh_status status = cluster_open(c, args->settings, "stop the worker on that host with Ctrl-C",
                                    err);
    if (status == SH_OK) status = sh_placement_read(&ch->before, c->state, err);
    for (int i = 1; i < args->argc && status == SH_OK; i++)
        status = members_reduce(c, ch, args->argv[i], err);
    if (status == SH_OK) status = order(c, err);
    if (status != SH_OK) return status;
    status = sh_launched_await(c, removed_check, ch, err);
    if (status == SH_ERR_LIMIT) removed_undo(c, ch);
    if (status == SH_OK) status = sh_launched_await_api(c, c->members.count, err);
    for (int i = 0; i < ch->count && status == SH_OK; i++)
        printf("rank %d on %s has left: %d rank%s\n", ch->rank[i], ch->host[i], c->members.count,
               c->members.count == 1 ? "" : "s");
    return status;
}

int sh_hosts_remove(const sh_command_args *args)
{
    sh_launched c;
    struct change ch = {0};
    sh_err err;
    sh_launch_catch_signals();
    sh_status status = removal(&c, &ch, args, &err);
    change_reset(&ch);
    sh_launched_close(&c);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
