/* Joining: what the ranks have, who holds what, loading, and the room for KV. */
#include "engine/crew.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/system.h"
#include "engine/crew_parts.h"
#include "engine/rank_messages.h"
#include "model/identity.h"
#include "model/predict.h"
#include "net/shm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ADJUSTS_MORE = 1 << 14, /* changes of logits of one step, beyond what one sequence may need */
    MESSAGE_ROOM = 1 << 18, /* plans of decode steps fit */
};

sh_status sh_crew_open(const sh_crew_opts *opts, sh_crew **out, sh_err *err)
{
    sh_crew *c = sh_alloc(sizeof(*c));
    sh_identity identity = {0};
    c->opts = *opts;
    c->model_dir = sh_strdup(opts->model_dir);
    sh_status status = sh_config_load(c->model_dir, &c->config, err);
    if (status == SH_OK) status = sh_identity_read(c->model_dir, &identity, err);
    if (status == SH_OK) status = sh_device_open_cpu(&opts->cpu, &c->dev, err);
    if (status != SH_OK) {
        sh_crew_close(c);
        return status;
    }
    c->weight_bytes = identity.weight_bytes;
    *out = c;
    return SH_OK;
}

/* Everything that belongs to one group. */
static void crew_leave(sh_crew *c)
{
    sh_rank_free(c->self);
    sh_step_free(c->plan);
    if (c->stage != NULL && c->stage != c->group) sh_group_close(c->stage);
    free(c->shards);
    free(c->hidden);
    free(c->scans);
    free(c->parts);
    free(c->parts_due);
    free(c->reports);
    free(c->reports_due);
    free(c->begun);
    free(c->sorted);
    free(c->row);
    free(c->links);
    c->links = NULL;
    c->self = NULL;
    c->plan = NULL;
    c->group = c->stage = NULL;
    c->shards = NULL;
    c->hidden = c->row = NULL;
    c->scans = NULL;
    c->parts = NULL;
    c->parts_due = c->reports_due = NULL;
    c->reports = NULL;
    c->reports_asked = false;
    c->begun = NULL;
    c->sorted = NULL;
}

void sh_crew_close(sh_crew *c)
{
    if (c == NULL) return;
    crew_leave(c);
    sh_model_free(c->model);
    sh_config_reset(&c->config);
    if (c->dev != NULL) c->dev->ops->close(c->dev);
    sh_buf_reset(&c->message);
    sh_buf_reset(&c->outgoing);
    free(c->model_dir);
    free(c);
}

/* Every rank's bytes, as many as `mine` has, in order, into `all`. */
static sh_status exchange(sh_crew *c, const sh_buf *mine, sh_buf *all, sh_err *err)
{
    size_t len = (size_t)c->size * mine->len;
    sh_buf_clear(all);
    sh_buf_reserve(all, len);
    all->len = len;
    if (c->group == NULL) {
        memcpy(all->ptr, mine->ptr, len);
        return SH_OK;
    }
    size_t *lens = sh_alloc_array((size_t)c->size, sizeof(*lens));
    for (int i = 0; i < c->size; i++) lens[i] = mine->len;
    sh_status status = sh_coll_allgather(c->group, mine->ptr, lens, all->ptr, err);
    free(lens);
    return status;
}

/* Numbers of 8 bytes: `count` of each rank, in order, into all [size * count]. */
static sh_status exchange_numbers(sh_crew *c, const uint64_t *mine, int count, uint64_t *all,
                                  sh_err *err)
{
    sh_buf out = {0}, in = {0};
    for (int i = 0; i < count; i++) sh_put_uint(&out, mine[i], 8);
    sh_status status = exchange(c, &out, &in, err);
    sh_reader r = sh_reader_of(sh_buf_str(&in));
    for (int i = 0; i < c->size * count; i++) all[i] = sh_get_uint(&r, 8);
    sh_buf_reset(&out);
    sh_buf_reset(&in);
    return status;
}

