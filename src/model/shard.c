/* Cuts a model into shards.
 *
 * Every rank computes the whole plan from the same inputs and takes its own row. If two ranks
 * disagreed about a border by one unit, both would hold that unit or neither would, and the sums
 * would be wrong. So all arithmetic here is done in one fixed order, and a border that two ranks
 * share is computed by both from the same numbers in the same order.
 *
 * Units keep the kernels simple: heads are cut in groups that share a KV head, widths at multiples
 * of the widest quantization group (so that no group is split), the vocabulary at multiples of
 * UNIT_MIN. Layers are handed out one at a time rather than by rounding, which cannot lose one. */
#include "model/shard.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

/* Unquantized widths and the vocabulary are cut at multiples of this, so that kernels get whole
 * vectors. */
enum { UNIT_MIN = 32 };

sh_range sh_shard_cut(int64_t units, const double *weights, int count, int idx)
{
    double total = 0, before = 0;
    SH_ASSERT(idx >= 0 && idx < count);
    for (int i = 0; i < count; i++) {
        total += weights[i];
        if (i < idx) before += weights[i];
    }
    SH_ASSERT(total > 0);
    /* `after` is the `before` of the next rank: the same numbers added in the same order, hence the
     * same bits and the same border on both. The last border must be exact. */
    double after = before + weights[idx];
    int64_t first = llround(before / total * (double)units);
    int64_t end = idx == count - 1 ? units : llround(after / total * (double)units);
    return (sh_range){.first = first, .count = end - first};
}

/* Group sizes are powers of two, so a multiple of the widest is a multiple of all. */
int64_t sh_shard_unit(const sh_config *config)
{
    int64_t unit = UNIT_MIN;
    if (config->quant.on && config->quant.base.group > unit) unit = config->quant.base.group;
    for (size_t i = 0; i < config->quant.override_count; i++) {
        const sh_quant_override *o = &config->quant.overrides[i];
        if (o->on && o->quant.group > unit) unit = o->quant.group;
    }
    return unit;
}

/* Cuts `total` numbers at multiples of `unit`; the last unit may be smaller. */
static sh_range cut_width(int64_t total, int64_t unit, const double *weights, int count, int idx)
{
    sh_range units = sh_shard_cut((total + unit - 1) / unit, weights, count, idx);
    int64_t first = units.first * unit, end = (units.first + units.count) * unit;
    if (first > total) first = total;
    if (end > total) end = total;
    return (sh_range){.first = first, .count = end - first};
}

/* Query heads that share a KV head stay together, so that each KV head is stored once; only when
 * there are more ranks than KV heads are the groups split and KV heads held by several ranks. The
 * latent of MLA is shared by all heads: every rank that has heads holds it. */
static void cut_heads(const sh_config *config, const double *weights, sh_shard *shard)
{
    int64_t group = config->heads / config->kv_heads;
    int64_t unit = shard->tensor_size > config->kv_heads ? 1 : group;
    sh_range cut = sh_shard_cut(config->heads / unit, weights, shard->tensor_size,
                                shard->tensor_rank);
    shard->heads = (sh_range){.first = cut.first * unit, .count = cut.count * unit};
    if (shard->heads.count == 0) {
        shard->kv_heads = (sh_range){0};
    } else if (config->mla.kv_rank > 0) {
        shard->kv_heads = (sh_range){.first = 0, .count = 1};
    } else {
        int64_t first = shard->heads.first / group;
        int64_t last = (shard->heads.first + shard->heads.count - 1) / group;
        shard->kv_heads = (sh_range){.first = first, .count = last - first + 1};
    }
}

/* Key heads whose values together are a whole number of units wide. */
static sh_range cut_delta(const sh_delta_config *delta, int64_t unit, const double *weights,
                          int count, int idx)
{
    if (delta->k_heads == 0) return (sh_range){0};
    int64_t width = (int64_t)delta->v_heads / delta->k_heads * delta->v_dim, heads = 1;
    while (heads * width % unit != 0) heads++;
    return cut_width(delta->k_heads, heads, weights, count, idx);
}

