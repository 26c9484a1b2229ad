/* Joining a group: from "these ranks are connected" to "steps can run".
 *
 * The order is fixed, and every rank goes through it: choose the grid (tensor x pipeline), exchange
 * what each rank has (memory, speed, machine), agree on shares, cut the model, load the own
 * shard, keep the KV cache or agree on the size of a new one, measure the links, and allocate
 * everything that steps need. Each exchange is a collective, so a rank that leaves early would
 * leave the others waiting: on a local error it fails the group with the reason before it returns.
 *
 * Every rank computes the cut by itself from the same shares; plan_confirm() compares hashes of the
 * results, because ranks that disagree would compute garbage together without noticing. After a
 * join, decode steps do not allocate. */
#include "engine/model_group.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/system.h"
#include "engine/model_group_internal.h"
#include "model/predict.h"
#include "net/shm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MASKS_KEPT = 256,          /* masks that the ranks keep, 20 kB each for 160k tokens */
    ADJUSTS_MORE = 1 << 14,    /* logit changes of one step, beyond what one sequence may need */
    MESSAGE_RESERVE = 1 << 18, /* large enough for the plans of decode steps */
};

/* Where tokens see what follows them, a step must have space for the longest sequence. */
static void chunk_widen(sh_model_group *mg)
{
    enum { WHOLE_MAX = 8192 }; /* tokens, unless more are asked for: buffers grow with it */
    int longest = mg->opts.context > 0 ? mg->opts.context : WHOLE_MAX;
    if (longest > mg->config.context) longest = mg->config.context;
    if (mg->config.bidirectional && mg->opts.chunk < longest) mg->opts.chunk = longest;
}

sh_status sh_model_group_describe(sh_model_group *mg, const char *dir, sh_err *err)
{
    free(mg->model_dir);
    sh_config_reset(&mg->config);
    mg->model_dir = sh_strdup(dir);
    sh_status status = sh_config_load(dir, &mg->config, err);
    if (status == SH_OK) chunk_widen(mg);
    return status == SH_OK ? sh_identity_read(dir, &mg->identity, err) : status;
}

sh_status sh_model_group_open(const sh_model_group_opts *opts, sh_model_group **out, sh_err *err)
{
    sh_model_group *mg = sh_alloc(sizeof(*mg));
    mg->opts = *opts;
    sh_status status = opts->model_dir == NULL ? SH_OK
                                               : sh_model_group_describe(mg, opts->model_dir, err);
    if (status == SH_OK) status = sh_device_open(opts->device, &opts->device_opts, &mg->dev, err);
    if (status == SH_OK) mg->staging = mg->dev->ops->exchange_buffer(mg->dev, SH_STAGING_LEN);
    if (status != SH_OK) {
        sh_model_group_close(mg);
        return status;
    }
    *out = mg;
    return SH_OK;
}

void sh_model_group_set_beside(sh_model_group *mg, int64_t bytes)
{
    mg->beside_block = bytes;
}

/* Frees everything that belongs to one join. The model and the device stay. */
void sh_model_group_leave(sh_model_group *mg)
{
    if (mg->server != NULL) sh_share_server_end_visits(mg->server);
    sh_rank_free(mg->self);
    sh_step_plan_free(mg->plan);
    if (mg->stage != NULL && mg->stage != mg->group) sh_group_close(mg->stage);
    free(mg->shards);
    free(mg->hidden);
    free(mg->summaries);
    free(mg->vectors);
    free(mg->incoming);
    free(mg->incoming_due);
    free(mg->reports);
    free(mg->reports_due);
    free(mg->begun);
    free(mg->sorted);
    free(mg->row);
    free(mg->links);
    mg->links = NULL;
    mg->self = NULL;
    mg->plan = NULL;
    mg->group = mg->stage = NULL;
    mg->shards = NULL;
    mg->hidden = mg->row = NULL;
    mg->summaries = NULL;
    mg->incoming = NULL;
    mg->incoming_due = mg->reports_due = NULL;
    mg->reports = NULL;
    mg->reports_asked = false;
    mg->begun = NULL;
    mg->sorted = NULL;
    mg->vectors = NULL;
}

