/* A group and its parts: a thin handle over the core, which holds the mesh, the watch and the
 * staging buffer. The id of a group is derived from the epoch and its members, so all ranks compute
 * the same one without exchanging anything, and a message of another group is recognized on
 * arrival. */
#include "coll/group.h"

#include "base/alloc.h"
#include "base/pool.h"
#include "base/str.h"
#include "coll/core.h"
#include "coll/flow.h"

#include <stdlib.h>

/* Ranks on one machine spin only if each of them has a CPU. The time is by how much ranks that run
 * in step usually differ. */
enum { SPIN_US = 200 };

/* A share may travel over a slow link for hours; heartbeats notice a rank that is lost meanwhile.
 */
enum { LOAD_SILENCE_MS = 30000, LOAD_OP_MS = 12 * 3600000 };

void sh_group_opts_init(sh_group_opts *opts)
{
    sh_mesh_opts_init(&opts->mesh);
    opts->silence_ms = 2000;
    opts->op_ms = 60000;
    opts->spin_us = -1;
}

bool sh_group_opts_can_reform(const sh_group_opts *opts)
{
    return opts->mesh.wanted == NULL || !opts->mesh.wanted->one_life;
}

const char *sh_group_opts_backend(const sh_group_opts *opts)
{
    const sh_transport *wanted = opts->mesh.wanted;
    return wanted != NULL && wanted->backend != NULL ? wanted->backend : "ring";
}

static void core_free(sh_core *core)
{
    sh_watch_stop(core->watch);
    sh_mesh_close(core->mesh);
    sh_mem_unmap(core->wire, sizeof(*core->wire));
    for (int r = 0; r < SH_RANKS_MAX; r++) free(core->expected[r].list);
    free(core);
}

static sh_status core_register(sh_core *core, void *at, size_t len, sh_err *err)
{
    sh_status status = SH_OK;
    for (int rank = 0; rank < core->mesh->size && status == SH_OK; rank++) {
        sh_channel *channel = core->mesh->peer[rank].channel;
        if (channel != NULL && channel->ops->register_memory != NULL)
            status = channel->ops->register_memory(channel, at, len, err);
    }
    return status;
}

static sh_status wire_create(sh_core *core, sh_err *err)
{
    void *at = NULL;
    sh_status status = sh_mem_map(sizeof(*core->wire), "the staging buffer of a group", &at, err);
    core->wire = at;
    return status == SH_OK ? core_register(core, at, sizeof(*core->wire), err) : status;
}

/* The ranks that exist: some numbers may not. */
static int members_of(const sh_mesh *mesh, int members[SH_RANKS_MAX])
{
    int count = 0;
    for (int r = 0; r < mesh->size; r++)
        if (r == mesh->rank || mesh->peer[r].control != NULL) members[count++] = r;
    return count;
}

static sh_status core_create(const sh_group_opts *opts, sh_core **out, sh_err *err)
{
    sh_core *core = sh_alloc(sizeof(*core));
    core->silence_ms = opts->silence_ms;
    core->usual_op_ms = core->op_ms = opts->op_ms;
    sh_status status = sh_mesh_join(&opts->mesh, &core->mesh, err);
    if (status == SH_OK && core->mesh->acceptor != NULL) /* not in a group of one for good */
        status = sh_watch_start(core->mesh, opts->silence_ms, &core->watch, err);
    if (status == SH_OK && core->mesh->size > 1) status = wire_create(core, err);
    if (status != SH_OK) {
        core_free(core);
        return status;
    }
    int spin_us = core->mesh->local_count > sh_cpu_count() ? 0 : SPIN_US;
    core->spin_ns = (int64_t)1000 * (opts->spin_us >= 0 ? opts->spin_us : spin_us);
    *out = core;
    return SH_OK;
}

static sh_group *group_create(sh_core *core, const int *members, int count)
{
    sh_group *group = sh_alloc(sizeof(*group));
    group->core = core;
    group->size = count;
    group->rank = -1;
    for (int i = 0; i < count; i++) {
        SH_ASSERT(members[i] >= 0 && members[i] < core->mesh->size);
        SH_ASSERT(i == 0 || members[i] > members[i - 1]);
        group->member[i] = members[i];
        if (members[i] == core->mesh->rank) group->rank = i;
    }
    SH_ASSERT(group->rank >= 0);
    group->id = core->mesh->epoch ^ sh_hash64(group->member, (size_t)count * sizeof(int));
    return group;
}

sh_status sh_group_open(const sh_group_opts *opts, sh_group **out, sh_err *err)
{
    if (opts->silence_ms < SH_SILENCE_MS_MIN || opts->silence_ms > SH_SILENCE_MS_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "silence of %d ms: must be %d to %d", opts->silence_ms,
                          SH_SILENCE_MS_MIN, SH_SILENCE_MS_MAX);
    sh_core *core;
    sh_status status = core_create(opts, &core, err);
    if (status != SH_OK) return status;
    int members[SH_RANKS_MAX], count = members_of(core->mesh, members);
    *out = group_create(core, members, count);
    (*out)->whole = true;
    return SH_OK;
}

sh_group *sh_group_split(sh_group *group, const int *members, int count)
{
    int whole[SH_RANKS_MAX];
    SH_ASSERT(count >= 1 && count <= group->size);
    for (int i = 0; i < count; i++) {
        SH_ASSERT(members[i] >= 0 && members[i] < group->size);
        whole[i] = group->member[members[i]];
    }
    return group_create(group->core, whole, count);
}