static void cut_tensors(const sh_config *config, const double *weights, sh_shard *shard)
{
    int64_t unit = sh_shard_unit(config);
    int count = shard->tensor_size, idx = shard->tensor_rank;
    cut_heads(config, weights, shard);
    shard->conv = cut_width(config->conv.channels, unit, weights, count, idx);
    shard->delta = cut_delta(&config->delta, unit, weights, count, idx);
    shard->ffn = cut_width(config->ffn, unit, weights, count, idx);
    shard->expert_ffn = cut_width(config->moe.ffn, unit, weights, count, idx);
    shard->shared_ffn = cut_width(config->moe.shared_ffn, unit, weights, count, idx);
    shard->vocab = cut_width(config->vocab, UNIT_MIN, weights, count, idx);
}

/* Heads need not be a multiple of a quantization group wide. Neighbouring ranks may then both hold
 * the group at their border; each has zeros in its input for the columns of the other. */
sh_range sh_shard_out_cols(const sh_config *config, const sh_shard *shard)
{
    int64_t unit = sh_shard_unit(config), total = (int64_t)config->heads * config->v_dim;
    int64_t first = shard->heads.first * config->v_dim;
    int64_t end = first + shard->heads.count * config->v_dim;
    if (shard->heads.count == 0) return (sh_range){0};
    first = first / unit * unit;
    end = (end + unit - 1) / unit * unit;
    if (end > total) end = total;
    return (sh_range){.first = first, .count = end - first};
}

sh_shard sh_shard_whole(const sh_config *config)
{
    const double one = 1;
    sh_shard shard = {.tensor_size = 1, .stages = 1, .layer_count = config->layers};
    cut_tensors(config, &one, &shard);
    return shard;
}

sh_range sh_shard_mixer(const sh_shard *shard, sh_mixer mixer)
{
    switch (mixer) {
    case SH_MIXER_SHORT_CONV: return shard->conv;
    case SH_MIXER_DELTA_NET: return shard->delta;
    default: return shard->heads;
    }
}

sh_delta_net sh_shard_delta_net(const sh_config *config, const sh_shard *shard)
{
    const sh_delta_config *d = &config->delta;
    return (sh_delta_net){.heads = (int)shard->delta.count,
                          .values = d->v_heads / d->k_heads,
                          .k_dim = d->k_dim,
                          .v_dim = d->v_dim,
                          .taps = d->taps,
                          .eps = config->norm_eps};
}

bool sh_shard_embeds(const sh_shard *shard)
{
    return shard->stage == 0;
}

bool sh_shard_predicts(const sh_shard *shard)
{
    return shard->stage == shard->stages - 1;
}

static sh_status check_plan(const sh_config *config, const sh_plan_opts *opts, sh_err *err)
{
    if (opts->tensor_size < 1 || opts->stages < 1 ||
        (int64_t)opts->tensor_size * opts->stages > SH_SHARDS_MAX)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%d x %d ranks are not possible; a group has 1 to %d ranks",
                          opts->tensor_size, opts->stages, SH_SHARDS_MAX);
    if (opts->stages > config->layers)
        return sh_err_set(err, SH_ERR_INPUT, "%d pipeline stages for a model of %d layers",
                          opts->stages, config->layers);
    for (int s = 0; s < opts->stages && opts->weights != NULL; s++) {
        double sum = 0;
        for (int t = 0; t < opts->tensor_size; t++) {
            double weight = opts->weights[s * opts->tensor_size + t];
            if (!(weight >= 0 && weight <= 1e15))
                return sh_err_set(err, SH_ERR_INPUT,
                                  "the share of rank %d is %g, it must be from 0 to 1e15",
                                  s * opts->tensor_size + t, weight);
            sum += weight;
        }
        if (!(sum > 0))
            return sh_err_set(err, SH_ERR_INPUT, "all shares of pipeline stage %d are 0", s);
    }
    return SH_OK;
}