void sh_model_group_close(sh_model_group *mg)
{
    if (mg == NULL) return;
    sh_model_group_leave(mg);
    sh_model_free(mg->model);
    sh_shard_source_free(mg->source);
    sh_share_server_free(mg->server);
    sh_config_reset(&mg->config);
    if (mg->dev != NULL) mg->dev->ops->close(mg->dev);
    sh_buf_reset(&mg->message);
    sh_buf_reset(&mg->outgoing);
    sh_buf_reset(&mg->masks);
    sh_shares_reset(&mg->shares);
    sh_balance_reset(&mg->balance, 0);
    free(mg->model_dir);
    free(mg);
}

/* All-gathers the bytes of `mine`, which must have the same length on every rank, into `all`. */
static sh_status exchange(sh_model_group *mg, const sh_buf *mine, sh_buf *all, sh_err *err)
{
    size_t len = (size_t)mg->size * mine->len;
    sh_buf_clear(all);
    sh_buf_reserve(all, len);
    all->len = len;
    if (mg->group == NULL) {
        memcpy(all->ptr, mine->ptr, len);
        return SH_OK;
    }
    size_t *lens = sh_alloc_array((size_t)mg->size, sizeof(*lens));
    for (int i = 0; i < mg->size; i++) lens[i] = mine->len;
    sh_status status = sh_coll_allgather(mg->group, mine->ptr, lens, all->ptr, err);
    free(lens);
    return status;
}

/* All-gathers `count` numbers of each rank into all [size * count]. */
static sh_status exchange_numbers(sh_model_group *mg, const uint64_t *mine, int count,
                                  uint64_t *all, sh_err *err)
{
    sh_buf out = {0}, in = {0};
    for (int i = 0; i < count; i++) sh_put_uint(&out, mine[i], 8);
    sh_status status = exchange(mg, &out, &in, err);
    sh_reader r = sh_reader_of(sh_buf_str(&in));
    for (int i = 0; i < mg->size * count; i++) all[i] = sh_get_uint(&r, 8);
    sh_buf_reset(&out);
    sh_buf_reset(&in);
    return status;
}

int sh_model_group_number(const sh_model_group *mg, int rank)
{
    return mg->group == NULL ? mg->number : sh_group_number(mg->group, rank);
}

static sh_status terms_agree(sh_model_group *mg, sh_err *err)
{
    uint8_t bytes[SH_TERMS_LEN];
    sh_status status = mg->rank == 0 ? sh_model_group_choose_grid(mg, err) : SH_OK;
    mg->measured = !sh_model_group_split_take(mg, NULL);
    if (mg->group == NULL) return status;
    sh_model_group_terms_pack(mg, bytes);
    if (status == SH_OK) {
        status = sh_coll_broadcast(mg->group, 0, bytes, sizeof(bytes), err);
        if (status != SH_OK || mg->rank == 0) return status;
        status = sh_model_group_terms_take(mg, bytes, err);
    }
    if (status != SH_OK) sh_group_fail(mg->group, err->text);
    return status;
}

/* The KV cache of all ranks together, where the user has set its size: a rank holds as much of it
 * as of the heads. */
static double kv_bytes_wanted(const sh_model_group *mg)
{
    double all = 0, own = 0;
    for (int i = 0; i < mg->size; i++) {
        double part = (double)mg->shards[i].layer_count * (double)mg->shards[i].heads.count;
        all += part;
        if (i == mg->rank) own = part;
    }
    if (mg->opts.kv_tokens == 0 || own <= 0) return 0;
    return (double)mg->kv_blocks * (double)sh_model_kv_block_bytes(mg->model) * all / own;
}

sh_status sh_model_group_check_without(const sh_model_group *mg, uint64_t ranks, sh_err *err)
{
    sh_rank_offer others[SH_RANKS_MAX];
    double shares[SH_RANKS_MAX], weights = (double)mg->identity.weight_bytes;
    double kv = kv_bytes_wanted(mg);
    int count = 0;
    for (int i = 0; i < mg->shares.count; i++)
        if ((ranks >> i & 1) == 0) others[count++] = mg->shares.members[i];
    sh_status status = sh_shares_decide(others, count, weights, shares, err);
    if (status != SH_OK || sh_shares_decide(others, count, weights + kv, shares, err) == SH_OK)
        return status;
    return sh_err_set(err, SH_ERR_MEMORY,
                      "%.1f GiB for the model and a KV cache of %lld tokens are too much for the "
                      "others",
                      (weights + kv) / (1 << 30), (long long)mg->opts.kv_tokens);
}