void sh_group_close(sh_group *group)
{
    if (group == NULL) return;
    if (group->whole) core_free(group->core);
    free(group);
}

sh_status sh_group_register_memory(sh_group *group, void *at, size_t len, sh_err *err)
{
    return at == NULL || len == 0 ? SH_OK : core_register(group->core, at, len, err);
}

void sh_group_unregister_memory(sh_group *group, void *at)
{
    sh_core *core = group->core;
    for (int rank = 0; rank < core->mesh->size && at != NULL; rank++) {
        sh_channel *channel = core->mesh->peer[rank].channel;
        if (channel != NULL && channel->ops->unregister_memory != NULL)
            channel->ops->unregister_memory(channel, at);
    }
}

int sh_group_rank(const sh_group *group)
{
    return group->rank;
}

int sh_group_size(const sh_group *group)
{
    return group->size;
}

int sh_group_number(const sh_group *group, int rank)
{
    return group->member[rank];
}

uint64_t sh_group_epoch(const sh_group *group)
{
    return group->core->mesh->epoch;
}

uint64_t sh_group_left(const sh_group *group)
{
    return group->core->mesh->left;
}

const char *sh_group_path(const sh_group *group, int rank)
{
    const sh_channel *channel = group->core->mesh->peer[group->member[rank]].channel;
    return channel == NULL ? "self" : channel->ops->name;
}

const char *sh_group_device(const sh_group *group, int rank)
{
    const sh_channel *channel = group->core->mesh->peer[group->member[rank]].channel;
    return channel == NULL || channel->ops->device == NULL ? "" : channel->ops->device(channel);
}

const char *sh_group_address(const sh_group *group, int rank)
{
    return group->core->mesh->peer[group->member[rank]].name;
}

void sh_group_set_loading(sh_group *group, bool loading)
{
    sh_core *core = group->core;
    int silence_ms = core->silence_ms, op_ms = core->usual_op_ms;
    if (loading && silence_ms < LOAD_SILENCE_MS) silence_ms = LOAD_SILENCE_MS;
    if (loading && op_ms > 0 && op_ms < LOAD_OP_MS) op_ms = LOAD_OP_MS; /* 0: no limit */
    core->op_ms = op_ms;
    if (core->watch != NULL) sh_watch_set_silence(core->watch, silence_ms);
}

void sh_group_set_op_ms(sh_group *group, int op_ms)
{
    group->core->usual_op_ms = group->core->op_ms = op_ms;
}

void sh_group_fail(sh_group *group, const char *text)
{
    if (group->core->watch != NULL)
        sh_watch_fail(group->core->watch, group->core->mesh->rank, text);
}

sh_status sh_group_check(sh_group *group, sh_err *err)
{
    if (group->core->watch == NULL || !sh_watch_failed(group->core->watch)) return SH_OK;
    sh_watch_error(group->core->watch, err);
    return err->status;
}

int sh_group_at_fault(sh_group *group)
{
    return group->core->watch == NULL ? -1 : sh_watch_at_fault(group->core->watch);
}

int sh_group_knocks(sh_group *group, sh_knock out[SH_KNOCKS_MAX])
{
    return group->core->watch == NULL ? 0 : sh_watch_knocks(group->core->watch, out);
}

void sh_group_ask_to_leave(sh_group *group)
{
    if (group->core->watch != NULL) sh_watch_ask_to_leave(group->core->watch);
}

bool sh_group_must_stay(sh_group *group, char why[SH_STAY_TEXT_MAX])
{
    return group->core->watch != NULL && sh_watch_must_stay(group->core->watch, why);
}

int64_t sh_group_leaving_ns(const sh_group *group, int rank)
{
    return group->core->watch == NULL
               ? 0
               : sh_watch_leaving_ns(group->core->watch, group->member[rank]);
}

void sh_group_keep(sh_group *group, int rank, const char *text)
{
    if (group->core->watch != NULL) sh_watch_keep(group->core->watch, group->member[rank], text);
}

int sh_group_fd(const sh_group *group)
{
    return group->core->watch == NULL ? -1 : sh_watch_fd(group->core->watch);
}

void sh_group_set_load(sh_group *group, const sh_load_state *load)
{
    if (group->core->watch != NULL) sh_watch_set_load(group->core->watch, load);
}

void sh_group_on_load(sh_group *group, sh_load_fn fn, void *ctx)
{
    if (group->core->watch != NULL) sh_watch_on_load(group->core->watch, fn, ctx);
}

void sh_group_set_visitor(sh_group *group, sh_visitor_fn visitor, void *ctx)
{
    if (group->core->watch != NULL) sh_watch_set_visitor(group->core->watch, visitor, ctx);
}

sh_status sh_group_connect(const sh_group *group, int index, sh_deadline deadline, sh_stream *out,
                           sh_err *err)
{
    return sh_mesh_connect(group->core->mesh, index, sh_group_fd(group), deadline, out, err);
}

const uint8_t *sh_group_model(const sh_group *group)
{
    const sh_mesh *mesh = group->core->mesh;
    return mesh->rank == 0 ? mesh->hello.model : sh_peer_conn_peer(mesh->peer[0].control)->model;
}