static sh_status grid_choose(sh_crew *c, sh_err *err)
{
    c->tensor = c->opts.tensor > 0   ? c->opts.tensor
                : c->opts.stages > 0 ? c->size / c->opts.stages
                                     : c->size;
    c->stages = c->opts.stages > 0 ? c->opts.stages : c->tensor > 0 ? c->size / c->tensor : 0;
    if (c->tensor <= 0 || c->tensor * c->stages != c->size)
        return sh_err_set(err, SH_ERR_INPUT,
                          "a grid of %d x %d ranks (tensor x pipeline) is not a group of %d",
                          c->tensor, c->stages, c->size);
    if (c->opts.split != NULL && c->opts.split_count != c->size)
        return sh_err_set(err, SH_ERR_INPUT, "%d shares are given for %d ranks",
                          c->opts.split_count, c->size);
    return SH_OK;
}

/* What this machine reads in a second, roughly: one thread over more than its caches hold, times
 * the threads that add to that. */
static double speed_measure(const sh_crew *c)
{
    enum { WORDS = 8 << 20, THREADS_THAT_ADD = 4 };
    uint64_t *data = sh_alloc_array(WORDS, sizeof(*data)), sum = 0;
    for (size_t i = 0; i < WORDS; i += 512) data[i] = i; /* every page is there */
    int64_t start = sh_clock_ns();
    for (size_t i = 0; i < WORDS; i += 8) sum += data[i]; /* a line each */
    double seconds = (double)(sh_clock_ns() - start) * 1e-9 + (sum == 1 ? 1e-9 : 0);
    free(data);
    int threads = c->opts.cpu.threads > 0 ? c->opts.cpu.threads : sh_cpu_count();
    return WORDS * sizeof(*data) / seconds *
           (threads < THREADS_THAT_ADD ? threads : THREADS_THAT_ADD);
}

/* Two machines may have one name, and containers with limits of their own may share a machine. */
static bool same_host(const sh_offer *a, const sh_offer *b)
{
    return memcmp(a->machine, b->machine, sizeof(a->machine)) == 0 && strcmp(a->host, b->host) == 0;
}

static double host_speed(const sh_offer *all, int count, const sh_offer *one)
{
    double best = 0;
    for (int i = 0; i < count; i++)
        if (same_host(&all[i], one) && all[i].means.speed > best) best = all[i].means.speed;
    return best;
}

/* Ranks of one machine share its memory too. */
static int host_ranks(const sh_offer *all, int count, const sh_offer *one)
{
    int ranks = 0;
    for (int i = 0; i < count; i++) ranks += same_host(&all[i], one);
    return ranks;
}

/* Speeds that differ by less than the measure wavers count as equal. */
static sh_status shares_choose(const sh_crew *c, const sh_offer *all, double *shares, sh_err *err)
{
    sh_rank_means *means = sh_alloc_array((size_t)c->size, sizeof(*means));
    double fastest = 0;
    for (int i = 0; i < c->size; i++) {
        means[i] = (sh_rank_means){all[i].means.memory / host_ranks(all, c->size, &all[i]),
                                   host_speed(all, c->size, &all[i])};
        if (means[i].speed > fastest) fastest = means[i].speed;
    }
    for (int i = 0; i < c->size; i++)
        if (means[i].speed > 0.6 * fastest) means[i].speed = fastest;
    sh_status status = sh_shares_by_means(means, c->size, (double)c->weight_bytes, shares, err);
    free(means);
    return status;
}

static sh_offer offer_make(const sh_crew *c)
{
    sh_offer mine = {0};
    mine.means.memory = (double)(sh_memory_available() - c->opts.memory_reserve);
    if (c->model != NULL) mine.means.memory += (double)sh_model_memory_used(c->model).weights;
    if (mine.means.memory < 0) mine.means.memory = 0;
    mine.means.speed = c->opts.split == NULL && c->size > 1 ? speed_measure(c) : 1;
    sh_host_id(mine.machine);
    gethostname(mine.host, sizeof(mine.host) - 1);
    return mine;
}