sh_rank_offer sh_model_group_offer(const sh_model_group *mg, bool measure)
{
    sh_rank_offer mine = {.member = sh_model_group_number(mg, mg->rank)};
    mine.resources.memory = (double)(mg->dev->ops->memory_free(mg->dev) - mg->opts.memory_reserve);
    if (mg->model != NULL) { /* it would be free again if this rank got another shard */
        sh_model_memory used = sh_model_memory_used(mg->model);
        mine.resources.memory += (double)(used.weights + used.kv);
    }
    if (mine.resources.memory < 0) mine.resources.memory = 0;
    mine.resources.speed = measure ? mg->dev->ops->read_speed(mg->dev) : 1;
    sh_host_id(mine.machine);
    gethostname(mine.host, sizeof(mine.host) - 1);
    return mine;
}

static sh_status offers_exchange(sh_model_group *mg, sh_rank_offer *all, sh_err *err)
{
    sh_rank_offer mine = sh_model_group_offer(mg, mg->measured && mg->size > 1);
    sh_buf out = {0}, in = {0};
    sh_rank_offer_pack(&mine, &out);
    sh_status status = exchange(mg, &out, &in, err);
    sh_reader r = sh_reader_of(sh_buf_str(&in));
    for (int i = 0; status == SH_OK && i < mg->size; i++) sh_rank_offer_unpack(&r, &all[i]);
    if (status == SH_OK) status = sh_get_end(&r, "the offer of a rank", err);
    sh_buf_reset(&out);
    sh_buf_reset(&in);
    return status;
}

/* Broadcasts the shares of rank `from`. */
static sh_status shares_send(sh_model_group *mg, int from, double *shares, sh_err *err)
{
    sh_buf bytes = {0};
    for (int i = 0; i < mg->size; i++) sh_put_double(&bytes, shares[i]);
    sh_status status = sh_coll_broadcast(mg->group, from, bytes.ptr, bytes.len, err);
    sh_reader r = sh_reader_of(sh_buf_str(&bytes));
    for (int i = 0; status == SH_OK && i < mg->size; i++) shares[i] = sh_get_double(&r);
    sh_buf_reset(&bytes);
    return status;
}

/* Shares that follow what was measured in steps, if that is wanted and worth it. */
static bool shares_rebalance(const sh_model_group *mg, const sh_rank_offer *all, double *shares)
{
    int rank;
    double ratio;
    sh_err err;
    if (!mg->opts.rebalance || !sh_shares_are_for(&mg->shares, all, mg->size)) return false;
    if (!sh_balance_is_off(&mg->balance)) return false;
    sh_balance_slowest(&mg->balance, &rank, &ratio);
    sh_balance_shares(&mg->balance, mg->shares.shares, shares);
    if (sh_shares_fit(all, mg->size, (double)mg->identity.weight_bytes, shares, shares, &err) !=
        SH_OK) {
        SH_LOGW("the shares stay as they are: %s", err.text);
        return false;
    }
    SH_LOGI("imbalance %.2f: rank %d was slowest, new shares", ratio,
            sh_model_group_number(mg, rank));
    return true;
}

/* What this rank brings to the election of shares: those that it remembers, or rank 0's own. */
static sh_shares_vote shares_offer(const sh_model_group *mg, const sh_rank_offer *all,
                                   double *shares)
{
    size_t bytes = (size_t)mg->size * sizeof(*shares);
    bool usable = sh_shares_are_for(&mg->shares, all, mg->size) &&
                  (!mg->shares_read ||
                   sh_shares_fit_now(&mg->shares, all, (double)mg->identity.weight_bytes));
    sh_shares_vote vote = {mg->shares.number, usable ? mg->shares.number : 0, mg->refused};
    if (usable) memcpy(shares, mg->shares.shares, bytes);
    if (mg->rank == 0 &&
        (sh_model_group_split_take(mg, shares) || shares_rebalance(mg, all, shares)))
        vote.usable = SH_SHARES_MINE;
    return vote;
}

static sh_status votes_exchange(sh_model_group *mg, const sh_shares_vote *mine,
                                sh_shares_vote *votes, sh_err *err)
{
    const uint64_t numbers[3] = {mine->last, mine->usable, mine->refused};
    uint64_t *all = sh_alloc_array((size_t)mg->size, sizeof(numbers));
    sh_status status = exchange_numbers(mg, numbers, 3, all, err);
    for (int i = 0; i < mg->size; i++)
        votes[i] = (sh_shares_vote){all[3 * i], all[3 * i + 1], all[3 * i + 2]};
    free(all);
    return status;
}