/* Layers of the stages: in proportion to the sum of each stage's weights, but at least one each.
 * `head` is the cost of the head, in layers, which the last stage has in addition. */
static void cut_layers(int layers, double head, const double *sums, int stages, int *counts)
{
    int spare = layers - stages;
    for (int s = 0; s < stages; s++) counts[s] = 1;
    /* One at a time to the stage that is furthest below its due. The numbers are small, and unlike
     * rounded shares this cannot lose a layer. */
    double total = 0;
    for (int s = 0; s < stages; s++) total += sums[s];
    for (; spare > 0; spare--) {
        int best = 0;
        double most = -INFINITY;
        for (int s = 0; s < stages; s++) {
            double has = counts[s] + (s == stages - 1 ? head : 0);
            double lack = sums[s] / total * (layers + head) - has;
            if (lack > most) {
                most = lack;
                best = s;
            }
        }
        counts[best]++;
    }
}

sh_status sh_shard_plan(const sh_config *config, const sh_plan_opts *opts, sh_shard *shards,
                        sh_err *err)
{
    sh_status status = check_plan(config, opts, err);
    if (status != SH_OK) return status;
    int width = opts->tensor_size, stages = opts->stages;
    double *weights = sh_alloc_array((size_t)(width * stages), sizeof(*weights));
    double *sums = sh_alloc_array((size_t)stages, sizeof(*sums));
    int *counts = sh_alloc_array((size_t)stages, sizeof(*counts));
    for (int r = 0; r < width * stages; r++) {
        weights[r] = opts->weights == NULL ? 1 : opts->weights[r];
        sums[r / width] += weights[r];
    }
    cut_layers(config->layers, opts->head_layers, sums, stages, counts);
    int first = 0;
    for (int s = 0; s < stages; first += counts[s++]) {
        for (int t = 0; t < width; t++) {
            sh_shard *shard = &shards[s * width + t];
            *shard = (sh_shard){.rank = s * width + t,
                                .tensor_rank = t,
                                .tensor_size = width,
                                .stage = s,
                                .stages = stages,
                                .layer_first = first,
                                .layer_count = counts[s]};
            cut_tensors(config, weights + s * width, shard);
        }
    }
    free(weights);
    free(sums);
    free(counts);
    return SH_OK;
}

/* Caps one rank at a time and starts over: what it could not take changes the fair shares of the
 * others, and may fill up the next. */
sh_status sh_shares_by_resources(const sh_rank_resources *resources, int count, double weight_bytes,
                                 double *shares, sh_err *err)
{
    double left = 1, total = 0, sum = 0;
    bool full[SH_SHARDS_MAX] = {false};
    for (int i = 0; i < count; i++) total += resources[i].memory;
    for (bool again = true; again;) {
        double speed = 0;
        again = false;
        for (int i = 0; i < count; i++) speed += full[i] ? 0 : resources[i].speed;
        for (int i = 0; i < count && speed > 0 && !again; i++) {
            if (full[i]) continue;
            shares[i] = left * resources[i].speed / speed;
            double most = resources[i].memory / weight_bytes;
            if (shares[i] <= most) continue;
            shares[i] = most;
            left -= most;
            full[i] = again = true;
        }
    }
    for (int i = 0; i < count; i++) sum += shares[i];
    if (sum >= 0.999) return SH_OK;
    return sh_err_set(err, SH_ERR_MEMORY,
                      "the model has %.2f GiB of weights; %d rank%s room for %.2f GiB, so %.2f GiB "
                      "are missing",
                      weight_bytes / (1 << 30), count, count == 1 ? " has" : "s together have",
                      total / (1 << 30), (weight_bytes - total) / (1 << 30));
}