static sh_status offers_exchange(sh_crew *c, sh_offer *all, sh_err *err)
{
    sh_offer mine = offer_make(c);
    sh_buf out = {0}, in = {0};
    sh_offer_pack(&mine, &out);
    sh_status status = exchange(c, &out, &in, err);
    sh_reader r = sh_reader_of(sh_buf_str(&in));
    for (int i = 0; status == SH_OK && i < c->size; i++) sh_offer_unpack(&r, &all[i]);
    if (status == SH_OK) status = sh_get_end(&r, "what a rank offers", err);
    sh_buf_reset(&out);
    sh_buf_reset(&in);
    return status;
}

/* Rank 0's shares become everybody's. */
static sh_status shares_send(sh_crew *c, double *shares, sh_err *err)
{
    sh_buf bytes = {0};
    for (int i = 0; i < c->size; i++) sh_put_double(&bytes, shares[i]);
    sh_status status = sh_coll_broadcast(c->group, 0, bytes.ptr, bytes.len, err);
    sh_reader r = sh_reader_of(sh_buf_str(&bytes));
    for (int i = 0; status == SH_OK && i < c->size; i++) shares[i] = sh_get_double(&r);
    sh_buf_reset(&bytes);
    return status;
}

/* Rank 0 decides, all get the same numbers. */
static sh_status shares_agree(sh_crew *c, double *shares, sh_err *err)
{
    sh_offer *all = sh_alloc_array((size_t)c->size, sizeof(*all));
    sh_status status = offers_exchange(c, all, err);
    c->host_ranks = status == SH_OK ? host_ranks(all, c->size, &all[c->rank]) : 1;
    if (status == SH_OK && c->rank == 0) {
        if (c->opts.split != NULL)
            memcpy(shares, c->opts.split, (size_t)c->size * sizeof(*shares));
        else
            status = shares_choose(c, all, shares, err);
    }
    free(all);
    if (c->group == NULL) return status;
    if (status != SH_OK) {
        sh_group_fail(c->group, err->text);
        return status;
    }
    return shares_send(c, shares, err);
}

/* All ranks must have come to the same cut. */
static sh_status plan_confirm(sh_crew *c, sh_err *err)
{
    sh_buf bytes = {0};
    for (int i = 0; i < c->size; i++) sh_shard_pack(&c->shards[i], &bytes);
    sh_key128 hash = sh_hash128((sh_key128){5, 6}, bytes.ptr, bytes.len);
    uint64_t mine[2] = {hash.lo, hash.hi}, *all = sh_alloc_array((size_t)c->size, sizeof(mine));
    sh_buf_reset(&bytes);
    sh_status status = exchange_numbers(c, mine, 2, all, err);
    for (int i = 0; status == SH_OK && i < c->size; i++) {
        if (memcmp(&all[2 * i], mine, sizeof(mine)) == 0) continue;
        status = sh_err_set(err, SH_ERR_GROUP, "rank %d cuts the model in another way than rank %d",
                            i, c->rank);
        sh_group_fail(c->group, err->text);
    }
    free(all);
    return status;
}

static sh_status shards_plan(sh_crew *c, sh_err *err)
{
    double *shares = sh_alloc_array((size_t)c->size, sizeof(*shares));
    c->shards = sh_alloc_array((size_t)c->size, sizeof(*c->shards));
    sh_status status = shares_agree(c, shares, err);
    if (status == SH_OK) {
        sh_plan_opts opts = {.tensor_size = c->tensor,
                             .stages = c->stages,
                             .weights = shares,
                             .head_layers = sh_predict_head_layers(&c->config)};
        status = sh_shard_plan(&c->config, &opts, c->shards, err);
        if (status != SH_OK && c->group != NULL) sh_group_fail(c->group, err->text);
    }
    free(shares);
    return status == SH_OK ? plan_confirm(c, err) : status;
}