/* The shares of the rank that remembers the newest for these members, else rank 0's decision. */
static sh_status shares_elect(sh_model_group *mg, const sh_rank_offer *all, double *shares,
                              uint64_t *number, sh_err *err)
{
    sh_shares_vote mine = shares_offer(mg, all, shares);
    sh_shares_vote *votes = sh_alloc_array((size_t)mg->size, sizeof(*votes));
    sh_status status = votes_exchange(mg, &mine, votes, err);
    int from = sh_shares_elect(votes, mg->size, number);
    bool decide = from == mg->rank && *number != mine.usable && mine.usable != SH_SHARES_MINE;
    free(votes);
    if (status == SH_OK && decide)
        status = sh_shares_decide(all, mg->size, (double)mg->identity.weight_bytes, shares, err);
    if (mg->group == NULL) return status;
    if (status != SH_OK) {
        sh_group_fail(mg->group, err->text);
        return status;
    }
    return shares_send(mg, from, shares, err);
}

/* All ranks end up with the same shares, and remember them. What was measured with other shares
 * says nothing about these. */
static sh_status shares_agree(sh_model_group *mg, double *shares, sh_err *err)
{
    uint64_t number = 0;
    sh_rank_offer *all = sh_alloc_array((size_t)mg->size, sizeof(*all));
    sh_status status = offers_exchange(mg, all, err);
    mg->host_ranks = status == SH_OK ? sh_host_ranks(all, mg->size, &all[mg->rank]) : 1;
    if (status == SH_OK)
        status = shares_elect(mg, all, shares, &number, err);
    else if (mg->group != NULL)
        sh_group_fail(mg->group, err->text);
    if (status == SH_OK && number != mg->shares.number) sh_balance_reset(&mg->balance, mg->size);
    if (status == SH_OK) {
        sh_shares_keep(&mg->shares, number, all, shares, mg->size);
        mg->shares_read = false;
    }
    free(all);
    return status;
}

/* Fails the group unless all ranks computed the same cut. */
static sh_status plan_confirm(sh_model_group *mg, sh_err *err)
{
    sh_buf bytes = {0};
    for (int i = 0; i < mg->size; i++) sh_shard_pack(&mg->shards[i], &bytes);
    sh_key128 hash = sh_hash128((sh_key128){5, 6}, bytes.ptr, bytes.len);
    uint64_t mine[2] = {hash.lo, hash.hi}, *all = sh_alloc_array((size_t)mg->size, sizeof(mine));
    sh_buf_reset(&bytes);
    sh_status status = exchange_numbers(mg, mine, 2, all, err);
    for (int i = 0; status == SH_OK && i < mg->size; i++) {
        if (memcmp(&all[2 * i], mine, sizeof(mine)) == 0) continue;
        status = sh_err_set(err, SH_ERR_GROUP, "rank %d splits the model differently than rank %d",
                            sh_model_group_number(mg, i), sh_model_group_number(mg, mg->rank));
        sh_group_fail(mg->group, err->text);
    }
    free(all);
    return status;
}

sh_status sh_model_group_cut(sh_model_group *mg, const double *shares, sh_err *err)
{
    sh_plan_opts opts = {.tensor_size = mg->tensor,
                         .stages = mg->stages,
                         .weights = shares,
                         .head_layers = sh_predict_head_layers(&mg->config)};
    mg->shards = sh_alloc_array((size_t)mg->size, sizeof(*mg->shards));
    return sh_shard_plan(&mg->config, &opts, mg->shards, err);
}

static sh_status shards_plan(sh_model_group *mg, sh_err *err)
{
    double *shares = sh_alloc_array((size_t)mg->size, sizeof(*shares));
    sh_status status = shares_agree(mg, shares, err);
    if (status == SH_OK) {
        status = sh_model_group_cut(mg, shares, err);
        if (status != SH_OK && mg->group != NULL) sh_group_fail(mg->group, err->text);
    }
    free(shares);
    return status == SH_OK ? plan_confirm(mg, err) : status;
}

static sh_status shard_read(sh_model_group *mg, const sh_shard *shard, sh_err *err)
{
    sh_model_opts opts = {.tokens_max = mg->opts.chunk,
                          .rows_max = mg->opts.draws,
                          .kv_format = mg->opts.kv_format,
                          .load = mg->opts.load};
    opts.load.progress = sh_model_group_loaded;
    opts.load.progress_ctx = mg;
    if (mg->source != NULL) {
        int threads = opts.load.threads > 0 ? opts.load.threads : sh_cpu_count();
        /* While some pack what has come, all connections can be waited for. */
        opts.load.threads = threads + SH_SHARE_CONNS_MAX;
        opts.load.source = sh_shard_source_windows(mg->source);
    }
    return sh_model_load(mg->model_dir, &mg->config, shard, mg->dev, &opts, &mg->model, err);
}

/* Only what changed hands is read. */
static sh_status shard_change(sh_model_group *mg, const sh_shard *shard, sh_err *err)
{
    sh_status status = sh_model_reshard(&mg->model, shard, err);
    if (status != SH_OK) return status;
    sh_model_loaded loaded = sh_model_loaded_of(mg->model);
    SH_LOGI("loaded %.0f MB of %.0f MB, the rest was here", (double)loaded.read * 1e-6,
            (double)loaded.total * 1e-6);
    return SH_OK;
}

/* Keeps the loaded weights if the shard is the same as before. On failure the group is failed with
 * the reason, so that the others do not wait for this rank. */
sh_status sh_model_group_load_shard(sh_model_group *mg, sh_err *err)
{
    const sh_shard *shard = &mg->shards[mg->rank];
    if (mg->model != NULL && memcmp(sh_model_shard(mg->model), shard, sizeof(*shard)) == 0)
        return SH_OK;
    mg->kv_epoch = 0;
    sh_model_group_keep_shares(mg, true);
    sh_status status = mg->model == NULL ? shard_read(mg, shard, err)
                                         : shard_change(mg, shard, err);
    bool lost = status == SH_ERR_GROUP || status == SH_ERR_PEER || status == SH_ERR_TIMEOUT;
    if (status != SH_OK && !lost) { /* the shares may be what does not fit */
        mg->refused = mg->shares.number;
        sh_model_group_keep_shares(mg, false);
    }
    if (status != SH_OK && mg->group != NULL) sh_group_fail(mg->group, err->text);
    return status;
}

/* Where tokens see what follows them, a sequence is as long as a step at most. */
static int whole_context(const sh_model_group *mg)
{
    int most = mg->opts.chunk < mg->config.context ? mg->opts.chunk : mg->config.context;
    return mg->context < most ? mg->context : most;
}

/* The KV cache has the same number of blocks on every rank, so the rank with the least memory sets
 * its size. All ranks see the same numbers and, given the same options, come to the same result or
 * to the same error. */