/* A rank that fails here tells the others why, instead of leaving them to wait. */
static sh_status shard_load(sh_crew *c, sh_err *err)
{
    const sh_shard *shard = &c->shards[c->rank];
    if (c->model != NULL && memcmp(sh_model_shard(c->model), shard, sizeof(*shard)) == 0)
        return SH_OK;
    sh_model_free(c->model);
    c->model = NULL;
    sh_model_opts opts = {.tokens_max = c->opts.chunk,
                          .rows_max = c->opts.draws,
                          .kv_format = c->opts.kv_format,
                          .load = c->opts.load};
    sh_status status = sh_model_load(c->model_dir, &c->config, shard, c->dev, &opts, &c->model,
                                     err);
    if (status != SH_OK && c->group != NULL) sh_group_fail(c->group, err->text);
    return status;
}

/* The room for KV is what the smallest rank has. */
static sh_status blocks_agree(sh_crew *c, int64_t *blocks, sh_err *err)
{
    int64_t bytes = (int64_t)sh_model_kv_block_bytes(c->model);
    int64_t room = (sh_memory_available() - c->opts.memory_reserve) / c->host_ranks;
    int64_t fit = bytes == 0 ? INT32_MAX : room / bytes;
    int64_t seq = (c->context + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    int64_t want = c->opts.kv_tokens > 0 ? (c->opts.kv_tokens + SH_KV_BLOCK - 1) / SH_KV_BLOCK
                                         : seq * c->opts.slots;
    if (fit > INT32_MAX) fit = INT32_MAX;
    if (fit < 0) fit = 0;
    uint64_t mine = (uint64_t)fit, *all = sh_alloc_array((size_t)c->size, sizeof(*all));
    sh_status status = exchange_numbers(c, &mine, 1, all, err);
    for (int i = 0; i < c->size && status == SH_OK; i++) {
        int64_t fits = all[i] > INT32_MAX ? INT32_MAX : (int64_t)all[i];
        if (fits < want && c->opts.kv_tokens > 0)
            status = sh_err_set(err, SH_ERR_MEMORY,
                                "rank %d has KV room for %lld tokens, not for %lld", i,
                                (long long)fits * SH_KV_BLOCK, (long long)c->opts.kv_tokens);
        else if (fits < 2)
            status = sh_err_set(err, SH_ERR_MEMORY, "rank %d has no memory for a KV cache", i);
        else if (fits < want)
            want = fits;
    }
    free(all);
    *blocks = want;
    return status;
}

static sh_status reduce(void *ctx, float *x, size_t count, sh_err *err)
{
    sh_crew *c = ctx;
    size_t cols = (size_t)c->config.hidden;
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_allreduce(c->stage, x, count / cols, cols, c->opts.wire, err);
    sh_crew_counted(c, SH_TRAFFIC_SUM, count * sizeof(float), start);
    return status;
}

static void stage_group(sh_crew *c)
{
    if (c->group == NULL || c->tensor == 1) return;
    int first = c->rank / c->tensor * c->tensor;
    int *members = sh_alloc_array((size_t)c->tensor, sizeof(*members));
    for (int i = 0; i < c->tensor; i++) members[i] = first + i;
    c->stage = c->stages == 1 ? c->group : sh_group_part(c->group, members, c->tensor);
    free(members);
}

static void steps_prepare(sh_crew *c, int64_t blocks)
{
    int64_t kv_tokens = blocks * SH_KV_BLOCK;
    if (kv_tokens < c->context) c->context = (int)kv_tokens;
    c->room = (sh_step_room){.slots = c->opts.slots,
                             .tokens = c->opts.chunk,
                             .draws = c->opts.draws,
                             .adjusts = 2 * c->context + ADJUSTS_MORE,
                             .blocks = (int)blocks,
                             .seq_blocks = c->context / SH_KV_BLOCK + 2};
    c->peers = (sh_peers){.ctx = c, .reduce = reduce};
    c->self = sh_rank_create(c->model, c->group == NULL ? NULL : &c->peers, &c->room, c->stages);
    c->plan = sh_step_create(&c->room);
    c->scans = sh_alloc_array((size_t)c->tensor, sizeof(*c->scans));
    c->parts_cap = sizeof(uint64_t) + (size_t)c->room.draws * SH_SCAN_BYTES_MAX;
    if (c->rank == 0) c->parts = sh_alloc_array((size_t)c->size, c->parts_cap);
    c->parts_due = sh_alloc_array((size_t)c->size, sizeof(*c->parts_due));
    c->reports = sh_alloc_array((size_t)c->size, SH_REPORT_BYTES);
    c->reports_due = sh_alloc_array((size_t)c->size, sizeof(*c->reports_due));
    c->begun = sh_alloc_array((size_t)c->stages, sizeof(*c->begun));
    c->sorted = sh_alloc_array(2 * (size_t)c->config.vocab, sizeof(*c->sorted));
    c->row = sh_alloc_array((size_t)c->config.vocab, sizeof(*c->row));
    if (c->stages > 1)
        c->hidden = sh_alloc_array((size_t)c->room.tokens * (size_t)c->config.hidden,
                                   sizeof(*c->hidden));
    sh_buf_reserve(&c->message, MESSAGE_ROOM);
    sh_buf_reserve(&c->outgoing, c->parts_cap);
    c->step = c->parts_step = 0;
    c->times = (sh_crew_times){0};
}

sh_status sh_crew_join(sh_crew *c, sh_group *group, sh_err *err)
{
    crew_leave(c);
    c->group = group;
    c->rank = group == NULL ? 0 : sh_group_rank(group);
    c->size = group == NULL ? 1 : sh_group_size(group);
    c->context = c->opts.context > 0 ? c->opts.context : c->config.context;
    if (c->rank == 0 && c->context > c->config.context)
        SH_LOGW("sequences may have %d tokens, but the model was made for %d: output past that "
                "point may be garbage",
                c->context, c->config.context);
    if (group != NULL) sh_group_set_loading(group, true);
    int64_t blocks = 0;
    sh_status status = grid_choose(c, err);
    if (status != SH_OK && group != NULL) sh_group_fail(group, err->text);
    if (status == SH_OK) status = shards_plan(c, err);
    if (status == SH_OK) status = shard_load(c, err);
    if (status == SH_OK) status = blocks_agree(c, &blocks, err);
    if (status == SH_OK) status = sh_model_reserve_kv(c->model, (int)blocks, err);
    if (status == SH_OK && group != NULL) {
        c->links = sh_alloc_array((size_t)c->size * (size_t)c->size, sizeof(*c->links));
        status = sh_links_measure(group, c->links, err);
    }
    if (status != SH_OK) return status;
    if (group != NULL) sh_group_set_loading(group, false);
    stage_group(c);
    steps_prepare(c, blocks);
    return SH_OK;
}

const sh_step_room *sh_crew_room(const sh_crew *c)
{
    return &c->room;
}

const sh_config *sh_crew_config(const sh_crew *c)
{
    return &c->config;
}

const sh_shard *sh_crew_shard(const sh_crew *c, int rank)
{
    return &c->shards[rank];
}

sh_model *sh_crew_model(sh_crew *c)
{
    return c->model;
}

int sh_crew_context(const sh_crew *c)
{
    return c->context;
}

int sh_crew_stages(const sh_crew *c)
{
    return c->stages;
}

int sh_crew_size(const sh_crew *c)
{
    return c->size;
}

const sh_link_report *sh_crew_link(const sh_crew *c, int a, int b)
{
    return c->links == NULL ? NULL : &c->links[a * c->size + b];
}

sh_crew_times sh_crew_times_of(const sh_crew *c)
{
    return c->times;
}