static sh_status blocks_agree(sh_model_group *mg, int64_t *blocks, sh_err *err)
{
    int64_t bytes = (int64_t)sh_model_kv_block_bytes(mg->model) + mg->beside_block;
    int64_t memory = (mg->dev->ops->memory_free(mg->dev) - mg->opts.memory_reserve) /
                     mg->host_ranks;
    if (mg->opts.kv_memory > 0 && mg->opts.kv_memory < memory) memory = mg->opts.kv_memory;
    int64_t fit = bytes == 0 ? INT32_MAX : memory / bytes;
    int64_t seq = (mg->context + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    int64_t want = mg->opts.kv_tokens > 0 ? (mg->opts.kv_tokens + SH_KV_BLOCK - 1) / SH_KV_BLOCK
                                          : seq * mg->opts.slots;
    /* Sequences that run in one step need blocks for that step only, of which each may leave one
     * unfilled. */
    int64_t steps = (mg->opts.chunk / SH_KV_BLOCK + mg->opts.slots) * (int64_t)mg->stages;
    if (mg->config.bidirectional && mg->opts.kv_tokens == 0 && want > steps) want = steps;
    if (fit > INT32_MAX) fit = INT32_MAX;
    if (fit < 0) fit = 0;
    uint64_t mine = (uint64_t)fit, *all = sh_alloc_array((size_t)mg->size, sizeof(*all));
    sh_status status = exchange_numbers(mg, &mine, 1, all, err);
    for (int i = 0; i < mg->size && status == SH_OK; i++) {
        int64_t fits = all[i] > INT32_MAX ? INT32_MAX : (int64_t)all[i];
        if (fits < want && mg->opts.kv_tokens > 0)
            status = sh_err_set(err, SH_ERR_MEMORY,
                                "rank %d has memory for a KV cache of %lld tokens, not %lld: lower "
                                "--kv-tokens, or the memory that is left free (--kv-reserve-mb)",
                                sh_model_group_number(mg, i), (long long)fits * SH_KV_BLOCK,
                                (long long)mg->opts.kv_tokens);
        else if (fits < 2)
            status = sh_err_set(
                err, SH_ERR_MEMORY,
                "rank %d has no memory for a KV cache: lower --context, --slots or "
                "--kv-tokens, the memory that is left free (--kv-reserve-mb), or add "
                "a rank",
                sh_model_group_number(mg, i));
        else if (fits < want)
            want = fits;
    }
    free(all);
    *blocks = want;
    return status;
}

/* Whether every rank still has the KV blocks of the same earlier group. */
static sh_status kv_compare(sh_model_group *mg, bool *same, sh_err *err)
{
    uint64_t *all = sh_alloc_array((size_t)mg->size, sizeof(*all));
    sh_status status = exchange_numbers(mg, &mg->kv_epoch, 1, all, err);
    *same = mg->kv_epoch != 0;
    for (int i = 0; status == SH_OK && i < mg->size; i++) *same = *same && all[i] == mg->kv_epoch;
    free(all);
    return status;
}

/* The KV blocks of the group before if no rank has lost them, else new ones. The old ones are
 * released first, since the new ones take their memory. Their number is kept with them: this join
 * may still fail, and the next one find that all ranks have these. */
static sh_status kv_prepare(sh_model_group *mg, sh_err *err)
{
    bool same;
    int64_t blocks = 0;
    sh_status status = kv_compare(mg, &same, err);
    if (status != SH_OK || same) return status;
    mg->kv_epoch = 0;
    status = sh_model_reserve_kv(mg->model, 0, err);
    if (status == SH_OK) status = blocks_agree(mg, &blocks, err);
    if (status == SH_OK) status = sh_model_reserve_kv(mg->model, (int)blocks, err);
    if (status != SH_OK) return status;
    mg->kv_blocks = (int)blocks;
    if (mg->group != NULL) mg->kv_epoch = sh_group_epoch(mg->group);
    return SH_OK;
}

/* What a sum of the ranks of a stage is about: a tensor of the device. */
typedef struct {
    sh_device *dev;
    sh_tensor x;
    sh_layout layout;
} device_numbers;

static void *numbers_at(void *ctx, size_t block)
{
    const device_numbers *n = ctx;
    return n->dev->ops->exchange_at(n->dev, n->x, &n->layout, block);
}

static void numbers_encode(void *ctx, size_t first, size_t end, void *wire)
{
    const device_numbers *n = ctx;
    n->dev->ops->encode(n->dev, n->x, &n->layout, first, end, wire);
}

static void numbers_fold(void *ctx, size_t first, size_t end, const void *const *parts, int count,
                         void *sum)
{
    const device_numbers *n = ctx;
    n->dev->ops->fold(n->dev, n->x, &n->layout, first, end, parts, count, sum);
}

static void numbers_decode(void *ctx, size_t first, size_t end, const void *wire)
{
    const device_numbers *n = ctx;
    n->dev->ops->decode(n->dev, n->x, &n->layout, first, end, wire);
}

/* The device lends its numbers and does the arithmetic, the group moves the bytes. */
static sh_status reduce(void *ctx, sh_tensor x, int rows, int64_t cols, sh_err *err)
{
    sh_model_group *mg = ctx;
    device_numbers n = {mg->dev, x, sh_layout_of(mg->opts.wire, (size_t)rows, (size_t)cols)};
    sh_numbers numbers = {.ctx = &n,
                          .at = numbers_at,
                          .encode = numbers_encode,
                          .fold = numbers_fold,
                          .decode = numbers_decode,
                          .staging = mg->staging};
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_sum(mg->stage, &n.layout, &numbers, err);
    sh_model_group_counted(mg, SH_TRAFFIC_SUM, (size_t)rows * (size_t)cols * sizeof(float), start);
    return status;
}

/* Ranks are numbered stage by stage: those of one stage are neighbours. */
static void stage_group(sh_model_group *mg)
{
    if (mg->group == NULL || mg->tensor == 1) return;
    int first = mg->rank / mg->tensor * mg->tensor;
    int *members = sh_alloc_array((size_t)mg->tensor, sizeof(*members));
    for (int i = 0; i < mg->tensor; i++) members[i] = first + i;
    mg->stage = mg->stages == 1 ? mg->group : sh_group_split(mg->group, members, mg->tensor);
    free(members);
}

/* Registers the buffers of steps with the group, so that no transport has to copy them. Plans
 * arrive in the group's own memory, so only rank 0 registers the buffer that it sends them from. */
static sh_status steps_register(sh_model_group *mg, sh_err *err)
{
    size_t hidden_len = (size_t)mg->limits.tokens * (size_t)mg->config.hidden * sizeof(float);
    void *sums;
    size_t sums_len;
    sh_model_sum_memory(mg->model, &sums, &sums_len);
    mg->message_registered = mg->rank == 0 ? mg->message.ptr : NULL;
    const struct {
        void *at;
        size_t len;
    } buffers[] = {
        {sums, sums_len},
        {mg->staging, SH_STAGING_LEN},
        {mg->hidden, hidden_len},
        {mg->incoming, (size_t)mg->size * mg->incoming_cap},
        {mg->reports, (size_t)mg->size * SH_RANK_REPORT_BYTES},
        {mg->outgoing.ptr, mg->outgoing.cap},
        {mg->message_registered, mg->message.cap},
    };
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT_OF(buffers) && status == SH_OK; i++)
        status = sh_group_register_memory(mg->group, buffers[i].at, buffers[i].len, err);
    if (status != SH_OK) sh_group_fail(mg->group, err->text);
    return status;
}

/* Allocates all that steps need. A sequence can never be longer than the whole KV cache. */
static void steps_prepare(sh_model_group *mg)
{
    int64_t kv_tokens = (int64_t)mg->kv_blocks * SH_KV_BLOCK;
    if (kv_tokens < mg->context) {
        bool chosen = mg->opts.kv_tokens > 0; /* by the user, who knows */
        if (mg->rank == 0 && !chosen)
            SH_LOGW("the KV cache has a capacity of %lld tokens, so that is the longest sequence, "
                    "not %d "
                    "(--context, --kv-tokens, --kv-memory-mb, --kv-reserve-mb)",
                    (long long)kv_tokens, mg->context);
        mg->context = (int)kv_tokens;
    }
    mg->limits = (sh_step_limits){.slots = mg->opts.slots,
                                  .tokens = mg->opts.chunk,
                                  .draws = mg->opts.draws,
                                  .adjusts = 2 * mg->context + ADJUSTS_MORE,
                                  .blocks = mg->kv_blocks,
                                  .seq_blocks = mg->context / SH_KV_BLOCK + 2,
                                  .vocab = mg->config.vocab,
                                  .masks = mg->opts.draws > MASKS_KEPT ? mg->opts.draws
                                                                       : MASKS_KEPT,
                                  .outputs = mg->opts.outputs};
    mg->peers = (sh_peers){.ctx = mg, .reduce = reduce};
    mg->self = sh_rank_create(mg->model, mg->group == NULL ? NULL : &mg->peers, &mg->limits,
                              mg->stages);
    mg->plan = sh_step_plan_create(&mg->limits);
    mg->summaries = sh_alloc_array((size_t)mg->tensor, sizeof(*mg->summaries));
    size_t vectors = (size_t)mg->limits.slots * (size_t)mg->config.hidden;
    mg->vectors = sh_alloc_array(mg->rank == 0 ? vectors : 0, sizeof(*mg->vectors));
    size_t outputs = 0; /* without a pipeline, rank 0 has its own */
    if (mg->limits.outputs && mg->stages > 1)
        outputs = (size_t)mg->limits.tokens * (size_t)mg->config.hidden;
    mg->incoming_cap = sizeof(uint64_t) + (size_t)mg->limits.draws * SH_SUMMARY_BYTES_MAX +
                       (vectors + outputs) * sizeof(float);
    if (mg->rank == 0) mg->incoming = sh_alloc_array((size_t)mg->size, mg->incoming_cap);
    mg->incoming_due = sh_alloc_array((size_t)mg->size, sizeof(*mg->incoming_due));
    mg->reports = sh_alloc_array((size_t)mg->size, SH_RANK_REPORT_BYTES);
    mg->reports_due = sh_alloc_array((size_t)mg->size, sizeof(*mg->reports_due));
    mg->begun = sh_alloc_array((size_t)mg->stages, sizeof(*mg->begun));
    mg->sorted = sh_alloc_array(2 * (size_t)mg->config.vocab, sizeof(*mg->sorted));
    mg->row = sh_alloc_array((size_t)mg->config.vocab, sizeof(*mg->row));
    if (mg->stages > 1)
        mg->hidden = sh_alloc_array((size_t)mg->limits.tokens * (size_t)mg->config.hidden,
                                    sizeof(*mg->hidden));
    sh_buf_reserve(&mg->message, MESSAGE_RESERVE);
    sh_buf_reserve(&mg->outgoing, mg->incoming_cap + SH_RANK_REPORT_BYTES);
    mg->step = mg->incoming_step = mg->masks_step = 0;
    mg->times = (sh_model_group_times){0};
    sh_balance_restart(&mg->balance);
}

static sh_status join(sh_model_group *mg, sh_group *group, sh_err *err)
{
    sh_model_group_leave(mg);
    mg->group = group;
    mg->rank = group == NULL ? 0 : sh_group_rank(group);
    mg->size = group == NULL ? 1 : sh_group_size(group);
    /* While it loads, a rank may be silent for much longer than the group's timeouts allow. */
    if (group != NULL) sh_group_set_loading(group, true);
    sh_status status = group == NULL ? SH_OK : sh_model_group_share_begin(mg, err);
    if (status == SH_OK) status = terms_agree(mg, err);
    if (status != SH_OK) return status;
    mg->context = mg->opts.context > 0 ? mg->opts.context : mg->config.context;
    if (mg->config.bidirectional) mg->context = whole_context(mg);
    if (mg->rank == 0 && mg->context > mg->config.context)
        SH_LOGW("sequences may have %d tokens, but the model was made for %d: output past that "
                "point may be garbage",
                mg->context, mg->config.context);
    status = shards_plan(mg, err);
    if (status == SH_OK) status = sh_model_group_load_shard(mg, err);
    sh_model_group_share_end(mg);
    if (status == SH_OK) status = kv_prepare(mg, err);
    if (status == SH_OK && group != NULL) {
        mg->links = sh_alloc_array((size_t)mg->size * (size_t)mg->size, sizeof(*mg->links));
        status = sh_links_measure(group, mg->links, err);
    }
    if (status != SH_OK) return status;
    if (group != NULL) sh_group_set_loading(group, false);
    stage_group(mg);
    steps_prepare(mg);
    return group != NULL ? steps_register(mg, err) : SH_OK;
}

sh_status sh_model_group_join(sh_model_group *mg, sh_group *group, sh_err *err)
{
    sh_status status = join(mg, group, err);
    sh_model_group_loaded(mg, 0, 0); /* or given up */
    return status;
}

const sh_step_limits *sh_model_group_limits(const sh_model_group *mg)
{
    return &mg->limits;
}

const sh_config *sh_model_group_config(const sh_model_group *mg)
{
    return &mg->config;
}

const sh_shard *sh_model_group_shard(const sh_model_group *mg, int rank)
{
    return &mg->shards[rank];
}

sh_model *sh_model_group_model(sh_model_group *mg)
{
    return mg->model;
}

uint64_t sh_model_group_identity(const sh_model_group *mg)
{
    uint64_t id;
    memcpy(&id, mg->identity.id, sizeof(id));
    return id;
}

uint64_t sh_model_group_kv_epoch(const sh_model_group *mg)
{
    return mg->kv_epoch;
}

int sh_model_group_context(const sh_model_group *mg)
{
    return mg->context;
}

int sh_model_group_stages(const sh_model_group *mg)
{
    return mg->stages;
}

const sh_balance *sh_model_group_balance(const sh_model_group *mg)
{
    return &mg->balance;
}

int sh_model_group_size(const sh_model_group *mg)
{
    return mg->size;
}

const sh_link_report *sh_model_group_link(const sh_model_group *mg, int a, int b)
{
    return mg->links == NULL ? NULL : &mg->links[a * mg->size + b];
}

sh_model_group_times sh_model_group_times_of(const sh_model_group *mg)
{
    return mg->times;
}
